"""Inserted, updated and deleted items on top of an index that stays as it is.

ScaNN 1.3.4 has an upsert and a delete of its own. They need document ids, which it stores as a pickle, they change the
index in place, and what they do to recall is only known afterwards. Here the base is never touched: the vectors of
inserted and updated items are few and searched exactly, and deleted items are filtered out of the base's answers. So
recall does not fall, and an update costs no rebuild.
"""
import functools
import os

import numpy as np

from clrec_tf.retrieval.bundle_files import BASE_FOLDER
from clrec_tf.retrieval.bundle_files import DELETED_FILE
from clrec_tf.retrieval.index import Index
from clrec_tf.retrieval.index import no_results

_FILES = dict(vectors="updated_vectors.npy", positions="updated_positions.npy", deleted=DELETED_FILE)
_SCORE_BYTES = 64 * 2**20
_SPARE = 8  # results fetched beyond what the share of hidden items lets expect


class UpdatedIndex(Index):
    """An index, and what has changed since it was built.

    Positions 0..V−1 are those of the base. Of an item in both `positions` and `deleted` the vector is kept, but it is
    not found. An update of an updated index is one of its base: of both updates the later counts, item by item; so an
    item that was deleted comes back by being among `positions` again.

    Args:
      base: an index of V items, not changed.
      vectors: float32 [F,d] of updated and inserted items, as the base compares them.
      positions: int [F], distinct: of an updated item its own, of inserted ones V, V + 1, …, all of them.
      deleted: bool [V] or longer, by position.

    Raises:
      ValueError: these do not fit together.
    """
    kind, base_folder = "updated", BASE_FOLDER

    def __init__(self, base: Index, vectors: np.ndarray, positions: np.ndarray, deleted: np.ndarray):
        vectors, positions = np.asarray(vectors, np.float32), np.asarray(positions, np.int64)
        self.size = int(max(base.size, positions.max(initial=-1) + 1))
        _check(base, vectors, positions, deleted, self.size)
        deleted = np.pad(np.asarray(deleted, bool), (0, self.size - len(deleted)))
        if isinstance(base, UpdatedIndex):
            base, vectors, positions, deleted = _composed(base, vectors, positions, deleted)
        order = np.argsort(positions)
        self.base, self.is_exact = base, base.is_exact
        self._vectors, self._positions, self._deleted = vectors[order], positions[order], deleted
        self._hidden = deleted[:base.size].copy()  # from the base's answers
        self._hidden[self._positions[self._positions < base.size]] = True
        self._hidden_count = int(np.count_nonzero(self._hidden))
        live = ~deleted[self._positions]
        self._recent_positions = self._positions[live]  # ascending, so that the exact search breaks ties by position
        self._recent_vectors = self._vectors[live]

    @property
    def live(self) -> np.ndarray:
        """See `Index`."""
        return ~self._deleted

    @property
    def parameters(self) -> dict:
        """The base's kind and parameters, and how many items changed: inserted, updated and deleted ones.

        The names are those of the bundle format, which says "fresh", "moved" and "withdrawn".
        """
        inserted, updated, deleted = self.changes
        return dict(base=dict(kind=self.base.kind, size=self.base.size, parameters=self.base.parameters),
                    fresh=inserted, moved=updated, withdrawn=deleted)

    @property
    def changes(self) -> tuple[int, int, int]:
        """How many items are inserted, updated and deleted."""
        inserted = self.size - self.base.size
        return inserted, len(self._positions) - inserted, int(np.count_nonzero(self._deleted))

    @property
    def vectors(self) -> np.ndarray:
        """See `Index`; a copy, unlike the base's."""
        vectors = np.concatenate([self.base.vectors, np.empty_like(self._vectors, shape=(
            self.size - self.base.size, self._vectors.shape[1]))])
        vectors[self._positions] = self._vectors
        return vectors

    def vectors_at(self, positions: np.ndarray) -> np.ndarray:
        """See `Index`."""
        positions = np.asarray(positions, np.int64)
        vectors = np.array(self.base.vectors[np.minimum(positions, self.base.size - 1)])
        if len(self._positions):
            places = np.minimum(np.searchsorted(self._positions, positions), len(self._positions) - 1)
            changed = self._positions[places] == positions
            vectors[changed] = self._vectors[places[changed]]
        return vectors

    def search(self, vectors: np.ndarray, k: int):
        """See `Index`; fewer than k only where no more items are live."""
        near, scores = no_results(len(vectors), k)
        step = max(1, _SCORE_BYTES // (4 * max(1, len(self._recent_positions))))
        for start in range(0, len(vectors), step):
            chunk = slice(start, start + step)
            best, best_scores = self._merged(vectors[chunk], k)
            near[chunk, :best.shape[1]], scores[chunk, :best.shape[1]] = best, best_scores
        return near, scores

    def _merged(self, vectors, k):
        """`search` of few vectors: (positions, scores), each [N,n], n ≤ k."""
        empty = ~np.any(vectors, axis=1)
        near, scores = self._base_search(vectors, k)
        # Of what is recent only that can be among the k best which is no worse than the base's k-th.
        bounds = scores[:, -1] if near.shape[1] == k else np.full(len(vectors), -np.inf, np.float32)
        bounds[empty] = np.inf
        recent = vectors @ self._recent_vectors.T
        rows, columns = np.nonzero(recent >= bounds[:, None])
        if len(rows):
            counts = np.bincount(rows, minlength=len(vectors))
            added, added_scores = no_results(len(vectors), counts.max())
            places = np.arange(len(rows)) - (np.cumsum(counts) - counts)[rows]
            added[rows, places], added_scores[rows, places] = self._recent_positions[columns], recent[rows, columns]
            near, scores = np.concatenate([near, added], axis=1), np.concatenate([scores, added_scores], axis=1)
            order = np.lexsort((near, -scores))[:, :k]
            near, scores = (np.take_along_axis(part, order, axis=1) for part in (near, scores))
        if empty.any():
            first = self._live_positions[:k]
            width = [(0, 0), (0, max(0, len(first) - near.shape[1]))]
            near, scores = (np.pad(part, width, constant_values=none) for part, none in ((near, -1), (scores, -np.inf)))
            near[empty, :len(first)], scores[empty, :len(first)] = first, 0
        return near, scores

    def _base_search(self, vectors, k):
        """The best items of the base that are neither deleted nor updated: (positions, scores), each [N,n], n ≤ k."""
        size, wanted = self.base.size, min(k, self.base.size - self._hidden_count)
        near, scores = no_results(len(vectors), wanted)
        rows, margin = np.arange(len(vectors) if wanted else 0), 0
        if self._hidden_count:
            margin = round(2 * k * self._hidden_count / size) + _SPARE
        while len(rows):
            # k more than are hidden are always enough, and far fewer usually are.
            fetched = min(k + min(margin, self._hidden_count), size)
            positions, products = self.base.search(vectors[rows], fetched)
            live = (positions >= 0) & ~self._hidden[positions]
            live &= np.cumsum(live, axis=1) <= wanted
            full = np.count_nonzero(live, axis=1) == wanted
            keep = live & full[:, None]
            near[rows[full]] = positions[keep].reshape(-1, wanted)
            scores[rows[full]] = products[keep].reshape(-1, wanted)
            if fetched == min(k + self._hidden_count, size):
                break
            rows, margin = rows[~full], 4 * margin
        return near, scores

    @functools.cached_property
    def _live_positions(self):
        return np.flatnonzero(self.live)

    def save(self, folder: str) -> None:
        """Writes the base and the changes."""
        os.mkdir(os.path.join(folder, BASE_FOLDER))
        self.base.save(os.path.join(folder, BASE_FOLDER))
        self.save_changes(folder)

    def save_changes(self, folder: str) -> None:
        """Writes the changes alone; the base's files, which stay as they are, belong into `BASE_FOLDER`."""
        for name, file in _FILES.items():
            np.save(os.path.join(folder, file), getattr(self, f"_{name}"), allow_pickle=False)

    @classmethod
    def load(cls, folder: str, base: Index) -> "UpdatedIndex":
        """Reads what `save_changes` wrote, on top of the base that was opened from its folder."""
        return cls(base, **{name: np.load(os.path.join(folder, file), allow_pickle=False)
                            for name, file in _FILES.items()})


def _check(base, vectors, positions, deleted, size):
    inserted = np.count_nonzero(positions >= base.size)
    if vectors.ndim != 2 or len(vectors) != len(positions) or vectors.shape[1:] != base.vectors.shape[1:]:
        raise ValueError(f"vectors {vectors.shape} of {len(positions)} positions, the base has {base.vectors.shape}")
    if len(np.unique(positions)) < len(positions) or positions.min(initial=0) < 0 or size != base.size + inserted:
        raise ValueError(f"positions must be distinct, and those of {inserted} inserted items follow the last, "
                         f"{base.size - 1}")
    if not base.size <= len(deleted) <= size:
        raise ValueError(f"deleted has {len(deleted)} entries, not {base.size} to {size}")


def _composed(updated, vectors, positions, deleted):
    """The arguments of one update that does what `updated` and then another does."""
    kept = ~np.isin(updated._positions, positions)
    gone = np.pad(~updated.live, (0, len(deleted) - updated.size))
    gone[positions] = False
    return (updated.base, np.concatenate([updated._vectors[kept], vectors]),
            np.concatenate([updated._positions[kept], positions]), gone | deleted)
