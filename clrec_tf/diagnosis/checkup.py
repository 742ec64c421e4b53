"""Which checks a deployment needs, by the flags that are given."""
import contextlib
import dataclasses
import functools
import os
from typing import Callable
from typing import Iterable
from typing import Optional

from clrec_tf.config import Config
from clrec_tf.data import schema as schema_lib
from clrec_tf.diagnosis import bundles
from clrec_tf.diagnosis import data_folder
from clrec_tf.diagnosis import machine
from clrec_tf.diagnosis import needs
from clrec_tf.diagnosis import run_folder
from clrec_tf.diagnosis import stored_data_set
from clrec_tf.diagnosis.addresses import cluster_checks
from clrec_tf.diagnosis.findings import About
from clrec_tf.diagnosis.findings import Check
from clrec_tf.diagnosis.findings import Finding
from clrec_tf.diagnosis.inputs import check_read
from clrec_tf.diagnosis.storage import check_written
from clrec_tf.diagnosis.store_checks import may_make_data
from clrec_tf.diagnosis.store_checks import store_checks
from clrec_tf.diagnosis.stored_places import StoredPlaces
from clrec_tf.errors import UserError
from clrec_tf.training.checkpoints import BEST_FOLDER
from clrec_tf.training.checkpoints import LATEST_FOLDER
from clrec_tf.training.cluster import roles
from clrec_tf.training import run_config

# Flags by what is done with their paths; of the others none is looked at.
READ = ("input", "item_features", "dense_features", "user_features", "vocabulary_from", "impressions", "init_from",
        "attribute_items", "users", "upsert", "withdraw", "token_file")
WRITTEN_FOLDERS = ("data_dir", "workdir", "export_dir", "days_dir", "impression_log", "scann_export_dir", "cache_dir",
                   "scratch_dir")
WRITTEN_FILES = ("html", "output", "embeddings", "vectors", "json")


def checks(config: Config, given: frozenset, stored: Optional[StoredPlaces] = None) -> list[Check]:
    """All checks that the settings call for.

    Args:
      config: all settings.
      given: names of those that were given; what nobody gave is not compared with anything.
      stored: addresses in stores that flags give, which are empty in `config`; None: none do.
    """
    stored = stored or StoredPlaces()
    schema = functools.partial(_schema, config, stored)
    return [*cluster_checks(config.doctor.address_deadline_s), *_of_inputs(config), *_of_places(config, stored),
            *_of_contents(config, given, stored, schema), *store_checks(config, given, stored, schema),
            *_of_machine(config, schema)]


def _check(name: str, subject: str, remedy: str, find: Callable[[About], Iterable[Finding]]) -> Check:
    return Check(name, subject, lambda: find(About(name, subject)), remedy)


def _paths(config: Config, names) -> dict[str, str]:
    """Flag -> path, of those that are given."""
    sections = (getattr(config, field.name) for field in dataclasses.fields(config) if field.name != "plugs")
    values = {name: getattr(section, name) for section in sections for name in names if hasattr(section, name)}
    return {name: values[name] for name in names if values.get(name)}


def _of_inputs(config: Config) -> list[Check]:
    return [_check("input", f"--{flag}={paths}", "correct the path, its permissions or its mount",
                   functools.partial(check_read, paths=paths.split(",")))
            for flag, paths in _paths(config, READ).items()]


def _of_places(config: Config, stored: StoredPlaces) -> list[Check]:
    """Of everything that is written to: not a data set that is there, nor what --doctor_read_only names."""
    left_out = {*config.doctor.doctor_read_only} | (set() if _makes_data(config, stored) else {"data_dir"})
    found = []
    for flag, path in _paths(config, WRITTEN_FOLDERS + WRITTEN_FILES).items():
        if flag not in left_out:
            need = functools.partial(_checkpoint_bytes, config, stored) if flag == "workdir" else lambda: 0
            found.append(_check("storage", f"--{flag}={path}", "choose another place",
                                functools.partial(_written, path=path, is_file=flag in WRITTEN_FILES, need=need)))
    return found


