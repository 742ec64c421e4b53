"""Reads the items of a prepared data set: the catalogue, the values of their features, and how many the log had."""
import dataclasses
import os
from typing import Optional

import numpy as np
import tensorflow as tf

from clrec_tf.data.query_features import NUMBER
from clrec_tf.data import schema as schema_lib
from clrec_tf.data.schema import Manifest
from clrec_tf.data.schema import Schema
from clrec_tf.data import shards
from clrec_tf.errors import DataError


@dataclasses.dataclass(frozen=True)
class Catalogue:
    """The V items of the vocabulary; row i describes item i + 1.

    Attributes:
      item_rows: int64 [V,C], C = `schema.item_width`: the id, then each feature's values in schema order.
      counts: int64 [V], training clicks.
      original_ids: [V], int64 or str objects by `schema.id_type`.
      titles: [V] str objects, "" where an item has none; None if no item has one.
      last_click: int64 [V], seconds, of any part of the log or of one before; −1: unknown.
      cold: bool [V], whether no training part, of this data set or one before, has a click of it.
    """
    item_rows: np.ndarray
    counts: np.ndarray
    original_ids: np.ndarray
    titles: Optional[np.ndarray]
    last_click: Optional[np.ndarray] = None
    cold: Optional[np.ndarray] = None


def read_catalogue(data_dir: str, schema: Schema, manifest: Manifest) -> Catalogue:
    """Reads the catalogue; `DataError` names a shard that is damaged, incomplete or not in id order 1..V."""
    spec = dict(item_id=shards.scalar(tf.int64), count=shards.scalar(tf.int64), original_id=shards.scalar(tf.string),
                title=shards.scalar(tf.string, b""), last_click=shards.scalar(tf.int64, -1),
                cold=shards.scalar(tf.int64, 0), **{feature.key: shards.integers() for feature in schema.features})
    rows, counts, original_ids, titles, last_clicks, cold = [], [], [], [], [], []
    for shard, batch in shards.parsed_batches(data_dir, manifest.shards.get("catalogue", ()), spec):
        ids = batch["item_id"].numpy()
        first = sum(map(len, counts)) + 1
        shards.check(np.array_equal(ids, np.arange(first, first + len(ids))), shard.name,
                     f"item_id must go on from {first} in steps of one, got {ids[:5]}…")
        features = shards.feature_values(batch, schema.features, np.arange(len(ids) + 1), shard.name)
        rows.append(np.concatenate([ids[:, None], features], axis=1))
        counts.append(batch["count"].numpy())
        original_ids += [value.decode() for value in batch["original_id"].numpy()]
        titles += [value.decode() for value in batch["title"].numpy()]
        last_clicks.append(batch["last_click"].numpy())
        cold.append(batch["cold"].numpy() > 0)
    if len(titles) != schema.num_items:
        raise DataError(f"{data_dir}: the catalogue has {len(titles)} items, schema.json says {schema.num_items}")
    return Catalogue(np.concatenate(rows), np.concatenate(counts),
                     np.array(original_ids, np.int64 if schema.id_type == "int" else object),
                     np.array(titles, object) if any(titles) else None, np.concatenate(last_clicks),
                     np.concatenate(cold))


def read_log_items(data_dir: str, schema: Schema) -> int:
    """Items of the whole log, of which `schema.num_items` are in the vocabulary; prepare's report says how many."""
    path = os.path.join(data_dir, schema_lib.REPORT_FILE)
    schema_lib.check_file(data_dir, schema_lib.REPORT_FILE)
    remedy = "prepare the data again"
    return max(schema.num_items, schema_lib.load_json(path, remedy, remedy).get("items", 0))


def lacks_values(schema: Schema, values: dict) -> bool:
    """Whether `read_feature_values` gave nothing for a feature that has named values, as numbers have not."""
    named = [feature.name for feature in schema.features]
    named += [feature.key for feature in schema.query_features if feature.kind != NUMBER]
    return any(name not in values for name in named)


def read_feature_values(data_dir: str) -> dict[str, list[str]]:
    """Feature, or key of a query feature -> its values by number from 1; nothing where prepare was too old to
    write them."""
    path = os.path.join(data_dir, schema_lib.FEATURE_VALUES_FILE)
    if not os.path.exists(path):
        return {}
    schema_lib.check_file(data_dir, schema_lib.FEATURE_VALUES_FILE)
    return schema_lib.load_json(path, "", "prepare the data again")
