"""The files of a worker's next pool, read in the background while its calls train on another.

An iterator of the worker has a name, so it outlives the call that begins it: TensorFlow's threads go on reading between
calls, and a later call takes what they have read. A pool that nobody has begun is read by the call that needs it.
"""
import uuid

import tensorflow as tf

NO_POOL = (-1, -1)
_ELEMENT = dict(output_types=[tf.string], output_shapes=[tf.TensorShape([None])])


class PoolAhead:
    """Pools of a worker, each read ahead of its use or when it is used.

    Args:
      read: of a pool, a vector int64 that begins with its epoch and index, gives a dataset of one element, its records
        [n] string. Functions in it would be compiled anew for each pool.
      local_variable: from the runtime.
    """

    def __init__(self, read, local_variable):
        self._read = read
        # No other feed's, nor that of an earlier chief, whose worker may live on.
        self._name = f"pool_ahead_{uuid.uuid4().hex}"
        self._begun = local_variable(lambda worker: tf.constant(NO_POOL, tf.int64), (2,), tf.int64)

    def open(self) -> "OpenPoolAhead":
        """In a trace, outside of conditions and loops, where worker-local variables cannot be touched first."""
        iterator = tf.raw_ops.IteratorV2(shared_name=self._name, container="", **_ELEMENT)
        return OpenPoolAhead(self._read, iterator, self._begun.handle)


class OpenPoolAhead:
    """The same in a trace. All of it is safe to repeat after an error: what is half read has no name."""

    def __init__(self, read, iterator, begun):
        self._read, self._iterator, self._begun = read, iterator, begun

    def take(self, pool) -> tf.Tensor:
        """The records of a pool [n] string, which was begun or is read now."""
        begun = self._is_begun(pool)
        with tf.control_dependencies([self._note(NO_POOL, begun)]):  # after an error the iterator is at its end
            return tf.cond(begun, lambda: tf.raw_ops.IteratorGetNext(iterator=self._iterator, **_ELEMENT)[0],
                           lambda: self._read(pool).get_single_element())

    def begin(self, pool) -> None:
        """Begins to read a pool, if it is one (its numbers are not negative) and is not begun."""
        tf.cond((pool[0] < 0) | self._is_begun(pool), lambda: True, lambda: self._make(pool))

    def _is_begun(self, pool):
        begun = tf.raw_ops.ReadVariableOp(resource=self._begun, dtype=tf.int64)
        return tf.reduce_all(tf.ensure_shape(begun, (2,)) == pool[:2])

    def _make(self, pool):
        options = tf.data.Options()
        options.experimental_warm_start = True  # reading begins here, not where the element is asked for
        options.autotune.enabled = False  # its budget of all cores would fight with the training step
        options.threading.private_threadpool_size = 1
        dataset = tf.data.experimental.to_variant(self._read(pool).prefetch(1).with_options(options))
        with tf.control_dependencies([self._note(NO_POOL, dataset)]):
            made = tf.raw_ops.MakeIterator(dataset=dataset, iterator=self._iterator)
        with tf.control_dependencies([self._note(pool[:2], made)]):
            return tf.constant(True)

    def _note(self, numbers, after):
        with tf.control_dependencies([after]):
            return tf.raw_ops.AssignVariableOp(resource=self._begun, value=tf.cast(numbers, tf.int64))
