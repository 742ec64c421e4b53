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
from clrec_tf.objectives.resources import read
from clrec_tf.objectives.resources import zeros

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
        self.specs = {name: (tuple([intents * capacity] + spec.shape.as_list()), spec.dtype)
                      for name, spec in fields.items()}
        self.specs |= {"counts": ((intents,), tf.int64), "pushes": ((), tf.int64)}
        self.intent_variables = {name: local_variable(zeros(shape, dtype), shape, dtype)
                                 for name, (shape, dtype) in self.specs.items()}

    @property
    def local_variables(self) -> dict:
        """All variables by name, for checkpoints."""
        return {**{f"main_{name}": variable for name, variable in self.main.local_variables.items()},
                **{f"intent_{name}": variable for name, variable in self.intent_variables.items()}}

    def open(self) -> "OpenMultiQueue":
        """The queues in this trace; once, outside of loops and conditions."""
        return OpenMultiQueue(self)


class OpenMultiQueue:
    """A `MultiQueue` in one trace.

    Attributes:
      main: the main queue, an `OpenFifoQueue`.
    """

    def __init__(self, queues: MultiQueue):
        self.capacity, self.intents, self._specs = queues.capacity, queues.intents, queues.specs
        self.main = queues.main.open()
        self._handles = {name: variable.handle for name, variable in queues.intent_variables.items()}

    def push(self, valid, route, **values) -> Enqueued:
        """Pushes the valid rows into the main queue, and what it drops into the queues of their intents.

        Args:
          valid: [B] bool; other rows do not enter. At most as many are valid as the main queue holds.
          route: fields of B entries, by name -> their intents [B] int, as the model is now.
          **values: field -> [B, ...].

        Returns:
          What happened in the main queue.
        """
        clock = self.read("pushes")
        left, entries = self.main.leaving(valid)
        pushed = self.main.enqueue(valid, **values, **{CLOCK: tf.fill(tf.shape(valid), clock)})
        tf.raw_ops.AssignAddVariableOp(resource=self._handles["pushes"], value=tf.constant(1, tf.int64))
        places = intent_slots(route(entries), left, self.read("counts"), self.capacity)
        kept = places.slots >= 0
        slots = tf.boolean_mask(places.slots, kept)
        for name, value in entries.items():
            tf.raw_ops.ResourceScatterUpdate(resource=self._handles[name], indices=slots,
                                             updates=tf.boolean_mask(value, kept))
        tf.raw_ops.AssignAddVariableOp(resource=self._handles["counts"], value=places.received)
        return pushed

    def read(self, name) -> tf.Tensor:
        """One field of all slots of the intents' queues, [H·Q, ...], queue by queue; see `valid`."""
        return read(self._handles[name], *self._specs[name])

    def fill(self) -> tf.Tensor:
        """Entries of each intent's queue, [H] int64."""
        return tf.minimum(self.read("counts"), self.capacity)

    def valid(self) -> tf.Tensor:
        """Which slots of the intents' queues hold an entry, [H,Q] bool: the first of each."""
        return tf.range(self.capacity, dtype=tf.int64)[None, :] < self.fill()[:, None]

    def full(self) -> tf.Tensor:
        """Whether no further push makes any queue longer, scalar bool."""
        return ((self.main.fill() == self.main.capacity)
                & tf.reduce_all(self.fill() == self.capacity))

    def ages(self) -> tf.Tensor:
        """Age of the oldest entry of the main queue and of each intent's, pushes since it was clicked: [1+H] int64,
        0 where there is none."""
        clock = self.read("pushes")
        main = self.main.read(CLOCK)[:self.main.fill()]
        own = tf.where(self.valid(), tf.reshape(self.read(CLOCK), [self.intents, -1]), clock)
        oldest = tf.concat([[tf.reduce_min(tf.concat([main, [clock]], 0))], tf.reduce_min(own, axis=1)], axis=0)
        return clock - oldest
