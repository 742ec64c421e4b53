"""Where the columns of a log stand: what each format says about its files."""
import dataclasses
import os
from typing import Optional, Sequence

import polars as pl

from clrec_tf.errors import UserError
from clrec_tf.preparation.item_features import ItemTable
from clrec_tf.settings.data import PrepareConfig
from clrec_tf.tabular_files import delimiters
from clrec_tf.tabular_files import frames
from clrec_tf.tabular_files.frames import ROW
from clrec_tf.tabular_files.frames import Table
from clrec_tf.tabular_files import headers
from clrec_tf.tabular_files.table_parts import EXTRA


@dataclasses.dataclass(frozen=True)
class Source:
    """Where a format keeps its things.

    Attributes:
      table: the log's file or files.
      clicks: lazy frame of `ROW`, user, item and, where the format has them, timestamp, order, dwell, event, title,
        f:<feature>, c:<context column>.
      features: name -> whether it has several values, of the features in `clicks`.
      columns: of the file, that could be features.
      items: the format's own item file.
      header: user, item of a header line, which may stand again further down.
    """
    table: Table
    clicks: pl.LazyFrame
    features: dict[str, bool] = dataclasses.field(default_factory=dict)
    columns: tuple[str, ...] = ()
    items: Optional[ItemTable] = None
    header: tuple[str, ...] = ()

    @property
    def files(self) -> dict[str, str]:
        """The log and the format's own item file, as `file_sets` names them."""
        return dict(input=self.table.path, **(dict(items=self.items.path) if self.items else {}))


def select(table: Table, **columns: str) -> pl.LazyFrame:
    """Canonical columns by the table's names; lines without any field are no rows."""
    surplus = [EXTRA] if EXTRA in table.rows.collect_schema().names() else []
    return table.without_blank_lines().select(
        ROW, *(pl.col(name).alias(canonical) for canonical, name in columns.items()), *surplus)


def whole_lines(path: str, settings: PrepareConfig, skip_header: bool = False) -> Table:
    """A table of one column, `line`."""
    # A separator that no text has keeps each line whole.
    return frames.open_table(path, ("line",), "\x01", quoted=False, skip_header=skip_header,
                             reading=frames.reading_of(settings))


def open_fixed(path: str, columns: Sequence[str], delimiter: str, settings: PrepareConfig,
               quoted: Optional[bool] = None) -> Table:
    """A table whose columns a format fixes; a header line is recognised.

    Raises:
      UserError: the first line has another number of fields.
    """
    lines = headers.peek(path, settings.encoding)
    rows = [line.split(delimiter) for line in lines]
    header = headers.stands_above(rows)
    if rows and len(rows[0]) != len(columns):
        raise UserError(f"{path}: its first line, {lines[0][:100]!r}, has {len(rows[0])} fields cut at "
                        f"{delimiter!r}, and --format={settings.format} has {len(columns)} ({', '.join(columns)}): "
                        f"{as_columns(lines[0])}")
    if header:
        headers.noted(path, lines[0])
    return frames.open_table(path, columns, delimiter, quoted, header, frames.reading_of(settings))


def as_columns(line: str) -> str:
    """How a file with this first line is read as --format=columns."""
    mark = max(("::", "\t", ",", ";", "|"), key=line.count)
    fields = [field.strip() for field in line.split(mark)]
    delimiter = "" if mark in "\t,;" else f" --delimiter='{mark}'"
    if any(map(headers.is_number, fields)):
        known = {2: "user,item", 3: "user,item,time", 4: "user,item,rating,time"}
        names = known.get(len(fields)) or ",".join(["user", "item", *(f"c{n}" for n in range(3, len(fields))), "time"])
        return (f"read it with --format=columns{delimiter} --columns={names} (its columns' names from left to right) "
                f"--user_column=user --item_column=item --timestamp_column={'time' if 'time' in names else ''}")
    guess = [next((name for name in fields if pattern.fullmatch(name)), "…") for pattern in headers.COLUMNS]
    return (f"read it with --format=columns{delimiter} --user_column={guess[0]} --item_column={guess[1]} "
            f"--timestamp_column={guess[2]}")


