"""Searches among the items that pass a filter: what is found of the best, and how long one takes, by selectivity."""
import time

from absl import logging
import numpy as np

from clrec_tf.retrieval.filtered_search import best_among
from clrec_tf.retrieval.filtered_search import search_passing
from clrec_tf.retrieval.index import Index

SHARES = (0.5, 0.1, 0.01, 0.001)  # of the items, that pass
MOST_USERS = 200  # measured, one after the other
_SEED = 4


def filtered_searches(index: Index, users: np.ndarray, k: int, alike: bool = False) -> dict[str, dict]:
    """By share of the items that pass, in percent: `recall`, of the best k that pass; `p50_ms` of one user's search.

    Args:
      index: searched.
      users: float32 [N,d].
      k: results.
      alike: whether items pass by their vectors, a half-space that nothing of the users decides, as a category does;
        else at random.
    """
    rng, found, users = np.random.default_rng(_SEED), {}, users[:MOST_USERS]
    order = rng.permutation(index.size)
    if alike:
        order = np.argsort(index.vectors @ rng.normal(size=index.vectors.shape[1]).astype(np.float32))
    for share in SHARES:
        passing = np.sort(order[:max(1, round(share * index.size))])
        milliseconds, hits, wanted = [], 0, 0
        for user in users[:, None]:
            started = time.perf_counter()
            near, _ = search_passing(index, user, passing, passing[:0], k)
            milliseconds.append(1000 * (time.perf_counter() - started))
            best, _ = best_among(index, user, passing, k)
            hits += len(np.intersect1d(near[near >= 0], best))
            wanted += best.size
        found[f"{100 * share:g}%"] = dict(recall=round(hits / wanted, 4),
                                         p50_ms=round(float(np.median(milliseconds)), 3))
        logging.info("%d items, %g %% pass%s: recall@%d %.4f, %.3f ms", index.size, 100 * share,
                     " by their vectors" if alike else "", k, *found[f"{100 * share:g}%"].values())
    return found
