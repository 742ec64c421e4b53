"""The unit of numeric time stamps, told from the values: epochs in s, ms, µs, ns, and dates written as numbers."""
import dataclasses
import datetime
from typing import Optional

from absl import logging
import polars as pl

from clrec_tf.errors import DataError
from clrec_tf.tabular_files import tally as tally_lib
from clrec_tf.tabular_files.tally import Tally

PLAUSIBLE_SECOND = 315_532_800  # 1 January 1980: before, nobody logged clicks
_FINE_PLAUSIBLE = 788_918_400  # 1 January 1995: counts of 100 ns since the year 1 would be nanoseconds of 1990
_MOST, _SOME = 0.9, 0.01  # shares of the time stamps that decide for a unit, and against all others
_EPOCHS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_CALENDARS = {"yyyymmdd": ("%Y%m%d", 10**6), "yyyymmddhh": ("%Y%m%d%H", 10**8),
              "yyyymmddhhmm": ("%Y%m%d%H%M", 10**10), "yyyymmddhhmmss": ("%Y%m%d%H%M%S", 10**12)}
UNITS = ("auto", *_EPOCHS, "d", *_CALENDARS)


@dataclasses.dataclass(frozen=True)
class Clock:
    """Where and when times are read.

    Attributes:
      offset: seconds that local time is ahead of UTC.
      latest: the last second that a click may have.
      horizon: the last second that is likely, by which units are told.
    """
    offset: int
    latest: int
    horizon: int


def convert(raw: pl.Series, unit: str, offset: int) -> pl.Series:
    """Numbers [N] in a unit -> int64 seconds since 1970, null where a number is no date."""
    if unit == "d":
        return raw.to_frame("raw").select(pl.when(pl.col("raw").abs() < 10**9).then(pl.col("raw") * 86_400 - offset)
                                          ).to_series().alias(raw.name)
    if unit in _EPOCHS:
        return raw // _EPOCHS[unit]
    pattern, _ = _CALENDARS[unit]
    digits = raw.cast(pl.String)
    if "%M" not in pattern and "%H" in pattern:  # an hour alone is not read
        digits, pattern = digits + "00", pattern + "%M"
    return digits.str.to_datetime(pattern, strict=False, time_unit="us").dt.epoch("s") - offset


def tally(raw: pl.Series, clock: Clock) -> Tally:
    """What numeric time stamps [N] say about their unit; tallies of parts of a log add up.

    Returns:
      Sums: `positive`; by unit, "fits UNIT": how many it makes times between 1980 and the latest that is likely, and for
      digits of dates "within UNIT": how many have as many. Lowest: `positive`, "fits UNIT"; highest: `any`.
    """
    positive = raw.filter(raw > 0)
    sums, lowest = dict(positive=len(positive)), dict(positive=positive.min())
    for unit, scale in _EPOCHS.items():
        first = PLAUSIBLE_SECOND if unit in ("s", "ms") else _FINE_PLAUSIBLE
        if first * scale < 2**63 and clock.horizon * scale >= first * scale:
            fit = positive.filter(positive.is_between(first * scale, min(clock.horizon * scale + scale - 1, 2**63 - 1)))
            sums[f"fits {unit}"], lowest[f"fits {unit}"] = len(fit), fit.min()
    last_year = datetime.datetime.fromtimestamp(clock.horizon, datetime.timezone.utc).year
    for unit, (_, year) in _CALENDARS.items():
        within = positive.filter(positive.is_between(1980 * year // 100, (last_year + 1) * year // 100))
        fit = within.filter(convert(within, unit, clock.offset).is_not_null())
        sums |= {f"within {unit}": len(within), f"fits {unit}": len(fit)}
        lowest[f"fits {unit}"] = fit.min()
    return tally_lib.tally(sums, lowest, dict(any=raw.max()))


def plausible(tallied: Tally) -> dict[str, float]:
    """Unit -> share of the positive numbers that it makes a time between 1980 and the latest allowed, if any."""
    positive, shares = tallied.count("positive"), {}
    for unit in UNITS:
        fits, within = tallied.count(f"fits {unit}"), tallied.count(f"within {unit}")
        if fits and (unit not in _CALENDARS or within >= _MOST * positive):
            shares[unit] = fits / positive
    return shares


def tell(tallied: Tally, path: str, clock: Clock) -> str:
    """The unit of time stamps; "s" where none is evident.

    Raises:
      DataError: they are of several units, or may be of more than one.
    """
    shares = plausible(tallied)
    likely = [unit for unit, share in shares.items() if share >= _MOST]
    mixed = [unit for unit, share in shares.items() if share >= _SOME]
    if len(likely) > 1:
        raise DataError(f"{path}: its time stamps, such as {tallied.highest['any']}, may be {' or '.join(likely)}: say "
                        "which by --timestamp_unit")
    if likely:
        return likely[0]
    if len(mixed) > 1:
        example = {unit: tallied.lowest[f"fits {unit}"] for unit in mixed}
        raise DataError(f"{path} has time stamps of several units: "
                        + ", ".join(f"{shares[unit]:.0%} look like {unit} ({example[unit]})" for unit in mixed)
                        + ": bring them into one, or set --timestamp_unit if it is one")
    return mixed[0] if mixed and shares[mixed[0]] >= 0.5 else "s"


def better(tallied: Tally, unit: str) -> Optional[str]:
    """Another unit that most time stamps fit where the given one fits few."""
    shares = plausible(tallied)
    if unit == "d" or shares.get(unit, 0.0) >= 0.5:
        return None
    return next((other for other, share in shares.items() if share >= _MOST), None)


def settled(tallied: Tally, unit: str, path: str, clock: Clock) -> str:
    """The unit that time stamps are read in: the given one, or for "auto" the one that `tell` finds.

    Raises:
      DataError: the unit is not evident, or is given and evidently another.
    """
    if unit == "auto":
        unit = tell(tallied, path, clock)
        if unit != "s":
            logging.info("%s: time stamps such as %d are read as %s (--timestamp_unit)", path, tallied.highest["any"],
                         unit)
    elif other := better(tallied, unit):
        example = tallied.lowest["positive"]
        was, would = (_shown_or_beyond(convert(pl.Series([example]), name, clock.offset)[0]) for name in (unit, other))
        raise DataError(f"{path}: --timestamp_unit={unit} makes {example} the time {was}; as {other} it would be "
                        f"{would}: give --timestamp_unit={other}, or leave the flag out")
    return unit


def _shown_or_beyond(seconds: Optional[int]) -> str:
    """A time for messages, which may be none."""
    try:
        return "that is none" if seconds is None else shown(seconds, 0.0)
    except (ValueError, OverflowError, OSError):
        return "of a year beyond 9999"


def shown(seconds: Optional[int], utc_offset: float) -> Optional[str]:
    """An ISO date-time in local time, for reports."""
    if seconds is None:
        return None
    zone = datetime.timezone(datetime.timedelta(hours=utc_offset))
    return datetime.datetime.fromtimestamp(int(seconds), zone).isoformat()
