"""A ScaNN index of TensorFlow operations, for models that search inside their graph, and its parts as functions."""
import numpy as np
import tensorflow as tf

from clrec_tf.errors import DataError
from clrec_tf.publishing.tuning import usual_leaves
from clrec_tf.retrieval import efforts
from clrec_tf.retrieval.partitioned_index import head_of
from clrec_tf.retrieval.scann_index import built


class OpsIndex:
    """A ScaNN index of TensorFlow operations, whose search effort is found as that of a `ScannIndex` is.

    Args:
      searcher: ScaNN's.
      parameters: size, leaves, and the search effort, see `efforts`.
      head: int64 [M] positions, ascending; head_vectors: float32 [M,d].
    """

    def __init__(self, searcher, parameters: dict, head: np.ndarray, head_vectors: np.ndarray):
        self.searcher, self.parameters, self.head, self.head_vectors = searcher, parameters, head, head_vectors

    @classmethod
    def build(cls, vectors: np.ndarray, spherical: bool, head: int) -> "OpsIndex":
        """Partitions and quantizes vectors float32 [V,d], and takes a head out, as `ScannIndex.build` does."""
        leaves, places = usual_leaves(len(vectors)), head_of(vectors, head)
        searcher = built(scann_ops().builder(tf.constant(vectors), 10, "dot_product"), len(vectors), leaves, spherical)
        return cls(searcher, dict(size=len(vectors), leaves=leaves, **efforts.uniform(leaves, 4)), places,
                   vectors[places])

    def tuned(self, effort: dict) -> "OpsIndex":
        """The same index with another search effort, see `efforts`."""
        facts = {name: self.parameters[name] for name in ("size", "leaves")}
        return OpsIndex(self.searcher, facts | effort, self.head, self.head_vectors)

    def search(self, vectors: np.ndarray, k: int):
        """See `Index.search`; k at most V."""
        rows, scores = nearest(self.searcher, tf.constant(vectors), tf.constant(k), self.parameters)
        rows, scores = with_head(rows, scores, tf.constant(vectors), tf.constant(self.head, tf.int32),
                                 tf.constant(self.head_vectors))
        scores, rows, _ = best_of_each(scores, rows, tf.zeros_like(rows), k)
        return tf.where(tf.math.is_inf(scores), -1, rows).numpy().astype(np.int64), scores.numpy()


def nearest(searcher, queries, wanted, parameters):
    """([N,wanted] int32 rows, −1 where fewer are found; their scores, −inf there) of queries [N,d].

    Where the leaves searched hold too few, all are searched.
    """
    few, reorder = _effort(parameters, wanted)
    search = lambda leaves: tuple(tf.ensure_shape(part, [None, None]) for part in searcher.search_batched(
        queries, wanted, reorder, leaves))
    rows, scores = search(few)
    short = tf.reduce_any(tf.math.is_nan(scores)) | (tf.shape(scores)[1] < wanted)
    rows, scores = tf.cond(short, lambda: search(parameters["leaves"]), lambda: (rows, scores))
    missing = [[0, 0], [0, wanted - tf.shape(scores)[1]]]
    rows, scores = tf.pad(rows, missing), tf.pad(scores, missing, constant_values=float("nan"))
    none = tf.math.is_nan(scores)
    rows, scores = tf.where(none, -1, rows), tf.where(none, float("-inf"), scores)
    empty = ~tf.reduce_any(queries != 0, axis=1, keepdims=True)  # the most popular items, with score 0
    return tf.where(empty, tf.range(wanted)[None], rows), tf.where(empty, 0.0, scores)


