"""Click logs of several forms -> one frame of canonical columns.

Each format says only where its columns stand (`formats`); checks, time stamps and bad rows are the same for all.
"""
import dataclasses
import itertools
import os
from typing import Callable, Optional

from absl import logging
import polars as pl

from clrec_tf.data import ids
from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.preparation import bad_rows
from clrec_tf.preparation import dwell
from clrec_tf.preparation.formats import FORMATS
from clrec_tf.preparation.item_features import ItemTable
from clrec_tf.preparation.log_source import Source
from clrec_tf.preparation import rows as rows_lib
from clrec_tf.preparation.rows import Rows
from clrec_tf.settings.data import PrepareConfig
from clrec_tf.system.finite import EXACT
from clrec_tf.tabular_files import file_sets
from clrec_tf.tabular_files import frames
from clrec_tf.tabular_files.frames import ROW
from clrec_tf.tabular_files.table_parts import EXTRA
from clrec_tf.tabular_files.tally import Tally
from clrec_tf.tabular_files import time_units
from clrec_tf.tabular_files import times
from clrec_tf.tabular_files import values


@dataclasses.dataclass(frozen=True)
class Log:
    """A log that was read.

    Attributes:
      clicks: user and item (original ids, strings), timestamp and dwell (int64 seconds, if any), order (float64, if
        any), event, title, f:<feature>, c:<context column> and `POSITION`, in the order of the file.
      features: name -> whether it has several values, of the features in `clicks`.
      columns: of the file, that could be features.
      items: the format's own item file.
      rows: rows read, the bad ones too.
      bad_rows: rows left out.
      bad_examples: a few of them, with line and reason.
      lines: of the files below their headers, empty ones too; None of Parquet.
      text_ids: why integers among the item ids are text, with an example; "" where all are integers, or none.
    """
    clicks: Rows
    features: dict[str, bool]
    columns: tuple[str, ...]
    items: Optional[ItemTable]
    rows: int
    bad_rows: int
    bad_examples: tuple[str, ...]
    lines: Optional[int] = None
    text_ids: str = ""


def open_log(settings: PrepareConfig) -> Source:
    """Finds the columns of --input, without reading its rows.

    Raises:
      UserError: --input or a column named by a flag is missing.
      DataError: the file, or the item file beside it, is damaged.
    """
    if not settings.input:
        raise UserError("--input is not set: give the click log")
    if not os.path.isdir(settings.input):
        file_sets.find(settings.input, "input")
    if settings.dwell_column and settings.format not in ("columns", "recbole", "lists"):
        raise UserError(f"--dwell_column={settings.dwell_column}: --format={settings.format} has no dwell times; "
                        "leave it out, or use --format=columns")
    for flag in ("user_column", "item_column"):
        if not getattr(settings, flag):
            raise UserError(f"--{flag} is empty: name the column")
    flags = ("user_column", "item_column", "timestamp_column")
    for one, other in itertools.combinations([flag for flag in flags if getattr(settings, flag)], 2):
        if getattr(settings, one) == getattr(settings, other):
            raise UserError(f"--{one} and --{other} both name {getattr(settings, one)!r}: give each its own column")
    source = FORMATS[settings.format](settings)
    if settings.timestamp_column:
        return source
    return dataclasses.replace(source, clicks=source.clicks.drop("timestamp", strict=False))


def read_log(source: Source, settings: PrepareConfig) -> Log:
    """Reads and checks every row.

    Raises:
      DataError: the file is damaged, empty, swallows rows, or has more than --max_bad_rows bad rows.
    """
    table, path = source.table, source.table.path
    clock = times.clock_of(settings)
    with frames.readable(path):
        texts = cleaned(source, settings)
        clicks, of_a_unit = typed(texts, settings, path, texts)
        raw = rows_lib.read(clicks, settings)
        table.check_records()
    check_not_empty(raw.count(), path)
    steps = [*_whole_ids(raw, settings, path), *(_seconds(raw, settings, path, clock) if of_a_unit else ())]
    judged = raw.then(lambda lazy: lazy.with_columns(steps).with_columns(
        reason=bad_rows.reason(raw.columns, settings, clock, source.header)).drop(EXTRA, strict=False))
    found, span, examples = _judgement(judged, table, settings)
    good = judged.then(lambda lazy: (lazy.filter(pl.col("reason") == 0) if found.count("bad") else lazy).drop("reason"))
    text_ids = ""
    if settings.id_type != "string":
        items = rows_lib.first_seen(good.lazy.select("item", ROW), "item", settings)
        text_ids = text_ids_of(items, path, table.where)
    if "timestamp" in good.columns:
        times.check_plausible(span, path)
    return Log(good.then(lambda lazy: lazy.drop(ROW)), source.features, source.columns, source.items,
               found.count("rows"), found.count("bad"), examples, table.lines, text_ids)


def check_not_empty(rows: int, path: str) -> None:
    """`DataError` where a log has no row."""
    if not rows:
        raise DataError(f"{path} holds no rows: --input must be a log with at least one click")


