"""Losses over sampled negatives, IPW weights and the sampler: optima by enumeration, pencil arithmetic, frequencies."""
import math

from hypothesis import given, settings, strategies as st
import numpy as np
import pytest

from clrec_tf.data.frequencies import smoothed_frequencies
from clrec_tf.losses.contrastive import contrastive_loss
from clrec_tf.losses import ipw
from clrec_tf.losses.sampled import corrected_logits
from clrec_tf.losses.sampled import negative_sampling_loss
from clrec_tf.objectives.alias_sampler import alias_table
from clrec_tf.objectives.alias_sampler import AliasSampler
from clrec_tf.objectives.alias_sampler import table_probabilities
from clrec_tf.training.runtime import LocalRuntime
from tests.test_contrastive import draws
from tests.test_contrastive import P
from tests.test_contrastive import Q
import tensorflow as tf

IN_INTENT = np.array([.1, .4, .4, .1])


def least(expected_loss, items):
    """φ [items] of the least expected loss, by Newton steps from 0; `expected_loss` is convex."""
    phi = tf.Variable(tf.zeros(items))
    for _ in range(8):
        with tf.GradientTape(persistent=True) as outer:
            with tf.GradientTape() as inner:
                loss = expected_loss(phi * 1.0)  # or its gradient would be sparse
            gradient = inner.gradient(loss, phi)
        hessian = outer.jacobian(gradient, phi, experimental_use_pfor=False).numpy().astype(float)
        # Where a constant added to φ changes nothing there is a direction of no curvature, which lstsq leaves alone.
        step = np.linalg.lstsq(hessian, gradient.numpy().astype(float), rcond=1e-4)[0]
        phi.assign_sub(np.clip(step, -2, 2).astype(np.float32))
    return phi.numpy()


def contrast(phi, positives, negatives, chances, log_q=None):
    """Expected contrastive loss; with log q, of the corrected logits."""
    logits = phi if log_q is None else corrected_logits(phi, tf.constant(log_q, tf.float32))
    candidates = np.concatenate([positives[:, None], negatives], axis=1)
    losses = contrastive_loss(tf.gather(logits, positives), tf.gather(logits, candidates))
    return tf.reduce_sum(losses * tf.constant(chances, tf.float32))


@pytest.mark.parametrize("negatives", [1, 3])
def test_the_optimum_of_corrected_sampled_softmax_is_p_for_any_number_of_negatives(negatives):
    enumeration = draws(P, Q, negatives)
    found = least(lambda phi: contrast(phi, *enumeration, log_q=np.log(Q)), 4)
    np.testing.assert_allclose(tf.nn.softmax(found), P, atol=2e-6)
    shifted = least(lambda phi: contrast(phi, *enumeration, log_q=np.log(Q) + 3), 4)
    np.testing.assert_allclose(tf.nn.softmax(shifted), P, atol=2e-6)  # any constant may be added to log q
    partly = least(lambda phi: contrast(phi, *enumeration, log_q=.25 * np.log(Q)), 4)
    np.testing.assert_allclose(tf.nn.softmax(partly), P / Q ** .75 / (P / Q ** .75).sum(), atol=2e-6)  # β = .75


def test_two_queues_are_nearly_but_not_exactly_their_mixture():
    """Negatives from ½q0 + ½q_h, and three from each, which is slightly inexact."""
    mixture = (Q + IN_INTENT) / 2
    exact = least(lambda phi: contrast(phi, *draws(P, mixture, 3)), 4)
    np.testing.assert_allclose(tf.nn.softmax(exact), P / mixture / (P / mixture).sum(), atol=2e-6)
    np.testing.assert_allclose(tf.nn.softmax(exact), [.404858, .283401, .17004, .1417], atol=2e-6)
    positives, first, chances = draws(P, Q, 3)
    one = np.ones(1)
    _, second, other = draws(one, IN_INTENT, 3)
    rows, columns = (index.ravel() for index in np.indices((len(first), len(second))))
    both = np.concatenate([first[rows], second[columns]], axis=1)
    found = least(lambda phi: contrast(phi, positives[rows], both, chances[rows] * other[columns]), 4)
    np.testing.assert_allclose(tf.nn.softmax(found), [.399326, .28596, .172786, .141928], atol=3e-6)


@pytest.mark.parametrize("negatives", [1, 3])
def test_the_optimum_of_negative_sampling_is_p_over_l_times_its_noise(negatives):
    positives, drawn, chances = draws(P, Q, negatives)
    found = least(lambda phi: tf.reduce_sum(negative_sampling_loss(
        tf.gather(phi, positives), tf.gather(phi, drawn)) * tf.constant(chances, tf.float32)), 4)
    np.testing.assert_allclose(np.exp(found), P / (negatives * Q), rtol=1e-5)


