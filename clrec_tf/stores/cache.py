"""Files of stores on this machine's disk, by their sha256, within a bound.

A file is used through a hard link in the user's own folder. So a file that is thrown out of the cache stays until its
last user has let go of it, and processes need no agreement about what may be removed.
"""
import contextlib
import dataclasses
import errno
import hashlib
import os
import re
import secrets

from absl import logging

from clrec_tf.errors import DataError
from clrec_tf.errors import write_error
from clrec_tf.stores.folder import Folder
from clrec_tf.system.inner_path import check_name

_FOLDER = "files"
_SHA256 = re.compile("[0-9a-f]{64}")


@dataclasses.dataclass(frozen=True)
class Entry:
    """What a list says of an object: its name in the folder, bytes and sha256; `ValueError` where they cannot be."""
    name: str
    bytes: int
    sha256: str

    def __post_init__(self):
        check_name(self.name)
        if type(self.bytes) is not int or self.bytes < 0:
            raise ValueError(f"{self.name!r} has {self.bytes!r} bytes")
        if not isinstance(self.sha256, str) or not _SHA256.fullmatch(self.sha256):  # it becomes a path
            raise ValueError(f"{self.name!r} has the sha256 {str(self.sha256)[:100]!r}")


class Cache:
    """The cache in a folder, which several processes may share.

    Args:
      cache_dir: on a file system with hard links, that of the folders which files are wanted in.
      most_bytes: kept, besides what is in use.
    """

    def __init__(self, cache_dir: str, most_bytes: int):
        self._files, self._most = os.path.join(cache_dir, _FOLDER), most_bytes

    def fetch(self, folder: Folder, entry: Entry, path: str) -> None:
        """Puts an object at `path`, from the cache or from the store, checked against its entry.

        Raises:
          VanishedError: it is not in the store; DataError: it differs from its entry; StoreError: try again.
          UserError: this machine's disk, see `write_error`.
        """
        kept = os.path.join(self._files, entry.sha256[:2], entry.sha256)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if _linked(kept, path):
            if _agrees(path, entry):
                return
            _remove_damaged(kept, path)
        part = f"{path}.{secrets.token_hex(4)}.part"
        try:
            fetch_checked(folder, entry, part)
            os.makedirs(os.path.dirname(kept), exist_ok=True)
            os.replace(part, path)
            with contextlib.suppress(FileExistsError):
                os.link(path, kept)
        except OSError as error:
            raise write_error(error)(f"{entry.name} of {folder.given} cannot be kept in {self._files} "
                                     f"({error.strerror or error}): free space, or give another --cache_dir") from error
        self._trim()

    def _trim(self) -> None:
        """Removes what was used longest ago, down to the bound."""
        files = []
        for parent, _, names in os.walk(self._files):
            for name in names:
                with contextlib.suppress(FileNotFoundError):  # another process trims too
                    facts = os.stat(os.path.join(parent, name))
                    files.append((facts.st_mtime, facts.st_size, os.path.join(parent, name)))
        over = sum(size for _, size, _ in files) - self._most
        for _, size, path in sorted(files):
            if over <= 0:
                return
            with contextlib.suppress(FileNotFoundError):
                os.remove(path)
            over -= size


def fetch_checked(folder: Folder, entry: Entry, path: str) -> None:
    """Copies an object to a file, checked against its entry. Raises: see `Cache.fetch`; `OSError` of the file."""
    folder.fetch(entry.name, path, entry.bytes)
    size, digest = _facts(path)
    if size != entry.bytes or digest != entry.sha256:
        os.remove(path)
        raise DataError(f"{entry.name} of {folder.given} has {size} bytes and sha256 {digest[:12]}…, its list says "
                        f"{entry.bytes} and {entry.sha256[:12]}…: it is damaged, or another process has replaced it; "
                        "run again, and if that does not help restore it or make it anew")


def entry_of(folder: str, name: str) -> Entry:
    """The entry of a local file."""
    return Entry(name, *_facts(os.path.join(folder, name)))


def _facts(path) -> tuple[int, str]:
    """Bytes and sha256."""
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return file.tell(), digest


def _agrees(path, entry) -> bool:
    """Whether a file is what its entry says, by size first."""
    return os.path.getsize(path) == entry.bytes and _facts(path) == (entry.bytes, entry.sha256)


def _remove_damaged(*paths):
    """Removes a file of the cache that is not what it was, under every name that is known here."""
    logging.warning("%s is damaged: it is removed, and fetched again", paths[0])
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)


def _linked(kept, path) -> bool:
    """Whether `path` is now a file of the cache, which counts as used."""
    try:
        os.link(kept, path)
        os.utime(kept)
        return True
    except FileNotFoundError:
        return os.path.exists(path)
    except FileExistsError:
        return True
    except OSError as error:
        if error.errno in (errno.EMLINK, errno.EPERM, errno.EOPNOTSUPP, errno.EXDEV):
            return False
        raise
