"""Reads the evaluated users of a prepared data set (layout: ``schema``) into NumPy."""
import dataclasses

import numpy as np
import tensorflow as tf

from clrec_tf.data.evaluation_set import concatenate
from clrec_tf.data.evaluation_set import EvaluationSet
from clrec_tf.data import query_features
from clrec_tf.data.schema import Manifest
from clrec_tf.data.schema import Schema
from clrec_tf.data import shards
from clrec_tf.errors import DataError


def read_evaluation_set(data_dir: str, split: str, schema: Schema, manifest: Manifest, max_users: int = 0,
                        seed: int = 0) -> EvaluationSet:
    """Reads the users of a part whose weight is not 0, in file order.

    Args:
      data_dir: folder of the data set.
      split: "valid" or "test"; "train": one random example of each training sequence (`random_prefixes`).
      schema, manifest: of that folder.
      max_users: users kept, drawn at random by `seed` before anything is held in memory; 0 keeps all.
      seed: of that draw, and of the examples.

    Raises:
      DataError: naming the shard, if it is missing, damaged, has another number of records than the manifest says, or
        holds values that contradict the schema; or if the part holds no user.
    """
    total = manifest.records(split) if split in manifest.shards else 0
    kept = np.ones(total, bool)
    if 0 < max_users < total:
        kept = np.isin(np.arange(total), np.random.default_rng(seed).choice(total, max_users, replace=False))
    pieces, position = [], 0
    for shard, batch in shards.parsed_batches(data_dir, manifest.shards.get(split, ()), _sequence_features(schema)):
        piece = _users(batch, schema, shard.name)
        chosen = kept[position:position + piece.num_users] & (batch["weight"].numpy() > 0)
        pieces.append(piece.take(np.flatnonzero(chosen)))
        position += piece.num_users
    if not sum(piece.num_users for piece in pieces):
        raise DataError(f"{data_dir} has no user to evaluate in its part {split!r}: evaluate another --eval_split, or "
                        "prepare with a split that leaves users for it")
    users = concatenate(pieces)
    if split != "train":
        return users
    users = users.random_prefixes(seed)
    # Of a hash bucket nobody knows whether two clicks were on one item: an unknown target, as in the other parts.
    return dataclasses.replace(users, target_ids=np.where(users.target_ids > schema.num_items, 0, users.target_ids))


def _sequence_features(schema):
    names = ["item_id"] + ["timestamp"] * schema.has_timestamps + ["dwell"] * schema.has_dwell
    names += ["event"] * bool(schema.event_weights)
    names += [feature.key for feature in (*schema.features, *schema.query_features)]
    return dict(user_id=shards.scalar(tf.int64), weight=shards.scalar(tf.float32), target_count=shards.scalar(tf.int64),
                **{name: shards.integers() for name in names})


def _users(batch: dict, schema: Schema, shard_name: str) -> EvaluationSet:
    """One parsed batch as an `EvaluationSet`, checked against the schema."""
    ids, splits = batch["item_id"].values.numpy(), batch["item_id"].row_splits.numpy()
    target_counts, lengths = batch["target_count"].numpy(), np.diff(splits)
    shards.check(np.all((target_counts >= 1) & (target_counts <= lengths)), shard_name,
                 "target_count must be between 1 and the number of clicks")
    is_target = np.arange(len(ids)) >= np.repeat(splits[1:] - target_counts, lengths)
    shards.check(np.all((ids >= np.where(is_target, 0, 1)) & (ids < schema.item_rows)), shard_name,
                 f"item_id outside [1, {schema.item_rows}), or 0 in a history")
    features = shards.feature_values(batch, schema.features, splits, shard_name)
    times = _per_click(batch, "timestamp", splits, shard_name) if schema.has_timestamps else None
    dwell = _per_click(batch, "dwell", splits, shard_name) if schema.has_dwell else None
    kinds = _per_click(batch, "event", splits, shard_name) if schema.event_weights else None
    profile, context = (query_features.of_source(schema.query_features, source)
                        for source in (query_features.USER, query_features.CONTEXT))
    profile = shards.feature_values(batch, profile, np.arange(len(splits)), shard_name)
    context = shards.feature_values(batch, context, splits, shard_name)
    requests = splits[1:] - target_counts  # the first target of each user
    return EvaluationSet(
        user_ids=batch["user_id"].numpy(),
        history_ids=ids[~is_target].astype(np.int32), history_splits=splits - np.append(0, np.cumsum(target_counts)),
        target_ids=ids[is_target].astype(np.int32), target_splits=np.append(0, np.cumsum(target_counts)),
        history_features=features[~is_target].astype(np.int32) if schema.features else None,
        history_times=None if times is None else times[~is_target],
        request_times=None if times is None else times[requests],
        history_dwell=None if dwell is None else dwell[~is_target],
        history_events=None if kinds is None else kinds[~is_target],
        history_context=context[~is_target] if schema.query_features else None,
        query=np.concatenate([profile, context[requests]], axis=1) if schema.query_features else None)


def _per_click(batch, name, splits, shard_name):
    """int64 [events]: the one value of each event."""
    shards.check(np.array_equal(batch[name].row_splits, splits), shard_name, f"{name} and item_id differ in length")
    return batch[name].values.numpy()
