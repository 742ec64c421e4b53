"""Every name of grpc.aio that it does not document and the server uses, in one file.

A call may end before its answer was sent: the client went away, or gRPC itself refused a message that is too large.
grpc.aio drops such an answer without a word if it knows that by then, and else logs it as an error with a traceback,
which anybody can have for each call on a busy machine.

Seen in grpcio 1.85: the logger "grpc._cython.cygrpc", and the name of the error, `ExecuteBatchError`.
"""
import contextlib
import logging
from typing import Callable
from typing import Iterator

LOGGER, UNSENT = "grpc._cython.cygrpc", "ExecuteBatchError"


@contextlib.contextmanager
def unsent_answers(count: Callable[[], None]) -> Iterator[None]:
    """Context in which `count` is called for each answer that could not be sent, in place of a traceback in the log."""
    def counted(record):
        unsent = bool(record.exc_info and record.exc_info[0] and record.exc_info[0].__name__ == UNSENT)
        if unsent:
            count()
        return not unsent
    logger = logging.getLogger(LOGGER)
    logger.addFilter(counted)
    try:
        yield
    finally:
        logger.removeFilter(counted)
