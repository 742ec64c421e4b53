"""Reads the evaluated users and the catalogue of a prepared data set (layout: `data/schema.py`) into NumPy.

Every shard is counted against the manifest: TensorFlow ends silently at a file cut between two records or inside the
length of one, and a metric over the users that happen to be left would look as good as any.
"""
import dataclasses
import os
from typing import Iterator, Optional

import numpy as np
import tensorflow as tf

from clrec_tf.preparation.data_folder import REPORT_FILE
from clrec_tf.data.schema import FEATURE_VALUES_FILE, Manifest, Schema, Shard, check_file, load_json
from clrec_tf.errors import DataError
from clrec_tf.data.evaluation_set import EvaluationSet, concatenate

_BATCH = 1024


@dataclasses.dataclass(frozen=True)
class Catalogue:
    """The V items of the vocabulary; row i describes item i + 1.

    Attributes:
      item_rows: int64 [V,C], C = `schema.item_width`: the id, then each feature's values in schema order.
      counts: int64 [V], training clicks.
      original_ids: [V], int64 or str objects by `schema.id_type`.
      titles: [V] str objects, "" where an item has none; None if no item has one.
    """
    item_rows: np.ndarray
    counts: np.ndarray
    original_ids: np.ndarray
    titles: Optional[np.ndarray]


def read_evaluation_set(data_dir: str, split: str, schema: Schema, manifest: Manifest, max_users: int = 0,
                        seed: int = 0) -> EvaluationSet:
    """Reads the users of "valid" or "test" whose weight is not 0, in file order.

    Args:
      data_dir: folder of the data set.
      split: "valid" or "test".
      schema, manifest: of that folder.
      max_users: users kept, drawn at random by `seed` before anything is held in memory; 0 keeps all.
      seed: of that draw.

    Raises:
      DataError: naming the shard, if it is missing, damaged, has another number of records than the manifest says, or
        holds values that contradict the schema; or if the part holds no user.
    """
    total = manifest.records(split) if split in manifest.shards else 0
    kept = np.ones(total, bool)
    if 0 < max_users < total:
        kept = np.isin(np.arange(total), np.random.default_rng(seed).choice(total, max_users, replace=False))
    pieces, position = [], 0
    for shard, batch in _batches(data_dir, manifest.shards.get(split, ()), _sequence_features(schema)):
        piece = _sequences(batch, schema, shard.name)
        chosen = kept[position:position + piece.num_users] & (batch["weight"].numpy() > 0)
        pieces.append(piece.take(np.flatnonzero(chosen)))
        position += piece.num_users
    if not sum(piece.num_users for piece in pieces):
        raise DataError(f"{data_dir} has no user to evaluate in its part {split!r}: evaluate another --eval_split, or "
                        "prepare with a split that leaves users for it")
    return concatenate(pieces)


def read_catalogue(data_dir: str, schema: Schema, manifest: Manifest) -> Catalogue:
    """Reads the catalogue; `DataError` names a shard that is damaged, incomplete or not in id order 1..V."""
    spec = dict(item_id=_scalar(tf.int64), count=_scalar(tf.int64), original_id=_scalar(tf.string),
                title=_scalar(tf.string, b""), **{feature.key: _list() for feature in schema.features})
    rows, counts, original_ids, titles = [], [], [], []
    for shard, batch in _batches(data_dir, manifest.shards.get("catalogue", ()), spec):
        ids = batch["item_id"].numpy()
        first = sum(map(len, counts)) + 1
        _require(np.array_equal(ids, np.arange(first, first + len(ids))), shard.name,
                 f"item_id must go on from {first} in steps of one, got {ids[:5]}…")
        features = _feature_values(batch, schema, np.arange(len(ids) + 1), shard.name)
        rows.append(np.concatenate([ids[:, None], features], axis=1))
        counts.append(batch["count"].numpy())
        original_ids += [value.decode() for value in batch["original_id"].numpy()]
        titles += [value.decode() for value in batch["title"].numpy()]
    if len(titles) != schema.num_items:
        raise DataError(f"{data_dir}: the catalogue has {len(titles)} items, schema.json says {schema.num_items}")
    return Catalogue(np.concatenate(rows), np.concatenate(counts),
                     np.array(original_ids, np.int64 if schema.id_type == "int" else object),
                     np.array(titles, object) if any(titles) else None)


