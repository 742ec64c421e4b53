"""The loss over several vectors and two queues against pencil arithmetic, loops and brute force."""
import math

import numpy as np
import pytest

from clrec_tf.losses import multi_vector
import tensorflow as tf


def unit(rng, *shape):
    vectors = rng.normal(size=shape)
    return tf.constant(vectors / np.linalg.norm(vectors, axis=-1, keepdims=True), tf.float32)


def mean_log(*arguments, **options):
    return multi_vector.mean_log_denominator(*arguments, **options)[0]


@pytest.mark.parametrize("selected, expected", [(0, 1.175256492), (1, 2.175256492)])
def test_two_vectors_two_queues_by_hand(selected, expected):
    """z = I₂; candidates (1,0) = the positive and (0,1), of the intent (−1,0): Z = (e+1+1/e) + (1+e+1) = 8.804443."""
    vectors = tf.constant([[[1.0, 0.0], [0.0, 1.0]]])
    weights = tf.constant([[2.0, 0.0]] if selected == 0 else [[0.0, 2.0]])
    total, logs = multi_vector.mean_log_denominator(
        vectors, tf.constant([0]), tf.constant([1.0]), tf.constant([[1.0, 0.0], [0.0, 1.0]]), tf.ones([1, 2]),
        tf.constant([[[-1.0, 0.0]], [[9.0, 9.0]]]), tf.constant([[1.0], [1.0]]), temperature=1.0)
    np.testing.assert_allclose(tf.exp(logs), [8.804443], rtol=1e-6)
    scores = tf.constant([[1.0, 0.0]])  # ⟨z_h, (1,0)⟩
    for mode in multi_vector.ST_MODES:
        loss = total - multi_vector.selected_score(scores, weights, mode, 100.0)[0]
        np.testing.assert_allclose(loss, expected, rtol=1e-6)


def gradients_of_selection(mode, scores, weight_logits, max_ratio=math.inf):
    scores, weight_logits = tf.Variable(scores), tf.Variable(weight_logits)
    with tf.GradientTape() as tape:
        value = multi_vector.selected_score(scores, weight_logits, mode, max_ratio)
        loss = -tf.reduce_sum(value)
    return value.numpy(), *(gradient.numpy() for gradient in tape.gradient(loss, [weight_logits, scores]))


def test_straight_through_by_hand():
    """w̃ = (2,0,1), s = (1,3,0): −∂/∂ẅ = (1, e², e⁻¹), through the softmax's Jacobian."""
    value, by_weights, by_scores = gradients_of_selection("literal", [[1.0, 3.0, 0.0]], [[2.0, 0.0, 1.0]])
    np.testing.assert_allclose(value, [1.0], rtol=1e-6)
    np.testing.assert_allclose(by_weights, [[0.279742, -0.537351, 0.257609]], atol=2e-6)
    np.testing.assert_allclose(by_scores, [[-1.0, 0.0, 0.0]], atol=1e-6)


def test_capped_is_literal_below_the_cap_and_bounded_above():
    scores, weights = [[1.0, 3.0, 0.0]], [[2.0, 0.0, 1.0]]
    for found, expected in zip(gradients_of_selection("capped", scores, weights, 100.0),
                               gradients_of_selection("literal", scores, weights)):
        np.testing.assert_allclose(found, expected, atol=1e-6)
    # −∂/∂ẅ = (1, 5, e⁻¹) instead of (1, e², e⁻¹).
    softmax = np.exp(weights[0]) / np.exp(weights[0]).sum()
    ratios = np.array([1.0, 5.0, math.exp(-1)])
    expected = -softmax * (ratios - softmax @ ratios)
    np.testing.assert_allclose(gradients_of_selection("capped", scores, weights, 5.0)[1], [expected], rtol=1e-5)


def test_soft_has_the_gradient_of_the_mixture():
    scores, weights = [[1.0, 3.0, 0.0]], [[2.0, 0.0, 1.0]]
    value, by_weights, by_scores = gradients_of_selection("soft", scores, weights)
    softmax = np.exp(weights[0]) / np.exp(weights[0]).sum()
    posterior = softmax * np.exp(scores[0]) / (softmax @ np.exp(scores[0]))
    np.testing.assert_allclose(value, [1.0], rtol=1e-6)
    np.testing.assert_allclose(by_weights, [softmax - posterior], rtol=1e-5)
    np.testing.assert_allclose(by_scores, [-posterior], rtol=1e-5)


