"""The record of a run, config.json in its workdir: what it was started with, and whether it may go on."""
import dataclasses
import json
import os
import sys

from clrec_tf import config as config_lib
from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.stores import names
from clrec_tf.system.finite import is_number
from clrec_tf.system import json_files
from clrec_tf.system.json_files import load_json
from clrec_tf.system.json_files import save_json
from clrec_tf.system.versions import versions

CONFIG_FILE = "config.json"

# What a setting was before it existed, where that is not its default, by the model that reads it.
_BEFORE_ALL = dict(use_events=False)
_BEFORE = dict(multi_clrec=dict(multi_objective="paper", intent_context="none"))

# What decides the order of the data or the shape of the state; the rest (epochs, learning rate, …) may change.
_FIXED_TRAIN = ("batch_size", "target_mode", "shuffle_shards", "optimizer")
# On whom validations are, and among what: else their figures cannot be compared.
_JUDGING = (("train", "validation_users"), ("evaluate", "filter_seen"), ("evaluate", "pop100_protocol"))


def save(workdir: str, config: config_lib.Config, schema_hash: str) -> None:
    """Writes config.json."""
    save_json(os.path.join(workdir, CONFIG_FILE), json_files.sealed(
        {**record(config), "schema_hash": schema_hash, "versions": versions()}))


def record(config: config_lib.Config) -> dict:
    """Section -> setting -> value, in which settings of towers, encoders and losses, chosen or not, stand with
    `model` and `loss`: where a default changes later, a run keeps its own."""
    values = {section: {name: names.address_of(value) if isinstance(value, str) else value
                        for name, value in settings.items()}
              for section, settings in dataclasses.asdict(config).items()}
    given = values.pop("plugs")
    for key in config_lib.PLUGS:
        fields = config_lib.plug_fields(key)
        values[key] |= {name: given.get(name, field.default) for name, field in fields.items()}
    return values


def load(workdir: str) -> dict:
    """Reads config.json; `DataError` where there is no run, or the file is damaged."""
    path, remedy = os.path.join(workdir, CONFIG_FILE), "restore it from a copy, or use another --workdir"
    values = load_json(path, f"--workdir={workdir} holds no run; run python -m clrec_tf.train first", remedy)
    try:
        values = json_files.unsealed(values)
    except ValueError as error:
        raise DataError(f"{path} is damaged ({error}): {remedy}") from error
    if not isinstance(values.get("schema_hash"), str) or not isinstance(values.get("model"), dict):
        raise DataError(f"{path} is not what a training writes, without schema_hash or model: {remedy}")
    _check_types(path, values, remedy)
    return values


def _check_types(path, values, remedy):
    """`DataError` where a section is none, or a setting that is known has a value of another type than its default."""
    for key, defaults in json.loads(json.dumps(record(config_lib.Config()))).items():
        section = values.get(key, {})
        if not isinstance(section, dict):
            raise DataError(f"{path} is not what a training writes, {key} is no object: {remedy}")
        for name in set(section) & set(defaults):
            value, kind = section[name], type(defaults[name])
            fits = type(value) is kind or (kind is float and type(value) is int)
            fits = fits and (kind is not float or is_number(value))
            if not fits or (kind is list and not all(isinstance(part, str) for part in value)):
                raise DataError(f"{path} is not what a training writes, {name} is {str(value)[:50]!r}: {remedy}")


def saved_settings(saved: dict) -> config_lib.Config:
    """The settings of a run's model and loss, all others as by default; `UserError` for unknown ones."""
    absent = [module for module in saved.get("paths", {}).get("plugins", ()) if module not in sys.modules]
    if absent:
        raise UserError(f"this run was trained with --plugins={','.join(saved['paths']['plugins'])}: give it here too")
    values = before(saved) | {name: tuple(value) if isinstance(value, list) else value
                               for key in config_lib.PLUGS for name, value in saved.get(key, {}).items()}
    # What a batch has to fit is no question for a model that is trained already; nor what nobody reads, whose default
    # may have changed.
    return config_lib.Config.of(**values, batch_size=1).without_unread()


