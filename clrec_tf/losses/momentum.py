"""A moving average of weights, θ_k ← m·θ_k + (1−m)·θ_q (MoCo, He et al. 2020, Eq. 2), and what n steps of it give."""
import math

import tensorflow as tf

EQUAL = -1  # stamp of a row whose average is the weight itself


def averaged(keys: tf.Tensor, queries: tf.Tensor, momentum: float) -> tf.Tensor:
    """One step: keys θ_k, queries θ_q, any shape -> m·θ_k + (1−m)·θ_q."""
    return momentum * keys + (1.0 - momentum) * queries


def caught_up(keys: tf.Tensor, queries: tf.Tensor, stamps: tf.Tensor, now: tf.Tensor, momentum: float) -> tf.Tensor:
    """n steps at once, of rows that did not change meanwhile: m^n·θ_k + (1−m^n)·θ_q, exactly what n of `averaged` give.

    Args:
      keys: θ_k [N,d], as they were at their stamps.
      queries: θ_q [N,d], the same since then.
      stamps: [N,1] int64, the step of each; `EQUAL`: the average is θ_q.
      now: scalar int64, step; n = now − stamp, 0 where another worker of a cluster is ahead.
      momentum: m.

    Returns:
      [N,d].
    """
    tf.debugging.assert_shapes([(keys, "ND"), (queries, "ND"), (stamps, ("N", 1))])
    steps = tf.cast(tf.maximum(now - stamps, 0), keys.dtype)
    log_share = steps * math.log(momentum)  # of m in double precision, for large n
    log_share = tf.where(stamps == EQUAL, tf.constant(-math.inf, keys.dtype), log_share)
    return tf.exp(log_share) * keys - tf.math.expm1(log_share) * queries
