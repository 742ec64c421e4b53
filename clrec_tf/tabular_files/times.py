"""Time stamps of logs and flags -> seconds since 1970."""
import datetime
import re
import time
from typing import Optional

from absl import logging
import numpy as np
import polars as pl

from clrec_tf.errors import UserError
from clrec_tf.tabular_files.tally import Tally
from clrec_tf.tabular_files.tally import tally
from clrec_tf.tabular_files import time_patterns
from clrec_tf.tabular_files import time_units
from clrec_tf.tabular_files.time_units import Clock
from clrec_tf.tabular_files.time_units import PLAUSIBLE_SECOND
from clrec_tf.tabular_files.time_units import shown

LATEST_SECOND = 100_000_000_000  # the year 5138: what is later is in milliseconds
EARLIEST_SECOND = -62_000_000_000  # the year 5: what is earlier is no date, but how .NET writes none
_YEAR_2100 = 4_102_444_800
REMEDY = "check --timestamp_column and --timestamp_unit"
_LOCAL = ("%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%d %H:%M", "%Y-%m-%d", "%Y%m%d %H%M%S%.f", "%Y%m%d %H%M", "%Y%m%d",
          "%Y%m%d %H:%M:%S%.f")
_ZONED = ("%Y-%m-%d %H:%M:%S%.f%:z", "%Y-%m-%d %H:%M%:z", "%Y%m%d %H%M%S%.f%:z", "%Y%m%d %H%M%:z",
          "%Y%m%d %H:%M:%S%.f%:z")
_DATE = r"\d{4,}[-/.T ]\d|\d{1,2}[/.-]\d{1,2}[/.-]\d"


def clock_of(settings) -> Clock:
    """Offset and latest time of --utc_offset and --max_time, which is tomorrow by default.

    With --to alone there is no latest time: what is later is dropped by --to, and counted there.
    """
    given = parse_bound("max_time", settings.max_time, settings.utc_offset)
    tomorrow = int(time.time()) + 86_400
    latest = given if given is not None else 2**62 if settings.to_time else tomorrow
    return Clock(round(settings.utc_offset * 3600), latest, max(given or 0, tomorrow))


def to_seconds(clicks: pl.LazyFrame, settings, path: str) -> tuple[pl.Expr, bool]:
    """Column `timestamp` as int64, null where it cannot be read; and whether these are numbers of a unit, not seconds.

    Args:
      clicks: its dtype, or of text its first values, decide between numbers and date-times.
      settings: --timestamp_unit, --timestamp_format, and --utc_offset, of which date-times without a zone are.
      path: for messages.

    Raises:
      UserError: dates that may be read in two ways; DataError: numbers that have lost digits.
    """
    column, dtype = pl.col("timestamp"), clicks.collect_schema()["timestamp"]
    shift = round(settings.utc_offset * 3600)
    if isinstance(dtype, (pl.Datetime, pl.Date)):
        _note_unit(settings)
        zoned = isinstance(dtype, pl.Datetime) and dtype.time_zone is not None
        return column.cast(pl.Datetime("us", dtype.time_zone if zoned else None)).dt.epoch("s") - (
            0 if zoned else shift), False
    if isinstance(dtype, pl.Duration):
        raise UserError(f"{path}: its time stamps are durations ({dtype}): give times by --timestamp_column")
    column = column if dtype.is_numeric() else column.cast(pl.String)
    if settings.timestamp_format and not dtype.is_numeric():
        return time_patterns.formatted(column, settings.timestamp_format, shift), False
    first = clicks.select(column).drop_nulls().head(1000).collect()["timestamp"]
    head = [] if dtype.is_numeric() else first.to_list()
    if sum(map(_is_number, head)) >= sum(bool(re.match(_DATE, text)) for text in head):
        time_patterns.check_numbers(first, path)
        return as_numbers(column, dtype if dtype.is_numeric() else pl.String), True
    if pattern := time_patterns.of_ordered(head, path):
        return time_patterns.formatted(column, pattern, shift), False
    _note_unit(settings)
    day = column.str.replace(r"^(\d{4})[/.](\d{1,2})[/.](\d{1,2})", "${1}-${2}-${3}")
    day = day.str.replace(r"^([0-9-]+)[Tt_]", "${1} ").str.replace(r"(:\d{2}|\d{6}),(\d+)", "${1}.${2}")
    day = day.str.strip_chars()
    zone = day.str.replace(r"\s*(?:Z|z|UTC|GMT)$", "+00:00").str.replace(r"(\d)\s+([+-]\d{2})", "${1}${2}")
    zone = zone.str.replace(r"( \d{2}:?\d{2}\S*[+-]\d{2})$", "${1}:00").str.replace(
        r"( \d{2}:?\d{2}\S*[+-]\d{2})(\d{2})$", "${1}:${2}")
    local = pl.coalesce(*(day.str.to_datetime(form, strict=False, time_unit="us").dt.epoch("s") for form in _LOCAL))
    zoned = pl.coalesce(*(zone.str.to_datetime(form, strict=False, time_unit="us", time_zone="UTC").dt.epoch("s")
                          for form in _ZONED))
    return pl.coalesce(local - shift, zoned).alias("timestamp"), False


