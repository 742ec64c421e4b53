"""The convolutional query tower, `--user_encoder=caser` (Tang & Wang 2018): the last clicks as a picture."""
import dataclasses

import tensorflow as tf
import tf_keras

from clrec_tf.encoders.base import UserEncoder
from clrec_tf.encoders.dropout import dropout_setting
from clrec_tf.encoders.dropout import DropoutSection
from clrec_tf.encoders.random_draws import Dropout
from clrec_tf.settings.registry import ENCODERS
from clrec_tf.settings.setting import setting


def last_clicks(vectors: tf.Tensor, last: tf.Tensor, count: int) -> tf.Tensor:
    """The `count` clicks that end at each place, the last of them at the end, zeros before the first click.

    Args:
      vectors: [B,T,D].
      last: [B,S] int32 places of last clicks; −1: none.
      count: L.

    Returns:
      [B,S,L,D].
    """
    places = last[:, :, None] + tf.range(1 - count, 1)
    return tf.where((places >= 0)[..., None], tf.gather(vectors, tf.maximum(places, 0), batch_dims=1), 0.0)


@dataclasses.dataclass(frozen=True)
class CaserSettings(DropoutSection):
    """--user_encoder=caser"""
    caser_clicks: int = setting(5, "L, last clicks that are read (Caser on MovieLens: 5).", lower=1)
    horizontal_filters: int = setting(16, "Horizontal filters of each height from 1 to L (Caser: 16).", lower=1)
    vertical_filters: int = setting(4, "Vertical filters (Caser: 4).", lower=1)
    dropout: float = dropout_setting()


@ENCODERS.register("caser")
class CaserUserEncoder(UserEncoder):
    """f(x) = W'·ReLU(W·[o; õ] + b) + b', from the last L clicks E = √d·[X_{n−L+1}; …; X_n] [L,d].

    Horizontal: o_k = max_i ReLU(⟨F_k, E_{i…i+h−1}⟩ + b_k), filters F_k [h,d] of each height h = 1 … L.
    Vertical: õ_k = Σ_l F̃_{k,l}·E_l [d].

    The paper's table of users is left out, so new users have a vector; W' stands for its last layer, whose rows of
    single items are the item tower here.
    """

    Settings = CaserSettings
    summary = "convolutions over the last clicks (Caser)."
    every_position = gaps_to_next = True

    def __init__(self, settings, sizes):
        super().__init__(settings, sizes)
        dim, count = sizes.dim, settings.caser_clicks
        glorot = lambda number: tf_keras.initializers.GlorotUniform(seed=sizes.seed + number)
        self.horizontal = [tf_keras.layers.Conv1D(settings.horizontal_filters, height, activation="relu",
                                                  kernel_initializer=glorot(height), name=f"horizontal_{height}")
                           for height in range(1, count + 1)]
        for layer in self.horizontal:
            layer.build((None, count, dim))
        dense = lambda units, number, **more: tf_keras.layers.Dense(units, kernel_initializer=glorot(-number), **more)
        self.vertical = dense(settings.vertical_filters, 1, use_bias=False, name="vertical")
        self.vertical.build((None, dim, count))
        self.joined, self.output_map = dense(dim, 2, activation="relu", name="joined"), dense(dim, 3, name="output_map")
        self.joined.build((None, count * settings.horizontal_filters + dim * settings.vertical_filters))
        self.output_map.build((None, dim))

    def call(self, clicks, training=False):
        """-> [B,D]; zeros for an empty history."""
        length = tf.reduce_sum(tf.cast(clicks.mask, tf.int32), axis=1, keepdims=True)
        users = tf.squeeze(self._after(clicks, length - 1, training), axis=1)
        return tf.where(length > 0, users, 0.0)

    def positions(self, clicks, training=False):
        """-> [B,T,D]; takes L times the numbers of the clicks."""
        batch_size, length = tf.unstack(tf.shape(clicks.mask))
        return self._after(clicks, tf.tile(tf.range(length)[None], [batch_size, 1]), training)

    def _after(self, clicks, last, training):
        """Users after the clicks at `last` [B,S] -> [B,S,D]."""
        dim, count = self.sizes.dim, self.settings.caser_clicks
        dropout = Dropout(self.settings.dropout, clicks.seed if training else None)
        read = tf.reshape(last_clicks(clicks.vectors * dim ** 0.5, last, count), [-1, count, dim])
        found = [tf.reduce_max(layer(read), axis=1) for layer in self.horizontal]
        vertical = tf.reshape(self.vertical(tf.transpose(read, [0, 2, 1])), [-1, self.vertical.units * dim])
        users = self.output_map(self.joined(dropout(tf.concat([*found, vertical], axis=1))))
        return tf.reshape(users, [-1, tf.shape(last)[1], dim])
