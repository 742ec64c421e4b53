"""Proves a bundle that is written but not yet shown: loads tower and index, and compares them with the live model."""
import dataclasses
import os

import numpy as np
import tensorflow as tf

from clrec_tf.errors import DataError
from clrec_tf.models.dial import with_coordinate
from clrec_tf.publishing.candidates import Candidates
from clrec_tf.publishing.graph_checks import foreign_ops
from clrec_tf.publishing.held_out import HeldOutUsers
from clrec_tf.retrieval.bundle_files import INDEX_FOLDER
from clrec_tf.retrieval.bundle_files import MODEL_FILE
from clrec_tf.retrieval.recall import Demand
from clrec_tf.retrieval.recall import gated
from clrec_tf.retrieval.recall import measured
from clrec_tf.retrieval.saved_index import load_index
from clrec_tf.retrieval.search_vectors import concatenated
from clrec_tf.retrieval.search_vectors import Intents
from clrec_tf.retrieval.search_vectors import served
from clrec_tf.system.pattern_names import readable_name

PARITY = 1e-5  # largest difference between a loaded and a live user vector, or the weight of one


def check_tower_and_index(folder: str, candidates: Candidates, held_out: HeldOutUsers, demand: Demand, recall_k: int
                          ) -> dict:
    """What a manifest says under `measured`: how far the loaded tower is from the live one, and what the index finds.

    Args:
      folder: of the version, with tower and index.
      candidates: whose vectors the index should find.
      held_out: users, with their vectors by the live model.
      demand: what the index has to hold.
      recall_k: results of the recall that stands for all.

    Raises:
      DataError: the tower cannot be served, or gives other vectors than the model; or a recall is too low.
    """
    foreign = foreign_ops(os.path.join(folder, MODEL_FILE))
    if foreign:
        raise DataError(f"the tower has ops that stock servers lack: {', '.join(foreign)}")
    intents = _by_loaded_tower(folder, held_out)
    difference = _difference(intents, held_out)
    index, _ = load_index(os.path.join(folder, INDEX_FOLDER))
    queries = intents.heaviest(held_out.served).queries()
    recalls = measured(index, candidates.searched, queries, demand, index.live)
    return {"users": len(intents.vectors), "parity_difference": difference} | gated(
        recalls, demand, recall_k, "the index as loaded")


def _by_loaded_tower(folder, held_out) -> Intents:
    """All intents of the held-out users by the SavedModel."""
    with readable_name(folder) as readable:
        predict = tf.saved_model.load(readable).signatures["serving_default"]
    _, count, width = held_out.intents.vectors.shape
    return concatenated([served(predict, request, count, count) for request in held_out.requests], count, width + 1)


def _difference(intents, held_out) -> float:
    """The largest difference from the live model's vectors, weights and numbers; `DataError` above `PARITY`."""
    live = dataclasses.replace(held_out.intents, vectors=with_coordinate(held_out.intents.vectors, 0.0))
    pairs = zip(*(dataclasses.astuple(part.by_number()) for part in (intents, live)))
    difference = float(np.max([np.abs(mine - theirs).max() for mine, theirs in pairs]))
    if not difference <= PARITY:  # NaN compares false
        raise DataError(f"loaded and live user vectors of {len(intents.vectors)} users differ by up to {difference}, "
                        f"more than {PARITY}: the model cannot be exported as it is")
    return difference
