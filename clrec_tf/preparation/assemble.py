"""A log -> a data set: filters, numbers, parts, features of items, and the report about them."""
from typing import Optional

import polars as pl

from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.preparation import context_entries
from clrec_tf.preparation.data_set import data_set_of
from clrec_tf.preparation.data_set import Dataset
from clrec_tf.preparation import earlier_vocabulary
from clrec_tf.preparation import events
from clrec_tf.preparation import item_features
from clrec_tf.preparation.item_features import ItemTable
from clrec_tf.preparation.logs import Log
from clrec_tf.preparation import numbered_rows
from clrec_tf.preparation.rows import Rows
from clrec_tf.preparation import sorted_log
from clrec_tf.preparation.split_log import SplitLog
from clrec_tf.preparation import split_rule
from clrec_tf.preparation import user_features
from clrec_tf.settings.data import PrepareConfig
from clrec_tf.tabular_files.tally import Tally
from clrec_tf.tabular_files import times


def assemble(log: Log, settings: PrepareConfig, identity: dict) -> Dataset:
    """Everything between reading and writing.

    Args:
      log: as read; its rows are read again and again.
      settings: of the command.
      identity: see `identity_of`; goes into `Schema.settings`.

    Raises:
      UserError: a setting does not fit the log, or nothing remains of it.
    """
    report = dict(rows=log.rows, bad_rows=log.bad_rows, bad_row_examples=list(log.bad_examples))
    report |= dict(ids_are_text_since=log.text_ids) if log.text_ids else {}
    weights = events.weights_of(settings.event_weights)
    rows = _filtered(log.clicks, settings, report)
    behaviours = _behaviours(rows)
    if behaviours is not None:
        report["events"] = events.in_order(behaviours)
    if weights:
        given = f"--event_weights={','.join(settings.event_weights)}"
        names = events.numbered(weights, _present(behaviours), given)
        rows = rows.then(lambda lazy: lazy.with_columns(kind=pl.col("event").map_batches(
            lambda kinds: events.numbers(kinds, names), return_dtype=pl.Int64, is_elementwise=True)))
    context = context_entries.of_log(rows, settings)
    numbered = numbered_rows.number(rows, log.features, context, settings)
    ordered = sorted_log.sort(numbered, settings, report)
    rule = split_rule.of_log(ordered.last, settings, identity["seed"])
    split = SplitLog(ordered.clicks, rule, numbered.users, numbered.items, log.features)
    if settings.split != "leave_one_out":
        parts = sum((split_rule.counts(part) for _, part in split.parts()), Tally())
        split_rule.check(rule, parts, len(numbered.users), *ordered.days, report)
    columns = [*user_features.read(numbered.users, settings), *(entries.column for entries in context)]
    return data_set_of(SplitLog(ordered.clicks, rule, numbered.users,
                                *items_of(log, numbered.items, ordered.newest, settings, report),
                                query_columns=tuple(columns)), settings, identity, report)


def _behaviours(rows: Rows) -> Optional[pl.DataFrame]:
    """`event` and `count` of its clicks, a row for each behaviour; None where the log has none."""
    if "event" not in rows.columns:
        return None
    return rows.lazy.group_by("event").agg(count=pl.len()).collect(engine="streaming")


def _present(behaviours: Optional[pl.DataFrame]) -> Optional[list[str]]:
    return None if behaviours is None else events.present(behaviours["event"])


def items_of(log: Log, items: pl.DataFrame, newest: Optional[int], settings: PrepareConfig, report: dict) -> tuple:
    """All items that may get a number, as `SplitLog` has them: items, features, earlier, numbered.

    Args:
      log: its item file, and names of its columns and features.
      items: that are clicked, with what the log says of them.
      newest: time of the last click; None without time stamps.
      settings: of the command.
      report: gets how many items of --vocabulary_from are known, new, absent and retired.
    """
    tables = [log.items] if log.items else []
    tables += [item_features.read_item_file(settings)] if settings.item_features else []
    joined = lambda items, left=(): _joined(_with_unclicked(items, tables, left, settings), log, tables, settings)
    return _continued(items, newest, joined, settings, report) if settings.vocabulary_from else joined(items)


def _with_unclicked(items: pl.DataFrame, tables: list[ItemTable], left, settings: PrepareConfig) -> pl.DataFrame:
    """The items, and with --vocabulary=catalogue behind them those of the tables that have a feature.

    Args:
      items: with their original ids.
      tables: of item features.
      left: original ids of items that have left the vocabulary.
      settings: of the command.
    """
    if settings.vocabulary != "catalogue":
        return items
    if not tables:
        raise UserError("--vocabulary=catalogue takes the items of --item_features, which is not given: give it, or "
                        "--vocabulary=all for the items of the log")
    if not any(table.features for table in tables):
        raise UserError("--vocabulary=catalogue: items that nobody has clicked are known by their features alone, and none "
                        "is named: give --feature_columns or --multi_feature_columns, or --vocabulary=all")
    known = set(items["item"]) | set(left)
    for table in tables:
        if not table.features:
            continue
        described = [pl.col(f"f:{name}").list.len() > 0 if several else pl.col(f"f:{name}").is_not_null()
                     for name, several in table.features.items()]
        new = table.frame.filter(pl.any_horizontal(described) & ~pl.col("item").is_in(list(known)))["item"]
        items, known = pl.concat([items, pl.DataFrame({"item": new})], how="diagonal"), known | set(new)
    return items


