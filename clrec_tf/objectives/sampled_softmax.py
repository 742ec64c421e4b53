"""--loss=sampled_softmax: softmax over the positive and negatives that the batch shares, with logQ correction."""
import dataclasses

import numpy as np
import tensorflow as tf

from clrec_tf.losses import closed_forms
from clrec_tf.losses import contrastive
from clrec_tf.losses.sampled import corrected_logits
from clrec_tf.objectives.compared import Compared
from clrec_tf.objectives.counted_logits import counted_logits
from clrec_tf.objectives.resources import in_memory
from clrec_tf.objectives.sampling_settings import make_sampler
from clrec_tf.objectives.sampling_settings import SamplingSettings
from clrec_tf.settings.registry import LOSSES
from clrec_tf.settings.setting import setting

POWER = 1.0  # of training counts in the sampler, by default


@dataclasses.dataclass(frozen=True)
class SampledSoftmaxSettings(SamplingSettings):
    """--loss=sampled_softmax"""
    sampler: str = setting("alias",
        "alias: with replacement, ∝ count^power. tf_default: as tf.nn.sampled_softmax_loss (log-uniform by rank, "
        "unique, accidental hits removed; sampled_softmax only; resumed with other draws; all workers draw the same).",
        choices=("alias", "tf_default"))


@LOSSES.register("sampled_softmax")
class SampledSoftmax(Compared):
    """Softmax over the positive and L negatives that the batch shares, with logQ correction: e^φ ∝ p(y|x) for any L.

    Negatives are drawn with replacement and copies of the positive stay, which is what makes it exact. Each distinct
    item is encoded once.

    Args:
      log_q: [item_rows] float32 by id, log of the chance to be drawn.
    """

    Settings = SampledSoftmaxSettings
    summary = "over --num_negatives, with logQ correction."

    def __init__(self, model, rows, sampler, num_negatives, log_q, local_constant=in_memory):
        log_q = np.asarray(log_q, np.float32)
        log_q = log_q - np.mean(log_q[1:])  # a constant changes nothing, and exponents stay small
        self._spread = float(np.abs(log_q[1:]).max())
        super().__init__(model, rows, sampler, num_negatives, local_constant, log_q=log_q)

    @classmethod
    def make(cls, inputs):
        """See --sampler."""
        settings = inputs.config.settings_of(cls)
        return make_sampled_softmax(inputs, settings, TfDefaultSampledSoftmax if settings.sampler == "tf_default" else cls)

    @classmethod
    def closed_form(cls, world, settings):
        """p itself, whatever the sampler's power; TensorFlow's default sampler has no exact one."""
        return closed_forms.maximum_likelihood(world.clicks) if settings.sampler == "alias" else None

    def compare(self, batch, training=True):
        """Batch -> (encoded, [B])."""
        encoded = self.encode(batch, self.sampled_ids([self.num_negatives]), training)
        positives = corrected_logits(self.positive_logits(encoded),
                                     tf.gather(self.constants["log_q"], batch["target"][:, 0]))
        return encoded, contrastive.contrastive_loss(
            positives, positives[:, None], counted_logits(self.shared_logits, encoded),
            bound=self.model.logit_bound + self._spread)

    def shared_logits(self, users, items, ids=None):
        return corrected_logits(super().shared_logits(users, items), tf.gather(self.constants["log_q"], ids)[None, :])


class TfDefaultSampledSoftmax(Compared):
    """`tf.nn.sampled_softmax_loss` with its defaults: log-uniform ids (rank of training count), unique, accidental
    hits removed, expected counts as correction. The same loss over two towers, which that function cannot take."""

    def compare(self, batch, training=True):
        """Batch -> (encoded, [B])."""
        size = self.constants["rows"].shape[0] - 1
        targets = tf.maximum(batch["target"][:, :1] - 1, 0)  # the sampler refuses a row of weight 0 that has none
        sampled, true_counts, counts = tf.random.log_uniform_candidate_sampler(
            targets, 1, min(self.num_negatives, size), True, size)
        encoded = self.encode(batch, 1 + sampled, training)
        positives = corrected_logits(self.positive_logits(encoded), tf.math.log(true_counts[:, 0]))
        negatives = corrected_logits(self.shared_logits(encoded.users, encoded.distinct), tf.math.log(counts)[None, :])
        keep = contrastive.mask_logits(targets != sampled[None, :])
        return encoded, contrastive.contrastive_loss(positives, positives[:, None], negatives + keep)


def make_sampled_softmax(inputs, settings: SamplingSettings, cls: type[Compared] = SampledSoftmax) -> Compared:
    """The softmax over sampled items of `ObjectiveInputs`."""
    rows, count = inputs.items.rows, settings.negatives(inputs.config)
    if cls is TfDefaultSampledSoftmax:
        return TfDefaultSampledSoftmax(inputs.model, rows, None, count, inputs.local_constant)
    frequencies = settings.frequencies(inputs.items.counts, POWER)
    log_q = np.append(0.0, np.log(frequencies)).astype(np.float32)
    return cls(inputs.model, rows, make_sampler(frequencies, inputs), count, log_q, inputs.local_constant)
