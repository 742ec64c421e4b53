"""Restores a trained model from a workdir, for evaluation and export."""
from clrec_tf.config import Config
from clrec_tf.config import require
from clrec_tf.data import schema as schema_lib
from clrec_tf.errors import UserError
from clrec_tf.models.build import build_model
from clrec_tf.models.build import load_content
from clrec_tf.models.trained import Trained
from clrec_tf.training import checkpoint_list
from clrec_tf.training import checkpoints
from clrec_tf.training import run_config

import tensorflow as tf


def load_trained(config: Config, which: str, flag: str = "eval_checkpoint") -> Trained:
    """Restores the model of --workdir on --data_dir.

    Args:
      config: paths and seed.
      which: "best", "latest" or a checkpoint's prefix.
      flag: name of the flag that gave it.

    Raises:
      UserError: no run, no checkpoint, or one that does not fit the data.
    """
    data_dir = require(config.paths.data_dir, "data_dir", "the data set that the model was trained on")
    workdir = require(config.paths.workdir, "workdir", "the folder of the training run")
    schema, manifest = schema_lib.load_schema(data_dir), schema_lib.load_manifest(data_dir)
    saved = run_config.load(workdir)
    run_config.check_schema(saved, schema.hash(), data_dir, workdir)
    settings = run_config.saved_settings(saved)
    prefix = checkpoints.find_checkpoint(workdir, which, flag)
    model = build_model(settings, schema, load_content(data_dir, schema), config.paths.seed)
    try:
        checkpoints.restore(tf.train.Checkpoint(model=model), prefix).expect_partial().assert_existing_objects_matched()
    except AssertionError as error:
        raise UserError(f"checkpoint {prefix} cannot be read into this model: {str(error).splitlines()[0][:200]}"
                        ) from error
    step = prefix.rsplit("-", 1)[-1]
    return Trained(model, settings, schema, manifest, int(step) if step.isdigit() else 0, prefix,
                   checkpoint_list.checkpoint_hash(prefix), saved)
