"""The bytes of all requests under way, by both doors: each is bounded, and so is their sum."""
import contextlib
from typing import Callable, Iterator

from clrec_tf.server.faults import Unavailable


class HeldBytes:
    """Counts what requests under way hold. Args: most, bytes."""

    def __init__(self, most: int):
        self._most, self.held = most, 0

    @contextlib.contextmanager
    def request(self) -> Iterator[Callable[[int], None]]:
        """While a request is under way; yields what is told of each of its parts, before it is kept.

        Raises:
          Unavailable: all together would hold too much.
        """
        mine = 0

        def take(size):
            nonlocal mine
            if self.held + size > self._most:
                raise Unavailable(f"requests under way hold {self.held} bytes, of {self._most} that all may hold "
                                  "together: try again later, or start more replicas", 1)
            self.held += size
            mine += size
        try:
            yield take
        finally:
            self.held -= mine
