"""A click log becomes a data folder of TFRecords, or a report of what would be written."""
import dataclasses
from typing import Callable

from absl import logging

from clrec_tf.data import schema as schema_lib
from clrec_tf.data.schema import Schema
from clrec_tf.errors import UserError
from clrec_tf.preparation import assemble
from clrec_tf.preparation import data_folder
from clrec_tf.preparation import identity
from clrec_tf.preparation import logs
from clrec_tf.preparation import plausibility
from clrec_tf.preparation.report_text import report_text
from clrec_tf.settings.data import Paths
from clrec_tf.settings.data import PrepareConfig
from clrec_tf.stores import uploads
from clrec_tf.system import atomic
from clrec_tf.system import scratch


def prepare_folder(paths: Paths, settings: PrepareConfig, tell: Callable[[str], None] = print) -> Schema:
    """Prepares --data_dir from --input and prints the report.

    A complete data folder that was made with the same settings from the same files is left alone.

    Args:
      paths: `data_dir` is written, `seed` deals users to shards and parts.
      settings: of prepare.
      tell: takes the report as text instead.

    Returns:
      The schema of the data folder (with --dry_run, of the one that would be written).

    Raises:
      UserError: bad settings or a --data_dir in the way; its subclass DataError: bad files.
    """
    data_dir = paths.data_dir
    if not settings.dry_run and not data_dir:
        raise UserError("--data_dir is not set: prepare writes the data set there")
    if settings.retire_after and not settings.vocabulary_from:
        raise UserError(f"--retire_after={settings.retire_after} frees numbers of an earlier vocabulary, and there is "
                        "none: give --vocabulary_from, or leave --retire_after out")
    identity.check_files(settings)
    if settings.runner == "beam":  # whose workers have no scratch folder of this machine
        return _prepared(paths, dataclasses.replace(settings, scratch_dir=""), tell)
    with scratch.folder(settings.scratch_dir, data_dir) as folder:
        return _prepared(paths, dataclasses.replace(settings, scratch_dir=folder), tell)


def _prepared(paths: Paths, settings: PrepareConfig, tell: Callable[[str], None]) -> Schema:
    """`prepare_folder` with a scratch folder, if any."""
    data_dir = paths.data_dir
    beam = _beam(settings) if settings.runner == "beam" else None
    source = beam.files_of(settings) if beam else logs.open_log(settings)
    content = identity.identity_of(settings, paths.seed, source.files)
    if not settings.dry_run:
        if identity.holds(data_dir, content):
            logging.info("--data_dir=%s is complete and was prepared with these settings: left as it is", data_dir)
            return schema_lib.load_schema(data_dir)
        atomic.check_folder_place(data_dir, "data_dir")  # before hours are spent on its content
    prepared = beam.prepare if beam else _here
    schema, report = prepared(source, settings, paths.seed, content, data_dir)
    if settings.dry_run:
        tell(f"dry run: nothing is written\n{report_text(report)}")
        return schema
    uploads.now(data_dir)
    tell(report_text(report))
    logging.info("wrote --data_dir=%s", data_dir)
    return schema


def _here(source: logs.Source, settings: PrepareConfig, seed: int, content: dict, data_dir: str) -> tuple[Schema, dict]:
    """Prepares in this process; the schema and the report."""
    dataset = assemble.assemble(logs.read_log(source, settings), settings, content)
    plausibility.add(dataset.report, source.table.lines, dataset.largest_dense_value, settings)
    if not settings.dry_run:
        data_folder.write_dataset(data_dir, dataset, settings, seed)
    return dataset.schema, dataset.report


def _beam(settings: PrepareConfig):
    """The module that runs pipelines of Apache Beam; `UserError` where Beam is not installed."""
    try:
        from clrec_tf.preparation.beam_runner import runner  # pylint: disable=import-outside-toplevel
    except ModuleNotFoundError as error:
        raise UserError(f"--runner={settings.runner} needs Apache Beam, which is not installed ({error.name}): pip "
                        "install 'clrec_tf[beam]', or --runner=local") from error
    return runner
