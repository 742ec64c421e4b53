"""The stage generate of train: a synthetic log beside --data_dir, and prepare's settings for it."""
import dataclasses
import os

from absl import logging

from clrec_tf.data.schema import MANIFEST_FILE
from clrec_tf.errors import UserError
from clrec_tf.preparation import synthetic_log
from clrec_tf.settings.data import Paths
from clrec_tf.settings.data import PrepareConfig
from clrec_tf.settings.data import WorldConfig
from clrec_tf.system import atomic

LOG_FOLDER = "log"


def generate_log(paths: Paths, sizes: WorldConfig, settings: PrepareConfig) -> PrepareConfig:
    """Writes the synthetic click log beside --data_dir, unless it is there and prepared.

    Returns:
      The settings, pointed to that log.

    Raises:
      UserError: --data_dir is not set or its place not writable, or --input is given too.
    """
    if not paths.data_dir:
        raise UserError("--data_dir is not set: the generated log is written beside it")
    if settings.input:
        raise UserError(f"--input={settings.input} together with the stage generate: leave one of them out")
    data_dir = paths.data_dir.rstrip("/")
    atomic.check_folder_place(data_dir, "data_dir")
    folder = f"{data_dir}-{LOG_FOLDER}"
    log = os.path.join(folder, synthetic_log.CLICKS_FILE)
    if not os.path.exists(os.path.join(data_dir, MANIFEST_FILE)) or not os.path.exists(log):
        log = synthetic_log.generate(sizes, paths.seed, folder)
        logging.info("generated %s", log)
    return dataclasses.replace(
        settings, format="columns", input=log, item_features=os.path.join(folder, synthetic_log.ITEMS_FILE),
        feature_columns=settings.feature_columns or ("category", "seller"))
