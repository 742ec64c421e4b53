"""Files and folders that appear whole or not at all: written under another name beside their place, then renamed.

The other name is random, and a lock beside it is held while it is written. So what a killed process left is known by
its lock, which can be had, whatever the process and its host were called; it is removed by the next to write the same.
"""
import contextlib
import errno
import os
import re
import secrets
import shutil
from typing import Optional

from absl import logging

from clrec_tf.errors import BusyError
from clrec_tf.errors import disk_full
from clrec_tf.errors import UserError
from clrec_tf.errors import write_error
from clrec_tf.system import locks

_MARK = ".incomplete-"


def is_incomplete(name: str) -> bool:
    """Whether a name is that of a file or folder that is being written, or of its lock."""
    return _MARK in name


def remove_leftovers(folder: str) -> None:
    """Removes what killed processes left in a folder and in those below it, whatever it was to become."""
    for parent, folders, _ in os.walk(folder):
        folders[:] = [name for name in folders if not is_incomplete(name)]
        remove_killed(parent, re.compile(f".+{re.escape(_MARK)}.+"))


@contextlib.contextmanager
def new_folder(path: str, flag: str):
    """Yields an empty folder that is renamed to `path` when the block ends well, and removed otherwise.

    Args:
      path: must not exist then, or be an empty folder.
      flag: named in errors, such as "export_dir=DIR".

    Raises:
      UserError: disk full, no permission; BusyError: another process has filled `path` meanwhile.
    """
    path = os.path.abspath(path)
    with write_errors(path, flag):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        _remove_leftovers(path)
        folder, lock = _claimed(path)
    try:
        with write_errors(path, flag):
            os.mkdir(folder)
        yield folder
        with write_errors(path, flag):
            for parent, _, names in os.walk(folder):
                for name in [*names, "."]:
                    sync(os.path.join(parent, name))
            _show(folder, path, flag)
            sync(os.path.dirname(path))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        lock.release()


def passing_name(path: str) -> str:
    """A name beside `path` for a `passing_folder`. What killed processes left under such names is removed."""
    path = os.path.abspath(path)
    with contextlib.suppress(OSError):  # no folder yet, or none of ours
        _remove_leftovers(path)
    return f"{path}{_MARK}{secrets.token_hex(8)}"


@contextlib.contextmanager
def passing_folder(name: str, flag: str):
    """Makes a folder that is removed when the block ends; after a kill by the next `passing_name` of its path.

    Args:
      name: by `passing_name`, or of a folder whose leftovers are otherwise removed by `remove_killed`.
      flag: named in errors.

    Raises:
      UserError: it cannot be made.
    """
    with write_errors(name, flag):
        os.makedirs(os.path.dirname(name), exist_ok=True)
        while not (lock := _signed(name)):
            pass
    try:
        with write_errors(name, flag):
            os.mkdir(name)
        yield
    finally:
        shutil.rmtree(name, ignore_errors=True)
        lock.release()


@contextlib.contextmanager
def new_file(path: str, flag: Optional[str] = None):
    """Yields the name of a file to write, which replaces `path` when the block ends well, and is removed otherwise.

    Args, Raises: see `new_folder`; an existing file is replaced. Without `flag`, `OSError` stays what it is.
    """
    path = os.path.abspath(path)
    errors = lambda: write_errors(path, flag) if flag else contextlib.nullcontext()
    with errors():
        _remove_leftovers(path)
        temporary, lock = _claimed(path)
    try:
        with errors(), open(temporary, "wb"):
            pass
        yield temporary
        with errors():
            sync(temporary)
            os.replace(temporary, path)
            sync(os.path.dirname(path))
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.remove(temporary)
        lock.release()


