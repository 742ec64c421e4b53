"""Logistic losses: --loss=negative_sampling, shared_negative_sampling and bce."""
import tensorflow as tf

from clrec_tf.data.frequencies import smoothed_frequencies
from clrec_tf.losses import closed_forms
from clrec_tf.losses import contrastive
from clrec_tf.losses.sampled import negative_sampling_loss
from clrec_tf.objectives.compared import Compared
from clrec_tf.objectives.resources import in_memory
from clrec_tf.objectives.sampling_settings import make_sampler
from clrec_tf.objectives.sampling_settings import SamplingSettings
from clrec_tf.settings.registry import LOSSES

POWER = 0.75  # of training counts in the sampler, by default


@LOSSES.register("negative_sampling")
class NegativeSampling(Compared):
    """Each positive told from L negatives by logistic regression.

    Negatives of its own cost each row L encodings and [B,L,D] numbers.
    """

    Settings = SamplingSettings
    summary = "logistic, with negatives for each row."

    def __init__(self, model, rows, sampler, num_negatives, local_constant=in_memory):
        super().__init__(model, rows, sampler, num_negatives, local_constant)

    @classmethod
    def make(cls, inputs):
        """Negatives by training count to a power."""
        settings = inputs.config.settings_of(cls)
        sampler = make_sampler(settings.frequencies(inputs.items.counts, POWER), inputs)
        return cls(inputs.model, inputs.items.rows, sampler, settings.negatives(inputs.config), inputs.local_constant)

    @classmethod
    def closed_form(cls, world, settings):
        """p/p_n, where negatives are drawn from p_n ∝ p_d^power."""
        power = POWER if settings.sampler_power < 0 else settings.sampler_power
        return closed_forms.negative_sampling(world.clicks, closed_forms.normalized(world.click_popularity ** power))

    def compare(self, batch, training=True):
        """Batch -> (encoded, [B])."""
        count = self.num_negatives
        encoded = self.encode(batch, self.sampled_ids([tf.size(batch["weight"]) * count]), training)
        items = tf.gather(encoded.distinct, encoded.queued)
        negatives = contrastive.listed_logits(
            encoded.users, tf.reshape(items, [-1, count, items.shape[1]]), self.model.temperature)
        return encoded, negative_sampling_loss(self.positive_logits(encoded), negatives)


@LOSSES.register("shared_negative_sampling")
class SharedNegativeSampling(NegativeSampling):
    """The same with one set of L negatives for the batch."""

    summary = "the same set for a batch."

    def compare(self, batch, training=True):
        """Batch -> (encoded, [B])."""
        encoded = self.encode(batch, self.sampled_ids([self.num_negatives]), training)
        negatives = self.shared_logits(encoded.users, tf.gather(encoded.distinct, encoded.queued))
        return encoded, negative_sampling_loss(self.positive_logits(encoded), negatives)


@LOSSES.register("bce")
class BinaryCrossEntropy(NegativeSampling):
    """One uniform negative for each positive (SASRec)."""

    Settings = Compared.Settings
    summary = "logistic, one uniform negative."

    @classmethod
    def make(cls, inputs):
        """Every item equally often."""
        sampler = make_sampler(smoothed_frequencies(inputs.items.counts[1:], 0.0), inputs)
        return cls(inputs.model, inputs.items.rows, sampler, 1, inputs.local_constant)

    @classmethod
    def closed_form(cls, world, settings):
        """p itself."""
        del settings
        return closed_forms.uniform_bce(world.clicks)
