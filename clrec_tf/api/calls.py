"""What every long call of the library does: it shows its log lines, and leaves the process as it was."""
import contextlib
import random
import threading

import numpy as np

from clrec_tf.system import own_log

_ONE_AT_A_TIME = threading.RLock()  # TensorFlow's seed belongs to the process: two trainings would draw from one


@contextlib.contextmanager
def long_call():
    """Context of a function that prepares, trains, evaluates or exports: calls of several threads wait for each other.

    Training seeds the generators of Python and NumPy; the caller's go on as they would have.
    """
    with _ONE_AT_A_TIME, own_log.shown():
        python, numpy = random.getstate(), np.random.get_state()
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)
