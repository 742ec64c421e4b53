"""The bidirectional query tower of BERT4Rec, `--user_encoder=bert4rec` (Sun et al. 2019), trained on masked clicks."""
import dataclasses

import tensorflow as tf
import tf_keras

from clrec_tf.data.histories import UNKNOWN_GAP
from clrec_tf.encoders.base import UserEncoder
from clrec_tf.encoders.clicks import ClickEncoder
from clrec_tf.encoders.embeddings import embedding_initializer
from clrec_tf.encoders.random_draws import Dropout
from clrec_tf.encoders.sasrec import TransformerSettings
from clrec_tf.encoders.transformer import layer_normalize
from clrec_tf.encoders.transformer import padding_mask
from clrec_tf.settings.registry import ENCODERS
from clrec_tf.settings.setting import setting

MASKING = 49_979_687  # added to a step's seed: draws of masked clicks are not those of dropout


@dataclasses.dataclass(frozen=True)
class Bert4RecSettings(TransformerSettings):
    """--user_encoder=bert4rec"""
    mask_share: float = setting(0.2,
        "--target_mode=all: share of a window's targets, beside the last, that a step masks and learns to tell "
        "(BERT4Rec: .2 on ML-1M, .4 on Steam, .6 on Beauty).", lower=0.0, upper=1.0)


@ENCODERS.register("bert4rec")
class Bert4RecUserEncoder(UserEncoder):
    """f(x) = norm(GELU(W·h + b)), h the blocks' output at the mask, which stands behind the clicks as the next one.

    The blocks read √d·X of all clicks, earlier and later ones, where a mask has one vector for its item, an unknown
    time, and no behaviour. With --target_mode=all a step masks the last target of each window, as in serving, and a
    share of the others; these alone are its targets, and no mask sees its item. The other modes mask the last alone.

    The paper draws masks without the last, and makes further examples of the last alone; it scores items with a bias of
    each, which the two towers do not have. Its blocks are --transformer_layer=post_norm, of two heads.
    """

    Settings = Bert4RecSettings
    summary = "a Transformer that sees both sides of masked clicks (BERT4Rec)."
    every_position = gaps_to_next = hides_targets = own_clicks = True

    def __init__(self, settings, sizes):
        super().__init__(settings, sizes)
        self.click_encoder = ClickEncoder(sizes.dim, sizes.max_history + 1, sizes.position, sizes.boundaries, sizes.seed,
                                          sizes.event_kinds)
        self.blocks = settings.blocks(sizes, 4 * sizes.dim)
        self.mask_vector = self.add_weight(name="mask", shape=(1, sizes.dim),
                                           initializer=embedding_initializer(sizes.dim, sizes.seed + 3))
        self.output_map = tf_keras.layers.Dense(
            sizes.dim, tf.nn.gelu, kernel_initializer=tf_keras.initializers.GlorotNormal(seed=sizes.seed + 4),
            name="output_map")
        self.output_map.build((None, sizes.dim))
        self.scale = self.add_weight(name="scale", shape=(sizes.dim,), initializer="ones")
        self.shift = self.add_weight(name="shift", shape=(sizes.dim,), initializer="zeros")

    @property
    def reads(self):
        """Times where clicks are encoded with them."""
        return frozenset({"times"} if self.click_encoder.time_table is not None else ())

    def call(self, clicks, training=False):
        """-> [B,D]; zeros for an empty history. The last block asks for the mask alone."""
        length = tf.reduce_sum(tf.cast(clicks.mask, tf.int32), axis=1)
        hidden, dropout, mask = self._begin(clicks, tf.zeros_like(clicks.mask), training)
        for block in self.blocks[:-1]:
            hidden = block(hidden, mask, dropout)
        users = self.blocks[-1](hidden, mask, dropout, tf.gather(hidden, length, batch_dims=1)[:, None, :])
        return tf.where(length[:, None] > 0, self._end(tf.squeeze(users, axis=1)), 0.0)

    def positions(self, clicks, training=False):
        """-> [B,T,D]."""
        hidden, dropout, mask = self._begin(
            clicks, tf.ones_like(clicks.mask) if clicks.asked is None else clicks.asked, training)
        for block in self.blocks:
            hidden = block(hidden, mask, dropout)
        return self._end(hidden[:, 1:])

    def step_targets(self, is_last, seed):
        """-> [N] bool: the last of each window, and --mask_share of the others."""
        draws = tf.random.stateless_uniform(tf.shape(is_last), seed + tf.constant([MASKING, 0], tf.int64))
        return is_last | (draws < self.settings.mask_share)

    def _begin(self, clicks, asked, training):
        """What goes into the first block, of T+1 places; the step's dropout; and what hides padding.

        Args:
          clicks: without vectors.
          asked: [B,T] bool, clicks behind which a mask stands in place of the next click.
          training: see `call`.
        """
        length = tf.reduce_sum(tf.cast(clicks.mask, tf.int32), axis=1, keepdims=True)
        places = tf.range(tf.shape(clicks.mask)[1] + 1)
        masked = (places == length) | tf.pad(asked, [[0, 0], [1, 0]])
        one_more = lambda values: tf.pad(values, [[0, 0], [0, 1], [0, 0]][:values.shape.rank])
        items = tf.where(masked[:, :, None], self.mask_vector, one_more(clicks.items))
        gaps, events = (None if part is None else tf.where(masked, tf.constant(nothing, tf.int64), one_more(part))
                        for part, nothing in ((clicks.gaps, UNKNOWN_GAP), (clicks.events, 0)))
        dropout = Dropout(self.settings.dropout, clicks.seed if training else None)
        vectors = self.click_encoder(items, places <= length, gaps, events)
        return dropout(vectors * self.sizes.dim ** 0.5), dropout, padding_mask(places <= length)

    def _end(self, hidden):
        return layer_normalize(self.output_map(hidden), self.scale, self.shift)
