"""The first stage of inverse propensity weighting: fits q̂ on what was shown, before the training, and reports what the
weights are worth."""
from absl import logging
import numpy as np
import tensorflow as tf

from clrec_tf.errors import UserError
from clrec_tf.losses import ipw
from clrec_tf.objectives.base import MAX_FULL_SOFTMAX
from clrec_tf.objectives import propensity_models as models

REPORTED_BATCHES = 200
MAX_TABLE = 1 << 28  # entries of q̂ by context


def fit(inputs, settings, cap: float):
    """q̂ by --propensity and --propensity_data: a function of the data and the seed, so it is fitted again on resuming.

    Args:
      inputs: `ObjectiveInputs`, with training batches for exposures from clicks and for the report.
      settings: of --loss=ipw.
      cap: of 1/q̂, for the report.

    Returns:
      (batch, constants -> q̂(y|x) [B] of its targets; the constants, name -> array).

    Raises:
      UserError: no impressions, no such feature, or a table too large.
    """
    batches = inputs.batches()
    if settings.propensity_data == "impressions":
        exposures = np.array(inputs.read_exposures("--loss=ipw"))
    else:
        # One epoch, each click once however long the training: q̂ must not depend on --epochs.
        exposures = clicked(batches.take(inputs.epoch_steps))
        logging.info("--propensity_data=clicks: q̂ is fitted on clicks, which hold what users want as well as what "
                     "they were shown")
        if settings.propensity == "softmax":
            logging.warning("--propensity=softmax predicts clicks well when fitted on them, which cancels the signal: "
                            "use popularity or category")
    model = _fit(inputs, settings, exposures)

    def propensity(batch, constants):
        return model.of(constants, last_clicks(batch), batch["target"][:, 0])

    constants = model.constants()
    report(lambda batch: propensity(batch, constants), batches, cap)
    return propensity, constants


def last_clicks(batch) -> tf.Tensor:
    """Item id of each target's last click before, 0 where there is none: [B], of windows [N]."""
    if "row" in batch:
        return tf.gather(tf.reshape(batch["history"][:, :, 0], [-1]), batch["row"])
    return tf.gather(batch["history"][:, :, 0], tf.maximum(batch["length"] - 1, 0), batch_dims=1)


def pairs(batch) -> np.ndarray:
    """(last click, target) [n,2] of the rows that count."""
    both = tf.stack([last_clicks(batch), batch["target"][:, 0]], axis=1)
    return tf.boolean_mask(both, batch["weight"] > 0).numpy().astype(np.int32)


def clicked(batches: tf.data.Dataset) -> np.ndarray:
    """The pairs [n,2] of some batches."""
    return _required(map(pairs, batches))


def report(propensity, batches, cap: float) -> None:
    """Logs the effective sample size of the weights of some batches, and how many are clipped."""
    values = [propensity(batch).numpy()[batch["weight"].numpy() > 0] for batch in batches.take(REPORTED_BATCHES)]
    weights = ipw.inverse_propensity_weights(_required(values), cap).numpy()
    logging.info("inverse propensities of %d training examples: effective sample size %.1f %%, clipped %.1f %%, "
                 "largest %.1f times the mean", len(weights),
                 100 * float(ipw.effective_sample_size(weights)) / len(weights),
                 100 * float((weights == np.float32(cap)).mean()), weights.max() / weights.mean())


def _required(parts) -> np.ndarray:
    """The parts joined; `UserError` where nothing is in them."""
    parts = [part for part in parts if len(part)]
    if not parts:
        raise UserError("--loss=ipw: no training example counts: give --epochs=1 or more, and data with training "
                        "sequences of two clicks or more")
    return np.concatenate(parts)


def _fit(inputs, settings, exposures):
    schema, rows = inputs.schema, inputs.schema.item_rows
    after, items = exposures[:, 0], exposures[:, 1]
    share = models.popularity(items, rows)
    if settings.propensity == "popularity":
        return models.TablePropensity(share[None, :], np.zeros(rows, np.int32))
    if settings.propensity == "softmax":
        if schema.num_items > MAX_FULL_SOFTMAX:
            raise UserError(f"--propensity=softmax scores every item; {schema.num_items} are more than "
                            f"{MAX_FULL_SOFTMAX}: use popularity or category")
        model = models.SoftmaxPropensity(share, inputs.seed)
        logging.info("q̂: mean loss %.4f, of popularity alone %.4f", model.fit(after, items),
                     -np.mean(np.log(share[items])))
        return model
    contexts, count = _contexts(inputs, settings)
    if count * rows > MAX_TABLE:
        raise UserError(f"--propensity=category: {count} values times {rows} items are too large a table: name a "
                        "coarser --propensity_feature, or use --propensity=popularity")
    return models.TablePropensity(models.by_context(contexts[after], items, count, rows), contexts)


def _contexts(inputs, settings):
    """(value of the feature by item id [item_rows], number of values)."""
    schema = inputs.schema
    names = [feature.name for feature in schema.features if feature.width == 1]
    name = settings.propensity_feature or (names[0] if names else "")
    if name not in names:
        raise UserError(f"--propensity_feature={name}: --propensity=category needs an item feature of one value; the "
                        f"data has {', '.join(names) or 'none'}")
    values, = (feature.rows for feature in schema.features if feature.name == name)
    rows = inputs.read_items(schema.item_width).rows
    return rows[:, schema.feature_columns[name].start].astype(np.int32), values