@pytest.mark.parametrize("mode", multi_vector.ST_MODES)
def test_no_nan_at_a_gap_of_28(mode):
    """Two cosines of −1 and 1 at ρ = .07: the largest gap that there is."""
    for gap in (28.6, -28.6):
        found = gradients_of_selection(mode, [[0.0, gap]], [[14.3, -14.3]], 100.0)
        assert all(np.isfinite(part).all() for part in found)
        np.testing.assert_allclose(found[0], [0.0], atol=1e-5)


def test_equal_weights_select_the_lowest_number():
    value, *_ = gradients_of_selection("literal", [[5.0, 7.0]], [[1.0, 1.0]])
    np.testing.assert_allclose(value, [5.0], rtol=1e-6)


def test_gated_score_by_hand():
    """w = (1, 3)/4: the second target is of intent 1, whatever is heaviest or nearest."""
    log_weights = tf.math.log([[1 / 4, 3 / 4], [3 / 4, 1 / 4]])
    gated = multi_vector.gated_scores(tf.constant([[2.0, 5.0], [9.0, 1.0]]), log_weights)
    found = multi_vector.gated_score(gated, tf.constant([0, 1]))
    np.testing.assert_allclose(found, [2 + math.log(1 / 4), 1 + math.log(1 / 4)], rtol=1e-6)


def test_entry_weights_by_hand():
    """Of 8 clicks, with the one added to each, 2 and 6; queues of 4 and 0 beside a main one of 16."""
    arguments = tf.constant([1, 5], tf.int64), tf.constant([4, 0], tf.int64), tf.constant(16, tf.int64)
    np.testing.assert_allclose(multi_vector.entry_weights(*arguments, 0.0), [1 / (1 + 4 / 16 * 8 / 2), 1], rtol=1e-6)
    np.testing.assert_allclose(multi_vector.entry_weights(*arguments, 0.5), [2 ** -0.5, 1], rtol=1e-6)
    np.testing.assert_array_equal(multi_vector.entry_weights(*arguments, 1.0), [1, 1])


def case(seed, rows=23, intents=5, dim=6, shared=13, own=7, weighted=False):
    """Vectors, h⁺, shares with a zero, and both sets of candidates with counts 0 to 2; with weights if wanted."""
    rng = np.random.default_rng(seed)
    shares = rng.random(rows)
    shares[3] = 0
    counts = lambda *shape: tf.constant(rng.integers(0, 3, shape), tf.float32)
    weights = dict(log_weights=tf.nn.log_softmax(tf.constant(3 * rng.normal(size=(rows, intents)), tf.float32)))
    return (weights if weighted else {}) | dict(
        vectors=unit(rng, rows, intents, dim), intents=tf.constant(rng.integers(0, intents - 1, rows), tf.int32),
        shares=tf.constant(shares / shares.sum(), tf.float32), shared=unit(rng, shared, dim),
        shared_counts=counts(1, shared) + 1, own=unit(rng, intents, own, dim), own_counts=counts(intents, own))


def brute(c, temperature):
    logs = multi_vector.brute_force_log_denominators(
        c["vectors"], c["intents"], c["shared"], tf.repeat(c["shared_counts"], c["own"].shape[0], axis=0), c["own"],
        c["own_counts"], temperature, c.get("log_weights", 0.0))
    return tf.reduce_sum(c["shares"] * logs)


def with_gradients(function, c, names=("vectors", "shared", "own")):
    with tf.GradientTape() as tape:
        tape.watch([c[name] for name in names])
        value = function()
    return [value, *tape.gradient(value, [c[name] for name in names])]


