"""The stochastic check's trainer: a table φ[x,y] instead of a model, so that nothing but the loss decides its optimum.

Every step draws fresh contexts, clicks and negatives inside the graph, and all steps are one call. What is returned is
softmax of the mean of φ over the last part of the steps.

Letters: X contexts, V items, B batch, N candidates, Q queue.
"""
import dataclasses
import typing

import numpy as np
import tensorflow as tf
import tf_keras

from clrec_tf.lab.proof.exposure_simulator import ExposureSimulation
from clrec_tf.losses import contrastive
from clrec_tf.objectives.fifo_queue import FifoQueue
from clrec_tf.training.runtime import LocalRuntime

BATCH, QUEUE = 64, 640
STEPS = 6000
FIRST_RATE, LAST_RATE = 0.1, 1e-4  # of Adam, falling linearly
AVERAGED = 0.3  # share of the steps, the last ones, whose φ is averaged


class Draws:
    """Random numbers of one step: a function of (seed, step), and independent from call to call."""

    def __init__(self, seed: int, step):
        self._seed, self._step, self._calls = seed, tf.cast(step, tf.int64), 0

    def _key(self):
        self._calls += 1
        return tf.stack([tf.constant(self._seed * 101 + self._calls, tf.int64), self._step])

    def uniform(self, number: int, count: int) -> tf.Tensor:
        """Integers 0..count−1, equally frequent: [number] int32."""
        return tf.random.stateless_uniform([number], self._key(), 0, count, tf.int32)

    def items(self, distributions: tf.Tensor) -> tf.Tensor:
        """One item from each row: [N,V] -> [N] int32."""
        rows, items = distributions.shape
        passed = tf.cumsum(distributions, axis=1) < tf.random.stateless_uniform([rows, 1], self._key())
        # The last sum of a row may be rounded to less than 1.
        return tf.minimum(tf.reduce_sum(tf.cast(passed, tf.int32), axis=1), items - 1)

    def repeated(self, distribution: tf.Tensor, number: int) -> tf.Tensor:
        """Independent items from one distribution: [V] -> [number] int32."""
        return self.items(tf.tile(distribution[None, :], [number, 1]))


@dataclasses.dataclass(frozen=True)
class Step:
    """What a loss sees of one step.

    Attributes:
      logits: φ(x_b,·) [B,V].
      contexts, positives: x_b and y_b, [B] int32.
      draws: for further negatives.
      queued: items in the queue [Q] int32, after this step's entered; empty without a queue.
      slots: where they went, [B] int64.
    """
    logits: tf.Tensor
    contexts: tf.Tensor
    positives: tf.Tensor
    draws: Draws
    queued: tf.Tensor
    slots: tf.Tensor

    @property
    def positive_logits(self) -> tf.Tensor:
        """φ(x_b, y_b), [B]."""
        return tf.gather(self.logits, self.positives, batch_dims=1)

    def shared(self, items: tf.Tensor) -> tf.Tensor:
        """φ(x_b, y_n) of candidates that all rows have, [N] -> [B,N]: a row times a one-hot item is its entry."""
        return contrastive.pairwise_logits(self.logits, tf.one_hot(items, self.logits.shape[1]), temperature=1.0)


class TableTrainer(tf.Module):
    """Trains φ[x,y] by Adam.

    Args:
      simulation: gives clicks and impressions.
      loss: (step) -> [B], nats.
      queue: what enters the queue: "clicks" (the batch's positives), "impressions" (as many fresh ones), or "".
      seed: of the draws.
      steps: of training.
    """

    step_type = Step

    def __init__(self, simulation: ExposureSimulation, loss: typing.Callable[[Step], tf.Tensor], queue: str, seed: int,
                 steps: int = STEPS):
        super().__init__()
        self._loss, self._entering, self._seed, self._steps = loss, queue, seed, steps
        self._shown = {"clicks": tf.constant(simulation.clicks, tf.float32),
                       "impressions": tf.constant(simulation.exposure, tf.float32)}
        self._contexts, self._items = simulation.exposure.shape
        self._queue = self._new_queue()
        self._table, self._sum = (tf.Variable(tf.zeros([self._contexts, self._columns()])) for _ in range(2))
        rate = tf_keras.optimizers.schedules.PolynomialDecay(FIRST_RATE, steps, LAST_RATE)
        self._optimizer = tf_keras.optimizers.Adam(rate)
        self._optimizer.build([self._table])

    def train(self) -> np.ndarray:
        """softmax of the averaged φ, [X,V] float64; once per trainer."""
        self._run()
        return tf.nn.softmax(self._scores(tf.cast(self._sum, tf.float64) / int(AVERAGED * self._steps))).numpy()

    def _columns(self):
        """Numbers of the table for each context."""
        return self._items

    def _scores(self, table):
        """φ [X,V] of the table."""
        return table

    @tf.function
    def _run(self):
        queue = self._queue.open()
        self._prefill(queue)
        first_averaged = self._steps - int(AVERAGED * self._steps)
        for number in tf.range(self._steps):
            self._step(queue, Draws(self._seed, number))
            self._sum.assign_add(tf.cast(number >= first_averaged, tf.float32) * self._table)

    def _step(self, queue, draws):
        contexts, positives = self._visits(draws, "clicks", BATCH)
        # Enqueue first: a positive belongs to its own denominator once.
        queued = self._enqueue(queue, draws, contexts, positives)
        with tf.GradientTape() as tape:
            logits = tf.matmul(tf.one_hot(contexts, self._contexts), self._table)  # rows, with a dense gradient
            loss = tf.reduce_mean(self._loss(self.step_type(logits, contexts, positives, draws, *queued)))
        self._optimizer.apply_gradients([(tape.gradient(loss, self._table), self._table)])

    def _new_queue(self):
        return FifoQueue(QUEUE, {"item": tf.TensorSpec([], tf.int32)}, LocalRuntime().local_variable)

    def _prefill(self, queue):
        if self._entering:
            _, item = self._visits(Draws(self._seed, -1), self._entering, QUEUE)
            queue.enqueue(tf.ones([QUEUE], tf.bool), item=item)

    def _enqueue(self, queue, draws, contexts, positives):
        """The further fields of a step."""
        del contexts
        if not self._entering:
            return tf.zeros([0], tf.int32), tf.zeros([0], tf.int64)
        item = positives if self._entering == "clicks" else self._visits(draws, self._entering, BATCH)[1]
        pushed = queue.enqueue(tf.ones([BATCH], tf.bool), item=item)
        return queue.read("item"), pushed.slots

    def _visits(self, draws, kind, number):
        """Equally frequent contexts, and an item clicked or shown in each: [number], [number] int32."""
        contexts = draws.uniform(number, self._contexts)
        return contexts, draws.items(tf.gather(self._shown[kind], contexts))
