"""Runs the pipeline for one call of prepare, and tells its outcome as one process would."""
import contextlib
import dataclasses
import io
import json
import os
import shlex
import tempfile
from typing import Iterator, Optional

from absl import logging
import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from clrec_tf.data import schema as schema_lib
from clrec_tf.data.schema import Schema
from clrec_tf.errors import ClusterError
from clrec_tf.errors import UserError
from clrec_tf.preparation.beam_runner.job import Job
from clrec_tf.preparation.beam_runner.job import Refusal
from clrec_tf.preparation.beam_runner.job import UNFINISHED
from clrec_tf.preparation.beam_runner import pipeline as pipeline_lib
from clrec_tf.preparation import logs
from clrec_tf.preparation.item_features import ItemTable
from clrec_tf.settings.data import PrepareConfig
from clrec_tf.system import atomic
from clrec_tf.tabular_files import file_sets
from clrec_tf.tabular_files import times

GROUP_BYTES = 32 * 2**20  # of files, for each group of users
_BY_FILE = ("columns", "lists", "taobao", "sequence", "sequence_per_user")  # formats whose logs are sets of files


@dataclasses.dataclass(frozen=True)
class Files:
    """Where a log lies.

    Attributes:
      log: its files, in order.
      files: as `identity.identity_of` takes them.
      items: the format's own item file.
    """
    log: tuple[str, ...]
    files: dict[str, str]
    items: Optional[ItemTable] = None


def files_of(settings: PrepareConfig) -> Files:
    """The files of --input. Raises: see `logs.open_log`."""
    if settings.format in _BY_FILE and settings.input:
        return Files(tuple(part.path for part in file_sets.find(settings.input, "input")), dict(input=settings.input))
    source = logs.open_log(settings)
    return Files((source.table.path,), source.files, source.items)


def options_of(settings: PrepareConfig) -> PipelineOptions:
    """--beam_options as Beam takes them; `UserError` where Beam does not know one."""
    flag = f"--beam_options={settings.beam_options}"
    try:
        words = shlex.split(settings.beam_options)
    except ValueError as error:
        raise UserError(f"{flag}: {error}") from error
    strange = next((word for word in words if not word.startswith("--")), None)
    if strange:
        raise UserError(f"{flag}: {strange!r} is no option; write them as --name=value, with spaces between them")
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):  # argparse says what is wrong there, below a page of usage
            options = PipelineOptions(words)
            known, given = (options.get_all_options(drop_default=True, retain_unknown_options=more)
                            for more in (False, True))
    except SystemExit as error:
        raise UserError(f"{flag}: {said.getvalue().strip().splitlines()[-1]}") from error
    if set(given) - set(known):
        raise UserError(f"{flag}: Beam has no option --{sorted(set(given) - set(known))[0]}: correct it")
    return options


def prepare(source: Files, settings: PrepareConfig, seed: int, content: dict, data_dir: str) -> tuple[Schema, dict]:
    """Writes the data folder, or with --dry_run nothing.

    Args:
      source: files of the log.
      settings: of the command.
      seed: --seed.
      content: identity of the data set.
      data_dir: absent, or an empty folder.

    Returns:
      Schema and report.

    Raises:
      UserError: as one process; or --beam_options is wrong. ClusterError: Beam failed.
    """
    options = options_of(settings)
    shown = [part.path for part in file_sets.find(settings.impressions, "impressions")] if settings.impressions else []
    size = sum(map(os.path.getsize, (*source.log, *shown)))
    with _folder(settings, data_dir) as folder:
        job = Job(settings, seed, content, source.log, -(-size // GROUP_BYTES) + 1, times.clock_of(settings), folder,
                  data_dir, source.items, tuple(shown))
        _run(job, options)
        path = os.path.join(folder, pipeline_lib.RESULT)
        with open(path, encoding="utf-8") as file:
            result = json.load(file)
        if "kind" in result:
            raise Refusal(**result).raised()
        os.remove(path)
        for name in os.listdir(folder):
            if UNFINISHED in name:  # only now, since the last step may run again
                os.remove(os.path.join(folder, name))
        schema = schema_lib.load_schema(folder)
    return schema, result["report"]


@contextlib.contextmanager
def _folder(settings: PrepareConfig, data_dir: str) -> Iterator[str]:
    if settings.dry_run:
        with tempfile.TemporaryDirectory() as folder:
            yield folder
    else:
        with atomic.new_folder(data_dir, f"data_dir={data_dir}") as folder:
            yield folder


def _run(job: Job, options: PipelineOptions) -> None:
    """Runs the pipeline to its end; `ClusterError` where it has none."""
    pipeline = beam.Pipeline(options=options)
    pipeline_lib.build(pipeline, job)
    try:
        state = pipeline.run().wait_until_finish()
    except Exception as error:  # pylint: disable=broad-exception-caught
        raise _failed(job, error) from error
    if not os.path.exists(os.path.join(job.folder, pipeline_lib.RESULT)):
        raise ClusterError(f"--runner=beam: the pipeline ended as {state} without a result in {job.folder}: every "
                           "worker must see --input and --data_dir under the same names")


def _failed(job: Job, error: Exception) -> ClusterError:
    """What Beam says of a failure, without the traceback that it repeats at every level."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    logging.debug("%s", error)
    said = next((line for line in reversed(lines)
                 if not line.startswith(("File ", "During ", "Traceback", "The above"))), lines[0])
    return ClusterError(f"--runner=beam: the pipeline failed ({said[:500]}); check --beam_options="
                        f"{job.settings.beam_options}, and that every worker has this package and sees --input and "
                        "--data_dir under the same names")
