"""Metrics of rankings and of recommended lists: one pure NumPy function per equation, with the paper it is from.

Ranking metrics start from two counts per target: `better`, the candidates that score strictly higher, and `tied`, those
that score the same, the target included. Each metric is the expectation over a random order of the ties, so a scorer
that gives every item the same score earns what chance earns and no more. A target outside the vocabulary has
`better = inf` and is a miss everywhere.

Letters: U users, G targets of all users (user u owns targets `splits[u]:splits[u + 1]`), V items, L list length. Lists
hold item ids 1..V, 0 for an empty place; item i stands in row i - 1 of arrays [V].
"""
import math

import numpy as np

from clrec_tf.models.top_k import top_k

HEAD_SHARE = 0.2  # The most clicked fifth of the items is the head; all others are the long tail.


def hit_rate(better, tied, k):
    """Expected 1[rank ≤ k] = clip((k − better)/tied, 0, 1). Args: better, tied [N]. Returns [N]."""
    return np.clip((k - better) / tied, 0.0, 1.0)


def ndcg(better, tied, k):
    """Expected NDCG@k with one relevant item (Järvelin & Kekäläinen 2002): (1/t) Σ_{r=a+1}^{min(a+t,k)} 1/log2(r+1).

    Args:
      better, tied: [N].
      k: cut-off, from 1.
    """
    gain = np.concatenate([[0.0], np.cumsum(1.0 / np.log2(np.arange(2, k + 2)))])  # gain[r] = Σ of ranks 1..r
    first, last = (np.minimum(rank, k).astype(np.int64) for rank in (better, better + tied))
    return (gain[last] - gain[first]) / tied


def reciprocal_rank(better, tied):
    """Expected 1/rank, whose mean is the MRR: (1/t) Σ_{r=a+1}^{a+t} 1/r; 0 where better = inf. Args: both [N]."""
    known = np.isfinite(better)
    first = np.where(known, better, 0).astype(np.int64)
    last = np.where(known, better + tied, 0).astype(np.int64)
    harmonic = np.concatenate([[0.0], np.cumsum(1.0 / np.arange(1, last.max(initial=0) + 1))])
    return (harmonic[last] - harmonic[first]) / tied


def distinct_targets(targets, splits):
    """Marks the first occurrence of each of a user's targets.

    An unknown target (id 0) is always marked: nobody knows whether two unknown clicks were on one item.

    Args:
      targets: int [G], item ids.
      splits: int [U+1].

    Returns:
      bool [G].
    """
    users = np.repeat(np.arange(len(splits) - 1), np.diff(splits))
    order = np.lexsort((np.arange(len(targets)), targets, users))
    repeated = (np.diff(users[order]) == 0) & (np.diff(targets[order]) == 0) & (targets[order][1:] != 0)
    marks = np.ones(len(targets), bool)
    marks[order[1:][repeated]] = False
    return marks


def recall(better, tied, targets, splits, k):
    """Recall@k per user, [U]: expected |top k ∩ targets| / |distinct targets|. Every user has at least one target.

    Args:
      better, tied: [G].
      targets: int [G], item ids, 0 = unknown.
      splits: int [U+1].
      k: cut-off.
    """
    distinct = distinct_targets(targets, splits).astype(np.float64)
    hits = np.add.reduceat(distinct * hit_rate(better, tied, k), splits[:-1])
    return hits / np.add.reduceat(distinct, splits[:-1])


def recall_of_next(better, tied, targets, splits, k, following=5):
    """Recall5@50 and its like: |top k ∩ next `following` clicks| / |distinct next clicks|.

    Args:
      better, tied, targets, splits, k: as for `recall`; a user's targets stand in time order.
      following: clicks looked ahead. Users with fewer targets are left out.

    Returns:
      float [number of users with enough targets].
    """
    starts = splits[:-1][np.diff(splits) >= following]
    places = (starts[:, None] + np.arange(following)).ravel()
    return recall(better[places], tied[places], targets[places], np.arange(len(starts) + 1) * following, k
                  ) if len(starts) else np.zeros(0)


