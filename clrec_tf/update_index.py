"""The command that adds, moves and withdraws items of a published bundle, without training and without a rebuild."""
import dataclasses
import datetime
import os
import shutil

from absl import logging
import numpy as np

from clrec_tf import command_line
from clrec_tf.system.atomic import new_folder
from clrec_tf.config import Config, require
from clrec_tf.data.schema import save_json
from clrec_tf.errors import DataError, UserError
from clrec_tf.publishing import one_publisher
from clrec_tf.publishing import withdrawals
from clrec_tf.retrieval import bundle as bundle_lib
from clrec_tf.retrieval.bundle import Bundle
from clrec_tf.retrieval import index as index_lib
from clrec_tf.retrieval import manifest as manifest_lib
from clrec_tf.publishing.item_updates import Upserts, read_upserts, read_withdrawn
from clrec_tf.publishing.update_recall import measure_update
from clrec_tf.retrieval.updated_index import BASE_FOLDER, UpdatedIndex

USAGE = """python -m clrec_tf.update_index: publishes a bundle's newest version again, items added, moved and withdrawn.

  python -m clrec_tf.update_index --export_dir=DIR --upsert=items.jsonl --withdraw=gone.txt
  items.jsonl: {"id": "a17", "vector": [0.1, …]} or {"id": "a17", "like": ["b3", "c99"], "title": "…"}, one a line

--export_dir may also be one version, which is then the one that is changed."""

# With 10⁶ items, of which one query takes ScaNN .20 ms at recall@200 = .95: 10,000 fresh items make it .48 ms and 1.5
# times the time of a batch of 256; 30 % withdrawn make it .34 ms and 1.5 times.
_MANY_RECENT = 10_000
_MANY_HIDDEN = 0.3  # of the base


@dataclasses.dataclass(frozen=True)
class _Change:
    """What is to become of a bundle: the index, and of V + F positions ids, titles, vectors [V+F,d] and liveness."""
    index: UpdatedIndex
    ids: np.ndarray
    titles: np.ndarray
    vectors: np.ndarray
    live: np.ndarray
    counts: dict


def update_bundle(export_dir: str, upsert: str, withdraw: str, target_recall: float) -> str:
    """Publishes the next version.

    Args:
      export_dir: a folder of versions, of which the newest is changed, or the version to change.
      upsert: file of `read_upserts`, or "".
      withdraw: file of `read_withdrawn`, or "".
      target_recall: smallest acceptable recall@k of the new version against exact search over its live items, on the
        held-out users that export kept; k is that of export.

    Returns:
      The new version's folder.

    Raises:
      DataError: a file, or the bundle, is not as it should be; nothing would change, or nothing be left; the recall is
        too low. Nothing is published then.
    """
    with one_publisher.publishing(_parent(export_dir)):
        return _update_bundle(export_dir, upsert, withdraw, target_recall)


def _parent(export_dir):
    """The folder of versions."""
    is_version = os.path.isfile(os.path.join(export_dir, manifest_lib.MANIFEST_FILE))
    return os.path.dirname(os.path.abspath(export_dir)) if is_version else export_dir


