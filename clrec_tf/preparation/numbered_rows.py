"""A log's rows by numbers of users and items, in the order in which these first appear."""
import dataclasses
from typing import Optional, Sequence

import numpy as np
import polars as pl

from clrec_tf.preparation import click_parts
from clrec_tf.preparation.context_entries import Entries
from clrec_tf.preparation import numbered_log
from clrec_tf.preparation import rows as rows_lib
from clrec_tf.preparation.rows import POSITION
from clrec_tf.preparation.rows import Rows
from clrec_tf.settings.data import PrepareConfig
from clrec_tf.tabular_files.value_counts import ValueCounts


@dataclasses.dataclass(frozen=True)
class NumberedRows:
    """A log by numbers.

    Attributes:
      parts: its clicks, see `click_parts.by_users`: user, item, timestamp, order, dwell, kind, where there are such,
        `POSITION`, and the entry of each context column.
      by: those of timestamp and order that there are.
      users: original ids by number.
      items: by number: item (the original id), title and f:<feature> as first seen in time.
      clicks_of_users, clicks_of_items: [users] and [items] of each.
      seconds, at_second: distinct time stamps [S], ascending, and the clicks of each; None without time stamps.
    """
    parts: list
    by: list[str]
    users: pl.Series
    items: pl.DataFrame
    clicks_of_users: np.ndarray
    clicks_of_items: np.ndarray
    seconds: Optional[np.ndarray]
    at_second: Optional[np.ndarray]


def number(rows: Rows, features: dict[str, bool], context: Sequence[Entries], settings: PrepareConfig) -> NumberedRows:
    """Numbers users and items by first appearance.

    Args:
      rows: user, item, optional timestamp, order, dwell, kind, title, f:<feature> and c:<column>.
      features: name -> whether it has several values.
      context: entries of the context columns.
      settings: the separator inside several-valued features, words for what is missing, and the memory.
    """
    users, items = (rows_lib.first_seen(rows.lazy.select(name), name, settings) for name in ("user", "item"))
    by = [name for name in ("timestamp", "order") if name in rows.columns]
    with_items = rows.then(lambda lazy: _numbered(lazy, "item", items["item"]))
    described = _described(items["item"], with_items, by, features, settings)
    coded = _numbered(with_items.lazy, "user", users["user"])
    for place, entries in enumerate(context):
        coded = entries.numbered(coded, f"{click_parts.ENTRY}{place}")
    stayed = [name for name in ("dwell", "kind") if name in rows.columns]
    coded = coded.select("user", "item", *by, *stayed, POSITION,
                         *(f"{click_parts.ENTRY}{place}" for place in range(len(context))))
    counts = users["clicks"].to_numpy()
    parts = click_parts.by_users(coded, counts, rows.in_memory, settings)
    return NumberedRows(parts, by, users["user"], described, counts, items["clicks"].to_numpy(),
                        *_seconds(rows, settings))


def _seconds(rows: Rows, settings: PrepareConfig) -> tuple[Optional[np.ndarray], Optional[np.ndarray]]:
    if "timestamp" not in rows.columns:
        return None, None
    counts = ValueCounts()
    for frame in rows_lib.batches(rows.lazy.select("timestamp"), settings.clicks_in_memory):
        counts.add(frame["timestamp"].to_numpy())
    return counts.totals()


def _numbered(lazy: pl.LazyFrame, column: str, ids: pl.Series) -> pl.LazyFrame:
    """A column of ids as their numbers."""
    numbers = pl.DataFrame({column: ids, "number": np.arange(len(ids), dtype=np.int32)}).lazy()
    return lazy.join(numbers, on=column, how="left", maintain_order="left").drop(column).rename({"number": column})


def _described(ids: pl.Series, rows: Rows, by: Sequence[str], features: dict[str, bool], settings: PrepareConfig
               ) -> pl.DataFrame:
    """Items by number, with what the rows say of them first in time."""
    columns = [name for name in rows.columns if name == "title" or name.startswith("f:")]
    frames = rows_lib.batches(rows.lazy.select("item", *by, *columns), settings.clicks_in_memory) if columns else ()
    return numbered_log.described(frames, ids, features, settings)
