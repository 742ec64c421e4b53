"""The scratch folder: files of a command that do not fit into memory. It is made when the first of them is written, and
removed when the command ends, however it ends; what a killed command left is removed by the next."""
import contextlib
import os
import tempfile
from typing import Iterator

import polars as pl

from clrec_tf.errors import disk_full
from clrec_tf.errors import DiskFullError
from clrec_tf.errors import UserError
from clrec_tf.system import atomic

_NAME, _FLAG = "clrec_tf-scratch", "scratch_dir"
_planned: dict[str, contextlib.ExitStack] = {}  # folders that this process may make, and what removes them


@contextlib.contextmanager
def folder(given: str, beside: str) -> Iterator[str]:
    """Yields the name of a scratch folder, which `new_file` and `new_folder` make.

    Args:
      given: --scratch_dir; "": next to `beside`, or where that is empty too among temporary files.
      beside: the folder that is to be written.

    Raises:
      UserError: --scratch_dir is not writable.
    """
    if given:
        atomic.check_folder_place(given, _FLAG)
    base = (os.path.join(given, _NAME) if given else f"{os.path.abspath(beside)}.scratch" if beside
            else os.path.join(tempfile.gettempdir(), f"{_NAME}-{os.getuid()}"))
    name = atomic.passing_name(base)
    with contextlib.ExitStack() as stack:
        _planned[name] = stack
        try:
            yield name
        finally:
            del _planned[name]


def new_file(place: str, prefix: str) -> str:
    """The name of a new empty file in a scratch folder; `UserError` where that cannot be made."""
    with write_errors(place):
        handle, path = tempfile.mkstemp(prefix=prefix, dir=_made(place))
        os.close(handle)
        return path


def new_folder(place: str, prefix: str) -> str:
    """The name of a new empty folder in a scratch folder; `UserError` where that cannot be made."""
    with write_errors(place):
        return tempfile.mkdtemp(prefix=prefix, dir=_made(place))


def _made(place: str) -> str:
    if not os.path.isdir(place):
        _planned[place].enter_context(atomic.passing_folder(place, _FLAG))
    return place


@contextlib.contextmanager
def write_errors(place: str):
    """Turns errors of writing to a scratch folder, those of Polars too, into a `UserError`; `DiskFullError` if full."""
    try:
        yield
    except (OSError, pl.exceptions.PolarsError) as error:
        kind, remedy = (DiskFullError, "free space") if disk_full(error) else (UserError, "see that it is writable")
        said = getattr(error, "strerror", None) or " ".join(str(error).split())[:200]
        raise kind(f"--{_FLAG}: {place} cannot be written ({said}): {remedy}, or choose another --{_FLAG}") from error
