"""How many lines a text file has that should have become rows."""
import gzip
import os
from typing import Optional

from clrec_tf.data import tables
from clrec_tf.data.tables import Table

_CHUNK = 2**24  # bytes
_OTHER_ENDINGS = ("zst", "zip", "bz2", "xz", "lz4")  # compressed in ways that are not counted


def count_lines(table: Table, rows: int) -> Optional[int]:
    """Lines of a table's file without its header and those that are blank or hold delimiters alone.

    Args:
      table: as opened; of Parquet there are no lines: None.
      rows: how many were read; only where the file has more line ends are its lines looked at one by one.
    """
    if not table.first_line or os.path.isdir(table.path) or table.path.lower().endswith(_OTHER_ENDINGS):
        return None
    opened = gzip.open if table.path.endswith(".gz") else open
    with tables.readable(table.path):
        lines, last = 0, b"\n"
        with opened(table.path, "rb") as file:
            while chunk := file.read(_CHUNK):
                lines, last = lines + chunk.count(b"\n"), chunk[-1:]
        lines += (last != b"\n") - (table.first_line - 1)
        if lines <= rows:
            return lines
        empty = b" \t\r\n" + table.delimiter.encode()
        with opened(table.path, "rb") as file:
            return sum(bool(line.strip(empty)) for line in file) - (table.first_line - 1)
