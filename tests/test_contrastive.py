"""The contrastive loss: the debiasing theorem by exact enumeration, pencil arithmetic, and plain loops.

The theorem (paper, Theorem 1): with one positive from p and L negatives drawn from q, the expected loss is least where
softmax φ = r ∝ p/q, for every L ≥ 1. Every way to treat copies of the positive differently has another optimum.
"""
import collections
import itertools
import math

from hypothesis import given, settings, strategies as st
import numpy as np
import pytest

from clrec_tf.losses import contrastive
import tensorflow as tf

P = np.array([.5, .3, .15, .05])
Q = np.array([.6, .2, .1, .1])


def draws(p, q, negatives):
    """Every (positive, multiset of negatives) with its probability: positives [R], negatives [R,L], chances [R]."""
    rows = []
    for drawn in itertools.combinations_with_replacement(range(len(q)), negatives):
        orders = math.factorial(negatives)
        for copies in collections.Counter(drawn).values():
            orders //= math.factorial(copies)
        for positive in range(len(p)):
            rows.append((positive, drawn, p[positive] * orders * np.prod(q[list(drawn)])))
    positives, drawn, chances = zip(*rows)
    assert math.isclose(sum(chances), 1)
    return np.array(positives), np.array(drawn).reshape(len(rows), negatives), np.array(chances)


def expected_loss(phi, enumeration, treatment):
    """Mean of the loss over an enumeration; `treatment` is of the candidates, the positive's slot first."""
    positives, negatives, chances = enumeration
    candidates = np.concatenate([positives[:, None], negatives], axis=1)
    keep = np.ones_like(candidates, bool)
    if treatment == "masked":  # copies of the positive are left out
        keep[:, 1:] = negatives != positives[:, None]
    elif treatment == "unique":  # each item of the multiset once
        keep = np.array([[item not in row[:slot] for slot, item in enumerate(row)] for row in candidates.tolist()])
    elif treatment == "double":  # enqueued and explicit
        candidates = np.concatenate([positives[:, None], candidates], axis=1)
        keep = np.ones_like(candidates, bool)
    elif treatment == "left_out":
        keep[:, 0] = False
    logits = phi * 1.0  # or its gradient would be sparse, as of an embedding
    losses = contrastive.contrastive_loss(
        tf.gather(logits, positives), tf.gather(logits, candidates) + contrastive.mask_logits(tf.constant(keep)))
    return tf.reduce_sum(losses * tf.constant(chances, tf.float32))


def optimum(p, q, negatives, treatment="kept"):
    """(softmax φ at the least expected loss, that loss), by Newton steps from φ = 0."""
    enumeration, phi = draws(p, q, negatives), tf.Variable(tf.zeros(len(p)))
    for _ in range(12):
        with tf.GradientTape(persistent=True) as outer:
            with tf.GradientTape() as inner:
                loss = expected_loss(phi, enumeration, treatment)
            gradient = inner.gradient(loss, phi)
        hessian = outer.jacobian(gradient, phi, experimental_use_pfor=False).numpy().astype(float)
        # φ is free up to a constant, a direction of zero curvature that lstsq leaves alone.
        step = np.linalg.lstsq(hessian, gradient.numpy().astype(float), rcond=1e-4)[0]
        phi.assign_sub(np.clip(step, -2, 2).astype(np.float32))
    return tf.nn.softmax(phi).numpy(), float(loss)


@pytest.mark.parametrize("negatives", [1, 2, 3, 5])
def test_optimum_is_p_over_q_for_any_number_of_negatives(negatives):
    ratio = P / Q / (P / Q).sum()
    np.testing.assert_allclose(ratio, [.192308, .346154, .346154, .115385], atol=1e-6)
    found, least = optimum(P, Q, negatives)
    np.testing.assert_allclose(found, ratio, atol=2e-6)  # single precision
    # The least loss is the entropy of the positive's place given the candidates, over every ordered draw.
    entropy = 0.0
    for positive, *drawn in itertools.product(range(4), repeat=negatives + 1):
        share = ratio[positive] / (ratio[positive] + ratio[drawn].sum())
        entropy -= P[positive] * np.prod(Q[drawn]) * math.log(share)
    np.testing.assert_allclose(least, entropy, atol=1e-6)
    known = {1: .665387683, 2: 1.061317337, 3: 1.344190012}  # from enumeration
    assert negatives not in known or abs(least - known[negatives]) < 1e-6


@pytest.mark.parametrize("treatment,negatives,expected", [
    ("masked", 3, [.24046, .34882, .319475, .091246]),
    ("unique", 5, [.356177, .30942, .251429, .082974]),
    ("double", 3, [.204105, .331987, .331987, .131921]),
    ("left_out", 5, [.170403, .367626, .367626, .094345])])
