"""Area under the ROC curve, with ties in expectation. Letters: N rows, U users, R resamples."""
import numpy as np


def auc(scores, positive):
    """P(score of a positive > score of a negative) + ½ P(equal), over all pairs of the two (Hanley & McNeil 1982).

    Args:
      scores: [N].
      positive: bool [N]; both classes are there.
    """
    return float(pooled_auc(scores, positive, np.ones((1, len(scores))))[0])


def pooled_auc(scores, positive, weights):
    """`auc` where row i stands weights[r, i] times: scores [N], positive bool [N], weights [R,N] -> [R]; NaN where a
    resample lacks a class."""
    order, starts = _ascending(scores)
    return _area(weights[:, order], positive[order], starts)


def _ascending(scores):
    """Order [N] of the rows by score, and where each run of equal scores begins in it."""
    order = np.argsort(scores, kind="stable")
    return order, np.flatnonzero(np.append(True, np.diff(scores[order]) != 0))


def _area(weights, positive, starts):
    """`pooled_auc` of rows in ascending order, with the `starts` of equal scores."""
    positives, negatives = (np.add.reduceat(weights * mask, starts, axis=1) for mask in (positive, ~positive))
    below = np.cumsum(negatives, axis=1) - negatives
    won = (positives * (below + negatives / 2)).sum(axis=1)
    pairs = positives.sum(axis=1) * negatives.sum(axis=1)
    return np.divide(won, pairs, out=np.full(len(pairs), np.nan), where=pairs > 0)


def bootstrap_auc(columns, users, positive, seed, resamples=1000, level=0.95):
    """Percentile bootstrap intervals (Efron 1979) of the AUC of several scores, drawing users with all their rows.

    One resample serves all scores, so that they stay paired.

    Args:
      columns: [M,N], M scores of each row.
      users: int [N], user of each row, 0..U−1.
      positive: bool [N]; both classes are there.
      seed: of the resampling.
      resamples: bootstrap samples R; those without one of the classes are left out.
      level: probability covered.

    Returns:
      (low [M], high [M]); NaN where no resample has both classes.
    """
    rng, count = np.random.default_rng(seed), int(users.max()) + 1
    rows = [(users[order], positive[order], starts) for order, starts in map(_ascending, columns)]
    values = np.empty((resamples, len(rows)))
    for value in values:
        weights = np.bincount(rng.integers(count, size=count), minlength=count).astype(float)
        value[:] = [_area(weights[None, owner], labels, starts)[0] for owner, labels, starts in rows]
    values = values[np.isfinite(values).all(axis=1)]
    if not len(values):
        return np.full((2, len(rows)), np.nan)
    return np.quantile(values, [(1 - level) / 2, (1 + level) / 2], axis=0)
