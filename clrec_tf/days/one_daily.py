"""One `daily` at a time in a folder of days: two would go on from the same yesterday, and publish over each other."""
import contextlib
import os
from typing import Iterator

from absl import logging

from clrec_tf.errors import BusyError
from clrec_tf.system import atomic
from clrec_tf.system import locks

LOCK_FILE = "daily.lock"


@contextlib.contextmanager
def alone(days_dir: str) -> Iterator[None]:
    """Context in which no other process does a day in the folder, which is made where it is missing.

    Raises:
      BusyError: another does, which the message names. UserError: the folder cannot be made or written to.
    """
    atomic.check_folder_place(days_dir, "days_dir")
    path = os.path.join(days_dir, LOCK_FILE)
    with atomic.write_errors(days_dir, f"days_dir={days_dir}"):
        os.makedirs(days_dir, exist_ok=True)
        lock = locks.take(path)
    if lock is None:
        raise BusyError(f"--days_dir={days_dir} is in use by another daily, {locks.owner(path)} ({path}): wait for its "
                        "end, then run again, or stop it")
    if not lock.certain:
        logging.warning("the file system of --days_dir=%s has no locks: run one daily at a time there", days_dir)
    lock.sign()
    try:
        yield
    finally:
        lock.release()
