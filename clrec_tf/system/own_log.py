"""Which log records are this package's own, and how they come to be seen where no command shows them."""
import contextlib
import logging as std_logging
import pathlib
import sys

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
    logger, level = logging.get_absl_logger(), logging.get_verbosity()
    handlers = [] if std_logging.getLogger().handlers else [std_logging.StreamHandler(sys.stderr)]
    logging.set_verbosity(logging.INFO)
    logger.addFilter(is_shown)
    for handler in handlers:
        logger.addHandler(handler)
    try:
        yield
    finally:
        for handler in handlers:
            logger.removeHandler(handler)
        logger.removeFilter(is_shown)
        logging.set_verbosity(level)
