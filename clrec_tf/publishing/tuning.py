"""Chooses an index for a catalogue and raises its search effort until recall against exact search is high enough: for
every number of results that may be asked for, and at every popularity that is offered."""
import importlib.util
import math

from absl import logging
import numpy as np

from clrec_tf.errors import UserError
from clrec_tf.retrieval import efforts
from clrec_tf.retrieval.exact_index import ExactIndex
from clrec_tf.retrieval.faiss_index import FaissIndex
from clrec_tf.retrieval.recall import best_scores
from clrec_tf.retrieval.recall import Demand
from clrec_tf.retrieval.recall import recall_at_k
from clrec_tf.retrieval.recall import recall_of_each
from clrec_tf.retrieval.scann_index import ScannIndex

EXACT_BELOW = 20_000  # items; below, exact search is as fast as ScaNN
_SMALLEST_HEAD = 1000  # most popular items that are scored exactly beside ScaNN, at least
# Share of the leaves searched, and candidates re-scored per item asked for: neither falls, so recall rises. Of what was
# measured with 10⁵ and 10⁶ clustered vectors these are close to the cheapest for each recall; the fourth is the first
# to reach .95 with 10⁶, the tenth with 10⁵.
_EFFORTS = ((1 / 100, 3), (3 / 200, 4), (1 / 50, 4), (3 / 100, 4), (1 / 20, 4), (1 / 20, 5), (1 / 20, 6), (3 / 40, 6),
            (1 / 10, 6), (3 / 20, 6), (1 / 5, 6), (1 / 5, 8), (3 / 10, 8), (1 / 2, 12), (1, 16), (1, 32))
_SURE = 2  # standard errors
_PARTITIONED = {index.kind: index for index in (ScannIndex, FaissIndex)}  # by preference


def usual_head(size: int) -> int:
    """Most popular items of so many that are scored exactly.

    With 10⁶ items and k = 200, 1,000 were too few at popularity 1 (recall .945 where the vectors alone had
    .972), and 2,000 cost .02 ms.
    """
    return min(size, max(_SMALLEST_HEAD, 2 * round(math.sqrt(size))))


def usual_leaves(size: int) -> int:
    """Leaves of the partition of so many items."""
    return round(math.sqrt(size))


def build_index(kind: str, vectors: np.ndarray, queries: np.ndarray, demand: Demand, normalized: bool,
                head: int = 0):
    """Builds the index of a catalogue.

    Args:
      kind: "exact", "scann", "faiss" or "auto": exact below `EXACT_BELOW` items, else the first of the others whose
        package is installed.
      vectors: float32 [V,d].
      queries: float32 [N,d], vectors of users that were not trained on; random ones would say nothing.
      demand: what it has to hold.
      normalized: whether `vectors` are l2-normalized, but for the dial's coordinate.
      head: see `PartitionedIndex.build`.

    Raises:
      UserError: the target is not reached with the highest effort, or the catalogue is too small.
    """
    size = len(vectors)
    if kind == "auto":
        kind = _usual_kind(size)
    if kind == "exact":
        return ExactIndex(vectors)
    partitioned = _PARTITIONED[kind]
    if size < partitioned.smallest:
        raise UserError(f"--index={kind} needs at least {partitioned.smallest} items, the catalogue has {size}: use "
                        "--index=exact")
    index = partitioned.build(vectors, usual_leaves(size), spherical=normalized, head=head)
    return cheapest(index, vectors, queries, demand)


def _usual_kind(size: int) -> str:
    """The kind of --index=auto for so many items."""
    if size < EXACT_BELOW:
        return ExactIndex.kind
    installed = [kind for kind in _PARTITIONED if importlib.util.find_spec(kind)]
    if not installed:
        logging.warning("neither ScaNN nor faiss is installed: the %d items are searched exactly; install "
                        "clrec_tf[faiss] to answer faster", size)
    return installed[0] if installed else ExactIndex.kind


def cheapest(index, vectors: np.ndarray, queries: np.ndarray, demand: Demand):
    """The index with, for each k, the lowest of `_EFFORTS` that reaches the target at every popularity.

    It must be reached by `_SURE` standard errors more, so that other users have it too; but for the highest effort.

    Args:
      index: with `tuned` and `search`, such as a `PartitionedIndex`.
      vectors, queries: see `build_index`.
      demand: see there.
    """
    by_popularity, guess = {}, len(_EFFORTS) // 2
    for popularity, users in demand.queries(queries).items():
        best, rows = best_scores(vectors, users, demand.ks[-1]), []
        for k in demand.ks:
            worst = best[:, k - 1]
            enough = lambda step, users=users, k=k, worst=worst, popularity=popularity: _enough(
                index, step, vectors, users, worst, k, popularity, demand.target_recall)
            step = _lowest(enough, len(_EFFORTS), guess)
            if step is None:
                _out_of_reach(index, vectors, users, worst, k, popularity, demand)
            guess = step
            rows.append((k, *_effort(index, step, k)))
        by_popularity[popularity] = rows
    return index.tuned(efforts.tables(by_popularity))


def _lowest(enough, count, guess):
    """The lowest of `count` steps that is enough, of which all higher ones are too; None where none is.

    It is looked for from a guess on: neighbouring k need much the same.
    """
    low, high = 0, count  # all below `low` are too little; `high` is enough, if it is below `count`
    middle, pace = guess, 1
    while low < high:
        if enough(middle):
            high, middle = middle, middle - pace
        else:
            low, middle = middle + 1, middle + pace
        pace *= 2
        if not low <= middle < high:
            middle = (low + high) // 2
    return low if low < count else None


def _effort(index, step, k):
    """(leaves to search, candidates re-scored) of a step of `_EFFORTS`."""
    share, per_result = _EFFORTS[step]
    leaves, size = index.parameters["leaves"], index.parameters["size"]
    return max(1, round(share * leaves)), min(size, efforts.candidates(per_result, k))


def _enough(index, step, vectors, users, worst, k, popularity, target_recall):
    tried = index.tuned(efforts.table([(k, *_effort(index, step, k))]))
    recalls = recall_of_each(tried, vectors, users, k, worst=worst)
    recall, error = float(recalls.mean()), float(recalls.std() / math.sqrt(len(recalls)))
    leaves, reorder = efforts.at(tried.parameters, k)
    logging.info("%d of %d leaves, %d candidates re-scored, popularity %g: recall@%d %.4f ± %.4f against exact search",
                 leaves, tried.parameters["leaves"], reorder, popularity, k, recall, error)
    return recall >= target_recall + (_SURE * error if step < len(_EFFORTS) - 1 else 0)


def _out_of_reach(index, vectors, users, worst, k, popularity, demand):
    """Raises the `UserError` of a target that the highest effort does not reach."""
    tried = index.tuned(efforts.table([(k, *_effort(index, len(_EFFORTS) - 1, k))]))
    recall = recall_at_k(tried, vectors, users, k, worst=worst)
    at = f" at popularity {popularity:g}" if len(demand.popularities) > 1 else ""
    raise UserError(f"--target_recall={demand.target_recall}: the index reaches recall@{k} = {recall:.4f}{at} with its "
                    "highest effort; use --index=exact, or lower the target")
