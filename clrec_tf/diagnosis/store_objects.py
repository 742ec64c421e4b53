"""Objects of a store against the list that names them, such as a data set's manifest or a run's checkpoints.json."""
import contextlib
import os
import secrets
from typing import Iterator
from typing import Sequence

from clrec_tf.diagnosis.findings import About
from clrec_tf.diagnosis.findings import Finding
from clrec_tf.errors import DataError
from clrec_tf.stores import lease
from clrec_tf.stores.cache import Entry
from clrec_tf.stores.cache import fetch_checked
from clrec_tf.stores.folder import Folder
from clrec_tf.stores.transfer import in_parallel


def wrong_objects(folder: Folder, entries: Sequence[Entry], scratch: str) -> list[str]:
    """What is wrong with objects, one text each.

    Args:
      folder: of the store.
      entries: of the list.
      scratch: a local folder, where each is copied to and its sha256 compared; "" compares sizes alone.
    """
    return list(filter(None, in_parallel(lambda entry: _wrong(folder, entry, scratch), entries)))


def _wrong(folder, entry, scratch):
    found = folder.head(entry.name)
    if found is None:
        return f"{entry.name} in {folder.given} is missing though its list names it"
    if found[0] != entry.bytes:
        return f"{entry.name} in {folder.given} has {found[0]} bytes, its list says {entry.bytes}"
    path = os.path.join(scratch, secrets.token_hex(8))
    try:
        if scratch:
            fetch_checked(folder, entry, path)
        return ""
    except DataError as error:
        return str(error)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)


def check_lease(about: About, folder: Folder) -> Iterator[Finding]:
    """A note where a process writes there; the lease is not taken."""
    held = folder.read(lease.NAME)
    if held is not None:
        yield about.note(f"{lease.holder(held)} writes there ({lease.NAME}), or was killed: others that would write "
                         "there wait for a sign of life, and end with 75 if there is one")
