"""Exact search, ScaNN and faiss against NumPy on clustered vectors, and indexes on disk."""
import importlib.util
import os
import shutil

import numpy as np
import pytest

from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.publishing import tuning
from clrec_tf.publishing.tuning import build_index
from clrec_tf.retrieval import efforts
from clrec_tf.retrieval.exact_index import ExactIndex
from clrec_tf.retrieval.recall import Demand
from clrec_tf.retrieval.recall import recall_at_k
from clrec_tf.retrieval.saved_index import load_index
from clrec_tf.retrieval.saved_index import load_queries
from clrec_tf.retrieval.saved_index import save_index
from clrec_tf.retrieval.saved_index import save_queries
from clrec_tf.retrieval.updated_index import UpdatedIndex

ITEMS, WIDTH, USERS = 25_000, 32, 200


def demand(k, target_recall):
    """Of one number of results, for vectors without the dial's coordinate."""
    return Demand((k,), (0.0,), target_recall)


def normalized(vectors):
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def exact(items, users, k):
    """[N,k] positions by falling inner product, ties by position."""
    return np.argsort(-(users.astype(np.float64) @ items.T.astype(np.float64)), axis=1, kind="stable")[:, :k]


@pytest.fixture(scope="module")
def clustered():
    """Items around 300 centres of unequal sizes, and users near two centres each; random vectors have no neighbours."""
    rng = np.random.default_rng(0)
    centres = normalized(rng.standard_normal((300, WIDTH)))
    weights = 1 / np.arange(1, 301) ** 0.8
    draw = lambda n: centres[rng.choice(300, n, p=weights / weights.sum())]
    items = normalized(draw(ITEMS) + 0.1 * rng.standard_normal((ITEMS, WIDTH)))
    return items, normalized(draw(USERS) + 0.3 * draw(USERS) + 0.1 * rng.standard_normal((USERS, WIDTH)))


@pytest.fixture(scope="module")
def scann_index(clustered):
    return build_index("auto", clustered[0], clustered[1][:100], demand(50, 0.95), normalized=True)


@pytest.fixture(scope="module")
def faiss_index(clustered):
    pytest.importorskip("faiss")
    return build_index("faiss", clustered[0], clustered[1][:100], demand(50, 0.95), normalized=True)


@pytest.fixture(params=["scann", "faiss"])
def partitioned(request):
    return request.getfixturevalue(f"{request.param}_index")


def test_the_recall_asked_for_is_reached(clustered, partitioned):
    items, users = clustered
    assert not partitioned.is_exact and partitioned.parameters["leaves"] == 158  # √25,000
    truth = exact(items, users, 50)
    found, scores = partitioned.search(users, 50)
    shares = [len(set(near) & set(best)) / 50 for near, best in zip(found, truth)]
    assert np.mean(shares[:100]) >= 0.95  # the users it was tuned on
    assert np.mean(shares[100:]) >= 0.95  # others
    assert recall_at_k(partitioned, items, users, 50) == pytest.approx(np.mean(shares), abs=1e-3)
    searched = partitioned.parameters["effort"][0][1]
    assert searched < 158 / 2  # of the leaves: not by searching everything
    np.testing.assert_allclose(scores, np.take_along_axis(users @ items.T, found, axis=1), atol=1e-5)
    assert (np.diff(scores, axis=1) <= 0).all()


def test_the_lowest_effort_that_suffices_is_found_with_few_measurements(clustered, scann_index, caplog):
    items, users = clustered
    for before, after in zip(tuning._EFFORTS, tuning._EFFORTS[1:]):
        assert before[0] <= after[0] and before[1] <= after[1] and before != after
    with caplog.at_level("INFO", logger="absl"):
        again = tuning.cheapest(scann_index, items, users[:100], demand(50, 0.95))
    assert again.parameters == scann_index.parameters and 1 <= len(caplog.records) <= 4  # of 15
    steps = [(max(1, round(share * 158)), 50 * reorder) for share, reorder in tuning._EFFORTS]
    [[_, [(k, *effort)]]] = again.parameters["effort_at"]
    assert again.parameters["effort"] == [[k, *effort]]
    place = steps.index(tuple(effort))
    truth = exact(items, users[:100], 50)
    for effort, enough in ((steps[place], True), (steps[place - 1], False)):
        assert k == 50
        found = again.tuned(efforts.table([(50, *effort)])).search(users[:100], 50)[0]
        shares = np.array([len(set(near) & set(best)) / 50 for near, best in zip(found, truth)])
        assert (shares.mean() - 2 * shares.std() / 10 >= 0.95) == enough