def _update_bundle(export_dir, upsert, withdraw, target_recall):
    """`update_bundle`, of the process that alone publishes in the folder."""
    newest = one_publisher.newest_version(_parent(export_dir))
    bundle = bundle_lib.load_bundle(export_dir)
    queries = index_lib.load_queries(os.path.join(bundle.path, bundle_lib.INDEX_FOLDER))
    id_type = bundle.manifest["id_type"]
    upserts = read_upserts(upsert, bundle) if upsert else Upserts(
        bundle.item_ids[:0], np.empty((0, bundle.width), np.float32), [], 0)
    if upserts.normalized:
        logging.info("%d vectors of %s were not of norm 1 and have been normalized: this model compares by the cosine",
                     upserts.normalized, upsert)
    if upserts.guessed:
        source = bundle.dial.source
        logging.warning("%d fresh items of %s have no `%s`: the dial counts none, so they come late at popularity 1; give "
                        "`%s` where they are known", upserts.guessed, upsert, source, source)
    withdrawn_ids = read_withdrawn(withdraw, id_type) if withdraw else bundle.item_ids[:0]
    change = _change(bundle, upserts, withdrawn_ids)
    parent = os.path.dirname(os.path.abspath(bundle.path))
    version = 1 + max(int(name) for name in os.listdir(parent) if manifest_lib.is_number(name))
    folder = os.path.join(parent, str(version))
    with new_folder(folder, f"export_dir={export_dir}") as temporary:
        _write(temporary, bundle, change)
        withdrawals.remember(temporary, bundle.path, withdrawn_ids, upserts.ids)
        measured = measure_update(temporary, bundle, change.vectors, change.live, queries, target_recall)
        manifest_lib.write_manifest(temporary, _facts(bundle, change, version) | dict(measured=measured))
        bundle_lib.load_bundle(temporary)
        one_publisher.check_newest(parent, newest)
    logging.info("published %s: %s", folder, change.counts)
    if bundle.manifest["version"] < newest:
        logging.warning("%s was made from version %d, and takes the place of version %d", folder,
                        bundle.manifest["version"], newest)
    _warn_of_size(change.index)
    return folder


def _change(bundle: Bundle, upserts: Upserts, withdrawn_ids) -> _Change:
    """Plans the update."""
    both = np.intersect1d(upserts.ids, withdrawn_ids)
    if len(both):
        raise DataError(f"--upsert and --withdraw both name {len(both)} items, such as {both[0].item()!r}: leave them "
                        "in one of the files")
    known = bundle.all_positions(upserts.ids)
    size, fresh = len(bundle.item_ids), known < 0
    positions = np.where(fresh, size + np.cumsum(fresh) - 1, known)
    total = size + int(fresh.sum())
    gone = np.zeros(size, bool)
    gone[_withdrawn_positions(bundle, withdrawn_ids)] = True
    ids = np.concatenate([bundle.item_ids, upserts.ids[fresh]])
    titles = _titles(bundle, positions, upserts.titles, total)
    # What is as it was need not be searched twice.
    same = ~fresh
    same[same] = bundle.live[known[same]] & np.all(
        bundle.item_vectors(known[same]) == upserts.vectors[same], axis=1)
    moved, vectors = positions[~same], upserts.vectors[~same]
    retitled = titles is not None and not np.array_equal(titles, bundle.titles)
    if not len(moved) and not gone.any() and not retitled:
        raise DataError("--upsert and --withdraw change nothing: every item named is as it shall be, or unknown")
    truth = np.concatenate([bundle.item_vectors(), np.empty((total - size, vectors.shape[1]), np.float32)])
    truth[moved] = vectors
    live = np.append(bundle.live & ~gone, np.zeros(total - size, bool))
    live[moved] = True
    if not live.any():
        raise DataError("--withdraw leaves no item: a bundle needs at least one")
    counts = dict(fresh=total - size, moved=int(np.count_nonzero(bundle.live[known[~same & ~fresh]])),
                  returned=int(np.count_nonzero(~bundle.live[known[~same & ~fresh]])), withdrawn=int(gone.sum()),
                  live=int(live.sum()))
    return _Change(UpdatedIndex(bundle.index, vectors, moved, gone), ids, titles, truth, live, counts)


def _withdrawn_positions(bundle, ids):
    """Positions of live items to withdraw; says which ids are none."""
    positions = bundle.all_positions(ids)
    if (positions < 0).any():
        logging.warning("--withdraw names %d of %d items that the bundle does not have, such as %s; it goes on without "
                        "them, and they stay out of later exports", np.count_nonzero(positions < 0), len(ids),
                        ids[positions < 0][:5].tolist())
    return positions[(positions >= 0) & bundle.live[positions]]


