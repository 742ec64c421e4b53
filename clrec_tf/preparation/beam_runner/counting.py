"""Clicks by number and part, and the tables that their counts make."""
import dataclasses
from typing import Iterator

import numpy as np
import polars as pl

from clrec_tf.data.query_features import CONTEXT
from clrec_tf.data.query_features import USER
from clrec_tf.preparation import assemble
from clrec_tf.preparation.beam_runner.facts import PLACE
from clrec_tf.preparation.beam_runner.grouping import Numbers
from clrec_tf.preparation.beam_runner.job import Job
from clrec_tf.preparation.beam_runner.steps import Fact
from clrec_tf.preparation import dwell
from clrec_tf.preparation import events
from clrec_tf.preparation import impressions
from clrec_tf.preparation.logs import Log
from clrec_tf.preparation import numbered_log
from clrec_tf.preparation import query_features
from clrec_tf.preparation.query_features import Encoded
from clrec_tf.preparation import split_rule
from clrec_tf.preparation.split_log import SplitLog
from clrec_tf.preparation import splits
from clrec_tf.preparation.splits import Clicks
from clrec_tf.preparation import tables as tables_lib
from clrec_tf.preparation.tables import Counts
from clrec_tf.preparation.tables import Tables
from clrec_tf.preparation import user_features
from clrec_tf.tabular_files.tally import tally


@dataclasses.dataclass(frozen=True)
class Group:
    """The clicks of some users.

    Attributes:
      clicks: N clicks by user, numbered from 0 in this group; `context` is the entry of each context column.
      users: [U] their numbers in the log.
      part: [N] part of each click.
      mask: [N], which are trained on.
    """
    clicks: Clicks
    users: np.ndarray
    part: np.ndarray
    mask: np.ndarray


@dataclasses.dataclass(frozen=True)
class Counted:
    """What the counts of all clicks make.

    Attributes:
      tables: of the data set; `query.profile` is of users, and context columns have `entry_rows` instead.
      entry_rows: of each context column, in the order of the schema: [entries, width] int32.
      entry_columns: place of each of them among `Numbers.entries`.
      feature_names: of the items, in the order of the schema.
      users: original ids by number.
      item_ids: original ids of the log's items.
      lines: of the files; None of Parquet.
      report: of prepare, so far.
    """
    tables: Tables
    entry_rows: tuple[np.ndarray, ...]
    entry_columns: tuple[int, ...]
    feature_names: tuple[str, ...]
    users: pl.Series
    item_ids: pl.Series
    lines: int | None
    report: dict

    def context(self, entries: np.ndarray | None) -> np.ndarray | None:
        """Columns of query rows that are of requests [N,·], by the entries of clicks [N,columns]."""
        if not self.entry_rows:
            return None
        return np.concatenate([rows[entries[:, column]] for rows, column in zip(self.entry_rows, self.entry_columns)],
                              axis=1)


def count(job: Job, element: tuple[int, pl.DataFrame], numbers: Numbers) -> Iterator:
    """(group of users, rows) -> (group, `Group`), and counts by item, user and entry."""
    number, frame = element
    settings, first = job.settings, frame.group_by("user").agg(pl.col(PLACE).min()).sort(PLACE)
    users = np.searchsorted(numbers.places, first[PLACE].to_numpy())
    if numbers.kinds is not None:
        frame = frame.with_columns(kind=events.numbers(frame["event"], numbers.kinds))
    entries = _entries(frame, numbers)
    frame = frame.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias("place"))
    clicks = splits.most_recent(numbered_log.clicks_of(frame, first["user"], numbers.items["item"]),
                                settings.max_sequence_length)
    clicks = dataclasses.replace(clicks, context=entries[clicks.context])
    part = numbers.rule.parts(clicks, users)
    mask = splits.training_mask(clicks, part, settings.min_train_length)
    yield from _counts(clicks, part, mask, users, settings)
    yield number, Group(clicks, users, part, mask)


def _entries(frame: pl.DataFrame, numbers: Numbers) -> np.ndarray:
    """Number of each row's entry in each context column, [N,columns] int32."""
    found = np.zeros((len(frame), len(numbers.columns)), np.int32)
    for place, (column, entries) in enumerate(zip(numbers.columns, numbers.entries)):
        name = f"c:{column.name}"
        known = pl.DataFrame({name: entries, "entry": np.arange(len(entries), dtype=np.int32)})
        found[:, place] = frame.select(name).join(known, on=name, how="left", nulls_equal=True,
                                                  maintain_order="left")["entry"].to_numpy()
    return found


