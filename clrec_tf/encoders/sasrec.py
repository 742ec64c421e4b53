"""The Transformer query tower, `--user_encoder=sasrec`: causal self-attention over the clicks (Kang & McAuley 2018),
which the paper's public experiments use."""
import dataclasses

import tensorflow as tf

from clrec_tf.encoders.base import UserEncoder
from clrec_tf.encoders.dropout import dropout_setting
from clrec_tf.encoders.dropout import DropoutSection
from clrec_tf.encoders.random_draws import Dropout
from clrec_tf.encoders.transformer import BLOCKS
from clrec_tf.encoders.transformer import causal_mask
from clrec_tf.encoders.transformer import layer_normalize
from clrec_tf.errors import UserError
from clrec_tf.settings.registry import ENCODERS
from clrec_tf.settings.setting import setting


@dataclasses.dataclass(frozen=True)
class TransformerSettings(DropoutSection):
    """--user_encoder=sasrec or bert4rec"""
    transformer_layer: str = setting("gated",
        "sasrec: as SASRec has it, which normalizes queries alone. pre_norm: normalized clicks are queries, keys and "
        "values. gated: the same, and what a block adds is gated by what it reads (eSASRec); finds most. post_norm: what a "
        "block gives is normalized (BERT4Rec).", choices=tuple(BLOCKS))
    transformer_blocks: int = setting(2, "Blocks of the Transformer.", lower=1)
    transformer_heads: int = setting(1, "Heads of each block; they divide --embedding_dim.", lower=1)
    feed_forward_width: int = setting(0, "Hidden width of the blocks' feed-forward part (0: d; bert4rec: 4d).", lower=0)
    dropout: float = dropout_setting()

    def check(self, config):
        """`UserError` where heads do not share the width equally."""
        if config.model.embedding_dim % self.transformer_heads:
            raise UserError(f"--transformer_heads={self.transformer_heads} does not divide "
                            f"--embedding_dim={config.model.embedding_dim}: change one of them")

    def blocks(self, sizes, hidden) -> list:
        """The layers, whose feed-forward parts are `hidden` wide unless --feed_forward_width says otherwise."""
        block = BLOCKS[self.transformer_layer]
        return [block(sizes.dim, self.transformer_heads, self.feed_forward_width or hidden, sizes.seed + 100 * (1 + i),
                      name=f"block_{i}") for i in range(self.transformer_blocks)]


@ENCODERS.register("sasrec")
class TransformerUserEncoder(UserEncoder):
    """f(x) is the last click's vector after the blocks and a last layer normalization."""

    Settings = TransformerSettings
    summary = "a causal Transformer (SASRec)."
    every_position = gaps_to_next = True

    def __init__(self, settings, sizes):
        super().__init__(settings, sizes)
        self.blocks = settings.blocks(sizes, sizes.dim)
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
