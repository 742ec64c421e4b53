"""The 1+H queues of Multi-CLRec: a main queue of all clicks, and one queue for each intent (paper, "Multi-CLRec").

Clicks enter the main queue alone. What the main queue drops moves to the queue of the intent that it is routed to then;
what an intent's queue drops is gone. So a click is in one queue at a time, a batch's own clicks are only in the main
queue, and nothing is routed twice.

Letters: B batch, H intents, Q capacity of an intent's queue.
"""
import dataclasses

import tensorflow as tf

from clrec_tf.objectives.fifo_queue import Enqueued
from clrec_tf.objectives.fifo_queue import FifoQueue

CLOCK = "entered"  # field: pushes before the entry's own


@dataclasses.dataclass(frozen=True)
class Slots:
    """Where the items of one push go in the intents' queues.

    Attributes:
      slots: [B] int64, intent · Q + place; −1 for items left out.
      received: [H] int64, items that each intent has been sent, those beyond its capacity included.
    """
    slots: tf.Tensor
    received: tf.Tensor


def intent_slots(intents: tf.Tensor, valid: tf.Tensor, counts: tf.Tensor, capacity: int) -> Slots:
    """Distinct slots for items that arrive together, in order, each in the ring buffer of its intent.

    Args:
      intents: [B] int, 0..H−1.
      valid: [B] bool; other items are left out.
      counts: [H] int64, items that each intent was ever sent.
      capacity: Q. Of an intent that is sent more than Q at once, the last Q get slots: no slot is given twice, since
        the order of writes to one slot is not defined.
    """
    tf.debugging.assert_shapes([(intents, "B"), (valid, "B"), (counts, "H")])
    sent = tf.one_hot(intents, counts.shape[0], dtype=tf.int64) * tf.cast(valid, tf.int64)[:, None]
    rank = tf.reduce_sum((tf.cumsum(sent, axis=0) - 1) * sent, axis=1)
    received = tf.reduce_sum(sent, axis=0)
    intents = tf.cast(intents, tf.int64)
    kept = valid & (tf.gather(received, intents) - rank <= capacity)
    place = (tf.gather(counts, intents) + rank) % capacity
    return Slots(tf.where(kept, intents * capacity + place, -1), received)


class MultiQueue(tf.Module):
    """The main queue and the intents' queues.

    Args:
      main_capacity: of the main queue.
      capacity: Q, of each intent's queue.
      intents: H.
      fields: name -> `tf.TensorSpec` of one entry, as of a `FifoQueue`.
      local_variable: see `FifoQueue`.
    """

    def __init__(self, main_capacity, capacity, intents, fields, local_variable):
        super().__init__(name="multi_queue")
        self.capacity, self.intents = capacity, intents
        fields = {**fields, CLOCK: tf.TensorSpec([], tf.int64)}
        self.main = FifoQueue(main_capacity, fields, local_variable)
        # The intents' queues stand one behind the other.
        self._specs = {name: (tuple([intents * capacity] + spec.shape.as_list()), spec.dtype)
                       for name, spec in fields.items()}
        self._specs |= {"counts": ((intents,), tf.int64), "pushes": ((), tf.int64)}
        self._variables = {name: local_variable(_zeros(shape, dtype), shape, dtype)
                           for name, (shape, dtype) in self._specs.items()}

    @property
    def local_variables(self) -> dict:
        """All variables by name, for checkpoints."""
        return {**{f"main_{name}": variable for name, variable in self.main.local_variables.items()},
                **{f"intent_{name}": variable for name, variable in self._variables.items()}}

    def handles(self):
        """The variables' handles; take them once per trace, outside of loops and conditions."""
        return {"main": self.main.handles(), "intent": {name: variable.handle
                                                        for name, variable in self._variables.items()}}

    def push(self, handles, valid, route, **values) -> Enqueued:
        """Pushes the valid rows into the main queue, and what it drops into the queues of their intents.

        Args:
          handles: of this trace.
          valid: [B] bool; other rows do not enter. At most as many are valid as the main queue holds.
          route: fields of B entries, by name -> their intents [B] int, as the model is now.
          **values: field -> [B, ...].

        Returns:
          What happened in the main queue.
        """
        clock = self._read(handles, "pushes")
        left, entries = self.main.leaving(handles["main"], valid)
        pushed = self.main.enqueue(handles["main"], valid, **values, **{CLOCK: tf.fill(tf.shape(valid), clock)})
        tf.raw_ops.AssignAddVariableOp(resource=handles["intent"]["pushes"], value=tf.constant(1, tf.int64))
        found = intent_slots(route(entries), left, self._read(handles, "counts"), self.capacity)
        kept = found.slots >= 0
        slots = tf.boolean_mask(found.slots, kept)
        for name, value in entries.items():
            tf.raw_ops.ResourceScatterUpdate(resource=handles["intent"][name], indices=slots,
                                             updates=tf.boolean_mask(value, kept))
        tf.raw_ops.AssignAddVariableOp(resource=handles["intent"]["counts"], value=found.received)
        return pushed

    def read(self, handles, name) -> tf.Tensor:
        """One field of all slots of the intents' queues, [H·Q, ...], queue by queue; see `valid`."""
        return self._read(handles, name)

    def fill(self, handles) -> tf.Tensor:
        """Entries of each intent's queue, [H] int64."""
        return tf.minimum(self._read(handles, "counts"), self.capacity)

    def valid(self, handles) -> tf.Tensor:
        """Which slots of the intents' queues hold an entry, [H,Q] bool: the first of each."""
        return tf.range(self.capacity, dtype=tf.int64)[None, :] < self.fill(handles)[:, None]

    def full(self, handles) -> tf.Tensor:
        """Whether no further push makes any queue longer, scalar bool."""
        return ((self.main.fill(handles["main"]) == self.main.capacity)
                & tf.reduce_all(self.fill(handles) == self.capacity))

    def ages(self, handles) -> tf.Tensor:
        """Age of the oldest entry of the main queue and of each intent's, pushes since it was clicked: [1+H] int64,
        0 where there is none."""
        clock = self._read(handles, "pushes")
        main = self.main.read(handles["main"], CLOCK)[:self.main.fill(handles["main"])]
        own = tf.where(self.valid(handles), tf.reshape(self._read(handles, CLOCK), [self.intents, -1]), clock)
        oldest = tf.concat([[tf.reduce_min(tf.concat([main, [clock]], 0))], tf.reduce_min(own, axis=1)], axis=0)
        return clock - oldest

    def _read(self, handles, name):
        shape, dtype = self._specs[name]
        return tf.ensure_shape(tf.raw_ops.ReadVariableOp(resource=handles["intent"][name], dtype=dtype), shape)


def _zeros(shape, dtype):
    """Initial value of an empty queue's variable."""
    return lambda worker: tf.zeros(shape, dtype)
