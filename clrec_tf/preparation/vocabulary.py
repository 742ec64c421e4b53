"""Ids of items and feature values, from the clicks of the training part alone. Pure functions."""
import dataclasses
import zlib
from typing import Sequence

import numpy as np
import polars as pl

from clrec_tf.data import ids as ids_lib
from clrec_tf.data.schema import Feature


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """Items by id.

    Attributes:
      item_id: [items of the log] int32: 1..V, hash buckets V+1.., or 0 where there are no buckets.
      items: [V] index into the log's items, by id from 1.
      counts: [V] training clicks, by id from 1.
    """
    item_id: np.ndarray
    items: np.ndarray
    counts: np.ndarray


def bucket(text: str, buckets: int) -> int:
    """Hash bucket in [0, buckets) of a value; the same on every machine and in every version."""
    return zlib.crc32(text.encode()) % buckets


def build(original_ids: pl.Series, counts: np.ndarray, min_count: int, oov_buckets: int,
          numbered: np.ndarray | None = None) -> Vocabulary:
    """Numbers the items by falling training count, ties by original id (numbers by value, strings by code point).

    Args:
      original_ids: [items of the log] strings.
      counts: [items of the log] training clicks of each.
      min_count: items with fewer training clicks stay outside; 0: none does.
      oov_buckets: hash buckets for items outside; 0: their id is 0.
      numbered: see `continued`: items that have a number already; None: none has.
    """
    numbered = np.zeros(0, np.int64) if numbered is None else numbered
    unnumbered = np.ones(len(original_ids), bool)
    unnumbered[numbered[numbered >= 0]] = False
    frame = pl.DataFrame({"id": original_ids, "count": counts}).with_row_index("item").filter(
        (pl.col("count") >= min_count) & pl.Series(unnumbered))
    # Numbers of equal length sort like strings, so the length decides first.
    numeric = pl.when(pl.col("id").str.contains(r"^[0-9]{1,18}$")).then(pl.col("id").cast(pl.Int64, strict=False))
    frame = frame.sort(-pl.col("count").cast(pl.Int64), numeric, "id", nulls_last=True)
    items = continued(numbered, frame["item"].to_numpy())
    item_id = np.zeros(len(original_ids), np.int32)
    item_id[items] = np.arange(1, len(items) + 1)
    if oov_buckets:
        for item in np.flatnonzero(item_id == 0):
            item_id[item] = len(items) + 1 + bucket(original_ids[int(item)], oov_buckets)
    return Vocabulary(item_id, items, counts[items])


def continued(numbered: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Numbers for new items, such that those of others stay.

    Free numbers are given to new items first, then new numbers. If numbers are free even then, items of the highest
    numbers move there, so that there is no gap.

    Args:
      numbered: [V'] the item that has each number from 1, −1: the number is free.
      new: [n] further items.

    Returns:
      [V] the items by number from 1.
    """
    free = np.flatnonzero(numbered < 0)
    given = min(len(free), len(new))
    items = np.append(numbered, new[given:]).astype(np.int64)
    items[free[:given]] = new[:given]
    size = int((items >= 0).sum())
    gaps = np.flatnonzero(items[:size] < 0)
    items[gaps] = items[size:][items[size:] >= 0]
    return items[:size]


def integers(original_ids: pl.Series) -> pl.Series:
    """Which ids are canonical non-negative integers of at most 18 digits, [N] bool."""
    return original_ids.str.contains(ids_lib.INTEGER)


def id_type(original_ids: pl.Series) -> str:
    """"int" if every id is an integer (`integers`), else "string"."""
    return "int" if integers(original_ids).all() else "string"


def encode_feature(name: str, values: pl.Series, vocabulary: Vocabulary, max_values: int, oov_buckets: int,
                   known_values: Sequence[str] = (), known_width: int = 1, min_clicks: int = 0
                   ) -> tuple[Feature, np.ndarray, list[str]]:
    """Numbers a feature's values by the training clicks of the items that have them, ties by value.

    Args:
      name: of the feature.
      values: [items of the log] strings or lists of strings; null or empty = missing.
      vocabulary: its items and their counts decide the values and, of lists, the width.
      max_values: values kept of a list, its first ones.
      oov_buckets: hash buckets for other values; 0: they are missing.
      known_values: those that have the numbers 1, 2, … already.
      known_width: values per item that there are at least.
      min_clicks: further values with fewer training clicks are not known.

    Returns:
      The feature, its rows [items of the log, width] int32 for any item of the log, and its known values by number
      from 1.
    """
    several = isinstance(values.dtype, pl.List)
    lists = values.list.head(max_values) if several else values.replace("", None).reshape((-1, 1)).arr.to_list()
    known = lists.gather(vocabulary.items)
    width = max(min(max(known.list.len().max() or 1, 1), max_values), known_width) if several else 1
    clicks = pl.DataFrame({"value": known, "clicks": vocabulary.counts}).explode("value").drop_nulls()
    clicks = clicks.filter(~pl.col("value").is_in(list(known_values)))
    order = clicks.group_by("value").agg(pl.col("clicks").sum()).filter(pl.col("clicks") >= min_clicks).sort(
        "clicks", "value", descending=[True, False])["value"]
    order = [*known_values, *order.to_list()]
    ids = {value: number for number, value in enumerate(order, 1)}
    flat = pl.DataFrame({"value": lists}).with_row_index("item").explode("value")
    flat = flat.with_columns(slot=pl.int_range(pl.len()).over("item")).drop_nulls("value")
    flat = flat.filter(pl.col("slot") < width)
    distinct = flat["value"].unique()
    for value in distinct.to_list():
        if value not in ids:
            ids[value] = len(order) + 1 + bucket(value, oov_buckets) if oov_buckets else 0
    codes = flat["value"].replace_strict(list(ids), list(ids.values()), return_dtype=pl.Int32) if len(ids) else []
    rows = np.zeros((len(lists), width), np.int32)
    rows[flat["item"].to_numpy(), flat["slot"].to_numpy()] = np.asarray(codes)
    return Feature(name, 1 + len(order) + oov_buckets, width, len(order)), rows, order
