"""Which checkpoints a folder holds: by TensorFlow's list of them, and by the files where that is lost or damaged."""
import contextlib
import hashlib
import os
import re
import shutil
import time
from typing import Optional

from absl import logging
import tensorflow as tf

from clrec_tf.errors import DataError
from clrec_tf.system import atomic

NAME = "step"  # of checkpoints, before the number of steps
LIST_FILE = "checkpoint"
_LINE = re.compile(r'(?:(model_checkpoint_path|all_model_checkpoint_paths): "(step-\d{1,18})"'
                   r"|(?:all_model_checkpoint_timestamps|last_preserved_timestamp): [\d.e+-]+)")


def kept(folder: str) -> list[str]:
    """Prefixes of the checkpoints in a folder, oldest first; warns where TensorFlow's list of them is of no use."""
    if not os.path.isdir(folder):
        return []
    listed, on_disk = _listed(folder), _by_files(folder)
    if listed is None and on_disk:
        logging.warning("%s, the list of checkpoints, is lost or damaged: going by the files, which end with %s-%d",
                        os.path.join(folder, LIST_FILE), NAME, on_disk[-1])
    steps = on_disk if listed is None else listed
    return [os.path.join(folder, f"{NAME}-{step}") for step in steps]


def is_sound(folder: str) -> bool:
    """Whether TensorFlow's list of the checkpoints in a folder says which is the newest, and that one is there."""
    return _listed(folder) is not None


def kept_by_files(folder: str) -> list[str]:
    """Prefixes of the checkpoints in a folder without a list whose files are there, oldest first."""
    return [os.path.join(folder, f"{NAME}-{step}") for step in _by_files(folder)] if os.path.isdir(folder) else []


def newest(folder: str) -> Optional[str]:
    """The last of `kept`, None where there is none."""
    return next(reversed(kept(folder)), None)


def tidy(folder: str) -> None:
    """Removes what killed processes left unfinished, and restores a list that is of no use. Nobody else writes now."""
    if not os.path.isdir(folder):
        return
    for name in sorted(os.listdir(folder)):
        path, data = os.path.join(folder, name), re.fullmatch(r"(step-\d+)\.data-\d+-of-\d+", name)
        unfinished = data and not os.path.exists(os.path.join(folder, f"{data[1]}.index"))
        if unfinished or re.fullmatch(r"step-\d+_temp", name) or ".tempstate" in name:
            logging.info("removing %s, which was never finished", path)
            shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)
    prefixes = kept(folder)
    if prefixes and _listed(folder) is None:
        write_list(folder, prefixes)


def write_list(folder: str, prefixes: list[str]) -> None:
    """Writes TensorFlow's list of the checkpoints in a folder, oldest first."""
    names, now = [os.path.basename(prefix) for prefix in prefixes], time.time()
    lines = [f'model_checkpoint_path: "{names[-1]}"', *(f'all_model_checkpoint_paths: "{name}"' for name in names),
             *(f"all_model_checkpoint_timestamps: {now!r}" for _ in names),
             f"last_preserved_timestamp: {now - 1!r}"]
    with atomic.new_file(os.path.join(folder, LIST_FILE)) as path, open(path, "w", encoding="ascii") as file:
        file.writelines(f"{line}\n" for line in lines)


def save(manager: tf.train.CheckpointManager, step: int, device: Optional[str] = None) -> str:
    """Saves under a number of steps; on disk before the list names it, and before older ones are removed.

    Args:
      manager: of checkpoints called `NAME`.
      step: training steps done. They take the place of TensorFlow's counter of savings, so that equal trainings have
        equal checkpoints, however often each was interrupted.
      device: that writes the files, None for where the values are.
    """
    before = set(manager.checkpoints)
    manager.checkpoint.save_counter.assign(step - 1)  # save adds one
    prefix = manager.save(step, options=tf.train.CheckpointOptions(
        experimental_io_device=device, experimental_write_callbacks=[_flush]))
    _remove(before - set(manager.checkpoints))
    return prefix


def _remove(prefixes) -> None:
    """Removes what TensorFlow, which takes a folder's name for a pattern, has left of checkpoints kept no longer."""
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
    data = sorted(f for f in os.listdir(folder or ".") if f.startswith(name + ".data-"))
    return [prefix + ".index"] + [os.path.join(folder, f) for f in data]


def checkpoint_hash(prefix: str) -> str:
    """sha256 over the checkpoint's files, in order."""
    digest = hashlib.sha256()
    for path in checkpoint_files(prefix):
        with open(path, "rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def _flush(prefix):
    for path in [*checkpoint_files(prefix), os.path.dirname(prefix)]:
        atomic.sync(path)


def _listed(folder) -> Optional[list[int]]:
    """Steps in TensorFlow's list whose files are there, oldest first; None where it does not say what is the newest."""
    try:
        with open(os.path.join(folder, LIST_FILE), encoding="ascii") as file:
            matches = [_LINE.fullmatch(line.rstrip("\n")) for line in file]
    except (OSError, UnicodeDecodeError):
        return None
    if not all(matches):
        return None
    steps = lambda kind: [int(match[2].rpartition("-")[2]) for match in matches if match[1] == kind]
    latest, listed = steps("model_checkpoint_path"), steps("all_model_checkpoint_paths")
    there = [step for step in listed if os.path.exists(os.path.join(folder, f"{NAME}-{step}.index"))]
    sound = len(latest) == 1 and latest == there[-1:] and len(set(listed)) == len(listed)
    return there if sound else None


def _by_files(folder) -> list[int]:
    """Steps whose index and data files are there, ascending."""
    steps = []
    for name in os.listdir(folder):
        match = re.fullmatch(r"step-(\d+)\.index", name)
        if match:
            parts = checkpoint_files(os.path.join(folder, f"{NAME}-{match[1]}"))[1:]
            if parts and len(parts) == int(parts[0].rpartition("-of-")[2]):
                steps.append(int(match[1]))
    return sorted(steps)
