"""The versions in a folder of a store: looked at there, and fetched before they are loaded."""
import contextlib
import functools
import os
import shutil
from typing import Iterator

from clrec_tf.errors import UserError
from clrec_tf.retrieval import stored_versions
from clrec_tf.retrieval.bundle_files import MANIFEST_FILE
from clrec_tf.server.version_folder import number_in
from clrec_tf.server.version_folder import PIN_FILE
from clrec_tf.server.version_folder import Seen
from clrec_tf.server.version_folder import VersionFolder
from clrec_tf.settings.data import EXPORT_FOLDER
from clrec_tf.stores.address import Address
from clrec_tf.stores.cache import Cache
from clrec_tf.stores.folder import Folder

_FOLDERS: dict[str, "StoredFolder"] = {}  # by local folder of versions, of this process
_KEPT = 2  # versions on this machine's disk: the one in use and the one that is to take its place


class StoredFolder:
    """As `VersionFolder`, of a store. Every method raises `StoreError` where it fails until --store_deadline_s.

    Args:
      remote: folder of versions.
      local: where they are put.
      cache: of files.
    """

    def __init__(self, remote: Folder, local: str, cache: Cache):
        self._remote, self.export_dir, self._cache, self._kept = remote, local, cache, []

    def pinned(self, wanted: int) -> int:
        """See `VersionFolder`."""
        content = self._remote.read(PIN_FILE)
        if content is None:
            return wanted
        return number_in(content.decode("ascii", "replace"), str(self._remote.address.child(PIN_FILE)))

    def complete(self) -> list[int]:
        """See `VersionFolder`."""
        return stored_versions.read_list(self._remote).complete

    def seen(self, number: int) -> Seen:
        """See `VersionFolder`: of a version whose manifest has not changed nothing has."""
        found = self._remote.head(f"{number}/{MANIFEST_FILE}")
        return Seen(number, (found[0], found[1].tag, found[1].generation)) if found else Seen(number)

    def fetched(self, number: int) -> str:
        """See `VersionFolder`. Raises: see `stored_versions.fetch_version`."""
        folder = stored_versions.fetch_version(self._remote, number, self._cache, self.export_dir)
        self._kept = [*(each for each in self._kept if each != folder), folder]
        for old in self._kept[:-_KEPT]:  # what is loaded of it stays: files that are mapped live on without a name
            shutil.rmtree(old, ignore_errors=True)
        self._kept = self._kept[-_KEPT:]
        return folder


def of(export_dir: str) -> VersionFolder | StoredFolder:
    """The versions that a local folder has, or stands for."""
    return _FOLDERS.get(export_dir) or VersionFolder(export_dir)


@contextlib.contextmanager
def follows_versions(address: Address, flag: str, door) -> Iterator[str]:
    """A local folder that stands for one of versions, of which `of` knows more."""
    remote, number = stored_versions.place_of(address, flag, door)
    if number:
        raise UserError(f"--{flag}={address} is version {number} itself: give the folder that holds it, --{flag}="
                        f"{remote.address}, and --serve_version={number}")
    with door.scratch() as scratch, door.named(os.path.join(scratch, EXPORT_FOLDER), remote.address) as local:
        os.mkdir(local)
        _FOLDERS[local] = StoredFolder(remote, local, door.cache)
        try:
            yield local
        finally:
            del _FOLDERS[local]


follows_versions_of_run = functools.partial(stored_versions.of_run, follows_versions)
