"""Candidate sets against plain loops over sorted lists, and the samplers against an independent drawing loop."""
import itertools

import numpy as np
import pytest

from clrec_tf.data.evaluation_set import EvaluationSet
from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.evaluation import metrics
from clrec_tf.evaluation import protocols
from clrec_tf.evaluation.sampled_negatives import sample_negatives


def users(histories, targets):
    """An `EvaluationSet` from lists of item ids."""
    def flat(lists):
        return np.array(sum(lists, []), np.int64), np.append(0, np.cumsum([len(entries) for entries in lists]))
    return EvaluationSet(np.arange(len(histories)), *flat(histories), *flat(targets))


def random_users(rng, num_users, num_items):
    """Histories up to all items and their hash buckets, 1 to 4 targets, some unknown, some clicked before."""
    histories = [rng.integers(1, num_items + 3, rng.integers(0, num_items)).tolist() for _ in range(num_users)]
    targets = [rng.integers(0, num_items + 3, rng.integers(1, 5)).tolist() for _ in range(num_users)]
    return users(histories, targets)


def scorer(scores):
    return lambda start, stop: scores[start:stop]


def brute_force(scores, evaluation_set, user, target, filter_seen):
    """(better, tied) by a walk through the candidates of one user."""
    num_items = scores.shape[1]
    if not 1 <= target <= num_items:
        return np.inf, 1
    history = evaluation_set.history_ids[evaluation_set.history_splits[user]:evaluation_set.history_splits[user + 1]]
    targets = evaluation_set.target_ids[evaluation_set.target_splits[user]:evaluation_set.target_splits[user + 1]]
    candidates = [item for item in range(1, num_items + 1)
                  if not filter_seen or item not in history or item in targets]
    own = scores[user, target - 1]
    return (sum(scores[user, item - 1] > own for item in candidates),
            sum(scores[user, item - 1] == own for item in candidates))


