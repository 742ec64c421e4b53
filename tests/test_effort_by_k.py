"""An index holds its recall for every number of results, every width and every popularity, also where it was not tuned."""
import numpy as np
import pytest
import tensorflow as tf

from clrec_tf.lab.benchmarks.clustered_vectors import draw_clustered
from clrec_tf.models.dial import at_popularity
from clrec_tf.models.dial import item_coordinate
from clrec_tf.models.dial import with_coordinate
from clrec_tf.publishing import scann_ops_index
from clrec_tf.publishing.tuning import build_index
from clrec_tf.publishing.tuning import usual_head
from clrec_tf.retrieval import efforts
from clrec_tf.retrieval.recall import best_scores
from clrec_tf.retrieval.recall import demand_of
from clrec_tf.retrieval.recall import lowest_recall
from clrec_tf.retrieval.recall import measured
from clrec_tf.retrieval.recall import recall_at_k
from clrec_tf.retrieval.saved_index import load_index
from clrec_tf.retrieval.saved_index import save_index
from clrec_tf.retrieval.partitioned_index import head_of
from clrec_tf.retrieval.scann_index import ScannIndex
from clrec_tf.retrieval.updated_index import UpdatedIndex

ITEMS, USERS, TARGET = 20_975, 200, 0.95
ALPHAS = (-0.25, 0.0, 0.5, 1.0, 1.25)


