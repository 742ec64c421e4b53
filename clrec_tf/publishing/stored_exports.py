"""Publishing in a store: one at a time, numbers that nobody shares, and nothing to be seen before it is whole.

Commands publish in a local folder as ever (``one_publisher``), and what it stands for gets the new version: a number is
given out by a write on condition, files are uploaded, saved_model.pb and manifest.json last, and the list of versions
names the new one, again on condition. A number is given out once, whatever becomes of its version.
"""
import contextlib
import dataclasses
import os
import shutil
import time
from typing import Callable, Collection, Iterator, Optional

from absl import logging

from clrec_tf.errors import BusyError
from clrec_tf.errors import UserError
from clrec_tf.publishing import deletions
from clrec_tf.retrieval import stored_versions
from clrec_tf.retrieval.bundle_files import CONFIG_FILES
from clrec_tf.retrieval.bundle_files import MANIFEST_FILE
from clrec_tf.retrieval.bundle_files import MODEL_FILE
from clrec_tf.retrieval.stored_versions import Given
from clrec_tf.retrieval.stored_versions import VersionList
from clrec_tf.settings.data import EXPORT_FOLDER
from clrec_tf.stores import transfer
from clrec_tf.stores.address import Address
from clrec_tf.stores.folder import Folder
from clrec_tf.stores.lease import Lease
from clrec_tf.stores.store_errors import TakenError

_WAIT_S = 3600.0  # for another that publishes
_PAUSE_S = 1.0
_EXPORTS: dict[str, "StoredExport"] = {}  # by local folder of versions, of this process


class StoredExport:
    """A folder of versions in a store, and the local one that stands for it.

    Args:
      remote: folder of versions.
      local: made here; numbers that are taken are folders in it, and what is needed of the newest version is there.
      door: of the command.
      wanted: files needed of the newest version, besides the manifest; None: all.
      number: of a version that is needed whole in place of the newest; 0: none.
    """

    def __init__(self, remote: Folder, local: str, door, wanted: Optional[Collection[str]], number: int = 0):
        self._remote, self._local, self._door = remote, local, door
        self._wanted, self._number = () if number else wanted, number
        self._lease: Optional[Lease] = None
        os.makedirs(local, exist_ok=True)
        self._mirror(stored_versions.read_list(remote))

    @contextlib.contextmanager
    def publishing(self) -> Iterator[None]:
        """Context in which no other process publishes there; waits for one that does. `BusyError` after an hour."""
        with self._leased() as self._lease:
            self._tidy()
            self._mirror(stored_versions.read_list(self._remote))
            yield

    def claim(self, choose: Callable[[], int]) -> int:
        """A number that is given to nobody else. Args, Raises: see `one_publisher.new_version`."""
        while True:
            listed = stored_versions.read_list(self._remote)
            self._mirror(listed)
            number = choose()
            if self._replace(listed, {number: Given(self._lease.token, False)}):
                return number

    def publish(self, number: int, newest: int) -> None:
        """Uploads a version, and shows it when it is whole.

        Args:
          number: of `claim`; its folder is there.
          newest: version that has to be the newest still, since this one was made beside it.

        Raises:
          BusyError: another has published since; StoreError: the store fails. Nothing is shown then.
        """
        version, folder = self._remote.child(str(number)), os.path.join(self._local, str(number))
        names, last = transfer.files_below(folder), (MODEL_FILE, MANIFEST_FILE)
        try:
            transfer.upload(version, folder, [name for name in names if name not in last])
            self._check(number, newest)
            transfer.upload(version, folder, last, last)
            while True:
                listed = self._check(number, newest)
                if self._replace(listed, {number: Given(self._lease.token, True)}):
                    break
        except BusyError:
            self._remove(number)
            raise
        transfer.upload(self._remote, self._local, [
            name for name in CONFIG_FILES if os.path.exists(os.path.join(self._local, name))])
        logging.info("uploaded %d files to %s", len(names), version.given)

    def _check(self, number, newest) -> VersionList:
        """The list as it is now; `BusyError` where this version can take its place there no more."""
        self._lease.check()
        listed = stored_versions.read_list(self._remote)
        now = max((each for each in listed.complete if each != number), default=0)
        if now != newest or listed.given.get(number, Given("", False)).token != self._lease.token:
            raise BusyError(f"{self._remote.given}: version {now} is the newest now, it was {newest} when version "
                            f"{number} was begun, or another process has given that up: nothing is published; run "
                            "again")
        return listed

    def _replace(self, listed: VersionList, changes: dict[int, Given]) -> bool:
        """Writes the list with changes; False where another has written it since it was read."""
        changed = dataclasses.replace(listed, given={**listed.given, **changes})
        try:
            self._remote.replace(stored_versions.LIST, changed.content(), listed.version, self._lease.certain)
            return True
        except TakenError:
            return False

    def _tidy(self) -> None:
        """Gives up numbers of publishers that died, and removes their files."""
        listed = stored_versions.read_list(self._remote)
        dead = {number: Given("", False) for number, given in listed.given.items()
                if given.token and not given.complete}
        if dead and self._replace(listed, dead):
            for number in dead:
                logging.info("removing version %d from %s, which was never finished", number, self._remote.given)
                self._remove(number)

    def _remove(self, number) -> None:
        version = self._remote.child(str(number))
        with contextlib.suppress(UserError):  # the store fails: the list does not name it all the same
            for name in sorted(version.names(), key=lambda name: name != MODEL_FILE):
                version.delete(name)

    def _mirror(self, listed: VersionList) -> None:
        """Makes the local folder hold what the list says."""
        complete = set(listed.complete)
        newest = max(complete, default=0)
        for number in listed.taken:
            folder = os.path.join(self._local, str(number))
            if number not in complete:
                shutil.rmtree(folder, ignore_errors=True)
            if number in (newest, self._number) and not os.path.exists(os.path.join(folder, MANIFEST_FILE)):
                stored_versions.fetch_version(self._remote, number, self._door.cache, self._local,
                                              None if number == self._number else self._wanted)
            os.makedirs(folder, exist_ok=True)

    @contextlib.contextmanager
    def _leased(self) -> Iterator[Lease]:
        """The lease, after that of another."""
        settings, end, told = self._door.settings, time.monotonic() + _WAIT_S, False
        folder = self._door.folder(self._remote.address, self._remote.flag, settings.lease_s / 4)
        with contextlib.ExitStack() as stack:
            while True:
                try:
                    lease = stack.enter_context(Lease(folder, settings.lease_s, "export"))
                    break
                except BusyError as error:
                    if time.monotonic() > end:
                        raise
                    if not told:
                        logging.warning("waiting up to an hour: %s", error)
                        told = True
                    time.sleep(_PAUSE_S)
            yield lease


