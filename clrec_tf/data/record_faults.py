"""Which shard of the training data holds a record that cannot be read, and why.

TensorFlow's error about a record that is no Example does not name its file. Its text quotes the record, and where that
is no UTF-8 Python cannot even make the error: a `UnicodeDecodeError` comes in its place.
"""
import os
from typing import Iterator

import tensorflow as tf

from clrec_tf.data import schema as schema_lib
from clrec_tf.data.pools import read_pool
from clrec_tf.stores import on_demand


def record_faults(data_dir: str, manifest: schema_lib.Manifest, schema: schema_lib.Schema) -> Iterator[tuple[str, str]]:
    """Reads every training record as training does; (path of a shard, what TensorFlow says of it) for each fault."""
    for shard in manifest.shards.get("train", ()):
        path = os.path.join(data_dir, shard.name)
        with on_demand.present(data_dir, [shard.name]):
            try:
                for _ in read_pool(tf.constant([path]), tf.constant(shard.records, tf.int64), schema):
                    pass
            except (tf.errors.OpError, UnicodeDecodeError) as error:
                yield path, getattr(error, "message", "TensorFlow cannot parse a record")


def may_be_of_a_record(error: Exception) -> bool:
    """Whether an error that training met can be of a record that is no Example, or one of other types."""
    return isinstance(error, UnicodeDecodeError) or "ParseExample" in str(error)