@pytest.mark.parametrize("temperature", [0.5, 0.07, 0.01])  # the last needs a shift by the maximum
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("chunk", [2, 32])
@pytest.mark.parametrize("weighted", [False, True])
def test_grouped_equals_brute_force_with_gradients(temperature, compiled, chunk, weighted):
    c = case(0, weighted=weighted)
    names = ("vectors", "shared", "own") + (("log_weights",) if weighted else ())
    expected = with_gradients(lambda: brute(c, temperature), c, names)
    grouped = lambda: mean_log(**c, temperature=temperature, chunk=chunk)
    found = with_gradients(tf.function(grouped) if compiled else grouped, c, names)
    for found_part, expected_part in zip(found, expected):
        np.testing.assert_allclose(found_part, expected_part, rtol=1e-5, atol=1e-5 * max(1, 0.01 / temperature))


@pytest.mark.parametrize("temperature", [0.07, 0.01])
def test_further_terms_of_rows(temperature):
    """log(Z + E), with gradients; where E is 0 as without; with nothing in the queues E alone."""
    c = case(0, weighted=True)
    terms = tf.constant(np.where(np.arange(23) % 3, 0.8 / temperature, -np.inf), tf.float32)
    names = ("vectors", "shared", "own", "log_weights", "log_terms")

    def expected():
        logs = multi_vector.brute_force_log_denominators(
            c["vectors"], c["intents"], c["shared"], tf.repeat(c["shared_counts"], 5, axis=0), c["own"],
            c["own_counts"], temperature, c["log_weights"])
        return tf.reduce_sum(c["shares"] * tf.reduce_logsumexp([logs, c["log_terms"]], axis=0))

    c["log_terms"] = terms
    for found, wanted in zip(with_gradients(lambda: mean_log(**c, temperature=temperature), c, names),
                             with_gradients(expected, c, names)):
        np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=1e-5 * max(1, 0.01 / temperature))
    empty = c | {name: tf.zeros_like(c[name]) for name in ("shared_counts", "own_counts")} | dict(
        log_terms=tf.fill([23], 3.0))
    np.testing.assert_allclose(mean_log(**empty, temperature=temperature), 3.0, rtol=1e-6)


def test_rest_of_own_by_hand():
    """(1 − m)·Σ w e^s = ¾·(½·e + ½·e²); where the entry counts 1 already, nothing."""
    gated = tf.constant([[1.0, 2.0]] * 2) + math.log(0.5)
    found = multi_vector.rest_of_own(gated, tf.constant([0.25, 1.0]))
    np.testing.assert_allclose(found, [math.log(0.75 * (math.e + math.e ** 2) / 2), -math.inf], rtol=1e-6)


def test_weights_of_all_vectors_alike_are_a_constant():
    """log w = log 1/H: log Z is less by log H, and no gradient differs; a weight of nearly 0 is none."""
    c = case(0)
    even = c | dict(log_weights=tf.fill([23, 5], -math.log(5)))
    for found, expected in zip(with_gradients(lambda: mean_log(**even, temperature=0.07), c),
                               with_gradients(lambda: mean_log(**c, temperature=0.07) - math.log(5), c)):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    for temperature in (0.07, 0.01):
        alone = c | dict(log_weights=tf.constant([[0.0] + [-200.0] * 4] * 23))
        first = c | dict(vectors=c["vectors"][:, :1])
        np.testing.assert_allclose(mean_log(**alone, temperature=temperature),
                                   mean_log(**first, temperature=temperature), rtol=1e-6)


def test_brute_force_is_the_formula():
    c = case(1, rows=4, intents=3)
    for row in range(4):
        total, intent = 0.0, int(c["intents"][row])
        for vector in c["vectors"][row].numpy():
            for items, counts in ((c["shared"], c["shared_counts"][0]), (c["own"][intent], c["own_counts"][intent])):
                for item, count in zip(items.numpy(), counts.numpy()):
                    total += count * math.exp(vector @ item / 0.3)
        found = multi_vector.mean_log_denominator(**c, temperature=0.3)[1][row]
        np.testing.assert_allclose(found, math.log(total), rtol=1e-5)


