"""Where a step runs: in this process, or on the workers of a cluster. The loop knows only what both have in common.

`start` begins a call whose work is chosen when it is taken, `ended` says whether it is over, `fetch` gives its result,
and `wait` waits for something to happen. `local_variable` makes a variable that each worker has for itself.
"""
import contextlib

import tensorflow as tf

from clrec_tf.data.input_pipeline import training_dataset
from clrec_tf.training.feeds import IteratorFeed


class LocalRuntime:
    """One process on one machine: calls run at once."""

    num_workers = 1
    depth = 1  # calls under way at most
    evaluator = False  # whether another process validates
    task = None  # of this process in its cluster
    save_options = None

    def __init__(self):
        self.strategy = tf.distribute.get_strategy()

    def scope(self):
        """Context in which variables are made."""
        return contextlib.nullcontext()

    def local_variable(self, make, shape, dtype):
        """A worker-local variable; make(worker) gives its initial value."""
        return tf.Variable(lambda: make(0), shape=shape, dtype=dtype, trainable=False)

    def local_constant(self, value):
        """A large constant that each worker holds: a function that gives it, to be called once per trace."""
        tensor = tf.constant(value)
        return lambda: tensor

    def read_local(self, variable):
        """Values of a worker-local variable as NumPy, one per worker (None: the worker is down)."""
        return [variable.numpy()]

    def write_local(self, variable, values):
        """Sets a worker-local variable, one value per worker (None: as it is made); before the first trace."""
        if values[0] is not None:
            variable.assign(values[0])

    def share_local(self, variable):
        """Gives every worker what this process' own copy has gained since it was made; before the first trace."""

    def feed(self, assignments, plan, data_dir, schema, manifest, max_history, time_dropout):
        """What gives calls their batches; see ``feeds``."""
        return IteratorFeed(assignments, training_dataset(data_dir, schema, manifest, plan, assignments.remaining(),
                                                          max_history, time_dropout))

    def start(self, call, feed, choose):
        """Begins a call of ``step``; choose(worker) gives its arguments."""
        del feed
        return call.function(*choose(0))

    def ended(self, result) -> bool:
        """Whether a call is over, well or not."""
        del result
        return True

    def wait(self, taken, under_way):
        """Waits a little for one of the calls under way."""

    def fetch(self, result, holder):
        """Result of a call that has ended, as NumPy; raises its error. None: it is lost, and the call is done again.
        `holder`: who has it, for messages."""
        del holder
        return result.numpy()

    def check_workdir(self, workdir):
        """`UserError` where checkpoints cannot be written to a folder by those who are to write them."""

    def unharmed(self, doing):
        """Context for work on this process' own thread in which a cluster may be lost, or stand still."""
        del doing
        return contextlib.nullcontext()

    def close(self):
        """Training is over: from here on nothing depends on a cluster."""

    def unwatched(self):
        """The same for work that may take any time."""
        return contextlib.nullcontext()
