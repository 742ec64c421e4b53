"""Behaviours of a log, such as pv and buy, and those that are kept."""
from typing import Sequence

import polars as pl

from clrec_tf.errors import UserError

_TRUE, _FALSE = ("true", "1", "yes"), ("false", "0", "no")


def kept(frame: pl.DataFrame, wanted: Sequence[str]) -> pl.DataFrame:
    """The clicks whose `event` is one of those wanted; a column of truth values takes 1 and 0, too.

    Raises:
      UserError: there are no behaviours, or one that is wanted is not among them.
    """
    flag = f"--keep_events={','.join(wanted)}"
    if "event" not in frame.columns:
        raise UserError(f"{flag}: the log has no behaviours; give --event_column, or leave --keep_events out")
    found = frame["event"].drop_nulls().unique().sort().to_list()
    names = {one: _same(one.strip(), found) for one in wanted}
    unknown = sorted(one for one, name in names.items() if name not in found)
    if unknown:
        raise UserError(f"{flag}: {unknown[0]} is not in the log, which has {', '.join(found[:20])}")
    return frame.filter(pl.col("event").is_in(list(names.values())))


def _same(one: str, found: list[str]) -> str:
    """The behaviour that is meant: itself, or of truth values and whole numbers the same in other letters."""
    if one in found:
        return one
    for words in (_TRUE, _FALSE):
        if one.lower() in words and {name.lower() for name in found} <= {*_TRUE, *_FALSE}:
            return next((name for name in found if name.lower() in words), one)
    return one.removesuffix(".0") if one.removesuffix(".0") in found else f"{one}.0" if f"{one}.0" in found else one