def _counts(clicks: Clicks, part, mask, users, settings) -> Iterator[Fact]:
    yield Fact("tally kept", tally(dict(clicks=len(clicks.user))) + split_rule.counts(part))
    trained = pl.Series("learned", mask.astype(np.int64))
    last = [pl.Series("last", clicks.timestamp)] if clicks.timestamp is not None else []
    rows = pl.DataFrame([pl.Series("item", clicks.item), trained, *last])
    yield Fact("counts training", rows.group_by("item").agg(
        pl.col("learned").sum(), *(pl.col("last").max() for _ in last)))
    yield Fact("rows trained users", pl.DataFrame({"user": users, "count": np.bincount(
        clicks.user, weights=mask, minlength=len(users)).astype(np.int64)}))
    if clicks.dwell is not None:
        yield Fact("counts dwell", pl.DataFrame({"seconds": clicks.dwell}).group_by("seconds").agg(count=pl.len()))
    for days in split_rule.days_of(clicks.timestamp, settings):
        yield Fact("counts kept days", days)
    for column in range(clicks.context.shape[1]):
        yield Fact(f"counts of entries {column}", pl.DataFrame([pl.Series("entry", clicks.context[:, column]), trained]
                                                              ).group_by("entry").agg(pl.col("learned").sum(),
                                                                                      count=pl.len()))


def settle_tables(job: Job, facts: dict, numbers: Numbers) -> Counted:
    """Vocabularies, features and the schema. Holds users, items and their counts, and no click."""
    settings, report, kept = job.settings, dict(numbers.report), facts["tally kept"]
    clicks = kept.count("clicks")
    report.update(dropped_beyond_max_sequence_length=numbers.clicks - clicks, clicks=clicks, users=len(numbers.users),
                  items=len(numbers.items))
    if "counts dwell" in facts:
        seconds = facts["counts dwell"].sort("seconds")
        report["dwell"] = dwell.summary(seconds["seconds"].to_numpy(), seconds["count"].to_numpy().astype(np.int64))
    days = split_rule.by_day([facts["counts kept days"]] if "counts kept days" in facts else [])
    split_rule.check(numbers.rule, kept, len(numbers.users), *days, report)
    columns = [*user_features.read(numbers.users, settings), *_repeated(numbers, facts)]
    form = numbers.checked.form.of_file
    log = Log(None, form.features, form.others, job.items, 0, 0, ())
    log = SplitLog(None, None, numbers.users,
                   *assemble.items_of(log, numbers.items, numbers.rule.latest, settings, report),
                   query_columns=tuple(columns))
    counts = _training(facts, numbers, len(log.items), "counts dwell" in facts)
    query, rows, places = _query(log, counts, numbers, facts, settings)
    tables = tables_lib.tables_of(log, counts, query, settings, job.identity, report)
    impressions.check_timed(settings, counts.last_click is not None)
    return Counted(tables, rows, places, tuple(log.features), numbers.users, log.items["item"],
                   numbers.checked.form.lines, report)


def _repeated(numbers: Numbers, facts: dict) -> Iterator[query_features.Column]:
    """Context columns, each of whose codes stands for as many clicks as have its entry."""
    for place, column in enumerate(numbers.columns):
        yield dataclasses.replace(column, repeats=_of_entries(facts, place, len(column.codes), "count"))


def _of_entries(facts: dict, place: int, size: int, name: str) -> np.ndarray:
    found, counts = facts[f"counts of entries {place}"], np.zeros(size, np.int64)
    counts[found["entry"].to_numpy()] = found[name].to_numpy()
    return counts


def _training(facts: dict, numbers: Numbers, size: int, has_dwell: bool) -> Counts:
    found, users = facts["counts training"], facts["rows trained users"].sort("user")
    of_items, last_click = np.zeros(size, np.int64), None
    of_items[found["item"].to_numpy()] = found["learned"].to_numpy()
    if "last" in found.columns:
        last_click = np.full(len(numbers.items), -1, np.int64)
        last_click[found["item"].to_numpy()] = found["last"].to_numpy()
        last_click = np.maximum(last_click, -1)
    return Counts(of_items, users["count"].to_numpy().astype(float), last_click, has_dwell)


def _query(log: SplitLog, counts: Counts, numbers: Numbers, facts: dict, settings
           ) -> tuple[Encoded, tuple[np.ndarray, ...], tuple[int, ...]]:
    """Features of users and requests, and of the latter the rows of entries and the places of their columns."""
    context = {column.name: place for place, column in enumerate(numbers.columns)}
    weights = [counts.of_users if column.source == USER else
               _of_entries(facts, context[column.name], len(column.codes), "learned").astype(float)
               for column in log.query_columns]
    query, rows = query_features.encode_each(log.query_columns, weights, log.earlier, settings)
    return query, rows, tuple(context[feature.name] for feature in query.features if feature.source == CONTEXT)
