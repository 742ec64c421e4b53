"""Indexes as folders: opens any kind by what index.json says of it, and keeps users beside it to measure updates on."""
import json
import os

import numpy as np

from clrec_tf.errors import DataError
from clrec_tf.retrieval.bundle_files import BASE_FOLDER
from clrec_tf.retrieval.bundle_files import INDEX_FILE
from clrec_tf.retrieval.bundle_files import QUERIES_FILE
from clrec_tf.retrieval.exact_index import ExactIndex
from clrec_tf.retrieval.faiss_index import FaissIndex
from clrec_tf.retrieval.index import Index
from clrec_tf.retrieval.scann_index import ScannIndex
from clrec_tf.retrieval.updated_index import UpdatedIndex
from clrec_tf.system.json_files import save_json

# Kinds that are not made of another index.
_WHOLE = {index.kind: index for index in (ExactIndex, ScannIndex, FaissIndex)}


def save_index(folder: str, index: Index, checkpoint_hash: str) -> None:
    """Writes an index and index.json into the new folder."""
    os.mkdir(folder)
    index.save(folder)
    save_facts(folder, index, checkpoint_hash)


def save_facts(folder: str, index: Index, checkpoint_hash: str) -> None:
    """Writes index.json alone, beside files that are there."""
    save_json(os.path.join(folder, INDEX_FILE),
              dict(kind=index.kind, checkpoint_hash=checkpoint_hash, size=index.size, parameters=index.parameters))


def load_index(folder: str) -> tuple[Index, str]:
    """Reads a folder of `save_index`: (index, checkpoint hash). `DataError` where it is damaged."""
    try:
        with open(os.path.join(folder, INDEX_FILE), encoding="utf-8") as file:
            facts = json.load(file)
        return _opened(folder, facts), facts["checkpoint_hash"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        raise DataError(f"{folder} holds no readable index ({error}): export again") from error


def _opened(folder, facts) -> Index:
    """The index of a folder; facts: its kind, size and parameters."""
    parameters = facts["parameters"]
    if facts["kind"] == UpdatedIndex.kind:
        index = UpdatedIndex.load(folder, _opened(os.path.join(folder, BASE_FOLDER), parameters["base"]))
    else:
        index = _WHOLE[facts["kind"]].load(folder, parameters)
    if index.size != facts["size"]:
        raise ValueError(f"{index.size} vectors, {INDEX_FILE} says {facts['size']}")
    return index


def save_queries(folder: str, queries: np.ndarray) -> None:
    """Keeps vectors float32 [N,d] of held-out users beside an index, so that its updates can be measured on them."""
    np.save(os.path.join(folder, QUERIES_FILE), queries, allow_pickle=False)


def load_queries(folder: str) -> np.ndarray:
    """Reads what `save_queries` wrote. `DataError` where it is missing or damaged."""
    path = os.path.join(folder, QUERIES_FILE)
    try:
        return np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}, the vectors of held-out users on whom recall is measured, cannot be read ({error}): "
                        "export again") from error
