"""The history of days, history.jsonl in --days_dir: an object a day, in the order in which they were first run."""
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
    with open(path, encoding="utf-8") as file:
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


def table(days: list[dict]) -> str:
    """The history as text."""
    lines = [("day", "status", "version", "training clicks", "new items", "drift", "why")]
    for each in days:
        data = each.get("data") or {}
        share = lambda name: f"{data[name]:.3f}" if name in data else ""
        lines.append((each["day"], each["status"], str(each.get("version", "")), str(each.get("clicks", "")),
                      share("new_items"), share("drift"), _short(each.get("reason", ""))))
    widths = [max(map(len, column)) for column in zip(*lines)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines)


def _short(reason: str) -> str:
    """The begin of a reason; history.jsonl has all of it."""
    return reason if len(reason) <= _WIDTH else reason[:_WIDTH] + " …"
