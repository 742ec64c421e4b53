"""SIGTERM ends a command that handles it in no way of its own, also where the command is process 1 of a container.

The kernel gives process 1 no default for SIGTERM: without a handler it would be ignored until the container is killed.
"""
import os
import signal
import threading

EXIT_TERMINATED = 75  # "temporary failure": run the same command again
PATIENCE_S = 10.0
THREAD = "termination"


class Terminated(BaseException):
    """SIGTERM has come. Like KeyboardInterrupt no `Exception`, so that nothing takes it for an error of its own."""


def install(patience_s: float = PATIENCE_S) -> None:
    """Has SIGTERM raise `Terminated` in the main thread.

    Python gets to its handlers only between two of its own operations. Where a single one takes longer than the
    patience, such as the building of an index, the process ends all the same: whatever it was writing is then left as
    a kill would leave it.
    """
    signal.signal(signal.SIGTERM, _raise)
    reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    os.set_blocking(reading, True)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)  # written to at once, whatever the main thread does
    threading.Thread(target=_watch, args=(reading, patience_s), daemon=True, name=THREAD).start()


def _raise(number, frame):
    del number, frame
    raise Terminated


def _watch(reading, patience_s):
    while numbers := os.read(reading, 64):
        if signal.SIGTERM in numbers:
            threading.Event().wait(patience_s)
            if signal.getsignal(signal.SIGTERM) is _raise:  # else another handler has it: training saves a checkpoint
                os._exit(EXIT_TERMINATED)  # pylint: disable=protected-access
