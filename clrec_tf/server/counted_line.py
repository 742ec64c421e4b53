"""Frequent events are logged as one line with their count."""
import asyncio

from absl import logging

_EVERY_S = 10.0


class CountedLine:
    """Warns at most once in `every_s` seconds of all events since the last warning; used on the event loop.

    Args:
      text: with `{count}` and `{latest}`.
      every_s: seconds from the first event to its line.
    """

    def __init__(self, text: str, every_s: float = _EVERY_S):
        self._text, self._every_s, self._count, self._latest, self._timer = text, every_s, 0, "", None

    def count(self, latest: str) -> None:
        """Counts an event; `latest` is shown if no other follows before the line is written."""
        self._count += 1
        self._latest = latest
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._every_s, self.flush)

    def flush(self) -> None:
        """Writes the line now, if anything was counted."""
        if self._timer is not None:
            self._timer.cancel()
            logging.warning(self._text.format(count=self._count, latest=self._latest))
            self._count, self._timer = 0, None
