"""Rows of a log that cannot be used: found with their reasons, shown, and left out if the settings allow it."""
from absl import logging
import polars as pl

from clrec_tf.data import ids
from clrec_tf.errors import DataError
from clrec_tf.settings.data import PrepareConfig
from clrec_tf.tabular_files import frames
from clrec_tf.tabular_files.frames import ROW
from clrec_tf.tabular_files.frames import Table
from clrec_tf.tabular_files.table_parts import EXTRA
from clrec_tf.tabular_files.time_units import Clock

EXAMPLES = 5
_MANY = 1 / 3  # share of bad rows above which nobody is told how to leave them out
_NULLS = "--null_values says which words mean that an id is missing"
# Reason -> what to do about it beside correcting the rows.
REASONS = {
    "": "", "more fields than columns": "check --delimiter and --quote", "the header again": "",
    "missing user id": f"choose another --user_column; {_NULLS}", "missing item id": _NULLS,
    "line break in an id": "check --quote",
    f"item id of over {ids.MAX_ID_LENGTH} characters or with a zero byte": "check --item_column and --delimiter",
    "negative id": "--id_type=string takes such ids as text",
    f"item id that is no integer from 0 to {ids.LARGEST}": "--id_type=string takes such ids as text",
    "missing or unreadable time stamp": "check --timestamp_column, --timestamp_format and --timestamp_unit",
    "time stamp after the latest allowed": "--max_time allows later ones; check --timestamp_unit",
    "unreadable dwell time": "check --dwell_column", "missing or unreadable order": "check --order_column"}


def reason(names: list[str], settings: PrepareConfig, clock: Clock, header: tuple[str, ...] = ()) -> pl.Expr:
    """Index into `REASONS` of what is wrong with a row.

    Args:
      names: the frame's columns; user and item are stripped text, null where they are missing.
      settings: --id_type.
      clock: the latest time allowed.
      header: user and item of the header line.
    """
    user, item = pl.col("user"), pl.col("item")
    never = pl.lit(False)
    negative = lambda column: column.str.contains(r"^-[0-9]+$")
    late = pl.col("timestamp") > clock.latest if "timestamp" in names else never
    checks = [pl.col(EXTRA) if EXTRA in names else never]
    checks += [(user == header[0]) & (item == header[1]) if header else never]
    checks += [user.is_null(), item.is_null()]
    checks += [ids.has_line_break(user) | ids.has_line_break(item), ids.is_unfit(item)]
    checks += [negative(user) | negative(item) if settings.id_type != "string" else never]
    checks += [~ids.is_integer(item) if settings.id_type == "int" else never]
    checks += [pl.col("timestamp").is_null() if "timestamp" in names else never, late]
    checks += [pl.col(name).is_null() if name in names else never for name in ("dwell", "order")]
    reason = pl.lit(0, pl.UInt8)
    for index in range(len(checks), 0, -1):  # the first check that fails gives the reason
        reason = pl.when(checks[index - 1]).then(pl.lit(index, pl.UInt8)).otherwise(reason)
    return reason


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
                        + f"\nCheck --format={settings.format}, --delimiter and the column flags{_remedies(bad)}.")
    if len(bad) > settings.max_bad_rows:
        many = len(bad) > _MANY * len(frame)
        leave = (f" They are {len(bad) / len(frame):.0%} of the log: too many to be left out as mistakes." if many
                 else f" Or leave them out with --max_bad_rows={len(bad)}.")
        raise DataError(
            f"{table.path} has {len(bad)} bad of {len(frame)} rows, --max_bad_rows={settings.max_bad_rows} are "
            "tolerated:\n  " + "\n  ".join(examples) + f"\nCorrect them, or check --format={settings.format} and the "
            f"column flags{_remedies(bad)}.{leave}")
    for example in examples:
        logging.warning("bad row left out: %s", example)
    return (frame.filter(pl.col("reason") == 0) if len(bad) else frame).drop("reason"), examples


def _remedies(bad: pl.DataFrame) -> str:
    """What the reasons found call for, most frequent first."""
    numbers = bad["reason"].value_counts(sort=True)["reason"].to_list()
    remedies = dict.fromkeys(remedy for number in numbers if (remedy := list(REASONS.values())[number]))
    return "".join(f"; {remedy}" for remedy in remedies)


def _shown(table: Table, bad: pl.DataFrame) -> tuple[str, ...]:
    texts, reasons = frames.show_rows(table, bad[ROW].to_list()) if len(bad) else {}, list(REASONS)
    return tuple(f"{table.where(row)}: {texts[row]} ({reasons[number]})" for row, number in bad.iter_rows())