def of(export_dir: str) -> Optional[StoredExport]:
    """What a local folder of versions stands for; None where it stands for itself."""
    return _EXPORTS.get(os.path.abspath(export_dir))


@contextlib.contextmanager
def exports_to(address: Address, flag: str, door) -> Iterator[str]:
    """A local folder of versions that an export is published in, and through it in the store."""
    remote, number = stored_versions.place_of(address, flag, door)
    if number:
        raise UserError(f"--{flag}={address} is itself a version: give the folder that holds it, {remote.address}")
    with door.scratch() as scratch, door.named(os.path.join(scratch, EXPORT_FOLDER), address) as local:
        with exports_below(remote, local, door):
            yield local


@contextlib.contextmanager
def updates_version(address: Address, flag: str, door) -> Iterator[str]:
    """A local folder of versions whose newest is updated, or that version which the address is of."""
    remote, number = stored_versions.place_of(address, flag, door)
    with door.scratch() as scratch, door.named(os.path.join(scratch, EXPORT_FOLDER), remote.address) as local:
        with _registered(local, StoredExport(remote, local, door, None, number)):
            yield os.path.join(local, str(number)) if number else local


@contextlib.contextmanager
def exports_run(reads, address: Address, flag: str, door) -> Iterator[str]:
    """A run that `reads` opens, which is exported into the folder of it that bundles have by default."""
    with reads(address, flag, door) as local, contextlib.ExitStack() as stack:
        if not door.values.get("export_dir"):
            remote = door.folder(address.child(EXPORT_FOLDER), flag)
            stack.enter_context(exports_below(remote, os.path.join(local, EXPORT_FOLDER), door))
        yield local


def exports_below(remote: Folder, local: str, door):
    """Context in which what is published in a local folder, which is made, is published in a store."""
    return _registered(local, StoredExport(remote, local, door, _needed(door)))


def _needed(door) -> Collection[str]:
    """Files of the newest version that an export reads."""
    return () if door.values.get("forget_updates") else deletions.FILES


@contextlib.contextmanager
def _registered(local, export: StoredExport):
    _EXPORTS[local] = export
    try:
        yield
    finally:
        del _EXPORTS[local]
