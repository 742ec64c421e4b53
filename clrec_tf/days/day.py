"""One day: prepare with yesterday's numbers, train on from yesterday's model, compare both, publish, and record it.

Every step leaves alone what is complete, so a day that was killed is finished by the same command::

    DAYS/history.jsonl            one line a day
    DAYS/2026-11-29/data          today's data set
    DAYS/2026-11-29/run           today's training
    DAYS/2026-11-29/yesterday     yesterday's model on today's data, untrained: what today's is compared with
    DAYS/export/1, 2, …           what is published (--export_dir)
"""
import dataclasses
import datetime
import os
import re
import time
from typing import Optional

from absl import logging

from clrec_tf.config import Config
from clrec_tf.config import require
from clrec_tf.data import schema as schema_lib
from clrec_tf.days import comparison
from clrec_tf.days import data_report
from clrec_tf.days import gate as gate_lib
from clrec_tf.days import history
from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.preparation.prepare_folder import prepare_folder
from clrec_tf.publishing.export_run import export
from clrec_tf.retrieval.export_folder import taken_versions
from clrec_tf.retrieval.manifest import read_manifest
from clrec_tf.training import checkpoint_list
from clrec_tf.training.checkpoint_list import checkpoint_hash
from clrec_tf.training.checkpoints import find_checkpoint
from clrec_tf.training.checkpoints import LATEST_FOLDER
from clrec_tf.training.evaluate_run import evaluate
from clrec_tf.training import loop
from clrec_tf.training.runtime import LocalRuntime
from clrec_tf.training.setup import set_up

_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]*")


@dataclasses.dataclass(frozen=True)
class DayFolders:
    """Where a day's things are."""
    root: str

    @property
    def data(self) -> str:
        """Its data set."""
        return os.path.join(self.root, "data")

    @property
    def run(self) -> str:
        """Its training."""
        return os.path.join(self.root, "run")

    @property
    def yesterday(self) -> str:
        """Yesterday's model on its data."""
        return os.path.join(self.root, "yesterday")


def run_day(config: Config) -> int:
    """Does a day; prints the report of the data, how the gate was met, and the history.

    Returns:
      0 when published, or when this day was published already; the exit code of a signal that ended training.

    Raises:
      GateError: today's data drifted too far, or today's model is worse; nothing was replaced. UserError: bad settings
      or data.
    """
    days_dir = require(config.days.days_dir, "days_dir", "daily keeps a folder for each day there")
    demands = gate_lib.demands_of(config.days.gate)
    day = config.days.day or datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    if not _NAME.fullmatch(day) or day == "export":
        raise UserError(f"--day={day} must be a name of letters, digits, dots and hyphens, such as 2026-11-29")
    os.makedirs(days_dir, exist_ok=True)
    days = history.read(days_dir)
    yesterday = history.last_published(days, day)
    folders = DayFolders(os.path.join(days_dir, day))
    before = DayFolders(os.path.join(days_dir, yesterday["day"])) if yesterday else None
    config = _of_day(config, folders, before)
    if any(each["day"] == day and each["status"] == history.PUBLISHED for each in days):
        if os.path.exists(folders.data):
            _prepared(config, folders, day)  # an error where the day was published from another log
        logging.info("day %s is published already", day)
        print(history.table(days))
        return 0
    entry = dict(day=day, yesterday=yesterday and yesterday["day"], began=round(time.time()))
    try:
        code = _stages(config, folders, before, demands, entry)
    except gate_lib.GateError as error:
        history.record(days_dir, entry | dict(reason=str(error)))
        print(history.table(history.read(days_dir)))
        raise
    if code:
        return code
    history.record(days_dir, entry)
    print(history.table(history.read(days_dir)))
    return 0


def _stages(config: Config, folders: DayFolders, before: Optional[DayFolders], demands, entry: dict) -> int:
    """What `run_day` does; fills the day's entry."""
    logging.info("day %s%s: prepare", entry["day"], f", after {entry['yesterday']}" if before else ", the first one")
    schema = _prepared(config, folders, entry["day"])
    entry |= dict(clicks=schema.total_clicks, items=schema.num_items)
    if before:
        _compare_data(config, folders, before, entry)
        config = config.but(init_from=before.run)
    logging.info("day %s: train", entry["day"])
    try:
        code = loop.train(config, LocalRuntime())
    except UserError as error:
        if not before:
            raise
        raise type(error)(f"day {entry['day']}: {error}. (daily sets --workdir and --init_from itself: give the settings "
                          f"of day {entry['yesterday']}, or begin anew in another --days_dir)") from error
    if code:
        return code
    metrics = evaluate(config.but(ks=_cutoffs(config, demands)))
    entry["metrics"] = {name: value for name, value in metrics.items() if _is_kept(name)}
    if before:
        _judge(config, folders, before, demands, entry)
    entry.update(status=history.PUBLISHED, version=_published(config), seconds=round(time.time()) - entry["began"])
    return 0


