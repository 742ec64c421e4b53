"""How a call gets its batches: from an iterator in this process, or as a slice of a pool that a worker reads itself.

A feed chooses a call's work when the call begins (`next`), and in its trace opens it (`open`): (step -> batch, steps).
"""
import numpy as np
import tensorflow as tf

from clrec_tf.data.input_pipeline import example_fields
from clrec_tf.data.input_pipeline import pool_batch
from clrec_tf.data.input_pipeline import pool_examples
from clrec_tf.data.pools import parse_pool
from clrec_tf.data.pools import per_click
from clrec_tf.data.pools import query_parts
from clrec_tf.data.pools import serialized_pool
from clrec_tf.data.query_features import query_width
from clrec_tf.training.pool_ahead import NO_POOL
from clrec_tf.training.pool_ahead import PoolAhead

SLICE = 2  # first batch and steps; then the pool, then the one to be read ahead
HEADER = 3  # of a pool: epoch, index, records; then its shards


def open_iterator(iterator, steps):
    """Batches of an iterator, for that many steps."""
    def batch_of(step):
        del step
        return next(iterator)
    return batch_of, steps


class IteratorFeed:
    """For one process: an iterator over the assigned pools in order.

    Args:
      assignments: note what is handed out.
      dataset: the batches of `assignments.remaining()`.
    """

    open = staticmethod(open_iterator)

    def __init__(self, assignments, dataset):
        self._assignments, self._iterator = assignments, iter(dataset)

    def next(self, worker, steps):
        """(steps, arguments of the call) of at most `steps` steps."""
        del worker
        steps = self._assignments.advance(steps)
        return steps, (self._iterator, tf.constant(steps, tf.int64))


class PoolFeed:
    """For workers: each keeps one pool in its memory, and has the files of the next one read in the background.

    Args:
      assignments: hand out slices.
      plan: order and cut of the examples.
      files: the training shards.
      schema: facts of the data.
      max_history, time_dropout: see `pool_batch`.
      local_variable: from the runtime.
    """

    def __init__(self, assignments, plan, files, schema, max_history, time_dropout, local_variable):
        self._assignments, self._plan, self._files, self._schema = assignments, plan, files, schema
        self._max_history, self._time_dropout = max_history, time_dropout
        self._max_shards = plan.max_shards
        # The fields of `parse_pool` and `pool_examples`, with what is known of their shapes.
        self._fields = {"rows": (tf.int64, [None, schema.item_width]), "splits": (tf.int64, [None]),
                        "user_id": (tf.int64, [None]), "weight": (tf.float32, [None])}
        self._examples = example_fields(plan.target_mode)
        self._fields |= {name: (tf.int64, [None]) for name in (*self._examples, *per_click(schema))}
        self._fields |= {name: (tf.int64, [None, query_width(features)])
                         for name, features in query_parts(schema).items()}
        self._variables = {name: local_variable(_empty(shape, dtype), tf.TensorShape(None), dtype)
                           for name, (dtype, shape) in self._fields.items()}
        self._variables["held"] = local_variable(lambda worker: tf.constant(NO_POOL, tf.int64), (2,), tf.int64)
        self._ahead = PoolAhead(self._read, local_variable)

    @property
    def spec(self):
        """Of a call's argument."""
        return tf.TensorSpec([SLICE + 2 * (HEADER + self._max_shards)], tf.int64)

    def next(self, worker, steps):
        """(steps, arguments of the call) of at most `steps` steps."""
        taken = self._assignments.take(worker, steps)
        if taken is None:
            return 0, (tf.constant(np.concatenate([[0, 0], *[self._numbers(None)] * 2])),)
        work = np.concatenate([[taken.first, taken.steps], self._numbers(taken.pool), self._numbers(taken.ahead)])
        return taken.steps, (tf.constant(work),)

    def _numbers(self, pool):
        """A pool as `PoolAhead` has it, int64 [HEADER + shards]; -1 for None and in place of shards."""
        numbers = np.full(HEADER + self._max_shards, -1, np.int64)
        if pool is not None:
            numbers[:HEADER] = pool.epoch, pool.index, pool.records
            numbers[HEADER:HEADER + len(pool.shards)] = pool.shards
        return numbers

    def open(self, work):
        """In a trace: the work that `next` chose."""
        handles = {name: variable.handle for name, variable in self._variables.items()}
        with tf.device("/device:CPU:0"):
            first, steps = work[0], work[1]
            pool, following = tf.split(work[SLICE:], 2)
            ahead = self._ahead.open()
            held = tf.ensure_shape(tf.raw_ops.ReadVariableOp(resource=handles["held"], dtype=tf.int64), (2,))
            same = tf.reduce_all(held == pool[:2])
            ready = tf.cond(same | (steps == 0), lambda: True, lambda: self._load(handles, ahead, pool))
            with tf.control_dependencies([ready]):
                ahead.begin(following)  # beside the steps, which need not wait for it
                kept = {name: tf.ensure_shape(tf.raw_ops.ReadVariableOp(resource=handles[name], dtype=dtype), shape)
                        for name, (dtype, shape) in self._fields.items()}

        def batch_of(step):
            with tf.device("/device:CPU:0"):
                examples = {name: kept[name] for name in self._examples}
                return pool_batch(kept, examples, pool[:2], first + step, self._plan, self._max_history,
                                  self._time_dropout)
        return batch_of, steps

    def _files_of(self, pool):
        shards = pool[HEADER:]
        return tf.gather(tf.constant(self._files), tf.boolean_mask(shards, shards >= 0))

    def _read(self, pool):
        """A dataset of one element, a pool's records."""
        return serialized_pool(self._files_of(pool), pool[2])

    def _load(self, handles, ahead, pool):
        """Brings a pool into the worker's variables. What is half there is held by no name."""
        def assign(name, value):
            return tf.raw_ops.AssignVariableOp(resource=handles[name], value=value, validate_shape=False)

        with tf.control_dependencies([assign("held", tf.constant(NO_POOL, tf.int64))]):
            parsed = parse_pool(ahead.take(pool), pool[2], self._files_of(pool), self._schema)
        parsed |= pool_examples(parsed, pool[:2], self._plan)
        with tf.control_dependencies([assign(name, parsed[name]) for name in self._fields]):
            held = assign("held", pool[:2])
        with tf.control_dependencies([held]):
            return tf.constant(True)


def _empty(shape, dtype):
    return lambda worker: tf.zeros([size or 0 for size in shape], dtype)
