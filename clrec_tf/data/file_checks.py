"""Files of a data folder against its manifest."""
import hashlib
import os

from clrec_tf.data.record_lengths import check_lengths
from clrec_tf.errors import DataError
from clrec_tf.stores import on_demand
from clrec_tf.system.inner_path import inner_path


def check_shard(data_dir: str, shard, verify: str) -> None:
    """Compares one file of a data folder with its manifest entry.

    Args:
      data_dir: folder of the data set.
      shard: a `schema.Shard`.
      verify: "size" compares sizes, "sha256" contents too, and that no record says that it is longer than
        its file.

    Raises:
      DataError: naming the file and the difference.
    """
    try:
        path = inner_path(data_dir, shard.name)
    except ValueError as error:
        raise DataError(f"the manifest of {data_dir} is damaged ({error}): restore it or prepare the data again"
                        ) from error
    if on_demand.comes_later(data_dir, shard.name):
        return  # compared when it is fetched
    if not os.path.exists(path):
        raise DataError(f"{path} is missing though the manifest lists it: restore it or prepare the data again")
    size = os.path.getsize(path)
    if size != shard.bytes:
        raise DataError(f"{path} has {size} bytes, the manifest says {shard.bytes}: it is truncated or was "
                        "changed: restore it or prepare the data again")
    if max(shard.records, shard.events) > size:
        raise DataError(f"the manifest of {data_dir} says that {shard.name} has {shard.records} records and "
                        f"{shard.events} clicks in {size} bytes: restore it or prepare the data again")
    if verify == "sha256":
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != shard.sha256:
            raise DataError(f"{path} has sha256 {digest[:12]}…, the manifest says {shard.sha256[:12]}…: it is "
                            "damaged")
        if path.endswith(".tfrecord"):
            check_lengths(path)
