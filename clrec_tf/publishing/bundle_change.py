"""Plans an update: of a bundle, items to insert or update and ids to delete, what the next version holds."""
import dataclasses
from typing import Optional

from absl import logging
import numpy as np

from clrec_tf.errors import DataError
from clrec_tf.publishing.updated_attributes import updated_attributes
from clrec_tf.publishing.upserts import Upserts
from clrec_tf.retrieval.attributes import Attributes
from clrec_tf.retrieval.bundle import Bundle
from clrec_tf.retrieval.history_rows import HistoryRows
from clrec_tf.retrieval.updated_index import UpdatedIndex


@dataclasses.dataclass(frozen=True)
class Counts:
    """How many items an update changes.

    Attributes:
      inserted, updated: of the file of items: new to the bundle, and with another vector.
      restored: deleted before, and found again.
      deleted: found before, and not any more.
      live: found after the update.
    """
    inserted: int
    updated: int
    restored: int
    deleted: int
    live: int

    def facts(self) -> dict:
        """As the manifest says it, in the words of the bundle format."""
        return dict(fresh=self.inserted, moved=self.updated, returned=self.restored, withdrawn=self.deleted,
                    live=self.live)


@dataclasses.dataclass(frozen=True)
class Change:
    """What is to become of a bundle of V items, of which F are inserted.

    Attributes:
      index: of the next version.
      ids: [V+F] original ids.
      titles: [V+F] str objects, or None.
      vectors: float32 [V+F,D].
      live: bool [V+F], what can be found.
      counts: of what changes.
      history_rows: what histories read of inserted and updated items.
      attributes: of all items.
    """
    index: UpdatedIndex
    ids: np.ndarray
    titles: Optional[np.ndarray]
    vectors: np.ndarray
    live: np.ndarray
    counts: Counts
    history_rows: HistoryRows
    attributes: Attributes


def plan(bundle: Bundle, upserts: Upserts, deleted_ids: np.ndarray) -> Change:
    """Plans the update.

    Args:
      bundle: that is updated.
      upserts: items to insert or update.
      deleted_ids: [N] ids to delete, distinct; unknown ones are warned of.

    Raises:
      DataError: an item is in both, nothing would change, or nothing would be left.
    """
    _check_apart(upserts.ids, deleted_ids)
    size, known = len(bundle.item_ids), bundle.all_positions(upserts.ids)
    inserted = known < 0
    positions = np.where(inserted, size + np.cumsum(inserted) - 1, known)
    deleted = np.zeros(size, bool)
    deleted[_live_positions(bundle, deleted_ids)] = True
    titles = _titles(bundle, positions, upserts.titles, size + int(inserted.sum()))
    # Items of the file that are live and keep their vector need not be searched twice.
    changed = inserted.copy()
    changed[~inserted] = ~(bundle.live[known[~inserted]] & np.all(
        bundle.item_vectors(known[~inserted]) == upserts.vectors[~inserted], axis=1))
    retitled = titles is not None and not np.array_equal(titles, bundle.titles)
    rows = bundle.history_rows.replaced(positions[list(upserts.read)], np.array(list(upserts.read.values())))
    reread = not rows.same_as(bundle.history_rows)
    attributes = updated_attributes(bundle.attributes, positions, upserts.attributes, size + int(inserted.sum()))
    redescribed = not attributes.frame.equals(bundle.attributes.frame)
    if not (changed.any() or deleted.any() or retitled or reread or redescribed):
        raise DataError("--upsert and --withdraw change nothing: every item named is as it shall be, or unknown")
    vectors, live = _after(bundle, positions[changed], upserts.vectors[changed], deleted, int(inserted.sum()))
    if not live.any():
        raise DataError("--withdraw leaves no item: a bundle needs at least one")
    was_live = bundle.live[known[changed & ~inserted]]
    counts = Counts(int(inserted.sum()), int(np.count_nonzero(was_live)), int(np.count_nonzero(~was_live)),
                    int(deleted.sum()), int(live.sum()))
    index = UpdatedIndex(bundle.index, upserts.vectors[changed], positions[changed], deleted)
    return Change(index, np.concatenate([bundle.item_ids, upserts.ids[inserted]]), titles, vectors, live, counts,
                  rows, attributes)


def _check_apart(upserted_ids, deleted_ids):
    both = np.intersect1d(upserted_ids, deleted_ids)
    if len(both):
        raise DataError(f"--upsert and --withdraw both name {len(both)} items, such as {both[0].item()!r}: leave them "
                        "in one of the files")


def _live_positions(bundle, ids):
    """Positions of the live items among the ids; says which ids the bundle does not have."""
    positions = bundle.all_positions(ids)
    if (positions < 0).any():
        logging.warning("--withdraw names %d of %d items that the bundle does not have, such as %s; it goes on without "
                        "them, and they stay out of later exports", np.count_nonzero(positions < 0), len(ids),
                        ids[positions < 0][:5].tolist())
    return positions[(positions >= 0) & bundle.live[positions]]


def _after(bundle, positions, vectors, deleted, inserted):
    """(vectors [V+F,D], live [V+F]) after the update of some positions; deleted: bool [V]; inserted: F."""
    after = np.concatenate([bundle.item_vectors(), np.empty((inserted, vectors.shape[1]), np.float32)])
    after[positions] = vectors
    live = np.append(bundle.live & ~deleted, np.zeros(inserted, bool))
    live[positions] = True
    return after, live


def _titles(bundle, positions, titles, total):
    """[total] titles, or None; inserted items without one have an empty one."""
    if bundle.titles is None:
        if any(title is not None for title in titles):
            logging.warning("--upsert has titles, the bundle has none: they are left out")
        return None
    changed = np.append(bundle.titles, np.full(total - len(bundle.titles), "", object))
    for position, title in zip(positions, titles):
        if title is not None:
            changed[position] = title
    return changed
