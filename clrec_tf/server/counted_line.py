"""What may come a thousand times is logged as one line that counts."""
import asyncio

from absl import logging

_EVERY_S = 10.0


class CountedLine:
    """Warns at most once in `every_s` seconds, of all that came since; used on the event loop.

    Args:
      text: with `{count}` and `{latest}`.
      every_s: seconds from the first that is counted to its line.
    """

    def __init__(self, text: str, every_s: float = _EVERY_S):
        self._text, self._every_s, self._count, self._latest, self._timer = text, every_s, 0, "", None

    def count(self, latest: str) -> None:
        """One more; `latest` stands in the line if no other comes."""
        self._count += 1
        self._latest = latest
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._every_s, self.flush)

    def flush(self) -> None:
        """Writes the line now, if there is something to say."""
        if self._timer is not None:
            self._timer.cancel()
            logging.warning(self._text.format(count=self._count, latest=self._latest))
            self._count, self._timer = 0, None
