"""Products in bfloat16 beside float32: by pencil, near it in value and gradient, and only where they should be."""
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from clrec_tf.config import Config
from clrec_tf.data.schema import Schema
from clrec_tf.encoders.dense import apply_layers
from clrec_tf.encoders.multi_att import mlp
from clrec_tf.models.build import build_model
from tests.naive_queue import make_batch


def test_inputs_and_kernels_are_rounded_to_eight_bits_and_biases_are_not():
    layers = tf_keras.Sequential([tf_keras.layers.Dense(1)])
    layers.build((None, 1))
    layers.set_weights([np.array([[1.0 + 2 ** -9]], np.float32), np.array([1.0 + 2.0 ** -9], np.float32)])
    inputs = tf.constant([[1.0], [1.0 + 2 ** -7], [1.0 + 2 ** -9]])
    np.testing.assert_array_equal(apply_layers(layers, inputs, tf.bfloat16)[:, 0],
                                  np.float32([1.0, 1.0 + 2 ** -7, 1.0]) + np.float32(1 + 2 ** -9))
    assert apply_layers(layers, inputs, tf.float32)[2, 0] > 1.0 + 2 ** -8


@pytest.mark.parametrize("activation", ["tanh", None])
def test_values_and_gradients_are_near_those_of_float32(activation):
    tf_keras.utils.set_random_seed(0)
    layers, inputs = mlp(16, 32, 4, "some"), tf.random.stateless_normal([64, 16], [1, 2])
    layers.layers[0].activation = tf_keras.activations.get(activation)
    found = []
    for dtype in (tf.float32, tf.bfloat16):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            outputs = apply_layers(layers, inputs, dtype)
            loss = tf.reduce_sum(outputs ** 2)
        gradients = tape.gradient(loss, [inputs, *layers.trainable_variables])
        assert outputs.dtype == tf.float32 and all(gradient.dtype == tf.float32 for gradient in gradients)
        found.append([outputs, *gradients])
    for exact, rounded in zip(*found):
        assert 0 < np.linalg.norm(exact - rounded) < .03 * np.linalg.norm(exact)


def test_the_setting_reaches_the_towers():
    schema = Schema(20, 21, (), 8, "int", False, 0, 0, {}, {})
    content = np.random.default_rng(0).normal(size=(21, 8)).astype(np.float32)
    vectors = []
    for dtype in ("float32", "bfloat16"):
        model = build_model(Config.of(embedding_dim=8, max_history=2, product_dtype=dtype), schema, content)
        encoded = model.encode(make_batch([1, 2, 3]))
        assert encoded.users.dtype == encoded.positives.dtype == tf.float32
        vectors.append((encoded.users, encoded.positives))
    for exact, rounded in zip(*vectors):
        assert 0 < np.abs(exact - rounded).max() < .02
