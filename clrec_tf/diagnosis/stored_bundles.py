"""A folder of versions in a store: the one that would be served, against its manifest. Nothing of it is run."""
from typing import Iterator

from clrec_tf.diagnosis.bundles import check_packages
from clrec_tf.diagnosis.bundles import REMEDY
from clrec_tf.diagnosis.described import described
from clrec_tf.diagnosis.findings import About
from clrec_tf.diagnosis.findings import Finding
from clrec_tf.diagnosis.machine import check_memory
from clrec_tf.diagnosis.sizes import shown
from clrec_tf.diagnosis.store_objects import check_lease
from clrec_tf.diagnosis.store_objects import wrong_objects
from clrec_tf.diagnosis.stored_places import Place
from clrec_tf.errors import DataError
from clrec_tf.retrieval import stored_versions
from clrec_tf.retrieval.bundle_files import MANIFEST_FILE
from clrec_tf.retrieval.manifest import read_manifest
from clrec_tf.server.stored_folder import StoredFolder
from clrec_tf.stores.folder import Folder


def check_stored_bundles(about: About, place: Place, wanted: int, full: bool) -> Iterator[Finding]:
    """Compares a version's objects with its manifest: sizes, in full by sha256 too.

    Args:
      about: makes the findings.
      place: of the folder of versions, or of one of them.
      wanted: --serve_version, 0 for the newest.
      full: whether contents are compared.
    """
    remote, number = stored_versions.place_of(place.address, place.flag, place.door)
    yield from check_lease(about, remote)
    complete = stored_versions.read_list(remote).complete
    number = number or StoredFolder(remote, "", place.door.cache).pinned(wanted)
    if number and number not in complete:
        raise DataError(f"version {number} is asked for (by --serve_version or the object serve_version) and is not "
                        f"there: choose from {', '.join(map(str, complete)) or 'none, export first'}")
    if not complete:
        yield about.note("it holds no bundle yet: python -m clrec_tf.export writes one")
        return
    yield from _version(about, place, remote.child(str(number or complete[-1])), full)


def _version(about: About, place: Place, version: Folder, full: bool) -> Iterator[Finding]:
    content = version.read(MANIFEST_FILE)
    if content is None:
        yield about.fault(f"version {version.address} is listed and has no {MANIFEST_FILE}", REMEDY)
        return
    entries = stored_versions.entries_of(content, version)
    with described(place.door, version, {MANIFEST_FILE: content}) as local:
        manifest = read_manifest(local)
        wrong = wrong_objects(version, entries, local if full else "")
    for text in wrong:
        yield about.fault(text, REMEDY)
    if wrong:
        return
    held = sum(entry.bytes for entry in entries)
    yield about.ok(f"version {version.address}: {len(entries)} objects, {shown(held)}, agree with the manifest by "
                   + ("sha256" if full else "size"))
    yield from check_packages(about, manifest)
    yield from check_memory(about, held, "a server of this version")
