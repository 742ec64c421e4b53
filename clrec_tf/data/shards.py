"""Reads TFRecord shards of a data folder (layout: ``schema``) into NumPy, checked against manifest and schema.

Every shard is counted against the manifest: TensorFlow ends silently at a file cut between two records or inside the
length of one, and a metric over the users that happen to be left would look as good as any.
"""
import os
from typing import Iterator, Sequence

import numpy as np
import tensorflow as tf

from clrec_tf.data.record_lengths import check_lengths
from clrec_tf.data.schema import Shard
from clrec_tf.errors import DataError
from clrec_tf.stores import on_demand

_BATCH = 1024


def scalar(dtype, default=None) -> tf.io.FixedLenFeature:
    """Parsing spec of one value per record."""
    return tf.io.FixedLenFeature([], dtype, default)


def integers() -> tf.io.RaggedFeature:
    """Parsing spec of a list of integers."""
    return tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.int64)


def parsed_batches(data_dir: str, shards: tuple[Shard, ...], spec: dict) -> Iterator[tuple[Shard, dict]]:
    """Parsed batches of each shard in order; `DataError` where a shard is damaged or its number of records wrong."""
    for shard in shards:
        path, records = os.path.join(data_dir, shard.name), 0
        with on_demand.present(data_dir, [shard.name]):
            check_lengths(path)
            try:
                for serialized in tf.data.TFRecordDataset(path, buffer_size=2**20).batch(_BATCH):
                    records += len(serialized)
                    yield shard, tf.io.parse_example(serialized, spec)
            except (tf.errors.OpError, UnicodeDecodeError) as error:  # the latter: its text quotes what is no UTF-8
                why = getattr(error, "message", "TensorFlow cannot parse a record")
                raise DataError(f"shard {path} is damaged after {records} records: {why}") from error
        if records != shard.records:
            raise DataError(f"shard {path} holds {records} records, the manifest says {shard.records}: it is truncated "
                            "or was changed")


def check(condition, shard_name: str, problem: str) -> None:
    """`DataError` that names the shard, unless the condition holds."""
    if not condition:
        raise DataError(f"shard {shard_name}: {problem}")


def feature_values(batch: dict, features: Sequence, splits: np.ndarray, shard_name: str) -> np.ndarray:
    """Features of a parsed batch.

    Args:
      batch: feature key -> ragged values.
      features: `Feature`s or `QueryFeature`s: their keys, widths and numbers of values.
      splits: [n+1], where each record's events begin and end.
      shard_name: for errors.

    Returns:
      int64 [events, Σ widths], in the order of the features.

    Raises:
      DataError: a feature has too few or too many values, or one that the schema does not know.
    """
    columns = [np.zeros((splits[-1], 0), np.int64)]
    for feature in features:
        ragged = batch[feature.key]
        check(np.array_equal(ragged.row_splits, splits * feature.width), shard_name,
              f"{feature.key} must have {feature.width} value(s) per event")
        values = ragged.values.numpy()
        check(np.all((values >= 0) & (values < feature.rows)), shard_name,
              f"{feature.key} outside [0, {feature.rows})")
        columns.append(values.reshape(-1, feature.width))
    return np.concatenate(columns, axis=1)
