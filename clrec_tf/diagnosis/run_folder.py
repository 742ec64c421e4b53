"""The folder of a run: its settings beside those given, and its checkpoints beside its settings."""
import os
from typing import Iterator
from typing import Optional

import numpy as np
import tensorflow as tf

from clrec_tf.config import Config
from clrec_tf.data.schema import Schema
from clrec_tf.diagnosis.findings import About
from clrec_tf.diagnosis.findings import Finding
from clrec_tf.diagnosis.needs import model_shapes
from clrec_tf.errors import DataError
from clrec_tf.system import locks
from clrec_tf.system.pattern_names import readable_name
from clrec_tf.training import checkpoint_list
from clrec_tf.training import run_config
from clrec_tf.training.checkpoint_names import shapes_in
from clrec_tf.training.checkpoint_names import VALUE
from clrec_tf.training.checkpoints import BEST_FOLDER
from clrec_tf.training.checkpoints import LATEST_FOLDER
from clrec_tf.training.places import check_apart
from clrec_tf.training.workdir_lock import LOCK_FILE

REMEDY = "restore it from a copy, or use another --workdir"
_MOST = 5  # variables named


def check_run(about: About, config: Config, given: frozenset, schema: Optional[Schema], full: bool) -> Iterator[Finding]:
    """Compares a run with the settings given, with the data and with its own checkpoints.

    Args:
      about: makes the findings.
      config: all settings; those that nobody gave are not compared.
      given: names of those given.
      schema: of --data_dir, None where it is not given or cannot be read.
      full: whether every number of the checkpoints is read too.
    """
    workdir = config.paths.workdir
    check_apart(workdir, config.paths.data_dir)
    if not os.path.exists(os.path.join(workdir, run_config.CONFIG_FILE)):
        yield about.note("it holds no run yet: training would begin anew")
        return
    lock = os.path.join(workdir, LOCK_FILE)
    if os.path.exists(lock):  # not tried, for it would be held meanwhile
        yield about.note(f"{locks.owner(lock)} trains there, or was killed")
    saved = run_config.load(workdir)
    if schema is not None:
        run_config.check_schema(saved, schema.hash(), config.paths.data_dir, workdir)
    yield from check_settings(about, saved, config, given, schema)
    shapes = None if schema is None else model_shapes(run_config.saved_settings(saved), schema)
    for folder in (LATEST_FOLDER, BEST_FOLDER):
        yield from _checkpoints(about, os.path.join(workdir, folder), shapes, full)


def check_settings(about: About, saved, config, given, schema) -> Iterator[Finding]:
    """Settings that a run keeps: those given must be its own; others must be given if they are not the defaults."""
    has_events = schema is None or bool(schema.event_weights)
    differ = run_config.differences(saved, config, has_events)
    for name, (earlier, now) in differ.items():
        if name in given:
            yield about.fault(f"--{name}={_text(now)} differs from {_text(earlier)}, with which the run was started",
                              f"give --{name}={_text(earlier)}, or another --workdir")
    missing = " ".join(f"--{name}={_text(earlier)}" for name, (earlier, _) in differ.items() if name not in given)
    if missing and given & set(run_config.settings_in_force(saved)):  # of a training, which would refuse to go on
        yield about.fault(f"training goes on here only with {missing}", "give these flags too, or another --workdir")
    elif missing:
        yield about.note(f"training goes on here only with {missing}", "give these flags to train; other commands read "
                                                                       "them from config.json")


def _text(value) -> str:
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _checkpoints(about: About, folder: str, shapes, full: bool) -> Iterator[Finding]:
    """Each checkpoint that a folder lists: complete, readable, and of the model's shapes."""
    prefixes = checkpoint_list.kept(folder)
    for prefix in prefixes:
        try:
            checkpoint_list.check_complete(prefix)
            problems = list(_problems(prefix, shapes, full))
        except (DataError, tf.errors.OpError, ValueError, IndexError, RuntimeError) as error:  # as its reader puts it
            if prefix not in checkpoint_list.kept(folder):  # a training that goes on has removed it
                continue
            problems = [f"cannot be read: {str(error).splitlines()[0][:300]}"]
        for problem in problems:
            yield about.fault(f"checkpoint {prefix} {problem}", "remove its files, and train on from the one before; "
                                                                 "or use another --workdir")
        if not problems:
            what = "opens" if shapes is None else "has the shapes of the run's model"
            yield about.ok(f"checkpoint {prefix} {what}" + (", and finite numbers" if full else ""))
    if not prefixes and os.path.isdir(folder):
        yield about.note(f"{folder} holds no checkpoint")
    elif prefixes and not checkpoint_list.is_sound(folder):
        yield about.note(f"{os.path.join(folder, checkpoint_list.LIST_FILE)}, the list of checkpoints, is lost or "
                         "damaged: the files are gone by", "nothing need be done; the next training writes it anew")


def _problems(prefix: str, shapes, full: bool) -> Iterator[str]:
    """What is wrong with a checkpoint."""
    folder, name = os.path.split(prefix)
    with readable_name(folder) as readable:
        reader = tf.train.load_checkpoint(os.path.join(readable, name))
        found = shapes_in(reader)
        wrong = [f"{variable} has shape {found.get(variable, 'none')}, the settings say {shape}"
                 for variable, shape in (shapes or {}).items() if found.get(variable) != shape]
        if wrong:
            yield f"differs from the run's model: {'; '.join(wrong[:_MOST])}" + (
                f"; and {len(wrong) - _MOST} more" if len(wrong) > _MOST else "")
        for variable, kind in reader.get_variable_to_dtype_map().items() if full else ():
            values = reader.get_tensor(variable)  # its CRC is compared
            if kind.is_floating and not np.isfinite(values).all():
                yield f"holds numbers that are not finite in {variable.removesuffix(VALUE)}"
