"""Versions that could not be served: why, and when each is tried again."""
import dataclasses
import time
from typing import Callable

from clrec_tf.server.version_folder import Seen

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 5.0, 600.0


@dataclasses.dataclass
class _Refusal:
    seen: Seen
    text: str
    pause_s: float
    again: float  # on the clock


class Refusals:
    """Remembers refused versions by their numbers.

    A version is tried again at once when any of its files has changed, for a copy may have gone on; else after growing
    pauses, for the cause may have been the disk, the network or memory.

    Args:
      clock: seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock, self._refusals = clock, {}

    @property
    def texts(self) -> dict[int, str]:
        """Why, by version."""
        return {number: refusal.text for number, refusal in list(self._refusals.items())}  # others may add meanwhile

    def due(self, seen: Seen) -> bool:
        """Whether a version is to be tried, as it is seen now."""
        refusal = self._refusals.get(seen.number)
        return refusal is None or refusal.seen != seen or self._clock() >= refusal.again

    def add(self, seen: Seen, text: str) -> tuple[bool, float]:
        """A version could not be served: whether that is new, and the seconds until it is tried again."""
        before = self._refusals.get(seen.number)
        same = before is not None and before.seen == seen
        pause_s = min(2 * before.pause_s, _LONGEST_PAUSE_S) if same else _FIRST_PAUSE_S
        self._refusals[seen.number] = _Refusal(seen, text, pause_s, self._clock() + pause_s)
        return not same or before.text != text, pause_s

    def drop(self, number: int) -> None:
        """A version is served, or gone."""
        self._refusals.pop(number, None)

    def retry(self) -> None:
        """Each is tried at the next look, whatever it looks like."""
        for refusal in self._refusals.values():
            refusal.again, refusal.pause_s = self._clock(), _FIRST_PAUSE_S / 2
