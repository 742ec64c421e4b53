"""Checkpoints with everything in them: model, optimizer, queue, and where the training stands."""
import glob
import io
import os
from typing import Optional

from absl import logging
import numpy as np
import tensorflow as tf

from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.errors import write_error
from clrec_tf.system.pattern_names import readable_name
from clrec_tf.training import checkpoint_list
from clrec_tf.training.progress import Progress
from clrec_tf.training.progress import ProgressState
from clrec_tf.training.reasons import reason
from clrec_tf.training import run_config

LATEST_FOLDER = "checkpoints"
BEST_FOLDER = "best"
_PROGRESS = "progress/.ATTRIBUTES/py_state"


class LocalState(tf.train.experimental.PythonState):
    """Worker-local variables (queue, sampler) inside a checkpoint, one copy per worker.

    Values of a worker that is down when a checkpoint is taken are those of the last time it was seen. Restored before
    the first trace, since worker-local variables are made when the first call runs.
    """

    def __init__(self, owner, runtime):
        self.owner, self._variables, self._runtime, self._seen = owner, owner.local_variables, runtime, {}

    @property
    def shapes(self) -> dict:
        """Name of each variable -> its shape, a tuple."""
        return {name: tuple(variable.shape) for name, variable in self._variables.items()}

    def serialize(self):
        """An .npz archive of field/worker -> array; no pickle."""
        for name, variable in self._variables.items():
            for worker, value in enumerate(self._runtime.read_local(variable)):
                if value is not None:
                    self._seen[f"{name}/{worker}"] = value
        archive = io.BytesIO()
        np.savez(archive, **self._seen)
        return archive.getvalue()

    def deserialize(self, string_value):
        """Sets the variables."""
        with np.load(io.BytesIO(string_value), allow_pickle=False) as archive:
            self._seen = {name: archive[name] for name in archive.files}
        for name, variable in self._variables.items():
            values = [self._seen.get(f"{name}/{worker}") for worker in range(self._runtime.num_workers)]
            self._runtime.write_local(variable, values)


class Checkpoints:
    """The latest checkpoints of a run and its best model.

    TensorFlow writes each checkpoint under a temporary name, renames it, and only then names it in the folder's
    `checkpoint` file: a process killed while saving leaves the one before.

    Args:
      workdir: folder of the run.
      keep: latest checkpoints kept.
      model, optimizer, progress, runtime: what is saved.
      local_states: name -> object with `local_variables`, such as the queue.
      keys: a `KeyEncoder`, or None.

    Attributes:
      local_states: name -> `LocalState` of each.
    """

    def __init__(self, workdir, keep, model, optimizer, local_states, progress, runtime, keys=None):
        state = dict(model=model, optimizer=optimizer, progress=ProgressState(progress))
        state |= {} if keys is None else dict(momentum_encoder=keys.state)
        self.local_states = {name: LocalState(owner, runtime) for name, owner in local_states.items()}
        state |= self.local_states
        self._progress, self._options = progress, runtime.save_options
        for folder in (LATEST_FOLDER,) if runtime.evaluator else (LATEST_FOLDER, BEST_FOLDER):  # the other is its own
            checkpoint_list.tidy(os.path.join(workdir, folder))
        self._checkpoint = tf.train.Checkpoint(**state)
        self._latest = tf.train.CheckpointManager(
            self._checkpoint, os.path.join(workdir, LATEST_FOLDER), max_to_keep=keep,
            checkpoint_name=checkpoint_list.NAME)
        self._best = tf.train.CheckpointManager(
            tf.train.Checkpoint(model=model), os.path.join(workdir, BEST_FOLDER), max_to_keep=1,
            checkpoint_name=checkpoint_list.NAME)

    def save(self) -> str:
        """Saves everything; returns the prefix."""
        return self._saved(self._latest)

    def save_best(self) -> str:
        """Saves the model as the best so far."""
        return self._saved(self._best)

    def restore_latest(self) -> Optional[str]:
        """Restores everything from the latest checkpoint that is intact, if there is one; returns its prefix."""
        kept = checkpoint_list.kept(self._latest.directory)
        for prefix in reversed(kept):
            try:
                restore(self._checkpoint, prefix, self._options).assert_consumed()
                return prefix
            except DataError as error:
                logging.warning("%s: going back to the checkpoint before it", error)
            except AssertionError as error:
                raise UserError(f"checkpoint {prefix} does not fit this model ({str(error).splitlines()[0][:200]}): "
                                "its settings or schema differ; use another --workdir") from error
        if kept:
            raise DataError(f"no checkpoint in {self._latest.directory} can be read: use another --workdir")
        return None

    def _saved(self, manager):
        try:
            return checkpoint_list.save(manager, self._progress.step,
                                        self._options and self._options.experimental_io_device)
        except (tf.errors.UnavailableError, tf.errors.AbortedError):
            raise  # of a cluster; nothing is wrong with the disk
        except (tf.errors.OpError, OSError) as error:
            raise write_error(error)(
                f"cannot write a checkpoint to {manager.directory} ({reason(error)}): the one "
                "before it is kept; free space there or choose another --workdir, which in a cluster all roles must "
                "see, or --checkpoint_io=chief, and run again to go on from it") from error