def recommendation_counts(lists, num_items):
    """How often each item is recommended, int [V]. Args: lists int [U,L]."""
    return np.bincount(lists.ravel(), minlength=num_items + 1)[1:]


def aggregate_diversity(recommended):
    """Distinct items over all lists (Adomavicius & Kwon 2012). Args: recommended [V], see `recommendation_counts`."""
    return int(np.count_nonzero(recommended))


def coverage(recommended):
    """Share of the catalogue that is recommended to anyone. Args: recommended [V]."""
    return aggregate_diversity(recommended) / len(recommended)


def gini(recommended):
    """Gini coefficient over all V items, zeros included: Σ_i (2i−V−1)x_i/(VΣx), x ascending; 0 = all alike."""
    ascending = np.sort(recommended).astype(np.float64)
    size = len(ascending)
    return float((2 * np.arange(1, size + 1) - size - 1) @ ascending / (size * ascending.sum()))


def popularity_index(recommended, most_popular, counts):
    """E_A / E_most-popular, where E_A = Σ_y count(y)·P(A recommends y): 1 = as popular as can be.

    Args:
      recommended: [V], how often the model recommends each item.
      most_popular: [V], the same of the most-popular recommender under the same filter.
      counts: [V], training clicks.
    """
    return float((recommended @ counts / recommended.sum()) / (most_popular @ counts / most_popular.sum()))


def _list_mean(lists, values):
    """Mean over users of the mean of values [V] over a user's list; users with empty lists are left out."""
    filled = lists > 0
    length = filled.sum(axis=1)
    total = np.where(filled, values[lists - 1], 0).sum(axis=1)
    return float(np.mean(total[length > 0] / length[length > 0]))


def arp(lists, counts):
    """Average recommendation popularity (Yin et al. 2012): mean training count of the items of a list, over users."""
    return _list_mean(lists, counts)


def long_tail(counts, head_share=HEAD_SHARE):
    """Marks the items outside the ceil(head_share·V) most clicked; equal counts by id. counts [V] -> bool [V]."""
    tail = np.ones(len(counts), bool)
    tail[top_k(counts, math.ceil(head_share * len(counts)))[0]] = False
    return tail


def aplt(lists, counts):
    """Average percentage of long-tail items in a list (Abdollahpouri et al. 2019), as a share. Args: [U,L], [V]."""
    return _list_mean(lists, long_tail(counts))


def degree_histogram(recommended, counts):
    """Recommendations by popularity of the item: bucket 0 holds items never clicked, 1 + floor(log2 count) the others.

    Args:
      recommended: [V], how often each item is recommended (for the truth: `counts` itself).
      counts: int [V], training clicks.

    Returns:
      [1 + largest bucket], sums of `recommended`.
    """
    # frexp writes count = m·2^e with m in [½, 1): e is the bucket exactly, without a rounded logarithm.
    return np.bincount(np.frexp(np.asarray(counts, np.float64))[1], weights=recommended)


def named_intervals(values: dict, seed: int) -> dict:
    """`bootstrap_interval` of metrics {name: [U]} -> {"name/low": float, "name/high": float}."""
    bounds = bootstrap_interval(np.stack(list(values.values()), axis=1), seed)
    return {f"{name}/{end}": float(bound) for name, *ends in zip(values, *bounds)
            for end, bound in zip(("low", "high"), ends)}


def bootstrap_interval(values, seed, resamples=1000, level=0.95):
    """Percentile bootstrap interval of means over users (Efron 1979).

    One resample of users serves all columns, so columns stay paired; for the paired interval between two models pass
    the per-user differences of their metrics.

    Args:
      values: [U,M], M metrics per user.
      seed: of the resampling.
      resamples: bootstrap samples.
      level: probability covered.

    Returns:
      (low [M], high [M]).
    """
    values, rng = np.asarray(values, np.float64), np.random.default_rng(seed)
    users = len(values)
    means = [np.bincount(rng.integers(users, size=users), minlength=users) @ values / users for _ in range(resamples)]
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return low, high
