"""Rows of a log on the way through prepare: in memory while they are few, else files in the scratch folder."""
import dataclasses
import os
from typing import Callable, Iterator

import polars as pl

from clrec_tf.settings.data import PrepareConfig
from clrec_tf.system import scratch

POSITION = "__position__"  # of a row among all, from 0; several rows may be of one row of the file


@dataclasses.dataclass(frozen=True)
class Rows:
    """Rows in the order of the file.

    Attributes:
      lazy: the rows; nothing is held but what a query of them needs.
      in_memory: whether they lie there; else in files.
    """
    lazy: pl.LazyFrame
    in_memory: bool = True

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return self.lazy.collect_schema().names()

    def collect(self) -> pl.DataFrame:
        """All rows in memory."""
        return self.lazy.collect(engine="streaming")

    def get(self, *expressions, **named) -> dict:
        """Name -> value, of expressions that give one value."""
        return self.lazy.select(*expressions, **named).collect(engine="streaming").row(0, named=True)

    def count(self) -> int:
        """How many rows there are."""
        return self.get(count=pl.len())["count"]

    def then(self, step: Callable[[pl.LazyFrame], pl.LazyFrame]) -> "Rows":
        """The rows that a step makes of these; of files, whenever they are read."""
        lazy = step(self.lazy)
        return Rows(lazy.collect().lazy() if self.in_memory else lazy, self.in_memory)


def batches(lazy: pl.LazyFrame, size: int) -> Iterator[pl.DataFrame]:
    """The rows of a query in order, about `size` at a time."""
    return lazy.collect_batches(chunk_size=size, maintain_order=True, engine="streaming")


def read(lazy: pl.LazyFrame, settings: PrepareConfig) -> Rows:
    """Reads a query once, and numbers its rows by `POSITION`.

    Args:
      lazy: of a log.
      settings: --clicks_in_memory, and the scratch folder; without one all is held in memory.

    Raises:
      DiskFullError, UserError: the scratch folder cannot be written.
    """
    size, held, files, count, folder = settings.clicks_in_memory, [], [], 0, ""
    for frame in batches(lazy, min(size, 1_000_000)):
        held.append(frame.with_columns(pl.int_range(count, count + len(frame), dtype=pl.Int64).alias(POSITION)))
        count += len(frame)
        if settings.scratch_dir and sum(map(len, held)) > size:
            folder = folder or scratch.new_folder(settings.scratch_dir, "rows-")
            files.append(_written(held, os.path.join(folder, f"{len(files):05d}.parquet"), settings))
            held = []
    if not files:
        rows = pl.concat(held) if held else lazy.head(0).collect().with_columns(pl.lit(0, pl.Int64).alias(POSITION))
        return Rows(rows.lazy())
    if held:
        files.append(_written(held, os.path.join(folder, f"{len(files):05d}.parquet"), settings))
    return Rows(pl.scan_parquet(files, glob=False), in_memory=False)


def _written(held: list[pl.DataFrame], path: str, settings: PrepareConfig) -> str:
    with scratch.write_errors(settings.scratch_dir):
        pl.concat(held).write_parquet(path, compression="lz4", row_group_size=500_000)
    return path


def first_seen(lazy: pl.LazyFrame, column: str, settings: PrepareConfig) -> pl.DataFrame:
    """Distinct values of a column in the order in which they first appear, null among them.

    Polars' own streaming aggregation holds the rows of rare values until the end; this one holds the values.

    Args:
      lazy: the rows in order.
      column: of them.
      settings: --clicks_in_memory.

    Returns:
      The columns `column`; all others of the first row that has the value; `clicks`: how many rows have it.
    """
    known, new = None, []
    for frame in batches(lazy.with_columns(clicks=pl.lit(1, pl.Int64)), settings.clicks_in_memory):
        new.append(_distinct(frame, column))
        if known is None or sum(map(len, new)) > len(known):
            known, new = _distinct(pl.concat([*([] if known is None else [known]), *new]), column), []
    return _distinct(pl.concat([known, *new]), column)


def _distinct(frame: pl.DataFrame, column: str) -> pl.DataFrame:
    """Rows in order with one row for each value: its first, and the sum of `clicks`."""
    return frame.group_by(column, maintain_order=True).agg(pl.exclude(column, "clicks").first(), pl.col("clicks").sum())
