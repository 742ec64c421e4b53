"""The query tower of SVD++, `--user_encoder=svdpp` (Koren 2008): what was clicked, by factors of its own."""
import tensorflow as tf

from clrec_tf.encoders.base import UserEncoder
from clrec_tf.settings.registry import ENCODERS


@ENCODERS.register("svdpp")
class SvdppUserEncoder(UserEncoder):
    """f(x) = |N|^−½·Σ_t Y_t over the N clicks: Y_t is X_t with y[item], a table of its own, in place of g(item).

    The paper adds a vector p_u of each user: it is left out, so new users are served like known ones. Every click
    counts; the paper's N is a set. With --similarity=cosine |N|^−½ has no influence on what is found.
    """

    summary = "a sum over the history, by implicit factors of items (SVD++)."
    own_factors = every_position = True

    def call(self, clicks, training=False):
        """-> [B,D]; zeros for an empty history."""
        del training
        valid = tf.cast(clicks.mask, clicks.vectors.dtype)
        sums = tf.linalg.matvec(clicks.vectors, valid, transpose_a=True)
        return sums * tf.math.rsqrt(tf.maximum(tf.reduce_sum(valid, axis=1, keepdims=True), 1.0))

    def positions(self, clicks, training=False):
        """-> [B,T,D]."""
        del training
        valid = tf.cast(clicks.mask, clicks.vectors.dtype)[:, :, None]
        return tf.cumsum(valid * clicks.vectors, axis=1) * tf.math.rsqrt(tf.maximum(tf.cumsum(valid, axis=1), 1.0))