def test_recall_counts_live_items_alone():
    items = np.eye(4, dtype=np.float32)
    users = np.array([[4, 3, 2, 1]], np.float32)
    assert recall_at_k(ExactIndex(items), items, users, 2) == 1
    # Of positions 1 to 3 the best are 1 and 2; found are 0, which does not count, and 1.
    assert recall_at_k(ExactIndex(items), items, users, 2, np.array([False, True, True, True])) == 0.5


def test_more_effort_finds_more(clustered, partitioned):
    items, users = clustered
    recalls = [recall_at_k(partitioned.tuned(efforts.uniform(leaves, reorder)), items, users, 50)
               for leaves, reorder in ((2, 1), (16, 4), (158, 32))]
    assert recalls[0] < recalls[1] < recalls[2] and recalls[2] > 0.999


def test_all_that_is_asked_for_is_given(clustered, partitioned):
    """Neither the candidates re-scored nor the leaves searched may cut a result."""
    items, users = clustered
    lazy = partitioned.tuned(efforts.uniform(1, 1))
    positions, scores = lazy.search(users[:3], 3000)
    assert positions.min() >= 0 and np.isfinite(scores).all()
    assert [len(set(row)) for row in positions] == [3000] * 3
    positions, scores = lazy.search(users[:1], ITEMS + 7)
    assert sorted(positions[0, :ITEMS]) == list(range(ITEMS))
    assert positions[0, ITEMS:].tolist() == [-1] * 7 and np.isneginf(scores[0, ITEMS:]).all()


def test_zero_vectors_give_the_first_positions(clustered, partitioned):
    for index in (partitioned, ExactIndex(clustered[0])):
        positions, scores = index.search(np.stack([np.zeros(WIDTH, np.float32), clustered[1][0]]), 5)
        assert positions[0].tolist() == [0, 1, 2, 3, 4] and scores[0].tolist() == [0] * 5
        assert scores[1, 0] > 0.5
        assert index.search(np.zeros((0, WIDTH), np.float32), 5)[0].shape == (0, 5)


def test_exact_search_equals_numpy_with_ties_by_position(monkeypatch):
    rng = np.random.default_rng(1)
    items = rng.integers(-2, 3, (40, 3)).astype(np.float32)
    users = rng.integers(-2, 3, (30, 3)).astype(np.float32)
    monkeypatch.setattr("clrec_tf.retrieval.exact_index._SCORE_BYTES", 7 * 40 * 4)  # chunks of 7 users
    positions, scores = ExactIndex(items).search(users, 45)
    np.testing.assert_array_equal(positions[:, :40], exact(items, users, 40))
    assert (positions[:, 40:] == -1).all() and np.isneginf(scores[:, 40:]).all()
    assert recall_at_k(ExactIndex(items), items, users, 10) == 1


def test_auto_is_exact_for_small_catalogues():
    vectors = np.eye(30, dtype=np.float32)
    assert build_index("auto", vectors, vectors, demand(3, 1.0), normalized=True).is_exact
    small = build_index("scann", vectors, vectors[:5], demand(3, 1.0), normalized=True)
    assert not small.is_exact and small.search(vectors[:5], 1)[0][:, 0].tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(UserError, match="at least 16 items, the catalogue has 9"):
        build_index("scann", vectors[:9], vectors, demand(3, 0.5), normalized=True)


def test_auto_takes_what_is_installed(clustered, monkeypatch, caplog):
    items, users = clustered[0], clustered[1][:20]
    missing, find_spec = ["scann"], importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in missing else find_spec(name))
    assert build_index("auto", items, users, demand(5, 0.5), normalized=True).kind == "faiss"
    missing.append("faiss")
    assert build_index("auto", items, users, demand(5, 0.5), normalized=True).kind == "exact"
    assert "neither ScaNN nor faiss is installed: the 25000 items are searched exactly" in caplog.text


