"""Recall of an index against exact search: by number of results, and by popularity where vectors have the dial's
coordinate."""
import dataclasses
import time
from typing import Optional
from typing import Sequence

import numpy as np

from clrec_tf.errors import DataError
from clrec_tf.models.dial import at_popularity
from clrec_tf.retrieval.exact_index import ExactIndex

KS = (1, 10, 50, 100, 200)  # results that recall is measured over
TUNED_STEP = 0.5  # between popularities that an index is tuned and measured at, beside the bounds of the range
_SAME = 1e-6  # part of a score that two computations of it may differ by
_TIMED = 100  # queries, one at a time, for the cost that stands beside a recall


@dataclasses.dataclass(frozen=True)
class Demand:
    """What an index has to hold.

    Attributes:
      ks: numbers of results, ascending.
      popularities: α at which users come; (0.0,) for vectors without the dial's coordinate.
      target_recall: smallest acceptable recall@k of each k at each α.
    """
    ks: Sequence[int]
    popularities: Sequence[float]
    target_recall: float

    def queries(self, queries: np.ndarray) -> dict[float, np.ndarray]:
        """α -> queries [N,d] at it; as they are where only 0 is asked for."""
        if tuple(self.popularities) == (0.0,):
            return {0.0: queries}
        return {value: at_popularity(queries, value) for value in self.popularities}


def demand_of(size: int, further_ks: Sequence[int], popularities: Sequence[float], target_recall: float) -> Demand:
    """The usual k and further ones, at most as many as there are items."""
    return Demand(tuple(sorted({min(k, size) for k in (*KS, *further_ks)})), tuple(popularities), target_recall)


def recall_at_k(index, item_vectors: np.ndarray, queries: np.ndarray, k: int, live: Optional[np.ndarray] = None,
                worst: Optional[np.ndarray] = None) -> float:
    """Share of the k best live items that the index finds, mean over queries; of equal scores at rank k any will do.

    Args:
      index: an `Index`, or what has its `search`.
      item_vectors: float32 [V,d], all it holds; scores are computed from them, not taken from the index.
      queries: float32 [N,d].
      k: 1 to the number of live items.
      live: bool [V], items that may be found (None: all). Others do not count.
      worst: `worst_scores` of the same, if it is known.
    """
    return float(np.mean(recall_of_each(index, item_vectors, queries, k, live, worst)))


def recall_of_each(index, item_vectors, queries, k, live=None, worst=None):
    """[N], `recall_at_k` of each query."""
    live = np.ones(len(item_vectors), bool) if live is None else live
    worst = worst_scores(item_vectors[live], queries, k) if worst is None else worst
    return _share_found(index.search(queries, k)[0], item_vectors, queries, live, worst)


def _share_found(near, item_vectors, queries, live, worst):
    """[N], share of positions [N,k] that are live and no worse than the k-th best."""
    hits = np.zeros(len(queries))
    for row, (query, positions, bound) in enumerate(zip(queries, near, worst)):
        positions = np.unique(positions[positions >= 0])
        positions = positions[live[positions]]
        hits[row] = np.count_nonzero(as_good_as(item_vectors[positions] @ query, bound))
    return hits / near.shape[1]


def as_good_as(scores: np.ndarray, bound: float) -> np.ndarray:
    """Whether scores [N] reach the k-th best, computed elsewhere."""
    return scores >= bound - _SAME * max(1, abs(bound))


def worst_scores(item_vectors: np.ndarray, queries: np.ndarray, k: int) -> np.ndarray:
    """[N] float32, the k-th highest score of each query [N,d] among all items [V,d], by exact search."""
    return best_scores(item_vectors, queries, k)[:, -1]


def best_scores(item_vectors: np.ndarray, queries: np.ndarray, k: int) -> np.ndarray:
    """[N,k] float32, the k highest scores of each query [N,d] among all items [V,d], by exact search."""
    return ExactIndex(item_vectors).search(queries, k)[1]


def measured(index, vectors: np.ndarray, queries: np.ndarray, demand: Demand, live: Optional[np.ndarray] = None
             ) -> dict:
    """What an index holds on users.

    Args:
      index, vectors, queries, live: see `recall_at_k`.
      demand: at most as many results as there are live items.

    Returns:
      `recalls`: {"α": {"k": recall}}; `search_ms`: {"α": median ms of one query for the largest k up to 100}.
    """
    live = np.ones(len(vectors), bool) if live is None else live
    live_vectors = vectors if live.all() else vectors[live]
    recalls, milliseconds = {}, {}
    for popularity, users in demand.queries(queries).items():
        best = best_scores(live_vectors, users, demand.ks[-1])
        everything = index.search(users, demand.ks[-1])[0] if index.is_exact else None
        by_k = recalls[f"{popularity:g}"] = {}
        for k in demand.ks:  # an approximate search for fewer searches less, an exact one is the same
            near = index.search(users, k)[0] if everything is None else everything[:, :k]
            by_k[str(k)] = float(_share_found(near, vectors, users, live, best[:, k - 1]).mean())
        milliseconds[f"{popularity:g}"] = _milliseconds(index, users, max(k for k in demand.ks if k <= 100))
    return dict(recalls=recalls, search_ms=milliseconds)


def _milliseconds(index, users, k):
    times = []
    for row in range(min(_TIMED, len(users))):
        started = time.perf_counter()
        index.search(users[row:row + 1], k)
        times.append(time.perf_counter() - started)
    return round(1e3 * float(np.median(times)), 4)


def lowest_recall(recalls: dict) -> tuple[float, str, str]:
    """(recall, k, α) of the worst entry of `measured`'s recalls."""
    return min((recall, k, popularity) for popularity, by_k in recalls.items() for k, recall in by_k.items())


def gated(measurements: dict, demand: Demand, recall_k: int, what: str, before: Optional[dict] = None) -> dict:
    """What `measured` gave, with the lowest recall@`recall_k` of all popularities as `recall`.

    Args:
      measurements: of `measured`.
      demand: of the same measurement.
      recall_k: at most the largest k of the demand.
      what: named in the error.
      before: the recalls of the index that was changed, if any; they may lack some k.

    Raises:
      DataError: one of the recalls is below the target.
    """
    recall, k, popularity = lowest_recall(measurements["recalls"])
    if recall < demand.target_recall:
        earlier = (before or {}).get(popularity, {}).get(k)
        was = "" if earlier is None else f", before {earlier:.4f},"
        raise DataError(f"{what} has recall@{k} = {recall:.4f}{was} at popularity {popularity}, --target_recall="
                        f"{demand.target_recall} is asked: ask for less, or export again with --index=exact")
    recall_k = min(recall_k, demand.ks[-1])
    return measurements | dict(recall=lowest_at(measurements["recalls"], recall_k), recall_k=recall_k)


def lowest_at(recalls: dict, k: int) -> float:
    """The lowest recall@k of all popularities."""
    return min(by_k[str(k)] for by_k in recalls.values())
