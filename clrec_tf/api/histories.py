"""Users to retrieve for, as a Python program has them: lists, a dict, or a frame of users or of clicks."""
from typing import Any, Mapping, Optional, Sequence

import numpy as np
import polars as pl

from clrec_tf.api import flags
from clrec_tf.api import tables
from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.retrieval.query_values import QueryValues
from clrec_tf.retrieval.user_requests import parse_request
from clrec_tf.retrieval.user_requests import UserRequest
from clrec_tf.tabular_files import values

_FORMS = ("give a list of histories, a dict or pandas Series {user: history}, or a frame with the columns user_id and "
          "history, or user_id, item_id and timestamp")
_AS_LIST = ("tolist", "to_list", "to_pylist")  # of NumPy's and pandas' arrays, polars' Series, Arrow's arrays


def user_requests(histories: Any, id_type: str, query: QueryValues, request_time: Optional[int] = None
                  ) -> list[UserRequest]:
    """The users of any form, each with an id and checked.

    Args:
      histories: lists of item ids, oldest first, of users numbered from 0; a dict of such lists by user, or a Series of
        pandas with users as its index; a frame with a row per user: `user_id`, `history` and other entries of
        `UserRequest`; or a frame with a row per click: `user_id`, `item_id` and, unless rows are in time order,
        `timestamp`.
      id_type: "int" or "string", of the bundle's item ids.
      query: what the model reads beside clicked items and times.
      request_time: seconds, of all users that have none of their own; None: times of clicks only order them.

    Raises:
      UserError: another form. DataError: saying which user, what, and what is expected.
    """
    request_time = None if request_time is None else flags.checked("request_time", request_time, int)
    requests, seen = [], {}  # of which the keys keep their order
    for entries in _entries(histories, request_time is not None):
        user = entries["user_id"]
        if user is None or user in seen:
            raise DataError(f"histories: user_id {user!r} {'is missing' if user is None else 'stands twice'}: give "
                            "each user an id of its own")
        if seen and type(user) is not type(next(iter(seen))):
            raise DataError(f"histories has the users {next(iter(seen))!r} and {user!r}: give ids that are all "
                            "integers or all texts")
        seen[user] = True
        if request_time is not None and entries.get("request_time") is None:
            entries["request_time"] = request_time
        requests.append(parse_request(entries, id_type, f"histories, user {user!r}", query))
    return requests


def _entries(histories, timed: bool) -> list[dict]:
    """One dict for each user, as `parse_request` takes it; with times of clicks if they are to be `timed`."""
    if tables.is_table(histories) and not isinstance(histories, pl.Series):
        frame = tables.as_polars(histories, "histories")
        if "user_id" not in frame.columns or not {"history", "item_id"} & set(frame.columns):
            raise DataError(f"histories has the columns {', '.join(frame.columns)}: {_FORMS}")
        ids = {"user_id", "item_id"} & set(frame.columns)
        for name in ids:
            values.check_exact(frame.lazy(), name, "histories")
        frame = frame.with_columns(_whole_numbers(frame[name]) for name in ids)
        return (frame if "history" in frame.columns else _by_user(frame, timed)).to_dicts()
    if isinstance(histories, Mapping) or tables.is_pandas(histories) and hasattr(histories, "items"):
        users = histories.items()
    elif isinstance(histories, (Sequence, np.ndarray, pl.Series)) and not isinstance(histories, (str, bytes)):
        users = enumerate(histories)
    else:
        raise UserError(f"histories is of type {type(histories).__name__}: {_FORMS}")
    return [dict(user_id=plain(user), history=_items(user, history)) for user, history in users]


def _items(user, history) -> list:
    """A history's item ids as Python has them, of a list or any library's array of one dimension."""
    for method in _AS_LIST:
        if hasattr(history, method) and not isinstance(history, np.generic):
            return getattr(history, method)()
    if not isinstance(history, Sequence) or isinstance(history, (str, bytes)):
        raise DataError(f"histories, user {user!r}: {history!r} is no list of item ids: {_FORMS}")
    return list(map(plain, history))


def plain(value: Any) -> Any:
    """A scalar of NumPy as Python has it, any other value as it is."""
    return value.item() if isinstance(value, np.generic) else value


def _whole_numbers(ids: pl.Series) -> pl.Series:
    """Ids as integers, the missing ones null, that are floats since one is missing, or decimals of a database."""
    if not (ids.dtype.is_float() or ids.dtype.is_decimal()):
        return ids
    known = ids.fill_nan(None) if ids.dtype.is_float() else ids
    return known.cast(pl.Int64, strict=False) if (known.floor() == known).all() else ids


def _by_user(clicks: pl.DataFrame, timed: bool) -> pl.DataFrame:
    """A row per click -> a row per user, in the order of their first rows; clicks of equal times keep their order."""
    wanted = [pl.col("item_id").alias("history")]
    if "timestamp" in clicks.columns:
        clicks = clicks.with_columns(_seconds(clicks.schema["timestamp"]).alias("timestamps"))
        if unknown := clicks["timestamps"].null_count():
            raise DataError(f"histories: column 'timestamp' is empty in {unknown} of {len(clicks)} rows, whose place is "
                            "unknown: leave these rows out, or the column where all rows are in time order")
        clicks = clicks.sort("timestamps", maintain_order=True)
        wanted += ["timestamps"] if timed else []
    order = clicks.select("user_id").unique(maintain_order=True)
    return order.join(clicks.group_by("user_id").agg(wanted), on="user_id", how="left", maintain_order="left")


def _seconds(kind: pl.DataType) -> pl.Expr:
    """Column `timestamp` of this type as whole seconds."""
    column = pl.col("timestamp")
    if isinstance(kind, (pl.Date, pl.Datetime)):
        return column.cast(pl.Datetime("us", getattr(kind, "time_zone", None))).dt.epoch("s")
    if not kind.is_numeric():
        raise DataError(f"histories: column 'timestamp' holds {kind}: give seconds or date-times")
    return column.floor().cast(pl.Int64, strict=False) if kind.is_float() else column
