"""An inverted-file index of faiss, which the benchmark of retrieval sets beside ours; nothing else needs faiss."""
import bisect
import math

from clrec_tf.retrieval.recall import recall_at_k
from clrec_tf.retrieval.recall import worst_scores

_TRAINED_ON = 250_000  # vectors, as our own index


class FaissIvf:
    """`search(vectors [N,d], k)` as in `retrieval.index`.

    Args:
      index: faiss' own.
      lists: in how many parts the items are.
      probes: how many of them are searched.
    """

    def __init__(self, index, lists: int, probes: int = 1):
        self._index, self.lists, self.probes = index, lists, probes

    @classmethod
    def build(cls, vectors) -> "FaissIvf":
        """Partitions float32 [V,d] into √V parts, compared by inner products. `ImportError` without faiss."""
        import faiss  # pylint: disable=import-outside-toplevel
        lists = round(math.sqrt(len(vectors)))
        index = faiss.index_factory(vectors.shape[1], f"IVF{lists},Flat", faiss.METRIC_INNER_PRODUCT)
        index.train(vectors[::max(1, len(vectors) // _TRAINED_ON)])
        index.add(vectors)
        return cls(index, lists)

    def tuned(self, vectors, queries, k: int, target_recall: float, worst=None) -> "FaissIvf":
        """The same index with the fewest parts searched that reach a recall; `worst` as for `recall_at_k`."""
        worst = worst_scores(vectors, queries, k) if worst is None else worst

        def reached(probes):
            return recall_at_k(FaissIvf(self._index, self.lists, probes), vectors, queries, k, worst=worst) >= (
                target_recall)
        counts = range(1, self.lists)
        return FaissIvf(self._index, self.lists, 1 + bisect.bisect_left(counts, True, key=reached))

    def search(self, vectors, k: int):
        """(positions int64 [N,k], scores float32 [N,k])."""
        import faiss  # pylint: disable=import-outside-toplevel
        scores, positions = self._index.search(vectors, k, params=faiss.SearchParametersIVF(nprobe=self.probes))
        return positions, scores
