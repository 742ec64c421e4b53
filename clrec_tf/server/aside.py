"""Work beside the event loop: while a large request is read, the others are answered."""
import asyncio
import concurrent.futures
from typing import Any, Callable

from clrec_tf.server.faults import Unavailable

_SMALL = 32_768  # bytes or values: reading them takes 8 ms at worst; a thread costs a tenth of a millisecond
_MOST_WAITING = 32  # pieces of work; each holds what it was given


class Aside:
    """Runs what is large on one thread, in the order in which it comes, and what is small at once."""

    def __init__(self):
        self._thread, self._waiting = concurrent.futures.ThreadPoolExecutor(1, "aside"), 0

    async def __call__(self, size: int, work: Callable[[], Any]):
        """What `work()` gives, or raises.

        Args:
          size: of what it reads, in bytes or values.
          work: without arguments.

        Raises:
          Unavailable: too much waits for the thread.
        """
        if size <= _SMALL:
            return work()
        if self._waiting >= _MOST_WAITING:
            raise Unavailable(f"{self._waiting} large requests wait to be read: send smaller ones, or try again later",
                              1)
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        finally:
            self._waiting -= 1

    def close(self) -> None:
        """Waits for what is under way."""
        self._thread.shutdown()
