"""Tables on disk as lazy frames of strings: delimited text, JSON lines, Parquet; packed, and in parts."""
import csv
import dataclasses
import os
from typing import Optional, Sequence

import polars as pl

from clrec_tf.data import contents
from clrec_tf.data import delimiters
from clrec_tf.data import file_sets
from clrec_tf.data import headers
from clrec_tf.data import json_tables
from clrec_tf.data import quotes
from clrec_tf.data import texts
from clrec_tf.data.contents import Content
from clrec_tf.data.contents import readable
from clrec_tf.data.json_tables import LINE
from clrec_tf.data.texts import Text
from clrec_tf.errors import DataError

ROW = "__row__"
EXTRA = "__extra__"  # what a line holds beyond its columns


@dataclasses.dataclass(frozen=True)
class Reading:
    """How text is to be read.

    Attributes:
      encoding: --encoding.
      quote: --quote: "auto", "double" or "none".
      nulls: --null_values, words for what is missing; the empty text always is.
      own_encoding: whether `encoding` is only for files that are not UTF-8.
    """
    encoding: str = ""
    quote: str = "auto"
    nulls: tuple[str, ...] = ()
    own_encoding: bool = False


@dataclasses.dataclass(frozen=True)
class TablePart:
    """One file of a table: its rows without `ROW`, columns, and how rows and lines go together (`Table`)."""
    path: str
    rows: pl.LazyFrame
    columns: tuple[str, ...]
    delimiter: str = ","
    first_line: int = 0
    records: Optional[int] = None
    breaks: tuple[tuple[int, int], ...] = ()


@dataclasses.dataclass(frozen=True)
class Table:
    """A table that has not been read yet.

    Attributes:
      path: as it was given.
      rows: lazy frame of `ROW` (position from 0), the columns (strings; Parquet keeps its types) and, of text, `EXTRA`
        or, of JSON, `LINE`.
      columns: names of the columns.
      parts: the files.
      partition: those of the columns that are names of folders.
    """
    path: str
    rows: pl.LazyFrame
    columns: tuple[str, ...]
    parts: tuple[TablePart, ...]
    partition: tuple[str, ...] = ()

    @property
    def delimiter(self) -> str:
        """Of text; "," where bad rows of another form are shown."""
        return self.parts[0].delimiter

    @property
    def first_line(self) -> int:
        """Line number of row 0; 0 for Parquet, whose rows have no lines."""
        return self.parts[0].first_line

    @property
    def records(self) -> Optional[int]:
        """Rows that there must be, empty lines too; None where no quote could swallow one."""
        counts = [part.records for part in self.parts]
        return None if None in counts or len(counts) > 1 else counts[0]

    def without_blank_lines(self) -> pl.LazyFrame:
        """The rows that have any field."""
        fields = [pl.col(name) for name in self.columns if name not in self.partition]
        return self.rows.filter(~pl.all_horizontal(field.is_null() for field in fields))

    def where(self, row: int) -> str:
        """How a person finds a row."""
        for part in self.parts[:-1]:
            with readable(part.path):
                rows = part.rows.select(pl.len()).collect().item()
            if row < rows:
                return _place(part, row, True)
            row -= rows
        return _place(self.parts[-1], row, len(self.parts) > 1)


def _place(part: TablePart, row: int, named: bool) -> str:
    line = row + part.first_line
    for start, more in part.breaks:
        line += more if start + 1 < line else 0
    return (f"{part.path}, " if named else "") + (f"line {line}" if part.first_line else f"row {row}")


def open_text(path: str, encoding: str = ""):
    """Opens plain or packed text for reading by lines."""
    return texts.open_stream(path, encoding, always=False)


def first_line(path: str) -> str:
    """The first line without its line end; "" for an empty file."""
    return next(iter(texts.peek(path)), "")


def stem_extension(path: str) -> str:
    """The extension without dot, in lower case, looking through that of compression."""
    name = os.path.basename(path).lower()
    for ending in (".gz", ".zst", ".bz2", ".xz", ".zip"):
        name = name.removesuffix(ending)
    return os.path.splitext(name)[1].lstrip(".")


def open_table(path: str, columns: Optional[Sequence[str]] = None, delimiter: str = "", quoted: Optional[bool] = None,
               skip_header: bool = False, reading: Reading = Reading()) -> Table:
    """Opens a table of text, JSON lines or Parquet, told apart by their content.

    Args:
      path: file, or a set of `file_sets`, whose parts have the same columns.
      columns: names, where the file's own header is not to be used; None reads the header.
      delimiter: "" chooses tab for .tsv, else whichever of tab, semicolon and comma the header has.
      quoted: whether fields may stand in double quotes; by default as `reading` says, "auto" being unless tabs or
        several characters separate them.
      skip_header: with `columns`: whether a header line stands above the rows.
      reading: of text.

    Raises:
      UserError: no such file; DataError: a file is damaged, swallows rows, or has a column name twice.
    """
    parts, partition = [], ()
    files = file_sets.find(path)
    for file in files:
        content = contents.open_content(file.path)
        if len(files) > 1 and content.is_empty():  # as Spark writes of an empty partition
            continue
        if content.kind != contents.TEXT:
            part = _typed(content)
        else:
            text = texts.as_text(content, reading.encoding, not reading.own_encoding)
            part = _json(text) if columns is None and json_tables.is_lines(text) else _delimited(
                text, columns, delimiter, quoted, skip_header, reading)
        more = [pair for pair in file.partition if pair[0] not in part.columns]
        parts.append(dataclasses.replace(
            part, rows=part.rows.with_columns(pl.lit(value, pl.String).alias(name) for name, value in more),
            columns=(*part.columns, *(name for name, _ in more))))
        partition = tuple(name for name, _ in more)
    if not parts:
        raise DataError(f"{path} holds nothing but empty files: give the files of the log")
    return Table(path, _joined(path, parts).with_row_index(ROW), parts[0].columns, tuple(parts), partition)


