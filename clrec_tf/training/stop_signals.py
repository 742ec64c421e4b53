"""SIGTERM and Ctrl-C end a training between two calls, with a checkpoint and an exit code of its own."""
import signal
import threading

EXIT_PREEMPTED = 75  # "temporary failure": run the same command again to go on


class StopSignals:
    """Context in which SIGTERM and SIGINT set `exit_code` and nothing else; a second SIGINT interrupts at once.

    On another thread than the main one, which alone may handle signals, it changes nothing.
    """

    def __init__(self):
        self.exit_code = None
        self._before = {}

    def __enter__(self):
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._before[number] = signal.signal(number, self._note)
        return self

    def _note(self, number, frame):
        del frame
        if number == signal.SIGINT:
            if self.exit_code is not None:
                raise KeyboardInterrupt
            self.exit_code = 130
        else:
            self.exit_code = EXIT_PREEMPTED

    def __exit__(self, *exception):
        for number, handler in self._before.items():
            signal.signal(number, handler)
