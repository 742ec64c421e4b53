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
    present = frame["event"].drop_nulls().unique().sort().to_list()
    names = {behaviour: _same(behaviour.strip(), present) for behaviour in wanted}
    unknown = sorted(behaviour for behaviour, name in names.items() if name not in present)
    if unknown:
        raise UserError(f"{flag}: {unknown[0]} is not in the log, which has {', '.join(present[:20])}")
    return frame.filter(pl.col("event").is_in(list(names.values())))


def _same(wanted: str, present: list[str]) -> str:
    """The behaviour that is meant: itself, or of truth values and whole numbers the same in other letters."""
    if wanted in present:
        return wanted
    for words in (_TRUE, _FALSE):
        if wanted.lower() in words and {name.lower() for name in present} <= {*_TRUE, *_FALSE}:
            return next((name for name in present if name.lower() in words), wanted)
    without_point, with_point = wanted.removesuffix(".0"), f"{wanted}.0"
    if without_point in present:
        return without_point
    return with_point if with_point in present else wanted
