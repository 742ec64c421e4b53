"""What a folder of versions holds at the moment: which version is asked for, and whether one has changed."""
import contextlib
import dataclasses
import os

from clrec_tf.errors import DataError
from clrec_tf.retrieval.bundle_files import MANIFEST_FILE
from clrec_tf.retrieval.export_folder import complete_versions
from clrec_tf.retrieval.export_folder import is_number

PIN_FILE = "serve_version"


@dataclasses.dataclass(frozen=True)
class Seen:
    """The state of a version; one that was made anew under the same number differs.

    Attributes:
      number: of the version.
      manifest: inode, times and size of manifest.json; () if there is none, and so no version.
      files: name, size and times of every file, which differ while a copy goes on.
    """
    number: int
    manifest: tuple = ()
    files: tuple = ()


def seen(export_dir: str, number: int) -> Seen:
    """Looks at a version."""
    folder = os.path.join(export_dir, str(number))
    try:
        status = os.stat(os.path.join(folder, MANIFEST_FILE))
        # No copying tool sets the last one back, unlike the time before it.
        facts = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        return Seen(number, facts, tuple(_files(folder)))
    except OSError:
        return Seen(number)


def _files(folder):
    for parent, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            with contextlib.suppress(FileNotFoundError):  # copying tools rename their files
                status = os.lstat(os.path.join(parent, name))
                yield os.path.join(parent, name), status.st_size, status.st_mtime_ns, status.st_ctime_ns


class VersionFolder:
    """The versions in a folder of this machine.

    Args:
      export_dir: the folder.
    """

    def __init__(self, export_dir: str):
        self.export_dir = export_dir

    def pinned(self, wanted: int) -> int:
        """The number in the file that goes before the flag, or that of the flag; 0 for the newest.

        Raises:
          DataError: the file cannot be read, or holds something else.
        """
        path = os.path.join(self.export_dir, PIN_FILE)
        try:
            with open(path, encoding="utf-8") as file:
                return number_in(file.read(1000), path)
        except FileNotFoundError:
            return wanted
        except (OSError, UnicodeError) as error:
            raise DataError(f"{path} cannot be read ({error}): write the number of a version, or remove it") from error

    def complete(self) -> list[int]:
        """Numbers of complete versions, ascending."""
        return complete_versions(self.export_dir)

    def seen(self, number: int) -> Seen:
        """Looks at a version."""
        return seen(self.export_dir, number)

    def fetched(self, number: int) -> str:
        """The folder of a complete version, on this machine."""
        return os.path.join(self.export_dir, str(number))


def number_in(text: str, path: str) -> int:
    """What a file `PIN_FILE` says; `DataError` where it is no number."""
    text = text.strip()
    if not is_number(text) or text == "0":
        raise DataError(f"{path} holds {text[:40]!r}: write the number of a version, or remove the file")
    return int(text)
