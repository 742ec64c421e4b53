"""Records that are made in one order and written in another: in memory while they are few, else in scratch files."""
import os
from typing import Iterator, Sequence

import numpy as np

from clrec_tf.system import scratch


class DealtRecords:
    """Places 0 … count − 1, each of which gets one record.

    Args:
      count: of the places.
      groups: how many groups of neighbouring places are held apart, each in a file; 1: all are held in memory.
      step: the size of a group is a multiple of it.
      folder: of the files.
    """

    def __init__(self, count: int, groups: int, step: int, folder: str):
        self._groups, self._scratch = groups, folder
        self._folder = scratch.new_folder(folder, "records-") if groups > 1 else ""
        self._size = max(1, -(-count // (groups * step))) * step
        self._index: list[list[tuple[np.ndarray, np.ndarray]]] = [[] for _ in range(groups)]
        self._held: list[tuple[np.ndarray, list[bytes]]] = []

    def add(self, places: np.ndarray, records: Sequence[bytes]) -> None:
        """Takes records for places [N]; `UserError` where the scratch folder is full."""
        if self._groups == 1:
            self._held.append((places, list(records)))
            return
        groups, lengths = places // self._size, np.fromiter(map(len, records), np.int64, len(records))
        order = np.argsort(groups, kind="stable")
        present, first = np.unique(groups[order], return_index=True)
        with scratch.write_errors(self._scratch):
            for group, own in zip(present.tolist(), np.split(order, first[1:])):
                with open(self._path(group), "ab") as file:
                    file.write(b"".join([records[number] for number in own.tolist()]))
                self._index[group].append((places[own], lengths[own]))

    def in_order(self) -> Iterator[list[bytes]]:
        """All records by place, a group at a time, whose file is then removed."""
        for group in range(self._groups):
            if self._groups == 1:
                places, records = self._all_held()
            elif self._index[group]:
                places, records = self._read(group)
            else:
                continue
            yield [records[number] for number in np.argsort(places).tolist()]

    def _all_held(self) -> tuple[np.ndarray, list[bytes]]:
        places = np.concatenate([np.zeros(0, np.int64), *(places for places, _ in self._held)])
        return places, [record for _, records in self._held for record in records]

    def _read(self, group: int) -> tuple[np.ndarray, list[bytes]]:
        places, lengths = map(np.concatenate, zip(*self._index[group]))
        with open(self._path(group), "rb") as file:
            data = file.read()
        os.remove(self._path(group))
        ends = np.cumsum(lengths)
        if ends[-1] != len(data):
            with scratch.write_errors(self._scratch):
                raise OSError(0, f"has {len(data)} bytes after {ends[-1]} were written; is the disk full?")
        return places, [data[begin:end] for begin, end in zip((ends - lengths).tolist(), ends.tolist())]

    def _path(self, group: int) -> str:
        return os.path.join(self._folder, f"records-{group:05d}")
