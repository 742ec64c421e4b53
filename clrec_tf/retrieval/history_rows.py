"""What histories read of items that were inserted or updated: rows beside those of the exported tower."""
import os
from typing import Sequence

import numpy as np

from clrec_tf.errors import DataError
from clrec_tf.retrieval.bundle_files import HISTORY_FILE


class HistoryRows:
    """Rows of M items beside the V of a tower.

    An item's number is what the tower is given for its click: below V a row of its own, V + m a row of these, −1 none.

    Args:
      tower_items: V.
      positions: int [M] of the items in the bundle, distinct.
      vectors: float32 [M,W], what the query tower reads of each.

    Raises:
      ValueError: these do not fit together.
    """

    def __init__(self, tower_items: int, positions: Sequence[int] = (), vectors: np.ndarray = np.zeros((0, 0))):
        positions, vectors = np.asarray(positions, np.int64), np.asarray(vectors, np.float32)
        if vectors.ndim != 2 or positions.shape != vectors.shape[:1] or len(np.unique(positions)) < len(positions):
            raise ValueError(f"{len(positions)} positions, not all distinct or not those of vectors {vectors.shape}")
        order = np.argsort(positions)
        self.tower_items, self.positions, self.vectors = tower_items, positions[order], vectors[order]

    def __len__(self):
        """M."""
        return len(self.positions)

    def numbers(self, positions: np.ndarray) -> np.ndarray:
        """Positions [N], −1 for none -> int64 [N] numbers of what histories read of them, −1 where that is nothing."""
        numbers = np.where(positions < self.tower_items, positions, -1)
        if len(self):
            places = np.minimum(np.searchsorted(self.positions, positions), len(self) - 1)
            numbers = np.where(self.positions[places] == positions, self.tower_items + places, numbers)
        return numbers

    def beyond(self, numbers: np.ndarray) -> bool:
        """Whether any of the numbers [...] is of these rows and not of the tower's."""
        return len(self) > 0 and bool((numbers >= self.tower_items).any())

    def of(self, numbers: np.ndarray, tower) -> np.ndarray:
        """What histories read of numbers [N], none of them −1, by a loaded tower: float32 [N,W]."""
        read = tower.items.sparse_read(np.minimum(numbers, self.tower_items - 1)).numpy()
        beyond = numbers >= self.tower_items
        if beyond.any():
            read[beyond] = self.vectors[numbers[beyond] - self.tower_items]
        return read

    def replaced(self, positions: Sequence[int], vectors: np.ndarray) -> "HistoryRows":
        """These with other or further rows: positions [N], vectors [N,W]."""
        if not len(positions):
            return self
        kept = ~np.isin(self.positions, positions)
        vectors = np.asarray(vectors, np.float32)
        return HistoryRows(self.tower_items, np.append(self.positions[kept], positions),
                           np.concatenate([self.vectors[kept].reshape(-1, vectors.shape[1]), vectors]))

    def same_as(self, other: "HistoryRows") -> bool:
        """Whether both say the same."""
        return np.array_equal(self.positions, other.positions) and np.array_equal(self.vectors, other.vectors)

    def save(self, folder: str) -> None:
        """Writes them into the folder of a version."""
        np.savez(os.path.join(folder, HISTORY_FILE), positions=self.positions, vectors=self.vectors)


def load_history_rows(folder: str, manifest: dict, items: int, width: int) -> HistoryRows:
    """Those of a version, none where it has no file of them.

    Args:
      folder: of the version.
      manifest: its manifest.
      items: V+F of the bundle.
      width: W of the tower.

    Raises:
      DataError: they are damaged, or of another bundle.
    """
    tower_items = manifest["tower_items"]
    if HISTORY_FILE not in manifest["files"]:
        return HistoryRows(tower_items)
    path = os.path.join(folder, HISTORY_FILE)
    try:
        with np.load(path, allow_pickle=False) as arrays:
            rows = HistoryRows(tower_items, arrays["positions"], arrays["vectors"])
        if rows.vectors.shape[1] != width or not ((rows.positions >= 0) & (rows.positions < items)).all():
            raise ValueError(f"vectors {rows.vectors.shape} for a tower of width {width} and {items} items")
        return rows
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"{path} cannot be read ({error}): copy the version anew, or export again") from error