def test_count_matrix_equals_two_queues():
    """Each candidate an item of a small catalogue: the same queues as counts [H,V] of all items."""
    c = case(2)
    rng = np.random.default_rng(0)
    catalogue = unit(rng, 9, 6)
    main, own = rng.integers(0, 9, 13), rng.integers(0, 9, (5, 7))
    counts = np.zeros((5, 9))
    for intent in range(5):
        copies = [*c["shared_counts"][0].numpy(), *c["own_counts"][intent].numpy()]
        for item, count in zip([*main, *own[intent]], copies):
            counts[intent, item] += count

    def queues():
        return mean_log(c["vectors"], c["intents"], c["shares"], tf.gather(catalogue, main), c["shared_counts"],
                        tf.gather(catalogue, own), c["own_counts"], temperature=0.07)

    def counted():
        return mean_log(c["vectors"], c["intents"], c["shares"], catalogue, tf.constant(counts, tf.float32),
                        temperature=0.07)

    parts = dict(vectors=c["vectors"], catalogue=catalogue)
    names = ("vectors", "catalogue")
    for found, expected in zip(with_gradients(counted, parts, names), with_gradients(queues, parts, names)):
        np.testing.assert_allclose(found, tf.convert_to_tensor(expected), rtol=1e-5, atol=1e-5)


def test_only_the_first_candidates_are_trained():
    c = case(3)
    expected = with_gradients(lambda: mean_log(**c, temperature=0.07), c)
    found = with_gradients(lambda: mean_log(**c, temperature=0.07, trained=tf.ones([5, 4])), c)
    np.testing.assert_allclose(found[1], expected[1], atol=1e-6)
    np.testing.assert_allclose(found[2][:4], expected[2][:4], atol=1e-6)
    assert not np.any(found[2][4:]) and not np.any(found[3]) and np.any(expected[2][4:])


def test_one_intent_takes_the_whole_batch():
    c = case(4) | {"intents": tf.fill([23], 2)}
    for found, expected in zip(with_gradients(lambda: mean_log(**c, temperature=0.07, chunk=4), c),
                               with_gradients(lambda: brute(c, 0.07), c)):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("garbage", [1e30, np.nan])
def test_empty_slots_and_rows_of_no_share_are_irrelevant(garbage):
    c = case(5)
    expected = with_gradients(lambda: mean_log(**c, temperature=0.07), c)
    spoiled = dict(c)
    spoiled["own"] = tf.where(c["own_counts"][:, :, None] > 0, c["own"], garbage)
    spoiled["vectors"] = tf.where((c["shares"] == 0)[:, None, None], c["vectors"] * 0 + 0.1, c["vectors"])
    found = with_gradients(lambda: mean_log(**spoiled, temperature=0.07), spoiled)
    for found_part, expected_part in zip(found, expected):
        np.testing.assert_allclose(found_part, expected_part, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("temperature", [0.07, 0.01])
def test_empty_queues_have_no_loss_and_no_gradient(temperature):
    c = case(8)
    c |= {name: tf.zeros_like(c[name]) for name in ("shared_counts", "own_counts")}
    for part in with_gradients(lambda: mean_log(**c, temperature=temperature), c):
        np.testing.assert_array_equal(part, tf.zeros_like(part))


def test_upstream_gradient_is_passed_on():
    c = case(6)
    once = with_gradients(lambda: mean_log(**c, temperature=0.07), c)
    thrice = with_gradients(lambda: 3.0 * mean_log(**c, temperature=0.07), c)
    for one, three in zip(once[1:], thrice[1:]):
        np.testing.assert_allclose(three, 3 * one, rtol=1e-5, atol=1e-7)


def test_trained_candidates_are_scaled_by_the_rows_intent():
    """The gradient of the first candidates is the sum over intents of its scale times that of the intent's rows."""
    c, scales = case(7), np.random.default_rng(1).random((5, 4)).astype(np.float32)
    expected = np.zeros((4, 6))
    for intent in range(5):
        of_one = c | {"shares": tf.where(c["intents"] == intent, c["shares"], 0.0)}
        gradients = with_gradients(lambda one=of_one: mean_log(**one, temperature=0.07), c)
        expected += scales[intent][:, None] * gradients[2][:4]
    found = with_gradients(lambda: mean_log(**c, temperature=0.07, trained=tf.constant(scales)), c)
    np.testing.assert_allclose(found[2][:4], expected, rtol=1e-4, atol=1e-6)
