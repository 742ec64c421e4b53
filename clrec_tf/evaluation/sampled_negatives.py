"""The negatives of the sampled protocols: distinct items that the user never clicked, drawn by weight.

pop100 (canonical): 100 negatives, weights = training clicks, without replacement, leaving out all of the user's items
(history and targets). uniform100: the same with equal weights. Sampled metrics are inconsistent with exact ones, even
in expectation (Krichene & Rendle, KDD 2020): read them beside the full ranking. BERT4Rec's own code counts the clicks
of all parts (`clicks_of_all_parts`), and draws 101 without replacement again and again until 100 allowed ones came,
which is the same law.

Drawing without replacement means: draw one item by weight, remove it, draw the next by weight among the rest. Two
exact ways are joined. (1) Draw with replacement from the whole catalogue and keep the first occurrence of each allowed
item: the same law, because discarding a draw leaves the others' odds as they were. It costs nothing that grows with V.
(2) Users left short, as a heavy user of a small catalogue is, go on with an exponential race: each remaining item gets
an arrival time of rate = weight, and the earliest are taken (Efraimidis & Spirakis 2006; Gumbel top-k in logarithms).
"""
import numpy as np

from clrec_tf.data.evaluation_set import EvaluationSet

SIZE = 100
_DRAWS_PER_NEGATIVE = 4
_BLOCK_BYTES = 64 * 2**20


def sample_negatives(evaluation_set: EvaluationSet, weights: np.ndarray, seed: int, size: int = SIZE,
                     block_bytes: int = _BLOCK_BYTES) -> np.ndarray:
    """Draws each user's negatives.

    Args:
      evaluation_set: U users.
      weights: float or int [V] ≥ 0, of items 1..V; items of weight 0 are never drawn.
      seed: decides the draws; `block_bytes` does not.
      size: negatives per user.
      block_bytes: bound of the temporary arrays.

    Returns:
      int32 [U,size]: distinct item ids in the order drawn, then 0 where a user has fewer candidates than `size`.

    Raises:
      ValueError: a weight is negative or not finite, or none is positive.
    """
    weights = np.asarray(weights, np.float64)
    if not (np.isfinite(weights).all() and weights.min(initial=0) >= 0 and weights.sum() > 0):
        raise ValueError(f"weights must be ≥ 0 and finite with a positive sum, got {weights}")
    draw_rng, race_rng = (np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(2))
    draws = _DRAWS_PER_NEGATIVE * size
    step = max(1, block_bytes // (64 * draws))
    negatives = np.zeros((evaluation_set.num_users, size), np.int32)
    for start in range(0, evaluation_set.num_users, step):
        stop = min(start + step, evaluation_set.num_users)
        own_items = _own_items(evaluation_set, start, stop, len(weights))
        block = negatives[start:stop]
        _draw_first_occurrences(block, draw_rng.random((stop - start, draws)), weights, own_items)
        _race(block, race_rng, weights, own_items, max(1, block_bytes // (32 * len(weights))))
    return negatives


def clicks_of_all_parts(evaluation_set: EvaluationSet, num_items: int) -> np.ndarray:
    """Clicks of items 1..V in the users' histories and targets together: int [V]."""
    ids = np.concatenate([evaluation_set.history_ids, evaluation_set.target_ids])
    return np.bincount(ids[(ids >= 1) & (ids <= num_items)], minlength=num_items + 1)[1:]


def _own_items(evaluation_set, start, stop, num_items):
    """Sorted keys row·(V+1) + item of the items that each user may not be given."""
    pairs = zip(evaluation_set.history_pairs(start, stop), evaluation_set.target_pairs(start, stop))
    rows, items = map(np.concatenate, pairs)
    known = items <= num_items
    return np.unique(rows[known] * (num_items + 1) + items[known])


def _draw_first_occurrences(negatives, uniforms, weights, own_items):
    """Fills negatives [n,size] in place from uniforms [n,draws]: first occurrences of allowed items."""
    cumulative = np.cumsum(weights)
    # The minimum guards the one draw in 2^53 that rounds up to the total weight.
    last = np.flatnonzero(weights)[-1]
    items = 1 + np.minimum(np.searchsorted(cumulative, uniforms * cumulative[-1], side="right"), last)
    order = np.argsort(items, axis=1, kind="stable")
    ascending = np.take_along_axis(items, order, axis=1)
    repeated = np.zeros(items.shape, bool)
    np.put_along_axis(repeated, order[:, 1:], ascending[:, 1:] == ascending[:, :-1], axis=1)
    keys = np.arange(len(items))[:, None] * (len(weights) + 1) + items
    allowed = ~repeated & ~_contains(own_items, keys)
    place = np.cumsum(allowed, axis=1) - 1
    rows, columns = np.nonzero(allowed & (place < negatives.shape[1]))
    negatives[rows, place[rows, columns]] = items[rows, columns]


def _contains(ascending, keys):
    """Whether each key is among the ascending keys."""
    if not len(ascending):
        return np.zeros(keys.shape, bool)
    return ascending[np.minimum(np.searchsorted(ascending, keys), len(ascending) - 1)] == keys


def _race(negatives, rng, weights, own_items, rows_at_once):
    """Fills the empty places of negatives [n,size] in place by arrival times among the items still allowed."""
    num_items, size = len(weights), negatives.shape[1]
    short = np.flatnonzero(negatives[:, -1] == 0)
    for begin in range(0, len(short), rows_at_once):
        rows = short[begin:begin + rows_at_once]
        arrival = rng.standard_exponential((len(rows), num_items))
        with np.errstate(divide="ignore"):
            arrival /= weights  # weight 0 arrives never
        arrival[_contains(own_items, rows[:, None] * (num_items + 1) + np.arange(1, num_items + 1))] = np.inf
        drawn, place = np.nonzero(negatives[rows])
        arrival[drawn, negatives[rows[drawn], place] - 1] = np.inf
        first = np.argsort(arrival, axis=1)[:, :size]
        arrived = np.isfinite(np.take_along_axis(arrival, first, axis=1))
        kept = np.count_nonzero(negatives[rows], axis=1)
        position = kept[:, None] + np.arange(first.shape[1])
        runner, turn = np.nonzero(arrived & (position < size))
        negatives[rows[runner], position[runner, turn]] = first[runner, turn] + 1
