"""An index of faiss, of the interface that `index` describes: where ScaNN is not made for the machine."""
import os

import numpy as np

from clrec_tf.errors import DataError
from clrec_tf.retrieval.partitioned_index import PartitionedIndex
from clrec_tf.retrieval.partitioned_index import saved_head

_TRAINED_ON = 250_000  # vectors, as of ScaNN
_INDEX_FILE = "faiss.index"


class FaissIndex(PartitionedIndex):
    """faiss' inverted lists of whole float32 vectors: what is in the parts searched is scored exactly, so no candidate
    is re-scored."""
    kind = "faiss"

    @staticmethod
    def _built(vectors, leaves, spherical):
        faiss = _faiss()
        index = faiss.index_factory(vectors.shape[1], f"IVF{leaves},Flat", faiss.METRIC_INNER_PRODUCT)
        index.cp.spherical, index.cp.min_points_per_centroid = spherical, 1
        index.train(vectors[::max(1, len(vectors) // _TRAINED_ON)])
        index.add(vectors)
        return index

    def _nearest(self, vectors, k, leaves, reorder):
        del reorder
        scores, positions = self._searcher.search(np.ascontiguousarray(vectors, np.float32), k,
                                                  params=_faiss().SearchParametersIVF(nprobe=leaves))
        return positions, np.where(positions < 0, -np.inf, scores)

    def save(self, folder: str) -> None:
        """Writes faiss' file, which holds the vectors too."""
        _faiss().write_index(self._searcher, os.path.join(folder, _INDEX_FILE))
        super().save(folder)

    @classmethod
    def load(cls, folder: str, parameters: dict) -> "FaissIndex":
        """Reads what `save` wrote."""
        index = _faiss().read_index(os.path.join(folder, _INDEX_FILE))
        index.make_direct_map()
        return cls(index, parameters, index.reconstruct_n(0, index.ntotal), saved_head(folder))


def _faiss():
    """faiss; imported when needed, since other indexes do without it."""
    try:
        import faiss  # pylint: disable=import-outside-toplevel
    except ImportError as error:
        raise DataError(f"this index needs the package faiss-cpu, which does not load ({error}): install "
                        "clrec_tf[faiss], or choose --index=exact") from error
    return faiss
