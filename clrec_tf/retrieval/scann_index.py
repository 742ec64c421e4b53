"""An index of ScaNN, of the interface that `index` describes."""
import os
import re

from google.protobuf import text_encoding
import numpy as np

from clrec_tf.errors import DataError
from clrec_tf.retrieval.partitioned_index import PartitionedIndex
from clrec_tf.retrieval.partitioned_index import saved_head

SMALLEST_SCANN = 16  # items; ScaNN's quantizer has 16 centres
_VECTORS_FILE = "dataset.npy"  # ScaNN's own copy, for the re-scoring


class ScannIndex(PartitionedIndex):
    """ScaNN's partitioned index with quantized scoring; the best candidates are re-scored in float32."""
    kind, smallest = "scann", SMALLEST_SCANN

    @staticmethod
    def _built(vectors, leaves, spherical):
        return built(_scann().builder(vectors, 10, "dot_product"), len(vectors), leaves, spherical)

    def _nearest(self, vectors, k, leaves, reorder):
        positions, scores = self._searcher.search_batched(vectors, k, reorder, leaves)
        missing = np.isnan(scores)
        return np.where(missing, -1, positions.astype(np.int64)), np.where(missing, -np.inf, scores)

    def save(self, folder: str) -> None:
        """Writes ScaNN's files, which name each other by absolute paths, with bare names instead."""
        self._searcher.serialize(folder)
        path = os.path.join(folder, "scann_assets.pbtxt")
        with open(path, encoding="utf-8") as file:
            text = file.read()
        with open(path, "w", encoding="utf-8") as file:
            file.write(_with_asset_folder(text, ""))
        super().save(folder)

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
        return cls(scann.ScannSearcher(scann.scann_pybind.ScannNumpy(folder, assets)), parameters, vectors,
                   saved_head(folder))


def built(builder, size: int, leaves: int, spherical: bool):
    """What ScaNN's builder over `size` vectors builds: a partition, quantized scoring, and room to re-score."""
    return builder.tree(leaves, 1, training_sample_size=min(size, 250_000), spherical=spherical).score_ah(
        2, anisotropic_quantization_threshold=0.2).reorder(100).build()


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
        raise DataError(f"this index needs the package scann, which does not load ({error}): install the version of "
                        "constraints.txt (with TensorFlow 2.20 constraints-tf220.txt), or export with --index=faiss "
                        "or exact") from error
    return scann_ops_pybind
