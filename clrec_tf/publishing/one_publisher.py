"""One process at a time publishes in a folder of versions, and only what was made from what is still the newest."""
import contextlib
import os
from typing import Callable
from typing import Iterator
from typing import Optional

from absl import logging

from clrec_tf.errors import BusyError
from clrec_tf.publishing import stored_exports
from clrec_tf.retrieval.export_folder import newest_version
from clrec_tf.system import atomic
from clrec_tf.system import locks

LOCK_FILE = "publishing.lock"


@contextlib.contextmanager
def publishing(export_dir: str) -> Iterator[None]:
    """Context in which no other process publishes in a folder; waits for one that does.

    Args:
      export_dir: the folder of versions. Where it is missing there is nothing to lock, and whoever reads it says so.
    """
    stored = stored_exports.of(export_dir)
    if stored:
        with stored.publishing():
            yield
        return
    if not os.path.isdir(export_dir):
        yield
        return
    path = os.path.join(export_dir, LOCK_FILE)
    with atomic.write_errors(export_dir, f"export_dir={export_dir}"):
        lock = locks.take(path)
        if lock is None:
            logging.warning("--export_dir=%s: waiting for %s, which publishes there (%s)", export_dir,
                            locks.owner(path), path)
            lock = locks.take(path, wait=True)
    if not lock.certain:
        logging.warning("the file system of --export_dir=%s has no locks: publish there from one process at a time",
                        export_dir)
    lock.sign()
    try:
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def new_version(export_dir: str, choose: Callable[[], int]) -> Iterator[tuple[str, int]]:
    """Yields a folder to fill, and the number under which it is published when the block ends well.

    Args:
      export_dir: the folder of versions.
      choose: gives the number, when nobody else can take it any more.

    Raises:
      UserError: of `choose`, or the folder cannot be written; `BusyError` as of `check_newest`.
    """
    with atomic.write_errors(export_dir, f"export_dir={export_dir}"):
        os.makedirs(export_dir, exist_ok=True)
    with publishing(export_dir), next_version(export_dir, choose) as (temporary, version):
        yield temporary, version


@contextlib.contextmanager
def next_version(export_dir: str, choose: Callable[[], int], newest: Optional[int] = None
                 ) -> Iterator[tuple[str, int]]:
    """The same of a process that is in the context `publishing`; `newest` is what it began with, None: what is now."""
    stored = stored_exports.of(export_dir)
    version = stored.claim(choose) if stored else choose()
    newest = newest_version(export_dir) if newest is None else newest
    with atomic.new_folder(os.path.join(export_dir, str(version)), f"export_dir={export_dir}") as temporary:
        yield temporary, version
        check_newest(export_dir, newest)
    if stored:
        stored.publish(version, newest)


def check_newest(export_dir: str, expected: int) -> None:
    """`BusyError` where another version than the expected one is the newest: what was made knows nothing of it."""
    newest = newest_version(export_dir)
    if newest != expected:
        raise BusyError(f"--export_dir={export_dir}: version {newest} is the newest now, it was {expected} when this "
                        "one was begun, which knows nothing of what has changed: nothing is published; run again")
