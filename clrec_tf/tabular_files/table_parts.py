"""One file as a lazy frame: delimited text, JSON lines, Parquet or Arrow, told apart by its content."""
import collections
import csv
import dataclasses
import os
from typing import Optional, Sequence

import polars as pl

from clrec_tf.errors import DataError
from clrec_tf.tabular_files import contents
from clrec_tf.tabular_files.contents import Content
from clrec_tf.tabular_files.contents import readable
from clrec_tf.tabular_files import delimiters
from clrec_tf.tabular_files import headers
from clrec_tf.tabular_files import json_tables
from clrec_tf.tabular_files.json_tables import LINE
from clrec_tf.tabular_files import quotes
from clrec_tf.tabular_files.room import Room
from clrec_tf.tabular_files import texts
from clrec_tf.tabular_files.texts import Text
from clrec_tf.tabular_files import values

EXTRA = "__extra__"  # what a line holds beyond its columns


@dataclasses.dataclass(frozen=True)
class Reading:
    """How text is to be read.

    Attributes:
      encoding: --encoding.
      quote: --quote: "auto", "double" or "none".
      nulls: --null_values, words for what is missing; the empty text always is.
      beside: whether it is a file beside the log: --delimiter is not meant for it, so that likely ones are tried, and
        --encoding only if it is not UTF-8.
      room: for text that has to be unpacked or written anew.
    """
    encoding: str = ""
    quote: str = "auto"
    nulls: tuple[str, ...] = ()
    beside: bool = False
    room: Room = Room()


@dataclasses.dataclass(frozen=True)
class TablePart:
    """One file of a table: its rows without `ROW`, columns, and how rows and lines go together (`Table`).

    Attributes:
      first_line: line number of its row 0; 0 of Parquet.
      lines: below the header; None of Parquet.
      records: rows that there must be; None where no quote could swallow one.
      breaks: (line from 0, further lines) of each record of several lines.
    """
    path: str
    rows: pl.LazyFrame
    columns: tuple[str, ...]
    delimiter: str = ","
    first_line: int = 0
    lines: Optional[int] = None
    records: Optional[int] = None
    breaks: tuple[tuple[int, int], ...] = ()


def stem_extension(path: str) -> str:
    """The extension without dot, in lower case, looking through that of compression."""
    name = os.path.basename(path).lower()
    for ending in (".gz", ".zst", ".bz2", ".xz", ".zip"):
        name = name.removesuffix(ending)
    return os.path.splitext(name)[1].lstrip(".")


def open_part(content: Content, columns: Optional[Sequence[str]], delimiter: str, quoted: Optional[bool],
              skip_header: bool, reading: Reading) -> TablePart:
    """Opens one file. Args and errors: see `tables.open_table`."""
    if content.kind != contents.TEXT:
        return _typed(content)
    text = texts.as_text(content, reading.encoding, not reading.beside, reading.room)
    if columns is None and json_tables.is_lines(text):
        return _json(text)
    return _delimited(text, columns, delimiter, quoted, skip_header, reading)


def _typed(content: Content) -> TablePart:
    """Parquet and Arrow files."""
    with readable(content.path):
        rows = pl.scan_parquet(content.source, glob=False, hive_partitioning=False) \
            if content.kind == contents.PARQUET else pl.scan_ipc(content.source, hive_partitioning=False)
        return TablePart(content.path, rows, tuple(rows.collect_schema().names()))


def _json(text: Text) -> TablePart:
    text = json_tables.as_lines(text)
    names = json_tables.columns(text)
    rows = _scan(text.content.source, (LINE,), "\x01", False, 0).drop(EXTRA)
    return TablePart(text.path, rows.with_columns(map(json_tables.column, names)), names, ",", 1, text.lines)


def _scan(source, columns: Sequence[str], delimiter: str, quoted: bool, skip: int) -> pl.LazyFrame:
    """Delimited text; a surplus column catches what a line has too much, lines with too few fields get nulls."""
    schema = {name: pl.String for name in (*columns, EXTRA)}
    if isinstance(source, bytes) and source.count(b"\n") < skip + 1 and not source.split(b"\n")[skip:]:
        return pl.LazyFrame(schema=schema)
    return pl.scan_csv(source, has_header=False, skip_lines=skip, separator=delimiter,
                       quote_char='"' if quoted else None, schema=schema, missing_columns="insert",
                       extra_columns="ignore", truncate_ragged_lines=True, glob=False)


def _names(header: str, mark: str, quoted: bool, path: str) -> list[str]:
    """The columns of a header line; those without a name by their number where there are several."""
    try:
        fields = next(csv.reader([header], delimiter=mark, quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE), [])
    except csv.Error as error:
        raise DataError(f"{path}, line 1 is no header ({error}): {header[:80]!r}; correct it") from error
    names = [name.strip(values.SPACE) for name in fields]
    unnamed = names.count("") > 1
    return [name or (f"column {number}" if unnamed else "") for number, name in enumerate(names, 1)]


def _delimited(text: Text, columns, delimiter: str, quoted: Optional[bool], skip_header: bool,
               reading: Reading) -> TablePart:
    header, path = text.first_line(), text.path
    if not text.lines:
        raise DataError(f"{path} is empty: it has no rows")
    if columns is None and not header.strip(values.SPACE) and any(map(str.strip, text.first_lines(100))):
        raise DataError(f"{path} begins with a blank line: delete the lines above its header")
    if columns is None and header.lower().startswith("sep="):
        raise DataError(f"{path} begins with Excel's line {header!r}: delete it, and give --delimiter={header[4:]!r}")
    if columns is None and header.lstrip().startswith("{"):
        raise DataError(f"{path} is one JSON value, and not an object a line: write it so (pandas: "
                        "to_json(orient='records', lines=True))")
    delimiter = delimiters.plain(delimiter) or delimiters.guess(header, stem_extension(path), reading.beside)
    if quoted is None:
        quoted = delimiter != "\t" and len(delimiter) == 1 if reading.quote == "auto" else reading.quote == "double"
    mark, data = delimiter, None
    if len(delimiter.encode()) > 1:
        with readable(path), text.content.view() as view:
            data, mark = delimiters.as_one_byte(view, delimiter, path, reading.room)
    if columns is None:
        skip_header = True
        columns = _names(header.replace(delimiter, mark).replace("\r", ""), mark, quoted, path)
    repeated = sorted(name for name, times in collections.Counter(columns).items() if times > 1)
    if repeated:
        hint = f". {headers.remedy(len(columns))}" if any(map(headers.is_number, columns)) else ""
        raise DataError(f"{path}: column {repeated[0]!r} stands twice in the header: rename one{hint}")
    records = quotes.Records()
    with readable(path):
        if quoted:
            with Content(path, contents.TEXT, text.content.data if data is None else data).view() as view:
                records = quotes.check(view, mark.encode(), len(columns), path, reading.quote == "double",
                                       reading.room)
            data = data if records.data is None else records.data
        source = text.content.source if data is None else data
        rows = _scan(source, columns, mark, quoted, int(skip_header))
        if quoted and mark != delimiter:  # in a quoted field the delimiter is a text like any other
            rows = rows.with_columns(pl.col(columns).str.replace_all(mark, delimiter, literal=True))
    count = None if records.count is None else records.count - int(skip_header)
    return TablePart(path, rows, tuple(columns), delimiter, 1 + int(skip_header),
                     text.lines - int(skip_header), count, records.breaks)
