"""What indexes of a partition share, of the interface that `index` describes: ScaNN's and faiss'."""
import abc
import os

import numpy as np

from clrec_tf.models.top_k import top_k
from clrec_tf.retrieval import efforts
from clrec_tf.retrieval.index import Index
from clrec_tf.retrieval.index import no_results

_HEAD_FILE = "head.npy"


class PartitionedIndex(Index):
    """The nearest items of some parts of the catalogue; the head exactly.

    The head are the items of the highest last coordinate, which in a bundle is that of the dial: the most popular. They
    lie far from the centres of the partition, and a query that puts popularity back would miss them there; scored
    exactly, they cost some microseconds, and recall is the same at every popularity.

    Args:
      searcher: the library's, over all items.
      parameters: size; leaves, of the partition; and the search effort, see `efforts`.
      vectors: float32 [V,d], what it was built from.
      head: int64 [M] positions, ascending.
    """
    is_exact = False
    smallest = 1  # items, below which the library cannot build one

    def __init__(self, searcher, parameters: dict, vectors: np.ndarray, head: np.ndarray):
        self._searcher, self.parameters, self.size, self._vectors = searcher, parameters, parameters["size"], vectors
        self._head = head
        self._head_vectors = np.ascontiguousarray(vectors[self._head])
        self._place_in_head = np.full(self.size + 1, -1, np.int32)  # the last is that of "none", −1
        self._place_in_head[self._head] = np.arange(len(self._head))

    @classmethod
    def build(cls, vectors: np.ndarray, leaves: int, spherical: bool, head: int = 0) -> "PartitionedIndex":
        """Partitions vectors float32 [V,d]; `spherical` for l2-normalized ones. V ≥ `smallest`.

        `head`: items of the highest last coordinate that are scored exactly; 0 where it is a coordinate like others.
        """
        return cls(cls._built(vectors, leaves, spherical),
                   dict(size=len(vectors), leaves=leaves, **efforts.uniform(leaves, 4)), vectors,
                   head_of(vectors, head))

    @staticmethod
    @abc.abstractmethod
    def _built(vectors, leaves, spherical):
        """The library's searcher over vectors."""

    @abc.abstractmethod
    def _nearest(self, vectors, k, leaves, reorder):
        """(positions [N,k], −1 for none; scores [N,k], −inf there) of the `leaves` nearest parts, of which `reorder`
        candidates are re-scored."""

    @property
    def vectors(self) -> np.ndarray:
        """See `Index`."""
        return self._vectors

    def tuned(self, effort: dict) -> "PartitionedIndex":
        """The same index with another search effort, see `efforts`."""
        facts = {name: self.parameters[name] for name in ("size", "leaves")}
        return type(self)(self._searcher, facts | effort, self.vectors, self._head)

    def search(self, vectors: np.ndarray, k: int):
        """See `Index`. A user short of k items in the leaves searched is searched again in all leaves."""
        positions, scores = no_results(len(vectors), k)
        width, leaves = min(k, self.size), self.parameters["leaves"]
        turned = vectors[:, -1]
        bounds = (float(turned.min()), float(turned.max())) if len(self._head) and len(vectors) else None
        few, reorder = efforts.at(self.parameters, width, bounds)
        rows = np.arange(len(vectors))
        for leaves_to_search in (few, leaves):
            if len(rows):
                near, near_scores = self._nearest(vectors[rows], width, leaves_to_search, reorder)
                positions[rows, :width], scores[rows, :width] = near, near_scores
                rows = rows[(near < 0).any(axis=1)]
        # Where popularity is not put back, popular items are as near to the centres of the partition as others.
        if bounds and bounds[1] > 0:
            rows = np.flatnonzero(turned > 0)
            everybody = len(rows) == len(vectors)
            near, near_scores = (part[:, :width] if everybody else part[rows, :width] for part in (positions, scores))
            self._add_head(vectors if everybody else vectors[rows], near, near_scores)
            if not everybody:
                positions[rows, :width], scores[rows, :width] = near, near_scores
        empty = ~np.any(vectors, axis=1)
        positions[empty, :width], scores[empty, :width] = np.arange(width), 0
        return positions, scores

    def _add_head(self, vectors, positions, scores):
        """Puts the head's exact scores into results [N,n], in place."""
        of_head = vectors @ self._head_vectors.T
        # Those that the partition found keep their places, whatever it made of their scores.
        rows, columns = np.nonzero(self._place_in_head[positions] >= 0)
        places = self._place_in_head[positions[rows, columns]]
        scores[rows, columns] = of_head[rows, places]
        there = np.zeros(of_head.shape, bool)
        there[rows, places] = True
        # Of the others what is worse than the n-th does not matter.
        rows, columns = np.nonzero((of_head > scores.min(axis=1, keepdims=True)) & ~there)
        counts = np.bincount(rows, minlength=len(vectors))
        added, added_scores = no_results(len(vectors), counts.max(initial=0))
        places = np.arange(len(rows)) - (np.cumsum(counts) - counts)[rows]
        added[rows, places], added_scores[rows, places] = self._head[columns], of_head[rows, columns]
        both = np.concatenate([scores, added_scores], axis=1)
        order = np.argsort(-both, axis=1, kind="stable")[:, :positions.shape[1]]
        positions[:] = np.take_along_axis(np.concatenate([positions, added], axis=1), order, axis=1)
        scores[:] = np.take_along_axis(both, order, axis=1)

    def save(self, folder: str) -> None:
        """Writes the positions of the head; the library's files are its class'."""
        np.save(os.path.join(folder, _HEAD_FILE), self._head, allow_pickle=False)


def saved_head(folder: str) -> np.ndarray:
    """The head that `PartitionedIndex.save` wrote, int64 [M]."""
    path = os.path.join(folder, _HEAD_FILE)  # not in indexes of before the dial
    return np.load(path, allow_pickle=False) if os.path.exists(path) else np.zeros(0, np.int64)


def head_of(vectors: np.ndarray, count: int) -> np.ndarray:
    """Positions of the `count` items of the highest last coordinate, ascending: [V,d] -> int64 [count]."""
    last = np.asarray(vectors[:, -1])
    return np.sort(top_k(last, count)[0]).astype(np.int64)
