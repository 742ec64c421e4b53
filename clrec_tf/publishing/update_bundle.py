"""Publishes a bundle again with items inserted, updated and deleted, without training and without a new index."""
import datetime
import os
import shutil

from absl import logging
import numpy as np

from clrec_tf.publishing import bundle_change
from clrec_tf.publishing.bundle_change import Change
from clrec_tf.publishing import deletions
from clrec_tf.publishing.item_updates import read_upserts
from clrec_tf.publishing import one_publisher
from clrec_tf.publishing.update_files import read_deletions
from clrec_tf.publishing.update_recall import measure_update
from clrec_tf.publishing.upserts import Upserts
from clrec_tf.retrieval.bundle import Bundle
from clrec_tf.retrieval.bundle import load_bundle
from clrec_tf.retrieval.bundle_files import ATTRIBUTES_FILE
from clrec_tf.retrieval.bundle_files import BASE_FOLDER
from clrec_tf.retrieval.bundle_files import DELETED_IDS_FILE
from clrec_tf.retrieval.bundle_files import HISTORY_FILE
from clrec_tf.retrieval.bundle_files import IDS_FILE
from clrec_tf.retrieval.bundle_files import INDEX_FILE
from clrec_tf.retrieval.bundle_files import INDEX_FOLDER
from clrec_tf.retrieval.bundle_files import MANIFEST_FILE
from clrec_tf.retrieval.bundle_files import QUERIES_FILE
from clrec_tf.retrieval.bundle_files import TITLES_FILE
from clrec_tf.retrieval.export_folder import newest_version
from clrec_tf.retrieval.export_folder import taken_versions
from clrec_tf.retrieval.manifest import write_manifest
from clrec_tf.retrieval.saved_index import load_queries
from clrec_tf.retrieval.saved_index import save_facts
from clrec_tf.retrieval.updated_index import UpdatedIndex
from clrec_tf.system.json_files import save_json

# With 10⁶ items, of which one query takes ScaNN .20 ms at recall@200 = .95: 10,000 inserted items make it .48 ms and
# 1.5 times the time of a batch of 256; 30 % deleted make it .34 ms and 1.5 times.
_MANY_RECENT = 10_000
_MANY_HIDDEN = 0.3  # of the base


def update_bundle(export_dir: str, upsert: str, withdraw: str, target_recall: float) -> str:
    """Publishes the next version.

    Args:
      export_dir: a folder of versions, of which the newest is changed, or the version to change.
      upsert: file of `read_upserts`, or "".
      withdraw: file of `read_deletions`, or "".
      target_recall: smallest acceptable recall@k of the new version against exact search over its live items, on the
        held-out users that export kept; k is that of export.

    Returns:
      The new version's folder.

    Raises:
      DataError: a file, or the bundle, is not as it should be; nothing would change, or nothing be left; the recall is
        too low. Nothing is published then.
    """
    with one_publisher.publishing(_parent(export_dir)):
        newest = newest_version(_parent(export_dir))
        bundle = load_bundle(export_dir)
        queries = load_queries(os.path.join(bundle.path, INDEX_FOLDER))
        upserts = _read_upserts(upsert, bundle) if upsert else Upserts.none(bundle)
        deleted_ids = read_deletions(withdraw, bundle.manifest["id_type"]) if withdraw else bundle.item_ids[:0]
        change = bundle_change.plan(bundle, upserts, deleted_ids)
        parent = os.path.dirname(os.path.abspath(bundle.path))
        with one_publisher.next_version(parent, lambda: 1 + max(taken_versions(parent)), newest
                                        ) as (temporary, version):
            _write(temporary, bundle, change)
            deletions.remember(temporary, bundle.path, deleted_ids, upserts.ids)
            measured = measure_update(temporary, bundle, change.vectors, change.live, queries, target_recall)
            write_manifest(temporary, _facts(bundle, change, version) | dict(measured=measured))
            load_bundle(temporary)
    folder = os.path.join(parent, str(version))
    _report(folder, bundle, change, newest)
    return folder


def _parent(export_dir):
    """The folder of versions."""
    is_version = os.path.isfile(os.path.join(export_dir, MANIFEST_FILE))
    return os.path.dirname(os.path.abspath(export_dir)) if is_version else export_dir


