"""python -m clrec_tf.prepare: a click log becomes a data folder of TFRecords, or with --dry_run a report."""
import dataclasses
import json
import os

from absl import logging

from clrec_tf import command_line
from clrec_tf.config import Config
from clrec_tf.config import PrepareConfig
from clrec_tf.config import require
from clrec_tf.data import schema as schema_lib
from clrec_tf.data.schema import Schema
from clrec_tf.errors import UserError
from clrec_tf.preparation import assemble
from clrec_tf.preparation import data_folder
from clrec_tf.preparation import logs
from clrec_tf.preparation import plausibility
from clrec_tf.tables import file_sets

# Not part of a data set's identity: files count by content, and these two do not change what is written.
_FILES = ("input", "item_features", "dense_features", "impressions")
_WITHOUT_EFFECT = ("dry_run", "max_bad_rows")
# Settings younger than the first data folders: without effect they are left out, so that those keep their identity.
_LATER = ("dwell_column", "split_quantile", "valid_share", "columns", "encoding", "quote", "null_values", "id_type",
          "item_features_id", "order_column", "timestamp_format", "max_time")


def prepare(config: Config) -> Schema:
    """Prepares --data_dir from --input and prints the report.

    A complete data folder that was made with the same settings from the same files is left alone.

    Returns:
      The schema of the data folder (with --dry_run, of the one that would be written).

    Raises:
      UserError: bad settings or a --data_dir in the way; its subclass DataError: bad files.
    """
    settings, data_dir = config.prepare, config.paths.data_dir
    if not settings.dry_run:
        require(data_dir, "data_dir", "prepare writes the data set there")
    for name in _FILES[1:]:
        if getattr(settings, name) and not file_sets.exists(getattr(settings, name)):
            raise UserError(f"--{name}={getattr(settings, name)} is no file: correct the path, or leave --{name} out")
    log_source = logs.open_log(settings)
    facts = _facts(settings, config.paths.seed, log_source.files)
    if not settings.dry_run:
        if _is_complete(data_dir, facts):
            logging.info("--data_dir=%s is complete and was prepared with these settings: left as it is", data_dir)
            return schema_lib.load_schema(data_dir)
        data_folder.check_writable(data_dir)
    dataset = assemble.assemble(logs.read_log(log_source, settings), settings, facts)
    _add_plausibility(dataset, log_source, settings)
    if settings.dry_run:
        print(f"dry run: nothing is written\n{report_text(dataset.report)}")
        return dataset.schema
    data_folder.write_dataset(data_dir, dataset, settings.shard_records, config.paths.seed)
    print(report_text(dataset.report))
    logging.info("wrote --data_dir=%s", data_dir)
    return dataset.schema


def _add_plausibility(dataset: data_folder.Dataset, source: logs.Source, settings: PrepareConfig) -> None:
    """Closes the report with `plausibility`, all its figures, and `warnings`."""
    report = dataset.report
    whole_lines = settings.format not in ("sequence_per_user", "lists")  # else a line is a user, a row one click
    lines = source.table.lines if whole_lines else None
    found = plausibility.complete(report, lines, dataset.content)
    del report["plausibility"]  # so that it comes last
    report.update(plausibility=found, warnings=plausibility.warnings_of(found, settings))


def _facts(settings: PrepareConfig, seed: int, files: dict[str, str]) -> dict:
    """What decides the content of the data set: settings, and the files by content."""
    facts = {name: value for name, value in dataclasses.asdict(settings).items()
             if name not in _FILES + _WITHOUT_EFFECT
             and not (name in _LATER and value == getattr(PrepareConfig, name))}
    if facts["timestamp_unit"] == "auto":  # as it was called when seconds were the default
        facts["timestamp_unit"] = "s"
    files = files | {name: getattr(settings, name) for name in _FILES[1:]}
    facts.update(seed=seed, sha256={name: file_sets.digest(path) for name, path in files.items() if path})
    return json.loads(json.dumps(facts))  # as it will be read back: lists for tuples


def _is_complete(data_dir: str, facts: dict) -> bool:
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
    found = schema_lib.load_schema(data_dir).settings
    for name in sorted(set(facts) | set(found)):
        if facts.get(name) != found.get(name):
            raise UserError(f"--data_dir={data_dir} was prepared with {name}={found.get(name)}, this call has "
                            f"{facts.get(name)}: {remedy}")
    return True


def report_text(report: dict, indent: str = "") -> str:
    """The report as lines `name: value`, nested ones indented."""
    lines = []
    for name, value in report.items():
        if isinstance(value, dict):
            lines += [f"{indent}{name}:"] + [report_text(value, indent + "  ")] if value else []
        elif isinstance(value, list):
            lines += [f"{indent}{name}:"] + [f"{indent}  {entry}" for entry in value] if value else []
        else:
            lines.append(f"{indent}{name}: {value:,}" if type(value) is int else f"{indent}{name}: {value}")
    return "\n".join(lines)


def main(config: Config):
    """Runs the command."""
    prepare(config)


if __name__ == "__main__":
    command_line.run(main, uses=("paths", "prepare"), usage=__doc__)
