"""The batch scheduler: hands out each batch once, and knows at any time which are left.

One reader takes the pools in order (`advance`). Workers of a cluster take slices of pools (`take`): each keeps to a
pool of its own while that has batches, so that it reads the files once, then begins another, which it was told before
so that it could read ahead, and in the end helps with those of others. So a slow worker's share goes to the rest. An
epoch's batches are handed out before the next epoch's.
"""
import dataclasses
import itertools
import threading
from typing import Iterable, Iterator, Optional

from clrec_tf.data.epoch_plan import EpochPlan
from clrec_tf.data.epoch_plan import Pool
from clrec_tf.errors import DataError


@dataclasses.dataclass(frozen=True)
class Slice:
    """Batches first..first+steps−1 of a pool, and the pool that the worker will most likely begin next, or None."""
    pool: Pool
    first: int
    steps: int
    ahead: Optional[Pool]


class Assignments:
    """The batches of all epochs.

    Args:
      plan: order and cut of the examples.
      epochs: passes over the data in all.
      step: steps done, in order, where there is no `position`.
      position: of earlier assignments over the same plan, from its `position()`.

    Raises:
      DataError: the position is of another plan.
    """

    def __init__(self, plan: EpochPlan, epochs: int, step: int = 0, position: Optional[dict] = None):
        self.epoch_ends = plan.epoch_ends(epochs)
        self.limit = self.total = self.epoch_ends[-1] if self.epoch_ends else 0
        self._plan, self._epochs, self._lock = plan, epochs, threading.Lock()
        self._ahead_of_worker = {}  # worker -> pool that it was told to read, or None
        self._begin(position["epoch"] if position else 0)
        if position:
            for pool, taken in position["pools"].items():
                known = self._pools.get(int(pool))
                if self._pools and (known is None or not 0 <= taken <= known.batches):
                    raise DataError(f"the checkpoint is at batch {taken} of pool {pool} in epoch {self._epoch}, which "
                                    "is not in this data set: give the one that the run was trained on")
                self._taken[int(pool)] = taken
        self.taken = sum(self._taken.values()) + ([0] + self.epoch_ends)[min(self._epoch, len(self.epoch_ends))]
        if not position:
            self.advance(step)

    def _begin(self, epoch: int):
        self._epoch, self._pool_of_worker = epoch, {}
        self._pools, self._following = self._pools_of(epoch), self._pools_of(epoch + 1)
        self._taken = dict.fromkeys(self._pools, 0)

    def _pools_of(self, epoch: int) -> dict[int, Pool]:
        return {pool.index: pool for pool in self._plan.pools(epoch)} if epoch < self._epochs else {}

    def _left(self, index: int) -> int:
        return self._pools[index].batches - self._taken[index]

    def take(self, worker: int, steps: int) -> Optional[Slice]:
        """The next batches for a worker, at most `steps` and not past `limit`; None where there are none.

        The limit, steps in all, is set from outside: the next checkpoint, validation or the end.
        """
        with self._lock:
            steps = min(steps, self.limit - self.taken)
            if steps <= 0 or not self._unfinished():
                return None
            index = self._pool_for(worker)
            self._pool_of_worker[worker] = index
            steps, first = min(steps, self._left(index)), self._taken[index]
            self._taken[index] += steps
            self.taken += steps
            return Slice(self._pools[index], first, steps, self._ahead_for(worker))

    def _pool_for(self, worker: int) -> int:
        """The worker's own pool while it has batches, else the one that it was told before, else one that no other
        worker has or was told, else one that none has begun, else the fullest."""
        open_pools = self._unfinished()
        if self._pool_of_worker.get(worker) in open_pools:
            return self._pool_of_worker[worker]
        told = self._ahead_of_worker.get(worker)
        if told and told.epoch == self._epoch and told.index in open_pools:
            return told.index
        free = next(self._free_for(worker), None)
        if free:
            return free.index
        not_begun = [index for index in open_pools if index not in self._pool_of_worker.values()]
        return not_begun[-1] if not_begun else max(open_pools, key=self._left)

    def _free_for(self, worker: int) -> Iterator[Pool]:
        """Unfinished pools that no worker has and no other one was told to read."""
        return self._not_told_to_others(worker, (
            pool for index, pool in self._pools.items()
            if self._left(index) and index not in self._pool_of_worker.values()))

    def _not_told_to_others(self, worker: int, pools: Iterable[Pool]) -> Iterator[Pool]:
        told = {pool for other, pool in self._ahead_of_worker.items() if other != worker}
        return (pool for pool in pools if pool not in told)

    def _ahead_for(self, worker: int) -> Optional[Pool]:
        """The pool that a worker should read now, to begin it later: the first that is free, or one of the next epoch.

        That is what it was told before while that stands: pools become taken, and none becomes free again.
        """
        free = itertools.chain(self._free_for(worker), self._not_told_to_others(worker, self._following.values()))
        self._ahead_of_worker[worker] = next(free, None)
        return self._ahead_of_worker[worker]

    def _unfinished(self) -> list[int]:
        """Pools with batches left, of the next epoch where this one has none."""
        while self._epoch < self._epochs:
            unfinished = [index for index in self._pools if self._left(index)]
            if unfinished:
                return unfinished
            self._begin(self._epoch + 1)
        return []

    def advance(self, steps: int) -> int:
        """Takes batches in the order of `remaining`, up to `limit`; returns how many."""
        with self._lock:
            steps = left = min(steps, self.limit - self.taken)
            while left:
                index = self._unfinished()[0]
                steps_of_pool = min(left, self._left(index))
                self._taken[index] += steps_of_pool
                left -= steps_of_pool
            self.taken += steps
            return steps

    def remaining(self) -> list[Pool]:
        """Pools that have batches left, in order; of those begun, `first_batch` says where to go on."""
        with self._lock:
            begun = [dataclasses.replace(self._pools[index], first_batch=self._taken[index])
                     for index in self._unfinished()]
            return begun + [pool for epoch in range(self._epoch + 1, self._epochs) for pool in self._plan.pools(epoch)]

    def position(self) -> dict:
        """What has been handed out, for JSON: the epoch, and of its pools the batches taken."""
        with self._lock:
            return {"epoch": self._epoch, "pools": {str(pool): taken for pool, taken in self._taken.items() if taken}}
