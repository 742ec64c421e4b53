"""Rows of a log that cannot be used: found with their reasons, shown, and left out if the settings allow it."""
from typing import Sequence

from absl import logging
import polars as pl

from clrec_tf.data import ids
from clrec_tf.errors import DataError
from clrec_tf.settings.data import PrepareConfig
from clrec_tf.tabular_files import frames
from clrec_tf.tabular_files.frames import ROW
from clrec_tf.tabular_files.frames import Table
from clrec_tf.tabular_files.table_parts import EXTRA
from clrec_tf.tabular_files.tally import Tally
from clrec_tf.tabular_files.tally import tally
from clrec_tf.tabular_files.time_units import Clock
from clrec_tf.tabular_files import times

EXAMPLES = 5
_MANY = 1 / 3  # share of bad rows above which nobody is told how to leave them out
_NULLS = "--null_values says which words mean that an id is missing"
# Reason -> what to do about it beside correcting the rows.
REASONS = {
    "": "",
    "more fields than columns": "check --delimiter and --quote, and that the header has a name for every column",
    "the header again": "",
    "missing user id": f"choose another --user_column; {_NULLS}", "missing item id": _NULLS,
    "line break in an id": "check --quote",
    f"item id of over {ids.MAX_ID_LENGTH} characters or with a zero byte": "check --item_column and --delimiter",
    "negative id": "--id_type=string takes such ids as text",
    f"item id that is no integer from 0 to {ids.LARGEST}": "--id_type=string takes such ids as text",
    "missing or unreadable time stamp": "check --timestamp_column, --timestamp_format and --timestamp_unit",
    "time stamp after the latest allowed": "--max_time allows later ones; check --timestamp_unit",
    "time stamp before the year 5": times.REMEDY,
    "unreadable dwell time": "check --dwell_column",
    "missing or unreadable order": "check --order_column, whose numbers must be below 2^53"}


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
    seconds = pl.col("timestamp")
    beyond = [seconds > clock.latest, seconds < times.EARLIEST_SECOND] if "timestamp" in names else [never, never]
    checks = [pl.col(EXTRA) if EXTRA in names else never]
    checks += [(user == header[0]) & (item == header[1]) if header else never]
    checks += [user.is_null(), item.is_null()]
    checks += [ids.has_line_break(user) | ids.has_line_break(item), ids.is_unfit(item)]
    checks += [negative(user) | negative(item) if settings.id_type != "string" else never]
    checks += [~ids.is_integer(item) if settings.id_type == "int" else never]
    checks += [seconds.is_null() if "timestamp" in names else never, *beyond]
    checks += [pl.col(name).is_null() if name in names else never for name in ("dwell", "order")]
    reason = pl.lit(0, pl.UInt8)
    for index in range(len(checks), 0, -1):  # the first check that fails gives the reason
        reason = pl.when(checks[index - 1]).then(pl.lit(index, pl.UInt8)).otherwise(reason)
    return reason


def counts(frame: pl.DataFrame) -> Tally:
    """How many `rows` there are, how many `bad` ones, and by `reason` how many "because N"."""
    reasons = dict(frame["reason"].value_counts().iter_rows())
    good = reasons.pop(0, 0)
    return tally({"rows": len(frame), "bad": len(frame) - good,
                  **{f"because {number}": count for number, count in reasons.items()}})


def check(found: Tally, examples: Sequence[str], path: str, settings: PrepareConfig) -> None:
    """Warns of the bad rows that are left out.

    Args:
      found: their `counts`.
      examples: the first of them as text.
      path: of the log.
      settings: of the command.

    Raises:
      DataError: there are more than --max_bad_rows bad rows, or no others.
    """
    rows, bad = found.count("rows"), found.count("bad")
    if bad == rows:
        raise DataError(f"every one of the {bad} rows of {path} is bad:\n  " + "\n  ".join(examples)
                        + f"\nCheck --format={settings.format}, --delimiter and the column flags{_remedies(found)}.")
    if bad > settings.max_bad_rows:
        leave = (f" They are {bad / rows:.0%} of the log: too many to be left out as mistakes." if bad > _MANY * rows
                 else f" Or leave them out with --max_bad_rows={bad}.")
        raise DataError(
            f"{path} has {bad} bad of {rows} rows, --max_bad_rows={settings.max_bad_rows} are "
            "tolerated:\n  " + "\n  ".join(examples) + f"\nCorrect them, or check --format={settings.format} and the "
            f"column flags{_remedies(found)}.{leave}")
    for example in examples:
        logging.warning("bad row left out: %s", example)


def _remedies(found: Tally) -> str:
    """What the reasons found call for, most frequent first."""
    reasons = {name.removeprefix("because "): count for name, count in found.sums.items() if name.startswith("because ")}
    numbers = sorted(map(int, reasons), key=lambda number: (-reasons[str(number)], number))
    remedies = dict.fromkeys(remedy for number in numbers if (remedy := list(REASONS.values())[number]))
    return "".join(f"; {remedy}" for remedy in remedies)


def shown(table: Table, bad: pl.DataFrame) -> tuple[str, ...]:
    """Bad rows as text, by `ROW` and reason."""
    texts, reasons = frames.show_rows(table, bad[ROW].to_list()) if len(bad) else {}, list(REASONS)
    return tuple(f"{table.where(row)}: {texts[row]} ({reasons[number]})" for row, number in bad.iter_rows())
