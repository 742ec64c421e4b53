"""Vectors that lie as trained ones do: in clusters of very unequal sizes, with users near some of them.

Vectors drawn without clusters have no near neighbours, and no index that searches a part of them finds the best.
"""
import dataclasses

import numpy as np

CLUSTERS = 3000
_RANK = 24  # directions that most of a centre lies in
_SIZE_EXPONENT = 0.8  # of Zipf's law, by which the clusters' sizes fall
_SPREADS = (0.06, 0.14)  # least and largest standard deviation of an item around its centre, per direction
_QUERY_SPREAD, _QUERY_MIX = 0.12, 0.25  # of users around a centre; the share of a second centre in them


@dataclasses.dataclass(frozen=True)
class Clustered:
    """Vectors of norm 1.

    Attributes:
      items: float32 [V,d].
      fresh: float32 [F,d], more items of the same clusters.
      queries: float32 [N,d], users.
    """
    items: np.ndarray
    fresh: np.ndarray
    queries: np.ndarray


def draw_clustered(items: int, fresh: int, queries: int, dim: int, seed: int = 0) -> Clustered:
    """Draws `items` + `fresh` items in `CLUSTERS` clusters and `queries` users near them, each of width `dim`."""
    rng = np.random.default_rng(seed)
    noise = lambda *shape: rng.standard_normal(shape, np.float32)
    centres = normalized(noise(CLUSTERS, _RANK) @ noise(_RANK, dim) + 0.3 * noise(CLUSTERS, dim))
    sizes = 1 / np.arange(1, CLUSTERS + 1) ** _SIZE_EXPONENT
    spreads = rng.uniform(*_SPREADS, CLUSTERS).astype(np.float32)
    cluster = rng.choice(CLUSTERS, items + fresh, p=sizes / sizes.sum())
    vectors = normalized(centres[cluster] + spreads[cluster, None] * noise(items + fresh, dim))
    near = centres[rng.choice(CLUSTERS, queries, p=sizes / sizes.sum())]
    other = centres[rng.integers(0, CLUSTERS, queries)]
    users = normalized(near + _QUERY_SPREAD * noise(queries, dim) + _QUERY_MIX * other)
    return Clustered(vectors[:items], vectors[items:], users)


def normalized(vectors: np.ndarray) -> np.ndarray:
    """Rows [N,d] divided by their l2-norms."""
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
