"""Values of a log: white space, words for what is missing, whole numbers written as fractions, features."""
from typing import Sequence

from absl import logging
import polars as pl

from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.system.finite import EXACT
from clrec_tf.tabular_files import list_texts

SPACE = " \t\r\n\v\f\u00a0\u200b\u3000\ufeff"  # also spaces that do not break or have no width
_LOST = r"^[0-9](?:\.[0-9]+[eE]\+?|[eE]\+)[0-9]+$"
_ROUND = r"^[0-9](?:\.[0-9]{1,4})?e\+(?:0[0-9]|1[0-5])$"  # as R writes 100000, where no digit is lost
_WHOLE, _FRACTION, _NUMBER = r"^-?[0-9]+\.0*$", r"^-?[0-9]+\.[0-9]*$", r"^-?[0-9]+\.?[0-9]*$"
_FLOATS = {pl.Float16: (16, 11), pl.Float32: (32, 24), pl.Float64: (64, 53)}  # bits: of all, of exact whole numbers
BYTES = "holds bytes that are no UTF-8 text: write it as text, such as hexadecimal digits"


def text(column: pl.Expr, dtype: pl.DataType, nulls: Sequence[str]) -> pl.Expr:
    """A column as stripped text, null where it is missing; of floats, whole numbers without a fraction."""
    if dtype.is_float():
        whole = (column == column.floor()) & (column.abs() < 2**63)
        as_text = pl.when(whole).then(column.cast(pl.Int64, strict=False).cast(pl.String)).otherwise(
            column.cast(pl.String))
        return pl.when(column.is_nan()).then(None).otherwise(as_text)
    if isinstance(dtype, pl.Array):
        column, dtype = column.arr.to_list(), pl.List(dtype.inner)
    if isinstance(dtype, pl.List):
        return column.list.eval(text(pl.element(), dtype.inner, nulls)).list.drop_nulls()
    if isinstance(dtype, pl.Duration):
        column = column.dt.to_string("iso")
    stripped = column.cast(pl.String).str.strip_chars(SPACE)
    if dtype.is_decimal():
        stripped = stripped.str.replace(r"(\.[0-9]*?)0+$", "$1").str.strip_chars_end(".")
    return pl.when(stripped.is_in(["", *nulls])).then(None).otherwise(stripped)


def texts(column: pl.Series, nulls: Sequence[str]) -> pl.Series:
    """`text` of a column in memory. `DataError` where it is of bytes that are no text."""
    try:
        column = column.cast(pl.String) if column.dtype == pl.Binary else column
    except pl.exceptions.PolarsError as error:
        raise DataError(f"column {column.name!r} {BYTES}") from error
    return column.to_frame("value").select(value=text(pl.col("value"), column.dtype, nulls))["value"].alias(column.name)


def check_exact(column: pl.LazyFrame, name: str, path: str, what: str = "ids") -> None:
    """`DataError` where ids are floats in a column `name` too large to be exact: different ids may have become one.

    Args:
      column: has that column; nothing is checked of one that holds no floats.
      name, path: of the column and its file, for messages.
      what: ids, or what else it holds.
    """
    kind = column.collect_schema()[name]
    if not kind.is_float():
        return
    width, bits = _FLOATS[kind]
    large = pl.col(name).fill_nan(None).abs() >= 2**bits
    if column.select(large.any()).collect(engine="streaming").item():
        raise DataError(f"{path}: column {name!r} holds {what} from 2^{bits} on as floats of {width} bits, which does "
                        "not tell them apart: write it as integers or text")


def whole_numbers(ids: pl.Series, what: str, path: str, exact: bool = True) -> pl.Series:
    """Ids "5801.0" as "5801", which is said, if every number among them is whole; else as they are: see `are_whole`."""
    return without_fractions(ids) if are_whole(ids, what, path, exact) else ids


def may_be_floats(ids: pl.Expr) -> pl.Expr:
    """Whether text may be a number as programs write floats: 5801.0, 1e+05."""
    return ids.str.contains(r"\.|[0-9][eE]\+")


def are_whole(ids: pl.Series, what: str, path: str, exact: bool = True) -> bool:
    """Whether there are ids such as "5801.0" or "1e+05", and every number among them is whole, which is said.

    Args:
      ids: as text.
      what, path: for messages.
      exact: whether each must be told from all others, as ids, and not categories, must.

    Raises:
      DataError: some have lost digits, and they must be exact.
    """
    if not ids.to_frame("id").select(may_be_floats(pl.col("id")).any()).item():
        return False
    distinct = ids.drop_nulls().unique(maintain_order=True)
    lost = distinct.filter(distinct.str.contains(_LOST))
    numbers = distinct.str.contains(_NUMBER).sum() + len(lost) == len(distinct)
    rounded = lost.filter(lost.str.contains(_ROUND))
    if 2 * len(lost) > len(distinct) or numbers and len(rounded) < len(lost):
        if not exact:
            return False
        example = lost.filter(~lost.is_in(rounded.implode())) if len(rounded) < len(lost) else lost
        raise DataError(f"{path}: {what} ids such as {example[0]} have lost their last digits: write them as "
                        "integers or as text, not as floats")
    whole = distinct.filter(distinct.str.contains(_WHOLE))
    if len(whole) < distinct.str.contains(_FRACTION).sum() or not (len(whole) or numbers and len(rounded)):
        return False
    large = whole.filter(whole.cast(pl.Float64).abs() >= EXACT)
    if len(large) and exact:
        raise DataError(f"{path}: {what} ids such as {large[0]} are floats from 2^53 on, which does not tell them "
                        "apart: write them as integers or text")
    example = pl.concat([whole, rounded]).head(1)
    logging.info("%s: %s ids that are whole numbers are read as such: %s as %s", path, what, example[0],
                 without_fractions(example)[0])
    return True


