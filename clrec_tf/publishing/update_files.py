"""The files of an update, as they are: items one a line or row, and ids to delete."""
from typing import Any
from typing import Iterator
from typing import Sequence

import numpy as np
import polars as pl

from clrec_tf.errors import DataError
from clrec_tf.retrieval.user_requests import json_lines
from clrec_tf.retrieval.user_requests import parse_item
from clrec_tf.tabular_files.texts import without_mark


def read_deletions(path: str, id_type: str) -> np.ndarray:
    """Distinct ids of a text file, one a line, int64 or str; blank lines and repetitions do not matter."""
    ids = {}
    with _opened(path) as file:
        for number, line in enumerate(file, 1):
            where = f"{path}, line {number}"
            try:
                line = without_mark(line, path) if number == 1 else line
                text = line.rstrip(b"\r\n").decode("utf-8")
            except UnicodeDecodeError as error:
                raise DataError(f"{where} is not UTF-8 ({error}): give one item id a line") from error
            if text.strip():
                ids[parse_item(text.strip(), id_type, where)] = None
    return np.array(list(ids), np.int64 if id_type == "int" else str)


def read_json_lines(path: str) -> Iterator[tuple[str, Any]]:
    """("path, line N", value) of each line that is not blank. `DataError` where it cannot be read or is not JSON."""
    with _opened(path) as file:
        yield from json_lines(file, path)


def read_parquet_rows(path: str, fields: Sequence[str]) -> Iterator[tuple[str, dict]]:
    """("path, row N", value) of each row with its columns among `fields`. `DataError` where it cannot be read."""
    try:
        table = pl.read_parquet(path, use_pyarrow=False, glob=False)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise DataError(f"{path} is not readable Parquet ({error})") from error
    if "id" not in table.columns:
        raise DataError(f"{path} has no column `id`; its columns are {', '.join(table.columns)}")
    table = table.select(name for name in fields if name in table.columns)
    table = table.with_columns(pl.col(name).arr.to_list() for name, kind in table.schema.items()
                               if isinstance(kind, pl.Array))
    for number, value in enumerate(table.iter_rows(named=True), 1):
        yield f"{path}, row {number}", value


def _opened(path):
    try:
        return open(path, "rb")
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror})") from error
