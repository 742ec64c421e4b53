"""Users to retrieve for, from JSON lines or Parquet, checked value by value."""
import dataclasses
import json
from typing import Any
from typing import Iterable
from typing import Iterator
from typing import Optional
from typing import Union

from absl import logging
import polars as pl

from clrec_tf.errors import DataError
from clrec_tf.retrieval.query_values import QueryValues
from clrec_tf.system.finite import is_number
from clrec_tf.tabular_files.texts import without_mark
from clrec_tf.tabular_files.times import LATEST_SECOND

MAX_CLICKS = 100_000  # of one history; more is taken for a mistake
_FIELDS = ("user_id", "history", "timestamps", "request_time", "dwell", "popularity", "events")
_PARQUET_ROWS = 65_536


@dataclasses.dataclass(frozen=True)
class UserRequest:
    """One user.

    Attributes:
      user_id: as given, or None.
      history: original item ids, oldest first, of the catalogue's type.
      timestamps: seconds of each click, ≤ 0 for unknown, or None.
      request_time: seconds, or None.
      dwell: seconds that the user stayed at each click, < 0 for unknown, or None.
      popularity: α of the dial, or None for that of the command.
      events: behaviour of each click, or None.
      query: features of user and request by name, as `QueryValues` checks them, or None.
    """
    user_id: Optional[Union[int, str]]
    history: list
    timestamps: Optional[list[int]] = None
    request_time: Optional[int] = None
    dwell: Optional[list[int]] = None
    popularity: Optional[float] = None
    events: Optional[list[Optional[str]]] = None
    query: Optional[dict[str, Any]] = None


def parse_request(value, id_type: str, where: str, query: QueryValues = QueryValues()) -> UserRequest:
    """Checks one user.

    Args:
      value: a list of item ids, or a dict with `history` and optionally the other attributes of `UserRequest`.
      id_type: "int" or "string", of original item ids.
      where: named in errors, such as "standard input, line 3".
      query: what the model reads beside clicked items and times, whose names may be entries too.

    Raises:
      DataError: saying where, what, and what is expected.
    """
    if isinstance(value, list):
        value = {"history": value}
    if not isinstance(value, dict) or value.get("history") is None:
        raise DataError(f"{where} has no history: give a list of item ids, or an object with a `history`")
    fields = (*_FIELDS, *query.inputs)
    unknown = sorted(set(value) - set(fields))
    if unknown:
        raise DataError(f"{where} has the unknown entry {unknown[0]!r}: there are {', '.join(fields)}")
    history, user_id = value["history"], value.get("user_id")
    if not isinstance(history, list) or len(history) > MAX_CLICKS:
        raise DataError(f"{where}: history must be a list of at most {MAX_CLICKS} item ids")
    if user_id is not None and not (_is_int(user_id) or _is_text(user_id)):
        raise DataError(f"{where}: user_id {user_id!r} must be an integer or a string")
    history = [checked_item(item, id_type, where) for item in history]
    request_time = value.get("request_time")
    if request_time is not None and not _is_int(request_time):
        raise DataError(f"{where}: request_time {request_time!r} must be an integer, in seconds")
    timestamps = _seconds(value, "timestamps", "time stamp", 0, where)
    dwell = _seconds(value, "dwell", "dwell time", -1, where)
    check_times(timestamps, request_time, dwell, where)
    events = value.get("events")
    if events is not None and (not isinstance(events, list) or len(events) != len(history)
                               or not all(event is None or _is_text(event) for event in events)):
        raise DataError(f"{where}: events must be a list of texts or null, as long as the history, {len(history)}")
    beside = query.checked({name: value[name] for name in query.inputs if name in value}, where)
    popularity = value.get("popularity")
    if popularity is not None and not is_number(popularity):
        raise DataError(f"{where}: popularity {popularity!r} must be a number")
    return UserRequest(user_id, history, timestamps, request_time, dwell, popularity, events, beside)


def check_times(timestamps: Optional[list[int]], request_time: Optional[int], dwell: Optional[list[int]], where: str
                ) -> None:
    """`DataError` where times say nothing, or one is so late that it must be in milliseconds, or beyond any time."""
    if timestamps is not None and request_time is None:
        raise DataError(f"{where} has timestamps but no request_time, without which they say nothing: add it")
    for second in (request_time or 0, *(timestamps or ()), *(dwell or ())):
        if abs(second) >= 2**62:  # whose differences would not fit into 64 bits
            raise DataError(f"{where}: {second} is no time in seconds")
    latest = max([request_time or 0, *(timestamps or ())])
    if latest > LATEST_SECOND:
        raise DataError(f"{where}: {latest} is no time in seconds: divide times in milliseconds by 1000")


