"""The auxiliary losses against pencil arithmetic and NumPy."""
import math

import numpy as np
import pytest

from clrec_tf.losses import auxiliary
import tensorflow as tf


@pytest.mark.parametrize("temperature, expected", [(1.0, 0.313261688), (0.07, 6.24875e-7)])
def test_routing_loss_of_two_intents(temperature, expected):
    # cosines (1, 0): log(1 + e^(−1/ρ))
    losses = auxiliary.intent_cross_entropy(tf.constant([[1.0, 0.0]]) / temperature, tf.constant([0]))
    np.testing.assert_allclose(losses, [expected], rtol=1e-5, atol=6e-8)  # float32 near 1


@pytest.mark.parametrize("temperature, expected", [(0.5, 0.323482699), (0.07, 4.60237e-5)])
def test_vector_loss_of_three_intents(temperature, expected):
    losses = auxiliary.intent_cross_entropy(tf.constant([[0.9, 0.2, -0.1]]) / temperature, tf.constant([0]))
    np.testing.assert_allclose(losses, [expected], rtol=1e-5, atol=6e-8)  # float32 near 1


def test_one_intent_has_no_losses():
    logits = tf.constant([[3.0], [-2.0]])
    np.testing.assert_array_equal(auxiliary.intent_cross_entropy(logits, tf.constant([0, 0])), [0, 0])
    shares = auxiliary.mean_routing(logits, tf.constant([True, True]))
    np.testing.assert_allclose(auxiliary.balance_loss(shares), 0, atol=1e-7)


def test_a_confident_target_draws_no_further():
    logits = tf.Variable([[4.0, 0.0], [0.1, 0.0]])  # probabilities .982 and .525
    with tf.GradientTape() as tape:
        losses = auxiliary.intent_cross_entropy(logits, tf.constant([0, 0]), confident=0.95)
        total = tf.reduce_sum(losses)
    np.testing.assert_allclose(losses, [0.0, math.log(1 + math.exp(-0.1))], rtol=1e-6)
    gradient = tape.gradient(total, logits).numpy()
    assert not gradient[0].any() and gradient[1].all()


def test_balance_is_the_divergence_from_uniform():
    # ¼ Σ (log ¼ − log π) = −log 4 + (log 2 + log 4 + 2 log 8)/4
    log_shares = tf.math.log(tf.constant([0.5, 0.25, 0.125, 0.125]))
    np.testing.assert_allclose(auxiliary.balance_loss(log_shares), 0.173286795, rtol=1e-6)
    np.testing.assert_allclose(auxiliary.balance_loss(tf.math.log(tf.fill([4], 0.25))), 0.0, atol=1e-7)
    # The hinge drops the first term, ¼ (log ¼ − log ½) = −¼ log 2.
    np.testing.assert_allclose(auxiliary.balance_loss(log_shares, hinge=True), 0.173286795 + math.log(2) / 4, rtol=1e-6)


def test_balance_pulls_at_the_unused_intent():
    """The other direction of the divergence would leave it dead: its gradient vanishes with π."""
    logits = tf.Variable([[0.0, 0.0, -20.0]] * 5)
    with tf.GradientTape() as tape:
        loss = auxiliary.balance_loss(auxiliary.mean_routing(logits, tf.ones([5], tf.bool)))
    assert (tape.gradient(loss, logits).numpy()[:, 2] < -0.05).all()


def test_mean_routing_is_the_mean_of_softmaxes_without_padding():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(7, 3)) * 3
    keep = np.array([1, 0, 1, 1, 0, 0, 1], bool)
    softmax = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    expected = np.log(softmax[keep].mean(axis=0))
    np.testing.assert_allclose(auxiliary.mean_routing(tf.constant(logits, tf.float32), tf.constant(keep)), expected,
                               rtol=1e-5)
    changed = np.where(keep[:, None], logits, 1e3)
    np.testing.assert_allclose(auxiliary.mean_routing(tf.constant(changed, tf.float32), tf.constant(keep)), expected,
                               rtol=1e-5)


def test_nothing_kept_is_uniform_and_finite():
    logits = tf.Variable(tf.random.normal([4, 3]))
    with tf.GradientTape() as tape:
        loss = auxiliary.balance_loss(auxiliary.mean_routing(logits, tf.zeros([4], tf.bool)))
    np.testing.assert_allclose(loss, 0.0, atol=1e-6)
    assert np.isfinite(tape.gradient(loss, logits)).all()