@pytest.fixture(scope="module", params=[64, 32, 8])
def world(request):
    """(index, items, users it was not tuned on) of a width; popularity falls by Zipf's law, whatever the vector."""
    drawn = draw_clustered(ITEMS, 0, 2 * USERS, request.param, seed=request.param)
    counts = np.random.default_rng(1).permutation(np.maximum(2_000_000 // np.arange(8, ITEMS + 8), 1))
    items = with_coordinate(drawn.items, item_coordinate(counts, 0.07))
    users = with_coordinate(drawn.queries, 0.0)
    index = build_index("auto", items, users[:USERS], demand_of(ITEMS, (1000,), ALPHAS, TARGET), True,
                        usual_head(ITEMS))
    assert not index.is_exact
    return index, items, users[USERS:]


def test_recall_holds_for_every_k_and_popularity_and_for_other_users(world):
    index, items, users = world
    for alpha in ALPHAS:
        turned = at_popularity(users, alpha)
        best = best_scores(items, turned, 1000)
        for k in (1, 2, 3, 5, 7, 10, 13, 20, 35, 60, 100, 101, 150, 200, 350, 1000):
            found = recall_at_k(index, items, turned, k, worst=best[:, k - 1])
            # Users are few: two standard errors of a share of .95 over them.
            assert found >= TARGET - 2 * np.sqrt(TARGET * (1 - TARGET) / USERS), (alpha, k)


def test_what_is_saved_searches_alike(world, tmp_path):
    index, items, users = world
    save_index(str(tmp_path / "index"), index, "c")
    again = load_index(str(tmp_path / "index"))[0]
    for k in (1, 20, 300):
        for mine, other in zip(index.search(at_popularity(users[:20], 1.0), k), again.search(
                at_popularity(users[:20], 1.0), k)):
            np.testing.assert_array_equal(mine, other)
    assert again.parameters == index.parameters


def test_no_item_comes_twice_and_scores_fall(world):
    """The head is found by the partition too."""
    index, items, users = world
    for alpha in ALPHAS:
        turned = at_popularity(users[:50], alpha)
        positions, scores = index.search(turned, 120)
        assert all(len(set(row)) == 120 for row in positions.tolist()) and positions.min() >= 0
        assert (np.diff(scores, axis=1) <= 1e-7).all()
        np.testing.assert_allclose(scores, np.einsum("nkd,nd->nk", items[positions], turned), atol=1e-5)


def test_an_updated_index_holds_it_too(world):
    index, items, users = world
    rng = np.random.default_rng(3)
    inserted = items[rng.choice(ITEMS, 50)]
    gone = np.zeros(ITEMS, bool)
    gone[rng.choice(ITEMS, ITEMS // 50, replace=False)] = True
    updated = UpdatedIndex(index, inserted, np.arange(ITEMS, ITEMS + 50), gone)
    demand = demand_of(int(updated.live.sum()), (), ALPHAS, TARGET)
    found = measured(updated, np.concatenate([items, inserted]), users, demand, updated.live)
    assert lowest_recall(found["recalls"])[0] >= TARGET - 0.03
    assert set(found["recalls"]) == {"-0.25", "0", "0.5", "1", "1.25"}
    assert list(found["recalls"]["1"]) == ["1", "10", "50", "100", "200"] and found["search_ms"]["1"] > 0


def test_without_the_head_popular_items_are_missed(world):
    """Why there is one: at popularity 1 the best items lie far from all centres."""
    index, items, users = world
    turned = at_popularity(users, 1.25)
    bare = type(index)(index._searcher, index.parameters, index.vectors, np.zeros(0, np.int64))
    assert recall_at_k(bare, items, turned, 10) < recall_at_k(index, items, turned, 10) - 0.02


def test_the_table_of_efforts():
    parameters = dict(size=5000, leaves=70) | efforts.table([(10, 5, 200), (1, 7, 150), (100, 16, 920)])
    assert parameters["effort"] == [[1, 7, 150], [10, 7, 200], [100, 16, 920]]  # none searches less than a smaller k
    assert efforts.at(parameters, 1) == (7, 150) and efforts.at(parameters, 10) == (7, 200)
    assert efforts.at(parameters, 4) == (7, 167)  # a third of the way from 150 to 200, rounded up
    assert efforts.at(parameters, 20) == (8, 280) and efforts.at(parameters, 100) == (16, 920)
    assert efforts.at(parameters, 150) == (24, 1380)  # in proportion
    assert efforts.at(parameters, 201) == (70, 5000) and efforts.at(parameters, 110) == (18, 1012)
    older = dict(size=5000, leaves=70, leaves_to_search=3, reorder=4)  # candidates per result, but for at least 50
    assert efforts.at(older, 1) == (3, 200) and efforts.at(older, 100) == (3, 400)
    several = dict(size=5000, leaves=70) | efforts.tables({0.0: [(1, 9, 150), (10, 9, 200)], 1.0: [(1, 3, 90), (10, 4, 300)],
                                                           1.5: [(1, 2, 90), (10, 2, 90)]})
    assert several["effort"] == [[1, 9, 150], [10, 9, 300]]
    for bounds, expected in ((None, (9, 300)), ((0.0, 0.0), (9, 200)), ((1.0, 1.0), (4, 300)), ((1.5, 1.5), (2, 90)),
                             ((0.3, 0.3), (9, 300)), ((1.2, 1.2), (4, 300)), ((0.0, 1.5), (9, 300)), ((-3.0, -2.0), (9, 200)),
                             ((7.0, 9.0), (2, 90))):
        assert efforts.at(several, 10, bounds) == expected, bounds


def test_the_head_is_what_has_the_highest_last_coordinate():
    vectors = np.array([[9, 0.1], [0, 0.5], [1, -3], [5, 0.5], [2, 0.2]], np.float32)
    assert head_of(vectors, 2).tolist() == [1, 3] and head_of(vectors, 3).tolist() == [1, 3, 4]
    assert head_of(vectors, 0).tolist() == []


def test_what_the_partition_found_is_never_lost_to_the_head():
    """Also where two computations of a score differ: a searcher that overrates every item of the head."""
    class Searcher:
        def search_batched(self, vectors, k, reorder, leaves):
            scores = vectors @ items.T + 0.5 * (np.arange(len(items)) < 4)
            near = np.argsort(-scores, axis=1)[:, :k]
            return near, np.take_along_axis(scores, near, axis=1)
    rng = np.random.default_rng(0)
    items, users = rng.standard_normal((30, 5)).astype(np.float32), rng.standard_normal((50, 5)).astype(np.float32)
    users[7] = 0
    index = ScannIndex(Searcher(), dict(size=30, leaves=5) | efforts.uniform(5, 4), items, np.arange(4))
    users[:, -1] = np.abs(users[:, -1])  # popularity is put back
    for k in (1, 3, 30, 40):
        positions, scores = index.search(users, k)
        for row in range(50):
            kept = positions[row][positions[row] >= 0]
            assert len(set(kept)) == len(kept) == min(k, 30) and np.isfinite(scores[row, :min(k, 30)]).all()
            np.testing.assert_allclose(scores[row, :len(kept)], items[kept] @ users[row], atol=1e-5)
    assert positions[7, :30].tolist() == list(range(30)) and not scores[7, :30].any()


def test_the_graph_has_the_same_efforts_and_the_same_head():
    parameters = dict(size=5000, leaves=70) | efforts.table([(1, 5, 150), (10, 5, 200), (100, 16, 920)])
    for facts in (parameters, dict(size=5000, leaves=70, **efforts.uniform(3, 4))):
        for k in (1, 2, 4, 10, 11, 20, 100, 110, 150, 200, 201, 4000):
            assert tuple(int(part) for part in scann_ops_index._effort(facts, tf.constant(k))) == efforts.at(facts, k)
    rows, scores = tf.constant([[3, 1], [0, 1]]), tf.constant([[.9, .2], [0.0, 0.0]])
    queries, head = tf.constant([[1.0, 0.0], [0.0, 0.0]]), tf.constant([2, 3])
    found = scann_ops_index.with_head(rows, scores, queries, head, tf.constant([[.5, 1.0], [.9, 0.0]]))
    best = scann_ops_index.best_of_each(found[1], found[0], tf.zeros_like(found[0]), 3)
    assert best[1].numpy().tolist() == [[3, 2, 1], [0, 1, 0]]  # each once; of a zero vector no head
    np.testing.assert_allclose(best[0], [[.9, .5, .2], [0, 0, -np.inf]])


def test_rows_that_are_left_out_in_the_graph():
    rows, excluded = tf.constant([[5, 1, 7, -1], [5, 1, 7, 2]]), tf.constant([[7, -1, 5], [2, 2, -1]])
    assert scann_ops_index.among(rows, excluded).numpy().tolist() == [[True, False, True, True],
                                                                      [False, False, False, True]]
    assert not scann_ops_index.among(rows[:, :3], tf.zeros([2, 0], tf.int32)).numpy().any()
