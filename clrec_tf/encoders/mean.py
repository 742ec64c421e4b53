"""The mean of the clicks, the cheap query tower: `--user_encoder=mean`."""
import tensorflow as tf

from clrec_tf.encoders.base import UserEncoder
from clrec_tf.settings.registry import ENCODERS


def masked_mean(values: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Mean over the clicks: [B,T,D], [B,T] -> [B,D]; zero for an empty history."""
    valid = tf.cast(mask, values.dtype)[:, None, :]
    weights = tf.math.divide_no_nan(valid, tf.reduce_sum(valid, axis=2, keepdims=True))
    return tf.squeeze(tf.matmul(weights, values), axis=1)


def running_means(values: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """`masked_mean` over the first t+1 clicks, for every t: [B,T,D], [B,T] -> [B,T,D]; of padding anything finite."""
    valid = tf.cast(mask, values.dtype)[:, :, None]
    return tf.math.divide_no_nan(tf.cumsum(valid * values, axis=1), tf.cumsum(valid, axis=1))


@ENCODERS.register("mean")
class MeanUserEncoder(UserEncoder):
    """f(x) = mean_t X_t. `of_sums` gives the same from sums, for callers that need not lay out every click."""

    summary = "mean of the history."
    adds_clicks = every_position = True

    def call(self, clicks, training=False):
        """-> [B,D]."""
        del training
        return masked_mean(clicks.vectors, clicks.mask)

    def positions(self, clicks, training=False):
        """Running means, [B,T,D]."""
        del training
        return running_means(clicks.vectors, clicks.mask)

    def of_sums(self, sums: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Σ_t X_t [B,D], mask [B,T] -> [B,D]; zero for an empty history."""
        return tf.math.divide_no_nan(sums, tf.reduce_sum(tf.cast(mask, sums.dtype), axis=1, keepdims=True))
