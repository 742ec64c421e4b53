"""One folder of a store: its objects by name, each read and written whole or not at all.

How to use it: `open_folder(address, "data_dir", deadline_s)` gives a `Folder`; `read` and `write` are for small
objects, `fetch` and `upload` for files. ``transfer`` moves many files, ``lease`` keeps a second writer out, ``door``
gives commands local paths in place of addresses. Nothing is renamed in a store, and what is complete is known from a
list that is written last, never from a listing: `names` serves to tidy up and to find a log's files.
"""
import dataclasses
import pathlib
from typing import Optional, Protocol

from clrec_tf.errors import UserError
from clrec_tf.stores.address import Address
from clrec_tf.stores.store_errors import TakenError
from clrec_tf.stores.store_errors import told
from clrec_tf.stores.store_errors import VanishedError

TRIAL = ".clrec-doctor-"  # how names of objects begin that doctor tries a store with, which count for nobody else
PART_BYTES = 8 << 20  # of requests: each has a time of its own, so large files need no longer one


@dataclasses.dataclass(frozen=True)
class Version:
    """Which object stands under a name: what a conditional write compares, and the store's time of it in seconds."""
    tag: Optional[str]
    generation: Optional[str]
    seconds: float = 0.0


class Backend(Protocol):
    """What a store's library does. Errors are the library's, as `told` knows them."""

    def get(self, key: str) -> tuple[bytes, Version]:
        """A small object and its version."""

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Part of an object."""

    def head(self, key: str) -> tuple[int, Version]:
        """Bytes and version of an object."""

    def put(self, key: str, content, mode=None) -> Version:
        """Writes bytes or a `pathlib.Path`; mode: None, "create" or the `Version` to replace."""

    def delete(self, key: str) -> None:
        """Removes an object."""

    def list(self, key: str) -> list[tuple[str, int]]:
        """Keys below a folder and their bytes."""


class Folder:
    """The objects of one folder.

    Args:
      address: of the folder.
      flag: that gave it, for errors.
      backend: of the store.
    """

    def __init__(self, address: Address, flag: str, backend: Backend):
        self.address, self.flag, self._backend = address, flag, backend
        self.given = f"--{flag}={address}"

    def child(self, name: str) -> "Folder":
        """A folder within this one."""
        return Folder(self.address.child(name), self.flag, self._backend)

    def read(self, name: str) -> Optional[bytes]:
        """A small object; None where there is none."""
        found = self.read_version(name)
        return found and found[0]

    def read_version(self, name: str) -> Optional[tuple[bytes, Version]]:
        """A small object and its version; None where there is none."""
        try:
            with told(self.given, "read", name):
                return self._backend.get(self._key(name))
        except VanishedError:
            return None

    def head(self, name: str) -> Optional[tuple[int, Version]]:
        """Bytes and version of an object; None where there is none."""
        try:
            with told(self.given, "read", name):
                return self._backend.head(self._key(name))
        except VanishedError:
            return None

    def fetch(self, name: str, path: str, size: int) -> None:
        """Copies an object of `size` bytes to a file, part by part. `VanishedError` where it is not there."""
        with told(self.given, "read", name), open(path, "wb") as file:
            for start in range(0, size, PART_BYTES):
                file.write(self._backend.get_range(self._key(name), start, min(PART_BYTES, size - start)))

    def write(self, name: str, content: bytes, mode=None) -> Version:
        """Writes a small object.

        Args:
          name: of the object.
          content: of it.
          mode: None: in place of any; "create": only where there is none; a `Version`: only in place of that one.

        Raises:
          TakenError: the condition does not hold.
        """
        with told(self.given, "written", name, conditional=mode is not None):
            return self._backend.put(self._key(name), content, mode)

    def replace(self, name: str, content: bytes, read: Optional[Version], certain: bool) -> Version:
        """Writes a list in place of the version that was read, and of no other.

        A store may have written it before it answered badly, so what stands there with this content is this call's.

        Args:
          name: of the object.
          content: of it, which no other process writes.
          read: the version that it takes the place of; None: there was none.
          certain: of `Lease`: whether the store has conditional writes; without them it is written in place of any.

        Raises:
          TakenError: another has written it since.
        """
        try:
            return self.write(name, content, (read or "create") if certain else None)
        except TakenError:
            found = self.read_version(name)
            if found is None or found[0] != content:
                raise
            return found[1]

    def upload(self, name: str, path: str) -> None:
        """Copies a file to an object, which appears whole or not at all."""
        with told(self.given, "written", name):
            self._backend.put(self._key(name), pathlib.Path(path))

    def delete(self, name: str) -> None:
        """Removes an object, if it is there."""
        try:
            with told(self.given, "deleted", name):
                self._backend.delete(self._key(name))
        except VanishedError:
            pass

    def names(self, trials: bool = False) -> dict[str, int]:
        """Name -> bytes of the objects below, those of folders within as a/b; `trials`: also `TRIAL`s. A listing may be
        stale."""
        with told(self.given, "listed"):
            found, start = self._backend.list(self.address.key), len(self._key(""))
        return {key[start:]: size for key, size in sorted(found) if key[start:] and not key.endswith("/")
                and (trials or not key[start:].startswith(TRIAL))}

    def _key(self, name):
        return self.address.child(name).key


def open_folder(address: Address, flag: str, deadline_s: float) -> Folder:
    """A folder of a store, whether or not anything is there.

    Args:
      address: of the folder.
      flag: that gave it, for errors.
      deadline_s: seconds that one request may take, tries again included.

    Raises:
      UserError: a package is missing, or the environment's settings of the store are wrong.
    """
    backend = _hdfs if address.scheme == "hdfs" else _object_store
    return Folder(address, flag, backend(address, f"--{flag}={address}", deadline_s))


def _object_store(address, given, deadline_s):
    try:
        from clrec_tf.stores import object_store  # pylint: disable=import-outside-toplevel
    except ImportError as error:
        raise UserError(f"{given} needs the package obstore, which does not load ({error}): pip install "
                        "'clrec_tf[stores]'") from error
    return object_store.open_backend(address.scheme, address.host, given, deadline_s)


def _hdfs(address, given, deadline_s):
    try:
        from clrec_tf.stores import hdfs  # pylint: disable=import-outside-toplevel
    except ImportError as error:
        raise UserError(f"{given} needs the packages pyarrow and obstore ({error}): pip install 'clrec_tf[stores]' "
                        "pyarrow") from error
    return hdfs.open_backend(address.host, given, deadline_s)
