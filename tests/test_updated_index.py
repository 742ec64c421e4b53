"""Updated indexes against brute force over the live items, through any sequence of updates."""
import os

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import numpy as np
import pytest

from clrec_tf.retrieval import efforts
from clrec_tf.retrieval.exact_index import ExactIndex
from clrec_tf.retrieval.recall import recall_at_k
from clrec_tf.retrieval.saved_index import load_index
from clrec_tf.retrieval.saved_index import save_index
from clrec_tf.retrieval.scann_index import ScannIndex
from clrec_tf.retrieval import updated_index as updated_lib
from clrec_tf.retrieval.updated_index import UpdatedIndex

WIDTH, ITEMS = 3, 24
RNG = np.random.default_rng(3)
BASE = RNG.integers(-3, 4, (ITEMS, WIDTH)).astype(np.float32)  # small integers: scores are exact, and many are equal
USERS = np.concatenate([RNG.integers(-3, 4, (9, WIDTH)), np.zeros((1, WIDTH))]).astype(np.float32)


def brute_force(vectors, live, user, k):
    """The k best (position, score) of one user, by a loop; −1 and −inf where no more are live."""
    scores = [(-float(np.dot(vectors[place], user)), place) for place in range(len(vectors)) if live[place]]
    found = [(place, -score) for score, place in sorted(scores)][:k]
    return found + [(-1, -np.inf)] * (k - len(found))


def assert_equals_brute_force(index, vectors, live, ks=(1, 5, 20, 60)):
    """Positions and scores for several k, what is live, and all vectors."""
    for k in ks:
        positions, scores = index.search(USERS, k)
        assert positions.shape == scores.shape == (len(USERS), k) and positions.dtype == np.int64
        assert scores.dtype == np.float32
        for user, near, near_scores in zip(USERS, positions, scores):
            expected = brute_force(vectors, live, user, k)
            assert list(zip(near.tolist(), near_scores.tolist())) == expected, k
    assert index.size == len(vectors) and index.live.tolist() == list(live)
    np.testing.assert_array_equal(index.vectors, vectors)
    some = np.arange(len(vectors))[::-2]
    np.testing.assert_array_equal(index.vectors_at(some), vectors[some])


class Catalogue:
    """What an index should hold, kept in plain lists."""

    def __init__(self, vectors):
        self.vectors, self.live = [np.array(row) for row in vectors], [True] * len(vectors)

    def update(self, index, updated, inserted, deleted):
        """Applies an update here, and returns the updated index."""
        positions = [*updated, *range(len(self.vectors), len(self.vectors) + inserted)]
        vectors = RNG.integers(-3, 4, (len(positions), WIDTH)).astype(np.float32)
        gone = np.isin(np.arange(len(self.vectors)), deleted)
        for place, vector in zip(positions, vectors):
            if place == len(self.vectors):
                self.vectors.append(None), self.live.append(True)
            self.vectors[place], self.live[place] = vector, True
        for place in np.flatnonzero(gone):
            self.live[place] = False
        return UpdatedIndex(index, vectors, positions, gone)

    def check(self, index, **settings):
        assert_equals_brute_force(index, np.array(self.vectors), self.live, **settings)


places = st.sets(st.integers(0, ITEMS - 1), max_size=ITEMS)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(places, st.integers(0, 4), places), min_size=1, max_size=4))
def test_any_sequence_of_updates_equals_brute_force(updates):
    index, truth = ExactIndex(BASE), Catalogue(BASE)
    for updated, inserted, deleted in updates:
        index = truth.update(index, sorted(updated), inserted, sorted(deleted))
    truth.check(index)
    assert isinstance(index.base, ExactIndex) and index.is_exact  # updates do not pile up


def scann(vectors):
    """A ScaNN index that looks at everything, so that it must agree with brute force up to order of equal scores."""
    return ScannIndex.build(vectors, 4, spherical=True).tuned(efforts.uniform(4, len(vectors)))


def test_over_scann_nothing_deleted_comes_and_nothing_is_short():
    rng = np.random.default_rng(0)
    unit = lambda *shape: (lambda rows: rows / np.linalg.norm(rows, axis=1, keepdims=True))(
        rng.standard_normal(shape).astype(np.float32))
    vectors, users = unit(600, 8), unit(40, 8)
    deleted = np.zeros(600, bool)
    # The nearest items of each user: where most is hidden, margins by the mean share do not suffice.
    deleted[np.argsort(-(users[:5] @ vectors.T), axis=1)[:, :60]] = True
    updated, inserted = rng.permutation(600)[:50], np.arange(600, 640)
    positions, added = np.concatenate([updated, inserted]), unit(90, 8)
    index = UpdatedIndex(scann(vectors), added, positions, deleted)
    truth = np.concatenate([vectors, np.zeros((40, 8), np.float32)])
    truth[positions] = added
    live = np.append(~deleted, np.ones(40, bool))
    assert not index.is_exact and index.kind == "updated"
    for k in (1, 10, 50, live.sum(), 640):
        near, scores = index.search(users, k)
        wanted = min(k, live.sum())
        assert (near[:, :wanted] >= 0).all() and (near[:, wanted:] == -1).all() and live[near[:, :wanted]].all()
        best = -np.sort(-(users @ truth[live].T), axis=1)[:, :wanted]
        np.testing.assert_allclose(scores[:, :wanted], best, atol=1e-6)
        assert all(len(set(row[:wanted])) == wanted for row in near)
    assert recall_at_k(index, truth, users, 20, live) == 1
    assert recall_at_k(UpdatedIndex(index, vectors[:0], [], ~live), truth, users, 20, live) == 1


