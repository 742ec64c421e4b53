"""Metrics against pencil arithmetic, enumeration of every order of ties, and plain loops."""
import itertools
import math

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import numpy as np
import pytest

from clrec_tf.evaluation import metrics


def ranks(*values):
    """(better, tied) of untied ranks."""
    return np.array(values, float) - 1, np.ones(len(values), np.int64)


def test_ranks_1_3_11():
    better, tied = ranks(1, 3, 11)
    # (1/log2(2) + 1/log2(4) + 0)/3 = (1 + ½)/3
    np.testing.assert_allclose(metrics.ndcg(better, tied, 10).mean(), 0.5)
    np.testing.assert_allclose(metrics.hit_rate(better, tied, 10).mean(), 2 / 3)
    np.testing.assert_allclose(metrics.reciprocal_rank(better, tied), [1, 1 / 3, 1 / 11])


@pytest.mark.parametrize("better,tied,k", list(itertools.product(range(4), range(1, 5), (1, 2, 3, 5))))
def test_ties_are_the_mean_over_every_order(better, tied, k):
    orders = [better + order.index("target") + 1
              for order in itertools.permutations(["target"] + list(range(tied - 1)))]
    counts = np.array([better], float), np.array([tied])
    np.testing.assert_allclose(metrics.hit_rate(*counts, k), np.mean([rank <= k for rank in orders]))
    np.testing.assert_allclose(
        metrics.ndcg(*counts, k), np.mean([1 / math.log2(rank + 1) if rank <= k else 0 for rank in orders]))
    np.testing.assert_allclose(metrics.reciprocal_rank(*counts), np.mean([1 / rank for rank in orders]))


def test_constant_scorer_earns_chance():
    assert metrics.hit_rate(0, 101, 10) == 10 / 101


def test_unknown_target_is_a_miss():
    unknown = np.array([np.inf, 0.0]), np.array([1, 1])
    for values in (metrics.hit_rate(*unknown, 1000), metrics.ndcg(*unknown, 1000), metrics.reciprocal_rank(*unknown)):
        np.testing.assert_array_equal(values, [0, 1])


def test_recall_counts_distinct_targets():
    # User 0 clicks 7, 7, 9: found 7 of {7, 9}. User 1 clicks two unknown items and 3: found 1 of 3.
    targets, splits = np.array([7, 7, 9, 0, 0, 3]), np.array([0, 3, 6])
    better, tied = np.array([0, 0, 20, np.inf, np.inf, 4]), np.ones(6)
    np.testing.assert_array_equal(metrics.distinct_targets(targets, splits), [1, 0, 1, 1, 1, 1])
    np.testing.assert_allclose(metrics.recall(better, tied, targets, splits, 10), [1 / 2, 1 / 3])


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=8), min_size=1, max_size=4), st.integers(1, 9),
       st.integers(0, 99))
def test_recall_equals_set_arithmetic(targets_of_users, k, seed):
    scores = np.random.default_rng(seed).permutation(9)  # of items 1..9, no ties
    top = set(sorted(range(1, 10), key=lambda item: -scores[item - 1])[:k])
    flat = np.concatenate(targets_of_users)
    splits = np.append(0, np.cumsum([len(targets) for targets in targets_of_users]))
    better = np.array([sum(scores > scores[item - 1]) for item in flat], float)
    np.testing.assert_allclose(
        metrics.recall(better, np.ones(len(flat)), flat, splits, k),
        [len(top & set(targets)) / len(set(targets)) for targets in targets_of_users])


def test_recall_of_the_next_five_leaves_out_short_futures():
    # User 0 has 6 targets, of which the first five are 1, 2, 2, 3, 4; the sixth, though ranked first, is too late.
    # User 1 has 2 and is left out. User 2 has exactly five.
    targets, splits = np.array([1, 2, 2, 3, 4, 9, 5, 6, 1, 2, 3, 4, 5]), np.array([0, 6, 8, 13])
    better, tied = np.array([0, 60, 60, 49, 50, 0, 0, 0, 0, 60, 49, 50, 1.0]), np.ones(13)
    np.testing.assert_allclose(  # user 0 finds items 1 and 3, user 2 items 1, 3 and 5
        metrics.recall_of_next(better, tied, targets, splits, 50), [2 / 4, 3 / 5])
    assert metrics.recall_of_next(better[6:8], tied[6:8], targets[6:8], np.array([0, 2]), 50).shape == (0,)