def as_numbers(column: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """Time stamps of a numeric type or of text as int64 numbers, rounded down; null where they are none."""
    if dtype.is_integer():
        return column.cast(pl.Int64, strict=False)
    if dtype.is_numeric():
        return _floor(column.cast(pl.Float64))
    return pl.coalesce(column.cast(pl.Int64, strict=False), _floor(column.cast(pl.Float64, strict=False)))


def _floor(seconds: pl.Expr) -> pl.Expr:
    return pl.when(seconds.is_finite()).then(seconds.floor()).cast(pl.Int64, strict=False)


def _is_number(text: str) -> bool:
    try:
        float(text)
        return True
    except ValueError:
        return False


def _note_unit(settings) -> None:
    if settings.timestamp_unit not in ("auto", "s"):
        logging.info("--timestamp_unit=%s has no effect: the time stamps are date-times", settings.timestamp_unit)


def span(seconds: pl.Series) -> Tally:
    """What `check_plausible` asks of time stamps [N]; tallies of parts of a log add up."""
    early = seconds.filter((seconds > 0) & (seconds < PLAUSIBLE_SECOND))
    return tally(dict(rows=len(seconds), early=len(early), negative=(seconds < 0).sum()),
                 dict(any=seconds.min(), early=early.min(), positive=seconds.filter(seconds > 0).min()),
                 dict(any=seconds.max()))


def check_plausible(found: Tally, path: str) -> None:
    """Warns of time stamps that are evidently none, such as a column of quantities; 0 means unknown and passes.

    Args:
      found: their `span`.
      path: for messages.
    """
    latest, earliest = found.highest.get("any"), found.lowest.get("any")
    if latest is not None and 0 < latest < PLAUSIBLE_SECOND:
        logging.warning("the latest time stamp of %s is %d, as seconds since 1970 %s: it looks like no time; %s", path,
                        latest, shown(latest, 0.0), REMEDY)
    if 0 < found.count("early") < 0.1 * found.count("rows"):
        logging.warning("%s has %d time stamps before 1980, such as %s, which come first of their users' clicks; drop "
                        "them with --from if they are none", path, found.count("early"),
                        shown(found.lowest["early"], 0.0))
    if found.count("negative"):
        logging.warning("%s has %d negative time stamps, such as %d, which count as unknown: they look like no times; "
                        "%s", path, found.count("negative"), earliest, REMEDY)


def parse_bound(flag: str, text: str, utc_offset: float) -> Optional[int]:
    """--from, --to or --max_time as seconds; None where it is empty.

    Numbers are dates where they are the digits of one (20240101), else seconds, or by their size a finer unit.
    """
    if not text:
        return None
    if _is_number(text) and np.isfinite(float(text)):
        raw = pl.Series([int(float(text)) if not re.fullmatch(r"-?\d+", text) else int(text)])
        clock = Clock(round(utc_offset * 3600), _YEAR_2100, _YEAR_2100)
        unit = "s" if 10**9 <= abs(raw[0]) < 10**10 else time_units.tell(time_units.tally(raw, clock), f"--{flag}", clock)
        return int(time_units.convert(raw, unit, clock.offset)[0])
    try:
        moment = datetime.datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise UserError(f"--{flag}={text}: neither seconds nor an ISO date(-time) such as 2017-11-25 or "
                        "2017-11-25T08:00:00") from error
    zone = datetime.timezone(datetime.timedelta(hours=utc_offset))
    return int((moment if moment.tzinfo else moment.replace(tzinfo=zone)).timestamp())


def between(settings, timed: bool) -> Optional[pl.Expr]:
    """Whether a row's `timestamp` lies from --from on and before --to; None without both.

    Args:
      settings: of the command.
      timed: whether the log has time stamps.

    Raises:
      UserError: it has none, and a bound is given.
    """
    begin = parse_bound("from", settings.from_time, settings.utc_offset)
    end = parse_bound("to", settings.to_time, settings.utc_offset)
    if begin is None and end is None:
        return None
    if not timed:
        raise UserError("--from and --to need time stamps, which the log does not have: leave them out")
    return pl.lit(True) & (pl.col("timestamp") >= begin if begin is not None else True) & (
        pl.col("timestamp") < end if end is not None else True)


def check_bounds(settings, earliest: Optional[int]) -> None:
    """`UserError` where --from or --to is of the first years after 1970, and the log, from `earliest` on, is not."""
    for flag, text in (("from", settings.from_time), ("to", settings.to_time)):
        bound = parse_bound(flag, text, settings.utc_offset)
        if bound is not None and 0 < bound < PLAUSIBLE_SECOND <= (earliest or 0) and _is_number(text):
            raise UserError(f"--{flag}={text} is {shown(bound, 0.0)} as seconds since 1970, and the log begins at "
                            f"{shown(earliest, 0.0)}: give a date such as {shown(earliest, 0.0)[:10]}")
