"""The objective of --loss and --pretext over a model, with what it needs of the data beyond batches."""
from clrec_tf.data.exposures import read_exposures
from clrec_tf.data.item_rows import read_items
from clrec_tf.data import schema as schema_lib
from clrec_tf.objectives.base import Objective
from clrec_tf.objectives.base import ObjectiveInputs


def build_objective(config, schema: schema_lib.Schema, manifest: schema_lib.Manifest, model, runtime,
                    batches=None, epoch_steps: int = 0, keys=None) -> Objective:
    """The objective of --loss and --pretext over a model.

    Args:
      config: a `config.Config`.
      schema, manifest: of --data_dir.
      model: a `TwoTower`.
      runtime: gives worker-local variables and constants.
      batches: () -> training batches, for what a loss fits beforehand; called for such losses only.
      epoch_steps: of the first epoch.
      keys: the model's `KeyEncoder`, or None.

    Raises:
      UserError: settings that contradict each other or the data.
    """
    config.refuse_unread("loss")
    data_dir = config.paths.data_dir
    inputs = ObjectiveInputs(
        config, model, runtime.local_variable, lambda width: read_items(data_dir, schema, manifest, width),
        lambda flag: read_exposures(data_dir, manifest, flag), runtime.local_constant, schema, batches, epoch_steps,
        keys)
    return config.loss_class.make(inputs).with_pretext(config.pretext_class.make(inputs))