@pytest.mark.parametrize("recommended,expected", [([1, 0, 0, 0], 0.75), ([5, 5, 5], 0), ([4, 3, 2, 1], 0.25)])
def test_gini_by_hand(recommended, expected):
    np.testing.assert_allclose(metrics.gini(np.array(recommended)), expected, atol=1e-15)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=12).filter(any))
def test_gini_is_half_the_relative_mean_difference(recommended):
    mean_difference = np.mean([abs(x - y) for x in recommended for y in recommended])
    np.testing.assert_allclose(metrics.gini(np.array(recommended)), mean_difference / 2 / np.mean(recommended),
                               atol=1e-12)


def test_list_metrics_by_plain_loops():
    rng = np.random.default_rng(1)
    counts = rng.integers(0, 30, 20)
    lists = np.stack([rng.permutation(20)[:4] + 1 for _ in range(15)])
    lists[3, 2:] = 0  # a user with two recommendations
    lists[4] = 0  # and one with none
    head = sorted(range(1, 21), key=lambda item: (-counts[item - 1], item))[:4]  # 20 % of 20 items
    filled = [[item for item in row if item] for row in lists.tolist()]
    recommended = metrics.recommendation_counts(lists, 20)
    everything = [item for row in filled for item in row]
    assert recommended.tolist() == [everything.count(item) for item in range(1, 21)]
    assert metrics.aggregate_diversity(recommended) == len(set(everything))
    assert metrics.coverage(recommended) == len(set(everything)) / 20
    np.testing.assert_allclose(
        metrics.arp(lists, counts), np.mean([np.mean([counts[item - 1] for item in row]) for row in filled if row]))
    np.testing.assert_allclose(
        metrics.aplt(lists, counts), np.mean([np.mean([item not in head for item in row]) for row in filled if row]))


def test_popularity_index():
    counts = np.array([10, 4, 1, 0])
    popular, model = np.array([3, 3, 0, 0]), np.array([1, 0, 2, 0])
    assert metrics.popularity_index(popular, popular, counts) == 1
    # E_model = (10 + 2·1)/3 = 4; E_most-popular = (3·10 + 3·4)/6 = 7
    np.testing.assert_allclose(metrics.popularity_index(model, popular, counts), 4 / 7)


@given(st.lists(st.tuples(st.integers(0, 2**40), st.integers(0, 9)), min_size=1, max_size=30))
def test_degree_histogram_buckets_by_bit_length(items):
    counts, recommended = map(np.array, zip(*items))
    expected = [0] * (max(count.bit_length() for count, _ in items) + 1)
    for count, times in items:
        expected[count.bit_length()] += times  # bit_length is 0 for 0, else 1 + floor(log2)
    np.testing.assert_array_equal(metrics.degree_histogram(recommended, counts), expected)


def test_bootstrap_interval_agrees_with_the_normal_approximation():
    values = np.random.default_rng(3).normal([0, 5], [1, 2], (2000, 2))
    low, high = metrics.bootstrap_interval(values, seed=0)
    margin = 1.96 * values.std(axis=0) / math.sqrt(2000)
    np.testing.assert_allclose([low, high], [values.mean(axis=0) - margin, values.mean(axis=0) + margin], atol=0.01)
    np.testing.assert_array_equal(metrics.bootstrap_interval(values, seed=0), [low, high])


def test_paired_bootstrap_sees_a_difference_that_marginal_intervals_hide():
    one = np.random.default_rng(4).normal(size=(500, 1))
    other = one + 0.02
    low, high = metrics.bootstrap_interval(other - one, seed=0)
    np.testing.assert_allclose([low, high], 0.02)
    assert metrics.bootstrap_interval(other, seed=0)[0] < metrics.bootstrap_interval(one, seed=1)[1]
