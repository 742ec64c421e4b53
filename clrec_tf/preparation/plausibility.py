"""Whether a log looks like one: the figures that a data engineer would ask for, and warnings with what to do.

Nothing is refused here. What is wrong for certain is an error where it is read; this is about what is only strange,
such as one user with a third of all clicks.

Letters: N clicks, U users, V items.
"""
import dataclasses
import statistics
from typing import Optional

import numpy as np
import polars as pl

from clrec_tf.preparation import placeholders
from clrec_tf.preparation.splits import Clicks
from clrec_tf.preparation.splits import DAY
from clrec_tf.preparation.vocabulary import integers
from clrec_tf.settings.data import PrepareConfig
from clrec_tf.tabular_files import times

LARGEST_SHARE = 0.1  # of all clicks that one user or one item may have,
TIMES_THE_MEAN = 5  # and where there are few of them, this many times the mean
EQUAL_TIMES = 0.2  # share of clicks at the same second as another of their user
EARLIEST = 366 * DAY  # later than 1970, which is where wrong units and zeros end up
OUTLIERS, STRETCHED = 0.001, 0.5  # the last of all clicks, and the part of the span that they may take up
SMALLEST_PART = 0.001  # of the users
LARGE_VALUE = 1e3  # of a dense vector; the towers begin with values below 1
FEW_ITEMS = 0.5  # share of the items that a feature should be known of
TOO_SHORT = 0.5  # share of the users that may be too short to train on
MANY_BAD = 0.05  # of the rows
FEW_KEPT = 0.05  # of the impressions that name a user
FEW_ODD = 0.05  # share of ids that are no integers among those that are


@dataclasses.dataclass(frozen=True)
class Seen:
    """What the figures of a log's clicks are made of.

    Attributes:
      per_user, per_item: [U] and [V] clicks, by number.
      seconds: [S] distinct time stamps, ascending; None without time stamps.
      at_second: [S] clicks of each.
      together: clicks at the same second as another of their user.
    """
    per_user: np.ndarray
    per_item: np.ndarray
    seconds: Optional[np.ndarray] = None
    at_second: Optional[np.ndarray] = None
    together: int = 0


def at_equal_times(clicks: Clicks) -> int:
    """Clicks at the same second as another of their user."""
    same = (np.diff(clicks.user) == 0) & (np.diff(clicks.timestamp) == 0) & (clicks.timestamp[1:] > 0)
    return int((np.append(False, same) | np.append(same, False)).sum())


def of_clicks(found: Seen, users: pl.Series, items: pl.Series, now: float, utc_offset: float) -> dict:
    """Figures of the clicks as read and filtered.

    Args:
      found: see there.
      users, items: original ids [U] and [V] by number.
      now: seconds.
      utc_offset: hours, for dates.
    """
    odd = items.filter(~integers(items))
    figures = dict(
        users=len(found.per_user), items=len(found.per_item),
        median_clicks_per_user=statistics.median_low(found.per_user.tolist()),
        heaviest_user=_heaviest(found.per_user, users), heaviest_item=_heaviest(found.per_item, items),
        ids=dict(type="string" if len(odd) else "int", no_integers=len(odd), such_as=odd.head(3).to_list())
        | placeholders.among(users, items))
    if found.seconds is None:
        return figures
    clicks, known = int(found.at_second.sum()), found.seconds > 0
    seconds, counts = found.seconds[known], found.at_second[known]
    figures |= dict(unknown_times=clicks - int(counts.sum()), equal_times=round(found.together / clicks, 4),
                    whole_days=bool(len(seconds)) and not ((seconds + round(utc_offset * 3600)) % DAY).any())
    if len(seconds):
        last, rank = seconds[-1], int(np.ceil((1 - OUTLIERS) * counts.sum())) - 1
        usual = seconds[np.searchsorted(np.cumsum(counts), rank, side="right")]
        shown = lambda second: times.shown(int(second), utc_offset)
        figures |= dict(
            first=shown(seconds[0]), last=shown(last), days=round(float(last - seconds[0]) / DAY, 2),
            most_until=shown(usual), stretched=round(float(last - usual) / max(float(last - seconds[0]), 1.0), 4),
            in_1970=int(counts[seconds < EARLIEST].sum()), in_the_future=int(counts[seconds > now + DAY].sum()))
    return figures