def _read_upserts(path, bundle) -> Upserts:
    """The items of the file, with warnings of what was put right or taken for granted."""
    upserts = read_upserts(path, bundle)
    if upserts.normalized:
        logging.info("%d vectors of %s were not of norm 1 and have been normalized: this model compares by the cosine",
                     upserts.normalized, path)
    if upserts.guessed:
        source = bundle.dial.source
        logging.warning("%d inserted items of %s have no `%s`: the dial counts none, so they come late at popularity "
                        "1; give `%s` where they are known", upserts.guessed, path, source, source)
    return upserts


def _write(folder, bundle: Bundle, change: Change):
    """Everything but the manifest and the deleted ids; what stays as it was is linked."""
    # Not linked, since these would be written to in both versions.
    written = {DELETED_IDS_FILE, HISTORY_FILE, ATTRIBUTES_FILE}
    if len(change.ids) > len(bundle.item_ids):
        np.save(os.path.join(folder, IDS_FILE), change.ids, allow_pickle=False)
        written.add(IDS_FILE)
    if change.titles is not None:
        save_json(os.path.join(folder, TITLES_FILE), change.titles.tolist())
        written.add(TITLES_FILE)
    change.attributes.save(folder)
    if len(change.history_rows):
        change.history_rows.save(folder)
    index_folder = os.path.join(folder, INDEX_FOLDER)
    os.makedirs(os.path.join(index_folder, BASE_FOLDER))
    change.index.save_changes(index_folder)
    save_facts(index_folder, change.index, bundle.manifest["checkpoint_hash"])
    _link_unchanged(folder, bundle, written)


def _link_unchanged(folder, bundle: Bundle, written: set[str]):
    """Links the files of the bundle that the new version has too: those of the base, and others but those written."""
    queries = os.path.join(INDEX_FOLDER, QUERIES_FILE)
    base = os.path.join(INDEX_FOLDER, bundle.index.base_folder).rstrip(os.sep)
    for name in bundle.manifest["files"]:
        parent, file = os.path.split(name)
        if name == queries or parent.split(os.sep)[0] != INDEX_FOLDER and name not in written:
            _link(os.path.join(bundle.path, name), os.path.join(folder, name))
        elif parent == base and file != INDEX_FILE:
            _link(os.path.join(bundle.path, name), os.path.join(folder, INDEX_FOLDER, BASE_FOLDER, file))


def _link(source, target):
    """The same file under another name; a copy where the file system has no links."""
    os.makedirs(os.path.dirname(target), exist_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _facts(bundle: Bundle, change: Change, version) -> dict:
    """The manifest of the new version, without measurements and files."""
    index = change.index
    return {name: value for name, value in bundle.manifest.items() if name != "files"} | dict(
        version=version, created=datetime.datetime.now(datetime.timezone.utc).isoformat(), items=index.size,
        tower_items=bundle.manifest["tower_items"],
        updated=dict(version=bundle.manifest["version"]) | change.counts.facts(),
        index=dict(kind=index.kind, is_exact=index.is_exact, **index.parameters))


def _report(folder, bundle: Bundle, change: Change, newest: int):
    """Says what was published, what it replaces, and when a new export is better."""
    counts = change.counts
    logging.info("published %s: %d items inserted, %d updated, %d restored, %d deleted; %d are live", folder,
                 counts.inserted, counts.updated, counts.restored, counts.deleted, counts.live)
    numbers = change.history_rows.numbers(np.arange(len(bundle.item_ids), len(change.ids)))
    if (numbers < 0).any():
        reason = ("they were inserted by a bare vector; give `features` or `like`" if bundle.reads_inserted else
                  "the bundle was exported before they could; export again")
        logging.warning("%d of the inserted items do not count in histories: %s", np.count_nonzero(numbers < 0), reason)
    if bundle.manifest["version"] < newest:
        logging.warning("%s was made from version %d, and takes the place of version %d", folder,
                        bundle.manifest["version"], newest)
    _warn_of_size(change.index)


def _warn_of_size(index: UpdatedIndex):
    inserted, updated, deleted = index.changes
    size = index.base.size
    if inserted + updated > _MANY_RECENT or updated + deleted > _MANY_HIDDEN * size:
        logging.warning("%d inserted or updated and %d deleted items beside %d of the export make searches slower: "
                        "train and export again", inserted + updated, deleted, size)
