"""The losses that are compared under randomised exposure, over equal towers and with as many negatives, L = Q."""
import dataclasses

import numpy as np
import tensorflow as tf

from clrec_tf.config import Config
from clrec_tf.data.item_rows import Items
from clrec_tf.data.schema import Schema
from clrec_tf.errors import UserError
from clrec_tf.losses import ipw
from clrec_tf.objectives.base import ObjectiveInputs
from clrec_tf.objectives.ipw import PropensityWeighted
from clrec_tf.objectives import propensity_models

MLE, IPW = "mle", "ipw"


@dataclasses.dataclass(frozen=True)
class Exposures:
    """What the losses know beyond examples.

    Attributes:
      targets: int64 [N], item ids from 1 of the examples' clicks.
      users: int64 [N], theirs.
      shown: int64 [M], item ids of all pairs that users rated, clicked or not.
      num_items: V.
      propensities: q̂(y|x) float32 [U,V+1] by item id, from `chances`, or None.
    """
    targets: np.ndarray
    users: np.ndarray
    shown: np.ndarray
    num_items: int
    propensities: np.ndarray = None

    @property
    def counts(self) -> np.ndarray:
        """Clicks by item id, int [V+1]."""
        return np.bincount(self.targets, minlength=self.num_items + 1)

    def popularity(self) -> np.ndarray:
        """q̂(y) of every pair rated, for every user: float64 [1,V+1]."""
        return propensity_models.popularity(self.shown, self.num_items + 1)[None, :]


def chances(propensities: np.ndarray) -> np.ndarray:
    """q̂(y|x) = P(x,y shown) / Σ_y' P(x,y' shown): [U,V], -> float32 [U,V+1] by item id; rows of zeros stay.

    A propensity is the chance that a pair is observed; the softmax needs the chance that an observation is this item.
    """
    total = propensities.sum(axis=1, keepdims=True)
    shares = propensities / np.where(total > 0, total, 1.0)
    return np.pad(shares, ((0, 0), (1, 0))).astype(np.float32)


# The settings of each loss that --loss has; the others weigh full_softmax by a table of propensities.
SETTINGS = {
    MLE: dict(loss="full_softmax"),
    "sampled_softmax": dict(loss="sampled_softmax", sampler="alias", sampler_power=-1.0, num_negatives=0),
    "clrec": dict(loss="contrastive", negatives="clicks", debias_beta=1.0),
    "clrec_beta_.75": dict(loss="contrastive", negatives="clicks", debias_beta=0.75),
    "clrec_beta_.5": dict(loss="contrastive", negatives="clicks", debias_beta=0.5),
    "clrec_impressions": dict(loss="contrastive", negatives="impressions", debias_beta=1.0)}
LOSSES = (MLE, "sampled_softmax", IPW, "ipw_popularity", *list(SETTINGS)[2:])


def build(name: str, config: Config, exposures: Exposures, model, seed: int, local_variable):
    """The objective of a name of `LOSSES`, see ``objectives/base``."""
    if name not in SETTINGS:
        table = exposures.propensities if name == IPW else exposures.popularity()
        softmax = build(MLE, config, exposures, model, seed, local_variable)
        return PropensityWeighted(softmax, _of_user, relative_cap(config, exposures),
                                  {"table": np.asarray(table, np.float32)})
    in_batch = config.plugs.get("queue") == "in_batch"
    config = config.but(**SETTINGS[name], seed=seed,
                        queue_size=config.train.batch_size if in_batch else config.loss.queue_size)
    rows = np.arange(exposures.num_items + 1)[:, None]
    schema = Schema(exposures.num_items, exposures.num_items + 1, (), 0, "int", False, 0, 0, {}, {})
    return config.loss_class.make(ObjectiveInputs(
        config, model, local_variable, lambda width: Items(rows[:, :width], exposures.counts),
        lambda flag: np.stack([np.zeros_like(exposures.shown), exposures.shown], axis=1), schema=schema))


def _of_user(batch, constants):
    """q̂ [B] of the targets, by each row's user."""
    table = constants["table"]
    users = batch["user_id"] % table.shape[0]  # a table of one row holds for everybody
    return tf.gather_nd(table, tf.stack([users, batch["target"][:, 0]], axis=1))


def chosen(config: Config, exposures: Exposures) -> list[str]:
    """The losses of --randomised_losses, `MLE` always and first, `IPW` only with propensities.

    Raises:
      UserError: there is none of a name, or ipw has no propensities.
    """
    asked = config.randomised.randomised_losses
    unknown = [name for name in asked if name not in LOSSES]
    if unknown:
        raise UserError(f"--randomised_losses={','.join(asked)}: choose from {','.join(LOSSES)}")
    if IPW in asked and exposures.propensities is None:
        raise UserError(f"--randomised_losses={','.join(asked)}: {IPW} needs --propensity_matrix=FILE")
    return [name for name in LOSSES if name == MLE or (
        name in asked if asked else name != IPW or exposures.propensities is not None)]


def relative_cap(config: Config, exposures: Exposures) -> float:
    """--ipw_cap as a cap of 1/q̂: 1 is the weight of an item shown as often as the average; 0 is no cap."""
    return config.settings_of(PropensityWeighted).cap(exposures.num_items)


def weight_report(config: Config, exposures: Exposures) -> dict[str, dict[str, float]]:
    """Of the weights of the examples under each kind of propensities: `effective_share` (effective sample size over N)
    and `clipped_share`."""
    tables = {IPW: exposures.propensities, "ipw_popularity": exposures.popularity()}
    report, cap = {}, relative_cap(config, exposures)
    for name, table in tables.items():
        if table is not None:
            of_examples = table[exposures.users % len(table), exposures.targets]
            weights = ipw.inverse_propensity_weights(tf.constant(of_examples), cap).numpy()
            report[name] = dict(effective_share=float(ipw.effective_sample_size(weights)) / len(weights),
                                clipped_share=float((weights == np.float32(cap)).mean()))
    return report