def _continued(items: pl.DataFrame, newest: Optional[int], joined, settings: PrepareConfig, report: dict) -> tuple:
    """The items of the log and of --vocabulary_from, as `SplitLog` has them: items, features, earlier, numbered.

    Args:
      items: of the log.
      newest: time of the last click; None without time stamps.
      joined: (items, original ids of those that have left) -> items with their features, and name -> several values.
      settings: of the command.
      report: gets how many items are known, new, absent and retired.
    """
    earlier = earlier_vocabulary.read(settings.vocabulary_from)
    earlier_vocabulary.check_fits(earlier, items["item"], newest, settings)
    absent = earlier.absent(items["item"])
    retired = earlier_vocabulary.retired(earlier, absent, newest, settings)
    own = len(items)
    items, features = joined(earlier_vocabulary.with_kept(items, earlier, absent & ~retired),
                             earlier.items["item"].filter(retired))
    items = earlier_vocabulary.with_features(items, earlier, features, own)
    numbered = earlier_vocabulary.numbered(earlier, items["item"], retired)
    report["vocabulary_from"] = dict(
        known=len(absent), clicked=int((~absent).sum()), absent=int((absent & ~retired).sum()),
        retired=int(retired.sum()))
    return items, features, earlier, numbered


def _filtered(rows: Rows, settings: PrepareConfig, report: dict) -> Rows:
    """Behaviours of --keep_events between --from and --to."""
    count = report["rows"] - report["bad_rows"]
    if settings.keep_events:
        kept = events.kept(settings.keep_events, _present(_behaviours(rows)))
        rows = rows.then(lambda lazy: lazy.filter(pl.col("event").is_in(kept)))
        report["dropped_by_keep_events"], count = count - (left := rows.count()), left
    between = times.between(settings, "timestamp" in rows.columns)
    if between is not None:
        seconds = pl.col("timestamp")
        times.check_bounds(settings, rows.get(earliest=seconds.filter(seconds > 0).min())["earliest"])
        rows = rows.then(lambda lazy: lazy.filter(between))
        report["dropped_by_time"], count = count - (left := rows.count()), left
    check_remains(count, report)
    if "timestamp" in rows.columns:
        ends = rows.get(first_click=pl.col("timestamp").min(), last_click=pl.col("timestamp").max())
        report.update({name: times.shown(second, settings.utc_offset) for name, second in ends.items()})
    return rows


def check_remains(clicks: int, report: dict) -> None:
    """`DataError` where no click remains; the report says what was dropped."""
    if not clicks:
        raise DataError(f"no click remains of {report['rows']} rows after --keep_events, --from and --to "
                        f"({ {k: v for k, v in report.items() if k.startswith('dropped')} }): loosen them")


def _joined(items: pl.DataFrame, log: Log, item_tables: list[ItemTable],
            settings: PrepareConfig) -> tuple[pl.DataFrame, dict[str, bool]]:
    """Items with the columns of all tables, a later one winning; and name -> several values, of all features."""
    features = dict(log.features)
    for table in item_tables:
        features |= table.features
        item_features.check_match(items["item"], table.frame["item"], table.path)
        again = [name for name in table.frame.columns if name in items.columns and name != "item"]
        items = items.drop(again).join(table.frame, on="item", how="left", maintain_order="left")
    wanted = item_features.declared(settings)
    missing = sorted(set(wanted) - set(features))
    if missing:
        where = " or ".join(dict.fromkeys([settings.input] + [table.path for table in item_tables]))
        columns = sorted({name for table in (log, *item_tables) for name in table.columns})
        raise UserError(f"feature {missing[0]!r} of --feature_columns or --multi_feature_columns is no column of "
                        f"{where}: choose from {', '.join(columns) or 'none, since there are no other columns'}")
    if settings.title_column not in ("", PrepareConfig.title_column) and "title" not in items.columns:
        columns = sorted({name for table in (log, *item_tables) for name in table.columns})
        raise UserError(f"--title_column={settings.title_column} is no column of the log or of --item_features: "
                        f"choose from {', '.join(columns) or 'none, since there are no other columns'}")
    return items, {name: features[name] for name in [*wanted, *(name for name in features if name not in wanted)]}