def _heaviest(counts, ids):
    number = int(counts.argmax())
    return dict(id=ids[number], clicks=int(counts[number]), share=round(float(counts[number] / counts.sum()), 4))


def complete(report: dict, lines: Optional[int], largest: Optional[float]) -> dict:
    """All figures of a report that `assemble` made: rows, those of `of_clicks`, parts and features.

    Args:
      report: with those of `of_clicks` as `plausibility`.
      lines: of the files below their headers; None where rows are not lines. That quotes swallow none is seen to where
        the log is read.
      largest: absolute value in dense vectors; None without any.
    """
    rows = {} if lines is None else dict(lines=lines)
    dropped = dict(bad_rows=report["bad_rows"], **{
        name: value for name, value in report.items() if name.startswith("dropped") and isinstance(value, int)})
    parts = {name: _part(report, name, clicks) for name, clicks in (
        ("train", "clicks"), ("valid", "targets"), ("test", "targets"))}
    features = report["features"] | ({"dense": report["dense"]} if "dense" in report else {})
    known = {name: round(1 - feature["items_without"] / report["vocabulary"], 4) for name, feature in features.items()}
    dense = {} if largest is None else dict(largest_dense_value=largest)
    return dict(**rows, rows=report["rows"], dropped={name: value for name, value in dropped.items() if value},
                **report["plausibility"], not_trained_on=report["dropped_short_training"], parts=parts,
                items_with_feature=known, **dense)


def add(report: dict, lines: Optional[int], largest: Optional[float], settings: PrepareConfig) -> None:
    """Closes a report with `plausibility`, all its figures, and `warnings`. Args: see `complete`."""
    whole_lines = settings.format not in ("sequence_per_user", "lists")  # else a line is a user, a row one click
    figures = complete(report, lines if whole_lines else None, largest)
    del report["plausibility"]  # so that it comes last
    warnings = warnings_of(figures, settings)
    report.update(plausibility=figures, warnings=[*warnings, *_of_impressions(report.get("impressions"))])


def _part(report, name, clicks):
    part = report[name]
    return dict(sequences=part["sequences"], share_of_users=round(part["sequences"] / report["users"], 4),
                share_of_clicks=round(part[clicks] / report["clicks"], 4))


def warnings_of(figures: dict, settings: PrepareConfig) -> list[str]:
    """Sentences about figures of `complete` that are out of line, each with what to do."""
    return [*_of_rows(figures), *_of_counts(figures, settings), *_of_ids(figures), *_of_times(figures, settings),
            *_of_parts(figures, settings), *_of_features(figures)]


def _of_rows(figures):
    bad = figures["dropped"].get("bad_rows", 0)
    if bad > MANY_BAD * figures["rows"]:
        yield (f"{bad:,} of {figures['rows']:,} rows are bad and were left out: bad_row_examples says why; if they are "
               "of one kind, such as visitors without an id, see whether the rest can stand for all")


def _of_counts(figures, settings):
    for name, number, column in (("user", figures["users"], settings.user_column),
                                 ("item", figures["items"], settings.item_column)):
        heaviest = figures[f"heaviest_{name}"]
        if heaviest["share"] > max(LARGEST_SHARE, TIMES_THE_MEAN / number):
            yield (f"{name} {heaviest['id']!r} has {heaviest['share']:.1%} of all clicks: if the id stands for a "
                   f"missing {name}, a robot or a test account, take its rows out of the log; else see whether "
                   f"{column!r} is the column of the {name}")
    short = figures["not_trained_on"]["users"]
    if figures["median_clicks_per_user"] <= 1:
        yield (f"half of the {figures['users']:,} users have one click, from which nothing can be learned: if the ids "
               "are those of visits, give the column of persons in --user_column, or a log of a longer time")
    elif short > TOO_SHORT * figures["users"]:
        yield (f"{short:,} of {figures['users']:,} users are not trained on, since they have fewer than "
               f"--min_train_length={settings.min_train_length} training clicks: lower it (2 is the least that "
               "teaches anything)")


