"""A recurrent query tower of another cell, `--user_encoder=lstm` (Hochreiter & Schmidhuber 1997)."""
import tf_keras

from clrec_tf.encoders.recurrent import RecurrentUserEncoder
from clrec_tf.settings.registry import ENCODERS


@ENCODERS.register("lstm")
class LstmUserEncoder(RecurrentUserEncoder):
    """i, g, o = σ(W·x_t + U·h + b) with weights of their own, c_t = g⊙c + i⊙tanh(W_c·x_t + U_c·h + b_c) and
    h_t = o⊙tanh(c_t), with h = h_{t−1}, c = c_{t−1}, h_0 = c_0 = 0. The forget gate's b begins at 1.
    """

    summary = "an LSTM, its last state."
    layer = tf_keras.layers.LSTM
