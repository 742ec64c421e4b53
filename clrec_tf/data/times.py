"""Time stamps of logs and flags -> seconds since 1970."""
import datetime
from typing import Optional

from absl import logging
import numpy as np
import polars as pl

from clrec_tf.errors import DataError
from clrec_tf.errors import UserError

LATEST_SECOND = 100_000_000_000  # the year 5138: what is later is in milliseconds
EARLIEST_SECOND = -62_000_000_000  # the year 5: what is earlier has no date
PLAUSIBLE_SECOND = 315_532_800  # 1 January 1980: before, nobody logged clicks
REMEDY = "check --timestamp_column and --timestamp_unit"


def to_seconds(clicks: pl.LazyFrame, unit: str, utc_offset: float) -> pl.Expr:
    """Column `timestamp` as int64 seconds, null where it cannot be read.

    Args:
      clicks: its dtype, or of text its first values, decide between numbers and ISO date-times.
      unit: "s" or "ms", of numbers.
      utc_offset: hours; date-times that name no zone are local times of it.
    """
    column, dtype = pl.col("timestamp"), clicks.collect_schema()["timestamp"]
    scale = 1000 if unit == "ms" else 1
    if isinstance(dtype, (pl.Datetime, pl.Date)):
        _note_unit(unit)
        zoned = isinstance(dtype, pl.Datetime) and dtype.time_zone is not None
        shift = 0 if zoned else round(utc_offset * 3600)
        return column.cast(pl.Datetime("us", dtype.time_zone if zoned else None)).dt.epoch("s") - shift
    if dtype.is_numeric():
        return _floor(column / scale) if dtype.is_float() or scale > 1 else column.cast(pl.Int64)
    head = clicks.select("timestamp").filter(column.str.len_bytes() > 0).head(100).collect()["timestamp"].to_list()
    if not head or any(map(_is_number, head)):
        whole = column.cast(pl.Int64, strict=False)
        return pl.coalesce(whole // scale, _floor(column.cast(pl.Float64, strict=False) / scale))
    _note_unit(unit)
    text = column.str.replace("T", " ").str.replace(r"Z$", "+00:00")
    local = pl.coalesce(*(text.str.to_datetime(form, strict=False, time_unit="us").dt.epoch("s")
                          for form in ("%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%d %H:%M", "%Y-%m-%d")))
    zoned = text.str.to_datetime("%Y-%m-%d %H:%M:%S%.f%:z", strict=False, time_unit="us", time_zone="UTC")
    return pl.coalesce(local - round(utc_offset * 3600), zoned.dt.epoch("s")).alias("timestamp")


def _floor(seconds: pl.Expr) -> pl.Expr:
    return pl.when(seconds.is_finite()).then(seconds.floor()).cast(pl.Int64, strict=False)


def _is_number(text: str) -> bool:
    try:
        float(text)
        return True
    except ValueError:
        return False


def _note_unit(unit: str) -> None:
    if unit != "s":
        logging.info("--timestamp_unit=%s has no effect: the time stamps are date-times", unit)


def check_plausible(seconds: pl.Series, path: str) -> None:
    """Warns of time stamps that are evidently none, such as a column of quantities; 0 means unknown and passes.

    Raises:
      DataError: they can only be milliseconds or finer, or have no date.
    """
    latest, earliest = seconds.max(), seconds.min()
    if latest is not None and latest > LATEST_SECOND:
        raise DataError(f"{path} has the time stamp {latest}, which as seconds lies beyond the year 5000: "
                        "give --timestamp_unit=ms if they are milliseconds")
    if earliest is not None and earliest < EARLIEST_SECOND:
        raise DataError(f"{path} has the time stamp {earliest}, which as seconds lies before the year 5: {REMEDY}")
    if latest is not None and 0 < latest < PLAUSIBLE_SECOND:
        logging.warning("the latest time stamp of %s is %d, as seconds since 1970 %s: it looks like no time; %s", path,
                        latest, shown(latest, 0.0), REMEDY)
    negative = (seconds < 0).sum()
    if negative:
        logging.warning("%s has %d negative time stamps, such as %d, which count as unknown: they look like no times; "
                        "%s", path, negative, earliest, REMEDY)


def parse_bound(flag: str, text: str, utc_offset: float) -> Optional[int]:
    """--from or --to as seconds; None where it is empty."""
    if not text:
        return None
    if _is_number(text) and np.isfinite(float(text)):
        return int(float(text))
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError as error:
        raise UserError(f"--{flag}={text}: neither seconds nor an ISO date(-time) such as 2017-11-25 or "
                        "2017-11-25T08:00:00") from error
    zone = datetime.timezone(datetime.timedelta(hours=utc_offset))
    return int((moment if moment.tzinfo else moment.replace(tzinfo=zone)).timestamp())


def shown(seconds: Optional[int], utc_offset: float) -> Optional[str]:
    """An ISO date-time in local time, for reports."""
    if seconds is None:
        return None
    zone = datetime.timezone(datetime.timedelta(hours=utc_offset))
    return datetime.datetime.fromtimestamp(int(seconds), zone).isoformat()
