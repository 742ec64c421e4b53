"""Patterns of date-times: as --timestamp_format gives them, and as they are told from the values."""
import re
from typing import Sequence

from absl import logging
import polars as pl

from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.tabular_files.time_units import PLAUSIBLE_SECOND

_ORDERED = r"^\d{1,2}([/.-])\d{1,2}[/.-]\d{2,4}\b"  # 01/02/2024
_HOUR, _CLOCK = r"%[-_0]?[HIkl]", r"%[-_0]?M|%[TRXrc+]"  # an hour; what has minutes, too
_ZONED = r"%:{0,3}#?z|%\+"
_ROUNDED = r"\d(?:\.\d{1,6})?[eE]\+?(?:09|1\d|9)"  # 1.7e+09


def formatted(column: pl.Expr, pattern: str, shift: int) -> pl.Expr:
    """Text by --timestamp_format as int64 seconds since 1970, null where it has another form.

    Args:
      column: of text.
      pattern: the flag; a zone in it, a Z or UTC at its end too, counts before `shift`.
      shift: seconds that local time is ahead of UTC.

    Raises:
      UserError: it is no pattern.
    """
    flag = f"--timestamp_format={pattern}"
    if "%Z" in pattern:
        raise UserError(f"{flag}: names of zones (%Z) are not read: give their letters in place of %Z, and "
                        "--utc_offset; numbers are %z")
    if re.search(r"(?<!%)(?:Z|UTC|GMT)$", pattern) or "%s" in pattern:
        shift = 0
    zoned, clock = bool(re.search(_ZONED, pattern)), bool(re.search(_CLOCK, pattern)) or "%s" in pattern
    pattern = pattern.replace(".%f", "%.f")
    if not clock and re.search(_HOUR, pattern):  # an hour alone is not read
        column, pattern, clock = column + " 00", pattern + " %M", True
    try:
        if "%" not in pattern:
            raise pl.exceptions.ComputeError("no directive")
        pl.Series(["0"]).str.to_datetime(pattern, strict=False)
        if zoned or clock:
            return column.str.to_datetime(pattern, strict=False, time_unit="us", time_zone="UTC" if zoned else None
                                          ).dt.epoch("s") - (0 if zoned else shift)
        return column.str.to_date(pattern, strict=False).cast(pl.Datetime("us")).dt.epoch("s") - shift
    except pl.exceptions.PolarsError as error:
        raise UserError(f"{flag}: no pattern of a date and time such as '%d/%m/%Y %H:%M'") from error


def of_ordered(head: Sequence[str], path: str) -> str:
    """The pattern of dates that begin with a day or a month, told from the numbers above 12; "" of others.

    Raises:
      UserError: nothing says which it is.
    """
    odd = [text for text in head if re.match(_ORDERED, text)]
    if len(odd) * 2 <= len(head):
        return ""
    mark = re.match(_ORDERED, odd[0])[1]
    year = "%Y" if re.match(rf"^\d+{re.escape(mark)}\d+{re.escape(mark)}\d{{4}}", odd[0]) else "%y"
    hour, half = ("%I", " %p") if re.search(r"[AaPp][Mm]$", odd[0].strip()) else ("%H", "")
    rest = "" if ":" not in odd[0] else f" {hour}:%M{':%S' if odd[0].count(':') > 1 else ''}{half}"
    forms = [f"'{first}{mark}{second}{mark}{year}{rest}'" for first, second in (("%d", "%m"), ("%m", "%d"))]
    late = [any(int(re.split(r"\D", text)[place]) > 12 for text in odd) for place in (0, 1)]
    if late[0] != late[1]:
        logging.info("%s: time stamps such as %s are read as %s", path, odd[0], forms[late[1]])
        return forms[late[1]].strip("'")
    raise UserError(f"{path}: the time stamps, such as {odd[0]!r}, may begin with the day or with the month: give "
                    f"--timestamp_format={forms[0]} or {forms[1]}")


def check_numbers(head: pl.Series, path: str) -> None:
    """`DataError` where numeric time stamps, of which the first are given, have lost digits or would lose fractions."""
    written = "write them as seconds since 1970 or as date-times"
    if head.dtype == pl.String:
        rounded = head.filter(head.str.contains(f"^{_ROUNDED}$"))
        if 2 * len(rounded) > len(head):
            raise DataError(f"{path}: time stamps such as {rounded[0]} have lost their last digits: {written}")
        head = head.cast(pl.Float64, strict=False).drop_nulls()
    if len(head) and not head.dtype.is_integer() and (head.max() or 0) < PLAUSIBLE_SECOND:
        numbers = head.cast(pl.Float64).fill_nan(None).drop_nulls()
        if numbers.floor().n_unique() < numbers.n_unique():
            example = numbers.filter(numbers != numbers.floor())[0]
            raise DataError(f"{path}: fractions of its time stamps, such as {example}, would be lost: they look like "
                            f"days or another unit without a flag; {written}")
