"""Blocks of a Transformer over clicks, one class for each --transformer_layer. Letters: B users, T clicks, S of
them that ask, D width, H heads."""
import tensorflow as tf
import tf_keras

from clrec_tf.losses.contrastive import mask_logits
from clrec_tf.losses.contrastive import MASKED
from clrec_tf.system.private_tensorflow import custom_gradient

EPSILON = 1e-6  # of layer normalization


def layer_normalize(values: tf.Tensor, scale: tf.Tensor, shift: tf.Tensor) -> tf.Tensor:
    """(v − mean)/√(variance + ε)·scale + shift over the last axis: [...,D], [D], [D] -> [...,D]."""
    mean = tf.reduce_mean(values, axis=-1, keepdims=True)
    variance = tf.reduce_mean(tf.math.squared_difference(values, mean), axis=-1, keepdims=True)
    return (values - mean) * tf.math.rsqrt(variance + EPSILON) * scale + shift


@custom_gradient
def silu(values: tf.Tensor) -> tf.Tensor:
    """x·σ(x) of any shape; its gradient computes σ again, so that only x is kept."""
    def gradient(upstream):
        with tf.control_dependencies([upstream]):
            share = tf.sigmoid(values)
        return upstream * (share * (1.0 + values * (1.0 - share)))

    return values * tf.sigmoid(values), gradient


def causal_mask(length) -> tf.Tensor:
    """What to add to scores [...,T,T] so that no click sees a later one: 0 or `MASKED`, [T,T]."""
    return (1.0 - tf.linalg.band_part(tf.ones([length, length]), -1, 0)) * MASKED


def padding_mask(valid: tf.Tensor) -> tf.Tensor:
    """What to add to scores [B,H,S,T] so that nobody sees padding: valid [B,T] bool -> 0 or `MASKED`, [B,1,1,T]."""
    return mask_logits(valid)[:, None, None, :]


def attention(queries: tf.Tensor, keys: tf.Tensor, values: tf.Tensor, heads: int, mask: tf.Tensor) -> tf.Tensor:
    """softmax(QKᵀ/√(D/H) + mask)·V of each of H heads, side by side.

    Args:
      queries: [B,S,D].
      keys, values: [B,T,D].
      heads: H, which divides D.
      mask: added to the scores [B,H,S,T], 0 or `MASKED`.

    Returns:
      [B,S,D].
    """
    tf.debugging.assert_shapes([(queries, "BSD"), (keys, "BTD"), (values, "BTD")])
    width = queries.shape[2] // heads
    apart = lambda part: tf.transpose(tf.reshape(part, [-1, tf.shape(part)[1], heads, width]), [0, 2, 1, 3])
    queries, keys, values = apart(queries), apart(keys), apart(values)
    weights = tf.nn.softmax(tf.matmul(queries, keys, transpose_b=True) * width ** -0.5 + mask)
    together = tf.transpose(tf.matmul(weights, values), [0, 2, 1, 3])
    return tf.reshape(together, [-1, tf.shape(together)[1], heads * width])


