"""The losses that CLRec is compared with, over the same towers: softmax over all or over sampled items, negative
sampling, and inverse propensity weighting. Each gives the losses [B] of a batch, as the queue variants do.
"""
import functools
import types

import numpy as np
import tensorflow as tf

from clrec_tf.losses import contrastive
from clrec_tf.losses import ipw
from clrec_tf.losses.sampled import corrected_logits
from clrec_tf.losses.sampled import negative_sampling_loss
from clrec_tf.objectives.constants import in_memory
from clrec_tf.objectives.queue_variants import counted_logits
from clrec_tf.objectives.row_losses import RowLosses


class _Compared(RowLosses):
    """Shared parts.

    Args:
      model: a `CLRec`.
      rows: [item_rows,C] int64, item row by id; row 0 is padding.
      sampler: an `AliasSampler` of ids minus one, or None.
      num_negatives: L.
      local_constant: see ``objectives/constants``.
    """

    def __init__(self, model, rows, sampler=None, num_negatives=0, local_constant=in_memory):
        super().__init__()
        self.model, self.sampler, self.num_negatives = model, sampler, num_negatives
        self._rows = local_constant(rows)

    @property
    def states(self):
        """Name -> object with `local_variables`, all that a checkpoint must hold besides the model."""
        return {"sampler": self.sampler} if self.sampler else {}

    def handles(self):
        """Handles of the variables of each state, and what is constant; once per trace."""
        return {**{name: state.handles() for name, state in self.states.items()}, "rows": self._rows()}

    health_names = ()

    def health(self, handles):
        """Nothing to report."""
        del handles
        return {}

    def losses(self, batch, handles):
        """Batch -> [B]."""
        encoded, losses = self.compare(batch, handles)
        return losses + self.model.auxiliary_losses(encoded, batch)

    def compare(self, batch, handles):
        """The encoded batch, and each row's loss [B] without what the model adds."""
        raise NotImplementedError

    def _sampled(self, handles, shape):
        """Item ids [shape] drawn by the sampler."""
        return 1 + self.sampler.sample(handles["sampler"], shape)

    def _positive_logits(self, encoded):
        return contrastive.paired_logits(encoded.users, encoded.positives, self.model.temperature)

    def _logits(self, handles, users, items, ids=None):
        del handles, ids
        return contrastive.pairwise_logits(users, items, self.model.temperature)


class FullSoftmax(_Compared):
    """−log softmax over all items: maximum likelihood, e^φ ∝ p(y|x). Costs an encoding of all items per step."""

    def compare(self, batch, handles):
        """Batch -> (encoded, [B])."""
        encoded = self.model.encode(batch, handles["rows"][1:])
        logits = self._logits(handles, encoded.users, encoded.distinct)
        return encoded, contrastive.contrastive_loss(
            self._positive_logits(encoded), logits, bound=self.model.logit_bound)


class SampledSoftmax(_Compared):
    """Softmax over the positive and L negatives that the batch shares, with logQ correction: e^φ ∝ p(y|x) for any L.

    Negatives are drawn with replacement and copies of the positive stay, which is what makes it exact. Each distinct
    item is encoded once.

    Args:
      log_q: [item_rows] float32 by id, log of the chance to be drawn.
    """

    def __init__(self, model, rows, sampler, num_negatives, log_q, local_constant=in_memory):
        super().__init__(model, rows, sampler, num_negatives, local_constant)
        log_q = np.asarray(log_q, np.float32)
        log_q = log_q - np.mean(log_q[1:])  # a constant changes nothing, and exponents stay small
        self._spread = float(np.abs(log_q[1:]).max())
        self._log_q = local_constant(log_q)

    def handles(self):
        """Beside those of all, the sampler's distribution."""
        return {**super().handles(), "log_q": self._log_q()}

    def compare(self, batch, handles):
        """Batch -> (encoded, [B])."""
        ids = self._sampled(handles, [self.num_negatives])
        encoded = self.model.encode(batch, tf.gather(handles["rows"], ids))
        positives = corrected_logits(self._positive_logits(encoded), tf.gather(handles["log_q"], batch["target"][:, 0]))
        return encoded, contrastive.contrastive_loss(
            positives, positives[:, None], counted_logits(functools.partial(self._logits, handles), encoded),
            bound=self.model.logit_bound + self._spread)

    def _logits(self, handles, users, items, ids=None):
        return corrected_logits(super()._logits(handles, users, items), tf.gather(handles["log_q"], ids)[None, :])


