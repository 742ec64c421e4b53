"""What a retrieval service is measured with: a catalogue in clusters, and users who click in a few of them.

Items lie as in `clustered_vectors`.
"""
import dataclasses
import functools

import numpy as np

from clrec_tf.data.catalogue import Catalogue
from clrec_tf.data.evaluation_set import EvaluationSet
from clrec_tf.data.schema import Feature
from clrec_tf.data.schema import Schema
from clrec_tf.lab.benchmarks.clustered_vectors import cluster_shares
from clrec_tf.lab.benchmarks.clustered_vectors import CLUSTERS
from clrec_tf.lab.benchmarks.clustered_vectors import draw_around
from clrec_tf.lab.benchmarks.clustered_vectors import draw_centres
from clrec_tf.lab.benchmarks.clustered_vectors import draw_spreads

ITEMS_PER_CLUSTER = 20  # on average, at least
# Of a user's clusters in the user's clicks, the next click included: one that a single vector can lie near, and enough
# others for clicks of more than four intents.
SHARES = (0.45, 0.17, 0.11, 0.08, 0.07, 0.05, 0.04, 0.03)
SIMULATOR_SEED, TRAINED, HELD_OUT, ASKING = 0, 1, 2, 3  # seeds of the simulator, and of users for different ends


@dataclasses.dataclass(frozen=True)
class Users:
    """n users, all with histories of one length L.

    Attributes:
      clusters: [n,8], each one's, by falling share; one may come twice.
      history: [n,L] item ids.
      target: [n] item ids, the next click.
    """
    clusters: np.ndarray
    history: np.ndarray
    target: np.ndarray


@dataclasses.dataclass(frozen=True)
class CatalogueSimulator:
    """V items, ids 1..V, and any number of users.

    Attributes:
      items: V.
      dim: d.
    """
    items: int
    dim: int

    @functools.cached_property
    def cluster(self) -> np.ndarray:
        """[V] the cluster of each item, from 0."""
        count = max(1, min(CLUSTERS, self.items // ITEMS_PER_CLUSTER))
        return np.random.default_rng(SIMULATOR_SEED).choice(count, self.items, p=cluster_shares(count))

    def vectors(self) -> np.ndarray:
        """float32 [V+1,d], l2-normalized; row 0 is zero."""
        random, count = np.random.default_rng(SIMULATOR_SEED + 1), self.cluster.max() + 1
        centres, spreads = draw_centres(random, count, self.dim), draw_spreads(random, count)
        vectors = np.zeros((self.items + 1, self.dim), np.float32)
        vectors[1:] = draw_around(random, centres, spreads, self.cluster)
        return vectors

    def rows(self, ids: np.ndarray) -> np.ndarray:
        """Item rows [...,2] int64 of ids: the id, and its category, which is its cluster."""
        return np.stack([ids, 1 + self.cluster[ids - 1]], axis=-1).astype(np.int64)

    def users(self, count: int, length: int, seed: int) -> Users:
        """Draws users: clusters by size, clicks among a user's clusters by `SHARES`, items uniformly in a cluster."""
        random = np.random.default_rng([SIMULATOR_SEED, seed])
        sizes = np.bincount(self.cluster)
        starts, by_cluster = np.cumsum(sizes) - sizes, np.argsort(self.cluster, kind="stable")
        clusters = random.choice(len(sizes), (count, len(SHARES)), p=sizes / self.items)
        places = random.choice(len(SHARES), (count, length + 1), p=SHARES)
        clicked = np.take_along_axis(clusters, places, axis=1)
        ids = 1 + by_cluster[starts[clicked] + (random.random(clicked.shape) * sizes[clicked]).astype(np.int64)]
        return Users(clusters, ids[:, :-1], ids[:, -1])

    def schema(self) -> Schema:
        """The facts that models are built from."""
        rows = int(self.cluster.max()) + 2
        return Schema(self.items, self.items + 1, (Feature("category", rows, 1, rows - 1),), 0, "int", False, 0, 0,
                      {}, {})

    def catalogue(self, counts: np.ndarray) -> Catalogue:
        """Clicks by item [V] -> the catalogue, whose original ids are the ids."""
        ids = np.arange(1, self.items + 1)
        return Catalogue(self.rows(ids), counts, ids, None)

    def evaluation_set(self, users: Users) -> EvaluationSet:
        """Users as export takes them."""
        count, length = users.history.shape
        return EvaluationSet(np.arange(count), users.history.ravel(), length * np.arange(count + 1), users.target,
                             np.arange(count + 1), history_features=self.rows(users.history.ravel())[:, 1:])
