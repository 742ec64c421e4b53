"""Rows of a log that cannot be used: found with their reasons, shown, and left out if the settings allow it."""
from absl import logging
import polars as pl

from clrec_tf.config import PrepareConfig
from clrec_tf.data import tables
from clrec_tf.data.tables import EXTRA
from clrec_tf.data.tables import ROW
from clrec_tf.data.tables import Table
from clrec_tf.errors import DataError

EXAMPLES = 5
REASONS = ("", "more fields than columns", "empty user id", "empty item id", "line break in an id",
           "negative id", "missing or unreadable time stamp", "unreadable dwell time")


def reason(names: list[str]) -> pl.Expr:
    """Index into `REASONS` of what is wrong with a row; `names` are the frame's columns."""
    user, item = pl.col("user").cast(pl.String), pl.col("item").cast(pl.String)
    never = pl.lit(False)
    checks = [pl.col(EXTRA).is_not_null() if EXTRA in names else never]
    checks += [user.is_null() | (user == ""), item.is_null() | (item == "")]
    checks += [user.str.contains(r"[\r\n]") | item.str.contains(r"[\r\n]")]
    checks += [user.str.contains(r"^-[0-9]+$") | item.str.contains(r"^-[0-9]+$")]
    checks += [pl.col(name).is_null() if name in names else never for name in ("timestamp", "dwell")]
    found = pl.lit(0, pl.UInt8)
    for index in range(len(checks), 0, -1):  # the first check that fails gives the reason
        found = pl.when(checks[index - 1]).then(pl.lit(index, pl.UInt8)).otherwise(found)
    return found


def leave_out(frame: pl.DataFrame, table: Table, settings: PrepareConfig) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """The good rows, and up to `EXAMPLES` bad ones as text.

    Args:
      frame: with `ROW` and `reason`, which the result lacks.
      table: that it was read from.
      settings: of the command.

    Raises:
      DataError: there are more than --max_bad_rows bad rows, or no others.
    """
    bad = frame.filter(pl.col("reason") > 0).select(ROW, "reason")
    examples = _shown(table, bad.head(EXAMPLES))
    if len(bad) == len(frame):
        raise DataError(f"every one of the {len(bad)} rows of {table.path} is bad:\n  " + "\n  ".join(examples)
                        + f"\nCheck --format={settings.format}, --delimiter and the column flags.")
    if len(bad) > settings.max_bad_rows:
        raise DataError(
            f"{table.path} has {len(bad)} bad of {len(frame)} rows, --max_bad_rows={settings.max_bad_rows} are "
            "tolerated:\n  " + "\n  ".join(examples) + f"\nCorrect them, check --format={settings.format} and the "
            f"column flags, or leave them out with --max_bad_rows={len(bad)}.")
    for example in examples:
        logging.warning("bad row left out: %s", example)
    return (frame.filter(pl.col("reason") == 0) if len(bad) else frame).drop(ROW, "reason"), examples


def _shown(table: Table, bad: pl.DataFrame) -> tuple[str, ...]:
    texts = tables.show_rows(table, bad[ROW].to_list()) if len(bad) else {}
    return tuple(f"{table.where(row)}: {texts[row]} ({REASONS[number]})" for row, number in bad.iter_rows())
