"""The columns of the impression log that the server writes and prepare reads: one row for each item shown."""
from typing import Iterable

import polars as pl

USER, ITEM, TIME = "user_id", "item_id", "timestamp"
SCHEMA = {
    "request_id": pl.String, "model_name": pl.String, "model_version": pl.Int64,
    USER: pl.String,  # null where the request named no user
    TIME: pl.Datetime("ms", "UTC"),  # of the answer
    "rank": pl.Int32,  # from 1
    ITEM: pl.String,  # integers as digits
    "score": pl.Float32, "popularity": pl.Float32,  # α of the request
    "intent": pl.Int32,  # that brought the item; null of models of one intent, and of the most popular items
}


def is_served_log(columns: Iterable[str]) -> bool:
    """Whether a table has the columns of a server's log, beside others such as `date` from names of folders."""
    return set(SCHEMA) <= set(columns)
