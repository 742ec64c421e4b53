"""Parquet files of what was shown: rows gather in memory, and each file appears whole or not at all."""
import dataclasses
import datetime
import os
import secrets
from typing import Optional
from typing import Sequence
from typing import Union

import numpy as np
import polars as pl

from clrec_tf.data.impression_columns import SCHEMA
from clrec_tf.stores import outbox
from clrec_tf.system import atomic


@dataclasses.dataclass(frozen=True)
class Shown:
    """What one user was given.

    Attributes:
      request_id: of the request; several users of one share it.
      model_name, model_version: that answered.
      user_id: as in the request, or None.
      time: of the answer, seconds since 1970.
      popularity: α.
      ids: original ids, best first.
      scores: of each.
      intents: that brought each, or None.
    """
    request_id: str
    model_name: str
    model_version: int
    user_id: Optional[Union[int, str]]
    time: float
    popularity: float
    ids: Sequence
    scores: Sequence[float]
    intents: Optional[Sequence[int]] = None


def rows_of(shown: Sequence[Shown]) -> pl.DataFrame:
    """A row per item, by `SCHEMA`; ranks count from 1."""
    counts = [len(one.ids) for one in shown]
    each = pl.DataFrame([(one.request_id, one.model_name, one.model_version,
                          None if one.user_id in (None, "") else str(one.user_id), round(one.time * 1000), one.popularity)
                         for one in shown], orient="row", schema=dict(
        request_id=pl.String, model_name=pl.String, model_version=pl.Int64, user_id=pl.String, timestamp=pl.Int64,
        popularity=pl.Float32))[np.repeat(np.arange(len(shown)), counts)]
    return each.with_columns(
        rank=pl.Series([rank for count in counts for rank in range(1, count + 1)], dtype=pl.Int32),
        item_id=pl.Series([str(item) for one in shown for item in one.ids], dtype=pl.String),
        score=pl.Series([score for one in shown for score in one.scores], dtype=pl.Float32),
        intent=pl.Series([intent for one in shown for intent in one.intents or [None] * len(one.ids)], dtype=pl.Int32),
        timestamp=pl.col("timestamp").cast(pl.Datetime("ms")).dt.replace_time_zone("UTC")).select(*SCHEMA)


class ImpressionFiles:
    """Gathers rows and publishes them as FOLDER/date=YYYY-MM-DD/TIME-PROCESS-NUMBER.parquet, the first row's, in UTC.

    Replicas may share the folder, for PROCESS is random. Used by one thread.

    Args:
      folder: made if it does not exist; what killed processes left half written there is removed.
      most_rows: rows of a file, which one piece of rows may go beyond.
      seconds: longest that a row waits for its file.

    Attributes:
      rows: that wait for their file.
    """

    def __init__(self, folder: str, most_rows: int, seconds: float):
        self._folder, self._most_rows, self._seconds = folder, most_rows, seconds
        self._process, self._number, self._pieces, self.rows, self._first = secrets.token_hex(4), 0, [], 0, 0.0
        os.makedirs(folder, exist_ok=True)
        atomic.remove_leftovers(folder)

    def add(self, shown: Sequence[Shown], now: float) -> None:
        """Gathers rows; `now` in seconds, of a clock of one's own."""
        rows = rows_of(shown)
        if len(rows):
            self._first = self._first if self.rows else now
            self._pieces.append(rows)
            self.rows += len(rows)

    def due(self, now: float) -> bool:
        """Whether the rows that wait are to be published."""
        return self.rows >= self._most_rows or self.rows > 0 and now - self._first >= self._seconds

    def publish(self) -> int:
        """Writes the rows that wait, at least one; returns how many. What it raises leaves them waiting."""
        rows = pl.concat(self._pieces)
        self._number += 1
        begin: datetime.datetime = rows["timestamp"][0]
        folder = os.path.join(self._folder, f"date={begin:%Y-%m-%d}")
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, f"{begin:%Y%m%dT%H%M%S}-{self._process}-{self._number:06d}.parquet")
        with atomic.new_file(path, f"impression_log={self._folder}") as temporary:
            rows.write_parquet(temporary, compression="zstd")
        outbox.send(self._folder, path)
        self.drop()
        return len(rows)

    def drop(self) -> None:
        """Forgets the rows that wait."""
        self._pieces, self.rows = [], 0
