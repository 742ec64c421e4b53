"""The Transformer query tower, `--user_encoder=sasrec`: causal self-attention over the clicks (Kang & McAuley 2018),
which the paper's public experiments use."""
import dataclasses

import tensorflow as tf

from clrec_tf.encoders.base import UserEncoder
from clrec_tf.encoders.multi_att import causal_mask
from clrec_tf.encoders.random_draws import Dropout
from clrec_tf.errors import UserError
from clrec_tf.settings.registry import ENCODERS
from clrec_tf.settings.setting import Section
from clrec_tf.settings.setting import setting

EPSILON = 1e-6  # of layer normalization


def layer_normalize(values: tf.Tensor, scale: tf.Tensor, shift: tf.Tensor) -> tf.Tensor:
    """(v − mean)/√(variance + ε)·scale + shift over the last axis: [...,D], [D], [D] -> [...,D]."""
    mean = tf.reduce_mean(values, axis=-1, keepdims=True)
    variance = tf.reduce_mean(tf.math.squared_difference(values, mean), axis=-1, keepdims=True)
    return (values - mean) * tf.math.rsqrt(variance + EPSILON) * scale + shift


def causal_attention(queries: tf.Tensor, keys: tf.Tensor, values: tf.Tensor, heads: int, mask: tf.Tensor) -> tf.Tensor:
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


class TransformerBlock(tf.keras.layers.Layer):
    """x ← x + Attention(norm x), x ← x + FeedForward(norm x); normalized clicks are queries, keys and values.

    Args:
      settings: `TransformerSettings`.
      dim: D.
      seed: of the initial values.
      name: of the layer.
    """

    def __init__(self, settings, dim, seed, name):
        super().__init__(name=name)
        self._heads = settings.transformer_heads
        hidden = settings.feed_forward_width or dim
        glorot = lambda name, rows, columns, number: self.add_weight(
            name=name, shape=(rows, columns), initializer=tf.keras.initializers.GlorotNormal(seed=seed + number))
        vector = lambda name, size, value: self.add_weight(name=name, shape=(size,), initializer=value)
        self.query, self.key, self.value, self.output_kernel = (
            glorot(name, dim, dim, number) for number, name in enumerate(("query", "key", "value", "output")))
        self.hidden_kernel, self.last_kernel = glorot("hidden", dim, hidden, 4), glorot("last", hidden, dim, 5)
        self.hidden_bias, self.last_bias = vector("hidden_bias", hidden, "zeros"), vector("last_bias", dim, "zeros")
        self.scales = [vector(f"scale_{i}", dim, "ones") for i in range(2)]
        self.shifts = [vector(f"shift_{i}", dim, "zeros") for i in range(2)]

    def call(self, clicks, mask, dropout, queries=None):
        """Clicks x [B,T,D] -> [B,S,D] of the `queries`, some of them [B,S,D]; None: all.

        Args:
          clicks: x.
          mask: see `causal_attention`.
          dropout: of this step.
          queries: see above.
        """
        known = layer_normalize(clicks, self.scales[0], self.shifts[0])
        asked = known if queries is None else layer_normalize(queries, self.scales[0], self.shifts[0])
        heads = causal_attention(multiply(asked, self.query), multiply(known, self.key), multiply(known, self.value),
                                 self._heads, mask)
        hidden = (clicks if queries is None else queries) + dropout(multiply(heads, self.output_kernel))
        inner = multiply(layer_normalize(hidden, self.scales[1], self.shifts[1]), self.hidden_kernel) + self.hidden_bias
        inner = dropout(tf.nn.relu(inner))
        return hidden + dropout(multiply(inner, self.last_kernel) + self.last_bias)


def multiply(values: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    """[B,T,D], [D,E] -> [B,T,E], as one product of matrices."""
    flat = tf.matmul(tf.reshape(values, [-1, values.shape[-1]]), kernel)
    return tf.reshape(flat, [-1, tf.shape(values)[1], kernel.shape[1]])


@dataclasses.dataclass(frozen=True)
class TransformerSettings(Section):
    """--user_encoder=sasrec"""
    transformer_blocks: int = setting(2, "Blocks of the Transformer.", lower=1)
    transformer_heads: int = setting(2, "Heads of each block; they divide --embedding_dim.", lower=1)
    feed_forward_width: int = setting(0, "Hidden width of the blocks' feed-forward part (0: d).", lower=0)
    dropout: float = setting(0.2, "Share of the Transformer's activations that a training step drops, in [0, 1).",
                             lower=0.0)

    def __post_init__(self):
        super().__post_init__()
        if self.dropout >= 1.0:
            raise UserError(f"--dropout={self.dropout}: must be below 1, or nothing is left to learn from")

    def check(self, config):
        """`UserError` where heads do not share the width equally."""
        if config.model.embedding_dim % self.transformer_heads:
            raise UserError(f"--transformer_heads={self.transformer_heads} does not divide "
                            f"--embedding_dim={config.model.embedding_dim}: change one of them")


@ENCODERS.register("sasrec")
class TransformerUserEncoder(UserEncoder):
    """f(x) is the last click's vector after the blocks and a last layer normalization."""

    Settings = TransformerSettings
    summary = "a causal Transformer (SASRec)."
    every_position = gaps_to_next = True

    def __init__(self, settings, sizes):
        super().__init__(settings, sizes)
        self.blocks = [TransformerBlock(settings, sizes.dim, sizes.seed + 100 * (1 + i), name=f"block_{i}")
                       for i in range(settings.transformer_blocks)]
        self.scale = self.add_weight(name="scale", shape=(sizes.dim,), initializer="ones")
        self.shift = self.add_weight(name="shift", shape=(sizes.dim,), initializer="zeros")

    def call(self, clicks, training=False):
        """-> [B,D]; zeros for an empty history. The last block asks for the last click alone."""
        length = tf.reduce_sum(tf.cast(clicks.mask, tf.int32), axis=1)
        last = tf.maximum(length - 1, 0)
        hidden, dropout, mask = self._begin(clicks, training)
        for block in self.blocks[:-1]:
            hidden = block(hidden, mask, dropout)
        of_last = tf.gather(mask, last)[:, None, None, :]  # [B,1,1,T]
        users = self.blocks[-1](hidden, of_last, dropout, tf.gather(hidden, last, batch_dims=1)[:, None, :])
        users = layer_normalize(tf.squeeze(users, axis=1), self.scale, self.shift)
        return users * tf.cast(length > 0, users.dtype)[:, None]

    def positions(self, clicks, training=False):
        """-> [B,T,D]."""
        hidden, dropout, mask = self._begin(clicks, training)
        for block in self.blocks:
            hidden = block(hidden, mask, dropout)
        return layer_normalize(hidden, self.scale, self.shift)

    def _begin(self, clicks, training):
        """What goes into the first block, the step's dropout, and the causal mask. Padding stands after the clicks, so
        no click sees it."""
        dropout = Dropout(self.settings.dropout, clicks.seed if training else None)
        scaled = clicks.vectors * self.sizes.dim ** 0.5  # tables have rows of norm 1, layers numbers of size 1
        return dropout(scaled), dropout, causal_mask(tf.shape(scaled)[1])
