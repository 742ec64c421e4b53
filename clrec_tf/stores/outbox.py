"""Folders whose files go to a store as soon as they are whole, and stay there alone."""
import contextlib
import os
from typing import Iterator

from clrec_tf.stores.address import Address
from clrec_tf.stores.folder import Folder

_FOLDERS: dict[str, Folder] = {}  # by local folder, of this process


@contextlib.contextmanager
def collects_files(address: Address, flag: str, door) -> Iterator[str]:
    """An empty local folder; `send` takes its files to the store. `UserError` where nothing can be written there."""
    remote = door.folder(address, flag)
    with door.scratch() as local, door.named(local, address):
        _FOLDERS[local] = remote
        try:
            yield local
        finally:
            del _FOLDERS[local]


def send(folder: str, path: str) -> None:
    """Uploads a file, if its folder stands for one of a store, and removes it here, uploaded or not.

    Args:
      folder: that `collects_files` gave, or another, of which nothing is to be sent.
      path: of the file in it.

    Raises:
      StoreError: the store failed until its deadline; the file is lost.
    """
    remote = _FOLDERS.get(folder)
    if remote is not None:
        try:
            remote.upload(os.path.relpath(path, folder), path)
        finally:
            os.remove(path)