def _seconds(value, name, noun, unknown, where):
    """The list `name` of seconds, one per click, null become `unknown`; None where it is missing."""
    seconds, length = value.get(name), len(value["history"])
    if seconds is None:
        return None
    if not isinstance(seconds, list) or len(seconds) != length:
        raise DataError(f"{where}: {name} must be a list as long as the history, {length}")
    for second in seconds:
        if second is not None and not _is_int(second):
            raise DataError(f"{where}: {noun} {second!r} must be an integer, in seconds, or null where unknown")
    return [unknown if second is None else second for second in seconds]


def read_json_lines(lines: Iterable[bytes], id_type: str, source: str, query: QueryValues = QueryValues()
                    ) -> Iterator[UserRequest]:
    """One user per line, in either form of `parse_request`; blank lines are skipped. `DataError` names the line."""
    for where, value in json_lines(lines, source):
        yield parse_request(value, id_type, where, query)


def json_lines(lines: Iterable[bytes], source: str) -> Iterator[tuple[str, Any]]:
    """("source, line N", value) of each line that is not blank. `DataError` names the line that is not JSON."""
    for number, line in enumerate(lines, 1):
        line = without_mark(line, source) if number == 1 else line
        if not line.strip():
            continue
        where = f"{source}, line {number}"
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{where} is not JSON ({error})") from error
        yield where, value


def read_parquet(path: str, id_type: str, query: QueryValues = QueryValues()) -> Iterator[UserRequest]:
    """One user per row with columns of `parse_request`'s names; others are ignored. `DataError` names the row."""
    try:
        table = pl.scan_parquet(path, glob=False)
        columns = table.collect_schema()
        rows = table.select(pl.len()).collect().item()
    except (pl.exceptions.PolarsError, OSError) as error:
        raise DataError(f"{path} is not readable Parquet ({error})") from error
    if not isinstance(columns.get("history"), pl.List):
        raise DataError(f"{path} has no column `history` of lists of item ids; its columns are {dict(columns)}")
    unread = [name for name in columns if name.startswith(("user_", "context_")) and name not in (
        *_FIELDS, *query.inputs)]
    if unread:
        logging.warning("%s: %s is no entry of this bundle and is not read; there are %s", path, unread[0],
                        ", ".join(query.inputs) or "none of users and requests")
    table = table.select(name for name in (*_FIELDS, *query.inputs) if name in columns)
    for start in range(0, rows, _PARQUET_ROWS):
        try:
            part = table.slice(start, _PARQUET_ROWS).collect()
        except pl.exceptions.PolarsError as error:
            raise DataError(f"{path} is damaged after row {start} ({error})") from error
        for offset, value in enumerate(part.iter_rows(named=True), start + 1):
            yield parse_request(value, id_type, f"{path}, row {offset}", query)


def parse_item(text: str, id_type: str, where: str):
    """An item id typed on the command line: text, or an integer where ids are integers."""
    try:
        if "_" in text and id_type == "int":
            raise ValueError("1_0 is 10 to Python, and a slip of a person's")
        return checked_item(int(text) if id_type == "int" else text, id_type, where)
    except ValueError as error:
        raise DataError(f"{where}: item ids of this bundle are integers, got {text!r}") from error


def checked_item(item, id_type: str, where: str):
    """An item id from JSON, of the catalogue's type; digits count as an integer. `DataError` where it is neither."""
    if id_type == "int" and isinstance(item, str) and item.isascii() and item.isdigit() and len(item) <= 18:
        item = int(item)
    if not (_is_int(item) if id_type == "int" else _is_text(item)):
        kind = "integers below 2^63" if id_type == "int" else "strings"
        raise DataError(f"{where}: item ids of this bundle are {kind}, got {item!r}")
    return item


def _is_int(value):
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63


def _is_text(value):
    """Whether it is text that can be written as UTF-8, which JSON's lone surrogates cannot."""
    return isinstance(value, str) and not any("\ud800" <= mark <= "\udfff" for mark in value)
