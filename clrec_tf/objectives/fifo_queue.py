"""The first-in first-out queue of clicked items: a ring buffer and one counter.

Its variables may be worker-local (one copy on each worker, never synchronised, never on a parameter server). Such
variables have no automatic control dependencies between two reads of ``.handle``, so every operation of one trace
goes through the handles that `handles()` gives once, outside of loops and conditions.
"""
import dataclasses

import tensorflow as tf


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
            name: local_variable(_zeros(shape, dtype), shape, dtype) for name, (shape, dtype) in self.specs.items()}

    def handles(self):
        """The variables' handles; take them once per trace, outside of loops and conditions."""
        return {name: variable.handle for name, variable in self.local_variables.items()}

    def enqueue(self, handles, valid, **values) -> Enqueued:
        """Pushes the valid rows, in order, over the oldest entries.

        Args:
          handles: of this trace.
          valid: [B] bool; other rows do not enter. At most Q are valid.
          **values: field -> [B, ...].
        """
        count = self._read(handles, "count")
        rank = tf.cumsum(tf.cast(valid, tf.int64)) - 1
        pushed = tf.reduce_sum(tf.cast(valid, tf.int64))
        slots = tf.where(valid, (count + rank) % self.capacity, -1)
        where = tf.boolean_mask(slots, valid)
        for name, value in values.items():
            tf.raw_ops.ResourceScatterUpdate(
                resource=handles[name], indices=where, updates=tf.boolean_mask(tf.stop_gradient(value), valid))
        tf.raw_ops.AssignAddVariableOp(resource=handles["count"], value=pushed)
        entries = tf.range(self.capacity, dtype=tf.int64)
        just_pushed = (entries - count) % self.capacity < pushed
        return Enqueued(slots, tf.minimum(count + pushed, self.capacity), (entries < count) & ~just_pushed)

    def leaving(self, handles, valid):
        """What a push of the valid rows will overwrite; to be called before it, with as many fields as the queue has.

        Args:
          handles: of this trace.
          valid: [B] bool; at most Q are.

        Returns:
          (left [B] bool, field -> [B, ...]): whether a row's slot holds an entry, and that entry.
        """
        count = self._read(handles, "count")
        place = count + tf.cumsum(tf.cast(valid, tf.int64)) - 1
        slots = tf.where(valid, place % self.capacity, 0)
        return valid & (place >= self.capacity), {
            name: tf.raw_ops.ResourceGather(resource=handles[name], indices=slots, dtype=dtype)
            for name, (_, dtype) in self.specs.items() if name != "count"}

    def read(self, handles, name) -> tf.Tensor:
        """One field of all slots, [Q, ...]; only the first `fill` hold entries."""
        return self._read(handles, name)

    def fill(self, handles) -> tf.Tensor:
        """Valid entries, scalar int64."""
        return tf.minimum(self._read(handles, "count"), self.capacity)

    def _read(self, handles, name):
        shape, dtype = self.specs[name]
        return tf.ensure_shape(tf.raw_ops.ReadVariableOp(resource=handles[name], dtype=dtype), shape)


def _zeros(shape, dtype):
    """Initial value of an empty queue's variable, on any worker and again when a worker restarts."""
    return lambda worker: tf.zeros(shape, dtype)


def duplicate_rate(item_ids: tf.Tensor) -> tf.Tensor:
    """Share of entries that repeat an item already counted: 1 − distinct/entries; [N] int64 -> scalar, 0 if empty."""
    entries = tf.size(item_ids)
    repeats = entries - tf.size(tf.unique(item_ids).y)
    return tf.math.divide_no_nan(tf.cast(repeats, tf.float32), tf.cast(entries, tf.float32))
