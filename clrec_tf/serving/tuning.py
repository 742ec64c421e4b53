"""Chooses an index for a catalogue and raises its search effort until recall against exact search is high enough."""
import math

from absl import logging
import numpy as np

from clrec_tf.errors import UserError
from clrec_tf.serving.index import ExactIndex
from clrec_tf.serving.index import ScannIndex

EXACT_BELOW = 20_000  # items; below, exact search is as fast as ScaNN
_SMALLEST_SCANN = 16  # items; ScaNN's quantizer has 16 centres
# Share of the leaves searched, and candidates re-scored per item asked for: the cheapest first.
_EFFORTS = ((1 / 20, 4), (1 / 10, 5), (1 / 5, 8), (1 / 2, 16), (1, 32))


def recall_at_k(index, item_vectors: np.ndarray, queries: np.ndarray, k: int) -> float:
    """Share of the k best items that the index finds, mean over queries; of equal scores at rank k any will do.

    Args:
      index: see `index`.
      item_vectors: float32 [V,d], all it holds; scores are computed from them, not taken from the index.
      queries: float32 [N,d].
      k: 1..V.
    """
    worst = ExactIndex(item_vectors).search(queries, k)[1][:, -1]
    found, _ = index.search(queries, k)
    hits = 0
    for query, positions, bound in zip(queries, found, worst):
        positions = np.unique(positions[positions >= 0])
        hits += np.count_nonzero(item_vectors[positions] @ query >= bound - 1e-6)
    return hits / (k * len(queries))


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
    if size < _SMALLEST_SCANN:
        raise UserError(f"--index=scann needs at least {_SMALLEST_SCANN} items, the catalogue has {size}: use "
                        "--index=exact")
    leaves = round(math.sqrt(size))
    index = ScannIndex.build(vectors, leaves, spherical=normalized)
    for share, reorder in _EFFORTS:
        index = index.tuned(max(1, round(share * leaves)), reorder)
        recall = recall_at_k(index, vectors, queries, k)
        logging.info("ScaNN, %d of %d leaves, %d candidates re-scored: recall@%d %.4f against exact search",
                     index.parameters["leaves_to_search"], leaves, min(size, reorder * k), k, recall)
        if recall >= target_recall:
            return index
    raise UserError(f"--target_recall={target_recall}: the index reaches recall@{k} = {recall:.4f} with its highest "
                    "effort; use --index=exact, or lower the target")
