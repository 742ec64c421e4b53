"""The query tower of evolving interests, `--user_encoder=dien` (Zhou et al. 2019)."""
import dataclasses

import tensorflow as tf
import tf_keras

from clrec_tf.encoders.base import UserEncoder
from clrec_tf.encoders.recurrent import last_click
from clrec_tf.losses.auxiliary import next_click_loss
from clrec_tf.losses.contrastive import MASKED
from clrec_tf.settings.registry import ENCODERS
from clrec_tf.settings.setting import Section
from clrec_tf.settings.setting import setting

OTHERS = 86_028_121  # added to a step's seed: draws of other clicks are not those of hidden histories


def other_clicks(mask: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """A random other click of the batch for each click, all others alike: mask [B,T] bool, seed [2] -> [B,T] int64
    places among the B·T; of padding, and where there is no other, any."""
    flat = tf.reshape(mask, [-1])
    places = tf.squeeze(tf.where(flat), axis=1)
    count, numbers = tf.size(places, tf.int64), tf.cumsum(tf.cast(flat, tf.int64), exclusive=True)
    away = tf.random.stateless_uniform(tf.shape(flat), seed, 1, tf.maximum(count, 2), tf.int64)
    chosen = tf.gather(tf.pad(places, [[0, 1]]), (numbers + away) % tf.maximum(count, 1))
    return tf.reshape(chosen, tf.shape(mask))


class AttentionalUpdateCell(tf_keras.layers.Layer):
    """AUGRU, of `tf_keras.layers.RNN`: h' = (1 − a·u)⊙h + a·u⊙tanh(n_x + r⊙(U_n·h)), with u = σ(u_x + U_u·h) and
    r = σ(r_x + U_r·h). A step reads [u_x; r_x; n_x; a], [B,3·units + 1]: the products of its input, and its attention.

    Args:
      units: of h.
      seed: of the initial values of U.
    """

    def __init__(self, units, seed):
        super().__init__(name="cell")
        self.state_size = self.output_size = units
        self.recurrent = self.add_weight(name="recurrent", shape=(units, 3 * units),
                                         initializer=tf_keras.initializers.GlorotUniform(seed=seed))

    def call(self, inputs, states):
        """-> (h', [h'])."""
        update, reset, new = tf.split(inputs[:, :-1], 3, axis=1)
        of_update, of_reset, of_new = tf.split(tf.matmul(states[0], self.recurrent), 3, axis=1)
        share = inputs[:, -1:] * tf.sigmoid(update + of_update)
        state = (1.0 - share) * states[0] + share * tf.tanh(new + tf.sigmoid(reset + of_reset) * of_new)
        return state, [state]


@dataclasses.dataclass(frozen=True)
class DienSettings(Section):
    """--user_encoder=dien"""
    dien_auxiliary: float = setting(1.0,
        "Weight of the loss by which a state after a click tells the next click from a random other one of the batch "
        "(DIEN: 1; 0: none).", lower=0.0)


@ENCODERS.register("dien")
class DienUserEncoder(UserEncoder):
    """f(x) = W·h'_n + b. Interests h_t are a GRU's states over √d·X_t, of width d; a_t = softmax_t(h_tᵀ·A·h_n) is the
    attention that the last of them pays to each, and h' is an AUGRU over h whose update gate is scaled by a_t.

    Each state has to tell the next click from a random other one of the batch, see `next_click_loss`, with √d·g of
    both; the mean over a user's clicks is added to its loss, times --dien_auxiliary.

    In the paper the attention is the candidate's. A retrieval tower encodes users before it knows a candidate, so the
    last interest attends in its place. The paper's random click is of another item than the next one; here it is
    another click, which may be on the same item.
    """

    Settings = DienSettings
    summary = "a GRU of interests, their evolution by the last one's attention (DIEN)."
    gaps_to_next = True

    def __init__(self, settings, sizes):
        super().__init__(settings, sizes)
        dim, glorot = sizes.dim, lambda number: tf_keras.initializers.GlorotUniform(seed=sizes.seed + number)
        self.extractor = tf_keras.layers.GRU(dim, return_sequences=True, kernel_initializer=glorot(1),
                                             recurrent_initializer=glorot(2), name="extractor")
        self.extractor.build((None, None, dim))
        self.attention = self.add_weight(name="attention", shape=(dim, dim), initializer=glorot(3))
        self.input_map, self.output_map = (
            tf_keras.layers.Dense(units, kernel_initializer=glorot(number), name=name)
            for name, units, number in (("input_map", 3 * dim, 4), ("output_map", dim, 5)))
        for layer in (self.input_map, self.output_map):
            layer.build((None, dim))
        self.evolution = tf_keras.layers.RNN(AttentionalUpdateCell(dim, sizes.seed + 6), name="evolution")
        self.evolution.build((None, None, 3 * dim + 1))

    def call(self, clicks, training=False):
        """-> [B,D]; zeros for an empty history."""
        del training
        return self._evolved(self._interests(clicks), clicks.mask)

    def with_auxiliary(self, clicks, training=False):
        """See `UserEncoder.with_auxiliary`; a step without random numbers adds nothing."""
        interests, weight = self._interests(clicks), self.settings.dien_auxiliary
        users = self._evolved(interests, clicks.mask)
        if not training or clicks.seed is None or not weight:
            return users, None
        items = clicks.items * self.sizes.dim ** 0.5
        others = other_clicks(clicks.mask, clicks.seed + tf.constant([OTHERS, 0], tf.int64))
        others = tf.gather(tf.reshape(items, [-1, self.sizes.dim]), others)
        return users, weight * next_click_loss(interests, items, others, clicks.mask)

    def _interests(self, clicks):
        """h [B,T,D]; padding stands after the clicks, and no state before it knows of it."""
        return self.extractor(clicks.vectors * self.sizes.dim ** 0.5)

    def _evolved(self, interests, mask):
        asks = tf.matmul(last_click(interests, mask), self.attention, transpose_b=True)
        scores = tf.linalg.matvec(interests, asks)
        attention = tf.nn.softmax(tf.where(mask, scores, MASKED)) * tf.cast(mask, scores.dtype)
        # Padding has an attention of 0, so what is left after the last step is the state after the last click.
        state = self.evolution(tf.concat([self.input_map(interests), attention[:, :, None]], axis=2))
        return tf.where(tf.reduce_any(mask, axis=1, keepdims=True), self.output_map(state), 0.0)
