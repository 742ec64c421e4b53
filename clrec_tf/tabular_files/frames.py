"""Tables on disk as lazy frames of strings: delimited text, JSON lines, Parquet; packed, and in parts."""
import dataclasses
from typing import Optional, Sequence

import polars as pl

from clrec_tf.errors import DataError
from clrec_tf.tabular_files import contents
from clrec_tf.tabular_files.contents import readable
from clrec_tf.tabular_files import file_sets
from clrec_tf.tabular_files import json_tables
from clrec_tf.tabular_files.json_tables import LINE
from clrec_tf.tabular_files.room import Room
from clrec_tf.tabular_files.table_parts import EXTRA
from clrec_tf.tabular_files.table_parts import open_part
from clrec_tf.tabular_files.table_parts import Reading
from clrec_tf.tabular_files.table_parts import TablePart
from clrec_tf.tabular_files import texts

ROW = "__row__"
_BYTES_OF_A_CLICK = 16  # of text, by which --clicks_in_memory bounds what is unpacked in memory


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
    def lines(self) -> Optional[int]:
        """Lines of all files below their headers; None of Parquet."""
        counts = [part.lines for part in self.parts]
        return None if None in counts else sum(counts)

    @property
    def records(self) -> Optional[int]:
        """Rows that there must be, empty lines too; None where no quote could swallow one."""
        if self.lines is None or all(part.records is None for part in self.parts):
            return None
        return sum(part.lines if part.records is None else part.records for part in self.parts)

    def check_records(self) -> None:
        """Counts the rows; `DataError` where they are not as many `records` as lines and quotes make."""
        if self.records is None:
            return
        read = self.rows.select(pl.len()).collect(engine="streaming").item()
        if read != self.records:
            raise DataError(f"{self.path} has {self.records} rows by its lines and quotes, and {read} were read: give "
                            "--quote=none if quotes are plain characters")

    def check_fields(self) -> None:
        """`DataError` where a line has more fields than there are columns, or quotes have swallowed lines."""
        rows, surplus = self.without_blank_lines(), ()
        with readable(self.path):
            if EXTRA in rows.collect_schema():
                surplus = rows.filter(pl.col(EXTRA).is_not_null()).head(1).collect()
        if len(surplus):
            raise DataError(f"{self.path}, {self.where(surplus[ROW][0])} has more than its {len(self.columns)} fields: "
                            "correct it (--quote says what quotes are)")
        with readable(self.path):
            self.check_records()

    def without_blank_lines(self) -> pl.LazyFrame:
        """The rows that have any field; of JSON, the lines that have any text."""
        if LINE in self.rows.collect_schema():
            return self.rows.filter(pl.col(LINE).str.strip_chars() != "")
        first, *others = [name for name in self.columns if name not in self.partition]
        blank = pl.col(first).is_null()
        if self.first_line:
            blank |= pl.col(first).str.strip_chars() == ""
        return self.rows.filter(~pl.all_horizontal(blank, *(pl.col(name).is_null() for name in others)))

    def where(self, row: int) -> str:
        """How a person finds a row."""
        for part in self.parts[:-1]:
            with readable(part.path):
                rows = part.rows.select(pl.len()).collect(engine="streaming").item()
            if row < rows:
                return _place(part, row, True)
            row -= rows
        return _place(self.parts[-1], row, len(self.parts) > 1)


def _place(part: TablePart, row: int, named: bool) -> str:
    line = row + part.first_line
    for start, extra_lines in part.breaks:
        line += extra_lines if start + 1 < line else 0
    return (f"{part.path}, " if named else "") + (f"line {line}" if part.first_line else f"row {row}")


def open_text(path: str, encoding: str = ""):
    """Opens plain or packed text for reading by lines."""
    return texts.open_stream(path, encoding, always=False)


def first_line(path: str) -> str:
    """The first line without its line end; "" for an empty file."""
    return next(iter(texts.peek(path)), "")


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
        content = contents.open_content(file.path, room=reading.room)
        if len(files) > 1 and content.is_empty():  # as Spark writes of an empty partition
            content.check_not_cut()
            continue
        part = open_part(content, columns, delimiter, quoted, skip_header, reading)
        if reserved := {ROW, EXTRA, LINE} & set(part.columns):
            raise DataError(f"{file.path} has a column called {min(reserved)}, which has a use of its own: rename it")
        missing = [pair for pair in file.partition if pair[0] not in part.columns]
        parts.append(dataclasses.replace(
            part, rows=part.rows.with_columns(pl.lit(value, pl.String).alias(name) for name, value in missing),
            columns=(*part.columns, *(name for name, _ in missing))))
        partition = tuple(name for name, _ in missing)
    if not parts:
        raise DataError(f"{path} holds nothing but empty files: give the files of the log")
    parts = _with_all_entries(parts)
    return Table(path, _joined(path, parts).with_row_index(ROW), parts[0].columns, tuple(parts), partition)


def reading_of(settings) -> Reading:
    """The flags of a command that say how its --input is read."""
    room = Room(settings.scratch_dir, _BYTES_OF_A_CLICK * settings.clicks_in_memory)
    return Reading(settings.encoding, settings.quote, tuple(settings.null_values), room=room)


def _with_all_entries(parts: list[TablePart]) -> list[TablePart]:
    """Parts that are JSON lines, each with the entries of all: what one leaves out is missing there."""
    if len(parts) == 1 or not all(LINE in part.rows.collect_schema() for part in parts):
        return parts
    names = tuple(dict.fromkeys(name for part in parts for name in part.columns))
    return [dataclasses.replace(part, columns=names, rows=part.rows.with_columns(
        json_tables.column(name) for name in names if name not in part.columns)) for part in parts]


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
    for part, schema in zip(parts, types):
        if (EXTRA in schema, LINE in schema) != (EXTRA in types[0], LINE in types[0]):
            raise DataError(f"{path}: {part.path} is {_form(schema)}, and {parts[0].path} {_form(types[0])}: give "
                            "files of one kind, such as by a pattern *.csv")
    mixed = [name for name in names if len({str(schema.get(name)) for schema in types}) > 1]
    for name in mixed:
        nested = next((number for number, schema in enumerate(types) if schema[name].is_nested()), None)
        if nested is not None:
            other = next(number for number, schema in enumerate(types) if schema[name] != types[nested][name])
            raise DataError(f"{path}: column {name!r} is {types[nested][name]} in {parts[nested].path}, and "
                            f"{types[other][name]} in {parts[other].path}: write one type")
    return pl.concat([part.rows.select(names).with_columns(pl.col(mixed).cast(pl.String)) for part in parts])


def _form(schema: pl.Schema) -> str:
    return "JSON" if LINE in schema else "delimited text" if EXTRA in schema else "Parquet or Arrow"


def show_rows(table: Table, rows: Sequence[int]) -> dict[int, str]:
    """Some rows as text, by their positions, for messages about them."""
    with readable(table.path):
        frame = table.rows.filter(pl.col(ROW).is_in(list(rows))).collect(engine="streaming")
    if LINE in frame.columns:
        return dict(zip(frame[ROW], [line[:200] for line in frame[LINE]]))
    texts_of = {row: table.delimiter.join("" if field is None else str(field) for field in fields)
                for row, *fields in frame.iter_rows()}
    return {row: _printable(text.removesuffix(table.delimiter).rstrip(table.delimiter)[:200])
            for row, text in texts_of.items()}


def _printable(text: str) -> str:
    """Text whose control characters are written as escapes, tabs apart."""
    return "".join(mark if mark.isprintable() or mark == "\t" else repr(mark)[1:-1] for mark in text)
