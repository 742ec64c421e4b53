"""Whether objects can be written, read, listed, replaced on a condition and deleted under an address.

Tried with an object of a random name, which is removed again and which no listing of the commands gives.
"""
import contextlib
import secrets
from typing import Iterator

from clrec_tf.diagnosis.findings import About
from clrec_tf.diagnosis.findings import FAULT
from clrec_tf.diagnosis.findings import Finding
from clrec_tf.errors import UserError
from clrec_tf.stores.folder import Folder
from clrec_tf.stores.folder import TRIAL
from clrec_tf.stores.store_errors import TakenError

REMEDY = "allow reading, writing, listing and deleting under this address, or choose another place"
_BYTES = 65_536


def check_stored(about: About, folder: Folder, is_file: bool) -> Iterator[Finding]:
    """Tries a place that a command is to write to.

    Args:
      about: makes the findings.
      folder: of the store, that of the file if it is one.
      is_file: whether one file is to be written there, for which nothing is listed or replaced.

    Raises:
      UserError: what the store answers where one of these is not possible.
    """
    name = TRIAL + secrets.token_hex(8)
    try:
        found = list(_tried(about, folder, name, is_file))
    except BaseException:
        with contextlib.suppress(UserError):  # the first error counts
            folder.delete(name)
        raise
    yield from found
    try:
        folder.delete(name)
    except UserError as error:
        yield about.fault(f"{name} was written and cannot be deleted again: {error}", REMEDY)
        return
    if not any(finding.state == FAULT for finding in found):
        yield about.ok("objects can be written, read and deleted" if is_file
                       else "objects can be written, read, listed, replaced and deleted")


def _tried(about: About, folder: Folder, name: str, is_file: bool) -> Iterator[Finding]:
    content = secrets.token_bytes(_BYTES)
    version = folder.write(name, content)
    read = folder.read(name)
    if read != content:
        yield about.fault(f"an object of {len(content)} bytes was written, and {len(read or b'')} that differ were read",
                          "see whether a proxy or a cache stands before the store")
    elif not is_file:
        yield from _listed(about, folder, name)
        yield from _conditions(about, folder, name, version)


def _listed(about: About, folder: Folder, name: str) -> Iterator[Finding]:
    if name not in folder.names(trials=True):
        yield about.note("a new object is not in the listing yet: logs that are read there may lack their newest files",
                         "start prepare some time after the log was written")


def _conditions(about: About, folder: Folder, name: str, version) -> Iterator[Finding]:
    """Whether the store refuses a write that is made for no object, or for one that has been replaced since."""
    kept = [_refused(folder, name, "create")]
    try:
        folder.write(name, b"second", version)
    except TakenError:
        yield about.fault("an object cannot be replaced on the condition that nobody else has replaced it", "use a "
                          "store with conditional writes (If-Match), as leases of runs need them")
        return
    kept.append(_refused(folder, name, version))
    if not all(kept):
        yield about.note("the store has no conditional writes: nothing keeps two trainings, or two prepares, from "
                         "writing to one folder", "start one command at a time")


def _refused(folder: Folder, name: str, mode) -> bool:
    try:
        folder.write(name, b"wrong", mode)
        return False
    except TakenError:
        return True
