"""Draws items by given frequencies in constant time each: the alias method (Walker 1977; Vose 1991).

Draws are a function of the seed and of how many calls went before, which is the sampler's only state: a resumed
training draws what an uninterrupted one would.
"""
import numpy as np
import tensorflow as tf

from clrec_tf.objectives.resources import Constants
from clrec_tf.objectives.resources import in_memory
from clrec_tf.objectives.resources import read


def alias_table(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Columns of equal mass, each shared by at most two outcomes.

    Args:
      weights: [V], ≥ 0, not all zero.

    Returns:
      (threshold float64 [V], alias int64 [V]): a draw takes column i uniformly, and outcome i with probability
      threshold[i], else alias[i].
    """
    scaled = np.asarray(weights, np.float64) * (len(weights) / np.sum(weights, dtype=np.float64))
    threshold, alias = np.ones(len(scaled)), np.arange(len(scaled))
    small, large = list(np.flatnonzero(scaled < 1)), list(np.flatnonzero(scaled >= 1))
    while small and large:
        poor, rich = small.pop(), large[-1]
        threshold[poor], alias[poor] = scaled[poor], rich
        scaled[rich] -= 1 - scaled[poor]
        if scaled[rich] < 1:
            small.append(large.pop())
    return threshold, alias  # what is left of either list differs from 1 by rounding only


def table_probabilities(threshold: np.ndarray, alias: np.ndarray) -> np.ndarray:
    """The distribution that a table draws from: [V], [V] -> [V]."""
    return (threshold + np.bincount(alias, 1 - threshold, len(alias))) / len(alias)


class AliasSampler(tf.Module):
    """Samples outcomes 0..V−1 with replacement.

    Args:
      probabilities: [V].
      seed: of the draws.
      local_variable: (make, shape, dtype) -> variable, from the runtime; workers draw different negatives.
      local_constant: see `resources.Constants`.
    """

    def __init__(self, probabilities, seed, local_variable, local_constant=in_memory):
        super().__init__(name="alias_sampler")
        threshold, alias = alias_table(probabilities)
        # Columns are compared in float32: what that costs in accuracy is 1e-7 of a column's mass.
        self.constants = Constants(local_constant, threshold=threshold.astype(np.float32), alias=alias)
        self.seed, self.size = seed, len(alias)
        # The worker's own part of the seed, and its calls so far.
        self.local_variables = {
            "draws": local_variable(
                lambda worker: tf.stack([tf.cast(worker, tf.int64), tf.constant(0, tf.int64)]), (2,), tf.int64)}

    def open(self) -> "OpenAliasSampler":
        """The sampler in this trace; once, outside of loops and conditions."""
        return OpenAliasSampler(self)


class OpenAliasSampler:
    """An `AliasSampler` in one trace."""

    def __init__(self, sampler: AliasSampler):
        self._seed, self._size, self._constants = sampler.seed, sampler.size, sampler.constants.open()
        self._draws = sampler.local_variables["draws"].handle

    def sample(self, shape) -> tf.Tensor:
        """Independent draws: int64 of the given shape."""
        draws = read(self._draws, (2,), tf.int64)
        seed = tf.stack([self._seed * 1_000_003 + draws[0], draws[1]])
        tf.raw_ops.AssignAddVariableOp(resource=self._draws, value=tf.constant([0, 1], tf.int64))
        column = tf.random.stateless_uniform(shape, 2 * seed, 0, self._size, tf.int64)
        chance = tf.random.stateless_uniform(shape, 2 * seed + 1)
        threshold, alias = self._constants["threshold"], self._constants["alias"]
        return tf.where(chance < tf.gather(threshold, column), column, tf.gather(alias, column))