def test_the_head_is_scored_exactly(partitioned):
    """Popular items at popularity 1, however far they are from the parts that are searched."""
    rng = np.random.default_rng(5)
    coordinate = np.zeros((2000, 1), np.float32)
    coordinate[::100] = 3
    items = np.concatenate([normalized(rng.standard_normal((2000, 16))), coordinate], axis=1)
    users = np.concatenate([normalized(rng.standard_normal((50, 16))), np.ones((50, 1), np.float32)], axis=1)
    index = type(partitioned).build(items, 40, spherical=True, head=20).tuned(efforts.uniform(1, 1))
    for found, best in zip(index.search(users, 20)[0], exact(items, users, 20)):
        assert set(best) == set(range(0, 2000, 100)) and found.tolist() == best.tolist()


def test_a_recall_out_of_reach_is_an_error(clustered, monkeypatch):
    monkeypatch.setattr(tuning, "_EFFORTS", ((0.01, 1),))
    with pytest.raises(UserError, match=r"--target_recall=0.999: the index reaches recall@50 = 0\.\d+"):
        build_index("scann", clustered[0][:2000], clustered[1], demand(50, 0.999), normalized=True)


@pytest.mark.parametrize("kind", ["exact", "scann", "faiss"])
def test_a_saved_index_can_be_moved(kind, clustered, request, tmp_path):
    items, users = clustered
    index = ExactIndex(items) if kind == "exact" else request.getfixturevalue(f"{kind}_index")
    folder, moved = str(tmp_path / "index"), str(tmp_path / 'else "where"' / "índex")
    save_index(folder, index, "abc")
    os.mkdir(os.path.dirname(moved))
    shutil.move(folder, moved)
    before = {name: os.path.getmtime(os.path.join(moved, name)) for name in os.listdir(moved)}
    again, checkpoint_hash = load_index(moved)
    np.testing.assert_array_equal(again.vectors, items)
    assert (again.kind, again.size, again.parameters, checkpoint_hash) == (kind, ITEMS, index.parameters, "abc")
    for found, expected in zip(again.search(users, 20), index.search(users, 20)):
        np.testing.assert_array_equal(found, expected)
    assert before == {name: os.path.getmtime(os.path.join(moved, name)) for name in os.listdir(moved)}
    for name in os.listdir(moved):
        with open(os.path.join(moved, name), "rb") as file:
            assert str(tmp_path).encode() not in file.read(), name
        assert not name.endswith(".pkl")


def test_users_are_kept_beside_an_index(tmp_path):
    users = np.arange(6, dtype=np.float32).reshape(2, 3)
    save_queries(str(tmp_path), users)
    np.testing.assert_array_equal(load_queries(str(tmp_path)), users)
    for content in (b"no array", None):
        (tmp_path / "queries.npy").write_bytes(content) if content else (tmp_path / "queries.npy").unlink()
        with pytest.raises(DataError, match="queries.npy, the vectors of held-out users .* cannot be read"):
            load_queries(str(tmp_path))


def test_a_damaged_index_is_an_error(tmp_path):
    for folder, facts in ((tmp_path / "a", '{"kind": "exact"}'), (tmp_path / "b", "{"), (tmp_path / "c", None)):
        save_index(str(folder), ExactIndex(np.eye(3, dtype=np.float32)), "abc")
        if facts is None:
            (folder / "vectors.npy").write_bytes(b"no array")
        else:
            (folder / "index.json").write_text(facts)
        with pytest.raises(DataError, match="no readable index"):
            load_index(str(folder))


@pytest.mark.parametrize("updated", [False, True])
def test_an_index_outlives_its_files(tmp_path, updated):
    """Cut short after it was loaded; in a process of its own, which a mapped file would end by SIGBUS."""
    rng = np.random.default_rng(4)
    items = normalized(rng.normal(size=(300, 8)))
    index = build_index("scann", items, items[:20], demand(5, 0.5), True)
    if updated:
        index = UpdatedIndex(index, -items[:1], np.array([7]), np.arange(300) == 9)
        items = index.vectors
    save_index(str(tmp_path / "index"), index, "abc")
    index, _ = load_index(str(tmp_path / "index"))
    expected = index.search(items[:5], 5)[0]
    child = os.fork()
    if not child:
        for path in (tmp_path / "index").rglob("*.*"):
            os.truncate(path, 0)
        sound = np.array_equal(index.vectors, items) and np.array_equal(index.search(items[:5], 5)[0], expected)
        os._exit(0 if sound else 1)
    assert os.waitpid(child, 0)[1] == 0
