"""Data frames of other libraries as polars' own, and results as the kind of frame that came in."""
from typing import Any, Union

import numpy as np
import polars as pl

from clrec_tf.errors import DataError
from clrec_tf.errors import UserError

_KINDS = "a polars or pandas DataFrame, an Arrow table, or the path of a file"
_CELLS = "give numbers, texts, date-times, or lists of them, or drop the column"
_SHOWN = 40  # characters of a value in a message


def is_pandas(table: Any) -> bool:
    """Whether it is a DataFrame or Series of pandas, which need not be installed."""
    return type(table).__module__.partition(".")[0] == "pandas"


def is_table(table: Any) -> bool:
    """Whether `as_polars` takes it."""
    return isinstance(table, (pl.DataFrame, pl.LazyFrame)) or hasattr(
        table, "columns" if is_pandas(table) else "__arrow_c_stream__")


def as_polars(table: Any, name: str) -> pl.DataFrame:
    """A table as a DataFrame of polars.

    Args:
      table: DataFrame of polars or pandas, LazyFrame, or what gives an Arrow stream (pyarrow, DuckDB).
      name: of the argument, for messages.

    Raises:
      UserError: it is none of these. DataError: a column stands twice, has a name that is no text, or holds values of
        several types, or of one that no file could hold.
    """
    if not is_table(table):
        raise UserError(f"{name} is of type {type(table).__name__}: give {_KINDS}")
    try:
        if is_pandas(table):
            frame = _of_pandas(table, name)
        else:
            frame = table.collect() if isinstance(table, pl.LazyFrame) else pl.DataFrame(table)
    except pl.exceptions.DuplicateError as error:
        raise DataError(f"{name} has a column twice ({error}): rename one") from error
    except pl.exceptions.PolarsError as error:
        raise DataError(f"{name} cannot be read ({error}): correct it") from error
    for column in frame.iter_columns():
        if column.dtype == pl.Object:
            where = f"{name}: column {column.name!r}"
            _check_types(where, column.to_list())
            raise DataError(f"{where} holds objects of type {type(column[0]).__name__}: {_CELLS}")
    return frame


def of_kind(frame: pl.DataFrame, pandas: bool) -> Union[pl.DataFrame, Any]:
    """The same frame, or one of pandas: whole numbers with missing ones as Int64."""
    if not pandas:
        return frame
    import pandas as pd  # pylint: disable=import-outside-toplevel
    return pd.DataFrame({
        column.name: pd.array(column.to_list(), "Int64") if column.dtype.is_integer() and column.null_count()
        else column.to_list() if column.dtype == pl.String else column.to_numpy() for column in frame.iter_columns()})


def _of_pandas(table, name) -> pl.DataFrame:
    """Column by column, for which pyarrow, which pandas' own export needs, need not be installed.

    What an index names is a column, too.
    """
    table = table.reset_index([name for name in table.index.names if name is not None and name not in table.columns])
    for column in table.columns:
        if not isinstance(column, str):
            raise DataError(f"{name} has a column called {column!r}, which is no text: rename it")
    repeated = table.columns[table.columns.duplicated()]
    if len(repeated):
        raise DataError(f"{name} has the column {repeated[0]!r} twice: rename one")
    return pl.DataFrame([_series(name, column, table[column]) for column in table.columns])


def _series(name, title, column) -> pl.Series:
    """One column of pandas."""
    if column.dtype.kind == "M":  # date-times; those with a zone as the same instants
        zoned = getattr(column.dtype, "tz", None) is not None
        naive = (column.dt.tz_convert("UTC").dt.tz_localize(None) if zoned else column).to_numpy("datetime64[us]")
        series = pl.Series(title, naive)
        return series.dt.replace_time_zone("UTC") if zoned else series
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "iufb":
        return pl.Series(title, column.to_numpy())
    # Scalars of NumPy and arrays of any library in cells, as Python has them.
    values = [value.tolist() if hasattr(value, "tolist") else value for value in column.to_numpy(object, na_value=None)]
    where = f"{name}: column {title!r}"
    _check_types(where, values)
    try:
        return pl.Series(title, values)
    except (pl.exceptions.PolarsError, TypeError, OverflowError) as error:
        raise DataError(f"{where} cannot be read ({error}): {_CELLS}") from error


def _check_types(where, values) -> None:
    """`DataError` where values have several types, each shown with an example."""
    kinds = set(map(type, values)) - {type(None)}
    if len(kinds) > 1:
        examples = [next(value for value in values if type(value) is kind) for kind in kinds]
        shown = sorted(f"{type(value).__name__} ({repr(value)[:_SHOWN]})" for value in examples)
        raise DataError(f"{where} holds {' and '.join(shown)}: make its values of one type, such as all text")
