"""Ranks of the targets among the candidates of each protocol, and the recommended lists, in one pass over the users.

Candidate sets:
  full        every item of the catalogue; with `filter_seen` without the items of the user's history. A target stays a
              candidate even where the user clicked it before, so that a repeated click can be a hit; such a target
              meets fewer rivals of its own kind than at serving, where it would be filtered. Lists never see the
              targets: `filter_seen` removes the whole history from them. `report` gives the hit rates of users whose
              next click is new to them apart from those whose next click is repeated.
  pop100, uniform100   the next click and 100 negatives, see `sampled_negatives.py`.

A scorer is a function `score_chunk(start, stop) -> float [stop-start,V]`: scores of users start..stop-1 for items
1..V (item i in column i - 1). Every model, most-popular included, goes through it. A target's score is read from that
same matrix, never computed a second time: two roundings of one score would break its ties.
"""
import dataclasses
import functools
from typing import Callable
from typing import Mapping
from typing import Optional

import numpy as np
import tensorflow as tf

from clrec_tf.data.evaluation_set import EvaluationSet
from clrec_tf.errors import UserError
from clrec_tf.models.top_k import top_k

ScoreChunk = Callable[[int, int], np.ndarray]
MEMORY_BYTES = 256 * 2**20
_ARRAYS_PER_CHUNK = 6  # Arrays [n,V] of 8 bytes alive at once: scores, filtered, candidates, rows compared, two spare.


@dataclasses.dataclass(frozen=True)
class TargetCounts:
    """Candidates that score strictly higher (float, inf for a target outside the vocabulary), and as high as the target
    (int, itself included). Both [G] for full ranking (all targets), [U] for sampled sets (the next click)."""
    better: np.ndarray
    tied: np.ndarray


@dataclasses.dataclass(frozen=True)
class Rankings:
    """What one pass over the users yields.

    Attributes:
      counts: candidate set to `TargetCounts`; "full" if asked for, and the names of the negatives.
      lists: int32 [U,L], the L best items after the seen filter, best first, equal scores by id; 0 where none is left.
        None if no lists were asked for.
    """
    counts: Mapping[str, TargetCounts]
    lists: Optional[np.ndarray]


def vector_scorer(user_vectors: np.ndarray, item_vectors: np.ndarray, temperature: Optional[float] = None
                  ) -> ScoreChunk:
    """Inner products; of several vectors per user the largest, or all of them: ρ·log Σ_k e^{⟨u_k, y⟩/ρ}.

    Args:
      user_vectors: float [U,d] or [U,K,d].
      item_vectors: float [V,d], row i = item i + 1.
      temperature: ρ of the sum; None: the largest.
    """
    items = tf.constant(item_vectors, tf.float64)
    user_vectors = user_vectors if user_vectors.ndim == 3 else user_vectors[:, None]

    def products(vectors):
        # A float32 product rounds by its place in the matrix, so that equal items would differ and the chunk size would
        # change ranks. Products of float32 are exact in float64; rounding the sum afterwards restores the ties.
        return tf.cast(tf.matmul(tf.constant(vectors, tf.float64), items, transpose_b=True), tf.float32)

    def score_chunk(start, stop):
        # One vector at a time: what is held does not grow with K.
        of_vectors = (products(user_vectors[start:stop, number]) for number in range(user_vectors.shape[1]))
        return functools.reduce(tf.maximum if temperature is None else both, of_vectors).numpy()

    def both(scores, more):
        # Of two equal sums the rounding is equal too, since they are added in the same order.
        return tf.maximum(scores, more) + temperature * tf.math.log1p(tf.exp(-tf.abs(scores - more) / temperature))

    return score_chunk


def most_popular_scorer(counts: np.ndarray) -> ScoreChunk:
    """The same scores for all users: the training clicks, counts [V] of items 1..V."""
    scores = np.asarray(counts, np.float64)  # float64 keeps counts above 2^24 apart
    return lambda start, stop: np.broadcast_to(scores, (stop - start, len(scores)))


