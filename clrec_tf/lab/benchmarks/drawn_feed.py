"""Feeds whose batches do not travel: a worker draws them itself, from the number of a step."""
import threading

import tensorflow as tf

from clrec_tf.config import Config
from clrec_tf.lab.benchmarks.workload import DRAW_SEED
from clrec_tf.lab.benchmarks.workload import GeneratedItems


class CountedFeed:
    """Hands out steps by their number, and keeps its own assignments, see ``training/dispatch``.

    Attributes:
      limit: steps in all up to which it hands out.
      taken: steps handed out.
    """

    spec = tf.TensorSpec([2], tf.int64)  # the first step's number, and how many

    def __init__(self):
        self.limit = self.taken = 0
        self._lock = threading.Lock()

    def next(self, worker, steps):
        """(steps, arguments of the call) of at most `steps` steps."""
        del worker
        with self._lock:
            first, steps = self.taken, max(0, min(steps, self.limit - self.taken))
            self.taken += steps
        return steps, (tf.constant([first, steps], tf.int64),)


class DrawnFeed(CountedFeed):
    """Batches of full histories as `workload.draw_batches` has them, a function of the step's number.

    Args:
      items: the catalogue.
      config: settings.
    """

    def __init__(self, items: GeneratedItems, config: Config):
        super().__init__()
        self._items, self._size, self._length = items, config.train.batch_size, config.model.max_history

    def open(self, work):
        """In a trace: the work that `next` chose."""
        return lambda step: self.batch(work[0] + step), work[1]

    def batch(self, step) -> dict[str, tf.Tensor]:
        """The batch of a step, its fields those of ``models/clrec``."""
        size, length = self._size, self._length
        with tf.device("/device:CPU:0"):
            seed = tf.stack([tf.constant(DRAW_SEED, tf.int64), tf.cast(step, tf.int64)])
            ids = self._drawn([size * (length + 1)], seed)
            rows = tf.stack(self._items.columns(ids), axis=-1)
            return dict(history=tf.reshape(rows[size:], [size, length, rows.shape[-1]]), target=rows[:size],
                        length=tf.fill([size], tf.constant(length, tf.int64)), user_id=tf.range(size, dtype=tf.int64),
                        weight=tf.ones([size]))

    def _drawn(self, shape, seed):
        """Ids 1..V, distributed as `GeneratedItems.drawn` has them."""
        count = self._items.count
        if self._items.draw == "uniform":
            return tf.random.stateless_uniform(shape, seed, 1, count + 1, tf.int64)
        chance = tf.random.stateless_uniform(shape, seed, dtype=tf.float64)
        return tf.minimum(tf.cast(tf.pow(tf.constant(count + 1.0, tf.float64), chance), tf.int64), count)
