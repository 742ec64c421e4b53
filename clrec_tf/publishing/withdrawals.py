"""Items that stay withdrawn when a new export takes the place of an updated version."""
import os

from absl import logging
import numpy as np

from clrec_tf.errors import DataError
from clrec_tf.publishing.one_publisher import newest_version
from clrec_tf.retrieval import manifest as manifest_lib
from clrec_tf.retrieval.updated_index import UpdatedIndex

WITHDRAWN_FILE = "withdrawn_ids.npy"  # of all that is withdrawn, whether the version's catalogue has it or not
_INDEX_FOLDER = "index"
_MASK_FILE = os.path.join(_INDEX_FOLDER, "withdrawn.npy")  # by position, of updated versions


def carried_over(export_dir: str, index, item_ids: np.ndarray, folder: str, forget: bool):
    """The index of a new export without the items that are withdrawn in the newest version.

    Args:
      export_dir: folder of versions.
      index: over the new catalogue; see `index`.
      item_ids: [V] original ids by position.
      folder: of the new version, in which the ids are kept for the next.
      forget: whether the new version starts without withdrawals.

    Returns:
      The index, or one in which they cannot be found.

    Raises:
      DataError: the newest version cannot be read, or is of another type of ids; nothing is left.
    """
    version = newest_version(export_dir)
    if not version:
        return index
    newest = os.path.join(export_dir, str(version))
    if forget:
        logging.warning("--forget_updates: nothing that was withdrawn or added in %s is so any more", newest)
        return index
    withdrawn, ids, exported = _read(newest)
    if withdrawn.dtype.kind != item_ids.dtype.kind:
        if not len(withdrawn):
            return index
        raise DataError(f"{newest} withdraws {len(withdrawn)} items by ids of another type than this catalogue's: "
                        "withdraw them anew with update_index after an export with --forget_updates")
    lacking = np.count_nonzero(~np.isin(ids[exported:], np.append(item_ids, withdrawn)))
    if lacking:
        logging.warning("%d items that were added to %s are not in this catalogue: add them with update_index, by "
                        "vectors of this model", lacking, newest)
    if not len(withdrawn):
        return index
    save(folder, withdrawn)
    hidden = np.isin(item_ids, withdrawn)
    logging.warning("%d items withdrawn in %s stay withdrawn, %d of them in this catalogue (--forget_updates brings "
                    "them back; the signature retrieve, of TensorFlow Serving, knows no withdrawals)", len(withdrawn),
                    newest, np.count_nonzero(hidden))
    if hidden.all():
        raise DataError(f"every item of this catalogue is withdrawn in {newest}: bring some back, or export with "
                        "--forget_updates")
    if not hidden.any():
        return index
    return UpdatedIndex(index, np.empty((0, index.vectors.shape[1]), np.float32), np.empty(0, np.int64), hidden)


def remember(folder: str, before: str, withdrawn: np.ndarray, returned: np.ndarray) -> None:
    """Keeps what is withdrawn in a version made from another.

    Args:
      folder: of the new version.
      before: of the one it is made from.
      withdrawn, returned: ids that the update withdraws, known or not, and that it adds or brings back.
    """
    ids, _, _ = _read(before)
    ids = np.union1d(ids, withdrawn) if len(withdrawn) else ids
    save(folder, ids[~np.isin(ids, returned)])


def save(folder: str, ids: np.ndarray) -> None:
    """Writes ids [N], int64 or fixed-width str."""
    np.save(os.path.join(folder, WITHDRAWN_FILE), ids, allow_pickle=False)


def _read(folder) -> tuple[np.ndarray, np.ndarray, int]:
    """Ids that a version withdraws, all of its ids, and how many of these are its export's."""
    manifest = manifest_lib.read_manifest(folder)
    wanted = (manifest_lib.IDS_FILE, WITHDRAWN_FILE, _MASK_FILE)
    manifest_lib.check_files(folder, {name: manifest["files"][name] for name in wanted if name in manifest["files"]})
    load = lambda name: np.load(os.path.join(folder, name), allow_pickle=False)
    try:
        ids = load(manifest_lib.IDS_FILE)
        if WITHDRAWN_FILE in manifest["files"]:
            withdrawn = load(WITHDRAWN_FILE)
        elif _MASK_FILE in manifest["files"]:  # updated before there was a file of ids
            mask = load(_MASK_FILE)
            withdrawn = ids[:len(mask)][mask]
        else:
            withdrawn = ids[:0]
        return withdrawn, ids, manifest["tower_items"]
    except (OSError, ValueError, IndexError) as error:
        raise DataError(f"what is withdrawn in {folder} cannot be read ({error}): copy that version anew, or export "
                        "with --forget_updates") from error
