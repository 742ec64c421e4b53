"""The losses that are compared under randomised exposure, over equal towers and with as many negatives, L = Q."""
import dataclasses

import numpy as np
import tensorflow as tf

from clrec_tf.config import Config
from clrec_tf.data.frequencies import log_popularity
from clrec_tf.data.frequencies import smoothed_frequencies
from clrec_tf.errors import UserError
from clrec_tf.losses import ipw
from clrec_tf.objectives.alias_sampler import AliasSampler
from clrec_tf.objectives.impression_stream import ImpressionStream
from clrec_tf.objectives import propensity_models
from clrec_tf.objectives.queue_variants import build_variant
from clrec_tf.objectives import sampled_variants

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


class _Builder:
    """Makes objectives over one model; `capacity` is Q and L."""

    def __init__(self, config: Config, exposures: Exposures, model, seed: int, local_variable):
        self.config, self.exposures, self.model, self.seed, self.local = config, exposures, model, seed, local_variable
        self.rows = tf.range(exposures.num_items + 1, dtype=tf.int64)[:, None]
        in_batch = config.model.queue == "in_batch"
        self.capacity = config.train.batch_size if in_batch else config.model.queue_size

    def mle(self):
        """Softmax over all items."""
        return sampled_variants.FullSoftmax(self.model, self.rows)

    def sampled_softmax(self):
        """Softmax over L items drawn by clicks, with logQ correction."""
        frequencies = smoothed_frequencies(self.exposures.counts[1:], 1.0)
        sampler = AliasSampler(frequencies, self.seed, self.local)
        return sampled_variants.SampledSoftmax(self.model, self.rows, sampler, self.capacity,
                                               tf.constant(log_popularity(self.exposures.counts)))

    def weighted(self, table):
        """Inverse propensity weighting of `mle` by q̂ of table [U or 1, V+1]."""
        def of_batch(batch, constants):
            table = constants["table"]
            users = batch["user_id"] % table.shape[0]  # a table of one row holds for everybody
            return tf.gather_nd(table, tf.stack([users, batch["target"][:, 0]], axis=1))

        return sampled_variants.PropensityWeighted(self.mle(), of_batch, relative_cap(self.config, self.exposures),
                                                   {"table": np.asarray(table, np.float32)})

    def clrec(self, beta=1.0, impressions=False):
        """The queue of --queue, fed with clicks or with every pair rated; see --debias_beta."""
        stream = ImpressionStream(self.exposures.shown, self.rows, self.seed, self.local) if impressions else None
        log_q = None
        if beta < 1.0:
            log_q = (1.0 - beta) * log_popularity(self.exposures.counts)
            log_q[1:] -= log_q[1:].mean()  # a constant changes nothing, and exponents stay small
            log_q = tf.constant(log_q)
        model = self.config.model
        return build_variant(model.queue_kind, self.model, self.capacity, model.mask_same_user, self.local, log_q,
                             stream)


LOSSES = {
    MLE: _Builder.mle,
    "sampled_softmax": _Builder.sampled_softmax,
    IPW: lambda builder: builder.weighted(builder.exposures.propensities),
    "ipw_popularity": lambda builder: builder.weighted(builder.exposures.popularity()),
    "clrec": _Builder.clrec,
    "clrec_beta_.75": lambda builder: builder.clrec(beta=0.75),
    "clrec_beta_.5": lambda builder: builder.clrec(beta=0.5),
    "clrec_impressions": lambda builder: builder.clrec(impressions=True),
}


def build(name: str, config: Config, exposures: Exposures, model, seed: int, local_variable):
    """The objective of a name of `LOSSES`, see ``objectives/queue_variants``."""
    return LOSSES[name](_Builder(config, exposures, model, seed, local_variable))


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
    return config.loss.ipw_cap * exposures.num_items or np.inf


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
