"""The recurrent query tower of GRU4Rec, `--user_encoder=gru4rec` (Hidasi et al. 2016)."""
import tf_keras

from clrec_tf.encoders.recurrent import RecurrentUserEncoder
from clrec_tf.settings.registry import ENCODERS


@ENCODERS.register("gru4rec")
class GruUserEncoder(RecurrentUserEncoder):
    """z = σ(W_z·x_t + U_z·h + b_z), r = σ(W_r·x_t + U_r·h + b_r), h_t = z⊙h + (1 − z)⊙tanh(W·x_t + b + r⊙(U·h + c))
    with h = h_{t−1}, h_0 = 0.

    The paper's gate z is 1 − z here, and its reset gate acts before U, not after: as cuDNN has it.
    """

    summary = "a GRU, its last state (GRU4Rec)."
    layer = tf_keras.layers.GRU
