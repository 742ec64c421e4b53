"""What an objective holds between steps and opens once per trace: worker-local variables and large constants.

Worker-local variables (one copy on each worker, never synchronised, never on a parameter server) have no automatic
control dependencies between two reads of ``.handle``. So every operation of one trace goes through the handles that
`open` takes once, outside of loops and conditions.
"""
import tensorflow as tf


def in_memory(value):
    """A function that gives a constant of this process' memory; `ClusterRuntime.local_constant` gives each worker's."""
    tensor = tf.constant(value)
    return lambda: tensor


class Constants:
    """Large constants by name, in this process' memory or held by each worker.

    Args:
      local_constant: value -> function that gives the constant, to be called once per trace; from the runtime.
      **values: arrays.
    """

    def __init__(self, local_constant=in_memory, **values):
        self._get = {name: local_constant(value) for name, value in values.items()}

    def open(self) -> dict[str, tf.Tensor]:
        """Name -> tensor, in this trace."""
        return {name: get() for name, get in self._get.items()}


def read(handle, shape, dtype) -> tf.Tensor:
    """The variable behind a handle, of known shape."""
    return tf.ensure_shape(tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype), shape)


def zeros(shape, dtype):
    """Initial value of an empty queue's variable, on any worker and again when a worker restarts."""
    return lambda worker: tf.zeros(shape, dtype)
