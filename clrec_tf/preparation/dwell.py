"""Dwell times of logs: whole seconds that a user stayed with an item, `UNKNOWN` where nobody knows."""
from absl import logging
import numpy as np
import polars as pl

UNKNOWN = -1
LONG = 10_000  # seconds; where half of the clicks are longer, they are probably milliseconds


def to_seconds(clicks: pl.LazyFrame) -> pl.Expr:
    """Column `dwell` as int64 seconds rounded down; null where it cannot be read.

    Args:
      clicks: with a column `dwell` of numbers, durations or text. Empty, NaN and negative values are `UNKNOWN`.
    """
    column, dtype = pl.col("dwell"), clicks.collect_schema()["dwell"]
    empty = column.is_null()
    if isinstance(dtype, pl.Duration):
        seconds = column.dt.total_microseconds() / 1_000_000
    elif dtype.is_numeric():
        seconds = column.cast(pl.Float64)
    else:
        text = column.cast(pl.String)
        seconds, empty = text.cast(pl.Float64, strict=False), empty | (text == "")
    whole = pl.when(seconds.is_finite()).then(seconds.floor()).cast(pl.Int64, strict=False)
    unknown = empty | seconds.is_nan() | (seconds < 0)
    return pl.when(unknown).then(pl.lit(UNKNOWN, pl.Int64)).otherwise(whole).alias("dwell")


def summary(seconds: np.ndarray, counts: np.ndarray) -> dict:
    """For the report: how many are known, and their median; warns of what look like no dwell times.

    Args:
      seconds: [S] distinct dwell times, ascending.
      counts: [S], clicks that have each.
    """
    known, total = seconds >= 0, int(counts.sum())
    ends = np.cumsum(counts[known])
    if not len(ends):
        logging.warning("not one of %d dwell times is known: check --dwell_column", total)
        return dict(known_share=0.0)
    middle = seconds[known][np.searchsorted(ends, [(ends[-1] - 1) // 2, ends[-1] // 2], side="right")]
    median = float(middle.mean())
    if median > LONG:
        logging.warning("half of the dwell times are over %d seconds: if they are milliseconds, divide them by 1000 "
                        "before you prepare", median)
    return dict(known_share=round(int(ends[-1]) / total, 6), median_seconds=median)
