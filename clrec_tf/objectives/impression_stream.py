"""The impression log as a source of negatives: what was shown, whether clicked or not."""
import math

import numpy as np
import tensorflow as tf

from clrec_tf.objectives.resources import Constants
from clrec_tf.objectives.resources import in_memory
from clrec_tf.objectives.resources import read


class ImpressionStream(tf.Module):
    """Item rows of impressions, in an order without neighbours, each once before any comes again.

    The order steps through the log by a stride that shares no factor with its length, so it is a function of the
    number of impressions taken, which is the stream's only state: a resumed training goes on where it was.

    Args:
      items: [N] int item id of each impression; all are held in memory.
      rows: [item_rows,C] int64, item row by id.
      seed: of the stride.
      local_variable: (make, shape, dtype) -> variable, from the runtime; workers start at different places.
      local_constant: see `resources.Constants`.
    """

    def __init__(self, items, rows, seed, local_variable, local_constant=in_memory):
        super().__init__(name="impressions")
        self.constants = Constants(local_constant, items=np.asarray(items, np.int32), rows=rows)
        self.size = len(items)
        self.stride = coprime_stride(len(items), seed)
        self.local_variables = {
            "taken": local_variable(lambda worker: tf.cast(worker, tf.int64) * 7_368_787, (), tf.int64)}

    def open(self) -> "OpenImpressionStream":
        """The stream in this trace; once, outside of loops and conditions."""
        return OpenImpressionStream(self)


class OpenImpressionStream:
    """An `ImpressionStream` in one trace."""

    def __init__(self, stream: ImpressionStream):
        self._size, self._stride, self._constants = stream.size, stream.stride, stream.constants.open()
        self._taken = stream.local_variables["taken"].handle

    def next(self, count) -> tf.Tensor:
        """Item rows [count,C] of the next impressions; count int or scalar integer tensor."""
        taken, count = read(self._taken, (), tf.int64), tf.cast(count, tf.int64)
        tf.raw_ops.AssignAddVariableOp(resource=self._taken, value=count)
        size = self._size
        # Reduced before the product, so that it stays below 2^63.
        places = (taken + tf.range(count)) % size * self._stride % size
        return tf.gather(self._constants["rows"], tf.gather(self._constants["items"], places))


def coprime_stride(size: int, seed: int) -> int:
    """A number below `size` without a common factor, near a random place: its multiples visit all places once."""
    stride = int(np.random.default_rng(seed).integers(max(size // 3, 1), max(size - size // 3, 2)))
    while math.gcd(stride, size) != 1:
        stride += 1
    return stride % max(size, 2)
