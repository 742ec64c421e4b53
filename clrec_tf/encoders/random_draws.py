"""Dropout that a resumed training repeats: its random numbers are a function of the step's seed and of the layer."""
import tensorflow as tf


class Dropout:
    """Dropout of several layers of one encoder in one step.

    Args:
      rate: share of numbers set to 0.
      seed: [2] int64 of the step; None: nothing is dropped, as in evaluation and serving.
    """

    def __init__(self, rate: float, seed):
        self._rate, self._seed, self._layers = rate, None if rate == 0.0 else seed, 0

    def __call__(self, values: tf.Tensor) -> tf.Tensor:
        """Values of any shape, some of them 0 and the others larger by 1/(1 − rate); each call drops others."""
        self._layers += 1
        if self._seed is None:
            return values
        seed = self._seed + tf.constant([self._layers * 7_919, 0], tf.int64)
        return tf.nn.experimental.stateless_dropout(values, self._rate, seed, rng_alg="philox")