def read_log_items(data_dir: str, schema: Schema) -> int:
    """Items of the whole log, of which `schema.num_items` are in the vocabulary; prepare's report says how many."""
    path = os.path.join(data_dir, REPORT_FILE)
    check_file(data_dir, REPORT_FILE)
    remedy = "prepare the data again"
    return max(schema.num_items, load_json(path, remedy, remedy).get("items", 0))


def read_feature_values(data_dir: str) -> dict[str, list[str]]:
    """Feature -> its values by number from 1; nothing where prepare was too old to write them."""
    path = os.path.join(data_dir, FEATURE_VALUES_FILE)
    if not os.path.exists(path):
        return {}
    check_file(data_dir, FEATURE_VALUES_FILE)
    return load_json(path, "", "prepare the data again")


def _scalar(dtype, default=None):
    return tf.io.FixedLenFeature([], dtype, default)


def _list():
    return tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.int64)


def _sequence_features(schema):
    names = ["item_id"] + ["timestamp"] * schema.has_timestamps + ["dwell"] * schema.has_dwell
    names += [feature.key for feature in schema.features]
    return dict(user_id=_scalar(tf.int64), weight=_scalar(tf.float32), target_count=_scalar(tf.int64),
                **{name: _list() for name in names})


def _batches(data_dir: str, shards: tuple[Shard, ...], spec: dict) -> Iterator[tuple[Shard, dict]]:
    """Parsed batches of each shard in order, its records counted against the manifest at its end."""
    for shard in shards:
        path, records = os.path.join(data_dir, shard.name), 0
        try:
            for serialized in tf.data.TFRecordDataset(path, buffer_size=2**20).batch(_BATCH):
                records += len(serialized)
                yield shard, tf.io.parse_example(serialized, spec)
        except tf.errors.OpError as error:
            raise DataError(f"shard {path} is damaged after {records} records: {error.message}") from error
        if records != shard.records:
            raise DataError(f"shard {path} holds {records} records, the manifest says {shard.records}: it is truncated "
                            "or was changed")


def _require(condition, shard_name, problem):
    if not condition:
        raise DataError(f"shard {shard_name}: {problem}")


def _sequences(batch, schema, shard_name):
    """One parsed batch as an `EvaluationSet`, checked against the schema."""
    ids, splits = batch["item_id"].values.numpy(), batch["item_id"].row_splits.numpy()
    target_counts, lengths = batch["target_count"].numpy(), np.diff(splits)
    _require(np.all((target_counts >= 1) & (target_counts <= lengths)), shard_name,
             "target_count must be between 1 and the number of clicks")
    is_target = np.arange(len(ids)) >= np.repeat(splits[1:] - target_counts, lengths)
    _require(np.all((ids >= np.where(is_target, 0, 1)) & (ids < schema.item_rows)), shard_name,
             f"item_id outside [1, {schema.item_rows}), or 0 in a history")
    features = _feature_values(batch, schema, splits, shard_name)
    times = _per_click(batch, "timestamp", splits, shard_name) if schema.has_timestamps else None
    dwell = _per_click(batch, "dwell", splits, shard_name) if schema.has_dwell else None
    return EvaluationSet(
        user_ids=batch["user_id"].numpy(),
        history_ids=ids[~is_target].astype(np.int32), history_splits=splits - np.append(0, np.cumsum(target_counts)),
        target_ids=ids[is_target].astype(np.int32), target_splits=np.append(0, np.cumsum(target_counts)),
        history_features=features[~is_target].astype(np.int32) if schema.features else None,
        history_times=None if times is None else times[~is_target],
        request_times=None if times is None else times[splits[1:] - target_counts],
        history_dwell=None if dwell is None else dwell[~is_target])


def _per_click(batch, name, splits, shard_name):
    """int64 [events]: the one value of each event."""
    _require(np.array_equal(batch[name].row_splits, splits), shard_name, f"{name} and item_id differ in length")
    return batch[name].values.numpy()


def _feature_values(batch, schema, splits, shard_name):
    """int64 [events,C-1]: the features' values of each event, in schema order."""
    columns = [np.zeros((splits[-1], 0), np.int64)]
    for feature in schema.features:
        ragged = batch[feature.key]
        _require(np.array_equal(ragged.row_splits, splits * feature.width), shard_name,
                 f"{feature.key} must have {feature.width} value(s) per event")
        values = ragged.values.numpy()
        _require(np.all((values >= 0) & (values < feature.rows)), shard_name,
                 f"{feature.key} outside [0, {feature.rows})")
        columns.append(values.reshape(-1, feature.width))
    return np.concatenate(columns, axis=1)
