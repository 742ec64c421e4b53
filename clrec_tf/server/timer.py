"""One deadline on the event loop."""
import asyncio
from typing import Callable
from typing import Optional


class Timer:
    """Calls a function some seconds after it was started, unless it is stopped before.

    Args:
      loop: the event loop.
      seconds: to wait.
      call: without arguments.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float, call: Callable[[], None]):
        self._loop, self._seconds, self._call = loop, seconds, call
        self._handle: Optional[asyncio.TimerHandle] = None

    def start(self) -> None:
        """Begins to wait, unless it has begun and was not stopped."""
        if self._handle is None:
            self._handle = self._loop.call_later(self._seconds, self._call)

    def stop(self) -> None:
        """Does not call any more; may be started again."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