def test_margins_grow_until_nobody_is_short():
    asked = []

    class Counting(ExactIndex):
        def search(self, vectors, k):
            asked.append((len(vectors), k))
            return super().search(vectors, k)

    vectors = np.stack([np.arange(1000, 0, -1), np.arange(1000)], axis=1).astype(np.float32)
    deleted = np.arange(1000) < 300  # the best of the first user, the worst of the second
    index = UpdatedIndex(Counting(vectors), vectors[:0], [], deleted)
    near, _ = index.search(np.eye(2, dtype=np.float32), 10)
    assert near.tolist() == [list(range(300, 310)), list(range(999, 989, -1))]
    # 10 + 2·3 + 8 at first; then margins of 56 and 224, and what is always enough, for the user who is short.
    assert asked == [(2, 24), (1, 66), (1, 234), (1, 310)]


def test_a_filter_that_lets_deleted_items_through_is_noticed(monkeypatch):
    """The oracle above can fail: without the mask the deleted best item comes."""
    index, truth = ExactIndex(BASE), Catalogue(BASE)
    best = int(np.argmax(BASE @ USERS[0]))
    index = truth.update(index, [], 0, [best])
    truth.check(index)
    monkeypatch.setattr(index, "_hidden", np.zeros(ITEMS, bool))
    with pytest.raises(AssertionError):
        truth.check(index)
    assert recall_at_k(index, BASE, USERS[:1], 5, np.arange(ITEMS) != best) == pytest.approx(0.8)


def test_a_deleted_item_comes_back_and_an_updated_one_keeps_its_position():
    index, truth = ExactIndex(BASE), Catalogue(BASE)
    index = truth.update(index, [], 2, [3, 5])
    assert index.search(np.zeros((1, WIDTH), np.float32), 5)[0].tolist() == [[0, 1, 2, 4, 6]]
    assert index.parameters == dict(base=dict(kind="exact", size=ITEMS, parameters={}), fresh=2, moved=0, withdrawn=2)
    index = truth.update(index, [5], 0, [ITEMS])
    assert index.search(np.zeros((1, WIDTH), np.float32), 5)[0].tolist() == [[0, 1, 2, 4, 5]]
    assert (index.parameters["fresh"], index.parameters["moved"], index.parameters["withdrawn"]) == (2, 1, 2)
    truth.check(index)
    again = UpdatedIndex(index, np.array([[9, 9, 9]]), [ITEMS], np.zeros(ITEMS + 2, bool))
    assert again.search(np.ones((1, WIDTH), np.float32), 1)[0].tolist() == [[ITEMS]]
    nothing = UpdatedIndex(again, BASE[:0], [], np.ones(again.size, bool))
    assert (nothing.search(USERS, 4)[0] == -1).all() and np.isneginf(nothing.search(USERS, 4)[1]).all()


@pytest.mark.parametrize("kind", ["exact", "scann"])
def test_a_saved_update_is_read_back(kind, tmp_path):
    base = ExactIndex(BASE) if kind == "exact" else scann(BASE)
    truth = Catalogue(BASE)
    index = truth.update(base, [2, 7], 3, [0, 9])
    save_index(str(tmp_path / "index"), index, "abc")
    os.rename(tmp_path / "index", tmp_path / "moved")
    again, checkpoint_hash = load_index(str(tmp_path / "moved"))
    assert (checkpoint_hash, again.parameters, again.is_exact) == ("abc", index.parameters, kind == "exact")
    for found, expected in zip(again.search(USERS, 9), index.search(USERS, 9)):
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(again.vectors, np.array(truth.vectors))
    assert not any(name.endswith(".pkl") for _, _, names in os.walk(tmp_path) for name in names)
    if kind == "exact":
        truth.check(again)
        assert np.shares_memory(base.vectors, base.vectors)  # the index's own memory, not a copy each time


@pytest.mark.parametrize("vectors, positions, deleted, words", [
    (BASE[:2], [1, 1], ITEMS, "distinct"), (BASE[:2], [1, ITEMS + 1], ITEMS, "follow the last, 23"),
    (BASE[:2], [-1, 3], ITEMS, "distinct"), (BASE[:2], [1], ITEMS, "of 1 positions"),
    (BASE[:1, :2], [1], ITEMS, "the base has"), (BASE[:1], [1], ITEMS - 1, "23 entries, not 24 to 24")])
def test_what_does_not_fit_together_is_refused(vectors, positions, deleted, words):
    with pytest.raises(ValueError, match=words):
        updated_lib.UpdatedIndex(ExactIndex(BASE), vectors, positions, np.zeros(deleted, bool))
