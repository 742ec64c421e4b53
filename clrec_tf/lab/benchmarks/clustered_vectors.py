"""Vectors that lie as trained ones do: in clusters of very unequal sizes, with users near some of them.

Vectors drawn without clusters have no near neighbours, and no index that searches a part of them finds the best.
"""
import dataclasses

import numpy as np

CLUSTERS = 3000
_RANK, _OFF_RANK = 24, 0.3  # directions that most of a centre lies in, and how far it is from them
_SIZE_EXPONENT = 0.8  # of Zipf's law, by which the clusters' sizes fall
_SPREADS = (0.06, 0.14)  # least and largest standard deviation of an item around its centre, per direction
_QUERY_SPREAD, _QUERY_MIX = 0.12, 0.25  # of users around a centre; the share of a second centre in them


@dataclasses.dataclass(frozen=True)
class Clustered:
    """Vectors of norm 1.

    Attributes:
      items: float32 [V,d].
      inserted: float32 [F,d], more items of the same clusters.
      queries: float32 [N,d], users.
    """
    items: np.ndarray
    inserted: np.ndarray
    queries: np.ndarray


def draw_clustered(items: int, inserted: int, queries: int, dim: int, seed: int = 0) -> Clustered:
    """Draws `items` + `inserted` items in `CLUSTERS` clusters and `queries` users near them, each of width `dim`."""
    rng, shares = np.random.default_rng(seed), cluster_shares(CLUSTERS)
    centres, spreads = draw_centres(rng, CLUSTERS, dim), draw_spreads(rng, CLUSTERS)
    vectors = draw_around(rng, centres, spreads, rng.choice(CLUSTERS, items + inserted, p=shares))
    near = centres[rng.choice(CLUSTERS, queries, p=shares)]
    other = centres[rng.integers(0, CLUSTERS, queries)]
    users = near + _QUERY_SPREAD * rng.standard_normal((queries, dim), np.float32) + _QUERY_MIX * other
    return Clustered(vectors[:items], vectors[items:], unit_rows(users))


def cluster_shares(count: int) -> np.ndarray:
    """[C] of the items that each of C clusters has, in expectation."""
    shares = 1 / np.arange(1, count + 1) ** _SIZE_EXPONENT
    return shares / shares.sum()


def draw_centres(rng: np.random.Generator, count: int, dim: int) -> np.ndarray:
    """float32 [C,d], of norm 1, near a space of few dimensions."""
    noise = lambda *shape: rng.standard_normal(shape, np.float32)
    return unit_rows(noise(count, _RANK) @ noise(_RANK, dim) + _OFF_RANK * noise(count, dim))


def draw_spreads(rng: np.random.Generator, count: int) -> np.ndarray:
    """float32 [C], the standard deviation of a cluster's items around its centre, per direction."""
    return rng.uniform(*_SPREADS, count).astype(np.float32)


def draw_around(rng: np.random.Generator, centres: np.ndarray, spreads: np.ndarray, cluster: np.ndarray) -> np.ndarray:
    """float32 [V,d], of norm 1: an item in each of the clusters [V]."""
    vectors = rng.standard_normal((len(cluster), centres.shape[1]), np.float32)
    vectors *= spreads[cluster, None]
    vectors += centres[cluster]
    return unit_rows(vectors)


def unit_rows(vectors: np.ndarray) -> np.ndarray:
    """Rows [N,d] divided by their l2-norms, in place."""
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors
