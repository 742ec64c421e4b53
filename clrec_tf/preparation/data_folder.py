"""A data set -> a folder as `schema` describes it, complete or not there at all."""
import contextlib
import hashlib
import os
from typing import Iterator, Optional, Sequence

import numpy as np
import tensorflow as tf

from clrec_tf.data import query_features
from clrec_tf.data import schema as schema_lib
from clrec_tf.data.schema import Shard
from clrec_tf.errors import write_error
from clrec_tf.preparation.data_set import Dataset
from clrec_tf.preparation.data_set import PARTS
from clrec_tf.preparation.shard_records import ShardRecords
from clrec_tf.preparation.splits import Sequences
from clrec_tf.settings.data import PrepareConfig
from clrec_tf.system import atomic
from clrec_tf.system.progress import progress

CATALOGUE_SHARD_RECORDS = 65_536
_BLOCK = 250_000  # events of sequences that are made into records at a time


def sequence_examples(dataset: Dataset, sequences: Sequences, rows: np.ndarray) -> list[bytes]:
    """Serialised Examples of the sequences whose numbers `rows` [R] gives."""
    lengths = np.diff(sequences.offsets)[rows]
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    events = np.arange(offsets[-1]) + np.repeat(sequences.offsets[rows] - offsets[:-1], lengths)
    item, item_id = sequences.item[events], sequences.item_id[events]
    single = np.arange(len(rows) + 1)  # offsets of one value per record
    columns = dict(user_id=(sequences.user[rows], single), target_count=(sequences.target_count[rows], single),
                   item_id=(item_id, offsets))
    known = (item_id > 0) & (item_id <= dataset.schema.num_items)
    if sequences.timestamp is not None:
        columns["timestamp"] = (sequences.timestamp[events], offsets)
    if sequences.dwell is not None:
        columns["dwell"] = (sequences.dwell[events], offsets)
    if sequences.event is not None:
        columns["event"] = (sequences.event[events], offsets)
    for source, table, places, ends in ((query_features.USER, dataset.profile, sequences.user[rows], single),
                                        (query_features.CONTEXT, sequences.context, events, offsets)):
        features = query_features.of_source(dataset.schema.query_features, source)
        for key, part in query_features.query_columns(features).items():
            columns[key] = (table[places, part].reshape(-1), ends * (part.stop - part.start))
    for feature, values in zip(dataset.schema.features, dataset.feature_rows):
        # Neither an unknown target nor a hash bucket has features: what shares an id must share its row.
        columns[feature.key] = (np.where(known[:, None], values[item], 0).reshape(-1), offsets * feature.width)
    examples = _int64_examples(columns)
    for example in examples:
        example.features.feature["weight"].float_list.value.append(1.0)
    return _serialised(examples)


def catalogue_examples(dataset: Dataset, rows: np.ndarray) -> list[bytes]:
    """Serialised Examples of the items whose ids minus one `rows` [R] gives."""
    catalogue, single = dataset.catalogue, np.arange(len(rows) + 1)
    columns = dict(item_id=(rows + 1, single), count=(catalogue.counts[rows], single))
    if catalogue.cold.any():
        columns["cold"] = (catalogue.cold[rows].astype(int), single)
    if catalogue.last_click is not None:
        columns["last_click"] = (catalogue.last_click[rows], single)
    for feature, values in zip(dataset.schema.features, dataset.feature_rows):
        columns[feature.key] = (values[catalogue.items[rows]].reshape(-1), single * feature.width)
    examples = _int64_examples(columns)
    for example, row in zip(examples, rows.tolist()):
        example.features.feature["original_id"].bytes_list.value.append(catalogue.original_ids[row].encode())
        if catalogue.titles is not None:
            example.features.feature["title"].bytes_list.value.append((catalogue.titles[row] or "").encode())
    return _serialised(examples)


def _int64_examples(columns: dict[str, tuple[np.ndarray, np.ndarray]]) -> list[tf.train.Example]:
    """R Examples; of key -> (values [E], offsets [R + 1]), Example r gets values[offsets[r]:offsets[r + 1]]."""
    # Lists, because protobuf takes Python's integers several times faster than NumPy's.
    columns = [(key, values.tolist(), offsets.tolist()) for key, (values, offsets) in columns.items()]
    examples = [tf.train.Example() for _ in columns[0][2][1:]]
    for row, example in enumerate(examples):
        for key, values, offsets in columns:
            example.features.feature[key].int64_list.value.extend(values[offsets[row]:offsets[row + 1]])
    return examples


def _serialised(examples: list[tf.train.Example]) -> list[bytes]:
    # Without `deterministic` the order of an Example's features differs from process to process.
    return [example.SerializeToString(deterministic=True) for example in examples]


def write_shard(folder: str, name: str, records: list[bytes], events: int) -> Shard:
    """Writes one TFRecord file; `OSError` where the disk is full."""
    path = os.path.join(folder, name)
    try:
        with tf.io.TFRecordWriter(path) as writer:
            for record in records:
                writer.write(record)
    except tf.errors.OpError as error:
        raise OSError(0, f"cannot be written ({error.message})", path) from error
    expected = sum(map(len, records)) + 16 * len(records)  # a length, and two checksums around each record
    shard = _entry(folder, name, len(records), events)
    if shard.bytes != expected:
        raise OSError(0, f"has {shard.bytes} bytes after {expected} were written; is the disk full?", path)
    return shard


def _entry(folder: str, name: str, records: int, events: int) -> Shard:
    with open(os.path.join(folder, name), "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return Shard(name, records, events, file.tell(), digest)


def _write_catalogue(folder: str, dataset: Dataset) -> Iterator[Shard]:
    """Shards of the items by id."""
    items = np.arange(dataset.schema.num_items)
    count = -(-len(items) // CATALOGUE_SHARD_RECORDS)
    for number in range(count):
        rows = items[number * CATALOGUE_SHARD_RECORDS:(number + 1) * CATALOGUE_SHARD_RECORDS]
        yield write_shard(folder, shard_name("catalogue", number, count), catalogue_examples(dataset, rows), 0)


def write_dataset(data_dir: str, dataset: Dataset, settings: PrepareConfig, seed: int) -> None:
    """Writes a data folder: all of it under another name, then a rename.

    Args:
      data_dir: absent, or an empty folder.
      dataset: what to write.
      settings: --shard_records, --clicks_in_memory and the scratch folder.
      seed: of the random order in which users are dealt to shards.

    Raises:
      UserError: disk full, no permission; `data_dir` is then as it was.
    """
    with atomic.new_folder(data_dir, f"data_dir={data_dir}") as folder, write_errors(data_dir):
        complete(folder, dataset, _write_sequences(folder, dataset, settings, seed))


@contextlib.contextmanager
def write_errors(data_dir: str):
    """Turns errors of the operating system into a `UserError` about the data folder."""
    try:
        yield
    except OSError as error:
        raise write_error(error)(
            f"--data_dir={data_dir} cannot be written ({error.filename or data_dir}: {error.strerror or error}): "
            "free space, or choose another --data_dir") from error


def complete(folder: str, dataset: Dataset, shards: dict[str, Sequence[Shard]]) -> None:
    """Writes all but the shards of sequences, the manifest last.

    Args:
      folder: that is to become the data folder.
      dataset: whose sequences are not looked at.
      shards: of the sequences, by part.
    """
    shards = {**shards, "catalogue": _write_catalogue(folder, dataset)}
    shards = {split: tuple(own) for split, own in shards.items()}
    content = _write_array(folder, schema_lib.CONTENT_FILE, dataset.content)
    impressions = _write_array(folder, schema_lib.IMPRESSIONS_FILE, dataset.exposures)
    schema_lib.save_schema(folder, dataset.schema)
    schema_lib.save_json(os.path.join(folder, schema_lib.REPORT_FILE), dataset.report)
    schema_lib.save_json(os.path.join(folder, schema_lib.FEATURE_VALUES_FILE), dataset.feature_values)
    others = tuple(_entry(folder, name, 0, 0) for name in (schema_lib.REPORT_FILE, schema_lib.FEATURE_VALUES_FILE))
    schema_lib.save_manifest(folder, schema_lib.Manifest(dataset.schema.hash(), shards, content, impressions, others))


def dealt(sequences: dict[str, int], seed: int) -> dict[str, np.ndarray]:
    """Part -> which of its sequences stands at each place [R], of part -> R; at random, so that shards are alike and
    training may read a few at a time."""
    random = np.random.default_rng(seed)
    return {split: random.permutation(count) for split, count in sequences.items()}


def shard_name(split: str, number: int, count: int) -> str:
    """Name of a shard of a part that has `count` of them."""
    return f"{split}-{number:05d}-of-{count:05d}.tfrecord"


def _write_sequences(folder: str, dataset: Dataset, settings: PrepareConfig, seed: int) -> dict[str, list[Shard]]:
    sizes = {part: dataset.report[part] for part in PARTS}
    orders = dealt({part: size["sequences"] for part, size in sizes.items()}, seed)
    records = {part: ShardRecords(orders[part], size["clicks"], settings) for part, size in sizes.items()}
    with progress("making records", "clicks", sum(size["clicks"] for size in sizes.values())) as shown:
        for sequences in dataset.sequences:
            for part, own in sequences.items():
                for rows in blocks(own):
                    events = np.diff(own.offsets)[rows]
                    records[part].add(sequence_examples(dataset, own, rows), events)
                    shown.update(int(events.sum()))
    shards = {part: [] for part in PARTS}
    with progress("writing shards", "shards", sum(own.shards for own in records.values())) as shown:
        for part in PARTS:
            for number, (own, events) in enumerate(records[part].by_shard()):
                shards[part].append(write_shard(folder, shard_name(part, number, records[part].shards), own, events))
                shown.update()
    return shards


def blocks(sequences: Sequences) -> list[np.ndarray]:
    """Numbers of the sequences, as many at a time as have about _BLOCK events."""
    rows = np.arange(len(sequences))
    return np.split(rows, np.flatnonzero(np.diff(sequences.offsets[:-1] // _BLOCK)) + 1) if len(rows) else []


def _write_array(folder: str, name: str, array: Optional[np.ndarray]) -> Optional[Shard]:
    if array is None:
        return None
    np.save(os.path.join(folder, name), array)
    return _entry(folder, name, len(array), 0)
