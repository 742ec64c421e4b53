"""All bytes of a request in one place: its head, body, the sizes of its chunks, and trailers.

The parser stores a header's value until it ends and hands everything else on at once, so the sum of what it hands on
does not bound what it stores. What counts is therefore what the parser was fed, a slice at a time.
"""
from typing import Optional

SLICE = 4096  # bytes; those of another request in the same slice count too, so each bound is wider by as many
_MOST_HEAD = 65_536
_MOST_FORGOTTEN = 2**26  # of a request that was refused: read on, so that its client comes to read the answer


class RequestBytes:
    """Of one connection, whose requests follow each other. Args: max_request_bytes of a body."""

    def __init__(self, max_request_bytes: int):
        self._most = max(_MOST_FORGOTTEN, 2 * max_request_bytes)
        self.in_head = False  # of a request whose head has begun and not ended
        self.in_rest = False  # of one whose head has ended, and it has not
        self._total = self._silent = 0  # since it began; since its head or the latest piece of its body

    def begin(self) -> None:
        """A request begins."""
        self.in_head, self.in_rest, self._total, self._silent = True, False, 0, 0

    def head_ended(self) -> None:
        """Its head has ended."""
        self.in_head, self.in_rest, self._silent = False, True, 0

    def body(self, size: int) -> None:
        """A piece of its body came."""
        if size:
            self._silent = 0

    def end(self) -> None:
        """It is complete."""
        self.in_head = self.in_rest = False

    def fed(self, size: int) -> Optional[tuple[int, str]]:
        """The parser was fed so many bytes, at most `SLICE`: status and text of an error if that is too much."""
        if not (self.in_head or self.in_rest):
            return None
        self._total += size
        self._silent += size
        if self.in_head and self._total >= _MOST_HEAD + SLICE:
            return 431, f"the request's head has more than {_MOST_HEAD} bytes"
        if self.in_rest and self._silent >= _MOST_HEAD + SLICE:
            return 431, f"after its body, the request has more than {_MOST_HEAD} bytes of trailers"
        if self._total > self._most:
            return 413, f"the request has more than {self._most} bytes"
        return None
