"""The first stage of inverse propensity weighting: fits q̂ on what was shown, before the training, and reports what the
weights are worth."""
from absl import logging
import numpy as np
import tensorflow as tf

from clrec_tf.config import Config
from clrec_tf.data.epoch_plan import EpochPlan
from clrec_tf.data.exposures import read_exposures
from clrec_tf.data.item_rows import read_items
from clrec_tf.data import schema as schema_lib
from clrec_tf.errors import UserError
from clrec_tf.losses import ipw
from clrec_tf.objectives.build import MAX_FULL_SOFTMAX
from clrec_tf.objectives.build import weight_cap
from clrec_tf.objectives import propensity_models as models

REPORTED_BATCHES = 200
MAX_TABLE = 1 << 28  # entries of q̂ by context


def fit(config: Config, schema: schema_lib.Schema, manifest: schema_lib.Manifest, batches: tf.data.Dataset):
    """q̂ by --propensity and --propensity_data: a function of the data and the seed, so it is fitted again on resuming.

    Args:
      config: settings.
      schema, manifest: of --data_dir.
      batches: training batches, for exposures from clicks and for the report.

    Returns:
      (batch, constants -> q̂(y|x) [B] of its targets; the constants, name -> array).

    Raises:
      UserError: no impressions, no such feature, or a table too large.
    """
    settings = config.loss
    if settings.propensity_data == "impressions":
        exposures = np.array(read_exposures(config.paths.data_dir, manifest, "--loss=ipw"))
    else:
        exposures = clicked(config, manifest, batches)
        logging.info("--propensity_data=clicks: q̂ is fitted on clicks, which hold what users want as well as what they "
                     "were shown")
        if settings.propensity == "softmax":
            logging.warning("--propensity=softmax predicts clicks well when fitted on them, which cancels the signal: "
                            "use popularity or category")
    model = _fit(config, schema, manifest, exposures)

    def propensity(batch, constants):
        after = tf.gather(batch["history"][:, :, 0], tf.maximum(batch["length"] - 1, 0), batch_dims=1)
        return model.of(constants, after, batch["target"][:, 0])

    constants = model.constants()
    report(lambda batch: propensity(batch, constants), batches, weight_cap(settings, schema))
    return propensity, constants


def pairs(batch) -> np.ndarray:
    """(last click, target) [n,2] of the rows that count."""
    after = tf.gather(batch["history"][:, :, 0], tf.maximum(batch["length"] - 1, 0), batch_dims=1)
    found = tf.boolean_mask(tf.stack([after, batch["target"][:, 0]], axis=1), batch["weight"] > 0)
    return found.numpy().astype(np.int32)


def clicked(config: Config, manifest: schema_lib.Manifest, batches: tf.data.Dataset) -> np.ndarray:
    """The pairs [n,2] of one epoch, each click once however long the training: q̂ must not depend on --epochs."""
    train = config.train
    plan = EpochPlan(manifest.shards["train"], train.batch_size, train.shuffle_shards, train.target_mode,
                     config.paths.seed)
    return _required(map(pairs, batches.take(plan.steps(0))))


def report(propensity, batches, cap: float) -> None:
    """Logs the effective sample size of the weights of some batches, and how many are clipped."""
    found = [propensity(batch).numpy()[batch["weight"].numpy() > 0] for batch in batches.take(REPORTED_BATCHES)]
    weights = ipw.inverse_propensity_weights(_required(found), cap).numpy()
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


def _fit(config, schema, manifest, exposures):
    settings, rows = config.loss, schema.item_rows
    after, items = exposures[:, 0], exposures[:, 1]
    share = models.popularity(items, rows)
    if settings.propensity == "popularity":
        return models.TablePropensity(share[None, :], np.zeros(rows, np.int32))
    if settings.propensity == "softmax":
        if schema.num_items > MAX_FULL_SOFTMAX:
            raise UserError(f"--propensity=softmax scores every item; {schema.num_items} are more than "
                            f"{MAX_FULL_SOFTMAX}: use popularity or category")
        model = models.SoftmaxPropensity(share, config.paths.seed)
        logging.info("q̂: mean loss %.4f, of popularity alone %.4f", model.fit(after, items),
                     -np.mean(np.log(share[items])))
        return model
    contexts, count = _contexts(config, schema, manifest)
    if count * rows > MAX_TABLE:
        raise UserError(f"--propensity=category: {count} values times {rows} items are too large a table: name a "
                        "coarser --propensity_feature, or use --propensity=popularity")
    return models.TablePropensity(models.by_context(contexts[after], items, count, rows), contexts)


def _contexts(config, schema, manifest):
    """(value of the feature by item id [item_rows], number of values)."""
    names = [feature.name for feature in schema.features if feature.width == 1]
    name = config.loss.propensity_feature or (names[0] if names else "")
    if name not in names:
        raise UserError(f"--propensity_feature={name}: --propensity=category needs an item feature of one value; the "
                        f"data has {', '.join(names) or 'none'}")
    values, = (feature.rows for feature in schema.features if feature.name == name)
    rows = read_items(config.paths.data_dir, schema, manifest, schema.item_width).rows
    return rows[:, schema.feature_columns[name].start].astype(np.int32), values
