"""The records of one part: made in the order of users, written in the order of the shards."""
from typing import Iterator

import numpy as np

from clrec_tf.preparation.dealt_records import DealtRecords
from clrec_tf.settings.data import PrepareConfig


class ShardRecords:
    """Takes the records of all sequences in their order, and gives those of one shard after the other.

    Args:
      order: [R] which sequence stands at each place.
      clicks: of all sequences.
      settings: --shard_records, --clicks_in_memory and the scratch folder.
    """

    def __init__(self, order: np.ndarray, clicks: int, settings: PrepareConfig):
        self._per_shard, self._next = settings.shard_records, 0
        self._places = np.empty(len(order), np.int64)
        self._places[order] = np.arange(len(order))
        self._events = np.zeros(len(order), np.int32)  # by place
        groups = -(-clicks // settings.clicks_in_memory) if settings.scratch_dir else 1
        self._records = DealtRecords(len(order), max(groups, 1), settings.shard_records, settings.scratch_dir)

    @property
    def shards(self) -> int:
        """How many there are."""
        return -(-len(self._places) // self._per_shard)

    def add(self, records: list[bytes], events: np.ndarray) -> None:
        """Takes the records of the next sequences [n], and the clicks of each [n]."""
        places = self._places[self._next:self._next + len(records)]
        self._next += len(records)
        self._events[places] = events
        self._records.add(places, records)

    def by_shard(self) -> Iterator[tuple[list[bytes], int]]:
        """Records and clicks of each shard."""
        place = 0
        for records in self._records.in_order():
            for begin in range(0, len(records), self._per_shard):
                own = records[begin:begin + self._per_shard]
                yield own, int(self._events[place:place + len(own)].sum())
                place += len(own)
