"""Work beside the event loop, on one thread."""
import asyncio
import concurrent.futures
from typing import Any
from typing import Callable

from clrec_tf.server.faults import Unavailable


class OneThread:
    """Runs work in the order in which it comes, while the event loop goes on.

    Args:
      name: of the thread.
      most_waiting: pieces of work that may wait or run.
      busy: text of the error beyond that, with {waiting}.
    """

    def __init__(self, name: str, most_waiting: int, busy: str):
        self._thread, self._waiting = concurrent.futures.ThreadPoolExecutor(1, name), 0
        self._most_waiting, self._busy = most_waiting, busy

    async def run(self, work: Callable[[], Any]):
        """What `work()` returns or raises; `Unavailable` if too much waits for the thread."""
        if self._waiting >= self._most_waiting:
            raise Unavailable(self._busy.format(waiting=self._waiting), 1)
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        finally:
            self._waiting -= 1

    def close(self) -> None:
        """Waits for the work under way."""
        self._thread.shutdown()
