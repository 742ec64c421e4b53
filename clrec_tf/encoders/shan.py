"""The query tower of two layers of attention, `--user_encoder=shan` (Ying et al. 2018)."""
import dataclasses

import tensorflow as tf
import tf_keras

from clrec_tf.encoders.base import UserEncoder
from clrec_tf.encoders.mean import masked_mean
from clrec_tf.losses.contrastive import MASKED
from clrec_tf.settings.registry import ENCODERS
from clrec_tf.settings.setting import Section
from clrec_tf.settings.setting import setting


@dataclasses.dataclass(frozen=True)
class ShanSettings(Section):
    """--user_encoder=shan"""
    short_term_clicks: int = setting(2, "Last clicks that are a user's short-term set; all earlier ones are the "
                                        "long-term set.", lower=1)


@ENCODERS.register("shan")
class ShanUserEncoder(UserEncoder):
    """f(x) = β_0·l + Σ_{t∈S} β_t·X_t over the short-term set S, with l = Σ_{t∈L} α_t·X_t over the long-term set L:
    α = softmax_{t∈L}(qᵀ·ReLU(W_1·x_t + b_1)), β = softmax over l and S of qᵀ·ReLU(W_2·x + b_2), where x is √d times
    the vector.

    q is √d·mean_t X_t, where the paper has a table of users: so new users have one. The short-term set is the last
    --short_term_clicks, where the paper has the last session. Without earlier clicks there is no l.
    """

    Settings = ShanSettings
    summary = "attention over old clicks, then over these and the last ones (SHAN)."

    def __init__(self, settings, sizes):
        super().__init__(settings, sizes)
        self.long_term, self.short_term = (
            tf_keras.layers.Dense(sizes.dim, "relu", name=name, kernel_initializer=tf_keras.initializers.GlorotUniform(
                seed=sizes.seed + number)) for number, name in enumerate(("long_term", "short_term")))
        for layer in (self.long_term, self.short_term):
            layer.build((None, None, sizes.dim))

    def call(self, clicks, training=False):
        """-> [B,D]; zeros for an empty history."""
        del training
        vectors, mask = clicks.vectors, clicks.mask
        valid = tf.cast(mask, tf.int32)
        after = tf.cumsum(valid, axis=1, exclusive=True, reverse=True)  # clicks after each
        short = mask & (after < self.settings.short_term_clicks)
        query = masked_mean(vectors, mask)
        earlier = self._attend(self.long_term, query, vectors, mask & ~short)
        both = tf.concat([earlier[:, None], vectors], axis=1)
        has_earlier = tf.reduce_any(mask & ~short, axis=1, keepdims=True)
        return self._attend(self.short_term, query, both, tf.concat([has_earlier, short], axis=1))

    def _attend(self, layer, query, vectors, mask):
        """Σ_t softmax_t(√d·queryᵀ·layer(√d·v_t))·v_t of those in the mask: [B,D], [B,N,D], [B,N] -> [B,D]."""
        scale = self.sizes.dim ** 0.5
        scores = tf.linalg.matvec(layer(vectors * scale), query * scale)
        weights = tf.nn.softmax(tf.where(mask, scores, MASKED)) * tf.cast(mask, vectors.dtype)
        return tf.squeeze(tf.matmul(weights[:, None], vectors), axis=1)
