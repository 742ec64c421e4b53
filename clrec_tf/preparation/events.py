"""Behaviours of a log, such as pv and buy, those that are kept, and what each weighs."""
import math
from typing import Optional, Sequence

import polars as pl

from clrec_tf.errors import UserError

_TRUE, _FALSE = ("true", "1", "yes"), ("false", "0", "no")


def present(events: pl.Series) -> list[str]:
    """The behaviours of a log, sorted, of its distinct ones, null among them."""
    return events.drop_nulls().sort().to_list()


def kept(wanted: Sequence[str], found: Optional[list[str]]) -> list[str]:
    """The behaviours of a log that are wanted; of truth values, 1 and 0 are known, too.

    Args:
      wanted: --keep_events.
      found: those that are `present`; None without a column of them.

    Raises:
      UserError: there are no behaviours, or one that is wanted is not among them.
    """
    flag = f"--keep_events={','.join(wanted)}"
    if found is None:
        raise UserError(f"{flag}: the log has no behaviours; give --event_column, or leave --keep_events out")
    names = {behaviour: _same(behaviour.strip(), found) for behaviour in wanted}
    unknown = sorted(behaviour for behaviour, name in names.items() if name not in found)
    if unknown:
        raise UserError(f"{flag}: {unknown[0]} is not in the log, which has {', '.join(found[:20])}")
    return list(names.values())


def in_order(found: pl.DataFrame) -> dict[str, int]:
    """Clicks of each behaviour, the most frequent first, equal ones by name; of those without one under "(none)".

    Args:
      found: `event` and `count`, a row for each.
    """
    named = found.select(pl.col("event").fill_null("(none)"), "count").group_by("event").sum()
    return dict(sorted(named.iter_rows(), key=lambda pair: (-pair[1], pair[0])))


def weights_of(given: Sequence[str]) -> dict[str, float]:
    """--event_weights as behaviour -> weight; `UserError` where an entry is no weight from 0 on."""
    weights = {}
    for text in given:
        kind, _, weight = (part.strip() for part in text.rpartition(":"))
        if kind in weights:
            raise UserError(f"--event_weights={','.join(given)} names {kind} twice: give it one weight")
        weights[kind] = _number(weight)
        if not kind or not 0 <= weights[kind] < math.inf:
            raise UserError(f"--event_weights={','.join(given)}: {text!r} must be a behaviour and a weight from 0 on, "
                            "such as buy:3")
    if given and not any(weights.values()):
        raise UserError(f"--event_weights={','.join(given)}: a log whose targets all weigh 0 teaches nothing")
    return weights


def numbered(weights: dict[str, float], found: Optional[list[str]], flag: str) -> dict[str, int]:
    """Number of each behaviour of a log among the weights, from 1; a click without one has 0, which weighs 1.

    Args:
      weights: by behaviour, as given.
      found: those that are `present`; None without a column of them.
      flag: for messages.

    Raises:
      UserError: there are no behaviours, one has no weight, or a weight is of none.
    """
    if found is None:
        raise UserError(f"{flag}: the log has no behaviours; give --event_column, which --format=columns reads, or leave "
                        "--event_weights out")
    names = {}
    for number, kind in enumerate(weights, 1):
        if (name := _same(kind, found)) in names:
            raise UserError(f"{flag} names {name} twice, as {kind} too: give it one weight")
        names[name] = number
    for kind in found:
        if kind not in names:
            raise UserError(f"{flag}: {kind} has no weight, though the log has it: give it one, or leave it out with "
                            "--keep_events")
    absent = [kind for kind in names if kind not in found]
    if absent:
        raise UserError(f"{flag}: {absent[0]} is not in the log, which has {', '.join(found[:20])}")
    return names


def numbers(events: pl.Series, names: dict[str, int]) -> pl.Series:
    """Behaviours [N] by their numbers, int64; 0 where there is none."""
    return events.replace_strict(names, default=0, return_dtype=pl.Int64).fill_null(0)


def _same(wanted: str, present: list[str]) -> str:
    """The behaviour that is meant: itself, or of truth values and numbers the same in other letters."""
    if wanted in present:
        return wanted
    for words in (_TRUE, _FALSE):
        if wanted.lower() in words and {name.lower() for name in present} <= {*_TRUE, *_FALSE}:
            return next((name for name in present if name.lower() in words), wanted)
    return next((name for name in present if _number(name) == _number(wanted)), wanted)


def _number(text: str) -> float:
    """The number that text is; NaN, which equals nothing, of other text."""
    try:
        return float(text)
    except ValueError:
        return math.nan