@pytest.mark.parametrize("filter_seen", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_full_ranking_equals_a_walk_through_the_candidates(seed, filter_seen):
    rng = np.random.default_rng(seed)
    evaluation_set = random_users(rng, 40, 12)
    scores = rng.integers(0, 5, (40, 12)).astype(np.float32)  # many ties
    ranked = protocols.rank_targets(scorer(scores), evaluation_set, 12, list_length=5, filter_seen=filter_seen)
    expected = [brute_force(scores, evaluation_set, user, target, filter_seen)
                for user, target in zip(*evaluation_set.target_pairs(0, 40))]
    np.testing.assert_array_equal(ranked.counts["full"].better, [better for better, _ in expected])
    np.testing.assert_array_equal(ranked.counts["full"].tied, [tied for _, tied in expected])
    for user, listed in enumerate(ranked.lists):
        seen = evaluation_set.history_ids[slice(*evaluation_set.history_splits[user:user + 2])] if filter_seen else []
        order = sorted(set(range(1, 13)) - set(seen), key=lambda item: (-scores[user, item - 1], item))[:5]
        assert listed.tolist() == order + [0] * (5 - len(order))


def test_flipped_scores_turn_hits_into_misses():
    evaluation_set = users([[1]] * 3, [[2], [3], [4]])
    scores = np.eye(5, dtype=np.float32)[[1, 2, 3]]
    for sign, expected in ((1, 1.0), (-1, 0.0)):
        counts = protocols.rank_targets(scorer(sign * scores), evaluation_set, 5).counts["full"]
        assert metrics.hit_rate(counts.better, counts.tied, 1).mean() == expected


def test_repeated_target_stays_a_candidate_but_leaves_the_list():
    evaluation_set = users([[2, 1]], [[2]])
    ranked = protocols.rank_targets(scorer(np.array([[9.0, 8.0, 7.0, 6.0]])), evaluation_set, 4, list_length=3)
    assert (ranked.counts["full"].better, ranked.counts["full"].tied) == (0, 1)  # item 1 is filtered, item 2 is not
    np.testing.assert_array_equal(ranked.lists, [[3, 4, 0]])


@pytest.mark.parametrize("memory_bytes", [1, 8 * 6 * 30 * 7, 2**30])
def test_chunks_change_nothing(memory_bytes):
    rng = np.random.default_rng(5)
    evaluation_set = random_users(rng, 50, 30)
    vectors = rng.normal(size=(50, 16)).astype(np.float32), rng.normal(size=(30, 16)).astype(np.float32)
    arguments = dict(negatives=dict(pop100=sample_negatives(evaluation_set, np.ones(30), 0, size=8)), list_length=6)
    whole = protocols.rank_targets(protocols.vector_scorer(*vectors), evaluation_set, 30, **arguments)
    parts = protocols.rank_targets(
        protocols.vector_scorer(*vectors), evaluation_set, 30, **arguments, memory_bytes=memory_bytes)
    np.testing.assert_array_equal(whole.lists, parts.lists)
    for name in ("full", "pop100"):
        np.testing.assert_array_equal(whole.counts[name].better, parts.counts[name].better)
        np.testing.assert_array_equal(whole.counts[name].tied, parts.counts[name].tied)


@pytest.mark.parametrize("num_items", [5, 67, 1001])
def test_equal_item_vectors_tie_wherever_they_stand(num_items):
    rng = np.random.default_rng(6)
    items = np.repeat(rng.normal(size=(1, 61)), num_items, axis=0).astype(np.float32)
    evaluation_set = users([[]] * 9, [[item] for item in (1, 2, 3, 4, 5, 1, 3, 5, num_items)])
    ranked = protocols.rank_targets(
        protocols.vector_scorer(rng.normal(size=(9, 61)).astype(np.float32), items), evaluation_set, num_items,
        memory_bytes=8 * 6 * num_items * 4)
    assert set(ranked.counts["full"].better) == {0} and set(ranked.counts["full"].tied) == {num_items}


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_scores_that_are_not_finite_raise(value):
    scores = np.zeros((3, 4), np.float32)
    scores[2, 1] = value
    with pytest.raises(UserError, match=f"user 2 for item 2 is {value}"):
        protocols.rank_targets(scorer(scores), users([[2]] * 3, [[1]] * 3), 4, memory_bytes=1)


def test_scores_of_another_catalogue_raise():
    with pytest.raises(UserError, match=r"shape \(1, 4\), expected \(1, 5\)"):
        protocols.rank_targets(scorer(np.zeros((1, 4))), users([[]], [[1]]), 5)


def test_most_popular_goes_through_the_same_door():
    counts = np.array([5, 2**24, 2**24 + 1, 0])  # a float32 would tie the second with the third
    ranked = protocols.rank_targets(
        protocols.most_popular_scorer(counts), users([[], [3]], [[2], [1]]), 4, list_length=2)
    np.testing.assert_array_equal(ranked.lists, [[3, 2], [2, 1]])
    np.testing.assert_array_equal(ranked.counts["full"].better, [1, 1])


def test_sampled_counts_rank_the_next_click_among_the_negatives():
    evaluation_set = users([[1], [1], []], [[2, 5], [0, 3], [4]])
    negatives = dict(sampled=np.array([[3, 4, 5], [3, 4, 5], [1, 0, 0]]))
    scores = np.array([[9, 5, 5, 7, 1], [9, 5, 5, 7, 1], [2, 0, 0, 2, 0.0]])
    counts = protocols.rank_targets(scorer(scores), evaluation_set, 5, full=False, negatives=negatives).counts
    assert list(counts) == ["sampled"]
    np.testing.assert_array_equal(counts["sampled"].better, [1, np.inf, 0])  # item 4; unknown target; empty places
    np.testing.assert_array_equal(counts["sampled"].tied, [2, 1, 2])


@pytest.mark.parametrize("weights", [np.ones(400), 1 / np.arange(1, 401)**1.5])
def test_hundred_distinct_negatives_none_of_them_the_users(weights):
    rng = np.random.default_rng(7)
    evaluation_set = random_users(rng, 60, 250)
    negatives = sample_negatives(evaluation_set, weights, seed=1)
    assert negatives.shape == (60, 100) and negatives.min() >= 1 and negatives.max() <= 400
    for user, drawn in enumerate(negatives.tolist()):
        own = [ids[splits[user]:splits[user + 1]] for ids, splits in (
            (evaluation_set.history_ids, evaluation_set.history_splits),
            (evaluation_set.target_ids, evaluation_set.target_splits))]
        assert len(set(drawn)) == 100 and not set(drawn) & set(np.concatenate(own).tolist())
    np.testing.assert_array_equal(negatives, sample_negatives(evaluation_set, weights, seed=1, block_bytes=1))
    assert np.any(negatives != sample_negatives(evaluation_set, weights, seed=2))


def test_constant_scorer_earns_chance_on_pop100():
    evaluation_set = users([[1, 2]] * 5, [[3]] * 5)
    negatives = dict(pop100=sample_negatives(evaluation_set, np.arange(1, 301), seed=0))
    ranked = protocols.rank_targets(scorer(np.ones((5, 300))), evaluation_set, 300, negatives=negatives)
    counts = ranked.counts["pop100"]
    np.testing.assert_allclose(metrics.hit_rate(counts.better, counts.tied, 10), 10 / 101)


# Mass on an item that the user clicked leaves almost all draws to the race; without it the first way draws them.
@pytest.mark.parametrize("clicked_weight", [0.0, 1.0, 5000.0])
def test_inclusion_frequencies_equal_those_of_sequential_drawing(clicked_weight):
    weights = np.array([clicked_weight, 8, 5, 3, 2, 1, 1, 0.5, 0])
    runs, size = 20_000, 3
    drawn = sample_negatives(users([[1]] * runs, [[1]] * runs), weights, seed=3, size=size)
    allowed, odds = np.arange(2, 10), weights[1:] / weights[1:].sum()
    reference = np.random.RandomState(4)
    expected = np.array([reference.choice(allowed, size, replace=False, p=odds) for _ in range(runs)])
    for ours, theirs in ((drawn, expected), (drawn[:, :1], expected[:, :1]), (drawn[:, 2:], expected[:, 2:])):
        frequency, oracle = (np.bincount(ids.ravel(), minlength=10) / runs for ids in (ours, theirs))
        deviation = np.sqrt(2 * oracle * (1 - np.minimum(oracle, 1)) / runs)
        assert np.all(np.abs(frequency - oracle) <= 5 * deviation + 1e-12)
    exact = dict.fromkeys(allowed.tolist(), 0.0)  # and by enumeration: Σ over ordered triples of their probability
    for order in itertools.permutations(range(8), size):
        remaining = 1 - np.append(0, np.cumsum(odds[list(order)])[:-1])
        for place in order:
            exact[place + 2] += np.prod(odds[list(order)] / remaining)
    np.testing.assert_allclose(np.bincount(drawn.ravel(), minlength=10)[2:] / runs, list(exact.values()), atol=0.02)


def test_users_short_of_candidates_get_what_there_is():
    # Of 6 items, user 0 clicked two and aims at one; item 6 has no clicks; user 1 clicked everything.
    evaluation_set = users([[1, 2], [1, 2, 3, 4, 5, 6]], [[3], [0]])
    negatives = sample_negatives(evaluation_set, np.array([9, 1, 1, 1, 1, 0]), seed=0, size=4)
    assert sorted(negatives[0].tolist()) == [0, 0, 4, 5] and negatives[0, 2:].tolist() == [0, 0]
    assert negatives[1].tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("weights", [[0, 0], [1, -1], [1, np.nan]])
def test_weights_that_are_no_weights_raise(weights):
    with pytest.raises(ValueError, match="weights"):
        sample_negatives(users([[]], [[1]]), np.array(weights, float), seed=0)


def test_a_user_without_target_raises():
    with pytest.raises(DataError, match="user 1 has no target"):
        users([[1], [1]], [[2], []])


def test_sample_keeps_each_users_own_entries():
    rng = np.random.default_rng(8)
    everyone = random_users(rng, 30, 9)
    some = everyone.sample(7, seed=1)
    assert some.num_users == 7 and np.all(np.diff(some.user_ids) > 0)
    assert everyone.sample(0, seed=1) is everyone.sample(30, seed=1) is everyone
    for row, user in enumerate(some.user_ids):
        for pairs in ("history_pairs", "target_pairs"):
            np.testing.assert_array_equal(
                getattr(some, pairs)(row, row + 1)[1], getattr(everyone, pairs)(user, user + 1)[1])
