"""Whether the files that a flag names are there and can be read."""
import glob
import os
from typing import Iterator

from clrec_tf.diagnosis.findings import About
from clrec_tf.diagnosis.findings import Finding
from clrec_tf.diagnosis.sizes import shown

_PATTERN = "*?["


def check_read(about: About, paths: list[str]) -> Iterator[Finding]:
    """Opens every file, those of folders and patterns too.

    Args:
      about: makes the findings.
      paths: files, folders or patterns.
    """
    for path in paths:
        exists = os.path.exists(path)
        files = [path] if exists or not any(mark in path for mark in _PATTERN) else glob.glob(path, recursive=True)
        files = [file for found in files for file in (_files_below(found) if os.path.isdir(found) else [found])]
        if not files:
            yield about.fault(f"{path} holds no file" if exists else f"no file matches {path}", "correct the path")
            continue
        unread = [(file, why) for file in files if (why := _unreadable(file))]
        for file, why in unread[:5]:
            yield about.fault(f"{file} cannot be read ({why})", "correct the path, its permissions or its mount")
        if not unread:
            yield about.ok(f"{path}: {len(files)} file(s) of {shown(sum(map(os.path.getsize, files)))} can be read")


def _files_below(folder):
    return [os.path.join(parent, name) for parent, _, names in os.walk(folder) for name in names]


def _unreadable(file) -> str:
    """Why a file cannot be read; "" where it can."""
    try:
        with open(file, "rb") as opened:
            opened.read(1)
        return ""
    except OSError as error:
        return error.strerror or str(error)
