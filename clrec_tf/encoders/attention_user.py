"""The query tower f(x) of single-queue CLRec: MultiAtt over the clicks, then weighted head aggregation (WHA)."""
import tensorflow as tf

from clrec_tf.encoders.dense import apply_layers
from clrec_tf.losses.contrastive import l2_normalize
from clrec_tf.losses.contrastive import MASKED


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


def masked_mean(values: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Mean over the clicks: [B,T,D], [B,T] -> [B,D]; zero for an empty history."""
    valid = tf.cast(mask, values.dtype)[:, None, :]
    weights = tf.math.divide_no_nan(valid, tf.reduce_sum(valid, axis=2, keepdims=True))
    return tf.squeeze(tf.matmul(weights, values), axis=1)


def mlp(input_dim, hidden, output_dim, name):
    """Dense(hidden, tanh) -> Dense(output_dim), glorot normal kernels, built."""
    dense = lambda width, activation: tf.keras.layers.Dense(width, activation, kernel_initializer="glorot_normal")
    layers = tf.keras.Sequential([dense(hidden, "tanh"), dense(output_dim, None)], name=name)
    layers.build((None, input_dim))
    return layers


class HeadAggregation(tf.keras.layers.Layer):
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


class AttentionUserEncoder(tf.keras.layers.Layer):
    """MultiAtt and head aggregation over encoded clicks.

    Args:
      dim: d.
      heads: H.
      hidden: width of the attention MLP.
      aggregation: see `HeadAggregation`.
      values: "all": attention sums X (item, time, position); "item": the item vectors alone.
      product_dtype: of the attention MLP's products, see ``dense``.
    """

    def __init__(self, dim, heads, hidden, aggregation, values, product_dtype=tf.float32):
        super().__init__(name="user_encoder")
        self.product_dtype = product_dtype
        self.heads, self.values = heads, values
        self.attention = mlp(dim, hidden, heads, "attention")
        self.aggregation = HeadAggregation(aggregation, heads, dim)

    def call(self, clicks, items, mask):
        """clicks X [B,T,D], items g [B,T,D], mask [B,T] -> f(x) [B,D], not yet normalized."""
        batch_size, length, dim = clicks.shape
        # Flat, since TensorFlow joins product, bias and tanh of matrices into one operation.
        scores = apply_layers(self.attention, tf.reshape(clicks, [-1, dim]), self.product_dtype)
        scores = tf.reshape(scores, [batch_size or -1, length, self.heads])
        heads = masked_attention(scores, clicks if self.values == "all" else items, mask)
        return self.aggregation(heads)


class MeanUserEncoder(tf.keras.layers.Layer):
    """Mean of the clicks, the cheap query tower: X [B,T,D], g, mask -> [B,D].

    `of_sums` gives the same from sums, for callers that need not lay out every click.
    """

    def __init__(self):
        super().__init__(name="user_encoder")

    def call(self, clicks, items, mask):
        """clicks X [B,T,D], items (unused), mask [B,T] -> [B,D]."""
        del items
        return masked_mean(clicks, mask)

    def of_sums(self, sums, mask):
        """Σ_t X_t [B,D], mask [B,T] -> [B,D]; zero for an empty history."""
        return tf.math.divide_no_nan(sums, tf.reduce_sum(tf.cast(mask, sums.dtype), axis=1, keepdims=True))
