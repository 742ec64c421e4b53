"""A trained model from a workdir, for evaluation and export."""
import dataclasses

from clrec_tf.config import Config
from clrec_tf.config import require
from clrec_tf.data import schema as schema_lib
from clrec_tf.errors import UserError
from clrec_tf.models.build import build_model
from clrec_tf.models.build import load_content
from clrec_tf.models.two_tower import TwoTower
from clrec_tf.training import checkpoint_list
from clrec_tf.training import checkpoints
from clrec_tf.training import run_config

import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Trained:
    """A restored model and what it came from.

    Attributes:
      model: with the checkpoint's values.
      settings: those it was built with (of the run, not of the current flags), as a `Config`.
      schema, manifest: of --data_dir, checked against the run.
      step: of the checkpoint.
      checkpoint: its prefix.
      checkpoint_hash: sha256 over its files.
      run_config: the run's config.json.
    """
    model: TwoTower
    settings: Config
    schema: schema_lib.Schema
    manifest: schema_lib.Manifest
    step: int
    checkpoint: str
    checkpoint_hash: str
    run_config: dict

    @property
    def max_history(self) -> int:
        """T that the model was trained with."""
        return self.settings.model.max_history


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
