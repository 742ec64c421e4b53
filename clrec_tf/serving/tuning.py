"""Chooses an index for a catalogue and raises its search effort until recall against exact search is high enough."""
import math
from typing import Optional

from absl import logging
import numpy as np

from clrec_tf.errors import UserError
from clrec_tf.serving.index import ExactIndex
from clrec_tf.serving.index import SMALLEST_SCANN
from clrec_tf.serving.index import ScannIndex

EXACT_BELOW = 20_000  # items; below, exact search is as fast as ScaNN
# Share of the leaves searched, and candidates re-scored per item asked for: neither falls, so recall rises. Of what was
# measured with 10⁵ and 10⁶ clustered vectors these are close to the cheapest for each recall; the fourth is the first
# to reach .95 with 10⁶, the tenth with 10⁵.
_EFFORTS = ((1 / 100, 3), (3 / 200, 4), (1 / 50, 4), (3 / 100, 4), (1 / 20, 4), (1 / 20, 5), (1 / 20, 6), (3 / 40, 6),
            (1 / 10, 6), (3 / 20, 6), (1 / 5, 6), (1 / 5, 8), (3 / 10, 8), (1 / 2, 12), (1, 16), (1, 32))
_SURE = 2  # standard errors
_SAME = 1e-6  # part of a score that two computations of it may differ by


def recall_at_k(index, item_vectors: np.ndarray, queries: np.ndarray, k: int, live: Optional[np.ndarray] = None,
                worst: Optional[np.ndarray] = None) -> float:
    """Share of the k best live items that the index finds, mean over queries; of equal scores at rank k any will do.

    Args:
      index: see `index`.
      item_vectors: float32 [V,d], all it holds; scores are computed from them, not taken from the index.
      queries: float32 [N,d].
      k: 1 to the number of live items.
      live: bool [V], items that may be found (None: all). Others do not count.
      worst: `worst_scores` of the same, if it is known.
    """
    return float(np.mean(_recalls(index, item_vectors, queries, k, live, worst)))


def _recalls(index, item_vectors, queries, k, live=None, worst=None):
    """[N], `recall_at_k` of each query."""
    live = np.ones(len(item_vectors), bool) if live is None else live
    worst = worst_scores(item_vectors[live], queries, k) if worst is None else worst
    found, _ = index.search(queries, k)
    hits = np.zeros(len(queries))
    for row, (query, positions, bound) in enumerate(zip(queries, found, worst)):
        positions = np.unique(positions[positions >= 0])
        positions = positions[live[positions]]
        hits[row] = np.count_nonzero(as_good_as(item_vectors[positions] @ query, bound))
    return hits / k


def as_good_as(scores: np.ndarray, bound: float) -> np.ndarray:
    """Whether scores [N] reach the k-th best, computed elsewhere."""
    return scores >= bound - _SAME * max(1, abs(bound))


def usual_leaves(size: int) -> int:
    """Leaves of the partition of so many items."""
    return round(math.sqrt(size))


def worst_scores(item_vectors: np.ndarray, queries: np.ndarray, k: int) -> np.ndarray:
    """[N] float32, the k-th highest score of each query [N,d] among all items [V,d], by exact search."""
    return ExactIndex(item_vectors).search(queries, k)[1][:, -1]


def build_index(kind: str, vectors: np.ndarray, queries: np.ndarray, k: int, target_recall: float, normalized: bool):
    """Builds the index of a catalogue.

    Args:
      kind: "exact", "scann" or "auto": exact below `EXACT_BELOW` items.
      vectors: float32 [V,d].
      queries: float32 [N,d], vectors of users that were not trained on; random ones would say nothing.
      k: results that recall is measured over.
      target_recall: smallest acceptable recall@k against exact search.
      normalized: whether `vectors` are l2-normalized.

    Raises:
      UserError: the target is not reached with the highest effort, or the catalogue is too small for ScaNN.
    """
    size = len(vectors)
    if kind == "exact" or kind == "auto" and size < EXACT_BELOW:
        return ExactIndex(vectors)
    if size < SMALLEST_SCANN:
        raise UserError(f"--index=scann needs at least {SMALLEST_SCANN} items, the catalogue has {size}: use "
                        "--index=exact")
    index = ScannIndex.build(vectors, usual_leaves(size), spherical=normalized)
    return cheapest(index, vectors, queries, k, target_recall)


def cheapest(index: ScannIndex, vectors, queries, k, target_recall) -> ScannIndex:
    """The index with the lowest of `_EFFORTS` that reaches the target, found by halving.

    It must be reached by `_SURE` standard errors more, so that other users have it too; but for the highest effort.
    """
    leaves, worst = index.parameters["leaves"], worst_scores(vectors, queries, k)
    low, high, best, recall = 0, len(_EFFORTS), None, 0.0
    while low < high:
        middle = (low + high) // 2
        share, reorder = _EFFORTS[middle]
        tried = index.tuned(max(1, round(share * leaves)), reorder)
        recalls = _recalls(tried, vectors, queries, k, worst=worst)
        recall, error = float(recalls.mean()), float(recalls.std() / math.sqrt(len(recalls)))
        logging.info("ScaNN, %d of %d leaves, %d candidates re-scored: recall@%d %.4f ± %.4f against exact search",
                     tried.parameters["leaves_to_search"], leaves, min(len(vectors), reorder * k), k, recall, error)
        needed = target_recall + (_SURE * error if middle < len(_EFFORTS) - 1 else 0)
        if recall >= needed:
            best, high = tried, middle
        else:
            low = middle + 1
    if best is None:  # then the last one tried was the highest
        raise UserError(f"--target_recall={target_recall}: the index reaches recall@{k} = {recall:.4f} with its "
                        "highest effort; use --index=exact, or lower the target")
    return best
