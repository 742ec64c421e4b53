"""Click logs of several forms -> one frame of canonical columns.

Each format says only where its columns stand (`Source`); checks, time stamps and bad rows are the same for all.
"""
import dataclasses
import os
from typing import Optional

from absl import logging
import polars as pl

from clrec_tf.config import PrepareConfig
from clrec_tf.data import amazon
from clrec_tf.data import bad_rows
from clrec_tf.data import dwell
from clrec_tf.data import item_features
from clrec_tf.data import tables
from clrec_tf.data import times
from clrec_tf.data.item_features import ItemTable
from clrec_tf.data.tables import EXTRA
from clrec_tf.data.tables import ROW
from clrec_tf.data.tables import Table
from clrec_tf.errors import DataError
from clrec_tf.errors import UserError


@dataclasses.dataclass(frozen=True)
class Source:
    """Where a format keeps its things.

    Attributes:
      table: the log's file.
      clicks: lazy frame of `ROW`, user, item and, where the format has them, timestamp, dwell, event, title,
        f:<feature>.
      features: name -> whether it has several values, of the features in `clicks`.
      columns: of the file, that could be features.
      items: the format's own item file.
    """
    table: Table
    clicks: pl.LazyFrame
    features: dict[str, bool] = dataclasses.field(default_factory=dict)
    columns: tuple[str, ...] = ()
    items: Optional[ItemTable] = None

    @property
    def files(self) -> dict[str, str]:
        """Paths of the log and of the format's own item file."""
        return dict(input=self.table.path, **(dict(items=self.items.path) if self.items else {}))


@dataclasses.dataclass(frozen=True)
class Log:
    """A log that was read.

    Attributes:
      clicks: user and item (original ids, strings), timestamp and dwell (int64 seconds, if any), event, title,
        f:<feature>, in the order of the file.
      features: name -> whether it has several values, of the features in `clicks`.
      columns: of the file, that could be features.
      items: the format's own item file.
      rows: rows read, the bad ones too.
      bad_rows: rows left out.
      bad_examples: a few of them, with line and reason.
    """
    clicks: pl.DataFrame
    features: dict[str, bool]
    columns: tuple[str, ...]
    items: Optional[ItemTable]
    rows: int
    bad_rows: int
    bad_examples: tuple[str, ...]


def open_log(settings: PrepareConfig) -> Source:
    """Finds the columns of --input, without reading its rows.

    Raises:
      UserError: --input or a column named by a flag is missing.
      DataError: the file, or the item file beside it, is damaged.
    """
    if not settings.input:
        raise UserError("--input is not set: give the click log")
    if not os.path.exists(settings.input):
        raise UserError(f"--input={settings.input} does not exist: give the path of the click log")
    if settings.dwell_column and settings.format not in ("columns", "recbole"):
        raise UserError(f"--dwell_column={settings.dwell_column}: --format={settings.format} has no dwell times; "
                        "leave it out, or use --format=columns")
    return FORMATS[settings.format](settings)


def read_log(source: Source, settings: PrepareConfig) -> Log:
    """Reads and checks every row.

    Raises:
      DataError: the file is damaged, empty, or has more than --max_bad_rows bad rows.
    """
    path, clicks = source.table.path, source.clicks
    names = clicks.collect_schema().names()
    with tables.readable(path):
        if "timestamp" in names:
            clicks = clicks.with_columns(times.to_seconds(clicks, settings.timestamp_unit, settings.utc_offset))
        if "dwell" in names:
            clicks = clicks.with_columns(dwell.to_seconds(clicks))
        clicks = clicks.with_columns(pl.col("user", "item").cast(pl.String), bad_rows.reason(names).alias("reason"))
        frame = clicks.drop(EXTRA, strict=False).collect(engine="streaming")
    if frame.is_empty():
        raise DataError(f"{path} holds no rows: --input must be a log with at least one click")
    good, examples = bad_rows.leave_out(frame, source.table, settings)
    if "timestamp" in names:
        times.check_plausible(good["timestamp"], path)
    return Log(good, source.features, source.columns, source.items, len(frame), len(frame) - len(good), examples)


def _select(table: Table, **columns: str) -> pl.LazyFrame:
    """Canonical columns by the table's names; lines without any field are no rows."""
    surplus = [EXTRA] if EXTRA in table.rows.collect_schema().names() else []
    fields = [pl.col(name) for name in table.columns]
    return table.rows.filter(~pl.all_horizontal(field.is_null() for field in fields)).select(
        ROW, *(pl.col(name).alias(canonical) for canonical, name in columns.items()), *surplus)


def _taobao(settings: PrepareConfig) -> Source:
    table = tables.open_table(settings.input, ("user", "item", "category", "behavior", "timestamp"),
                              settings.delimiter or ",")
    columns = {"user": "user", "item": "item", "timestamp": "timestamp", "event": "behavior", "f:category": "category"}
    return Source(table, _select(table, **columns), {"category": False}, ("category",))


