"""Recall of an updated version, as it was loaded, beside that of the version it was made from."""
import os

from absl import logging
import numpy as np

from clrec_tf.errors import DataError
from clrec_tf.models.dial import grid
from clrec_tf.retrieval.bundle import Bundle
from clrec_tf.retrieval.bundle_files import INDEX_FOLDER
from clrec_tf.retrieval.recall import demand_of
from clrec_tf.retrieval.recall import gated
from clrec_tf.retrieval.recall import lowest_at
from clrec_tf.retrieval.recall import measured
from clrec_tf.retrieval.recall import TUNED_STEP
from clrec_tf.retrieval.saved_index import load_index


def measure_update(folder: str, bundle: Bundle, vectors: np.ndarray, live: np.ndarray, queries: np.ndarray,
                   target_recall: float) -> dict:
    """What the manifest of an updated version says under `measured`.

    Args:
      folder: of the new version, whose index is written.
      bundle: that was updated.
      vectors: float32 [V+F,D] of all positions after the update.
      live: bool [V+F], what can be found.
      queries: float32 [N,D] of held-out users.
      target_recall: smallest acceptable recall of each k at each popularity.

    Raises:
      DataError: the index gives deleted items, or its recall is too low.
    """
    index, _ = load_index(os.path.join(folder, INDEX_FOLDER))
    earlier = {name: value for name, value in bundle.manifest["measured"].items() if name != "recalls_exclude_seen"}
    recall_k, count, before_count = earlier["recall_k"], np.count_nonzero(live), np.count_nonzero(bundle.live)
    positions, _ = index.search(queries, min(recall_k, count))
    if not np.array_equal(index.live, live) or positions.min() < 0 or not live[positions].all():
        raise DataError("the updated index gives items that were deleted, or too few: export again")
    dial = bundle.dial
    popularities = grid(dial.lowest, dial.highest, TUNED_STEP) if dial.there else (0.0,)
    before = measured(bundle.index, bundle.item_vectors(), queries,
                      demand_of(before_count, (recall_k,), popularities, 0.0), bundle.live)["recalls"]
    demand = demand_of(count, (recall_k,), popularities, target_recall)
    after = gated(measured(index, vectors, queries, demand, live), demand, recall_k, "the updated index", before)
    after["recall_before"] = lowest_at(before, min(recall_k, before_count))
    logging.info("recall@%d against exact search over the live items: %.4f before, %.4f after", after["recall_k"],
                 after["recall_before"], after["recall"])
    return earlier | after | dict(recall_k=recall_k)
