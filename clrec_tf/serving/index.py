"""Nearest-neighbour indexes over item vectors: exact and ScaNN behind one interface, which `UpdatedIndex` has too.

An index answers `search(vectors [N,d], k) -> (positions int64 [N,k], scores float32 [N,k])`: the items of highest inner
product, best first; −1 and −inf where there are fewer than k. A zero vector, which an empty history has, gives the
first k positions with score 0. `is_exact`, `size`, `parameters`, `live` bool [size] (what can be found), `vectors`
float32 [size,d] as they are compared, not to be written to, and `save(folder)` complete it.
"""
import json
import os
import re

from google.protobuf import text_encoding
import numpy as np
import tensorflow as tf

from clrec_tf.data.schema import save_json
from clrec_tf.errors import DataError

INDEX_FILE = "index.json"
QUERIES_FILE = "queries.npy"
_VECTORS_FILE = "vectors.npy"
_SCANN_VECTORS_FILE = "dataset.npy"  # ScaNN's own copy, for the re-scoring
SMALLEST_SCANN = 16  # items; ScaNN's quantizer has 16 centres
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


class ScannIndex:
    """A partitioned index with quantized scoring, the best candidates re-scored in float32 (ScaNN).

    Args:
      searcher: ScaNN's.
      parameters: size; leaves, of the partition; leaves_to_search; reorder, candidates re-scored per item asked for.
      vectors: float32 [V,d], what it was built from.
    """
    kind, is_exact = "scann", False

    def __init__(self, searcher, parameters: dict, vectors: np.ndarray):
        self._searcher, self.parameters, self.size, self.vectors = searcher, parameters, parameters["size"], vectors

    @property
    def live(self) -> np.ndarray:
        """See the module."""
        return np.ones(self.size, bool)

    @classmethod
    def build(cls, vectors: np.ndarray, leaves: int, spherical: bool) -> "ScannIndex":
        """Partitions and quantizes vectors float32 [V,d]; `spherical` for l2-normalized ones. V ≥ 16."""
        searcher = built(_scann().builder(vectors, 10, "dot_product"), len(vectors), leaves, spherical)
        return cls(searcher, dict(size=len(vectors), leaves=leaves, leaves_to_search=leaves, reorder=4), vectors)

    def tuned(self, leaves_to_search: int, reorder: int) -> "ScannIndex":
        """The same index with other search parameters."""
        parameters = self.parameters | dict(leaves_to_search=leaves_to_search, reorder=reorder)
        return ScannIndex(self._searcher, parameters, self.vectors)

    def search(self, vectors: np.ndarray, k: int):
        """See the module. A user short of k items in the leaves searched is searched again in all leaves."""
        positions, scores = nothing_found(len(vectors), k)
        found, leaves = min(k, self.size), self.parameters["leaves"]
        # ScaNN cuts the result to the number re-scored, without a word.
        reorder = min(self.size, self.parameters["reorder"] * found)
        rows = np.arange(len(vectors))
        for leaves_to_search in (self.parameters["leaves_to_search"], leaves):
            if len(rows):
                near, near_scores = self._searcher.search_batched(vectors[rows], found, reorder, leaves_to_search)
                missing = np.isnan(near_scores)
                positions[rows, :found] = np.where(missing, -1, near.astype(np.int64))
                scores[rows, :found] = np.where(missing, -np.inf, near_scores)
                rows = rows[missing.any(axis=1)]
        empty = ~np.any(vectors, axis=1)
        positions[empty, :found], scores[empty, :found] = np.arange(found), 0
        return positions, scores

    def save(self, folder: str) -> None:
        """Writes ScaNN's files, which name each other by absolute paths, with bare names instead."""
        self._searcher.serialize(folder)
        path = os.path.join(folder, "scann_assets.pbtxt")
        with open(path, encoding="utf-8") as file:
            text = file.read()
        with open(path, "w", encoding="utf-8") as file:
            file.write(_with_asset_folder(text, ""))

    @classmethod
    def load(cls, folder: str, parameters: dict) -> "ScannIndex":
        """Reads what `save` wrote, wherever the folder is now; the files stay as they are."""
        scann = _scann()
        with open(os.path.join(folder, "scann_assets.pbtxt"), encoding="utf-8") as file:
            assets = _with_asset_folder(file.read(), os.path.abspath(folder))
        # Not load_searcher: it takes the paths as written, and unpickles document ids where it finds some.
        # Read, not mapped, though ScaNN has them in memory too, out of reach: whoever cuts a mapped file short ends the
        # process by a signal, at the next look at what is gone.
        vectors = np.load(os.path.join(folder, _SCANN_VECTORS_FILE), allow_pickle=False)
        return cls(scann.ScannSearcher(scann.scann_pybind.ScannNumpy(folder, assets)), parameters, vectors)


def kinds() -> dict:
    """The classes of indexes by their `kind`."""
    from clrec_tf.serving.updated_index import UpdatedIndex  # pylint: disable=import-outside-toplevel
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
    except (OSError, ValueError, KeyError, RuntimeError) as error:
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


def built(builder, size: int, leaves: int, spherical: bool):
    """What ScaNN's builder over `size` vectors builds: a partition, quantized scoring, and room to re-score."""
    return builder.tree(leaves, 1, training_sample_size=min(size, 250_000), spherical=spherical).score_ah(
        2, anisotropic_quantization_threshold=0.2).reorder(100).build()


def nothing_found(users: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Positions and scores [users,k] of a search that finds nothing."""
    return np.full((users, k), -1, np.int64), np.full((users, k), -np.inf, np.float32)


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
