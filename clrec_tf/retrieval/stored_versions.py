"""Versions of bundles in a store: which numbers are given out, which are complete, and one fetched and checked.

A folder of versions in a store::

    versions.json   the numbers that were given out, and which of them are complete; replaced on condition alone
    3/…             a version: saved_model.pb comes when all files but the manifest are there, manifest.json after it
    in_use.json     the lease of whoever publishes

A version that was copied there by hand has no entry; it counts as complete when it has a manifest. Whatever is fetched
is compared with its manifest, file by file, so a copy that goes on is found out.
"""
import contextlib
import dataclasses
import functools
import json
import os
import secrets
import shutil
from typing import Collection, Iterator, Mapping, Optional

from clrec_tf.errors import DataError
from clrec_tf.retrieval.bundle_files import MANIFEST_FILE
from clrec_tf.retrieval.export_folder import is_number
from clrec_tf.settings.data import EXPORT_FOLDER
from clrec_tf.stores.address import Address
from clrec_tf.stores.cache import Cache
from clrec_tf.stores.cache import Entry
from clrec_tf.stores.folder import Folder
from clrec_tf.stores.folder import Version
from clrec_tf.stores.store_errors import VanishedError
from clrec_tf.stores.transfer import in_parallel
from clrec_tf.system import json_files

LIST = "versions.json"


@dataclasses.dataclass(frozen=True)
class Given:
    """A number that was given out.

    Attributes:
      token: of who publishes it; "" when it was given up.
      complete: whether it is published.
    """
    token: str
    complete: bool


@dataclasses.dataclass(frozen=True)
class VersionList:
    """What a folder of versions holds.

    Attributes:
      given: by number, from `LIST`.
      version: of `LIST`, None where there is none.
      others: number -> whether it has a manifest, of versions that the store lists and `given` lacks.
    """
    given: Mapping[int, Given]
    version: Optional[Version]
    others: Mapping[int, bool]

    @property
    def taken(self) -> list[int]:
        """All numbers, complete or not."""
        return sorted({*self.given, *self.others})

    @property
    def complete(self) -> list[int]:
        """Numbers of complete versions, ascending."""
        return sorted([number for number, given in self.given.items() if given.complete]
                      + [number for number, has_manifest in self.others.items() if has_manifest])

    def content(self) -> bytes:
        """Of `LIST`."""
        return json.dumps({str(number): dataclasses.asdict(given) for number, given in sorted(self.given.items())},
                          indent=1).encode()


def read_list(remote: Folder) -> VersionList:
    """What is there. A listing that is stale hides at most versions that were copied there by hand.

    Raises:
      DataError: `LIST` is damaged.
    """
    found = remote.read_version(LIST)
    try:
        given = {int(number): Given(str(facts["token"]), bool(facts["complete"]))
                 for number, facts in json.loads(found[0]).items() if is_number(number)} if found else {}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise DataError(f"{LIST} in {remote.given} is damaged ({error!r}): remove it if no version is being published, "
                        "then the next export writes it anew") from error
    names = remote.names()
    numbers = {int(first) for first in (name.partition("/")[0] for name in names if "/" in name) if is_number(first)}
    return VersionList(given, found and found[1], {
        number: f"{number}/{MANIFEST_FILE}" in names for number in numbers - set(given)})


def fetch_version(remote: Folder, number: int, cache: Cache, local: str, wanted: Optional[Collection[str]] = None
                  ) -> str:
    """Puts a version into a local folder of versions, where it appears when it is whole.

    Args:
      remote: folder of versions.
      number: of a complete one.
      cache: of files.
      local: folder of versions, on the cache's file system.
      wanted: the only files that are fetched, besides the manifest; None: all.

    Returns:
      Its folder.

    Raises:
      VanishedError: a file is gone, or was never there; DataError: one is damaged; StoreError: the store fails.
    """
    version, folder = remote.child(str(number)), os.path.join(local, str(number))
    content = version.read(MANIFEST_FILE)
    if content is None:
        raise VanishedError(f"{version.given} has no {MANIFEST_FILE}, so it is no complete version: export again, or "
                            "wait until its copy has ended")
    entries = [entry for entry in entries_of(content, version) if wanted is None or entry.name in wanted]
    fetching = os.path.join(local, f"fetching-{secrets.token_hex(4)}")
    os.makedirs(fetching)
    try:
        in_parallel(lambda entry: cache.fetch(version, entry, os.path.join(fetching, entry.name)), entries)
        with open(os.path.join(fetching, MANIFEST_FILE), "wb") as file:
            file.write(content)
        shutil.rmtree(folder, ignore_errors=True)
        os.rename(fetching, folder)
    finally:
        shutil.rmtree(fetching, ignore_errors=True)
    return folder


def entries_of(content: bytes, version: Folder) -> list[Entry]:
    """The files that a manifest names; `DataError` where it is damaged, or names one that no folder may hold."""
    try:
        files = json_files.unsealed(json_files.parse(content.decode()))["files"]
        if MANIFEST_FILE in files:
            raise ValueError("it names itself")
        return [Entry(name, facts["bytes"], facts["sha256"]) for name, facts in files.items()]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{MANIFEST_FILE} in {version.given} is damaged, or has an entry that cannot be ({error!r}): "
                        "export again") from error


def place_of(address: Address, flag: str, door) -> tuple[Folder, int]:
    """The folder of versions, and the number of the one that the address is of; 0 where it is of the folder."""
    number = address.key.rpartition("/")[2]
    if is_number(number) and door.folder(address, flag).head(MANIFEST_FILE):
        return door.folder(address.folder, flag), int(number)
    return door.folder(address, flag), 0


@contextlib.contextmanager
def reads_bundle(address: Address, flag: str, door) -> Iterator[str]:
    """A local folder of versions with the newest complete one, or the one version that the address is of."""
    remote, number = place_of(address, flag, door)
    with door.scratch() as scratch, door.named(os.path.join(scratch, EXPORT_FOLDER), remote.address) as local:
        os.mkdir(local)
        chosen = number or max(read_list(remote).complete, default=0)
        if chosen:
            fetch_version(remote, chosen, door.cache, local)
        yield os.path.join(local, str(number)) if number else local


@contextlib.contextmanager
def of_run(opens, address: Address, flag: str, door) -> Iterator[str]:
    """A run's folder in which `opens` gives the bundles, where runs have theirs; empty if --export_dir names others."""
    if door.values.get("export_dir"):
        with door.scratch() as local:
            yield local
        return
    with opens(address.child(EXPORT_FOLDER), flag, door) as local:
        yield os.path.dirname(local)


reads_bundle_of_run = functools.partial(of_run, reads_bundle)
