"""The files of a checkpoint: an index and data files of the same prefix, in a folder whose list names the newest."""
import contextlib
import hashlib
import os
from typing import Iterable, Optional

import tensorflow as tf

from clrec_tf.errors import DataError


def latest_checkpoint(folder: str) -> Optional[str]:
    """Prefix of the newest checkpoint that a folder's list names, if its index file is there.

    TensorFlow's own function takes the folder's name for a pattern, and so does what removes old checkpoints.
    """
    state = tf.train.get_checkpoint_state(folder)
    prefix = state.model_checkpoint_path if state else ""
    return prefix if prefix and os.path.exists(prefix + ".index") else None


def remove_checkpoints(prefixes: Iterable[str]) -> None:
    """Removes what TensorFlow has left of checkpoints that it keeps no longer."""
    for prefix in prefixes:
        if os.path.isdir(os.path.dirname(prefix)):
            for path in checkpoint_files(prefix):
                with contextlib.suppress(FileNotFoundError):
                    os.remove(path)


def check_complete(prefix: str) -> None:
    """`DataError` unless the checkpoint's index file and all data files are there."""
    if not os.path.exists(prefix + ".index"):
        raise DataError(f"checkpoint {prefix} is not there (no {prefix}.index)")
    if not checkpoint_files(prefix)[1:]:
        raise DataError(f"checkpoint {prefix} has no data files")


def checkpoint_files(prefix: str) -> list[str]:
    """Files of a checkpoint, the index first."""
    folder, name = os.path.split(prefix)
    data = sorted(f for f in os.listdir(folder) if f.startswith(name + ".data-"))
    return [prefix + ".index"] + [os.path.join(folder, f) for f in data]


def checkpoint_hash(prefix: str) -> str:
    """sha256 over the checkpoint's files, in order."""
    digest = hashlib.sha256()
    for path in checkpoint_files(prefix):
        with open(path, "rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()
