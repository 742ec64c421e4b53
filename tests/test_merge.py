"""Merging lists of several intents against plain loops over users, and against examples one can check by eye."""
import numpy as np
import pytest

from clrec_tf.retrieval import merge

INF = np.inf


def random_lists(rng, users, intents, width, items, ties=False):
    """Lists by falling score, ties by position, an item once in each; some end early. -> positions, scores, weights."""
    positions = np.full((users, intents, width), -1, np.int64)
    scores = np.full((users, intents, width), -INF, np.float32)
    for user in range(users):
        for intent in range(intents):
            found = rng.integers(0, min(width, items) + 1)
            drawn = rng.choice(items, found, replace=False)
            values = (rng.integers(-2, 3, found) if ties else rng.standard_normal(found)).astype(np.float32)
            order = sorted(range(found), key=lambda i: (-values[i], drawn[i]))
            positions[user, intent, :found], scores[user, intent, :found] = drawn[order], values[order]
    weights = np.sort(rng.dirichlet(np.full(intents, .5), users), axis=1)[:, ::-1].astype(np.float32)
    return positions, scores, weights


def padded(entries, k):
    """Entries (score, position, column) as three lists, best first."""
    entries = sorted(entries, key=lambda entry: (-entry[0], entry[1]))[:k]
    entries += [(-INF, -1, -1)] * (k - len(entries))
    return [[entry[place] for entry in entries] for place in (1, 0, 2)]


def loop_maximum(positions, scores, taken=()):
    best = {}
    for column, (places, values) in enumerate(zip(positions, scores)):
        for place, value in zip(places.tolist(), values.tolist()):
            if place >= 0 and place not in taken and (place not in best or value > best[place][0]):
                best[place] = (value, place, column)
    return sorted(best.values(), key=lambda entry: (-entry[0], entry[1]))


def loop_quota(positions, scores, weights, k, floor):
    shares = [max(weight / sum(weights.tolist()), floor) for weight in weights.tolist()]
    exact = [k * share / sum(shares) for share in shares]
    quota = [int(value) for value in exact]
    while sum(quota) < k:
        column = max(range(len(exact)), key=lambda c: (exact[c] - quota[c], -c))
        quota[column] += 1
    entries = {}
    for column, places in enumerate(positions.tolist()):
        for rank, place in enumerate(places):
            if quota[column] and place >= 0 and place not in entries:
                entries[place] = (float(scores[column, rank]), place, column)
                quota[column] -= 1
    rest = loop_maximum(positions, scores, set(entries))
    return list(entries.values()) + rest[:k - len(entries)]


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("intents, width, items, k", [
    (1, 6, 9, 4), (3, 7, 9, 5), (4, 10, 200, 10), (4, 3, 5, 8), (6, 12, 13, 1), (2, 5, 50, 40)])
def test_both_merges_equal_loops(intents, width, items, k, ties):
    rng = np.random.default_rng(intents)
    positions, scores, weights = random_lists(rng, 60, intents, width, items, ties)
    merged = merge.by_maximum(positions, scores, k)
    shared = merge.by_quota(positions, scores, weights, k, floor=.15)
    for user in range(60):
        for found, expected in ((merged, loop_maximum(positions[user], scores[user])),
                                (shared, loop_quota(positions[user], scores[user], weights[user], k, .15))):
            for array, wanted in zip(found, padded(expected, k)):
                np.testing.assert_array_equal(array[user], np.array(wanted, array.dtype))
    assert [array.dtype for array in merged] == [array.dtype for array in shared] == [np.int64, np.float32, np.int64]


def test_merges_by_hand():
    """Intent 0 of weight .7 brings high scores; 5 stands in both lists."""
    positions = np.array([[[5, 6, 7, 8], [5, 9, 3, 6]]])
    scores = np.array([[[.9, .8, .7, .6], [.95, .5, .4, .1]]], np.float32)
    found = merge.by_maximum(positions, scores, 3)
    assert [array[0].tolist() for array in (found[0], found[2])] == [[5, 6, 7], [1, 0, 0]]
    # k = 4: shares .7, .3 are 2.8, 1.2, so quotas 3, 1: intent 0 brings 5, 6, 7, intent 1 the best of the others, 9.
    found = merge.by_quota(positions, scores, np.array([[.7, .3]]), 4)
    assert [array[0].tolist() for array in (found[0], found[2])] == [[5, 6, 7, 9], [0, 0, 0, 1]]
    np.testing.assert_array_equal(found[1][0], np.array([.9, .8, .7, .5], np.float32))


def test_quotas_by_hand():
    cases = [([.7, .3], 4, .1, [3, 1]),
             ([.97, .01, .01, .01], 10, .1, [7, 1, 1, 1]),  # .97 and three times .1, over 1.27: 7.64, .79, .79, .79
             ([.5, .25, .25], 2, .1, [1, 1, 0]),  # 1, .5, .5: the tie goes to the heavier
             ([.25] * 4, 2, .1, [1, 1, 0, 0]),
             ([.2, .05], 10, 0, [8, 2]),  # weights of the intents asked for, which need not sum to 1
             ([.2, .05], 10, .1, [8, 2]),  # the floor is of shares, .8 and .2, not of weights
             ([1.0], 7, .1, [7])]
    for weights, k, floor, expected in cases:
        assert merge.quotas(np.array([weights], np.float32), k, floor)[0].tolist() == expected


def test_the_maximum_over_lists_of_k_is_exact_search():
    rng = np.random.default_rng(4)
    users, items = rng.standard_normal((20, 3, 6)), rng.standard_normal((300, 6))
    scores = users @ items.T
    near = np.argsort(-scores, axis=2)
    for width, exact in ((15, True), (7, False)):
        lists = near[:, :, :width]
        found, _, columns = merge.by_maximum(lists, np.take_along_axis(scores, lists, 2).astype(np.float32), 15)
        wanted = np.argsort(-scores.max(axis=1), axis=1)[:, :15]
        assert np.array_equal(found, wanted) == exact
        if exact:
            np.testing.assert_array_equal(columns, np.take_along_axis(scores.argmax(axis=1), wanted, 1))


def test_a_quota_keeps_lighter_intents_which_the_maximum_drops():
    """All of intent 0's scores are above all of intent 1's, as with one dominant intent."""
    positions = np.arange(40).reshape(1, 2, 20)
    scores = -np.arange(40, dtype=np.float32).reshape(1, 2, 20)
    assert merge.by_maximum(positions, scores, 10)[2].tolist() == [[0] * 10]
    assert merge.by_quota(positions, scores, np.array([[.95, .05]]), 10)[2].tolist() == [[0] * 9 + [1]]
    # 25 items: 23 or so for intent 0, which has 20; intent 1 fills the rest.
    assert merge.by_quota(positions, scores, np.array([[.95, .05]]), 25)[2].tolist() == [[0] * 20 + [1] * 5]


def test_no_users_and_no_items():
    for users, width in ((0, 3), (2, 0)):
        lists = np.full((users, 2, width), -1, np.int64), np.full((users, 2, width), -INF, np.float32)
        for found in (merge.by_maximum(*lists, 4), merge.by_quota(*lists, np.full((users, 2), .5), 4)):
            assert [array.shape for array in found] == [(users, 4)] * 3
            assert (found[0] == -1).all() and np.isneginf(found[1]).all() and (found[2] == -1).all()
