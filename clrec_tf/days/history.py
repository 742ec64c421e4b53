"""The history of days, history.jsonl in --days_dir: an object a day, in the order in which they were first run.

Of a day that got so far: `clicks` and `items` of training, `data` (``data_report``), `users` evaluated, `findable`, the
share of their next clicks on items that have a number, and `findable_yesterday`, on items that had one; `metrics`,
`compared` (`Judgement.numbers` of each demand), `gate` (the same as text), `stages` (seconds of each, in the
last command), `version` published, `reason` of a refusal. Entries of older versions have fewer of them.
"""
import json
import os
from typing import Optional

from clrec_tf.errors import DataError
from clrec_tf.system import atomic

HISTORY_FILE = "history.jsonl"
_WIDTH = 80  # of reasons in the table
PUBLISHED, REFUSED, STOPPED = "published", "refused", "stopped"


def read(days_dir: str) -> list[dict]:
    """All days; `DataError` where a line is damaged."""
    path, days = os.path.join(days_dir, HISTORY_FILE), []
    if not os.path.exists(path):
        return days
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            try:
                days.append(dict(json.loads(line)))
                days[-1]["day"], days[-1]["status"]  # pylint: disable=pointless-statement
            except (ValueError, TypeError, KeyError) as error:
                raise DataError(f"{path}, line {number} is no entry of a day ({error}): correct or remove the line"
                                ) from error
    return days


def record(days_dir: str, entry: dict) -> None:
    """Writes a day's entry, in place of an earlier one of the same day."""
    days = {known["day"]: known for known in read(days_dir)} | {entry["day"]: entry}
    path = os.path.join(days_dir, HISTORY_FILE)
    with atomic.new_file(path, "days_dir") as temporary, open(temporary, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(each, sort_keys=True) + "\n" for each in days.values())


def last_published(days: list[dict], before: str) -> Optional[dict]:
    """The latest day that was published before the day `before`, which may not be there yet."""
    earlier = days[:next((place for place, each in enumerate(days) if each["day"] == before), len(days))]
    return next((each for each in reversed(earlier) if each["status"] == PUBLISHED), None)


def published_after(days: list[dict], day: str) -> Optional[str]:
    """The latest published day that comes after `day`; None where `day` is not there yet, or none does."""
    names = [each["day"] for each in days]
    later = days[names.index(day) + 1:] if day in names else []
    return next((each["day"] for each in reversed(later) if each["status"] == PUBLISHED), None)


def part(entry: dict, name: str) -> dict:
    """The object `name` of an entry; empty where it has none, as entries of older versions."""
    value = entry.get(name)
    return value if isinstance(value, dict) else {}


def compared(entry: dict) -> dict[str, dict]:
    """Metric -> numbers of yesterday's and today's model, in the order demanded."""
    return {each["metric"]: each for each in entry.get("compared") or []}


def table(days: list[dict]) -> str:
    """The history as text; the last metric demanded first is shown, yesterday's model before today's."""
    metric = next((name for each in reversed(days) for name in compared(each)), "")
    lines = [("day", "status", "version", "training clicks", "new items", "drift", "findable",
              *([metric] if metric else []), "seconds", "why")]
    for each in days:
        data = part(each, "data")
        lines.append((each["day"], each["status"], str(each.get("version", "")), str(each.get("clicks", "")),
                      _number(data.get("new_items")), _number(data.get("drift")), _number(each.get("findable")),
                      *([_change(each, metric)] if metric else []), str(each.get("seconds", "")),
                      _short(each.get("reason", ""))))
    widths = [max(map(len, column)) for column in zip(*lines)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines)


def _number(value) -> str:
    """A share, or nothing."""
    return "" if value is None else f"{value:.3f}"


def _change(entry: dict, metric: str) -> str:
    """A metric of yesterday's model and of today's; of the first day today's alone."""
    numbers = compared(entry).get(metric)
    if numbers:
        return f"{numbers['before']:.4g} → {numbers['now']:.4g}"
    value = part(entry, "metrics").get(metric)
    return "" if value is None else f"{value:.4g}"


def _short(reason: str) -> str:
    """The begin of a reason; history.jsonl has all of it."""
    return reason if len(reason) <= _WIDTH else reason[:_WIDTH] + " …"
