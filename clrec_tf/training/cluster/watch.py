"""The chief's watch over what TensorFlow would wait for for ever: a process that stands still."""
import contextlib
import faulthandler
import os
import sys
import threading
import time

import tensorflow as tf

from clrec_tf.errors import ClusterError

GO_ON = "Run the same command again, with all roles started anew, to go on from the last checkpoint"
LATER_S = 5.0


class Watch:
    """Threads that end the process where a parameter server, or work on the chief's own thread, gives no answer.

    Args:
      servers: number of parameter servers.
      deadline: seconds.
    """

    def __init__(self, servers: int, deadline: float):
        self._servers, self._deadline = range(servers), deadline
        self._doing, self._since, self._over = None, 0.0, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="watch")
        self._thread.start()

    @contextlib.contextmanager
    def busy(self, doing):
        """While in this context, the deadline counts."""
        self._since, self._doing = time.monotonic(), doing
        try:
            yield
        finally:
            self._doing = None

    def stop(self):
        """The cluster is not needed any more: what comes after may take any time, and hold Python's lock."""
        self._over.set()
        self._thread.join()  # or it might set the clock once more
        faulthandler.cancel_dump_traceback_later()

    def ping_parameter_servers(self):
        """Starts a thread for each, which asks it for nothing again and again."""
        for index in self._servers:
            threading.Thread(target=self._ping, args=(index,), daemon=True, name=f"ping-{index}").start()

    def _ping(self, index):
        # Made here: a constant made on a server that stands still would wait with Python's lock held, and nothing could
        # end the process any more.
        question = tf.constant(0)
        while not self._over.is_set():
            done = threading.Event()
            threading.Thread(target=self._end_unless, args=(done, f"parameter server {index} has not answered"),
                             daemon=True).start()
            # An error is an answer, and the main thread's own calls will meet it.
            with contextlib.suppress(Exception), tf.device(f"/job:ps/replica:0/task:{index}/device:CPU:0"):
                tf.identity(question).numpy()
            done.set()
            self._over.wait(max(1.0, self._deadline / 10))

    def _end_unless(self, done, what):
        if not done.wait(self._deadline) and not self._over.is_set():
            end(f"{what} for --progress_deadline_s={self._deadline:g}: it stands still or is lost")

    def _run(self):
        while True:
            # Where TensorFlow waits with Python's lock held, as it does for a constant made on a server that stands
            # still, no thread of Python runs. This clock is not one: it ends the process with a traceback and code 1.
            faulthandler.dump_traceback_later(self._deadline + LATER_S, exit=True)
            if self._over.wait(min(1.0, self._deadline / 4)):
                return
            doing = self._doing
            if doing and time.monotonic() - self._since > self._deadline:
                end(f"{doing} takes longer than --progress_deadline_s={self._deadline:g}: a role stands still or is "
                    "lost")


def end(message: str):
    """Ends the process with the code of a `ClusterError`. An exception would not: as it leaves, TensorFlow waits for
    the role that stands still."""
    print(f"error: {message}. {GO_ON}", file=sys.stderr, flush=True)
    os._exit(ClusterError.exit_code)