def _effort(parameters, wanted):
    """`efforts.at` inside a graph, at any popularity: (leaves to search, candidates re-scored) for `wanted` results."""
    # ScaNN cuts the result to the number re-scored, without a word.
    size, leaves = parameters["size"], parameters["leaves"]
    if "effort" not in parameters:
        per_result = parameters["reorder"]
        return (tf.constant(parameters["leaves_to_search"]),
                tf.minimum(per_result * tf.maximum(wanted, efforts.SMALLEST), size))
    columns = [tf.constant(column, tf.float64) for column in zip(*parameters["effort"])]
    k = tf.cast(wanted, tf.float64)
    after = tf.minimum(tf.searchsorted(columns[0], k[None])[0], len(parameters["effort"]) - 1)
    before = tf.maximum(after - 1, 0)
    low, high = columns[0][before], columns[0][after]
    share = tf.where(high > low, (k - low) / tf.maximum(high - low, 1), 1.0)
    continued, last = k > columns[0][-1], columns[0][-1]
    few, reorder = (tf.cast(tf.math.ceil(tf.where(continued, column[-1] * k / last, tf.where(
        k <= columns[0][0], column[0], column[before] + share * (column[after] - column[before])))), tf.int32)
                    for column in columns[1:])
    far = k > efforts.GROWTH * last
    return (tf.minimum(tf.where(far, leaves, few), leaves),
            tf.minimum(tf.maximum(tf.where(far, efforts.BEYOND * wanted, reorder), wanted), size))


def with_head(rows, scores, queries, head, head_vectors):
    """Results [N,n] and behind them the head [N,n+M] with exact scores; of users without a vector, none of it.

    Rows that stand twice are left to `best_of_each`.

    Args:
      rows, scores: of `nearest`.
      queries: [N,d].
      head: int32 [M] rows; head_vectors: [M,d].
    """
    of_head = tf.matmul(queries, head_vectors, transpose_b=True)
    empty = ~tf.reduce_any(queries != 0, axis=1, keepdims=True)
    added = tf.broadcast_to(head[None], tf.shape(of_head))
    return (tf.concat([rows, tf.where(empty, -1, added)], axis=1),
            tf.concat([scores, tf.where(empty, float("-inf"), of_head)], axis=1))


def among(rows, excluded):
    """Whether each of rows int32 [B,N] is one of the same user's `excluded` int32 [B,E], E may be 0: bool [B,N]."""
    ascending = tf.sort(tf.pad(excluded, [[0, 0], [0, 1]], constant_values=-1), axis=1)
    places = tf.minimum(tf.searchsorted(ascending, rows), tf.shape(ascending)[1] - 1)
    return tf.gather(ascending, places, batch_dims=1) == rows


def best_of_each(scores, rows, columns, count):
    """The highest score of each row, then the `count` rows of highest score, among equals the lowest.

    Args:
      scores: [B,M], −inf for entries that do not count.
      rows, columns: int32 [B,M], item (−1 for none) and intent of each.
      count: scalar, at most M.

    Returns:
      ([B,count] scores; rows, 0 for none; columns).
    """
    parts = _ordered((scores, rows, columns), by=0, direction="DESCENDING")
    scores, rows, columns = _ordered(parts, by=1, direction="ASCENDING")  # stable: of a row the first is the highest
    again = tf.pad(rows[:, 1:] == rows[:, :-1], [[0, 0], [1, 0]])
    scores, places = tf.math.top_k(tf.where(again, float("-inf"), scores), count)
    return scores, tf.maximum(tf.gather(rows, places, batch_dims=1), 0), tf.gather(columns, places, batch_dims=1)


def _ordered(parts, by, direction):
    order = tf.argsort(parts[by], direction=direction, stable=True)
    return tuple(tf.gather(part, order, batch_dims=1) for part in parts)


def scann_ops():
    """ScaNN's TensorFlow operations, registered by being imported; needed by this module alone."""
    try:
        from scann.scann_ops.py import scann_ops as ops  # pylint: disable=import-outside-toplevel
    except ImportError as error:
        raise DataError(f"--scann_export_dir needs the package scann, which does not load ({error}): install the "
                        "version of constraints.txt (with TensorFlow 2.20 constraints-tf220.txt), or leave the flag "
                        "out") from error
    return ops
