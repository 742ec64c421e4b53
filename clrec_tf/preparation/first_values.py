"""What a log says of its items: of each column the first known value in time."""
from typing import Sequence

import numpy as np
import polars as pl


class FirstValues:
    """The first value of each item in one column, from rows that are given in the order of the file.

    Args:
      items: how many there are.
      by: columns that order rows before their place in the file does.
      dtype: of the values.
    """

    def __init__(self, items: int, by: Sequence[str], dtype: pl.DataType):
        self._by = tuple(by)
        self._place = np.full(items, -1)  # among all values kept
        self._best = {name: np.zeros(items, np.float64 if name == "order" else np.int64) for name in by}
        self._values = [pl.Series(dtype=dtype)]
        self._count = 0

    def add(self, number: np.ndarray, values: pl.Series, keys: dict[str, np.ndarray]) -> None:
        """Takes further rows: items [N], their values, null where unknown, and the columns of `by` [N]."""
        unknown = self._place[number] < 0
        earlier = np.zeros(len(number), bool)
        for name in reversed(self._by):  # the first column decides unless it is equal
            best = self._best[name][number]
            earlier = (keys[name] < best) | ((keys[name] == best) & earlier)
        rows = np.flatnonzero((unknown | earlier) & values.is_not_null().to_numpy())
        if not len(rows):
            return
        order = np.lexsort([*(keys[name][rows] for name in reversed(self._by)), number[rows]])  # stable
        rows = rows[order]
        rows = rows[np.diff(number[rows], prepend=-1) != 0]
        self._values.append(values.gather(rows))
        self._place[number[rows]] = self._count + np.arange(len(rows))
        self._count += len(rows)
        for name in self._by:
            self._best[name][number[rows]] = keys[name][rows]

    def known(self) -> tuple[np.ndarray, pl.Series]:
        """Numbers of the items that have a value, ascending, and these values."""
        numbers = np.flatnonzero(self._place >= 0)
        return numbers, pl.concat(self._values).gather(self._place[numbers])
