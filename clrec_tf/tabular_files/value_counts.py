"""How often each of many whole numbers was met, counted a part at a time: 16 bytes for each distinct one."""
import numpy as np


class ValueCounts:
    """Counts of numbers."""

    def __init__(self):
        self._known, self._new, self.total = (np.zeros(0, np.int64), np.zeros(0, np.int64)), [], 0

    def add(self, numbers: np.ndarray) -> None:
        """Takes further numbers [N]."""
        self._new.append(np.unique(numbers, return_counts=True))
        self.total += len(numbers)
        if sum(len(found) for found, _ in self._new) > len(self._known[0]):
            self.totals()

    def totals(self) -> tuple[np.ndarray, np.ndarray]:
        """Distinct numbers [S], ascending, and how often each was met [S]."""
        numbers, counts = map(np.concatenate, zip(self._known, *self._new))
        order = np.argsort(numbers, kind="stable")
        first = np.flatnonzero(np.diff(numbers[order], prepend=numbers[order][:1] - 1))
        self._known = numbers[order][first], np.add.reduceat(counts[order], first) if len(first) else counts
        self._new = []
        return self._known
