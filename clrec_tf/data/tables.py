"""Tables on disk as lazy frames of strings: CSV, TSV and other delimited text, gzip, Parquet."""
import contextlib
import csv
import dataclasses
import gzip
import os
from typing import Optional, Sequence
import zipfile
import zlib

import polars as pl

from clrec_tf.errors import DataError

ROW = "__row__"
EXTRA = "__extra__"  # what a line holds beyond its columns
LONGEST_HEADER = 2**20  # characters: a file without a line end may be of any length
DELIMITERS = ("\t", ";", ",", "|", ":", " ")  # likely ones


@dataclasses.dataclass(frozen=True)
class Table:
    """A table that has not been read yet.

    Attributes:
      path: the file.
      rows: lazy frame of `ROW` (position from 0), the columns (strings; Parquet keeps its types) and, of text, `EXTRA`.
      columns: names of the columns.
      delimiter: of text; "," where bad rows of Parquet are shown.
      first_line: line number of row 0; 0 for Parquet, whose rows have no lines.
    """
    path: str
    rows: pl.LazyFrame
    columns: tuple[str, ...]
    delimiter: str = ","
    first_line: int = 0

    def where(self, row: int) -> str:
        """How a person finds a row."""
        return f"line {row + self.first_line}" if self.first_line else f"row {row}"


@contextlib.contextmanager
def readable(path: str):
    """Turns the errors of reading a damaged file into a `DataError` that names it."""
    try:
        yield
    except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
        raise DataError(f"{path} cannot be read: {error.strerror}; check the path and its permissions") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text ({error.reason} at byte {error.start}): convert it") from error
    except (OSError, EOFError, zlib.error, zipfile.BadZipFile, pl.exceptions.PolarsError) as error:
        # Polars appends pages of advice about its own arguments; the first paragraphs say what is wrong.
        reason = " ".join(str(error).split("\n\n")[0].split())[:300]
        raise DataError(
            f"{path} is damaged or not in the form expected ({reason}): restore or correct the file") from error


def open_text(path: str, encoding: str = "utf-8-sig"):
    """Opens plain or gzip text for reading."""
    if path.endswith(".gz"):
        return gzip.open(path, "rt", encoding=encoding, newline="")
    return open(path, encoding=encoding, newline="")


def first_line(path: str) -> str:
    """The first line without its line end, of a longer one the first `LONGEST_HEADER` characters; "" if empty."""
    with readable(path), open_text(path) as file:
        return file.readline(LONGEST_HEADER).rstrip("\r\n")


def stem_extension(path: str) -> str:
    """The extension without dot, in lower case, looking through ".gz"."""
    name = os.path.basename(path).lower()
    return os.path.splitext(name.removesuffix(".gz"))[1].lstrip(".")


def open_table(path: str, columns: Optional[Sequence[str]] = None, delimiter: str = "",
               quoted: Optional[bool] = None, skip_header: bool = False) -> Table:
    """Opens a text or Parquet table.

    Args:
      path: file; .gz is decompressed, .parquet read as Parquet.
      columns: names, where the file's own header is not to be used; None reads the header.
      delimiter: one character; "" chooses tab for .tsv, else whichever of tab, semicolon and comma the header has.
      quoted: whether fields may stand in double quotes; by default unless tabs separate them.
      skip_header: with `columns`: whether a header line stands above the rows.

    Raises:
      DataError: file missing, damaged, or with a column name twice.
    """
    with readable(path):
        if not os.path.isfile(path):
            raise FileNotFoundError(2, "no such file", path)
        if stem_extension(path) == "parquet":
            rows = pl.scan_parquet(path)
            return Table(path, rows.with_row_index(ROW), tuple(rows.collect_schema().names()))
    if columns is None or not delimiter:
        header = first_line(path)
        delimiter = delimiter or _guess_delimiter(path, header)
        if columns is None:
            skip_header = True
            quoting = csv.QUOTE_NONE if delimiter == "\t" else csv.QUOTE_MINIMAL
            columns = _names(path, header, delimiter, quoting)
    quoted = delimiter != "\t" if quoted is None else quoted
    repeated = sorted({name for name in columns if list(columns).count(name) > 1})
    if repeated:
        raise DataError(f"{path}: column {repeated[0]!r} stands twice in the header: rename one")
    with readable(path):
        # The surplus column catches lines with too many fields; lines with too few get nulls at their end.
        rows = pl.scan_csv(
            path, has_header=False, skip_lines=int(skip_header), separator=delimiter,
            quote_char='"' if quoted else None, schema={name: pl.String for name in (*columns, EXTRA)},
            missing_columns="insert", truncate_ragged_lines=True, row_index_name=ROW)
    return Table(path, rows, tuple(columns), delimiter, 1 + int(skip_header))


def _names(path, header, delimiter, quoting):
    try:
        if len(header) >= LONGEST_HEADER:
            raise csv.Error(f"it is longer than {LONGEST_HEADER:,} characters")
        return next(csv.reader([header], delimiter=delimiter, quoting=quoting), [])
    except csv.Error as error:
        raise DataError(f"{path}: its first line is no header of columns ({error}): is it delimited text?") from error


def _guess_delimiter(path: str, header: str) -> str:
    if stem_extension(path) == "tsv":
        return "\t"
    return next((mark for mark in DELIMITERS[:3] if mark in header), ",")


def show_rows(table: Table, rows: Sequence[int]) -> dict[int, str]:
    """Some rows as text, by their positions, for messages about them."""
    with readable(table.path):
        found = table.rows.filter(pl.col(ROW).is_in(list(rows))).collect()
    texts = {row: table.delimiter.join("" if field is None else str(field) for field in fields)
             for row, *fields in found.iter_rows()}
    return {row: text.rstrip(table.delimiter)[:200] for row, text in texts.items()}