def test_negative_sampling_by_pencil():
    loss = negative_sampling_loss(tf.constant([2.0]), tf.constant([[0.0, -2.0]]))
    np.testing.assert_allclose(loss, [2 * math.log(1 + math.exp(-2)) + math.log(2)], rtol=1e-6)
    np.testing.assert_allclose(loss, [.947003203], rtol=1e-6)  # by pencil


def test_negative_sampling_stays_finite_and_in_single_precision():
    positives, negatives = tf.Variable([1e4, -1e4]), tf.Variable([[1e4, -1e4], [-1e4, 1e4]])
    with tf.GradientTape() as tape:
        loss = negative_sampling_loss(positives, negatives)
    np.testing.assert_allclose(loss, [1e4, 2e4])
    of_positives, of_negatives = tape.gradient(loss, [positives, negatives])
    np.testing.assert_allclose(of_positives, [0, -1])
    np.testing.assert_allclose(of_negatives, [[1, 0], [0, 1]])
    half = negative_sampling_loss(tf.constant([2.0], tf.bfloat16), tf.constant([[0.0, -2.0]], tf.bfloat16))
    assert half.dtype == tf.float32
    np.testing.assert_allclose(half, [.947003203], rtol=1e-6)
    assert corrected_logits(tf.constant([1.0], tf.bfloat16), tf.constant([.001])).numpy().tolist() == [np.float32(.999)]
    with pytest.raises(ValueError):
        negative_sampling_loss(tf.zeros([3]), tf.zeros([2, 4]))
    with pytest.raises(ValueError):
        negative_sampling_loss(tf.zeros([3]), tf.zeros([3]))


def test_inverse_propensities_by_pencil():
    weights = ipw.inverse_propensity_weights(tf.constant([.5, .25, .01]), 20.0)
    np.testing.assert_allclose(weights, [2, 4, 20], rtol=1e-6)
    scaled = ipw.self_normalized(weights, tf.ones(3))
    np.testing.assert_allclose(scaled, [3 * 2 / 26, 3 * 4 / 26, 3 * 20 / 26], rtol=1e-6)
    np.testing.assert_allclose(scaled, [.230769, .461538, 2.307692], atol=1e-6)  # by pencil
    np.testing.assert_allclose(ipw.inverse_propensity_weights(tf.constant([.01, 0.0]), math.inf), [100, math.inf])
    np.testing.assert_allclose(ipw.inverse_propensity_weights(tf.constant([1e-30, 0.0], tf.float64), 7.0), [7, 7])


def test_rows_count_by_their_importance_in_the_normalization():
    weights, counts = tf.constant([2.0, 4.0, math.inf, math.nan]), tf.constant([3.0, .5, 0.0, 0.0])
    scaled = ipw.self_normalized(weights, counts).numpy()
    mean = (2 * 3 + 4 * .5) / 3.5  # rows that do not count may hold any weight
    np.testing.assert_allclose(scaled, [2 / mean, 4 / mean, 0, 0], rtol=1e-6)
    assert (scaled * counts.numpy()).sum() == pytest.approx(counts.numpy().sum())
    np.testing.assert_array_equal(ipw.self_normalized(weights[:2], tf.zeros(2)), [0, 0])


def test_effective_sample_size_by_pencil():
    np.testing.assert_allclose(ipw.effective_sample_size(tf.constant([1.0, 1.0, 2.0])), 16 / 6, rtol=1e-6)
    np.testing.assert_allclose(ipw.effective_sample_size(tf.fill([7], 3.0)), 7, rtol=1e-6)
    np.testing.assert_allclose(ipw.effective_sample_size(tf.constant([1e-6, 1.0, 0.0])), 1, rtol=1e-5)
    assert float(ipw.effective_sample_size(tf.zeros([0]))) == 0


def test_smoothed_frequencies_by_pencil():
    np.testing.assert_allclose(smoothed_frequencies([16, 81, 1], .75), [8 / 36, 27 / 36, 1 / 36], rtol=1e-12)
    np.testing.assert_allclose(smoothed_frequencies([16, 81, 1], .75), [.222222, .75, .027778], atol=1e-6)  # F21
    np.testing.assert_allclose(smoothed_frequencies([3, 0, 1], 1.0), [3 / 5, 1 / 5, 1 / 5])  # none has p = 0
    np.testing.assert_allclose(smoothed_frequencies([9, 0, 4], 0.0), [1 / 3] * 3)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(st.just(0.0), st.floats(1e-9, 1e9), st.integers(1, 50).map(float)), min_size=1, max_size=40
                ).filter(any))
