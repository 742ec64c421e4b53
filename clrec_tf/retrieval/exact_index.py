"""Exact search, of the interface that `index` describes."""
import functools
import os

import numpy as np
import tensorflow as tf

from clrec_tf.models.top_k import top_k
from clrec_tf.retrieval.index import Index
from clrec_tf.retrieval.index import no_results

_VECTORS_FILE = "vectors.npy"
_SCORE_BYTES = 128 * 2**20


class ExactIndex(Index):
    """Brute force, in chunks of users. Args: vectors float32 [V,d]."""
    kind, is_exact = "exact", True

    def __init__(self, vectors: np.ndarray):
        self.size, self.parameters = len(vectors), {}
        self._vectors = tf.constant(vectors)

    @functools.cached_property
    def vectors(self) -> np.ndarray:
        """See `Index`; the memory that is searched, or one copy of it where that is on a GPU."""
        return np.asarray(self._vectors)

    def search(self, vectors: np.ndarray, k: int):
        """See `Index`; equal scores in the order of positions."""
        positions, scores = no_results(len(vectors), k)
        step, width = max(1, _SCORE_BYTES // (4 * self.size)), min(k, self.size)
        for start in range(0, len(vectors), step):
            chunk = slice(start, start + step)
            products = tf.matmul(vectors[chunk], self._vectors, transpose_b=True)
            positions[chunk, :width], scores[chunk, :width] = top_k(products, width)
        return positions, scores

    def save(self, folder: str) -> None:
        """Writes the vectors."""
        np.save(os.path.join(folder, _VECTORS_FILE), self._vectors.numpy(), allow_pickle=False)

    @classmethod
    def load(cls, folder: str, parameters: dict) -> "ExactIndex":
        """Reads what `save` wrote."""
        del parameters
        return cls(np.load(os.path.join(folder, _VECTORS_FILE), allow_pickle=False))
