"""Where a step runs. The loop knows only this interface, so that a cluster needs no second loop.

`schedule(function, arguments)` starts a call, `fetch` waits for its result as NumPy, `join` waits for all of them.
`dataset` makes the iterator(s) that calls read from, `worker_index` says in a trace which worker runs it, and
`local_variable` makes a variable that each worker has for itself.
"""
import contextlib

import tensorflow as tf


class LocalRuntime:
    """One process on one machine: calls run at once."""

    num_workers = 1

    def __init__(self):
        self.strategy = tf.distribute.get_strategy()

    def scope(self):
        """Context in which variables are made."""
        return contextlib.nullcontext()

    def worker_index(self):
        """Index of the worker that runs the current trace, scalar int64."""
        return tf.constant(0, tf.int64)

    def local_variable(self, make, shape, dtype):
        """A worker-local variable; make(worker) gives its initial value."""
        return tf.Variable(lambda: make(0), shape=shape, dtype=dtype, trainable=False)

    def read_local(self, variable):
        """Values of a worker-local variable as NumPy, one per worker (None: the worker is down)."""
        return [variable.numpy()]

    def write_local(self, variable, values):
        """Sets a worker-local variable, one value per worker; before the first trace."""
        variable.assign(values[0])

    def dataset(self, make):
        """Iterator over make(), one per worker."""
        return iter(make())

    def schedule(self, function, arguments):
        """Starts one call."""
        return function(*arguments)

    def join(self, deadline=None):
        """Waits for all calls; `deadline` in seconds without progress."""

    def fetch(self, result):
        """Result of a call, as NumPy."""
        return tf.nest.map_structure(lambda tensor: tensor.numpy(), result)
