"""The loss of Multi-CLRec with its 1+H queues (paper, "Multi-CLRec"): enqueue, encode, compare.

Each row's positive is compared with the whole main queue and with the queue of the positive's own intent h⁺, by all H
vectors of the user. Letters: B batch, H intents, Q capacity of each queue, V items.

Both queues together hold items of h⁺ more often than clicks do, by which the loss divides by the popularity of the
user's own intents too. `intent_beta` is how much of that it keeps, see `losses.entry_weights`; at 0 both queues together
are a sample of all clicks, in which the target's intent is merely better known.
"""
import dataclasses
from typing import Optional

import tensorflow as tf

from clrec_tf.losses import contrastive
from clrec_tf.losses import multi_vector as losses
from clrec_tf.objectives.base import Objective
from clrec_tf.objectives.fifo_queue import duplicate_rate
from clrec_tf.objectives.intent_queues import MultiQueue


@dataclasses.dataclass(frozen=True)
class Negatives:
    """Candidates of all denominators, as `losses.mean_log_denominator` takes them.

    Attributes:
      trained: [H,B], see there: entries that each of the batch's own items stands for in the gradient.
      stands_for: [B], the same for each row with its own positive; None: once, for itself.
    """
    shared: tf.Tensor
    shared_counts: tf.Tensor
    own: Optional[tf.Tensor] = None
    own_counts: Optional[tf.Tensor] = None
    trained: Optional[tf.Tensor] = None
    stands_for: Optional[tf.Tensor] = None


