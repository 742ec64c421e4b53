"""Dense layers whose products are computed in another type, cast by hand: Keras' mixed precision does not work with
parameter servers. Variables, biases, activations and everything after stay float32."""
import tensorflow as tf


def apply_layers(layers: tf.keras.Sequential, inputs: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """What a stack of `Dense` layers gives, with its products in `dtype`.

    Args:
      layers: built, `Dense` only.
      inputs: [N,d] float32.
      dtype: float32, for which this is `layers(inputs)`, or bfloat16. Not float16, whose small gradients vanish.

    Returns:
      [N, units of the last] float32.
    """
    if dtype == tf.float32:
        return layers(inputs)
    for layer in layers.layers:
        inputs = tf.cast(tf.matmul(tf.cast(inputs, dtype), tf.cast(layer.kernel, dtype)), tf.float32)
        inputs = layer.activation(tf.nn.bias_add(inputs, layer.bias) if layer.use_bias else inputs)
    return inputs
