"""Inverse propensity weighting: what the second of its two stages multiplies each example's −log p(y|x) by.

Letters: B batch, N examples.
"""
import tensorflow as tf


def inverse_propensity_weights(propensities: tf.Tensor, cap: float) -> tf.Tensor:
    """w = min(1/q̂, cap) (paper, Eq. "IPW"; clipped against its variance): [B] -> [B] float32.

    Args:
      propensities: q̂(y|x) of each example, > 0; 0 gives the cap.
      cap: largest weight; infinity leaves them as they are.
    """
    return tf.minimum(tf.math.reciprocal(tf.cast(propensities, tf.float32)), cap)


def self_normalized(weights: tf.Tensor, counts: tf.Tensor) -> tf.Tensor:
    """Weights scaled to mean 1 over the rows that count, so that the loss keeps its scale: [B], [B] -> [B].

    Args:
      weights: inverse propensities.
      counts: importance of each row; rows of 0 do not count, may hold any weight, even infinity, and get 0.
    """
    weights = tf.where(counts > 0, weights, 0.0)
    return tf.math.divide_no_nan(weights * tf.reduce_sum(counts), tf.reduce_sum(weights * counts))


def effective_sample_size(weights: tf.Tensor) -> tf.Tensor:
    """(Σw)² / Σw² (Kish 1965), the equally weighted examples that these are worth: [N] -> scalar, 0 without weights."""
    return tf.math.divide_no_nan(tf.square(tf.reduce_sum(weights)), tf.reduce_sum(tf.square(weights)))
