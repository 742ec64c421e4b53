"""Folders that a process needs while it runs: removed at its end, and those of killed processes by the next."""
import contextlib
import os
import secrets
import shutil
from typing import Iterator

from clrec_tf.system import atomic
from clrec_tf.system import locks

_FOLDER = "work"


@contextlib.contextmanager
def scratch_folder(cache_dir: str) -> Iterator[str]:
    """Yields an empty folder of this process in `cache_dir`; `UserError` where none can be made.

    A lock beside it says that it is in use, so what a killed process left is known, whatever the process was called.
    """
    parent = os.path.join(cache_dir, _FOLDER)
    with atomic.write_errors(parent, "cache_dir"):
        os.makedirs(parent, exist_ok=True)
        _remove_killed(parent)
        folder = os.path.join(parent, secrets.token_hex(8))
        lock = locks.take(folder + locks.SUFFIX)
        lock.sign()
        os.mkdir(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        lock.release()


def _remove_killed(parent):
    for name in os.listdir(parent):
        if not name.endswith(locks.SUFFIX):
            continue
        path = os.path.join(parent, name)
        with contextlib.suppress(OSError):  # another user's
            lock = locks.take(path, create=False)
            if lock and not lock.certain:
                lock.leave()
            elif lock:
                shutil.rmtree(path.removesuffix(locks.SUFFIX), ignore_errors=True)
                lock.release()