def without_fractions(ids: pl.Series) -> pl.Series:
    """Ids that are whole numbers, such as "5801.0" or "1e+05", as integers."""
    column = pl.col("id")
    return ids.to_frame("id").select(
        pl.when(column.str.contains(_WHOLE)).then(column.str.replace(r"\.0*$", "").replace("-0", "0"))
        .when(column.str.contains(_ROUND)).then(
            column.cast(pl.Float64, strict=False).cast(pl.Int64, strict=False).cast(pl.String))
        .otherwise(column))["id"].alias(ids.name)


def several(column: pl.Series, separator: str, nulls: Sequence[str], where: str) -> pl.Series:
    """Values of a feature that has several, as lists of texts without white space around them.

    Args:
      column: lists, or text: all of it lists as text, or values between separators.
      separator: --multi_separator.
      nulls: words for what is missing.
      where: feature and file, for messages.

    Raises:
      DataError: some of it is list text and some is not, or lists were shortened. UserError: it holds records.
    """
    lists = column
    if isinstance(column.dtype, (pl.List, pl.Array)) and column.dtype.inner.is_nested():
        raise UserError(f"{where} holds {column.dtype}: write lists of single values")
    if not isinstance(column.dtype, (pl.List, pl.Array)):
        present = texts(column, nulls)
        distinct = present.drop_nulls().unique(maintain_order=True)
        _check_elements(distinct, where)
        parsed = {value: elements for value in distinct if (elements := list_texts.parsed_list(value)) is not None}
        if len(parsed) < len(distinct) and all(value[0] == "{" and value[-1] == "}" for value in distinct):
            parsed = {value: list_texts.braced_list(value) for value in distinct}
        if parsed and len(parsed) == len(distinct):
            lists = pl.Series([parsed.get(value) for value in present], dtype=pl.List(pl.String))
        elif quoted := [value for value in parsed if list_texts.is_quoted_list(value)]:
            other = next(value for value in distinct if value not in parsed)
            raise DataError(f"{where} holds list text such as {quoted[0][:80]!r}, and other text such as "
                            f"{other[:80]!r}: write one form")
        else:
            _hint(distinct, separator, where)
            lists = present.str.split(separator)
    return texts(lists, nulls).alias(column.name)


def _check_elements(distinct: pl.Series, where: str) -> None:
    """`DataError` or `UserError` where text is no list of single values."""
    for value in distinct:
        if list_texts.is_shortened(value):
            raise DataError(f"{where} holds lists of which the middle is missing, such as {value[:80]!r}: write them "
                            "whole")
        if list_texts.is_nested(value):
            raise UserError(f"{where} holds records or lists in lists, such as {value[:80]!r}: write one list of "
                            "single values, such as the names alone")


def _hint(distinct: pl.Series, separator: str, where: str) -> None:
    """Says where a separator separates nothing and another one would."""
    if len(distinct) < 2 or distinct.str.contains(separator, literal=True).any():
        return
    other = next((mark for mark in (",", ";", "|") if distinct.str.contains(mark, literal=True).mean() > 0.5), None)
    if other:
        logging.warning("%s: no value holds --multi_separator=%r, and most hold %r, such as %r: each is one value; "
                        "give --multi_separator=%r if they are several", where, separator, other,
                        distinct.filter(distinct.str.contains(other, literal=True))[0][:80], other)


def single(column: pl.Series, nulls: Sequence[str], where: str) -> pl.Series:
    """Values of a feature that has one, as text. `UserError` where all of them are lists or records."""
    dtype = column.dtype
    distinct = (column if dtype == pl.String else pl.Series([], dtype=pl.String)).drop_nulls().unique()
    quoted = [value for value in distinct if list_texts.is_quoted_list(value.strip())]
    if isinstance(dtype, (pl.List, pl.Array)) or len(quoted) > 0.9 * len(distinct) > 0:
        raise UserError(f"{where} holds lists{f' such as {quoted[0][:80]!r}' if len(quoted) else ''}: name it in "
                        "--multi_feature_columns")
    if len(distinct) and all(list_texts.is_nested(value.strip()) for value in distinct):
        raise UserError(f"{where} holds records such as {distinct[0][:80]!r}: name a column of single values")
    if dtype.is_float():  # whose text stays that of a float, as in a text file
        return column.fill_nan(None).cast(pl.String)
    if dtype.is_decimal():
        return column.cast(pl.String)
    return texts(column, nulls)
