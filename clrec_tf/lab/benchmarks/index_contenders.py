"""The indexes that the suite retrieval compares, built over the same generated vectors."""
import bisect
import time

from absl import logging
import numpy as np

from clrec_tf.errors import DataError
from clrec_tf.lab.benchmarks.clustered_vectors import draw_clustered
from clrec_tf.models.dial import item_coordinate
from clrec_tf.models.dial import with_coordinate
from clrec_tf.publishing.tuning import build_index
from clrec_tf.publishing.tuning import usual_head
from clrec_tf.publishing.tuning import usual_leaves
from clrec_tf.retrieval import efforts
from clrec_tf.retrieval.exact_index import ExactIndex
from clrec_tf.retrieval.faiss_index import FaissIndex
from clrec_tf.retrieval.recall import best_scores
from clrec_tf.retrieval.recall import Demand
from clrec_tf.retrieval.recall import demand_of
from clrec_tf.retrieval.recall import recall_at_k
from clrec_tf.retrieval.recall import worst_scores
from clrec_tf.retrieval.updated_index import UpdatedIndex

DIM, RHO = 64, 0.07
ALPHAS = (-0.25, 0.0, 0.5, 1.0, 1.25)  # popularities
USERS = 1024  # to tune on, and as many others to measure on
CHANGED = 0.01  # share of the items that is inserted, and that is deleted, in the updated index
DRAWN_SEED, DELETED_SEED, CLICKS_SEED = 0, 1, 2


class Dialled:
    """The dial's index at one popularity, for queries [N,d] without the coordinate."""

    def __init__(self, index, alpha: float):
        self.index, self.alpha = index, alpha

    def search(self, vectors, k: int):
        """(positions int64 [N,k], scores float32 [N,k])."""
        return self.index.search(with_coordinate(vectors, self.alpha), k)


class Contenders:
    """All of them over V items.

    Args:
      size: V.
      k: results that exact ones are compared by.
      target_recall: that ScaNN is tuned to.

    Attributes:
      indexes: name -> index with `search`.
      build_s: name -> seconds that building took, tuning included; the dial's, which is one index, as `dial`.
      users: float32 [USERS,d], queries that nothing was tuned on.
    """

    def __init__(self, size: int, k: int, target_recall: float):
        self._size, self._k, self._target_recall = size, k, target_recall
        self._changed = round(CHANGED * size)
        self._drawn = draw_clustered(size, self._changed, 2 * USERS, DIM, DRAWN_SEED)
        self._tuning, self.users = self._drawn.queries[:USERS], self._drawn.queries[USERS:]
        self.indexes, self.build_s = {}, {}
        self._add_exact_and_scann()
        self._add_dialled()
        self._add_updated()
        self._add_faiss()

    def _timed(self, name, make):
        started = time.perf_counter()
        index = make()
        self.build_s[name] = round(time.perf_counter() - started, 3)
        return index

    def _add_exact_and_scann(self):
        items, demand = self._drawn.items, Demand((self._k,), (0.0,), self._target_recall)
        self.indexes["exact"] = self._timed("exact", lambda: ExactIndex(items))
        self.indexes["scann"] = self._timed("scann", lambda: build_index("scann", items, self._tuning, demand,
                                                                         normalized=True))

    def _add_dialled(self):
        """A ScaNN index as bundles have it, tuned for every popularity and number of results that is offered."""
        self._demand = demand_of(self._size, (), ALPHAS, self._target_recall)
        self._items = with_coordinate(self._drawn.items, item_coordinate(generated_clicks(self._size), RHO))
        index = self._timed("dial", lambda: build_index(
            "scann", self._items, with_coordinate(self._tuning, 0.0), self._demand, True, usual_head(self._size)))
        self.indexes |= {f"dial_at_{alpha:g}": Dialled(index, alpha) for alpha in ALPHAS}

    def _add_updated(self):
        """ScaNN's with `CHANGED` of the items inserted, and as many deleted."""
        deleted = np.zeros(self._size, bool)
        deleted[np.random.default_rng(DELETED_SEED).choice(self._size, self._changed, replace=False)] = True
        inserted = np.arange(self._size, self._size + self._changed)
        self._live = np.append(~deleted, np.ones(self._changed, bool))
        self.indexes["updated"] = self._timed("updated", lambda: UpdatedIndex(
            self.indexes["scann"], self._drawn.inserted, inserted, deleted))

    def _add_faiss(self):
        """faiss' where it is installed, tuned to the recall that ScaNN reached."""
        items, k = self._drawn.items, self._k
        try:
            index = self._timed("faiss_ivf", lambda: FaissIndex.build(items, usual_leaves(len(items)), spherical=True))
        except DataError as error:
            logging.info("faiss is left out: %s", error)
            return
        worst = worst_scores(items, self._tuning, k)
        reached = recall_at_k(self.indexes["scann"], items, self._tuning, k, worst=worst)
        self.indexes["faiss_ivf"] = with_fewest_leaves(
            index, lambda tried: recall_at_k(tried, items, self._tuning, k, worst=worst) >= reached)

    def recalls(self) -> dict[str, dict]:
        """By contender `recall_at_200`, of the dial's `recalls` too, by number of results; of `users`."""
        items, k = self._drawn.items, self._k
        worst, recalls = worst_scores(items, self.users, k), {}
        for name, index in self.indexes.items():
            if isinstance(index, Dialled):
                recalls[name] = self._dialled_recalls(index)
            elif name == "updated":
                everything = np.concatenate([items, self._drawn.inserted])
                recalls[name] = dict(recall_at_200=recall_at_k(index, everything, self.users, k, self._live))
            else:
                recalls[name] = dict(recall_at_200=recall_at_k(index, items, self.users, k, None, worst))
            recalls[name]["recall_at_200"] = round(recalls[name]["recall_at_200"], 4)
        return recalls

    def _dialled_recalls(self, dialled):
        turned = with_coordinate(self.users, dialled.alpha)
        best = best_scores(self._items, turned, self._k)
        recall = lambda count: recall_at_k(dialled.index, self._items, turned, count, worst=best[:, count - 1])
        return dict(recall_at_200=recall(self._k),
                    recalls={count: round(recall(count), 4) for count in self._demand.ks})


def with_fewest_leaves(index, enough):
    """The partitioned index with the least effort for which `enough(index)`, else with all leaves."""
    tried = lambda leaves: index.tuned(efforts.uniform(leaves, 1))
    counts = range(1, index.parameters["leaves"])
    return tried(1 + bisect.bisect_left(counts, True, key=lambda leaves: enough(tried(leaves))))


def settings_of(index) -> dict:
    """What an index is set to."""
    return (index.index if isinstance(index, Dialled) else index).parameters


def generated_clicks(size: int) -> np.ndarray:
    """[V] clicks by Zipf's law, twenty for each item on average, and whatever its vector is."""
    shares = 1 / np.arange(1, size + 1)
    return np.random.default_rng(CLICKS_SEED).permutation(np.maximum(np.round(20 * size * shares / shares.sum()), 1))
