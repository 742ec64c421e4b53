"""The first-in first-out queue of clicked items: a ring buffer and one counter. Its variables may be worker-local."""
import dataclasses

import tensorflow as tf

from clrec_tf.objectives.resources import read
from clrec_tf.objectives.resources import zeros


@dataclasses.dataclass(frozen=True)
class Enqueued:
    """What one push did.

    Attributes:
      slots: [B] int64, where each row went; −1 for rows left out.
      fill: scalar int64, valid entries after the push; they are the slots 0..fill−1.
      older: [Q] bool, valid entries that were there before this push and still are.
    """
    slots: tf.Tensor
    fill: tf.Tensor
    older: tf.Tensor


class FifoQueue(tf.Module):
    """Fixed-capacity queue of rows of several fields (ids, owners, vectors).

    Args:
      capacity: Q.
      fields: name -> `tf.TensorSpec` of one entry, such as {"vector": TensorSpec([d], float32)}.
      local_variable: (make, shape, dtype) -> variable, where make(worker) gives the initial value; from the runtime.
    """

    def __init__(self, capacity, fields, local_variable):
        super().__init__(name="queue")
        self.capacity = capacity
        self.specs = {name: (tuple([capacity] + spec.shape.as_list()), spec.dtype) for name, spec in fields.items()}
        self.specs["count"] = ((), tf.int64)
        self.local_variables = {
            name: local_variable(zeros(shape, dtype), shape, dtype) for name, (shape, dtype) in self.specs.items()}

    def open(self) -> "OpenFifoQueue":
        """The queue in this trace; once, outside of loops and conditions."""
        return OpenFifoQueue(self)


class OpenFifoQueue:
    """A `FifoQueue` in one trace."""

    def __init__(self, queue: FifoQueue):
        self.capacity, self.specs = queue.capacity, queue.specs
        self._handles = {name: variable.handle for name, variable in queue.local_variables.items()}
        self._begin = self.read("count")

    def enqueue(self, valid, **values) -> Enqueued:
        """Pushes the valid rows, in order, over the oldest entries.

        Args:
          valid: [B] bool; other rows do not enter. At most Q are valid.
          **values: field -> [B, ...].
        """
        count = self.read("count")
        rank = tf.cumsum(tf.cast(valid, tf.int64)) - 1
        pushed = tf.reduce_sum(tf.cast(valid, tf.int64))
        slots = tf.where(valid, (count + rank) % self.capacity, -1)
        where = tf.boolean_mask(slots, valid)
        for name, value in values.items():
            tf.raw_ops.ResourceScatterUpdate(
                resource=self._handles[name], indices=where, updates=tf.boolean_mask(tf.stop_gradient(value), valid))
        tf.raw_ops.AssignAddVariableOp(resource=self._handles["count"], value=pushed)
        entries = tf.range(self.capacity, dtype=tf.int64)
        just_pushed = (entries - count) % self.capacity < pushed
        return Enqueued(slots, tf.minimum(count + pushed, self.capacity), (entries < count) & ~just_pushed)

    def leaving(self, valid):
        """What a push of the valid rows will overwrite; to be called before it, with as many fields as the queue has.

        Args:
          valid: [B] bool; at most Q are.

        Returns:
          (left [B] bool, field -> [B, ...]): whether a row's slot holds an entry, and that entry.
        """
        count = self.read("count")
        place = count + tf.cumsum(tf.cast(valid, tf.int64)) - 1
        slots = tf.where(valid, place % self.capacity, 0)
        return valid & (place >= self.capacity), {
            name: tf.raw_ops.ResourceGather(resource=self._handles[name], indices=slots, dtype=dtype)
            for name, (_, dtype) in self.specs.items() if name != "count"}

    def read(self, name) -> tf.Tensor:
        """One field of all slots, [Q, ...]; only the first `fill` hold entries."""
        return read(self._handles[name], *self.specs[name])

    def entered(self) -> tf.Tensor:
        """Entries that came in since the queue was opened, scalar int64."""
        return self.read("count") - self._begin

    def fill(self) -> tf.Tensor:
        """Valid entries, scalar int64."""
        return tf.minimum(self.read("count"), self.capacity)


def duplicate_rate(item_ids: tf.Tensor) -> tf.Tensor:
    """Share of entries that repeat an item already counted: 1 − distinct/entries; [N] int64 -> scalar, 0 if empty."""
    entries = tf.size(item_ids)
    repeats = entries - tf.size(tf.unique(item_ids).y)
    return tf.math.divide_no_nan(tf.cast(repeats, tf.float32), tf.cast(entries, tf.float32))