def test_a_table_draws_from_its_weights(weights):
    threshold, alias = alias_table(weights)
    share = np.array(weights) / np.sum(weights)
    np.testing.assert_allclose(table_probabilities(threshold, alias), share, atol=1e-12)
    # The same by hand: column i holds 1/V, of which alias[i] gets what threshold[i] leaves.
    mass = np.zeros(len(weights))
    for column, other in enumerate(alias):
        mass[column] += threshold[column] / len(weights)
        mass[other] += (1 - threshold[column]) / len(weights)
    np.testing.assert_allclose(mass, share, atol=1e-12)
    assert ((threshold >= 0) & (threshold <= 1)).all()
    zero = np.flatnonzero(share == 0)
    assert (threshold[zero] == 0).all() and not set(alias) & set(zero)


@pytest.mark.parametrize("weights", [np.arange(1, 20_001) ** -1.0, [1e12] + [1.0] * 999, [1.0] * 1000, [5.0]])
def test_large_even_and_single_tables(weights):
    weights = np.asarray(weights)
    before = weights.copy()
    np.testing.assert_allclose(table_probabilities(*alias_table(weights)), weights / weights.sum(), atol=1e-12)
    np.testing.assert_array_equal(weights, before)  # the caller's array is left alone


def sampler(weights, seed=0, worker=0):
    local = LocalRuntime().local_variable
    return AliasSampler(np.asarray(weights) / np.sum(weights), seed, lambda make, *rest: local(
        lambda _: make(tf.constant(worker, tf.int64)), *rest))


def drawn(one, shape=(40,)):
    return one.open().sample(shape).numpy()


def assert_frequencies(counts, shares):
    """Each count within 5 standard deviations of a binomial: all hold with 1 − 6e-7 per count."""
    total, shares = counts.sum(), np.asarray(shares)
    np.testing.assert_array_equal(counts[shares == 0], 0)
    assert (np.abs(counts - total * shares) <= 5 * np.sqrt(total * shares * (1 - shares))).all(), counts


def test_draws_come_at_their_frequencies_and_independently():
    share = np.array([.4, 0, .3, .15, .1, .05])
    one, size = sampler(share), 200_000
    first, second = drawn(one, [size // 4, 4]).ravel(), drawn(one, [size])
    assert first.dtype == np.int64
    assert_frequencies(np.bincount(first, minlength=6), share)
    pairs = np.outer(share, share)
    for left, right in ((first, second), (first[:-1], first[1:])):  # between calls, and within one
        joint = np.bincount(6 * left + right, minlength=36)
        assert_frequencies(joint, pairs.ravel())


def test_edge_cases_of_drawing():
    assert (drawn(sampler([3.0])) == 0).all()
    assert (drawn(sampler([1e15, 1.0, 1.0]), [1000]) == 0).all()
    assert set(drawn(sampler([0.0, 1.0, 0.0, 1.0]), [1000])) == {1, 3}
    assert drawn(sampler([1.0, 2.0]), [0]).shape == (0,)


def test_draws_are_a_function_of_seed_worker_and_state_alone():
    weights = np.arange(1, 101)
    one, twin = sampler(weights), sampler(weights)
    history = [drawn(one) for _ in range(3)]
    assert len({tuple(row) for row in history}) == 3  # the state moves
    state = {name: variable.numpy() for name, variable in one.local_variables.items()}
    following = drawn(one)
    for name, value in state.items():
        twin.local_variables[name].assign(value)
    np.testing.assert_array_equal(drawn(twin), following)
    again = sampler(weights)
    np.testing.assert_array_equal([drawn(again) for _ in range(3)], history)
    others = [tuple(drawn(sampler(weights, seed, worker))) for seed, worker in ((0, 0), (1, 0), (0, 1), (1, 1), (0, 2))]
    assert len(set(others)) == 5
    # Another worker is not the same worker some calls later.
    fresh = sampler(weights)
    assert not {tuple(drawn(fresh)) for _ in range(20)} & set(others[1:])


def test_a_compiled_loop_draws_what_single_calls_draw():
    one, twin = sampler([5, 3, 2]), sampler([5, 3, 2])

    @tf.function
    def loop(steps):
        opened, rows = one.open(), tf.TensorArray(tf.int64, steps)
        for step in tf.range(steps):
            rows = rows.write(step, opened.sample([6]))
        return rows.stack()

    found = np.concatenate([loop(tf.constant(3)), loop(tf.constant(2))])
    np.testing.assert_array_equal(found, [drawn(twin, [6]) for _ in range(5)])