def _whole_ids(raw: Rows, settings: PrepareConfig, path: str) -> list[pl.Expr]:
    """Ids that are whole numbers with a fraction, without it."""
    steps = []
    for name in ("user", "item"):
        if raw.get(any=values.may_be_floats(pl.col(name)).any())["any"]:
            distinct = rows_lib.first_seen(raw.lazy.select(name), name, settings)[name]
            if values.are_whole(distinct, name, path):
                steps.append(pl.col(name).map_batches(values.without_fractions, return_dtype=pl.String,
                                                      is_elementwise=True))
    return steps


def _seconds(raw: Rows, settings: PrepareConfig, path: str, clock: time_units.Clock) -> list[pl.Expr]:
    """Numeric time stamps as seconds."""
    tallied = sum((time_units.tally(frame["timestamp"], clock)
                   for frame in rows_lib.batches(raw.lazy.select("timestamp"), settings.clicks_in_memory)), Tally())
    unit = time_units.settled(tallied, settings.timestamp_unit, path, clock)
    return [pl.col("timestamp").map_batches(lambda numbers: time_units.convert(numbers, unit, clock.offset),
                                            return_dtype=pl.Int64, is_elementwise=True)]


def _judgement(judged: Rows, table: frames.Table, settings: PrepareConfig) -> tuple[Tally, Tally, tuple[str, ...]]:
    """`bad_rows.counts`, `times.span` of the good rows, and the first bad ones as text; refuses too many."""
    found, span, first = Tally(), Tally(), []
    wanted = [name for name in (ROW, "reason", "timestamp") if name in judged.columns]
    for frame in rows_lib.batches(judged.lazy.select(wanted), settings.clicks_in_memory):
        found += bad_rows.counts(frame)
        bad = pl.col("reason") > 0
        first = [pl.concat([*first, frame.filter(bad).select(ROW, "reason")]).head(bad_rows.EXAMPLES)]
        span += times.span(frame.filter(~bad)["timestamp"]) if "timestamp" in wanted else Tally()
    examples = bad_rows.shown(table, first[0])
    bad_rows.check(found, examples, table.path, settings)
    return found, span, examples


def cleaned(source: Source, settings: PrepareConfig) -> pl.LazyFrame:
    """Canonical columns, those of text without white space and words for what is missing.

    Raises:
      UserError: a column holds lists or records; DataError: ids are floats that have lost digits.
    """
    clicks = source.clicks
    schema, nulls = clicks.collect_schema(), settings.null_values
    names, path = schema.names(), source.table.path
    for name in names:
        if isinstance(schema[name], pl.Struct) or schema[name].is_nested() and not name.startswith(("f:", "c:")):
            kind = "records" if isinstance(schema[name], pl.Struct) else "lists"
            raise UserError(f"{path}: what is to be the {name} holds {kind} ({schema[name]}): name a column of single "
                            "values")
        if name in ("user", "item"):
            values.check_exact(clicks.select(name), name, path)
        if name == "timestamp" and schema[name] in (pl.Float16, pl.Float32):
            values.check_exact(clicks.select(name), name, path, "times")
    texts = [name for name in names if name in ("user", "item", "event", "title")
             or schema[name] == pl.String and name not in (ROW, EXTRA)]
    return clicks.with_columns(values.text(pl.col(name), schema[name], nulls).alias(name) for name in texts)


def typed(clicks: pl.LazyFrame, settings: PrepareConfig, path: str, first: pl.LazyFrame
          ) -> tuple[pl.LazyFrame, bool]:
    """`cleaned` columns with their types; and whether time stamps are numbers of a unit.

    Args:
      clicks: of the log, or of a part of it.
      settings: of the command.
      path: for messages.
      first: the log, or its first time stamps, by which their form is told.
    """
    names, of_a_unit = clicks.collect_schema().names(), False
    if "timestamp" in names:
        seconds, of_a_unit = times.to_seconds(first, settings, path)
        clicks = clicks.with_columns(seconds.alias("timestamp"))
    if "dwell" in names:
        clicks = clicks.with_columns(dwell.to_seconds(clicks))
    if "order" in names:
        order = pl.col("order").cast(pl.Float64, strict=False).fill_nan(None)
        told_apart = order.abs() < EXACT
        clicks = clicks.with_columns(pl.when(told_apart).then(order).alias("order"))
    if EXTRA in names:
        clicks = clicks.with_columns(pl.col(EXTRA).is_not_null())
    return clicks, of_a_unit


def text_ids_of(clicks: pl.DataFrame, path: str, where: Callable[[int], str]) -> str:
    """Says which ids make a catalogue's ids text where others are integers, unless --id_type has said so.

    Args:
      clicks: `ROW` and item of the first click of each item, in order.
      path: of the log.
      where: how a person finds a row.
    """
    odd = ~clicks.select(ids.is_integer(pl.col("item")))["item"]
    if not odd.any():
        return ""
    if odd.all():
        if clicks["item"].str.contains(r"^-?[0-9]+$").all():
            logging.info("%s: item ids such as %s are kept as text: integers are those from 0 to 10^18 - 1, without "
                         "zeros in front", path, clicks["item"][0])
        return ""
    texts = clicks.filter(odd)
    text = (f"{len(texts)} of {len(clicks)} item ids are no integers from 0 to 10^18 - 1, the first {texts['item'][0]!r} "
            f"({where(texts[ROW][0])})")
    if len(texts) * 2 <= len(clicks):
        logging.warning("%s: all ids are text, since %s; if such rows are mistakes, --id_type=int counts them as bad "
                        "rows", path, text)
    return text
