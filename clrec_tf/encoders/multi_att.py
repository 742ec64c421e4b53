"""The paper's query tower, `--user_encoder=multi_att`: MultiAtt over clicks, then weighted head aggregation."""
import dataclasses
import functools

import tensorflow as tf
import tf_keras

from clrec_tf.encoders.base import UserEncoder
from clrec_tf.encoders.dense import apply_layers
from clrec_tf.encoders.transformer import causal_mask
from clrec_tf.losses.contrastive import l2_normalize
from clrec_tf.losses.contrastive import MASKED
from clrec_tf.settings.registry import ENCODERS
from clrec_tf.settings.setting import Section
from clrec_tf.settings.setting import setting


def masked_attention(scores: tf.Tensor, values: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Z = softmax_T(scoresᵀ) · values, padding left out (paper, "Multi-Head Attention").

    Args:
      scores: [B,T,H].
      values: [B,T,D].
      mask: [B,T] bool.

    Returns:
      Z [B,H,D]; zero for an empty history.
    """
    tf.debugging.assert_shapes([(scores, "BTH"), (values, "BTD"), (mask, "BT")])
    keep = mask[:, None, :]
    weights = tf.nn.softmax(tf.where(keep, tf.transpose(scores, [0, 2, 1]), MASKED), axis=-1)
    # A row without clicks has a uniform softmax over padding: the mask makes its Z zero.
    return tf.matmul(weights * tf.cast(keep, weights.dtype), values)


def attention_at_positions(scores: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """`masked_attention` over the first t+1 clicks, for every t.

    Args:
      scores: [B,T,H].
      values: [B,T,D].

    Returns:
      Z [B,T,H,D]; of padding anything.
    """
    tf.debugging.assert_shapes([(scores, "BTH"), (values, "BTD")])
    scores = tf.transpose(scores, [0, 2, 1])[:, :, None, :]  # [B,H,1,T]
    weights = tf.nn.softmax(scores + causal_mask(tf.shape(scores)[3]))
    return tf.transpose(tf.matmul(weights, values[:, None]), [0, 2, 1, 3])


def weighted_head_aggregation(heads: tf.Tensor, matrix: tf.Tensor) -> tf.Tensor:
    """f = Σ_h α_h ẑ_h with ẑ = l2(z), m = mean_h ẑ_h, α = softmax_h(ẑ_hᵀ A m) (paper, WHA equation).

    Args:
      heads: z [B,H,D].
      matrix: A [D,D].

    Returns:
      [B,D], not yet normalized.
    """
    tf.debugging.assert_shapes([(heads, "BHD"), (matrix, "DD")])
    heads = l2_normalize(heads)
    mean = tf.reduce_mean(heads, axis=1)
    scores = tf.linalg.matvec(heads, tf.matmul(mean, matrix, transpose_b=True))
    return tf.reduce_sum(tf.nn.softmax(scores, axis=1)[:, :, None] * heads, axis=1)


def mlp(input_dim, hidden, output_dim, name):
    """Dense(hidden, tanh) -> Dense(output_dim), glorot normal kernels, built."""
    dense = functools.partial(tf_keras.layers.Dense, kernel_initializer="glorot_normal")
    layers = tf_keras.Sequential([dense(hidden, "tanh", name="hidden"), dense(output_dim, name="output")], name=name)
    layers.build((None, input_dim))
    return layers


class HeadAggregation(tf_keras.layers.Layer):
    """Heads [B,H,D] to one vector [B,D]: "wha", or the ablations "mean", "mean_mlp", "concat_mlp" (paper, Table 12)."""

    def __init__(self, kind, heads, dim):
        super().__init__(name="head_aggregation")
        self.kind = kind
        if kind == "wha":
            self.matrix = self.add_weight(name="matrix", shape=(dim, dim), initializer="glorot_normal")
        elif kind != "mean":
            self.mlp = mlp(dim if kind == "mean_mlp" else heads * dim, 2 * dim, dim, "mlp")

    def call(self, heads):
        """heads [B,H,D] -> [B,D], not yet normalized."""
        if self.kind == "wha":
            return weighted_head_aggregation(heads, self.matrix)
        if self.kind == "concat_mlp":
            return self.mlp(tf.reshape(heads, [-1, heads.shape[1] * heads.shape[2]]))
        mean = tf.reduce_mean(heads, axis=1)
        return self.mlp(mean) if self.kind == "mean_mlp" else mean


@dataclasses.dataclass(frozen=True)
class MultiAttSettings(Section):
    """--user_encoder=multi_att"""
    attention_heads: int = setting(4, "Heads H of the multi-head attention.", lower=1)
    attention_hidden: int = setting(0, "Hidden width of the attention MLP (0: 4d).", lower=0)
    attention_values: str = setting("all",
        "What attention sums: all = item + time + position, item = item vector only.", choices=("all", "item"))
    head_aggregation: str = setting("wha", "How heads become one vector (paper, Table 12).",
                                    choices=("wha", "mean", "mean_mlp", "concat_mlp"))


@ENCODERS.register("multi_att")
class AttentionUserEncoder(UserEncoder):
    """MultiAtt and head aggregation over encoded clicks."""

    Settings = MultiAttSettings
    summary = "multi-head attention and weighted head aggregation (paper)."
    every_position = True

    def __init__(self, settings, sizes):
        super().__init__(settings, sizes)
        dim, heads = sizes.dim, settings.attention_heads
        self.attention = mlp(dim, settings.attention_hidden or 4 * dim, heads, "attention")
        self.aggregation = HeadAggregation(settings.head_aggregation, heads, dim)

    def call(self, clicks, training=False):
        """-> f(x) [B,D], not yet normalized."""
        del training
        return self.aggregation(masked_attention(self._scores(clicks), self._values(clicks), clicks.mask))

    def positions(self, clicks, training=False):
        """-> [B,T,D], not yet normalized; takes [B,H,T,T] numbers."""
        del training
        heads = attention_at_positions(self._scores(clicks), self._values(clicks))
        batch_size, length = tf.unstack(tf.shape(heads)[:2])
        users = self.aggregation(tf.reshape(heads, [batch_size * length, *heads.shape[2:]]))
        return tf.reshape(users, [batch_size, length, users.shape[1]])

    def _scores(self, clicks):
        batch_size, length, dim = clicks.vectors.shape
        # Flat, since TensorFlow joins product, bias and tanh of matrices into one operation.
        flat = tf.reshape(clicks.vectors, [-1, dim])
        scores = apply_layers(self.attention, flat, self.sizes.product_dtype)
        length = tf.shape(clicks.vectors)[1] if length is None else length
        return tf.reshape(scores, [batch_size or -1, length, self.settings.attention_heads])

    def _values(self, clicks):
        return clicks.vectors if self.settings.attention_values == "all" else clicks.items
