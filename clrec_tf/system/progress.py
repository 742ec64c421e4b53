"""How far long work is: a bar where a person watches, else a line of the log now and then."""
import contextlib
import time
from typing import Iterator, Optional

from absl import logging
import tqdm

from clrec_tf.system.watched import watched

EVERY = 30.0  # seconds between two lines


class Progress:
    """Counts what is done.

    Args:
      what: is done, such as "reading".
      unit: of what is counted, such as "rows".
      total: of them; None: unknown.
    """

    def __init__(self, what: str, unit: str, total: Optional[int] = None):
        self._what, self._unit, self._total, self._done, self._told = what, unit, total, 0, time.monotonic()
        self._bar = tqdm.tqdm(total=total, desc=what, unit=f" {unit}", unit_scale=True, disable=not watched())

    def update(self, count: int = 1) -> None:
        """`count` more are done."""
        self._done += count
        self._bar.update(count)
        if self._bar.disable and time.monotonic() - self._told > EVERY:
            logging.info("%s: %s%s %s", self._what, f"{self._done:,}",
                         f" of {self._total:,}" if self._total is not None else "", self._unit)
            self._told = time.monotonic()

    def close(self) -> None:
        """The bar stays as it is."""
        self._bar.close()


@contextlib.contextmanager
def progress(what: str, unit: str, total: Optional[int] = None) -> Iterator[Progress]:
    """A `Progress` that is closed when the block ends."""
    shown = Progress(what, unit, total)
    try:
        yield shown
    finally:
        shown.close()
