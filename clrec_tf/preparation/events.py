"""Behaviours of a log, such as pv and buy, those that are kept, and what each weighs."""
import math
from typing import Sequence

import numpy as np
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


def counts(frame: pl.DataFrame) -> dict[str, int]:
    """How many clicks are of each behaviour, the most frequent first; of those without one under "(none)"."""
    by_kind = frame["event"].fill_null("(none)").value_counts(sort=True)
    return dict(zip(by_kind["event"].to_list(), by_kind["count"].to_list()))


def weights_of(given: Sequence[str]) -> dict[str, float]:
    """--event_weights as behaviour -> weight; `UserError` where an entry is no weight from 0 on."""
    weights = {}
    for text in given:
        kind, _, weight = text.rpartition(":")
        try:
            weights[kind.strip()] = float(weight)
        except ValueError:
            weights[kind.strip()] = math.nan
        if not kind or not 0 <= weights[kind.strip()] < math.inf:
            raise UserError(f"--event_weights={','.join(given)}: {text!r} must be a behaviour and a weight from 0 on, "
                            "such as buy:3")
    if given and not any(weights.values()):
        raise UserError(f"--event_weights={','.join(given)}: a log whose targets all weigh 0 teaches nothing")
    return weights


def numbers(frame: pl.DataFrame, weights: dict[str, float], flag: str) -> np.ndarray:
    """Number of each click's behaviour among the weights, from 1; 0: it has none, which weighs 1. [N] int64.

    Raises:
      UserError: there are no behaviours, one has no weight, or a weight is of none.
    """
    if "event" not in frame.columns:
        raise UserError(f"{flag}: the log has no behaviours; give --event_column, which --format=columns reads, or leave "
                        "--event_weights out")
    present = frame["event"].drop_nulls().unique().sort().to_list()
    names = {_same(kind, present): number for number, kind in enumerate(weights, 1)}
    for kind in present:
        if kind not in names:
            raise UserError(f"{flag}: {kind} has no weight, though the log has it: give it one, or leave it out with "
                            "--keep_events")
    absent = [kind for kind in names if kind not in present]
    if absent:
        raise UserError(f"{flag}: {absent[0]} is not in the log, which has {', '.join(present[:20])}")
    return frame["event"].replace_strict(names, default=0, return_dtype=pl.Int64).fill_null(0).to_numpy()


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