def test_any_other_treatment_of_copies_is_biased(treatment, negatives, expected):
    """Figures from a separate NumPy enumeration."""
    found, _ = optimum(P, Q, negatives, treatment)
    np.testing.assert_allclose(found, expected, atol=3e-6)
    assert np.abs(found - P / Q / (P / Q).sum()).max() > .01


@pytest.mark.parametrize("negatives", [1, 3])
def test_subtracting_log_q_gives_p_itself(negatives):
    """Corrected sampled softmax: with logits φ − log q, φ = log p is a stationary point of the same loss."""
    phi = tf.Variable(np.log(P), dtype=tf.float32)
    with tf.GradientTape() as tape:
        loss = expected_loss(phi - tf.constant(np.log(Q), tf.float32), draws(P, Q, negatives), "kept")
    np.testing.assert_allclose(tape.gradient(loss, phi), np.zeros(4), atol=1e-6)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10 ** 6), items=st.integers(2, 5), negatives=st.integers(1, 3))
def test_gradient_vanishes_at_log_p_over_q(seed, items, negatives):
    p, q = np.random.default_rng(seed).dirichlet(np.full(items, 2.0), 2)
    phi = tf.Variable(np.log(p / q), dtype=tf.float32)
    with tf.GradientTape() as tape:
        loss = expected_loss(phi, draws(p, q, negatives), "kept")
    np.testing.assert_allclose(tape.gradient(loss, phi), np.zeros(items), atol=2e-6)


def test_pencil_queue_of_three():
    user = tf.constant([[1.0, 0.0]])
    queue = tf.constant([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    loss = contrastive.contrastive_loss(
        contrastive.paired_logits(user, queue[:1], .5), contrastive.pairwise_logits(user, queue, .5))
    np.testing.assert_allclose(loss, [math.log(1 + math.exp(-2) + math.exp(-4))], rtol=1e-6)  # .142931628


def test_pencil_duplicate_kept():
    logits = tf.constant([[1.0, 1.0, 0.0]])
    loss = contrastive.contrastive_loss(logits[:, 0], logits)
    np.testing.assert_allclose(loss, [math.log(2 * math.e + 1) - 1], rtol=1e-6)  # .861994805
    masked = contrastive.contrastive_loss(
        logits[:, 0], logits + contrastive.mask_logits(tf.constant([[True, False, True]])))
    np.testing.assert_allclose(masked, [math.log(math.e + 1) - 1], rtol=1e-6)  # .313261688


def test_extreme_logits_are_exact_and_their_gradients_finite():
    positives = tf.Variable([1e4, -1e4, 1e4])
    others = tf.Variable([[-1e4, -1e4], [1e4, 1e4], [1e4, 1e4]])
    with tf.GradientTape() as tape:
        losses = contrastive.contrastive_loss(positives, tf.concat([positives[:, None], others], axis=1))
    np.testing.assert_allclose(losses, [0, 2e4 + math.log(2), math.log(3)], atol=2e-3)  # float32 at 1e4
    of_positives, of_others = tape.gradient(losses, [positives, others])
    np.testing.assert_allclose(of_positives, [0, -1, -2 / 3], atol=1e-6)
    np.testing.assert_allclose(of_others, [[0, 0], [.5, .5], [1 / 3, 1 / 3]], atol=1e-6)


@pytest.mark.parametrize("bound", [14.3, math.inf])
@pytest.mark.parametrize("widths", [(7,), (3, 4), (1, 5, 2)])
def test_log_sum_exp_of_blocks_is_that_of_the_whole(widths, bound):
    rng = np.random.default_rng(sum(widths))
    blocks = [tf.Variable(rng.uniform(-14.3, 14.3, (5, width)), dtype=tf.float32) for width in widths]
    blocks[0][:, 0].assign([contrastive.MASKED] * 5)
    upstream = tf.constant(rng.normal(size=5), tf.float32)
    with tf.GradientTape(persistent=True) as tape:
        ours = contrastive.log_sum_exp(*blocks, bound=bound)
        whole = tf.reduce_logsumexp(tf.concat(blocks, axis=1), axis=1)
    np.testing.assert_allclose(ours, whole, rtol=1e-6)
    for mine, theirs in zip(*(tape.gradient(value, blocks, upstream) for value in (ours, whole))):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-7)


def test_a_bound_that_float32_could_not_bear_is_not_trusted():
    logits = tf.constant([[90.0, 89.0], [-90.0, -91.0]])
    expected = [90 + math.log(1 + math.exp(-1)), -90 + math.log(1 + math.exp(-1))]
    np.testing.assert_allclose(contrastive.log_sum_exp(logits, bound=90.0), expected, rtol=1e-6)
    edge = contrastive.log_sum_exp(tf.fill([1, 1 << 20], contrastive.SAFE_EXPONENT), -tf.ones([1, 1]) * 60,
                                   bound=contrastive.SAFE_EXPONENT)
    np.testing.assert_allclose(edge, [60 + 20 * math.log(2)], rtol=1e-6)
    np.testing.assert_allclose(contrastive.log_sum_exp(-60 * tf.ones([1, 1]), bound=60.0), [-60], rtol=1e-6)


def test_a_row_that_is_all_masked_has_no_gradient():
    logits = tf.Variable(tf.fill([2, 3], contrastive.MASKED))
    with tf.GradientTape() as tape:
        losses = contrastive.log_sum_exp(logits, bound=10.0)
        loss = contrastive.weighted_mean(losses, tf.constant([0.0, 0.0]))
    np.testing.assert_array_equal(tape.gradient(loss, logits), np.zeros((2, 3)))


def test_masked_entries_have_exactly_no_weight():
    rng = np.random.default_rng(0)
    kept = tf.Variable(rng.uniform(-14.29, 0, (5, 6)), dtype=tf.float32)
    masked = tf.Variable(np.full((5, 9), 1e4), dtype=tf.float32)
    keep = tf.constant(rng.permutation([True] * 6 + [False] * 9))
    order = tf.argsort(tf.argsort(tf.cast(~keep, tf.int32), stable=True))
    with tf.GradientTape() as tape:
        candidates = tf.gather(tf.concat([kept, masked], axis=1), order, axis=1)
        losses = contrastive.contrastive_loss(kept[:, 0], candidates + contrastive.mask_logits(keep))
    of_kept, of_masked = tape.gradient(losses, [kept, masked])
    logits = kept.numpy().astype(float)
    np.testing.assert_allclose(losses, np.log(np.exp(logits).sum(1)) - logits[:, 0], atol=1e-5)
    assert (of_masked.numpy() == 0).all() and np.isfinite(of_kept).all()


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_same_user_mask_against_a_loop(data):
    users = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=5))
    owners = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=6))
    own = data.draw(st.lists(st.integers(-1, len(owners) - 1), min_size=len(users), max_size=len(users)))
    expected = [[owner != user or entry == slot for entry, owner in enumerate(owners)]
                for user, slot in zip(users, own)]
    found = contrastive.same_user_mask(*(tf.constant(values, tf.int64) for values in (users, owners, own)))
    np.testing.assert_array_equal(found, expected)


