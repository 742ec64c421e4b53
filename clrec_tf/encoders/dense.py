"""Dense layers whose products are computed in another type, cast by hand: Keras' mixed precision does not work with
parameter servers. Variables, biases, activations and everything after stay float32."""
import tensorflow as tf
import tf_keras


def apply_layers(layers: tf_keras.Sequential, inputs: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
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
        inputs = product(inputs, layer.kernel, dtype)
        inputs = layer.activation(tf.nn.bias_add(inputs, layer.bias) if layer.use_bias else inputs)
    return inputs


def product(inputs: tf.Tensor, kernel: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """inputs [N,d] times kernel [d,units], computed in `dtype`: float32 [N,units]."""
    return tf.cast(tf.matmul(tf.cast(inputs, dtype), tf.cast(kernel, dtype)), tf.float32)


class JoinedMlp(tf_keras.layers.Layer):
    """Dense(hidden, tanh) -> Dense(units) of inputs side by side, which need not be laid out side by side.

    The first product of a concatenation is the sum of its parts' products; so what few rows share (a position, an
    intent's bias vector) is multiplied once and added to all.

    Args:
      widths: of the parts.
      hidden: width of the hidden layer.
      units: width of the result.
      name: of the layer.
      product_dtype: of the products, see `apply_layers`.
    """

    def __init__(self, widths, hidden, units, name, product_dtype=tf.float32):
        super().__init__(name=name)
        self.widths, self._product_dtype = tuple(widths), product_dtype
        glorot = tf_keras.initializers.GlorotNormal
        self.first_kernel = self.add_weight(name="first_kernel", shape=(sum(widths), hidden), initializer=glorot())
        self.first_bias = self.add_weight(name="first_bias", shape=(hidden,), initializer="zeros")
        self.last_kernel = self.add_weight(name="last_kernel", shape=(hidden, units), initializer=glorot())
        self.last_bias = self.add_weight(name="last_bias", shape=(units,), initializer="zeros")

    def part(self, number, inputs):
        """A part's share of the hidden layer: [N, widths[number]] -> [N, hidden]."""
        begin = sum(self.widths[:number])
        return product(inputs, self.first_kernel[begin:begin + self.widths[number]], self._product_dtype)

    def finish(self, hidden):
        """The sum of all parts' shares [N, hidden] -> [N, units]."""
        activated = tf.tanh(tf.nn.bias_add(hidden, self.first_bias))
        return tf.nn.bias_add(product(activated, self.last_kernel, self._product_dtype), self.last_bias)

    def call(self, inputs):
        """Inputs side by side: [N, Σ widths] -> [N, units]."""
        return self.finish(product(inputs, self.first_kernel, self._product_dtype))