def restore(checkpoint: tf.train.Checkpoint, prefix: str, options=None):
    """Restores objects from a checkpoint.

    Args:
      checkpoint: the objects.
      prefix: of the files.
      options: tf.train.CheckpointOptions, None for TensorFlow's.

    Returns:
      TensorFlow's load status, for assertions about what was found.

    Raises:
      DataError: a file is missing, cut short or damaged.
      UserError: shapes differ from the objects'.
    """
    checkpoint_list.check_complete(prefix)
    folder, name = os.path.split(prefix)
    try:
        with readable_name(folder) as readable:
            return checkpoint.restore(os.path.join(readable, name), options)
    except (ValueError, tf.errors.InvalidArgumentError, tf.errors.NotFoundError) as error:
        raise UserError(f"checkpoint {prefix} does not fit this model ({str(error).splitlines()[0][:200]}): "
                        "its settings or schema differ") from error
    except (tf.errors.OpError, IndexError, RuntimeError) as error:  # however its reader puts it
        raise DataError(f"checkpoint {prefix} is damaged ({str(error).splitlines()[0][:200]})") from error


def find_checkpoint(workdir: str, which: str, flag: str = "eval_checkpoint") -> str:
    """Prefix of the "best", the "latest" or a given checkpoint, which `flag` names.

    "best" is the latest where training ran without validation.

    Raises:
      UserError: there is none; DataError: there was a best one, and it is lost.
    """
    if which in ("best", "latest"):
        latest = checkpoint_list.newest(os.path.join(workdir, LATEST_FOLDER))
        prefix = _best(workdir, latest, flag) if which == "best" else latest
        if not prefix:
            raise UserError(f"--workdir={workdir} holds no checkpoint: run python -m clrec_tf.train first")
    else:
        prefix = which.removesuffix(".index")
        if not os.path.exists(prefix + ".index"):
            choices = ["best", "latest"] + [
                path.removesuffix(".index") for folder in (BEST_FOLDER, LATEST_FOLDER)
                for path in sorted(glob.glob(os.path.join(glob.escape(workdir), folder, "*.index")))]
            raise UserError(f"--{flag}={which} is no checkpoint: choose from {', '.join(choices)}")
    checkpoint_list.check_complete(prefix)
    return prefix


def _best(workdir, latest, flag):
    """Prefix of the best checkpoint, or of the latest where there was no validation."""
    folder = os.path.join(workdir, BEST_FOLDER)
    best = checkpoint_list.newest(folder)
    validated = latest is not None and saved_progress(latest).best_metric is not None
    if not best and (validated or os.path.isdir(folder)):
        remedy = f", or give --{flag}=latest for {latest}" if latest else ""
        raise DataError(f"--{flag}=best: {folder} holds no complete checkpoint, though training has kept a best one "
                        f"there: restore it from a copy{remedy}")
    if best and latest:
        _warn_of_unvalidated(workdir, *(int(prefix.rpartition("-")[2]) for prefix in (best, latest)), flag)
    return best or latest


def _warn_of_unvalidated(workdir, best, latest, flag):
    """Says where a run with a best checkpoint went on without validation: the best is that of what came before."""
    if best != latest and os.path.exists(os.path.join(workdir, run_config.CONFIG_FILE)):
        if run_config.load(workdir).get("train", {}).get("validate_every") == 0:
            logging.warning("--%s=best is of step %d, of before this run trained to step %d without validation "
                            "(--validate_every=0): nobody knows which is better; --%s=latest takes the latter", flag,
                            best, latest, flag)


def saved_progress(prefix: str) -> Progress:
    """Where the training stood that saved a checkpoint; at its beginning where that cannot be read."""
    progress = Progress()
    try:
        folder, name = os.path.split(prefix)
        with readable_name(folder) as readable:
            reader = tf.train.load_checkpoint(os.path.join(readable, name))
            ProgressState(progress).deserialize(reader.get_tensor(_PROGRESS))
    except (tf.errors.OpError, ValueError, RuntimeError, IndexError) as error:
        logging.warning("%s cannot be read (%s)", prefix, reason(error))
    return progress
