"""Searches among some of the items: exactly where they are few, by the index with spare results where they are many."""
import math

import numpy as np

from clrec_tf.models.top_k import top_k
from clrec_tf.retrieval.attributes import among
from clrec_tf.retrieval.index import Index
from clrec_tf.retrieval.index import no_results

FEW = 5_000  # items that an exact search scores in 1 to 3 ms, as long as ScaNN takes for a thousand results
_BLOCK = 65_536  # items scored at a time
_SPARE, _GROWTH = 1.25, 4  # times what the share of items that pass lets expect; times more where that was not enough
_MOST_FETCHED = 20_000  # results beyond which scoring all items that pass is quicker


def best_among(index: Index, vectors: np.ndarray, positions: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The best of some items, found exactly: equal scores in the order of positions.

    Args:
      index: that has their vectors.
      vectors: float32 [N,d] of users.
      positions: int [M], ascending.
      k: results wanted.

    Returns:
      (positions int64 [N,min(k, M)], scores float32 of the same shape), best first.
    """
    best, scores = no_results(len(vectors), 0)
    for start in range(0, len(positions), _BLOCK):
        block = positions[start:start + _BLOCK]
        scores = np.concatenate([scores, vectors @ index.vectors_at(block).T], axis=1)
        best = np.concatenate([best, np.broadcast_to(block, (len(vectors), len(block)))], axis=1)
        places, scores = top_k(scores, k)
        best = np.take_along_axis(best, places, axis=1)
    return best, scores


def search_passing(index: Index, vectors: np.ndarray, passing: np.ndarray, banned: np.ndarray, k: int
                   ) -> tuple[np.ndarray, np.ndarray]:
    """The best items that pass a filter and are not banned; k of them wherever there are k.

    More than `FEW` items are searched for among more results of the index than are wanted, by the share that passes; a
    user whose taste is another than the filter's finds fewer there than that, and gets more results, and at last an
    exact search.

    Args:
      index: over all items.
      vectors: float32 [N,d] of users.
      passing: int64 [M] live positions, ascending.
      banned: int64 positions, ascending.
      k: results wanted.

    Returns:
      (positions int64 [N,k], scores float32 [N,k]), best first; −1 and −inf where there are no more.
    """
    found, found_scores = no_results(len(vectors), k)
    rows = np.arange(len(vectors))
    if len(passing) > FEW:
        width = _SPARE * (k + min(len(banned), k)) * index.size / len(passing)
        while len(rows) and width <= min(_MOST_FETCHED, index.size):
            near, scores = index.search(vectors[rows], math.ceil(width))
            keep = among(near, passing) & ~among(near, banned)
            keep &= np.cumsum(keep, axis=1) <= k
            full = np.count_nonzero(keep, axis=1) == k
            found[rows[full]] = near[full][keep[full]].reshape(-1, k)
            found_scores[rows[full]] = scores[full][keep[full]].reshape(-1, k)
            rows, width = rows[~full], _GROWTH * width
    if len(rows):
        best, scores = best_among(index, vectors[rows], passing[~among(passing, banned)], k)
        found[rows, :best.shape[1]], found_scores[rows, :best.shape[1]] = best, scores
    return found, found_scores