def _movielens(settings: PrepareConfig) -> Source:
    path = _find(settings, ("ratings.dat", "u.data", "ratings.dat.gz", "u.data.gz"))
    folder = os.path.dirname(path)
    if os.path.basename(path).startswith("u.data"):
        columns = ("user", "item", "rating", "timestamp")
        table = tables.open_table(path, columns, settings.delimiter or "\t", quoted=False)
        movies = os.path.join(folder, "u.item")
    else:
        # Split at each colon of "::", there is an empty column between two fields.
        table = tables.open_table(path, ("user", "_1", "item", "_2", "rating", "_3", "timestamp"), ":", quoted=False)
        movies = os.path.join(folder, "movies.dat")
    items = item_features.movielens_items(movies) if os.path.exists(movies) else None
    if items is None:
        logging.info("%s does not exist: movies have no titles and no genres", movies)
    return Source(table, _select(table, user="user", item="item", timestamp="timestamp"), items=items)


def _amazon(settings: PrepareConfig) -> Source:
    return Source(**amazon.open_files(_find(settings, ("_5.json", "_5.json.gz")), settings))


def _sequence(settings: PrepareConfig) -> Source:
    table = tables.open_table(settings.input, ("user", "item"), _blank(settings), quoted=False)
    return Source(table, _select(table, user="user", item="item"))


def _sequence_per_user(settings: PrepareConfig) -> Source:
    # A separator that no text has keeps each line whole.
    table = tables.open_table(settings.input, ("line",), "\x01", quoted=False)
    ids = pl.col("line").str.strip_chars().str.split(_blank(settings))
    clicks = _select(table, line="line").select(ROW, EXTRA, user=ids.list.first(), item=ids.list.slice(1))
    return Source(table, clicks.explode("item"))


def _blank(settings: PrepareConfig) -> str:
    """The delimiter of sequence files: as given, else tab, comma or space, whichever the first line has."""
    line = tables.first_line(settings.input)
    return settings.delimiter or next((mark for mark in ("\t", ",") if mark in line), " ")


def _recbole(settings: PrepareConfig) -> Source:
    path = _find(settings, (".inter", ".inter.gz"))
    table = item_features.open_recbole(path)
    wanted = {"user": settings.user_column, "item": settings.item_column, "timestamp": settings.timestamp_column}
    if settings.timestamp_column not in table.columns:
        logging.info("%s has no column %r: taken as being in time order", path, settings.timestamp_column)
        del wanted["timestamp"]
    wanted |= _optional(settings, "event", "dwell")
    _require_columns(table, {f"{key}_column": name for key, name in wanted.items()})
    items_path = path.replace(".inter", ".item")
    items = item_features.recbole_items(items_path, settings) if os.path.exists(items_path) else None
    return Source(table, _select(table, **wanted), items=items)


def _columns(settings: PrepareConfig) -> Source:
    table = tables.open_table(settings.input, None, settings.delimiter)
    wanted = {"user": settings.user_column, "item": settings.item_column}
    wanted |= _optional(settings, "timestamp", "event", "dwell")
    _require_columns(table, {f"{key}_column": name for key, name in wanted.items()})
    wanted |= {"title": settings.title_column} if settings.title_column in table.columns else {}
    others = tuple(name for name in table.columns if name not in wanted.values())
    features = {name: several for name, several in item_features.declared(settings).items() if name in table.columns}
    wanted |= {f"f:{name}": name for name in features}
    return Source(table, _select(table, **wanted), features, others)


def _optional(settings: PrepareConfig, *keys: str) -> dict[str, str]:
    """Key -> the file's column, of those whose flag is set."""
    return {key: getattr(settings, f"{key}_column") for key in keys if getattr(settings, f"{key}_column")}


def _require_columns(table: Table, wanted: dict[str, str]):
    for flag, name in wanted.items():
        if name not in table.columns:
            only = table.columns[0] if len(table.columns) == 1 else ""
            mark = next((mark for mark in tables.DELIMITERS if mark in only), None)
            if mark:
                value = "$'\\t' (tab)" if mark == "\t" else f"'{mark}'"
                raise UserError(f"{table.path} has no column {name!r}: cut at {table.delimiter!r}, its header is one "
                                f"column {only!r}; give --delimiter={value}")
            remedy = ", or --timestamp_column= if the file is in time order" if flag == "timestamp_column" else ""
            raise UserError(f"{table.path} has no column {name!r}: give --{flag} as one of "
                            f"{', '.join(table.columns)}{remedy}")


def _find(settings: PrepareConfig, endings: tuple[str, ...]) -> str:
    """The log itself, where --input may be its folder."""
    if os.path.isfile(settings.input):
        return settings.input
    names = sorted(os.listdir(settings.input))
    for ending in endings:
        found = [name for name in names if name.endswith(ending)]
        if len(found) == 1:
            return os.path.join(settings.input, found[0])
    raise UserError(f"--input={settings.input} is a folder without exactly one of {', '.join(endings)}: name the file")


FORMATS = dict(taobao=_taobao, movielens=_movielens, amazon=_amazon, sequence=_sequence,
               sequence_per_user=_sequence_per_user, recbole=_recbole, columns=_columns)