def data_dir_of(saved: dict) -> str:
    """The data set that a run was trained on, of one in a store its local copy; "" where none is named."""
    return names.local_of(saved.get("paths", {}).get("data_dir", ""))


def before(saved: dict) -> dict:
    """Settings that a run's model may not have had yet, as it worked then; those of the run itself come first."""
    return _BEFORE_ALL | _BEFORE.get(saved.get("model", {}).get("model"), {})


def of_model(saved: dict) -> dict:
    """Settings of a run's model by name, those too that it did not have yet."""
    return before(saved) | saved["model"]


def context_of(saved: dict) -> str:
    """--debias_context of a run, that of its queue's entries."""
    return saved.get("loss", {}).get("debias_context", "")


def settings_in_force(saved: dict) -> dict:
    """Setting -> value of a run's towers, losses, training and seed. One that did not exist when the run was started
    had what is its default now, or was as it worked then."""
    return default_settings() | before(saved) | _by_name(saved)


def default_settings() -> dict:
    """Setting -> default, of the same."""
    return _by_name(json.loads(json.dumps(record(config_lib.Config()))))


def _by_name(values: dict) -> dict:
    """The settings of a record that make a model, and how it is trained."""
    parts = ({"seed": values["paths"]["seed"]} if "seed" in values.get("paths", {}) else {}, values.get("model", {}),
             values.get("loss", {}), values.get("train", {}))
    return {name: value for part in parts for name, value in part.items()}


def check_schema(saved: dict, schema_hash: str, data_dir: str, workdir: str) -> None:
    """`UserError` where a run was trained on other data."""
    if saved["schema_hash"] != schema_hash:
        raise UserError(
            f"--data_dir={data_dir} (schema {schema_hash[:12]}) is not the data set that --workdir={workdir} "
            f"was trained on (schema {saved['schema_hash'][:12]}): use that one, or another --workdir")


def check_resumable(saved: dict, config: config_lib.Config, schema_hash: str, has_events: bool = True) -> None:
    """`UserError`, naming flag and both values, where a run cannot go on with these settings, on data that tell of
    behaviours or not."""
    workdir = config.paths.workdir
    check_schema(saved, schema_hash, config.paths.data_dir, workdir)
    for name, (earlier, after) in differences(saved, config, has_events).items():
        raise UserError(f"--{name}={after} differs from {earlier}, with which the run in --workdir={workdir} was "
                        f"started: give the old value to go on, or another --workdir to start anew")


def differences(saved: dict, config: config_lib.Config, has_events: bool = True) -> dict[str, tuple]:
    """Settings that a run keeps from beginning to end and that differ: name -> (of the run, of `config`).

    Args:
      saved: of the run.
      config: settings now.
      has_events: whether the data tell of behaviours.
    """
    now, defaults = (_fixed(json.loads(json.dumps(record(c)))) for c in (config, config_lib.Config()))
    saved, defaults, unread = _fixed(saved), defaults | before(saved), config.unread()
    unread |= set() if has_events else {"use_events"}
    # A setting that did not exist when the run was started had what is its default now, or was as `before` says.
    pairs = {name: (saved.get(name, defaults[name]), after) for name, after in now.items() if name not in unread}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def judging(config: config_lib.Config) -> dict:
    """What validations must agree in to be compared with each other, beside their metric."""
    return {name: getattr(getattr(config, section), name) for section, name in _JUDGING}


def _fixed(values: dict) -> dict:
    """The settings of a record that a run keeps from beginning to end, by name."""
    train, paths = values.get("train", {}), values.get("paths", {})
    fixed = {name: train[name] for name in _FIXED_TRAIN if name in train}
    return {**values.get("model", {}), **values.get("loss", {}), **fixed,
            **({"seed": paths["seed"]} if "seed" in paths else {})}
