"""Each distinct candidate once, weighted by how often it stands among the candidates."""
import tensorflow as tf


def counted_logits(logits, encoded):
    """Logits [B,U] of distinct candidates with log counts: equal items have equal logits, so m of them are one term
    with log m added, which is exact, and cheaper.

    Args:
      logits: (users [B,D], items [U,D], ids [U]) -> [B,U].
      encoded: with `distinct`, `distinct_ids`, `counts`.
    """
    terms = tf.math.log(tf.cast(encoded.counts, tf.float32))[None, :]
    return logits(encoded.users, encoded.distinct, encoded.distinct_ids) + terms