def find_file(settings: PrepareConfig, endings: tuple[str, ...], others: tuple[str, ...] = ()) -> str:
    """The log itself, where --input may be its folder.

    Args:
      settings: of the command.
      endings: of the names of logs of the format.
      others: names of files that are read as --format=columns.

    Raises:
      UserError: the folder has none or several.
    """
    if not os.path.isdir(settings.input):
        return settings.input
    names = sorted(os.listdir(settings.input))
    for ending in endings:
        logs = [name for name in names if name.endswith(ending) and not name.startswith("meta_")]
        if len(logs) == 1:
            return os.path.join(settings.input, logs[0])
    instead = next((os.path.join(settings.input, name) for name in names if name in others), None)
    hint = f"give --input={instead}, and {as_columns(frames.first_line(instead))}" if instead else "name the file"
    raise UserError(f"--input={settings.input} is a folder without exactly one of {', '.join(endings)}: {hint}")


def require_columns(table: Table, wanted: dict[str, str], settings: PrepareConfig):
    """`UserError` where a column named by a flag is not in the file.

    Args:
      table: the file.
      wanted: flag -> column.
      settings: of the command.
    """
    for flag, name in wanted.items():
        if name in table.columns:
            continue
        only = table.columns[0] if len(table.columns) == 1 else ""
        mark = delimiters.of_names(only, name)
        if mark and mark == table.delimiter:
            raise UserError(f"{table.path} has quotes around whole lines, so that its header is one column {only!r}: "
                            "take these quotes away")
        if mark:
            raise UserError(f"{table.path} has no column {name!r}: cut at {table.delimiter!r}, its header is one "
                            f"column {only!r}; give --delimiter={delimiters.shown(mark)}"
                            + (", or where spaces fill columns up, write it with tabs" if mark[1:].isspace() else ""))
        listed = ", ".join(repr(other) if other.strip() != other or not other else other for other in table.columns)
        text = table.first_line == 2 and not settings.columns
        if text and any(map(headers.is_number, table.columns)):
            raise UserError(f"{table.path} has no column {name!r}, and its first line ({listed}) looks like a row and "
                            f"no header. {headers.remedy(len(table.columns))}")
        line = headers.further_down(table.path, name, settings.encoding) if text else 0
        if line:
            raise UserError(f"{table.path} has no column {name!r} in its first line, {listed[:100]}, but line {line} "
                            "looks like its header: delete the lines above that")
        optional = dict(timestamp_column=", or --timestamp_column= if the file is in time order",
                        title_column=", or --title_column=").get(flag, "")
        quoted = "; they stand in quotes: give --quote=double" if text and f'"{name}"' in table.columns else ""
        alone = f". {headers.remedy(len(table.columns))}" if text and not quoted and flag == "user_column" else ""
        raise UserError(f"{table.path} has no column {name!r}: give --{flag} as one of "
                        f"{listed}{optional}{quoted}{alone}")


def refuse_names(settings: PrepareConfig, **columns: str):
    """`UserError` where a flag names a column, and the format takes another one or has none.

    Those of an impression log are named by the same flags, so that nothing can be said with --impressions.

    Args:
      settings: of the command.
      columns: "user", "item" and so on -> the format's own column, or several separated by spaces.
    """
    for key in ("user", "item", "timestamp", "event", "order"):
        flag, own = f"{key}_column", columns.get(key, "")
        name = getattr(settings, flag)
        if name and name != getattr(PrepareConfig, flag) and name not in own.split() and not settings.impressions:
            has = f"takes the column {own}" if own else "has no such column"
            raise UserError(f"--{flag}={name}: --format={settings.format} {has}; leave the flag out, or use "
                            "--format=columns")
