"""The query tower of the YouTube DNN, `--user_encoder=dnn` (Covington, Adams & Sargin 2016): an MLP over the mean."""
import dataclasses

import tensorflow as tf
import tf_keras

from clrec_tf.encoders.base import UserEncoder
from clrec_tf.encoders.dense import apply_layers
from clrec_tf.encoders.mean import masked_mean
from clrec_tf.encoders.mean import running_means
from clrec_tf.errors import UserError
from clrec_tf.settings.registry import ENCODERS
from clrec_tf.settings.setting import Section
from clrec_tf.settings.setting import setting


@dataclasses.dataclass(frozen=True)
class DnnSettings(Section):
    """--user_encoder=dnn"""
    mlp_units: tuple[str, ...] = setting(("1024", "512", "256"),
        "Widths of the hidden layers (YouTube DNN: 1024,512,256).")

    def __post_init__(self):
        super().__post_init__()
        if not self.widths or min(self.widths) < 1:
            raise UserError(f"--mlp_units={','.join(self.mlp_units)}: must be widths of at least 1, such as 256,128")

    @property
    def widths(self) -> tuple[int, ...]:
        """As numbers; of what is none, 0."""
        return tuple(int(width) if width.isdecimal() else 0 for width in self.mlp_units)


@ENCODERS.register("dnn")
class DnnUserEncoder(UserEncoder):
    """f(x) = W·a_L + b with a_0 = √d·mean_t X_t and a_l = ReLU(W_l·a_{l−1} + b_l).

    The paper's last ReLU layer is the user's vector. Here a linear layer follows, to the width d of the items, whose
    vectors have coordinates of both signs.
    """

    Settings = DnnSettings
    summary = "an MLP over the mean of the history (YouTube DNN)."
    every_position = True

    def __init__(self, settings, sizes):
        super().__init__(settings, sizes)
        widths = (*settings.widths, sizes.dim)
        self.mlp = tf_keras.Sequential([
            tf_keras.layers.Dense(width, None if number == len(widths) - 1 else "relu",
                                  kernel_initializer=tf_keras.initializers.GlorotUniform(seed=sizes.seed + number),
                                  name=f"layer_{number}")
            for number, width in enumerate(widths)], name="mlp")
        self.mlp.build((None, sizes.dim))

    def call(self, clicks, training=False):
        """-> [B,D]; zeros for an empty history."""
        del training
        known = tf.reduce_any(clicks.mask, axis=1, keepdims=True)
        return tf.where(known, self._of_means(masked_mean(clicks.vectors, clicks.mask)), 0.0)

    def positions(self, clicks, training=False):
        """-> [B,T,D]."""
        del training
        means = running_means(clicks.vectors, clicks.mask)
        return tf.reshape(self._of_means(tf.reshape(means, [-1, self.sizes.dim])), tf.shape(means))

    def _of_means(self, means):
        return apply_layers(self.mlp, means * self.sizes.dim ** 0.5, self.sizes.product_dtype)
