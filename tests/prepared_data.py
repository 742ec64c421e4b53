"""Prepares small logs and reads data folders back, record by record, without the trainer's input pipeline."""
import dataclasses
import hashlib
import pathlib

import tensorflow as tf

from clrec_tf.config import Config
from clrec_tf.config import Paths
from clrec_tf.config import PrepareConfig
from clrec_tf.data import schema as schema_lib
from clrec_tf import prepare


def prepare_text(folder, text: str, seed: int = 0, name: str = "data", **settings) -> str:
    """Writes `text` as log.csv into `folder`, prepares it and returns the data folder."""
    log, data_dir = folder / "log.csv", folder / name
    log.write_text(text, encoding="utf-8")
    prepare.prepare(Config(paths=Paths(data_dir=str(data_dir), seed=seed),
                           prepare=PrepareConfig(**dict(dict(input=str(log)), **settings))))
    return str(data_dir)


def read_split(data_dir: str, split: str) -> list[dict]:
    """Records of one split, in file order: feature -> list of values."""
    manifest = schema_lib.load_manifest(data_dir, verify="sha256")
    records = []
    for path in manifest.paths(data_dir, split):
        for record in tf.data.TFRecordDataset(path).as_numpy_iterator():
            features = tf.train.Example.FromString(record).features.feature
            records.append({key: list(getattr(value, value.WhichOneof("kind")).value)
                            for key, value in features.items()})
    return records


def rewritten(folder, name, change):
    """Changes every record of a shard, with checksums, manifest and all."""
    path = pathlib.Path(folder) / name
    records = [change(record) for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator()]
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            writer.write(record)
    manifest = schema_lib.load_manifest(str(folder), verify="")
    content = path.read_bytes()
    entry = lambda shard: shard if shard.name != name else dataclasses.replace(
        shard, bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
    schema_lib.save_manifest(str(folder), dataclasses.replace(
        manifest, shards={split: tuple(map(entry, shards)) for split, shards in manifest.shards.items()}))
