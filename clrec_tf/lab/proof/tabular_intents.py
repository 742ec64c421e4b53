"""The stochastic check of Multi-CLRec: tables whose negatives come from the 1+H queues.

A context's row of the table is its one vector, or its H vectors and their weights, and items are one-hot candidates.
Which of them are compared, and how often each counts, is decided by the queues and the denominator that models train
with.

Letters: X contexts, V items, B batch, H intents, Q queue.
"""
import dataclasses

import numpy as np
import tensorflow as tf

from clrec_tf.lab.proof.tabular import BATCH
from clrec_tf.lab.proof.tabular import Draws
from clrec_tf.lab.proof.tabular import QUEUE
from clrec_tf.lab.proof.tabular import Step
from clrec_tf.lab.proof.tabular import TableTrainer
from clrec_tf.losses import multi_vector as losses
from clrec_tf.objectives.intent_queues import MultiQueue
from clrec_tf.training.runtime import LocalRuntime

CAPACITY = QUEUE // 2  # of each queue: a row is compared with two, so with as many entries as the single queue has
PREFILLS = 40  # times CAPACITY clicks before the first step, enough for an intent with a fortieth of them


@dataclasses.dataclass(frozen=True)
class IntentStep(Step):
    """`Step` over 1+H queues.

    Attributes:
      queued, slots: of the main queue.
      compared_with: whose queue each row meets beside the main one, [B] int32.
      counts: how often each item stands in the main queue and in an intent's own, together: [H,V] float32.
      entry_weights: what an entry of each intent counts to a target of it, [H].
    """
    compared_with: tf.Tensor
    counts: tf.Tensor
    entry_weights: tf.Tensor


def multi_queue(step: IntentStep) -> tf.Tensor:
    """−φ(x,y) + log Σ_y' n_y' e^φ(x,y'), the second term as its mean over the batch: [B]."""
    scores = step.positive_logits[:, None]
    mean, _ = losses.mean_log_denominator(
        step.logits[:, None, :], step.compared_with, tf.fill([BATCH], 1 / BATCH), tf.eye(step.logits.shape[1]),
        step.counts, temperature=1.0, chunk=BATCH)
    return mean - losses.selected_score(scores, tf.zeros_like(scores))


def gated(step: IntentStep) -> tf.Tensor:
    """−(s_{h⁺y} + log w_{h⁺}) + log Σ_h,y' n_y' w_h e^{s_hy'}, the second term as its mean over the batch: [B]."""
    scores, weight_logits = vectors_and_weights(step.logits, step.counts.shape[0])
    of_positives, log_weights = tf.gather(scores, step.positives, axis=2, batch_dims=1), tf.nn.log_softmax(weight_logits)
    of_positives = losses.gated_scores(of_positives, log_weights)
    rest = losses.rest_of_own(of_positives, tf.gather(step.entry_weights, step.compared_with))
    mean, _ = losses.mean_log_denominator(
        scores, step.compared_with, tf.fill([BATCH], 1 / BATCH), tf.eye(scores.shape[2]), step.counts, temperature=1.0,
        log_weights=log_weights, log_terms=rest, chunk=BATCH)
    return mean - losses.gated_score(of_positives, step.compared_with)


def vectors_and_weights(rows, intents):
    """Rows [N,H·(V+1)] of a table -> s [N,H,V] and w̃ [N,H]."""
    parts = tf.reshape(rows, [rows.shape[0], intents, -1])
    return parts[:, :, :-1], parts[:, :, -1]


class IntentTableTrainer(TableTrainer):
    """A `TableTrainer` with the 1+H queues of clicks, routed by the items' simulated intents; for `multi_queue`."""

    step_type, intent_beta = IntentStep, 1.0

    def __init__(self, simulation, *arguments):
        self._intents = int(simulation.intent.max()) + 1
        self._item_intent = tf.constant(simulation.intent, tf.int32)
        super().__init__(simulation, *arguments)

    def _new_queue(self):
        return MultiQueue(CAPACITY, CAPACITY, self._intents, {"item": tf.TensorSpec([], tf.int32)},
                          LocalRuntime().local_variable)

    def _prefill(self, queue):
        for number in tf.range(1, PREFILLS + 1):
            _, item = self._visits(Draws(self._seed, -number), self._entering, CAPACITY)
            self._push(queue, item)
        tf.debugging.assert_equal(queue.full(), True)

    def _enqueue(self, queue, draws, contexts, positives):
        pushed, items = self._push(queue, positives), self._items
        main = queue.main.read("item")
        own = tf.reshape(queue.read("item"), [self._intents, CAPACITY])
        count = lambda held: tf.math.bincount(held, minlength=items, maxlength=items, axis=-1, dtype=tf.float32)
        weights = losses.entry_weights(queue.read("counts"), queue.fill(), queue.main.fill(), self.intent_beta)
        same = tf.one_hot(self._item_intent, self._intents, axis=0, on_value=True, off_value=False)
        of_main = count(main[None, :]) * tf.where(same, weights[:, None], 1.0)
        counts = tf.ensure_shape(count(own) * weights[:, None] + of_main, [self._intents, items])
        return main, pushed.slots, self._compared_with(contexts, positives), counts, weights

    def _push(self, queue, item):
        return queue.push(tf.ones(tf.shape(item), tf.bool),
                          lambda entries: tf.gather(self._item_intent, entries["item"]), item=item)

    def _compared_with(self, contexts, positives):
        """The intent of each positive, h⁺."""
        del contexts
        return tf.gather(self._item_intent, positives)


class GatedTableTrainer(IntentTableTrainer):
    """An `IntentTableTrainer` of H vectors with weights per context; for `gated`."""

    def _columns(self):
        return self._intents * (self._items + 1)

    def _scores(self, table):
        scores, weight_logits = vectors_and_weights(table, self._intents)
        return tf.reduce_logsumexp(scores + tf.nn.log_softmax(weight_logits)[:, :, None], axis=1)


class OfClicksTableTrainer(GatedTableTrainer):
    """The same where candidates of the target's intent count less, as they are more than among clicks."""

    intent_beta = 0.0


class HeaviestTableTrainer(GatedTableTrainer):
    """The defect: the same training, ranked by the heaviest vector alone."""

    def _scores(self, table):
        scores, weight_logits = vectors_and_weights(table, self._intents)
        return tf.gather(scores, tf.argmax(weight_logits, axis=1), batch_dims=1)


class ContextIntentTrainer(IntentTableTrainer):
    """The defect: rows meet the queue of the intent that their *context* clicks most, whatever the positive's is."""

    def __init__(self, simulation, *arguments):
        super().__init__(simulation, *arguments)
        self._context_intent = tf.constant(favourite_intents(simulation.clicks, simulation.intent), tf.int32)

    def _compared_with(self, contexts, positives):
        return tf.gather(self._context_intent, contexts)


def favourite_intents(clicks: np.ndarray, intent: np.ndarray) -> np.ndarray:
    """The intent of the most clicks of each context: p [X,V], of each item [V] -> [X]."""
    return (clicks @ np.eye(intent.max() + 1)[intent]).argmax(axis=1)
