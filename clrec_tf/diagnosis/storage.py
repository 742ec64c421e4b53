"""Whether a folder of this machine can be written, read, listed, renamed in, deleted from and locked, and has space.

Tried in a folder of its own with a random name that begins with a dot, which is removed again: nothing that is there is
touched, and no command takes it for its own.
"""
import fcntl
import os
import secrets
import shutil
import tempfile
from typing import Iterator

from clrec_tf.diagnosis.findings import About
from clrec_tf.diagnosis.findings import Finding
from clrec_tf.diagnosis.sizes import shown
from clrec_tf.stores.folder import TRIAL
from clrec_tf.system.locks import NO_LOCKS_HERE

_BYTES = 65_536


def check_written(about: About, path: str, is_file: bool, need_bytes: int) -> Iterator[Finding]:
    """Tries a place that a command is to write to.

    Args:
      about: makes the findings.
      path: the folder or file, which need not exist yet.
      is_file: whether it is a file.
      need_bytes: that will be written at least; 0 where that is not known.
    """
    folder = os.path.abspath(os.path.dirname(os.path.abspath(path)) if is_file else path)
    if is_file and os.path.isdir(path):
        yield about.fault("it is a folder, where a file is to be written", "give the name of a file")
        return
    while not os.path.lexists(folder):
        folder = os.path.dirname(folder)
    if not os.path.isdir(folder):
        yield about.fault(f"{folder} is no folder", "choose another place")
        return
    failed = _tried(folder)
    if failed:
        yield about.fault(f"in {folder} one cannot {failed}", "change its permissions, mount or quota, or choose "
                                                              "another place")
        return
    yield about.ok(f"{folder} can be written, read, listed, renamed in and deleted from")
    yield from _locks(about, folder)
    yield from _space(about, folder, need_bytes)


def _tried(folder: str) -> str:
    """What cannot be done in a folder, and why; "" where all can."""
    step, scratch, content = "make a folder", "", secrets.token_bytes(_BYTES)
    try:
        scratch = tempfile.mkdtemp(prefix=TRIAL, dir=folder)
        first, second = os.path.join(scratch, "first"), os.path.join(scratch, "second")
        for name in (first, second):
            step = "write a file"
            with open(name, "wb") as file:
                file.write(content if name == first else b"")
                file.flush()
                os.fsync(file.fileno())
        step = "rename over a file"
        os.replace(first, second)
        step = "list what is there"
        if os.listdir(scratch) != ["second"]:
            return f"{step}: it has {os.listdir(scratch)} where only \"second\" is left"
        step = "read a file"
        with open(second, "rb") as file:
            if file.read() != content:
                return f"{step}: it holds other bytes than were written"
        step = "delete a file"
        os.remove(second)
        os.rmdir(scratch)
        return ""
    except OSError as error:
        return f"{step} ({error.strerror})"
    finally:
        if scratch:
            shutil.rmtree(scratch, ignore_errors=True)


def _locks(about: About, folder: str) -> Iterator[Finding]:
    """Whether a lock keeps others out, as the locks of runs and of files that are written must."""
    with tempfile.TemporaryDirectory(prefix=TRIAL, dir=folder) as scratch:
        with open(os.path.join(scratch, "lock"), "wb") as one, open(os.path.join(scratch, "lock"), "rb+") as other:
            try:
                fcntl.flock(one, fcntl.LOCK_EX | fcntl.LOCK_NB)
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno not in NO_LOCKS_HERE:
                    raise
            yield about.note(f"the file system of {folder} has no locks: nothing keeps two trainings, or two exports, "
                             "from writing to one folder", "mount it with flock, or start one command at a time")


def _space(about: About, folder: str, need_bytes: int) -> Iterator[Finding]:
    """Whether there is room, for bytes and for files."""
    figures = os.statvfs(folder)
    free, remedy = figures.f_bavail * figures.f_frsize, "free space, raise the quota, or choose another place"
    if figures.f_files and not figures.f_favail:
        yield about.fault(f"{folder} has no room for another file (inodes)", remedy)
    elif free < max(need_bytes, _BYTES):
        yield about.fault(f"{shown(free)} are free in {folder}, at least {shown(need_bytes)} will be written", remedy)
    elif need_bytes:
        yield about.ok(f"{shown(free)} are free, at least {shown(need_bytes)} will be written")
    else:
        yield about.ok(f"{shown(free)} are free")
