"""Large requests are read beside the event loop, so that others are answered meanwhile."""
from typing import Any
from typing import Callable

from clrec_tf.server.one_thread import OneThread

_SMALL = 32_768  # bytes or values: reading them takes 8 ms at worst; a thread costs a tenth of a millisecond
_MOST_WAITING = 32  # pieces of work; each holds the request that it reads


class Aside:
    """Runs large work on one thread, in the order in which it comes, and small work at once."""

    def __init__(self):
        self._thread = OneThread("aside", _MOST_WAITING, "{waiting} large requests wait to be read: send smaller ones, "
                                 "or try again later")

    async def __call__(self, size: int, work: Callable[[], Any]):
        """What `work()` returns or raises.

        Args:
          size: of what it reads, in bytes or values.
          work: without arguments.

        Raises:
          Unavailable: too much waits for the thread.
        """
        return work() if size <= _SMALL else await self._thread.run(work)

    def close(self) -> None:
        """Waits for the work under way."""
        self._thread.close()
