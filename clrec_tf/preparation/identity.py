"""What decides the content of a data folder, and whether a folder already holds it."""
import dataclasses
import json
import os

from clrec_tf.data import schema as schema_lib
from clrec_tf.errors import UserError
from clrec_tf.settings.data import PrepareConfig
from clrec_tf.tabular_files import file_sets

# Not part of a data set's identity: files count by content, and these do not change what is written.
_FOLDERS = ("vocabulary_from",)  # of prepare, by their manifest
_FILES = ("input", "item_features", "dense_features", "impressions", "user_features")
_WITHOUT_EFFECT = ("dry_run", "max_bad_rows", "runner", "beam_options", "clicks_in_memory", "scratch_dir")
# Settings younger than the first data folders: without effect they are left out, so that those keep their identity.
_LATER = ("dwell_column", "split_quantile", "valid_share", "columns", "encoding", "quote", "null_values", "id_type",
          "item_features_id", "order_column", "timestamp_format", "max_time", "vocabulary", "retire_after", "event_weights",
          "context_columns", "user_feature_columns", "user_features_id", "number_bins")


def check_files(settings: PrepareConfig) -> None:
    """`UserError` where one of the files beside the log does not exist."""
    for name in _FILES[1:]:
        if getattr(settings, name) and not file_sets.exists(getattr(settings, name)):
            raise UserError(f"--{name}={getattr(settings, name)} is no file: correct the path, or leave --{name} out")
    for name in _FOLDERS:
        folder = getattr(settings, name)
        if folder and not os.path.exists(os.path.join(folder, schema_lib.MANIFEST_FILE)):
            raise UserError(f"--{name}={folder} holds no complete data set: give the --data_dir of an earlier prepare")


def identity_of(settings: PrepareConfig, seed: int, log_files: dict[str, str]) -> dict:
    """What decides the content of a data set: the settings that have an effect, and the files by content.

    Args:
      settings: of prepare.
      seed: --seed.
      log_files: name -> path of the files that make up the log.

    Returns:
      Name -> value, as JSON gives it back.
    """
    identity = {name: value for name, value in dataclasses.asdict(settings).items()
                if name not in _FILES + _FOLDERS + _WITHOUT_EFFECT
                and not (name in _LATER and value == getattr(PrepareConfig, name))}
    if identity["timestamp_unit"] == "auto":  # as it was called when seconds were the default
        identity["timestamp_unit"] = "s"
    files = log_files | {name: getattr(settings, name) for name in _FILES[1:]}
    files |= {name: os.path.join(getattr(settings, name), schema_lib.MANIFEST_FILE) for name in _FOLDERS
              if getattr(settings, name)}
    identity.update(seed=seed, sha256={name: file_sets.digest(path) for name, path in files.items() if path})
    return json.loads(json.dumps(identity))  # as it will be read back: lists for tuples


def holds(data_dir: str, identity: dict) -> bool:
    """Whether the folder already holds this data set; `UserError` where it holds anything else."""
    if not os.path.exists(data_dir) or (os.path.isdir(data_dir) and not os.listdir(data_dir)):
        return False
    if not os.path.isdir(data_dir):
        raise UserError(f"--data_dir={data_dir} is a file, not a folder: choose another --data_dir")
    if not os.path.exists(os.path.join(data_dir, schema_lib.SCHEMA_FILE)):
        raise UserError(f"--data_dir={data_dir} holds files that prepare did not write: choose another --data_dir")
    remedy = "choose another --data_dir or delete it"
    if not os.path.exists(os.path.join(data_dir, schema_lib.MANIFEST_FILE)):
        raise UserError(f"--data_dir={data_dir} holds a data set that is not complete: {remedy}")
    schema_lib.load_manifest(data_dir)
    written = schema_lib.load_schema(data_dir).settings
    for name in sorted(set(identity) | set(written)):
        if identity.get(name) != written.get(name):
            raise UserError(f"--data_dir={data_dir} was prepared with {name}={written.get(name)}, this call has "
                            f"{identity.get(name)}: {remedy}")
    return True