def _titles(bundle, positions, titles, total):
    """[total] titles, or None; fresh items without one have an empty one."""
    if bundle.titles is None:
        if any(title is not None for title in titles):
            logging.warning("--upsert has titles, the bundle has none: they are left out")
        return None
    changed = np.append(bundle.titles, np.full(total - len(bundle.titles), "", object))
    for position, title in zip(positions, titles):
        if title is not None:
            changed[position] = title
    return changed


def _write(folder, bundle: Bundle, change: _Change):
    """Everything but the manifest; what stays as it was is linked."""
    index_folder = os.path.join(folder, bundle_lib.INDEX_FOLDER)
    written = {withdrawals.WITHDRAWN_FILE}  # not linked, since it would be written to in both versions
    if len(change.ids) > len(bundle.item_ids):
        np.save(os.path.join(folder, manifest_lib.IDS_FILE), change.ids, allow_pickle=False)
        written.add(manifest_lib.IDS_FILE)
    if change.titles is not None:
        save_json(os.path.join(folder, bundle_lib.TITLES_FILE), change.titles.tolist())
        written.add(bundle_lib.TITLES_FILE)
    base = os.path.join(bundle_lib.INDEX_FOLDER, BASE_FOLDER)
    os.makedirs(os.path.join(folder, base))
    change.index.save_changes(index_folder)
    index_lib.save_facts(index_folder, change.index, bundle.manifest["checkpoint_hash"])
    queries = os.path.join(bundle_lib.INDEX_FOLDER, index_lib.QUERIES_FILE)
    old_base = base if isinstance(bundle.index, UpdatedIndex) else bundle_lib.INDEX_FOLDER
    for name in bundle.manifest["files"]:
        parent, file = os.path.split(name)
        if name == queries or parent.split(os.sep)[0] != bundle_lib.INDEX_FOLDER and name not in written:
            _link(os.path.join(bundle.path, name), os.path.join(folder, name))
        elif parent == old_base and file != index_lib.INDEX_FILE:
            _link(os.path.join(bundle.path, name), os.path.join(folder, base, file))


def _link(source, target):
    """The same file under another name; a copy where the file system has no links."""
    os.makedirs(os.path.dirname(target), exist_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _facts(bundle: Bundle, change: _Change, version) -> dict:
    """The manifest of the new version, without measurements and files."""
    index = change.index
    return {name: value for name, value in bundle.manifest.items() if name != "files"} | dict(
        version=version, created=datetime.datetime.now(datetime.timezone.utc).isoformat(), items=index.size,
        tower_items=bundle.manifest["tower_items"], updated=dict(version=bundle.manifest["version"]) | change.counts,
        index=dict(kind=index.kind, is_exact=index.is_exact, **index.parameters))


def _warn_of_size(index: UpdatedIndex):
    """Says when a new export is better."""
    facts = index.parameters
    recent, size = facts["fresh"] + facts["moved"], index.base.size
    if recent > _MANY_RECENT or facts["moved"] + facts["withdrawn"] > _MANY_HIDDEN * size:
        logging.warning("%d fresh or moved and %d withdrawn items beside %d of the export make searches slower: train "
                        "and export again", recent, facts["withdrawn"], size)


def main(config: Config) -> None:
    """Runs the command."""
    settings = config.update
    export_dir = require(config.paths.export_dir, "export_dir", "the bundle that python -m clrec_tf.export wrote")
    if not settings.upsert and not settings.withdraw:
        raise UserError("neither --upsert nor --withdraw is given: name a file of items to add or to withdraw")
    if settings.upsert and not settings.upsert.endswith((".jsonl", ".parquet")):
        raise UserError(f"--upsert={settings.upsert}: the name must end in .jsonl or .parquet")
    export_dir = manifest_lib.checked_export_dir(export_dir, may_be_version=True)
    print(update_bundle(export_dir, settings.upsert, settings.withdraw, config.export.target_recall))


if __name__ == "__main__":
    command_line.run(main, uses=("paths.export_dir", "update", "export.target_recall"), usage=USAGE)
