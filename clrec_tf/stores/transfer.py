"""Many files to a store: several at a time, those that make the others visible last and in order."""
import concurrent.futures
import os
from typing import Iterable, Sequence

from clrec_tf.stores.folder import Folder

_AT_ONCE = 4


def upload(folder: Folder, local: str, names: Iterable[str], last: Sequence[str] = (), keys=None) -> None:
    """Copies files of a local folder.

    Args:
      folder: of the store.
      local: folder that the names are relative to.
      names: of the files, as a/b.
      last: names among them that come when all others are there, one after the other.
      keys: name -> name in the store, where that differs.

    Raises:
      StoreError, UserError: as soon as one cannot be written; what readers go by, `last`, is then not there.
    """
    keys = keys or {}

    def one(name):
        folder.upload(keys.get(name, name), os.path.join(local, name))

    in_parallel(one, [name for name in names if name not in last])
    for name in last:
        one(name)


def in_parallel(work, items: Sequence) -> list:
    """`work` of each item, several at a time; its results in order. The first error ends it."""
    with concurrent.futures.ThreadPoolExecutor(_AT_ONCE) as pool:
        futures = [pool.submit(work, item) for item in items]
        try:
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def files_below(local: str) -> list[str]:
    """Names of all files below a local folder, as a/b, sorted."""
    return sorted(os.path.relpath(os.path.join(parent, name), local)
                  for parent, _, names in os.walk(local) for name in names)
