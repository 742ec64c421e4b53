"""Folders that a process needs while it runs: removed at its end, and those of killed processes by the next."""
import contextlib
import os
import re
import secrets
from typing import Iterator

from clrec_tf.system import atomic

_FOLDER = "work"


@contextlib.contextmanager
def scratch_folder(cache_dir: str) -> Iterator[str]:
    """Yields an empty folder of this process in `cache_dir`; `UserError` where none can be made."""
    parent = os.path.join(cache_dir, _FOLDER)
    with atomic.write_errors(parent, "cache_dir"):
        os.makedirs(parent, exist_ok=True)
        atomic.remove_killed(parent, re.compile(".+"))
    folder = os.path.join(parent, secrets.token_hex(8))
    with atomic.passing_folder(folder, "cache_dir"):
        yield folder
