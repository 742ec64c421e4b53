"""What the recurrent query towers are made of: Keras layers over the clicks, then a linear map to the width."""
import dataclasses

import tensorflow as tf
import tf_keras

from clrec_tf.encoders.base import UserEncoder
from clrec_tf.encoders.dropout import dropout_setting
from clrec_tf.encoders.dropout import DropoutSection
from clrec_tf.encoders.random_draws import Dropout
from clrec_tf.settings.setting import setting


def last_click(vectors: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """The vector at each user's last click: [B,T,D], [B,T] bool -> [B,D]; zeros for an empty history."""
    length = tf.reduce_sum(tf.cast(mask, tf.int32), axis=1)
    last = tf.gather(vectors, tf.maximum(length - 1, 0), batch_dims=1)
    return tf.where(length[:, None] > 0, last, 0.0)


@dataclasses.dataclass(frozen=True)
class RecurrentSettings(DropoutSection):
    """--user_encoder=gru4rec or lstm"""
    rnn_units: int = setting(100, "Units of each recurrent layer (GRU4Rec: 100).", lower=1)
    rnn_layers: int = setting(1, "Recurrent layers.", lower=1)
    dropout: float = dropout_setting()


class RecurrentUserEncoder(UserEncoder):
    """f(x) = W·h_n + b: h_t is the state of the last layer after click t, whose first layer reads √d·X_t.

    The clicks are scaled since rows of tables have norm 1, and gates read numbers of size 1. No layer needs the mask:
    padding stands after the clicks, and no state before it knows of it.
    """

    Settings = RecurrentSettings
    layer = None  # of Keras
    every_position = gaps_to_next = True

    def __init__(self, settings, sizes):
        super().__init__(settings, sizes)
        glorot = lambda number: tf_keras.initializers.GlorotUniform(seed=sizes.seed + 10 + number)
        self.layers, width = [], sizes.dim
        for i in range(settings.rnn_layers):
            self.layers.append(self.layer(settings.rnn_units, return_sequences=True, kernel_initializer=glorot(2 * i),
                                          recurrent_initializer=glorot(2 * i + 1), name=f"layer_{i}"))
            self.layers[-1].build((None, None, width))
            width = settings.rnn_units
        self.output_map = tf_keras.layers.Dense(sizes.dim, kernel_initializer=glorot(-1), name="output_map")
        self.output_map.build((None, width))

    def call(self, clicks, training=False):
        """-> [B,D]; zeros for an empty history."""
        states = last_click(self._states(clicks, training), clicks.mask)
        known = tf.reduce_any(clicks.mask, axis=1, keepdims=True)
        return tf.where(known, self.output_map(states), 0.0)

    def positions(self, clicks, training=False):
        """-> [B,T,D]."""
        return self.output_map(self._states(clicks, training))

    def _states(self, clicks, training):
        """h of the last layer, [B,T,units]."""
        dropout = Dropout(self.settings.dropout, clicks.seed if training else None)
        states = clicks.vectors * self.sizes.dim ** 0.5
        for layer in self.layers:
            states = layer(dropout(states))
        return states
