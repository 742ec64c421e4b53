"""Nearest-neighbour indexes over item vectors: exact and ScaNN behind one interface, which `UpdatedIndex` has too.

An index answers `search(vectors [N,d], k) -> (positions int64 [N,k], scores float32 [N,k])`: the items of highest inner
product, best first; −1 and −inf where there are fewer than k. A zero vector, which an empty history has, gives the
first k positions with score 0. `is_exact`, `size`, `parameters`, `live` bool [size] (what can be found), `vectors`
float32 [size,d] as they are compared, not to be written to, and `save(folder)` complete it.
"""
import json
import os

import numpy as np
import tensorflow as tf

from clrec_tf.data.schema import save_json
from clrec_tf.errors import DataError
from clrec_tf.retrieval.nothing_found import nothing_found
from clrec_tf.retrieval.scann_index import ScannIndex

INDEX_FILE = "index.json"
QUERIES_FILE = "queries.npy"
_VECTORS_FILE = "vectors.npy"
_SCORE_BYTES = 128 * 2**20


class ExactIndex:
    """Brute force, in chunks of users. Args: vectors float32 [V,d]."""
    kind, is_exact = "exact", True

    def __init__(self, vectors: np.ndarray):
        self.size, self.parameters = len(vectors), {}
        self._vectors = tf.constant(vectors)

    @property
    def live(self) -> np.ndarray:
        """See the module."""
        return np.ones(self.size, bool)

    @property
    def vectors(self) -> np.ndarray:
        """See the module; the memory that is searched, not a copy of it."""
        return np.asarray(self._vectors)

    def search(self, vectors: np.ndarray, k: int):
        """See the module; equal scores in the order of positions."""
        positions, scores = nothing_found(len(vectors), k)
        step, found = max(1, _SCORE_BYTES // (4 * self.size)), min(k, self.size)
        for start in range(0, len(vectors), step):
            chunk = slice(start, start + step)
            best = tf.math.top_k(tf.matmul(vectors[chunk], self._vectors, transpose_b=True), found)
            scores[chunk, :found], positions[chunk, :found] = best.values, best.indices
        return positions, scores

    def save(self, folder: str) -> None:
        """Writes the vectors."""
        np.save(os.path.join(folder, _VECTORS_FILE), self._vectors.numpy(), allow_pickle=False)

    @classmethod
    def load(cls, folder: str, parameters: dict) -> "ExactIndex":
        """Reads what `save` wrote."""
        del parameters
        return cls(np.load(os.path.join(folder, _VECTORS_FILE), allow_pickle=False))


def kinds() -> dict:
    """The classes of indexes by their `kind`."""
    from clrec_tf.retrieval.updated_index import UpdatedIndex  # pylint: disable=import-outside-toplevel
    return {index.kind: index for index in (ExactIndex, ScannIndex, UpdatedIndex)}  # the last is made of the others


def save_index(folder: str, index, checkpoint_hash: str) -> None:
    """Writes an index and index.json into the new folder."""
    os.mkdir(folder)
    index.save(folder)
    save_facts(folder, index, checkpoint_hash)


def save_facts(folder: str, index, checkpoint_hash: str) -> None:
    """Writes index.json alone, beside files that are there."""
    save_json(os.path.join(folder, INDEX_FILE),
              dict(kind=index.kind, checkpoint_hash=checkpoint_hash, size=index.size, parameters=index.parameters))


def load_index(folder: str):
    """Reads a folder of `save_index`: (index, checkpoint hash). `DataError` where it is damaged."""
    try:
        with open(os.path.join(folder, INDEX_FILE), encoding="utf-8") as file:
            facts = json.load(file)
        index = kinds()[facts["kind"]].load(folder, facts["parameters"])
        if index.size != facts["size"]:
            raise ValueError(f"{index.size} vectors, {INDEX_FILE} says {facts['size']}")
        return index, facts["checkpoint_hash"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        raise DataError(f"{folder} holds no readable index ({error}): export again") from error


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
