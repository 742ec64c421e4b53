"""How well the next category can be foreseen, by hand and in logs whose entropy is known."""
import numpy as np
import polars as pl
import pytest

from clrec_tf.preparation import foresight
from clrec_tf.preparation.splits import Clicks


def figures_of(before, after, users):
    return foresight.figures(foresight.pairs(before, after, users))


def walk(users, length, stay, values, seed=0):
    """Pairs of a walk that stays with its value with probability `stay`, else takes any of all."""
    rng = np.random.default_rng(seed)
    state = rng.integers(0, values, users)
    before, after = [], []
    for _ in range(length):
        following = np.where(rng.random(users) < stay, state, rng.integers(0, values, users))
        before.append(state)
        after.append(following)
        state = following
    return np.concatenate(before), np.concatenate(after), np.tile(np.arange(users), length)


@pytest.mark.parametrize("stay", [0.0, 0.6])
def test_entropy_of_a_sticky_walk(stay):
    """p(stay) = stay + (1 − stay)/8, the other seven share the rest."""
    found = figures_of(*walk(4000, 20, stay, 8))
    same = stay + (1 - stay) / 8
    entropy = -same * np.log(same) - (1 - same) * np.log((1 - same) / 7)
    assert found["entropy"] == pytest.approx(np.log(8), abs=0.01)
    assert found["entropy_given_last"] == pytest.approx(entropy, abs=0.02)
    assert found["top1"] == pytest.approx(same, abs=0.01) and found["top1_constant"] == pytest.approx(1 / 8, abs=0.01)


def test_by_hand():
    """Learned from user 0: 1 → 2 twice, 2 → 1 once. Of user 1: 1 → 2, and 3 → 3, which nobody has met."""
    found = figures_of(np.array([1, 1, 2, 1, 3]), np.array([2, 2, 1, 2, 3]), np.array([0, 0, 0, 1, 1]))
    frequency = np.array([.5, 1.5, 2.5, .5]) / 5
    known = (2 + 5 * frequency[2]) / (2 + 5)
    assert found["entropy"] == pytest.approx(-np.log(frequency[[2, 3]]).mean(), abs=1e-4)
    assert found["entropy_given_last"] == pytest.approx(-(np.log(known) + np.log(frequency[3])) / 2, abs=1e-4)
    assert (found["top1"], found["top1_constant"]) == (0.5, 0.5)


def test_transitions_met_once_are_no_knowledge():
    """As many values as clicks: what one user did says nothing of another."""
    rng = np.random.default_rng(0)
    before, after = rng.integers(0, 5000, (2, 10_000))
    found = figures_of(before, after, np.arange(10_000))
    assert found["entropy_given_last"] >= found["entropy"] - 0.01


def of_features(clicks, mask, rows):
    return foresight.of_features(foresight.pairs_of_features(clicks, mask, clicks.user, rows))


def test_counts_of_parts_add_up():
    before, after, users = walk(50, 20, 0.5, 8)
    parts = [foresight.pairs(before[users % 3 == part], after[users % 3 == part], users[users % 3 == part])
             for part in range(3)]
    assert foresight.figures(foresight.summed(pl.concat(parts))) == figures_of(before, after, users) != {}


def test_only_clicks_in_a_row_of_one_user_that_are_trained_on():
    clicks = Clicks(np.array([0, 0, 0, 1, 1, 2]), np.array([0, 1, 2, 0, 1, 2]), None, None)
    rows = np.array([[3, 0], [1, 2], [2, 0]])
    found = of_features(clicks, np.array([True, True, False, True, True, True]), {"genre": rows})
    assert found == {"genre": figures_of(np.array([3, 3]), np.array([1, 1]), np.array([0, 1]))}
    assert of_features(clicks, np.array([True] + [False] * 5), {"genre": rows}) == {}
    assert figures_of(np.array([1]), np.array([1]), np.array([0])) == {}