def multiply(values: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    """[B,T,D], [D,E] -> [B,T,E], as one product of matrices."""
    flat = tf.matmul(tf.reshape(values, [-1, values.shape[-1]]), kernel)
    return tf.reshape(flat, [-1, tf.shape(values)[1], kernel.shape[1]])


class PreNormBlock(tf_keras.layers.Layer):
    """x ← x + Attention(norm x), x ← x + W₂·ReLU(W₁·norm x): normalized clicks are queries, keys and values.

    Args:
      dim: D.
      heads: H.
      hidden: width of the feed-forward part.
      seed: of the initial values.
      name: of the layer.
    """

    activation = staticmethod(tf.nn.relu)

    def __init__(self, dim, heads, hidden, seed, name):
        super().__init__(name=name)
        self._heads, self._seed = heads, seed
        self.query, self.key, self.value, self.output_kernel = (
            self._kernel(name, dim, dim) for name in ("query", "key", "value", "output"))
        self.scales = [self._vector(f"scale_{i}", dim, "ones") for i in range(2)]
        self.shifts = [self._vector(f"shift_{i}", dim, "zeros") for i in range(2)]
        self._add_feed_forward(dim, hidden)

    def _kernel(self, name, rows, columns):
        self._seed += 1
        return self.add_weight(name=name, shape=(rows, columns),
                               initializer=tf_keras.initializers.GlorotNormal(seed=self._seed))

    def _vector(self, name, size, value):
        return self.add_weight(name=name, shape=(size,), initializer=value)

    def _add_feed_forward(self, dim, hidden):
        self.hidden_kernel, self.last_kernel = self._kernel("hidden", dim, hidden), self._kernel("last", hidden, dim)
        self.hidden_bias, self.last_bias = self._vector("hidden_bias", hidden, "zeros"), self._vector(
            "last_bias", dim, "zeros")

    def _normalize(self, number, values):
        return layer_normalize(values, self.scales[number], self.shifts[number])

    def call(self, clicks, mask, dropout, asking=None):
        """Clicks x [B,T,D] -> [B,S,D] of those `asking`.

        Args:
          clicks: x.
          mask: see `attention`.
          dropout: of this step, see ``random_draws``.
          asking: x of some of the clicks [B,S,D]; None: all.
        """
        asking = clicks if asking is None else asking
        hidden = self._attend(asking, clicks, mask, dropout)
        return self._feed_forward(hidden, dropout)

    def _attend(self, asking, clicks, mask, dropout):
        queries, known = self._normalize(0, asking), self._normalize(0, clicks)
        return asking + self._heads_of(queries, known, mask, dropout)

    def _heads_of(self, queries, known, mask, dropout):
        heads = attention(multiply(queries, self.query), multiply(known, self.key), multiply(known, self.value),
                          self._heads, mask)
        return dropout(multiply(heads, self.output_kernel))

    def _feed_forward(self, hidden, dropout):
        return hidden + self._expand(self._normalize(1, hidden), dropout)

    def _expand(self, values, dropout):
        inner = dropout(self.activation(multiply(values, self.hidden_kernel) + self.hidden_bias))
        return dropout(multiply(inner, self.last_kernel) + self.last_bias)


class SasRecBlock(PreNormBlock):
    """As SASRec has it: x ← q + Attention(q, x, x) with q = norm x, then x ← y + W₂·ReLU(W₁·y) with y = norm x."""

    def _attend(self, asking, clicks, mask, dropout):
        queries = self._normalize(0, asking)
        return queries + self._heads_of(queries, clicks, mask, dropout)

    def _feed_forward(self, hidden, dropout):
        normalized = self._normalize(1, hidden)
        return normalized + self._expand(normalized, dropout)


class PostNormBlock(PreNormBlock):
    """As BERT4Rec has it: x ← norm(x + Attention(x)), x ← norm(x + W₂·GELU(W₁·x))."""

    activation = staticmethod(tf.nn.gelu)

    def _attend(self, asking, clicks, mask, dropout):
        return self._normalize(0, asking + self._heads_of(asking, clicks, mask, dropout))

    def _feed_forward(self, hidden, dropout):
        return self._normalize(1, hidden + self._expand(hidden, dropout))


class GatedBlock(PreNormBlock):
    """x ← x + σ(G₁·n)⊙Attention(n), x ← x + σ(G₂·n)⊙W₃(SiLU(W₁·n)⊙W₂·n) with n = norm x: what a layer adds is gated
    by what it reads (eSASRec's LiGR layers; arXiv 2502.03417, 2508.06450)."""

    def _add_feed_forward(self, dim, hidden):
        self.hidden_kernel, self.factor_kernel = self._kernel("hidden", dim, hidden), self._kernel("factor", dim, hidden)
        self.last_kernel = self._kernel("last", hidden, dim)
        self.gates = [self._kernel(f"gate_{i}", dim, dim) for i in range(2)]

    def _attend(self, asking, clicks, mask, dropout):
        queries, known = self._normalize(0, asking), self._normalize(0, clicks)
        return asking + tf.sigmoid(multiply(queries, self.gates[0])) * self._heads_of(queries, known, mask, dropout)

    def _feed_forward(self, hidden, dropout):
        values = self._normalize(1, hidden)
        inner = silu(multiply(values, self.hidden_kernel)) * multiply(values, self.factor_kernel)
        return hidden + tf.sigmoid(multiply(values, self.gates[1])) * dropout(multiply(inner, self.last_kernel))


BLOCKS = {"sasrec": SasRecBlock, "pre_norm": PreNormBlock, "gated": GatedBlock, "post_norm": PostNormBlock}
