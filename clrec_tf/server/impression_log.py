"""What was shown is logged beside the requests: they hand it over, and a thread writes it."""
import threading
import time
from typing import Callable
from typing import Sequence

from absl import logging

from clrec_tf.server.impression_files import ImpressionFiles
from clrec_tf.server.impression_files import Shown

_MOST_WAITING = 500_000  # items handed over and not yet taken; 100 MB at most
_PIECE = 4096  # items made rows at a time, during which Python's lock is held: half a millisecond
_LOOK_S = 0.25  # between two looks at what was handed over; waking for each request would delay answers


class ImpressionLog:
    """Takes what was shown, never waits, and loses what it cannot keep, which is counted.

    Args:
      files: that are written, on a thread of this object's own.
      count: called with ("logged", items) after each file, and with ("queue" or "write", items) for those lost because
        more than `most_waiting` waited, or their file could not be written.
      most_waiting: items that may wait to be taken by the thread.
    """

    def __init__(self, files: ImpressionFiles, count: Callable[[str, int], None], most_waiting: int = _MOST_WAITING):
        self._files, self._count, self._most_waiting = files, count, most_waiting
        self._lock, self._waiting, self._waiting_items = threading.Lock(), [], 0
        self._ending, self._failing = threading.Event(), False
        self._thread = threading.Thread(target=self._write, name="impressions", daemon=True)
        self._thread.start()

    def shown(self, shown: Sequence[Shown]) -> None:
        """Takes what users were given, or counts it as lost."""
        items = sum(len(one.ids) for one in shown)
        with self._lock:
            taken = self._waiting_items + items <= self._most_waiting
            if taken:
                self._waiting += shown
                self._waiting_items += items
        if not taken:
            self._count("queue", items)

    def close(self) -> None:
        """Writes what was handed over, and ends."""
        self._ending.set()
        self._thread.join()

    def _write(self):
        """On the thread."""
        ending = False
        while not ending:
            ending = self._ending.wait(_LOOK_S)  # what was handed over before it was set is taken below
            with self._lock:
                waiting, self._waiting, self._waiting_items = self._waiting, [], 0
            for piece in _pieces(waiting):
                self._keep(piece)
            self._keep([], at_once=ending)

    def _keep(self, piece, at_once=False):
        """Gathers what was shown, and publishes the rows that wait if they are due or it is to be done at once."""
        rows = self._files.rows + sum(len(one.ids) for one in piece)
        try:
            self._files.add(piece, time.monotonic())
            if self._files.rows and (at_once or self._files.due(time.monotonic())):
                self._count("logged", self._files.publish())
                if self._failing:
                    logging.info("impressions are written again")
                self._failing = False
        except Exception as error:  # pylint: disable=broad-except  (the service goes on, and so does its log)
            self._files.drop()
            self._count("write", rows)
            if not self._failing:  # once, until a file is written again
                logging.warning("%d impressions are lost, and so are those of further files that cannot be written: %s",
                                rows, error)
            self._failing = True


def _pieces(shown):
    """Parts of about `_PIECE` items."""
    piece, items = [], 0
    for one in shown:
        piece.append(one)
        items += len(one.ids)
        if items >= _PIECE:
            yield piece
            piece, items = [], 0
    yield piece
