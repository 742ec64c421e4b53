"""How a call gets its batches: from an iterator in this process, or as a slice of a pool that a worker reads itself.

A feed chooses a call's work when the call begins (`next`), and in its trace opens it (`open`): (step -> batch, steps).
"""
import numpy as np
import tensorflow as tf

from clrec_tf.data.input_pipeline import example_fields
from clrec_tf.data.input_pipeline import pool_batch
from clrec_tf.data.input_pipeline import pool_examples
from clrec_tf.data.pools import per_click
from clrec_tf.data.pools import query_parts
from clrec_tf.data.pools import read_pool
from clrec_tf.data.query_features import query_width

HEADER = 5  # epoch, pool, records, first batch, steps; then the pool's shards


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
    """For workers: each keeps one pool in its memory, and reads another when it is given a slice of another.

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
        self._variables["held"] = local_variable(lambda worker: tf.constant([-1, -1], tf.int64), (2,), tf.int64)

    @property
    def spec(self):
        """Of a call's argument."""
        return tf.TensorSpec([HEADER + self._max_shards], tf.int64)

    def next(self, worker, steps):
        """(steps, arguments of the call) of at most `steps` steps."""
        work = np.full(HEADER + self._max_shards, -1, np.int64)
        taken = self._assignments.take(worker, steps)
        if taken is None:
            work[:HEADER] = 0
            return 0, (tf.constant(work),)
        pool = taken.pool
        work[:HEADER] = pool.epoch, pool.index, pool.records, taken.first, taken.steps
        work[HEADER:HEADER + len(pool.shards)] = pool.shards
        return taken.steps, (tf.constant(work),)

    def open(self, work):
        """In a trace: the work that `next` chose."""
        handles = {name: variable.handle for name, variable in self._variables.items()}
        with tf.device("/device:CPU:0"):
            held = tf.ensure_shape(tf.raw_ops.ReadVariableOp(resource=handles["held"], dtype=tf.int64), (2,))
            steps, same = work[4], tf.reduce_all(held == work[:2])
            ready = tf.cond(same | (steps == 0), lambda: True, lambda: self._load(handles, work))
            with tf.control_dependencies([ready]):
                kept = {name: tf.ensure_shape(tf.raw_ops.ReadVariableOp(resource=handles[name], dtype=dtype), shape)
                        for name, (dtype, shape) in self._fields.items()}

        def batch_of(step):
            with tf.device("/device:CPU:0"):
                examples = {name: kept[name] for name in self._examples}
                return pool_batch(kept, examples, work[:2], work[3] + step, self._plan, self._max_history,
                                  self._time_dropout)
        return batch_of, steps

    def _load(self, handles, work):
        """Reads a pool into the worker's variables. What is half read is held by no name."""
        def assign(name, value):
            return tf.raw_ops.AssignVariableOp(resource=handles[name], value=value, validate_shape=False)

        forget = assign("held", tf.constant([-1, -1], tf.int64))
        shards = work[HEADER:]
        files = tf.gather(tf.constant(self._files), tf.boolean_mask(shards, shards >= 0))
        with tf.control_dependencies([forget]):
            pool = read_pool(files, work[2], self._schema).get_single_element()
        pool |= pool_examples(pool, work[:2], self._plan)
        with tf.control_dependencies([assign(name, pool[name]) for name in self._fields]):
            held = assign("held", work[:2])
        with tf.control_dependencies([held]):
            return tf.constant(True)


def _empty(shape, dtype):
    return lambda worker: tf.zeros([size or 0 for size in shape], dtype)