class TfDefaultSampledSoftmax(_Compared):
    """`tf.nn.sampled_softmax_loss` with its defaults: log-uniform ids (rank of training count), unique, accidental
    hits removed, expected counts as correction. The same loss over two towers, which that function cannot take."""

    def compare(self, batch, handles):
        """Batch -> (encoded, [B])."""
        size = handles["rows"].shape[0] - 1
        targets = tf.maximum(batch["target"][:, :1] - 1, 0)  # the sampler refuses a row of weight 0 that has none
        sampled, true_counts, counts = tf.random.log_uniform_candidate_sampler(
            targets, 1, min(self.num_negatives, size), True, size)
        encoded = self.model.encode(batch, tf.gather(handles["rows"], 1 + sampled))
        positives = corrected_logits(self._positive_logits(encoded), tf.math.log(true_counts[:, 0]))
        negatives = corrected_logits(self._logits(handles, encoded.users, encoded.distinct),
                                     tf.math.log(counts)[None, :])
        keep = contrastive.mask_logits(targets != sampled[None, :])
        return encoded, contrastive.contrastive_loss(positives, positives[:, None], negatives + keep)


class NegativeSampling(_Compared):
    """Each positive told from L negatives by logistic regression; `shared`: one set of negatives for the batch.

    Negatives of its own cost each row L encodings and [B,L,D] numbers.
    """

    def __init__(self, model, rows, sampler, num_negatives, shared, local_constant=in_memory):
        super().__init__(model, rows, sampler, num_negatives, local_constant)
        self.shared = shared

    def compare(self, batch, handles):
        """Batch -> (encoded, [B])."""
        batch_size, count = batch["target"].shape[0], self.num_negatives
        ids = self._sampled(handles, [count if self.shared else batch_size * count])
        encoded = self.model.encode(batch, tf.gather(handles["rows"], ids))
        items = tf.gather(encoded.distinct, encoded.queued)
        if self.shared:
            negatives = self._logits(handles, encoded.users, items)
        else:
            items = tf.reshape(items, [batch_size, count, items.shape[1]])
            negatives = tf.linalg.matvec(tf.cast(items, tf.float32),
                                         tf.cast(encoded.users, tf.float32) / self.model.temperature)
        return encoded, negative_sampling_loss(self._positive_logits(encoded), negatives)


class PropensityWeighted(RowLosses):
    """The second stage of inverse propensity weighting: w·(−log p(y|x)), w = min(1/q̂, cap), of mean 1 in a batch.

    Args:
      softmax: a `FullSoftmax` or `SampledSoftmax`.
      propensity: batch, constants -> q̂(y|x) [B], from the first stage.
      cap: of 1/q̂.
      constants: name -> array that `propensity` reads.
      local_constant: see ``objectives/constants``.
    """

    def __init__(self, softmax, propensity, cap, constants=types.MappingProxyType({}), local_constant=in_memory):
        super().__init__()
        self._softmax, self._propensity, self._cap = softmax, propensity, cap
        self._constants = {name: local_constant(value) for name, value in constants.items()}
        self.states = softmax.states

    def handles(self):
        """Those of the softmax, and what is constant; once per trace."""
        return {**self._softmax.handles(), "propensity": {name: get() for name, get in self._constants.items()}}

    def losses(self, batch, handles):
        """Batch -> [B]."""
        weights = ipw.inverse_propensity_weights(self._propensity(batch, handles["propensity"]), self._cap)
        encoded, losses = self._softmax.compare(batch, handles)
        weighted = ipw.self_normalized(weights, batch["weight"]) * losses
        return weighted + self._softmax.model.auxiliary_losses(encoded, batch)

    health_names = ()

    def health(self, handles):
        """Nothing beyond what the first stage reported."""
        return self._softmax.health(handles)