def users_per_chunk(num_items: int, memory_bytes: int) -> int:
    """Users scored at once so that the arrays [n,V] stay within `memory_bytes`; at least one."""
    return max(1, memory_bytes // (8 * _ARRAYS_PER_CHUNK * num_items))


def rank_targets(score_chunk: ScoreChunk, evaluation_set: EvaluationSet, num_items: int, *, full: bool = True,
                 negatives: Optional[Mapping[str, np.ndarray]] = None, list_length: int = 0, filter_seen: bool = True,
                 memory_bytes: int = MEMORY_BYTES) -> Rankings:
    """Ranks every target under each protocol.

    Args:
      score_chunk: scorer of the users of `evaluation_set`, in its order.
      evaluation_set: U users, G targets.
      num_items: V.
      full: whether to rank among the whole catalogue.
      negatives: candidate set to int [U,N] item ids, 0 for an empty place; see `sample_negatives`.
      list_length: L, 0 for no lists.
      filter_seen: whether the history is removed from full rankings and lists.
      memory_bytes: bound of the score matrices of one chunk; no result depends on it.

    Raises:
      UserError: a score is NaN or infinite, or the scorer's shape is not [n,V].
    """
    parts = {name: [] for name in (["full"] if full else []) + list(negatives or {})}
    lists = []
    step = users_per_chunk(num_items, memory_bytes)
    for start in range(0, evaluation_set.num_users, step):
        stop = min(start + step, evaluation_set.num_users)
        scores = _checked(score_chunk(start, stop), (stop - start, num_items), start)
        filtered = _without_seen(scores, evaluation_set, start, stop) if filter_seen else scores
        if full:
            parts["full"].append(_full_counts(scores, filtered, *evaluation_set.target_pairs(start, stop)))
        for name, ids in (negatives or {}).items():
            parts[name].append(_sampled_counts(scores, ids[start:stop], evaluation_set.next_clicks[start:stop]))
        if list_length:
            lists.append(top_items(filtered, list_length))
    return Rankings(
        counts={name: TargetCounts(*map(np.concatenate, zip(*chunks))) for name, chunks in parts.items()},
        lists=np.concatenate(lists) if list_length else None)


def _checked(scores, shape, start):
    """The scores as an array; NaN passes every comparison as "not better", so that it would rank first."""
    scores = np.asarray(scores)
    if scores.shape != shape:
        raise UserError(f"scores have shape {scores.shape}, expected {shape} (users, items)")
    finite = np.isfinite(scores)
    if not finite.all():
        row, column = np.argwhere(~finite)[0]
        raise UserError(f"score of evaluated user {start + row} for item {column + 1} is {scores[row, column]}: the "
                        "model has diverged; evaluate an earlier checkpoint or train with a lower --learning_rate")
    return scores


def _without_seen(scores, evaluation_set, start, stop):
    rows, items = evaluation_set.history_pairs(start, stop)
    known = items <= scores.shape[1]  # ids above V are hash buckets, which are no candidates
    filtered = scores.copy()
    filtered[rows[known], items[known] - 1] = -np.inf
    return filtered


def _full_counts(scores, filtered, rows, targets):
    """(better, tied), both [targets], of each target among its user's unseen items and targets."""
    known = (targets >= 1) & (targets <= scores.shape[1])
    rows, columns = rows[known], targets[known] - 1
    own = scores[rows, columns]
    candidates = filtered.copy()
    candidates[rows, columns] = own
    better, tied = np.full(len(targets), np.inf), np.ones(len(targets), np.int64)
    places = np.flatnonzero(known)
    for begin in range(0, len(rows), len(scores)):  # blocks of n: a user may have many targets
        block = slice(begin, begin + len(scores))
        rivals, score = candidates[rows[block]], own[block, None]
        better[places[block]] = np.count_nonzero(rivals > score, axis=1)
        tied[places[block]] = np.count_nonzero(rivals == score, axis=1)
    return better, tied


def _sampled_counts(scores, negatives, targets):
    """(better, tied), both [n], of each user's next click among it and the user's negatives [n,N]."""
    known = (targets >= 1) & (targets <= scores.shape[1])
    users = np.arange(len(targets))
    own = scores[users, np.where(known, targets, 1) - 1][:, None]
    rivals = np.where(negatives > 0, scores[users[:, None], np.maximum(negatives, 1) - 1], -np.inf)
    better = np.where(known, np.count_nonzero(rivals > own, axis=1), np.inf)
    return better, np.where(known, 1 + np.count_nonzero(rivals == own, axis=1), 1)


def is_repeated(evaluation_set: EvaluationSet) -> np.ndarray:
    """Whether each user's history holds the next click, bool [U]."""
    rows, items = evaluation_set.history_pairs(0, evaluation_set.num_users)
    repeated = np.zeros(evaluation_set.num_users, bool)
    repeated[rows[items == evaluation_set.next_clicks[rows]]] = True
    return repeated


def top_items(filtered: np.ndarray, length: int) -> np.ndarray:
    """The best items of scores [n,V], int32 [n,length]: best first, equal scores by id, 0 where only -inf is left."""
    places, scores = top_k(filtered, length)
    items = np.where(np.isfinite(scores), places + 1, 0).astype(np.int32)
    return np.pad(items, ((0, 0), (0, length - items.shape[1])))
