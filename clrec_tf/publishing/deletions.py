"""Items that stay deleted when a new export takes the place of an updated version."""
import os

from absl import logging
import numpy as np

from clrec_tf.errors import DataError
from clrec_tf.retrieval.bundle_files import DELETED_FILE
from clrec_tf.retrieval.bundle_files import DELETED_IDS_FILE
from clrec_tf.retrieval.bundle_files import IDS_FILE
from clrec_tf.retrieval.bundle_files import INDEX_FOLDER
from clrec_tf.retrieval.export_folder import newest_version
from clrec_tf.retrieval.index import Index
from clrec_tf.retrieval import manifest as manifest_lib
from clrec_tf.retrieval.updated_index import UpdatedIndex

_MASK_FILE = os.path.join(INDEX_FOLDER, DELETED_FILE)
FILES = (IDS_FILE, DELETED_IDS_FILE, _MASK_FILE)  # that are read of a version


def without_deleted(export_dir: str, index: Index, item_ids: np.ndarray, folder: str, forget: bool) -> Index:
    """The index of a new export without the items that are deleted in the newest version.

    Args:
      export_dir: folder of versions.
      index: over the new catalogue.
      item_ids: [V] original ids by position.
      folder: of the new version, in which the deleted ids are kept for the next.
      forget: whether the new version starts without deletions.

    Returns:
      The index, or one in which they cannot be found.

    Raises:
      DataError: the newest version cannot be read, or has another type of ids; nothing is left.
    """
    version = newest_version(export_dir)
    if not version:
        return index
    newest = os.path.join(export_dir, str(version))
    if forget:
        logging.warning("--forget_updates: items deleted from %s come back, and items inserted there are left out",
                        newest)
        return index
    deleted, ids, exported = _read(newest)
    if deleted.dtype.kind != item_ids.dtype.kind:
        if not len(deleted):
            return index
        raise DataError(f"{newest} names its {len(deleted)} deleted items by ids of another type than this "
                        "catalogue's: export with --forget_updates, then delete them again with update_index")
    _warn_of_lacking(ids[exported:], np.append(item_ids, deleted), newest)
    if not len(deleted):
        return index
    save(folder, deleted)
    hidden = np.isin(item_ids, deleted)
    logging.warning("%d items deleted from %s stay deleted, %d of them in this catalogue (--forget_updates brings them "
                    "back; the signature retrieve, of TensorFlow Serving, still gives them)", len(deleted), newest,
                    np.count_nonzero(hidden))
    if hidden.all():
        raise DataError(f"every item of this catalogue is deleted in {newest}: bring some back, or export with "
                        "--forget_updates")
    if not hidden.any():
        return index
    return UpdatedIndex(index, np.empty((0, index.vectors.shape[1]), np.float32), np.empty(0, np.int64), hidden)


def _warn_of_lacking(inserted, expected, newest):
    """Says how many of the ids inserted into the newest version are not among those expected in the new one."""
    lacking = np.count_nonzero(~np.isin(inserted, expected))
    if lacking:
        logging.warning("%d items that were inserted into %s are not in this catalogue: insert them with "
                        "update_index, by features or vectors of this model", lacking, newest)


def remember(folder: str, before: str, deleted: np.ndarray, restored: np.ndarray) -> None:
    """Keeps the deleted ids in a version made from another.

    Args:
      folder: of the new version.
      before: of the one it is made from.
      deleted, restored: ids that the update deletes, known or not, and that it inserts or brings back.
    """
    ids, _, _ = _read(before)
    ids = np.union1d(ids, deleted) if len(deleted) else ids
    save(folder, ids[~np.isin(ids, restored)])


def save(folder: str, ids: np.ndarray) -> None:
    """Writes ids [N], int64 or fixed-width str."""
    np.save(os.path.join(folder, DELETED_IDS_FILE), ids, allow_pickle=False)


def _read(folder) -> tuple[np.ndarray, np.ndarray, int]:
    """Ids that are deleted in a version, all of its ids, and how many of these are its export's."""
    manifest = manifest_lib.read_manifest(folder)
    manifest_lib.check_files(folder, {name: manifest["files"][name] for name in FILES if name in manifest["files"]})
    load = lambda name: np.load(os.path.join(folder, name), allow_pickle=False)
    try:
        ids = load(IDS_FILE)
        if DELETED_IDS_FILE in manifest["files"]:
            deleted = load(DELETED_IDS_FILE)
        elif _MASK_FILE in manifest["files"]:  # updated before there was a file of ids
            mask = load(_MASK_FILE)
            deleted = ids[:len(mask)][mask]
        else:
            deleted = ids[:0]
        return deleted, ids, manifest["tower_items"]
    except (OSError, ValueError, IndexError) as error:
        raise DataError(f"the deleted items of {folder} cannot be read ({error}): copy that version anew, or export "
                        "with --forget_updates") from error
