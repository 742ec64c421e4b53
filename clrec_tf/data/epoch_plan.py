"""Which examples make up which step: a pure function of the manifest, the batch size and the seed.

An epoch visits the training shards in a seeded random order, `shuffle_shards` at a time: a pool. A pool's examples
are shuffled together and cut into batches; its last batch may be short and is padded with rows of weight 0. In mode
"all" batches are whole windows (see ``windows``), of about as many targets each. So every example of an epoch is
trained exactly once, and the number of steps is known beforehand. ``assignments`` keeps who takes which.
"""
import dataclasses

import numpy as np
import tensorflow as tf

from clrec_tf.data import schema as schema_lib
from clrec_tf.errors import DataError


@dataclasses.dataclass(frozen=True)
class Pool:
    """Shards shuffled together.

    Attributes:
      epoch: from 0.
      index: of the pool in its epoch.
      shards: indices into the manifest's training shards, in reading order.
      records: sequences in them.
      first_batch: batches to leave out (done before a restart).
      batches: batches of the whole pool.
    """
    epoch: int
    index: int
    shards: tuple[int, ...]
    records: int
    first_batch: int
    batches: int


class EpochPlan:
    """Pools and steps of each epoch.

    Args:
      shards: the manifest's training shards.
      batch_size: B.
      shuffle_shards: shards per pool.
      target_mode: "last": one example per sequence; "sliding" and "all": one per click after a sequence's first.
      seed: of the shards' order.
      max_history: T, the longest window of mode "all".
      clicks_after: of modes "last" and "sliding", clicks from the target on that an example has too, at most; 0: none.
    """

    def __init__(self, shards: tuple[schema_lib.Shard, ...], batch_size: int, shuffle_shards: int, target_mode: str,
                 seed: int, max_history: int = 1, clicks_after: int = 0):
        self.batch_size, self.target_mode, self.seed = batch_size, target_mode, seed
        self.max_history, self.clicks_after = max_history, clicks_after
        self._shuffle_shards = shuffle_shards
        self._records = np.array([shard.records for shard in shards], np.int64)
        events = np.array([shard.events for shard in shards], np.int64)
        self._examples = self._records if target_mode == "last" else events - self._records
        if self.examples == 0:
            raise DataError(f"the training part has no example for target_mode={target_mode}: "
                            "all its sequences are shorter than two clicks")

    @property
    def examples(self) -> int:
        """Examples of one epoch."""
        return int(self._examples.sum())

    @property
    def max_shards(self) -> int:
        """Shards of a pool, at most."""
        return min(self._shuffle_shards, len(self._records))

    def pools(self, epoch: int) -> list[Pool]:
        """The epoch's pools, those without any example left out."""
        order = np.random.default_rng([self.seed, epoch]).permutation(len(self._records))
        pools = []
        for index, start in enumerate(range(0, len(order), self._shuffle_shards)):
            shards = order[start:start + self._shuffle_shards]
            batches = self.batches(int(self._examples[shards].sum()))
            if batches:
                pools.append(Pool(epoch, index, tuple(map(int, shards)), int(self._records[shards].sum()), 0, batches))
        return pools

    def batches(self, examples: int) -> int:
        """Batches that so many examples of a pool make."""
        if self.target_mode == "all":
            return max(examples // self.least_targets, min(examples, 1))
        return -(-examples // self.batch_size)

    @property
    def least_targets(self) -> int:
        """Targets of a batch in mode "all", at least, if a pool has so many: no fewer than T, so that in every one of
        equal shares of the targets some window begins."""
        return max(self.batch_size, self.max_history)

    def random_seed(self, epoch, part):
        """Seed [2] int64 of one part of an epoch, for stateless random numbers; epoch and part int64 tensors."""
        return tf.stack([tf.constant(self.seed, tf.int64) * 1_000_003 + epoch, part])

    def steps(self, epoch: int) -> int:
        """Steps of one epoch."""
        return sum(pool.batches for pool in self.pools(epoch))

    def epoch_ends(self, epochs: int) -> list[int]:
        """Steps done at the end of each epoch."""
        return np.cumsum([self.steps(epoch) for epoch in range(epochs)], dtype=int).tolist()