class MultiQueueNegatives(Objective):
    """Shared parts of the raw and the cached variant.

    Args:
      model: a `MultiCLRec`.
      capacity: Q.
      local_variable: see `FifoQueue`.
      st_mode, st_max_ratio: see `losses.selected_score`.
      intent_beta: see the module.
    """

    metric_names = ("queue_fill", "queue_duplicate_rate", "queue_age", "queue_intent_fill_min",
                    "queue_intent_fill_mean", "queue_intent_age_max", "queue_intent_share_min",
                    "queue_intent_share_max")

    def __init__(self, model, capacity, local_variable, st_mode, st_max_ratio, intent_beta=1.0):
        fields = {"item": tf.TensorSpec([model.item_encoder.item_width], tf.int64), **self._more_fields(model)}
        super().__init__(model, queue=MultiQueue(capacity, capacity, model.num_intents, fields, local_variable))
        self._st_mode, self._st_max_ratio, self._intent_beta = st_mode, st_max_ratio, intent_beta

    def _more_fields(self, model):
        """Further fields of the queues."""
        del model
        return {}

    def loss(self, batch, training=True) -> tf.Tensor:
        """Batch -> mean of L_cl + λ1·L1 + λ2·L2 + λ3·L3 by the rows' weights, scalar; enqueues."""
        encoded, negatives = self.compare(batch, training)
        intents, weights = encoded.beside, batch["weight"]
        shares = tf.math.divide_no_nan(weights, tf.reduce_sum(weights))
        if self.model.gated:
            log_weights = tf.nn.log_softmax(intents.users.logits)
            gated = losses.gated_scores(intents.scores, log_weights)
            positives = losses.gated_score(gated, intents.targets)
        else:
            log_weights, gated = None, intents.scores
            positives = losses.selected_score(intents.scores, intents.users.logits, self._st_mode, self._st_max_ratio)
        vectors, log_terms = self.model.intent_vectors(intents.users.vectors), None
        of_own = tf.gather(self.entry_weights(), intents.targets)
        if self._intent_beta < 1.0:
            log_terms = losses.rest_of_own(gated, of_own)
        denominator, logs = losses.mean_log_denominator(
            vectors, intents.targets, shares, negatives.shared, negatives.shared_counts, negatives.own,
            negatives.own_counts, temperature=self.model.temperature, log_weights=log_weights, log_terms=log_terms,
            trained=negatives.trained, bound=self.model.logit_bound)
        rows = self.added_losses(encoded, batch) - positives
        if negatives.stands_for is not None:
            logs -= tf.math.log(of_own)
            if log_weights is not None:
                logs = logs[:, None] - log_weights
            rows += own_entry_once(self.model.margin.behind(encoded.positives, intents.targets), vectors, logs,
                                   negatives.stands_for, self.model.temperature)
        return denominator + contrastive.weighted_mean(rows, weights)

    def compare(self, batch, training):
        """Enqueues; the encoded batch and the `Negatives`."""
        raise NotImplementedError

    def entry_weights(self) -> tf.Tensor:
        """What an entry of intent h counts to a target of intent h, [H] float32; to other targets it counts 1."""
        if self._intent_beta == 1.0:
            return tf.ones([self.model.num_intents])
        return losses.entry_weights(self.queue.read("counts"), self.queue.fill(), self.queue.main.fill(),
                                    self._intent_beta)

    def main_counts(self, rows, weights) -> tf.Tensor:
        """How much each entry of the main queue counts: its item rows [N,C], `entry_weights` [H] -> [1 or H,N]."""
        if self._intent_beta == 1.0:
            return tf.ones([1, tf.shape(rows)[0]])
        same = tf.one_hot(self.model.route(rows), self.model.num_intents, axis=0, on_value=True, off_value=False)
        return tf.where(same, weights[:, None], 1.0)

    def _push(self, batch, valid, **fields):
        # Enqueue first: a positive belongs to its own denominator, once. Only the main queue takes it.
        return self.queue.push(valid, lambda entries: self.model.route(entries["item"]), item=batch["target"], **fields)

    def metrics(self):
        """Entries of the main queue, their share of repeats and age (steps since the click); entries and age of the
        intents' queues; shares π_h of the intents in the main queue."""
        queue, intents = self.queue, self.model.num_intents
        fill, fills, ages = queue.main.fill(), queue.fill(), queue.ages()
        rows = queue.main.read("item")[:fill]
        routed = tf.math.bincount(self.model.route(rows), minlength=intents, maxlength=intents, dtype=tf.float32)
        shares = tf.math.divide_no_nan(routed, tf.cast(fill, tf.float32))
        values = (fill, duplicate_rate(rows[:, 0]), ages[0], tf.reduce_min(fills),
                  tf.reduce_mean(tf.cast(fills, tf.float32)), tf.reduce_max(ages[1:]), tf.reduce_min(shares),
                  tf.reduce_max(shares))
        return dict(zip(self.metric_names, (tf.cast(value, tf.float32) for value in values)))

    def prefill(self, batches):
        """Fills the queues with clicks, routed and encoded by the model as it is, until they are full, or as many were
        sent as would fill all queues four times."""
        opened = self.open()
        enough = 4 * (self.model.num_intents + 1) * self.queue.capacity
        for sent, batch in enumerate(batches):
            if opened.queue.full() or sent * len(batch["weight"]) >= enough:
                break
            opened._push(batch, batch["weight"] > 0, **self._encoded_fields(batch))

    def _encoded_fields(self, batch):
        del batch
        return {}


def own_entry_once(positives, vectors, log_denominators, stands_for, temperature):
    """0 for each row, with a gradient that takes back what its own positive's entry stands for beyond itself: a row
    meets its own positive in one step only, the one in which both are here.

    Args:
      positives: g [B,D], live, as candidates.
      vectors: z [B,H,D], as they are compared with them.
      log_denominators: log Z [B], of weighted vectors log Z − log w [B,H].
      stands_for: [B], entries that the gradient of each positive stands for in the denominators.
      temperature: ρ.

    Returns:
      [B].
    """
    scores = tf.linalg.matvec(tf.stop_gradient(vectors), positives / temperature)
    log_denominators = tf.reshape(log_denominators, [tf.shape(scores)[0], -1])
    chances = tf.stop_gradient(tf.exp(scores - log_denominators))  # the gradient of log Z by the scores
    term = (1.0 - stands_for) * tf.reduce_sum(chances * scores, axis=1)
    return term - tf.stop_gradient(term)
