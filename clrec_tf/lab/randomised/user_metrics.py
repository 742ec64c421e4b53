"""Metrics on pairs whose exposure was random, with ties in expectation, and bootstrap intervals over users.

Where exposure is uniform a user's list is an unbiased sample of all items, so these need no propensities.

Letters: N pairs of user and item, U users, R resamples.
"""
import numpy as np

from clrec_tf.evaluation.auc import auc
from clrec_tf.evaluation.auc import pooled_auc
from clrec_tf.evaluation import metrics

CUTOFF = 5
PER_USER, POOLED = (f"ndcg@{CUTOFF}", f"recall@{CUTOFF}", "auc/user"), "auc/all"
RESAMPLES, LEVEL = 2000, 0.95
CHUNK = 1 << 16  # numbers of one block of resampled pairs: what a core has at hand


def ndcg(scores, positive, k):
    """Expected DCG@k over the largest that is possible (Järvelin & Kekäläinen 2002), gain 1 per positive.

    Args:
      scores: [n], of one user's pairs.
      positive: bool [n], at least one True.
      k: cut-off.
    """
    ideal = (1.0 / np.log2(np.arange(2, 2 + min(k, np.count_nonzero(positive))))).sum()
    return metrics.ndcg(*_places(scores, positive), k).sum() / ideal


def recall(scores, positive, k):
    """Expected share of the positives among the k highest scores. Args: see `ndcg`."""
    return metrics.hit_rate(*_places(scores, positive), k).mean()


def per_user(scores, users, positive, num_users):
    """`PER_USER` of each user, [U,3]; NaN where a user has no positive, or for the AUC no negative.

    Args:
      scores: [N].
      users: int [N], ascending, 0..U−1.
      positive: bool [N].
      num_users: U.
    """
    values = np.full((num_users, len(PER_USER)), np.nan)
    bounds = np.searchsorted(users, np.arange(num_users + 1))
    for user, (start, stop) in enumerate(zip(bounds, bounds[1:])):
        own, liked = scores[start:stop], positive[start:stop]
        if liked.any():
            values[user, :2] = ndcg(own, liked, CUTOFF), recall(own, liked, CUTOFF)
            if not liked.all():
                values[user, 2] = auc(own, liked)
    return values


def resampled_users(num_users, seed):
    """How often each user stands in each bootstrap sample (Efron 1979): int [R,U]."""
    return np.random.default_rng(seed).multinomial(num_users, np.full(num_users, 1 / num_users), RESAMPLES)


def measure(runs, users, positive, multiplicities):
    """One model's metrics, as means over its trainings.

    Args:
      runs: scores [N] of each training.
      users: int [N], ascending, 0..U−1.
      positive: bool [N].
      multiplicities: [R,U], from `resampled_users`; the same for all models, which keeps them paired.

    Returns:
      (metric -> mean of each training, float [trainings]; metric -> mean over trainings of each resample, float [R]).
    """
    ones = np.ones((1, len(users)))
    by_user = np.stack([per_user(scores, users, positive, multiplicities.shape[1]) for scores in runs])
    means = dict(zip(PER_USER, np.nanmean(by_user, axis=1).T))
    means[POOLED] = np.array([pooled_auc(scores, positive, ones)[0] for scores in runs])
    values = by_user.mean(axis=0)
    weight = multiplicities @ np.isfinite(values).astype(float)
    resampled = dict(zip(PER_USER, (multiplicities @ np.nan_to_num(values) / weight).T))
    step = max(1, CHUNK // len(users))
    resampled[POOLED] = np.mean([np.concatenate([
        pooled_auc(scores, positive, multiplicities[start:start + step, users].astype(float))
        for start in range(0, len(multiplicities), step)]) for scores in runs], axis=0)
    return means, resampled


def interval(resampled):
    """Percentile interval of `LEVEL`: [R] -> [low, high]."""
    return [float(bound) for bound in np.quantile(resampled, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])]


def _places(scores, positive):
    """(better, tied) of each positive, see ``evaluation/metrics``."""
    own = scores[positive][:, None]
    return (scores > own).sum(axis=1), (scores == own).sum(axis=1)
