"""What users were shown, clicked or not, in the ids of a data set."""
import functools
from typing import Iterable, Optional

import numpy as np
import polars as pl

from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.preparation import impression_source
from clrec_tf.preparation import logs
from clrec_tf.preparation.splits import Clicks
from clrec_tf.settings.data import PrepareConfig
from clrec_tf.tabular_files.tally import Tally
from clrec_tf.tabular_files.tally import tally
from clrec_tf.tabular_files import times

_STEPS = ("other_users", "after_training", "by_time", "other_items")  # each of which drops rows


def exposures_of_log(settings: PrepareConfig, users: pl.Series, items: pl.Series, item_id: np.ndarray, clicks: Clicks,
                     report: dict) -> np.ndarray:
    """What was shown to users while they made their training clicks.

    Args:
      settings: `impressions` names the log: one that the server wrote, or one with the columns of format "columns".
      users, items, item_id, clicks: of all users, see `exposed`.
      report: gets the counts under "impressions".

    Returns:
      int32 [N,2] in order of time, the file's among equal times: `after` and `shown` of `exposed`.

    Raises:
      UserError: no file, or no time stamps; DataError: bad rows, or nothing that is known.
    """
    found = impression_source.open_impressions(settings)
    impression_source.check_named(found.rows, found.named, settings.impressions)
    log = logs.read_log(found.source, found.settings)
    rows = log.clicks.lazy.select("user", "item", "timestamp")
    shown, counts = exposed(rows.collect(engine="streaming"), users, items, item_id, clicks, first_second(settings))
    check_any(counts, log.rows, rows.head(3).collect(), users, items, settings.impressions)
    report["impressions"] = report_of(counts, log.rows, log.bad_rows, log.bad_examples, found.rows - found.named)
    return pairs(shown)


def check_timed(settings: PrepareConfig, timed: bool) -> None:
    """`UserError` where there are impressions and the click log has no time stamps."""
    if settings.impressions and not timed:
        raise UserError(f"--impressions={settings.impressions} needs a click log with time stamps, and "
                        "--timestamp_column")


def first_second(settings: PrepareConfig) -> Optional[int]:
    """--from in seconds; None without."""
    return times.parse_bound("from", settings.from_time, settings.utc_offset)


def exposed(shown: pl.DataFrame, users: pl.Series, items: pl.Series, item_id: np.ndarray, clicks: Clicks,
            begin: Optional[int]) -> tuple[pl.DataFrame, Tally]:
    """What was shown to some users while they made their training clicks.

    Args:
      shown: user, item and timestamp of the impressions, in the order of the file; other columns stay.
      users: [users] original ids, by the numbers in `clicks`.
      items: [items of the log] original ids.
      item_id: [items of the log] id in the vocabulary or a hash bucket, 0 = outside.
      clicks: those trained on. A user's impressions after the last of them, like its held-out clicks, stay out.
      begin: seconds; what was shown before stays out. None: nothing does.

    Returns:
      Rows in order of time, the file's among equal times: beside those of `shown` the columns `after`, item id of the
      user's last training click before (0: none), and `shown`, item id shown. Items that have no id are left out.
      And how many rows were `kept`, and dropped by each step.
    """
    numbers = pl.DataFrame({"user": users}).with_row_index("number").cast({"number": pl.Int32})
    ids = pl.DataFrame({"item": items, "shown": item_id.astype(np.int32)}).filter(pl.col("shown") > 0)
    trained = pl.DataFrame({"number": clicks.user.astype(np.int32), "timestamp": clicks.timestamp,
                            "after": item_id[clicks.item].astype(np.int32)}).sort("timestamp", maintain_order=True)
    last = trained.group_by("number").agg(pl.col("timestamp").max().alias("last"))
    join = functools.partial(pl.DataFrame.join, maintain_order="left")  # or the file's order would be lost
    steps = dict(zip(_STEPS, (
        lambda rows: join(join(rows, numbers, on="user"), last, on="number"),
        lambda rows: rows.filter(pl.col("timestamp") <= pl.col("last")),
        lambda rows: rows if begin is None else rows.filter(pl.col("timestamp") >= begin),
        lambda rows: join(rows, ids, on="item"))))
    dropped = {}
    for name, step in steps.items():
        before, shown = len(shown), step(shown)
        dropped[name] = before - len(shown)
    # A click and the impression that led to it may bear one time stamp: only earlier clicks count.
    after = shown.sort("timestamp", maintain_order=True).join_asof(
        trained.filter(pl.col("after") > 0), on="timestamp", by="number", strategy="backward",
        allow_exact_matches=False, check_sortedness=False)
    return after.with_columns(pl.col("after").fill_null(0)), tally(dict(dropped, kept=len(after)))


def pairs(shown: pl.DataFrame) -> np.ndarray:
    """int32 [N,2], column after column in memory and so in files: `after` and `shown` of `exposed`."""
    return shown.select("after", "shown").to_numpy(order="fortran").astype(np.int32)


def check_any(counts: Tally, rows: int, first: pl.DataFrame, users: pl.Series, items: pl.Series, path: str) -> None:
    """`DataError` where no impression is kept.

    Args:
      counts: see `exposed`.
      rows: of the impression log.
      first: user and item of its first rows.
      users, items: original ids of the click log.
      path: of the impression log.
    """
    if not counts.count("kept"):
        raise DataError(f"--impressions={path}: none of its {rows} rows shows an item of the "
                        "vocabulary to a user before that user's last training click: do ids and times match the click "
                        f"log's? It has {_such_as(first['user'], first['item'])}; the click log "
                        f"{_such_as(users, items)}")


def report_of(counts: Tally, rows: int, bad_rows: int, examples: Iterable[str], nameless: int) -> dict:
    """Counts for the report.

    Args:
      counts: see `exposed`.
      rows, bad_rows, examples: see `logs.Log`.
      nameless: rows beside those, which name no user.
    """
    return dict(rows=rows + nameless, bad_rows=bad_rows, bad_row_examples=list(examples), kept=counts.count("kept"),
                dropped_without_user=nameless, **{f"dropped_{name}": counts.count(name) for name in _STEPS})


def _such_as(users: pl.Series, items: pl.Series) -> str:
    """Some ids, for a message."""
    few = lambda ids: ", ".join(map(repr, ids.head(3)))
    return f"users such as {few(users)} and items such as {few(items)}"
