"""A folder of versions as it is looked at: which version is asked for, and whether one has changed."""
import contextlib
import dataclasses
import os

from clrec_tf.errors import DataError
from clrec_tf.retrieval.bundle_files import MANIFEST_FILE
from clrec_tf.retrieval.export_folder import is_number

PIN_FILE = "serve_version"


@dataclasses.dataclass(frozen=True)
class Seen:
    """A version as it was looked at; one that was made anew under the same number is another.

    Attributes:
      number: of the version.
      manifest: inode, times and size of manifest.json; () if there is none, and so no version.
      files: name, size and times of every file, by which a copy that went on is another.
    """
    number: int
    manifest: tuple = ()
    files: tuple = ()


def seen(export_dir: str, number: int) -> Seen:
    """Looks at a version."""
    folder = os.path.join(export_dir, str(number))
    try:
        found = os.stat(os.path.join(folder, MANIFEST_FILE))
        # The last is set back by no copying tool, unlike the time before it.
        return Seen(number, (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns), tuple(_files(folder)))
    except OSError:
        return Seen(number)


def _files(folder):
    for parent, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            with contextlib.suppress(FileNotFoundError):  # copying tools rename their files
                found = os.lstat(os.path.join(parent, name))
                yield os.path.join(parent, name), found.st_size, found.st_mtime_ns, found.st_ctime_ns


def pinned(export_dir: str, wanted: int) -> int:
    """The number in the file that goes before the flag, or that of the flag; 0 for the newest.

    Raises:
      DataError: the file cannot be read, or holds something else.
    """
    path = os.path.join(export_dir, PIN_FILE)
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(1000).strip()
    except FileNotFoundError:
        return wanted
    except (OSError, UnicodeError) as error:
        raise DataError(f"{path} cannot be read ({error}): write the number of a version, or remove it") from error
    if not is_number(text) or text == "0":
        raise DataError(f"{path} holds {text[:40]!r}: write the number of a version, or remove the file")
    return int(text)