def check_file_place(path: str, flag: str) -> None:
    """`UserError` where a file can evidently not be written, before the work that is to fill it.

    Args:
      path: as the user gave it.
      flag: name of the flag that gave it.
    """
    folder = os.path.dirname(path) or "."
    if os.path.isdir(path):
        raise UserError(f"--{flag}={path} is a folder: give the name of a file")
    if not os.path.isdir(folder):
        raise UserError(f"--{flag}={path}: its folder does not exist; make it, or choose another place")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UserError(f"--{flag}={path}: {folder} is not writable; change its permissions, or choose another place")


def check_folder_place(path: str, flag: str) -> None:
    """`UserError` where a folder can evidently neither be made nor written to. Args: see `check_file_place`."""
    parent = os.path.abspath(path)
    if os.path.lexists(parent) and not os.path.isdir(parent):
        raise UserError(f"--{flag}={path} is a file, not a folder: choose another --{flag}")
    while not os.path.lexists(parent):
        parent = os.path.dirname(parent)
    if not os.path.isdir(parent) or not os.access(parent, os.W_OK | os.X_OK):
        raise UserError(f"--{flag}={path} cannot be made or written to: {parent} is not a writable folder; choose "
                        f"another --{flag}")


@contextlib.contextmanager
def write_errors(path: str, flag: str):
    """Turns errors of the operating system into a `UserError`. Args: see `new_folder`."""
    try:
        yield
    except OSError as error:
        raise write_error(error)(
            f"--{flag}: {path} cannot be written ({error.strerror or error}): {_remedy(path, error)}") from error


def _remedy(path, error):
    """What helps against an error of the operating system."""
    number = error.errno
    if disk_full(error):
        return "free space, or choose another place"
    if number == errno.ENOENT:
        return f"make the folder {os.path.dirname(path)}, or choose another place"
    if number in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"change the permissions of {os.path.dirname(path)}, or choose another place"
    return "choose another place"


def sync(path: str) -> None:
    """Waits until a file or folder is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _show(folder, path, flag):
    """Gives a folder its name; `BusyError` where another process has filled the place meanwhile."""
    try:
        os.rename(folder, path)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        raise BusyError(f"--{flag}: {path} was made by another process meanwhile, and is left as it is: run again to "
                        "use it, or choose another place") from error


def _claimed(path):
    """A name beside `path` that nobody else has, and the lock that says it is in use."""
    while True:
        temporary = f"{path}{_MARK}{secrets.token_hex(8)}"
        if lock := _signed(temporary):  # else another, which looks for leftovers, had it for a moment
            return temporary, lock


def _signed(temporary):
    """The lock that says a name is in use; None where another has it."""
    lock = locks.take(temporary + locks.SUFFIX)
    if lock:
        lock.sign()
        if not lock.certain:
            # Without a lock's file nobody takes the name for a leftover.
            os.remove(lock.path)
    return lock


def _remove_leftovers(path):
    """Removes what killed processes left of the same path: what has a lock, and one that can be had.

    Of a number that of all numbers: they are versions, of which none is written twice.
    """
    parent, name = os.path.split(path)
    remove_killed(parent, re.compile((r"\d+" if name.isdigit() else re.escape(name)) + re.escape(_MARK) + ".+"))


def remove_killed(parent, same):
    """Removes what killed processes left in a folder under names of the pattern `same`, which locks' names fit, too."""
    for leftover in sorted({name.removesuffix(locks.SUFFIX) for name in os.listdir(parent) if same.fullmatch(name)}):
        leftover = os.path.join(parent, leftover)
        try:
            lock = locks.take(leftover + locks.SUFFIX, create=False)
        except OSError as error:  # another user's
            logging.info("%s is left alone: %s", leftover, error.strerror)
            continue
        if lock and not lock.certain:
            lock.leave()
        elif lock:
            shutil.rmtree(leftover) if os.path.isdir(leftover) else _remove(leftover)
            lock.release()
        elif os.path.lexists(leftover) and not os.path.exists(leftover + locks.SUFFIX):
            logging.warning("%s has no lock, so nobody can tell whether it is still being written: remove it if not",
                            leftover)


def _remove(path):
    with contextlib.suppress(FileNotFoundError):
        os.remove(path)
