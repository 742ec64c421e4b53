"""Folders whose files are fetched from a store when they are read, and removed when they were."""
import contextlib
import os
import threading
from typing import Iterator, Optional, Sequence

from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.stores.cache import Cache
from clrec_tf.stores.cache import Entry
from clrec_tf.stores.folder import Folder
from clrec_tf.stores.transfer import in_parallel

_SOURCES: dict[str, "OnDemand"] = {}  # by local folder, of this process


class OnDemand:
    """Where the absent files of a local folder come from.

    Args:
      local: the folder.
      folder: of the store.
      cache: between the two.
      entries: of the files.

    Attributes:
      fault: the `UserError` of a fetch on a thread of TensorFlow's, None where there was none.
    """

    def __init__(self, local: str, folder: Folder, cache: Cache, entries: Sequence[Entry]):
        self.local, self._folder, self._cache = local, folder, cache
        self._entries = {entry.name: entry for entry in entries}
        self.fault: Optional[UserError] = None
        self._users: dict[str, int] = {}
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def held(self, names: Sequence[str]) -> Iterator[None]:
        """Context in which files are there; errors as of `Cache.fetch`."""
        self.take(names)
        try:
            yield
        finally:
            self.give_back(names)

    def take(self, names: Sequence[str]) -> None:
        """Fetches files, which stay until as many `give_back`."""
        with self._lock:
            for name in names:
                self._users[name] = self._users.get(name, 0) + 1
        in_parallel(self._fetch, [name for name in names if name in self._entries])

    def give_back(self, names: Sequence[str]) -> None:
        """Removes files that nobody else has taken."""
        with self._lock:
            for name in names:
                self._users[name] -= 1
                if not self._users[name] and name in self._entries:
                    del self._users[name]
                    with contextlib.suppress(FileNotFoundError):
                        os.remove(os.path.join(self.local, name))

    def check(self) -> None:
        """`DataError` unless all files are in the store, with their sizes."""
        def one(entry):
            found = self._folder.head(entry.name)
            return None if found and found[0] == entry.bytes else entry
        wrong = next(filter(None, in_parallel(one, list(self._entries.values()))), None)
        if wrong:
            raise DataError(f"{wrong.name} in {self._folder.given} is not there, or not with the {wrong.bytes} bytes "
                            "that the manifest says: restore it or prepare the data again")

    @property
    def files(self) -> list[str]:
        """Names of all files that come from the store."""
        return list(self._entries)

    def comes_later(self, name: str) -> bool:
        """Whether a file is fetched when it is read, and is not here now."""
        return name in self._entries and not os.path.exists(os.path.join(self.local, name))

    def _fetch(self, name):
        self._cache.fetch(self._folder, self._entries[name], os.path.join(self.local, name))


def register(source: OnDemand) -> None:
    """From now on the folder's readers find the source."""
    _SOURCES[source.local] = source


def forget(local: str) -> None:
    """Ends what `register` began."""
    _SOURCES.pop(local, None)


def source_of(local: str) -> Optional[OnDemand]:
    """Where a folder's absent files come from; None where all are there."""
    return _SOURCES.get(local)


def comes_later(local: str, name: str) -> bool:
    """Whether a file of a folder is fetched when it is read, and is not there now."""
    source = source_of(local)
    return source is not None and source.comes_later(name)


@contextlib.contextmanager
def present(local: str, names: Sequence[str]) -> Iterator[None]:
    """Context in which files of a folder are there, from a store or not."""
    source = source_of(local)
    with source.held(names) if source else contextlib.nullcontext():
        yield
