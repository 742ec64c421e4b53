"""One training at a time in a folder, and a folder that is still there when training ends."""
import contextlib
import os

from absl import logging

from clrec_tf.errors import BusyError
from clrec_tf.errors import UserError
from clrec_tf.system import atomic
from clrec_tf.system import locks

LOCK_FILE = "training.lock"


class WorkdirLock:
    """Context in which this process alone trains in a folder; in a cluster the chief holds it.

    The lock of a process that has ended, however and on whatever host, is taken over.

    Args:
      workdir: folder of the run, made where it is missing.

    Raises:
      BusyError: another training has it, which the message names.
      UserError: the folder cannot be made or written to.
    """

    def __init__(self, workdir: str):
        self._workdir, self._path, self._made, self._lock = workdir, os.path.join(workdir, LOCK_FILE), False, None

    def __enter__(self):
        with atomic.write_errors(self._workdir, f"workdir={self._workdir}"):
            self._made = not os.path.isdir(self._workdir)
            os.makedirs(self._workdir, exist_ok=True)
            before = locks.owner(self._path) if os.path.exists(self._path) else ""
            self._lock = locks.take(self._path)
        if self._lock is None:
            raise BusyError(f"--workdir={self._workdir} is in use by another training, {locks.owner(self._path)} "
                            f"({self._path}): wait for its end, stop it, or choose another --workdir")
        if not self._lock.certain:
            logging.warning("the file system of --workdir=%s has no locks: nothing keeps a second training out",
                            self._workdir)
        elif before:
            logging.warning("the training of %s in --workdir=%s has ended without giving it back: going on in its "
                            "place", before, self._workdir)
        self._lock.sign()
        return self

    def check(self) -> None:
        """`UserError` where the folder was removed or replaced since."""
        if self._lock.lost():
            raise UserError(f"--workdir={self._workdir} was removed or replaced while it was trained in "
                            f"({self._path} is not this training's any more): what was saved there is gone; choose a "
                            "folder that nobody cleans up, and run again")

    def __exit__(self, *exception):
        self._lock.release()
        if self._made:  # and nothing was begun
            with contextlib.suppress(OSError):
                os.rmdir(self._workdir)