def test_logits_against_loops_in_any_precision():
    rng = np.random.default_rng(1)
    users, items = rng.normal(size=(3, 4)), rng.normal(size=(5, 4))
    for dtype in (tf.float32, tf.bfloat16):
        user, item = tf.cast(users, dtype), tf.cast(items, dtype)
        pairs = contrastive.pairwise_logits(user, item, .07)
        expected = [[float(np.dot(u, i)) / .07 for i in tf.cast(item, tf.float64).numpy()]
                    for u in tf.cast(user, tf.float64).numpy()]
        assert pairs.dtype == tf.float32
        np.testing.assert_allclose(pairs, expected, rtol=1e-5, atol=1e-4)
        own = contrastive.paired_logits(user, item[:3], .07)
        np.testing.assert_allclose(own, np.diag(expected), rtol=1e-5, atol=1e-4)


def test_ranks_are_asserted():
    vector, matrix = tf.zeros([3]), tf.zeros([2, 4])
    with pytest.raises(ValueError):
        contrastive.contrastive_loss(vector, matrix)
    with pytest.raises(ValueError):
        contrastive.pairwise_logits(tf.zeros([3, 5]), matrix, 1.0)


def test_l2_normalize():
    vectors = tf.Variable([[3e-4, -4e-4], [3e-7, 4e-7], [0.0, 0.0]])
    with tf.GradientTape() as tape:
        normalized = contrastive.l2_normalize(vectors)
    # The second is shorter than 1e-6, below which vectors fade to zero.
    np.testing.assert_allclose(normalized, [[.6, -.8], [.3, .4], [0, 0]], rtol=1e-5)
    assert np.isfinite(tape.gradient(normalized, vectors)).all()


def test_weighted_mean():
    mean = lambda values, weights: float(contrastive.weighted_mean(tf.constant(values), tf.constant(weights)))
    assert mean([1.0, 2.0, 6.0], [1.0, .5, 2.5]) == 4.25  # 17/4
    assert mean([1.0, 2.0], [0.0, 0.0]) == 0
    assert mean([3.0, math.nan, -math.inf], [2.0, 0.0, 0.0]) == 3
    values = tf.Variable([1.0, math.inf])
    with tf.GradientTape() as tape:
        result = contrastive.weighted_mean(values, tf.constant([4.0, 0.0]))
    np.testing.assert_array_equal(tape.gradient(result, values), [1, 0])
