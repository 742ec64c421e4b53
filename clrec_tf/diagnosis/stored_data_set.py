"""A data set in a store: its manifest, and whether the objects that it names are there."""
from typing import ContextManager
from typing import Iterator
from typing import Optional

from clrec_tf.data import schema as schema_lib
from clrec_tf.data.stored_data import check_empty
from clrec_tf.data.stored_data import entry_of
from clrec_tf.diagnosis.described import described
from clrec_tf.diagnosis.findings import About
from clrec_tf.diagnosis.findings import Finding
from clrec_tf.diagnosis.sizes import shown
from clrec_tf.diagnosis.store_objects import check_lease
from clrec_tf.diagnosis.store_objects import wrong_objects
from clrec_tf.diagnosis.stored_places import Place
from clrec_tf.errors import UserError
from clrec_tf.stores.folder import Folder

REMEDY = "restore the objects from a copy, or prepare the data again"
_MOST = 20  # objects named; more are counted


def check_stored_data(about: About, place: Place, full: bool) -> Iterator[Finding]:
    """Compares every object with the manifest: sizes, in full by sha256 too; records are not read."""
    folder = place.door.folder(place.address, place.flag)
    with _described(place, folder) as local:
        manifest = schema_lib.load_manifest(local, verify="")
        entries = [entry_of(shard) for shard in (*manifest.checked_at_start(), *manifest.others)]
        wrong = wrong_objects(folder, entries, local if full else "")
    for text in wrong[:_MOST]:
        yield about.fault(text, REMEDY)
    if len(wrong) > _MOST:
        yield about.fault(f"{len(wrong)} of {len(entries)} objects differ from the manifest, {_MOST} of them are named",
                          REMEDY)
    if not wrong:
        yield about.ok(f"{len(entries)} objects, {shown(sum(entry.bytes for entry in entries))}, agree with the "
                       "manifest by " + ("sha256" if full else "size"))
    if full:
        yield about.note("records in a store are not read", "check a copy of it in a folder")


def check_to_be_made(about: About, place: Place) -> Iterator[Finding]:
    """Whether prepare may write here: nothing but its own leftovers may be there."""
    folder = place.door.folder(place.address, place.flag)
    yield from check_lease(about, folder)
    check_empty(folder)
    yield about.ok("no data set is there yet, and nothing that is in prepare's way")


def is_there(place: Place) -> bool:
    """Whether a complete data set is at an address; `UserError`s of the store."""
    return place.door.folder(place.address, place.flag).head(schema_lib.MANIFEST_FILE) is not None


def schema_of(place: Place) -> Optional[schema_lib.Schema]:
    """Of a data set; None where there is none to be read, which the check of the data tells."""
    try:
        with _described(place, place.door.folder(place.address, place.flag)) as local:
            return schema_lib.load_schema(local)
    except UserError:
        return None


def _described(place: Place, folder: Folder) -> ContextManager[str]:
    """A local folder with manifest and schema, which may be missing in the store's."""
    return described(place.door, folder,
                     {name: folder.read(name) for name in (schema_lib.MANIFEST_FILE, schema_lib.SCHEMA_FILE)})
