"""One list per user out of the lists of several intents, for many users at once.

Lists come with the heaviest intent first, each the best items of its intent, an item at most once in each; −1 and −inf
where there are fewer. What comes out is k items per user, each once, by falling score, equal ones by position, with the
column of the intent that brought it; −1, −inf and −1 where nothing is left.

Shapes: B users, K intents, n items in each list. An item among the k best by maximum is among the k best of the intent
that it has its maximum from, so the merge by maximum equals exact search over all intents if n ≥ k.
"""
import numpy as np

FLOOR = 0.1  # smallest share of an intent in a list by quota, before shares are made to sum to 1


def by_maximum(positions: np.ndarray, scores: np.ndarray, k: int):
    """The k items of highest score, an item having the highest of those that its intents give it.

    Args:
      positions: int64 [B,K,n].
      scores: float32 [B,K,n].
      k: items wanted.

    Returns:
      (positions int64 [B,k], scores float32 [B,k], columns int64 [B,k]); of equal scores the heaviest intent's counts.
    """
    return _best(*_flat(positions, scores), k)


def by_quota(positions: np.ndarray, scores: np.ndarray, weights: np.ndarray, k: int, floor: float = FLOOR):
    """k items of which each intent brings its share, so that the heaviest does not fill the list alone.

    Intents choose one after the other, the heaviest first, each the best items of its list that are not chosen yet.
    What is left over where a list is too short goes to the rest by maximum score.

    Args:
      positions: int64 [B,K,n].
      scores: float32 [B,K,n].
      weights: [B,K], ≥ 0, of sum > 0; shares are in proportion to them.
      k: items wanted.
      floor: see `quotas`.

    Returns:
      As `by_maximum`; an item's score is that of the intent that brought it.
    """
    share = quotas(weights, k, floor)
    # One number for each user and position, so that one search for members serves all users.
    keys = positions + np.arange(len(positions))[:, None, None] * (positions.max(initial=0) + 1)
    chosen = np.zeros(positions.shape, bool)
    for column in range(positions.shape[1]):
        free = (positions[:, column] >= 0) & ~np.isin(keys[:, column], keys[chosen])
        chosen[:, column] = free & (np.cumsum(free, axis=1) <= share[:, column, None])
    others, *rest = by_maximum(np.where(np.isin(keys, keys[chosen]), -1, positions), scores, k)
    room = k - np.count_nonzero(chosen, axis=(1, 2))
    others = np.where(np.arange(k) < room[:, None], others, -1)
    chosen_lists = _flat(np.where(chosen, positions, -1), scores)
    return _best(*(np.concatenate(pair, axis=1) for pair in zip(chosen_lists, (others, *rest))), k)


def quotas(weights: np.ndarray, k: int, floor: float = FLOOR) -> np.ndarray:
    """Items of each intent: weights [B,K] -> int64 [B,K] of sum k, rounded by largest remainder, ties to the heavier.

    Shares below the floor are raised to it, and all are then divided by their sum.
    """
    shares = np.asarray(weights, np.float64)
    shares = np.maximum(shares / shares.sum(axis=1, keepdims=True), floor)
    exact = k * shares / shares.sum(axis=1, keepdims=True)
    whole = np.floor(exact).astype(np.int64)
    ranks = np.argsort(np.argsort(whole - exact, axis=1, kind="stable"), axis=1)
    return whole + (ranks < k - whole.sum(axis=1, keepdims=True))


def _flat(positions, scores):
    """Positions, scores and columns, each [B,K·n]."""
    users, intents, width = positions.shape
    columns = np.broadcast_to(np.arange(intents)[:, None], positions.shape)
    return [array.reshape(users, intents * width) for array in (positions, scores, columns)]


def _best(positions, scores, columns, k):
    """The k best of entries [B,N], a repeated position by its best entry."""
    arrays = _taken((positions, scores, columns), np.lexsort((columns, -scores, positions)))
    missing = arrays[0] < 0
    missing[:, 1:] |= arrays[0][:, 1:] == arrays[0][:, :-1]
    arrays = [np.where(missing, nothing, array) for array, nothing in zip(arrays, (-1, np.float32(-np.inf), -1))]
    arrays = _taken(arrays, np.lexsort((arrays[0], -arrays[1]))[:, :k])
    if arrays[0].shape[1] == k:  # np.pad takes as long as all the rest of a small merge, even where it adds nothing
        return tuple(arrays)
    padding = [(0, 0), (0, k - arrays[0].shape[1])]
    return tuple(np.pad(array, padding, constant_values=nothing) for array, nothing in zip(arrays, (-1, -np.inf, -1)))


def _taken(arrays, order):
    return [np.take_along_axis(array, order, axis=1) for array in arrays]
