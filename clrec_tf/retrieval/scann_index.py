"""An index of ScaNN, of the interface that `index` describes."""
import os
import re

from google.protobuf import text_encoding
import numpy as np

from clrec_tf.errors import DataError
from clrec_tf.models.top_k import top_k
from clrec_tf.retrieval import efforts
from clrec_tf.retrieval.index import Index
from clrec_tf.retrieval.index import no_results

SMALLEST_SCANN = 16  # items; ScaNN's quantizer has 16 centres
_VECTORS_FILE = "dataset.npy"  # ScaNN's own copy, for the re-scoring
_HEAD_FILE = "head.npy"


class ScannIndex(Index):
    """ScaNN's partitioned index with quantized scoring; the best candidates are re-scored in float32, the head exactly.

    The head are the items of the highest last coordinate, which in a bundle is that of the dial: the most popular. They
    lie far from the centres of the partition, and a query that puts popularity back would miss them there; scored
    exactly, they cost some microseconds, and recall is the same at every popularity.

    Args:
      searcher: ScaNN's, over all items.
      parameters: size; leaves, of the partition; and the search effort, see `efforts`.
      vectors: float32 [V,d], what it was built from.
      head: int64 [M] positions, ascending.
    """
    kind, is_exact = "scann", False

    def __init__(self, searcher, parameters: dict, vectors: np.ndarray, head: np.ndarray):
        self._searcher, self.parameters, self.size, self._vectors = searcher, parameters, parameters["size"], vectors
        self._head = head
        self._head_vectors = np.ascontiguousarray(vectors[self._head])
        self._place_in_head = np.full(self.size + 1, -1, np.int32)  # the last is that of "none", −1
        self._place_in_head[self._head] = np.arange(len(self._head))

    @property
    def vectors(self) -> np.ndarray:
        """See `Index`."""
        return self._vectors

    @classmethod
    def build(cls, vectors: np.ndarray, leaves: int, spherical: bool, head: int = 0) -> "ScannIndex":
        """Partitions and quantizes vectors float32 [V,d]; `spherical` for l2-normalized ones. V ≥ 16.

        `head`: items of the highest last coordinate that are scored exactly; 0 where it is a coordinate like others.
        """
        searcher = built(_scann().builder(vectors, 10, "dot_product"), len(vectors), leaves, spherical)
        return cls(searcher, dict(size=len(vectors), leaves=leaves, **efforts.uniform(leaves, 4)), vectors,
                   head_of(vectors, head))

    def tuned(self, effort: dict) -> "ScannIndex":
        """The same index with another search effort, see `efforts`."""
        facts = {name: self.parameters[name] for name in ("size", "leaves")}
        return ScannIndex(self._searcher, facts | effort, self.vectors, self._head)

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
                near, near_scores = self._searcher.search_batched(vectors[rows], width, reorder, leaves_to_search)
                missing = np.isnan(near_scores)
                positions[rows, :width] = np.where(missing, -1, near.astype(np.int64))
                scores[rows, :width] = np.where(missing, -np.inf, near_scores)
                rows = rows[missing.any(axis=1)]
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
        """Writes ScaNN's files, which name each other by absolute paths, with bare names instead."""
        self._searcher.serialize(folder)
        path = os.path.join(folder, "scann_assets.pbtxt")
        with open(path, encoding="utf-8") as file:
            text = file.read()
        with open(path, "w", encoding="utf-8") as file:
            file.write(_with_asset_folder(text, ""))
        np.save(os.path.join(folder, _HEAD_FILE), self._head, allow_pickle=False)

    @classmethod
    def load(cls, folder: str, parameters: dict) -> "ScannIndex":
        """Reads what `save` wrote, wherever the folder is now; the files stay as they are."""
        scann = _scann()
        with open(os.path.join(folder, "scann_assets.pbtxt"), encoding="utf-8") as file:
            assets = _with_asset_folder(file.read(), os.path.abspath(folder))
        # Not load_searcher: it takes the paths as written, and unpickles document ids where it finds some.
        # Read, not mapped, though ScaNN has them in memory too, out of reach: whoever cuts a mapped file short ends the
        # process by a signal, at the next look at what is gone.
        vectors = np.load(os.path.join(folder, _VECTORS_FILE), allow_pickle=False)
        path = os.path.join(folder, _HEAD_FILE)  # not in indexes of before the dial
        head = np.load(path, allow_pickle=False) if os.path.exists(path) else np.zeros(0, np.int64)
        return cls(scann.ScannSearcher(scann.scann_pybind.ScannNumpy(folder, assets)), parameters, vectors, head)


def built(builder, size: int, leaves: int, spherical: bool):
    """What ScaNN's builder over `size` vectors builds: a partition, quantized scoring, and room to re-score."""
    return builder.tree(leaves, 1, training_sample_size=min(size, 250_000), spherical=spherical).score_ah(
        2, anisotropic_quantization_threshold=0.2).reorder(100).build()


def head_of(vectors: np.ndarray, count: int) -> np.ndarray:
    """Positions of the `count` items of the highest last coordinate, ascending: [V,d] -> int64 [count]."""
    last = np.asarray(vectors[:, -1])
    return np.sort(top_k(last, count)[0]).astype(np.int64)


def _with_asset_folder(text, folder):
    """A scann_assets.pbtxt whose files lie in `folder`."""
    def moved(match):
        name = os.path.basename(text_encoding.CUnescape(match.group(1)).decode())
        return f'asset_path: "{text_encoding.CEscape(os.path.join(folder, name).encode(), as_utf8=False)}"'
    return re.sub(r'asset_path: "((?:[^"\\]|\\.)*)"', moved, text)


def _scann():
    """ScaNN's NumPy interface; imported when needed, since small catalogues do without it."""
    try:
        from scann.scann_ops.py import scann_ops_pybind  # pylint: disable=import-outside-toplevel
    except ImportError as error:
        raise DataError(f"this index needs the package scann, which does not load ({error}): install the versions of "
                        "constraints.txt, or export with --index=exact") from error
    return scann_ops_pybind
