"""The log of everything that was shown, clicked or not, in the ids of a data set."""
import dataclasses
import functools

import numpy as np
import polars as pl

from clrec_tf.data.impression_columns import is_served_log
from clrec_tf.data.impression_columns import ITEM
from clrec_tf.data.impression_columns import TIME
from clrec_tf.data.impression_columns import USER
from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.preparation import logs
from clrec_tf.preparation.splits import Clicks
from clrec_tf.settings.data import PrepareConfig
from clrec_tf.tabular_files import file_sets
from clrec_tf.tabular_files import frames
from clrec_tf.tabular_files import times


def exposures_of_log(settings: PrepareConfig, users: pl.Series, items: pl.Series, item_id: np.ndarray, clicks: Clicks,
                     report: dict) -> np.ndarray:
    """What was shown to users while they made their training clicks.

    Args:
      settings: `impressions` names the log: one that the server wrote, or one with the columns of format "columns".
      users: [users] original ids, by the numbers in `clicks`.
      items: [items of the log] original ids.
      item_id: [items of the log] id in the vocabulary or a hash bucket, 0 = outside.
      clicks: those trained on. A user's impressions after the last of them, like its held-out clicks, stay out.
      report: gets the counts under "impressions".

    Returns:
      int32 [N,2] in order of time, the file's among equal times: item id of the user's last training click before (0:
      none), item id shown. Items that have no id are left out, and what was shown before --from.

    Raises:
      UserError: no file, or no time stamps; DataError: bad rows, or nothing that is known.
    """
    log, nameless = _read(settings)
    numbers = pl.DataFrame({"user": users}).with_row_index("number").cast({"number": pl.Int32})
    ids = pl.DataFrame({"item": items, "shown": item_id.astype(np.int32)}).filter(pl.col("shown") > 0)
    trained = pl.DataFrame({"number": clicks.user, "timestamp": clicks.timestamp,
                            "after": item_id[clicks.item].astype(np.int32)}).sort("timestamp", maintain_order=True)
    last = trained.group_by("number").agg(pl.col("timestamp").max().alias("last"))
    begin = times.parse_bound("from", settings.from_time, settings.utc_offset)
    join = functools.partial(pl.DataFrame.join, maintain_order="left")  # or the file's order would be lost
    shown, dropped = _narrowed(log.clicks.lazy.select("user", "item", "timestamp").collect(engine="streaming"), dict(
        other_users=lambda rows: join(join(rows, numbers, on="user"), last, on="number"),
        after_training=lambda rows: rows.filter(pl.col("timestamp") <= pl.col("last")),
        by_time=lambda rows: rows if begin is None else rows.filter(pl.col("timestamp") >= begin),
        other_items=lambda rows: join(rows, ids, on="item")))
    if shown.is_empty():
        raise DataError(f"--impressions={settings.impressions}: none of its {log.rows} rows shows an item of the "
                        "vocabulary to a user before that user's last training click: do ids and times match the click "
                        f"log's? It has {_such_as(*log.clicks.lazy.select('user', 'item').head(3).collect())}; the "
                        f"click log {_such_as(users, items)}")
    # A click and the impression that led to it may bear one time stamp: only earlier clicks count.
    shown = shown.sort("timestamp", maintain_order=True).join_asof(
        trained.filter(pl.col("after") > 0), on="timestamp", by="number", strategy="backward",
        allow_exact_matches=False, check_sortedness=False)
    report["impressions"] = dict(rows=log.rows + nameless, bad_rows=log.bad_rows,
                                 bad_row_examples=list(log.bad_examples), kept=len(shown), dropped_without_user=nameless, **dropped)
    return shown.select(pl.col("after").fill_null(0), "shown").to_numpy().astype(np.int32)


def _such_as(users: pl.Series, items: pl.Series) -> str:
    """Some ids, for a message."""
    few = lambda ids: ", ".join(map(repr, ids.head(3)))
    return f"users such as {few(users)} and items such as {few(items)}"


def _narrowed(rows: pl.DataFrame, steps: dict) -> tuple[pl.DataFrame, dict[str, int]]:
    """The rows that all steps keep, and how many each dropped."""
    dropped = {}
    for name, step in steps.items():
        before, rows = len(rows), step(rows)
        dropped[f"dropped_{name}"] = before - len(rows)
    return rows, dropped


def _read(settings):
    """The log of what was shown, and how many rows of it were left out because they name no user."""
    path = settings.impressions
    if not file_sets.exists(path):
        raise UserError(f"--impressions={path} does not exist: give the log of what was shown")
    if not settings.timestamp_column:
        raise UserError(f"--impressions={path} needs time stamps, to know what a user had clicked before: give "
                        "--timestamp_column")
    columns = frames.open_table(path, delimiter=settings.delimiter, reading=frames.reading_of(settings)).columns
    served, own_header = is_served_log(columns), settings.columns and settings.user_column in columns
    plain = dataclasses.replace(settings, format="columns", input=path, event_column="", dwell_column="",
                                order_column="", feature_columns=(), multi_feature_columns=(), title_column="",
                                columns=() if own_header or served else settings.columns)
    if served:  # whose columns are called as the server calls them, whatever those of the click log are
        plain = dataclasses.replace(plain, user_column=USER, item_column=ITEM, timestamp_column=TIME,
                                    timestamp_unit="auto", timestamp_format="")
    try:
        source = logs.open_log(plain)
    except UserError as error:  # whose remedies for logs without time stamps or of another format are none here
        text = str(error).split(", or --timestamp_column=")[0]
        text = text.replace("give --format=lists", "give a row per item shown")
        raise UserError(f"--impressions: {text}") from error
    if not served:
        return logs.read_log(source, plain), 0
    named = source.clicks.filter(pl.col("user").is_not_null())
    with frames.readable(path):
        rows, kept = (lazy.select(pl.len()).collect(engine="streaming").item() for lazy in (source.clicks, named))
    if not kept:
        raise DataError(f"--impressions={path}: none of its {rows} rows names a user: send `user_id` with requests, as "
                        "the click log has it")
    return logs.read_log(dataclasses.replace(source, clicks=named), plain), rows - kept