def reading_of(settings) -> Reading:
    """The flags of a command that say how its --input is read."""
    return Reading(settings.encoding, settings.quote, tuple(settings.null_values))


def _joined(path: str, parts: list[TablePart]) -> pl.LazyFrame:
    """The rows of all parts under each other; where types differ, as text."""
    for part in parts[1:]:
        if set(part.columns) != set(parts[0].columns):
            raise DataError(f"{path}: {part.path} has the columns {', '.join(part.columns)}, and {parts[0].path} "
                            f"{', '.join(parts[0].columns)}: give all parts the same header, or if they have none "
                            "--columns")
    if len(parts) == 1:
        return parts[0].rows
    names = parts[0].rows.collect_schema().names()
    types = [part.rows.collect_schema() for part in parts]
    mixed = [name for name in names if len({str(schema.get(name)) for schema in types}) > 1]
    return pl.concat([part.rows.select(names).with_columns(pl.col(mixed).cast(pl.String)) for part in parts])


def _typed(content: Content) -> TablePart:
    """Parquet and Arrow files."""
    with readable(content.path):
        rows = pl.scan_parquet(content.source, glob=False, hive_partitioning=False) \
            if content.kind == contents.PARQUET else pl.scan_ipc(content.source, hive_partitioning=False)
        return TablePart(content.path, rows, tuple(rows.collect_schema().names()))


def _json(text: Text) -> TablePart:
    names, text = json_tables.columns(json_tables.as_lines(text)), json_tables.as_lines(text)
    rows = _scan(text.content.source, (LINE,), "\x01", False, 0).drop(EXTRA)
    return TablePart(text.path, rows.with_columns(map(json_tables.column, names)), names, ",", 1)


def _scan(source, columns: Sequence[str], delimiter: str, quoted: bool, skip: int) -> pl.LazyFrame:
    """Delimited text; a surplus column catches what a line has too much, lines with too few fields get nulls."""
    schema = {name: pl.String for name in (*columns, EXTRA)}
    if isinstance(source, bytes) and source.count(b"\n") < skip + 1 and not source.split(b"\n")[skip:]:
        return pl.LazyFrame(schema=schema)
    return pl.scan_csv(source, has_header=False, skip_lines=skip, separator=delimiter, quote_char='"' if quoted else None,
                       schema=schema, missing_columns="insert", truncate_ragged_lines=True, glob=False)


def _names(header: str, mark: str, quoted: bool, path: str) -> list[str]:
    """The columns of a header line."""
    try:
        fields = next(csv.reader([header], delimiter=mark, quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE), [])
    except csv.Error as error:
        raise DataError(f"{path}, line 1 is no header ({error}): {header[:80]!r}; correct it") from error
    return [name.strip() for name in fields]


def _delimited(text: Text, columns, delimiter: str, quoted: Optional[bool], skip_header: bool,
               reading: Reading) -> TablePart:
    header, path = text.first_line(), text.path
    delimiter = delimiters.plain(delimiter) or delimiters.guess(header, stem_extension(path))
    if quoted is None:
        quoted = delimiter != "\t" and len(delimiter) == 1 if reading.quote == "auto" else reading.quote == "double"
    mark, data = delimiter, None
    if len(delimiter.encode()) > 1:
        with readable(path), text.content.view() as view:
            data, mark = delimiters.as_one_byte(view, delimiter, path)
    if columns is None:
        skip_header = True
        columns = _names(header.replace(delimiter, mark).replace("\r", ""), mark, quoted, path)
    repeated = sorted({name for name in columns if list(columns).count(name) > 1})
    if repeated:
        hint = f"; {headers.remedy(len(columns))}" if any(map(headers.is_number, columns)) else ""
        raise DataError(f"{path}: column {repeated[0]!r} stands twice in the header: rename one{hint}")
    records = quotes.Records()
    with readable(path):
        if quoted:
            with Content(path, contents.TEXT, text.content.data if data is None else data).view() as view:
                records = quotes.check(view, mark.encode(), len(columns), path, reading.quote == "double")
            data = data if records.data is None else records.data
        source = text.content.source if data is None else data
        rows = _scan(source, columns, mark, quoted, int(skip_header))
    count = None if records.count is None else records.count - int(skip_header)
    return TablePart(path, rows, tuple(columns), delimiter, 1 + int(skip_header), count, records.breaks)


def show_rows(table: Table, rows: Sequence[int]) -> dict[int, str]:
    """Some rows as text, by their positions, for messages about them."""
    with readable(table.path):
        found = table.rows.filter(pl.col(ROW).is_in(list(rows))).collect()
    if LINE in found.columns:
        return dict(zip(found[ROW], [line[:200] for line in found[LINE]]))
    texts_of = {row: table.delimiter.join("" if field is None else str(field) for field in fields)
                for row, *fields in found.iter_rows()}
    return {row: text.removesuffix(table.delimiter).rstrip(table.delimiter)[:200] for row, text in texts_of.items()}
