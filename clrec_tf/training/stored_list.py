"""The list of a run's checkpoints in a store: one object, written last, which names every file with its sha256."""
import dataclasses
import json
import os
from typing import Optional

from clrec_tf.errors import DataError
from clrec_tf.stores.cache import Cache
from clrec_tf.stores.cache import Entry
from clrec_tf.stores.folder import Folder
from clrec_tf.stores.folder import Version
from clrec_tf.system.inner_path import check_name
from clrec_tf.system import json_files
from clrec_tf.training import checkpoint_list

LIST = "checkpoints.json"


@dataclasses.dataclass(frozen=True)
class Stored:
    """One checkpoint; `ValueError` where it cannot be.

    Attributes:
      prefix: of its local files, as "checkpoints/step-100".
      files: local name -> its entry; keys differ from names, so that nobody writes over what a list names.
    """
    prefix: str
    files: dict[str, Entry]

    def __post_init__(self):
        for name in (self.prefix, *self.files):
            check_name(name)
        if not self.prefix.rpartition("-")[2].isdecimal():
            raise ValueError(f"{self.prefix!r} is no prefix of a checkpoint")

    @property
    def folder(self) -> str:
        """"checkpoints" or "best"."""
        return self.prefix.partition("/")[0]

    @property
    def step(self) -> int:
        """Steps trained."""
        return int(self.prefix.rpartition("-")[2])

    def fetch(self, remote: Folder, local: str, cache: Cache) -> str:
        """Fetches the files into a local run; errors as of `Cache.fetch`. Returns the local prefix."""
        for name, entry in self.files.items():
            cache.fetch(remote, entry, os.path.join(local, name))
        return os.path.join(local, self.prefix)


@dataclasses.dataclass(frozen=True)
class StoredList:
    """Checkpoints by step, ascending, and the token of who wrote the list."""
    token: str
    checkpoints: tuple[Stored, ...] = ()

    def of(self, folder: str) -> list[Stored]:
        """Checkpoints of "checkpoints" or "best", ascending."""
        return sorted((stored for stored in self.checkpoints if stored.folder == folder), key=lambda one: one.step)

    def keys(self) -> set[str]:
        """Keys of all files."""
        return {entry.name for stored in self.checkpoints for entry in stored.files.values()}

    def content(self) -> bytes:
        """The object."""
        values = dict(token=self.token, checkpoints=[
            dict(prefix=stored.prefix, files={name: dataclasses.asdict(entry) for name, entry in stored.files.items()})
            for stored in self.checkpoints])
        return json.dumps(json_files.sealed(values), indent=1).encode()


def read(remote: Folder) -> Optional[tuple[StoredList, Version]]:
    """The list of a run and its version, None where there is none; `DataError` where it is damaged."""
    found = remote.read_version(LIST)
    if found is None:
        return None
    try:
        values = json_files.unsealed(json_files.parse(found[0]))
        checkpoints = tuple(Stored(one["prefix"], {name: Entry(**entry) for name, entry in one["files"].items()})
                            for one in values["checkpoints"])
        return StoredList(values["token"], checkpoints), found[1]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DataError(f"{LIST} in {remote.given}, the list of checkpoints, is damaged ({error}): restore an earlier "
                        f"version of it, or use another --{remote.flag}") from error


def fetched(remote: Folder, local: str, cache: Cache, stored: list[Stored]) -> None:
    """Fetches checkpoints into a local run, each folder with TensorFlow's list of them."""
    prefixes = [one.fetch(remote, local, cache) for one in stored]
    for folder in {os.path.dirname(prefix) for prefix in prefixes}:
        checkpoint_list.write_list(folder, [prefix for prefix in prefixes if os.path.dirname(prefix) == folder])
