"""Locks held by files, which the kernel frees when their holder ends, however it ends.

They are advisory (flock). On one machine they reach across process-id namespaces and containers; across machines they
reach where the shared file system passes them on, as NFS, CephFS and Lustre (mounted with flock) do.
"""
import datetime
import errno
import fcntl
import json
import os
import socket
from typing import Optional

from absl import logging

SUFFIX = ".lock"
NO_LOCKS_HERE = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EBADF)


class Lock:
    """A lock that is held.

    Attributes:
      path: the lock's file.
      certain: whether the file system has locks; where it has none nobody can tell whether another holds it too.
    """

    def __init__(self, path: str, descriptor: int, certain: bool):
        self.path, self.certain, self._descriptor = path, certain, descriptor

    def lost(self) -> bool:
        """Whether the file was removed or replaced, so that another could hold a lock of the same name."""
        return not _same(self.path, self._descriptor)

    def sign(self) -> None:
        """Writes host, process and time into the file, for people and for `owner`."""
        text = json.dumps(dict(host=socket.gethostname(), process=os.getpid(),
                               since=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")))
        try:
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, text.encode(), 0)
        except OSError as error:  # a full disk: the lock itself is held all the same
            logging.info("%s cannot be written (%s)", self.path, error.strerror)

    def release(self) -> None:
        """Removes the file, if it is still this lock's, and frees the lock."""
        if not self.lost():
            os.remove(self.path)
        os.close(self._descriptor)

    def leave(self) -> None:
        """Frees the lock and leaves its file alone."""
        os.close(self._descriptor)


def take(path: str, wait: bool = False, create: bool = True) -> Optional[Lock]:
    """Takes a lock.

    Args:
      path: the lock's file.
      wait: whether to wait until it is free.
      create: whether to make the file where there is none.

    Returns:
      The lock; None where another holds it, or where there is no file and `create` is False.

    Raises:
      OSError: the file cannot be made or opened.
    """
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o666)
        except FileNotFoundError:
            if create:
                raise
            return None
        certain = True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            os.close(descriptor)
            return None
        except OSError as error:
            if error.errno not in NO_LOCKS_HERE:
                os.close(descriptor)
                raise
            certain = False
        except BaseException:  # a signal while waiting
            os.close(descriptor)
            raise
        # Whoever held it has removed the file meanwhile: a lock on it would exclude nobody.
        if _same(path, descriptor):
            return Lock(path, descriptor, certain)
        os.close(descriptor)


def owner(path: str) -> str:
    """Who signed a lock, as "process 7 on host a since …"."""
    try:
        with open(path, encoding="utf-8") as file:
            facts = json.load(file)
        return f"process {facts['process']} on host {facts['host']} since {facts['since']}"
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return "an unknown process"


def _same(path, descriptor):
    """Whether a name still stands for an open file."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False