def _of_day(config: Config, folders: DayFolders, before: Optional[DayFolders]) -> Config:
    """The settings with the day's folders, and yesterday's vocabulary."""
    return config.but(data_dir=folders.data, workdir=folders.run, vocabulary_from=before.data if before else "",
                      retire_after=config.prepare.retire_after if before else 0,
                      export_dir=config.paths.export_dir or os.path.join(config.days.days_dir, "export"))


def _prepared(config: Config, folders: DayFolders, day: str) -> schema_lib.Schema:
    """Prepares the day's log, or finds it prepared; errors say which day, and what daily's user can do."""
    try:
        return prepare_folder(config.paths, config.prepare)
    except UserError as error:
        raise type(error)(f"day {day}: {error}. (daily sets --data_dir and --vocabulary_from itself: correct --input, "
                          f"--from, --to or --day, or remove {folders.root} to begin the day anew)") from error


def _compare_data(config, folders, before, entry):
    """Reports what changed; `DataError` where it is the same log again, `GateError` where it drifted too far."""
    schemas = [schema_lib.load_schema(folder.data) for folder in (before, folders)]
    if _clicks_of(schemas[0]) == _clicks_of(schemas[1]):
        raise DataError(f"--input={config.prepare.input} is the log of day {entry['yesterday']}, and cut alike: give "
                        f"the log of day {entry['day']}, and remove {folders.root}")
    entry["data"] = report = data_report.between(before.data, folders.data)
    print(f"data of {entry['day']} beside {entry['yesterday']}:")
    for name, value in report.items():
        print(f"  {name}: {value}")
    if report["lost_features"]:
        entry["status"] = history.STOPPED
        raise gate_lib.GateError(f"day {entry['day']} lacks the features {', '.join(report['lost_features'])} of day "
                                 f"{entry['yesterday']}, on which its model rests: name them in --feature_columns or "
                                 "--multi_feature_columns, or begin anew in another --days_dir")
    if report["drift"] >= config.days.max_drift < 1.0:
        entry["status"] = history.STOPPED
        raise gate_lib.GateError(
            f"the clicks of day {entry['day']} have a total variation of {report['drift']:.3f} from those of day "
            f"{entry['yesterday']} (--max_drift={config.days.max_drift:g}): is the log whole and of the same source? "
            f"If it is right, raise --max_drift; nothing was trained, and the model of {entry['yesterday']} stays")


def _clicks_of(schema: schema_lib.Schema) -> tuple:
    """What decides which clicks a data set has: files of the log, and where they were cut."""
    beside = ("vocabulary_from", "item_features", "dense_features", "impressions")
    files = {name: digest for name, digest in schema.settings["sha256"].items() if name not in beside}
    return files, schema.settings["from_time"], schema.settings["to_time"]


def _judge(config, folders, before, demands, entry):
    """Compares both models on today's next clicks; `GateError` where today's is worse."""
    yesterdays = config.but(workdir=folders.yesterday, init_from=before.run, eval_checkpoint="latest")
    _convert(yesterdays)
    judgements = comparison.compare(yesterdays, config, demands)
    entry["gate"] = [judgement.text() for judgement in judgements]
    print(*entry["gate"], sep="\n")
    failed = [judgement for judgement in judgements if not judgement.passed]
    if failed:
        entry["status"] = history.REFUSED
        raise gate_lib.GateError(
            f"the model of day {entry['day']} is not published: {'; '.join(each.text() for each in failed)}. The model "
            f"of day {entry['yesterday']} stays. Look at {folders.run}; train longer, or change --gate, and run again")


def _convert(config: Config):
    """Yesterday's model as it is on today's data, saved as the checkpoint of step 0."""
    if not checkpoint_list.kept(os.path.join(config.paths.workdir, LATEST_FOLDER)):
        set_up(config, LocalRuntime()).checkpoints.save()


def _published(config: Config) -> int:
    """Exports today's model, unless the newest version is it already; returns the version."""
    versions = taken_versions(config.paths.export_dir)
    if versions:
        newest = os.path.join(config.paths.export_dir, str(max(versions)))
        prefix = find_checkpoint(config.paths.workdir, config.export.export_checkpoint, "export_checkpoint")
        if read_manifest(newest).get("checkpoint_hash") == checkpoint_hash(prefix):
            return max(versions)
    return int(os.path.basename(export(config)))


def _cutoffs(config: Config, demands) -> tuple[str, ...]:
    """--ks and those of the gate."""
    return tuple(dict.fromkeys((*config.evaluate.ks, *(str(each.k) for each in demands))))


def _is_kept(name: str) -> bool:
    """Whether a metric stands in the history: those of full rankings as trained, and the popularity chosen."""
    return name == "popularity" or name.partition("@")[0] in ("hr", "ndcg", "aggregate_diversity") and (
        name.endswith("/full") or name.endswith(("/cold", "/warm")))
