"""Folders whose names have characters that TensorFlow takes for a pattern, such as runs[1]: reading needs another name.

It writes to such folders, but looks for a checkpoint or SavedModel in them by matching its path as a pattern, finds
nothing, and cannot be told otherwise.
"""
import contextlib
import os
import re
import tempfile
from typing import Iterator

_SPECIAL = re.compile(r"[*?\[\\]")


def is_pattern(path: str) -> bool:
    """Whether TensorFlow would take a path for a pattern."""
    return bool(_SPECIAL.search(path))


@contextlib.contextmanager
def readable_name(folder: str) -> Iterator[str]:
    """Yields a name by which TensorFlow can read from the folder: its own, or a link to it while the block lasts."""
    if not is_pattern(folder):
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="clrec-") as place:
        link = os.path.join(place, "folder")
        os.symlink(os.path.abspath(folder), link)
        yield link
