"""Files and folders that appear whole or not at all: written under another name beside their place, then renamed."""
import contextlib
import errno
import os
import shutil
import socket

from clrec_tf.errors import UserError

_MARK = ".incomplete-"


@contextlib.contextmanager
def new_folder(path: str, flag: str):
    """Yields an empty folder that is renamed to `path` when the block ends well, and removed otherwise.

    Args:
      path: must not exist then, or be an empty folder.
      flag: named in errors, such as "export_dir=DIR".

    Raises:
      UserError: disk full, no permission, or `path` was filled meanwhile.
    """
    path = os.path.abspath(path)
    folder = _temporary(path)
    with write_errors(path, flag):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        _remove_leftovers(path)
        os.mkdir(folder)
    try:
        yield folder
        with write_errors(path, flag):
            for parent, _, names in os.walk(folder):
                for name in [*names, "."]:
                    _sync(os.path.join(parent, name))
            _put(folder, path, flag)
            _sync(os.path.dirname(path))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def new_file(path: str, flag: str):
    """Yields the name of a file to write, which replaces `path` when the block ends well, and is removed otherwise.

    Args, Raises: see `new_folder`; an existing file is replaced.
    """
    path = os.path.abspath(path)
    temporary = _temporary(path)
    with write_errors(path, flag):
        _remove_leftovers(path)
        with open(temporary, "wb"):
            pass
    try:
        yield temporary
        with write_errors(path, flag):
            _sync(temporary)
            os.replace(temporary, path)
            _sync(os.path.dirname(path))
    finally:
        if os.path.exists(temporary):
            os.remove(temporary)


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
        raise UserError(f"--{flag}: {path} cannot be written ({error.strerror or error}): "
                        f"{_remedy(path, error.errno)}") from error


def _put(folder, path, flag):
    """Renames a finished folder to its place; `UserError` where somebody else has put another there meanwhile."""
    try:
        os.rename(folder, path)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        raise UserError(f"--{flag}: another process has put {path} there while this one was at work, and it stays as "
                        "it is: run the same command again") from error


def _remedy(path, number):
    """What helps against an error number of the operating system."""
    if number in (errno.ENOSPC, errno.EDQUOT):
        return "free space, or choose another place"
    if number == errno.ENOENT:
        return f"make the folder {os.path.dirname(path)}, or choose another place"
    if number in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"change the permissions of {os.path.dirname(path)}, or choose another place"
    return "choose another place"


def _temporary(path):
    return f"{path}{_MARK}{socket.gethostname()}-{os.getpid()}"


def _sync(path):
    """Waits until a file or folder is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_leftovers(path):
    """Removes what killed processes of this machine left of the same path."""
    parent, prefix = os.path.dirname(path), f"{os.path.basename(path)}{_MARK}{socket.gethostname()}-"
    for name in os.listdir(parent):
        process, leftover = name.removeprefix(prefix), os.path.join(parent, name)
        if name.startswith(prefix) and process.isdigit() and not _runs(int(process)):
            shutil.rmtree(leftover) if os.path.isdir(leftover) else os.remove(leftover)


def _runs(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's
        pass
    return True