def _written(about, path, is_file, need):
    yield from check_written(about, path, is_file, need())


def _of_contents(config: Config, given, stored, schema) -> list[Check]:
    """Of data, run and bundles."""
    found, paths, full = [], config.paths, config.doctor.doctor_mode == "full"
    if paths.data_dir and not _makes_data(config, stored):
        found.append(_check("data", f"--data_dir={paths.data_dir}", data_folder.REMEDY,
                            functools.partial(data_folder.check_data, data_dir=paths.data_dir, full=full)))
    if paths.workdir:
        def of_run(about):
            return run_folder.check_run(about, config, given, schema(), full)
        found.append(_check("run", f"--workdir={paths.workdir}", run_folder.REMEDY, of_run))
    if paths.export_dir:
        found.append(_check("bundle", f"--export_dir={paths.export_dir}", bundles.REMEDY,
                            functools.partial(bundles.check_bundles, export_dir=paths.export_dir,
                                              wanted=config.serve.serve_version, full=full)))
    return found


def _of_machine(config: Config, schema) -> list[Check]:
    def memory(about):
        need = _needed(config, schema()) * _share()
        return machine.check_memory(about, need, "training (variables and optimizer)") if need else ()
    return [_check("machine", "GPUs", "see TensorFlow's page on GPUs",
                   functools.partial(machine.check_gpus, product_dtype=config.model.product_dtype)),
            _check("machine", "memory", "correct the settings", memory)]


def _share() -> float:
    """The part of the variables that this process holds: parameter servers share them, workers have none."""
    try:
        task = roles.task_from_environment()
    except UserError:  # told by the check of TF_CONFIG
        return 0.0
    if task is None:
        return 1.0
    return 1.0 / len(task.addresses["ps"]) if task.role == "ps" else 0.0


def _makes_data(config: Config, stored: StoredPlaces) -> bool:
    """Whether the data set is still to be made."""
    there = os.path.exists(os.path.join(config.paths.data_dir, schema_lib.MANIFEST_FILE))
    return not there and may_make_data(config, stored)


def _schema(config: Config, stored: StoredPlaces) -> Optional[schema_lib.Schema]:
    """Of --data_dir; None where there is none to be read, which the check of the data tells."""
    for place in stored.of("data_dir"):
        return stored_data_set.schema_of(place.within(config.doctor.doctor_deadline_s))
    try:
        return schema_lib.load_schema(config.paths.data_dir) if config.paths.data_dir else None
    except UserError:
        return None


def _needed(config: Config, schema: Optional[schema_lib.Schema]) -> int:
    """Bytes of variables and optimizer, of the run in --workdir if there is one; 0 where there is no data to tell."""
    if schema is None:
        return 0
    settings, workdir = config, config.paths.workdir
    if workdir and os.path.exists(os.path.join(workdir, run_config.CONFIG_FILE)):
        settings = run_config.saved_settings(run_config.load(workdir))
    return needs.state_bytes(needs.model_shapes(settings, schema), config.train.optimizer)


def _checkpoint_bytes(config: Config, stored: StoredPlaces) -> int:
    """Bytes that checkpoints will take at least beside those that are there: one more than is kept, for a while."""
    try:
        whole = _needed(config, _schema(config, stored))
    except UserError:  # told by the check of the run
        return 0
    return max(0, whole * (config.train.keep_checkpoints + 1) - _there(config.paths.workdir))


def _there(workdir: str) -> int:
    """Bytes of the checkpoints in a run's folder; a training that goes on may remove some meanwhile."""
    total = 0
    for folder in (LATEST_FOLDER, BEST_FOLDER):
        for parent, _, names in os.walk(os.path.join(workdir, folder)):
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    total += os.path.getsize(os.path.join(parent, name))
    return total
