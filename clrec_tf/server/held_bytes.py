"""The bytes of all requests under way, over HTTP and gRPC: each is bounded, and so is their sum."""
import contextlib
from typing import Callable
from typing import Iterator

from clrec_tf.server.faults import Unavailable


class HeldBytes:
    """Counts what requests under way hold. Args: most, bytes."""

    def __init__(self, most: int):
        self._most, self.held = most, 0

    @contextlib.contextmanager
    def request(self) -> Iterator[Callable[[int], None]]:
        """While a request is under way; yields a function to call with the size of each part before it is stored.

        Raises:
          Unavailable: all together would hold too much.
        """
        own = 0

        def take(size):
            nonlocal own
            if self.held + size > self._most:
                raise Unavailable(f"requests under way hold {self.held} bytes, of {self._most} that all may hold "
                                  "together: try again later, or start more replicas", 1)
            self.held += size
            own += size
        try:
            yield take
        finally:
            self.held -= own
