"""Single values of a log: white space, words for what is missing, whole numbers written as fractions, lists as text."""
import ast
import json
import re
from typing import Optional, Sequence

from absl import logging
import polars as pl

from clrec_tf.errors import DataError
from clrec_tf.errors import UserError

_SPACE = " \t\r\n\v\f\u00a0\u200b\ufeff"  # also spaces that do not break or have no width
_BRACKETS = {"[": "]", "(": ")", "{": "}"}
_QUOTED = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
_SCIENTIFIC = r"^[0-9]\.[0-9]+[eE]\+?[0-9]+$"
_WHOLE, _FRACTION = r"^-?[0-9]+\.0*$", r"^-?[0-9]+\.[0-9]*$"
_FLOATS = {pl.Float16: (16, 11), pl.Float32: (32, 24), pl.Float64: (64, 53)}  # bits: of all, of exact whole numbers


def text(column: pl.Expr, dtype: pl.DataType, nulls: Sequence[str]) -> pl.Expr:
    """A column as stripped text, null where it is missing; of floats, whole numbers without a fraction."""
    if dtype.is_float():
        whole = (column == column.floor()) & (column.abs() < 2**63)
        as_text = pl.when(whole).then(column.cast(pl.Int64, strict=False).cast(pl.String)).otherwise(
            column.cast(pl.String))
        return pl.when(column.is_nan()).then(None).otherwise(as_text)
    if isinstance(dtype, pl.List):
        return column.list.eval(text(pl.element(), dtype.inner, nulls)).list.drop_nulls()
    if isinstance(dtype, pl.Binary):
        column = column.cast(pl.String, strict=False)
    stripped = column.cast(pl.String).str.strip_chars(_SPACE)
    return pl.when(stripped.is_in(["", *nulls])).then(None).otherwise(stripped)


def texts(column: pl.Series, nulls: Sequence[str]) -> pl.Series:
    """`text` of a column in memory."""
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


def whole_numbers(ids: pl.Series, what: str, path: str) -> pl.Series:
    """Ids "5801.0" as "5801", which is said, if every number among them is whole; else as they are."""
    return without_fractions(ids) if are_whole(ids, what, path) else ids


def are_whole(ids: pl.Series, what: str, path: str) -> bool:
    """Whether there are ids such as "5801.0", and every number among them is whole, which is said.

    Raises:
      DataError: most of them have lost digits.
    """
    if not ids.str.contains(".", literal=True).any():
        return False
    distinct = ids.drop_nulls().unique()
    scientific = distinct.filter(distinct.str.contains(_SCIENTIFIC))
    if 2 * len(scientific) > len(distinct):
        raise DataError(f"{path}: {what} ids such as {scientific[0]} have lost their last digits: write them as "
                        "integers or as text, not as floats")
    whole = distinct.filter(distinct.str.contains(_WHOLE))
    if not len(whole) or len(whole) < distinct.str.contains(_FRACTION).sum():
        return False
    logging.info("%s: %s ids that are whole numbers are read as such: %s as %s", path, what, whole[0],
                 whole[0].partition(".")[0])
    return True


def without_fractions(ids: pl.Series) -> pl.Series:
    """Ids that are whole numbers, such as "5801.0", without their fraction."""
    return ids.to_frame("id").select(
        pl.when(pl.col("id").str.contains(_WHOLE)).then(pl.col("id").str.replace(r"\.0*$", ""))
        .otherwise(pl.col("id")))["id"].alias(ids.name)


def parsed_list(value: str) -> Optional[list[str]]:
    """The elements of text that is a list of texts or numbers as JSON, Python or NumPy write it; None of other text."""
    if len(value) < 2 or _BRACKETS.get(value[0]) != value[-1]:
        return None
    if words := _numpy_texts(value[1:-1]):
        return words
    for read in (json.loads, ast.literal_eval):
        try:
            elements = read(value)
        except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
            continue
        if isinstance(elements, (list, tuple, set)) and all(
                isinstance(element, (str, int, float, type(None))) for element in elements):
            return [str(element) for element in elements if element is not None and element == element]  # no NaN
        return None
    return _numpy_list(value[1:-1].split()) if value[0] == "[" else None


def _numpy_texts(inner: str) -> list[str]:
    """NumPy writes texts without commas, which Python would take for one text: ['a' 'b']."""
    quoted = re.findall(_QUOTED, inner) if "," not in re.sub(_QUOTED, "", inner) else []
    return [text[1:-1] for text in quoted] if len(quoted) > 1 and not re.sub(_QUOTED, "", inner).strip() else []


def _numpy_list(words: list[str]) -> Optional[list[str]]:
    """NumPy writes numbers without commas: [1 2]."""
    try:
        return [word.rstrip(".") for word in words if float(word) == float(word)]
    except ValueError:
        return None


def loose_list(value: str, separator: str) -> list[str]:
    """The elements of a list of ids as text: with brackets and quotes or without, cut at the separator."""
    elements = parsed_list(value)
    if elements is None:
        inner = value[1:-1] if len(value) > 1 and _BRACKETS.get(value[0]) == value[-1] else value
        mark = next((mark for mark in (separator, ",", "|", ";") if mark in inner), None)
        elements = [text.strip(_SPACE + "'\"") for text in (inner.split(mark) if mark else inner.split())]
    return [element for element in elements if element]


def is_quoted_list(value: str) -> bool:
    """Whether text is evidently a list: of texts in quotes, in brackets."""
    return value[1:2] in ("'", '"') and bool(parsed_list(value))


def several(column: pl.Series, separator: str, nulls: Sequence[str], where: str) -> pl.Series:
    """Values of a feature that has several, as lists of texts without white space around them.

    Args:
      column: lists, or text: all of it lists as text, or values between separators.
      separator: --multi_separator.
      nulls: words for what is missing.
      where: feature and file, for messages.

    Raises:
      DataError: some of it is list text and some is not.
    """
    lists = column
    if not isinstance(column.dtype, pl.List):
        present = texts(column, nulls)
        distinct = present.drop_nulls().unique()
        parsed = {value: elements for value in distinct if (elements := parsed_list(value)) is not None}
        if parsed and len(parsed) == len(distinct):
            lists = pl.Series([parsed.get(value) for value in present], dtype=pl.List(pl.String))
        elif quoted := [value for value in parsed if is_quoted_list(value)]:
            other = next(value for value in distinct if value not in parsed)
            raise DataError(f"{where} holds list text such as {quoted[0][:80]!r}, and other text such as "
                            f"{other[:80]!r}: write one form")
        else:
            _hint(distinct, separator, where)
            lists = present.str.split(separator)
    return texts(lists, nulls).alias(column.name)


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
    """Values of a feature that has one, as text. `UserError` where all of them are lists."""
    dtype = column.dtype
    distinct = column.drop_nulls().unique() if dtype == pl.String else column.head(0)
    quoted = distinct.filter([is_quoted_list(value.strip()) for value in distinct]) if len(distinct) else distinct
    if isinstance(dtype, pl.List) or len(quoted) > 0.9 * len(distinct) > 0:
        raise UserError(f"{where} holds lists{f' such as {quoted[0][:80]!r}' if len(quoted) else ''}: name it in "
                        "--multi_feature_columns")
    if dtype.is_float():  # whose text stays that of a float, as in a text file
        return column.fill_nan(None).cast(pl.String)
    return texts(column, nulls)