def _of_ids(figures):
    for name in ("user", "item"):
        if words := figures["ids"].get(f"{name}s_like_missing"):
            yield (f"{name} ids such as {', '.join(map(repr, words))} read like words for a missing {name}: if they "
                   "are, add them to --null_values")
    odd = figures["ids"]["no_integers"]
    if 0 < odd <= FEW_ODD * figures["items"]:
        yield (f"{odd:,} of {figures['items']:,} item ids are no integers, such as "
               f"{', '.join(map(repr, figures['ids']['such_as']))}, which makes all ids strings: if these are "
               "mistakes, take their rows out of the log")


def _of_times(figures, settings):
    unit = "check --timestamp_column and --timestamp_unit"
    if figures.get("in_1970"):
        yield f"{figures['in_1970']:,} clicks are of 1970: {unit}, or leave them out with --from"
    if figures.get("in_the_future"):
        yield (f"{figures['in_the_future']:,} clicks lie in the future, the last at {figures['last']}: {unit}, or "
               "leave them out with --to")
    elif figures.get("stretched", 0) > STRETCHED and figures["days"] > 1:
        yield (f"{1 - OUTLIERS:.1%} of the clicks lie before {figures['most_until']}, but the last is of "
               f"{figures['last']}: if that is wrong, leave such clicks out with --to; {unit}")
    if figures.get("unknown_times"):
        yield (f"{figures['unknown_times']:,} clicks have no time (0 or less), and count as a user's oldest: fill them "
               "in, or take their rows out of the log")
    if figures.get("equal_times", 0) > EQUAL_TIMES:
        dates = ", being dates without a time of day" if figures["whole_days"] else ""
        tested = settings.split == "leave_one_out"
        last = " The last click, which leave_one_out tests on, may be any of them." if tested else ""
        yield (f"{figures['equal_times']:.1%} of the clicks have the same time as another of their user{dates}: among "
               "these the order is that of the file. Make sure that it is the order of clicking, or give finer "
               f"times.{last}")


def _of_parts(figures, settings):
    remedies = dict(
        leave_one_out="a user needs three clicks to be tested, on items that are trained on",
        last_days="see whether an outlier ends the log (--to), or give more days (--test_days, --valid_days)",
        by_user="change --split_quantile or --valid_share")
    unwanted = dict(last_days=not settings.valid_days, by_user=not settings.valid_share, leave_one_out=False)
    for name, part in figures["parts"].items():
        large = part["sequences"] >= max(1, SMALLEST_PART * figures["users"])
        if large or name == "valid" and unwanted[settings.split]:
            continue
        size = f"only {part['sequences']:,}" if part["sequences"] else "none"
        shorter = f", or lower --min_train_length={settings.min_train_length}" if name == "train" else ""
        yield f"the part {name} has {size} of {figures['users']:,} users: {remedies[settings.split]}{shorter}"


def _of_impressions(counts):
    """Args: counts: of `impressions.report_of`, or None."""
    named = counts["rows"] - counts["dropped_without_user"] - counts["bad_rows"] if counts else 0
    if named and counts["kept"] < FEW_KEPT * named:
        yield (f"of {named:,} impressions that name a user only {counts['kept']:,} are kept, which are all that is "
               f"learned from: {counts['dropped_other_users']:,} are of users that are not trained on, "
               f"{counts['dropped_after_training']:,} later than their user's last training click, "
               f"{counts['dropped_other_items']:,} of items outside the vocabulary. See whether ids and times are "
               "written as in the log")


def _of_features(figures):
    for name, share in figures["items_with_feature"].items():
        if share < FEW_ITEMS:
            yield (f"{name} is known of {share:.1%} of the items only: see whether the ids of the file of items are "
                   "written as in the log (leading zeros, spaces, another kind of id), or leave it out")
    if figures.get("largest_dense_value", 0) > LARGE_VALUE:
        yield (f"--dense_features has values up to {figures['largest_dense_value']:.3g}, beside which everything else "
               "that the towers read is lost: scale them to about 1, and look whether a few items are wrong")
