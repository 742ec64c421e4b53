"""Which log records are this package's own, and how they come to be seen where no command shows them."""
import contextlib
import logging as std_logging
import pathlib
import sys
from typing import Callable

from absl import logging

_PACKAGE = f"{pathlib.Path(__file__).parents[1]}/"


def is_shown(record: std_logging.LogRecord) -> bool:
    """TensorFlow logs its saving and tracing through absl too: of others' records, warnings and errors are shown.

    But not that the function which saves is new each time, which it is by TensorFlow's own doing.
    """
    if "MultiDeviceSaver" in record.getMessage():
        return False
    return record.levelno > std_logging.INFO or record.pathname.startswith(_PACKAGE)


@contextlib.contextmanager
def shown():
    """Context in which what this package logs is shown: by the program's own handlers, or plainly on standard error."""
    absl, tensorflow, root = logging.get_absl_logger(), std_logging.getLogger("tensorflow"), std_logging.getLogger()
    level, handlers = logging.get_verbosity(), []
    if not root.handlers:  # on the root, or absl would set up a handler there for good
        handlers = [std_logging.StreamHandler(sys.stderr)]
        handlers[0].addFilter(lambda record: record.name != tensorflow.name)  # which has one of its own
    logging.set_verbosity(logging.INFO)
    with contextlib.ExitStack() as stack:
        stack.callback(logging.set_verbosity, level)
        for logger, passes in ((absl, is_shown), (tensorflow, _is_telling)):
            logger.addFilter(passes)
            stack.callback(logger.removeFilter, passes)
        for handler in handlers:
            root.addHandler(handler)
            stack.callback(root.removeHandler, handler)
        yield


@contextlib.contextmanager
def rewritten(rewrite: Callable[[str], str]):
    """Context in which messages that are logged through absl are `rewrite` of themselves."""
    def passes(record):
        record.msg, record.args = rewrite(record.getMessage()), ()
        return True
    absl = logging.get_absl_logger()
    absl.addFilter(passes)
    try:
        yield
    finally:
        absl.removeFilter(passes)


def _is_telling(record) -> bool:
    """Of what TensorFlow logs, warnings and errors; in notebooks it would show the files that it writes too.

    But not that functions are traced again and again: each training and export has functions of its own.
    """
    return record.levelno > std_logging.INFO and "tf.function retracing" not in record.getMessage()
