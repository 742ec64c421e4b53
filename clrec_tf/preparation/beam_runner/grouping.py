"""Clicks by groups of users: filters, the order in which users and items first appear, and the numbers these give."""
import dataclasses
import time
from typing import Iterator, Optional

import numpy as np
import polars as pl

from clrec_tf.data.query_features import CONTEXT
from clrec_tf.preparation import assemble
from clrec_tf.preparation.beam_runner.facts import first_to_say
from clrec_tf.preparation.beam_runner.facts import PLACE
from clrec_tf.preparation.beam_runner.job import Job
from clrec_tf.preparation.beam_runner.reading import Checked
from clrec_tf.preparation.beam_runner.steps import Fact
from clrec_tf.preparation import events
from clrec_tf.preparation import numbered_log
from clrec_tf.preparation import plausibility
from clrec_tf.preparation import query_features
from clrec_tf.preparation.query_features import Column
from clrec_tf.preparation import split_rule
from clrec_tf.preparation.split_rule import SplitRule
from clrec_tf.tabular_files.tally import Tally
from clrec_tf.tabular_files.tally import tally
from clrec_tf.tabular_files import times


@dataclasses.dataclass(frozen=True)
class Numbers:
    """Numbers of users, items and entries.

    Attributes:
      checked: see there.
      report: of prepare, so far.
      clicks: how many there are.
      users: original ids by number.
      places: [users] place of each user's first click, ascending.
      items: by number: item, title and f:<feature>.
      kinds: number of each behaviour that has a weight; None without --event_weights.
      entries: of each context column its distinct entries, in the order in which they first appear.
      columns: their codes.
      rule: of the split.
    """
    checked: Checked
    report: dict
    clicks: int
    users: pl.Series
    places: np.ndarray
    items: pl.DataFrame
    kinds: Optional[dict[str, int]]
    entries: tuple[pl.Series, ...]
    columns: tuple[Column, ...]
    rule: SplitRule


def group(job: Job, element: tuple[int, list[pl.DataFrame]], checked: Checked) -> Iterator:
    """(group of users, all their rows) -> (group, the rows that stay, in order), and facts about users and items."""
    number, frames = element
    frame, dropped = _filtered(pl.concat(frames).sort(PLACE), job, checked)
    yield Fact("tally filtered", dropped)
    if frame.is_empty():
        return
    timed = "timestamp" in frame.columns
    if "event" in frame.columns:
        yield Fact("counts behaviours", frame.group_by("event").agg(count=pl.len()))
    for name in (name for name in frame.columns if name.startswith("c:")):
        yield Fact(f"counts entries of {name}", frame.group_by(name).agg(pl.col(PLACE).min()))
    last = [pl.col("timestamp").max().alias("last")] if timed else []
    yield Fact("rows users", frame.group_by("user").agg(pl.col(PLACE).min(), pl.len().alias("clicks"), *last))
    yield Fact("counts items", frame.group_by("item").agg(pl.col(PLACE).min(), count=pl.len()))
    said = [name for name in frame.columns if name in ("item", PLACE, "timestamp", "order", "title")
            or name.startswith("f:")]
    yield Fact("first items", first_to_say(frame.select(said)))
    if timed:
        users, items = (frame[name].unique(maintain_order=True) for name in ("user", "item"))
        clicks = numbered_log.clicks_of(frame.drop(PLACE), users, items)
        yield Fact("tally times", tally(dict(together=plausibility.at_equal_times(clicks))))
        yield Fact("counts seconds", frame.group_by(second="timestamp").agg(count=pl.len()))
    yield number, frame


def _filtered(frame: pl.DataFrame, job: Job, checked: Checked) -> tuple[pl.DataFrame, Tally]:
    """Rows of --keep_events between --from and --to, and how many were dropped."""
    rows, between = len(frame), times.between(job.settings, checked.form.head is not None)
    if checked.kept_events is not None:
        frame = frame.filter(pl.col("event").is_in(checked.kept_events))
    sums, extremes = dict(by_events=rows - len(frame)), (dict(), dict())
    if checked.form.head is not None:
        earliest, rows = frame["timestamp"].filter(frame["timestamp"] > 0).min(), len(frame)
        frame = frame if between is None else frame.filter(between)
        sums["by_time"] = rows - len(frame)
        extremes = dict(known=earliest, first=frame["timestamp"].min()), dict(last=frame["timestamp"].max())
    return frame, tally(dict(sums, clicks=len(frame)), *extremes)


def settle_numbers(job: Job, facts: dict, checked: Checked) -> Numbers:
    """Numbers in the order of first appearance, and figures of all clicks. Holds users and items, and no click."""
    settings, report, found = job.settings, dict(checked.report), facts["tally filtered"]
    if checked.kept_events is not None:
        report["dropped_by_keep_events"] = found.count("by_events")
    timed = checked.form.head is not None
    if times.between(settings, timed) is not None:
        times.check_bounds(settings, found.lowest.get("known"))
        report["dropped_by_time"] = found.count("by_time")
    assemble.check_remains(found.count("clicks"), report)
    if timed:
        report.update(first_click=times.shown(found.lowest["first"], settings.utc_offset),
                      last_click=times.shown(found.highest["last"], settings.utc_offset))
    kinds = _kinds(job, facts, report)
    entries, columns = _context(job, facts)
    users, items = (facts[f"{rule}"].sort(PLACE) for rule in ("rows users", "counts items"))
    said = facts["first items"].sort(PLACE)
    said = said.with_columns(numbered_log.numbers_of(said["item"], items["item"]))
    described = numbered_log.described([said], items["item"], checked.form.of_file.features, settings)
    report["plausibility"] = plausibility.of_clicks(
        _seen(users, items, facts, timed), users["user"], items["item"], time.time(), settings.utc_offset)
    rule = split_rule.of_log(users["last"].to_numpy() if timed else None, settings, job.seed)
    return Numbers(checked, report, found.count("clicks"), users["user"], users[PLACE].to_numpy(), described,
                   kinds, entries, columns, rule)


def _seen(users, items, facts, timed) -> plausibility.Seen:
    counts = users["clicks"].to_numpy().astype(np.int64), items["count"].to_numpy().astype(np.int64)
    if not timed:
        return plausibility.Seen(*counts)
    seconds = facts["counts seconds"].sort("second")
    return plausibility.Seen(*counts, seconds["second"].to_numpy(), seconds["count"].to_numpy().astype(np.int64),
                             facts["tally times"].count("together"))


def _kinds(job: Job, facts: dict, report: dict) -> Optional[dict[str, int]]:
    """Numbers of behaviours, whose counts go into the report."""
    weights, present = events.weights_of(job.settings.event_weights), None
    if "counts behaviours" in facts:
        present = events.present(facts["counts behaviours"]["event"])
        report["events"] = events.in_order(facts["counts behaviours"])
    if not weights:
        return None
    return events.numbered(weights, present, f"--event_weights={','.join(job.settings.event_weights)}")


def _context(job: Job, facts: dict) -> tuple[tuple[pl.Series, ...], tuple[Column, ...]]:
    """Entries of --context_columns and their codes."""
    settings, entries, columns = job.settings, [], []
    names = [name.removeprefix("counts entries of ") for name in facts if name.startswith("counts entries of ")]
    for name, kind in query_features.context_kinds(settings, names).items():
        found = facts[f"counts entries of c:{name}"].sort(PLACE)[f"c:{name}"]
        entries.append(found)
        columns.append(query_features.column(name, CONTEXT, kind, found, settings,
                                             f"{settings.input}: column {name!r}"))
    return tuple(entries), tuple(columns)
