"""One day: prepare with yesterday's numbers, train on from yesterday's model, compare both, publish, and record it.

Every step leaves alone what is complete, so a day that was killed is finished by the same command::

    DAYS/history.jsonl            one line a day
    DAYS/history.png              the same as a picture
    DAYS/daily.lock               held by the daily at work
    DAYS/2026-11-29/data          today's data set
    DAYS/2026-11-29/run           today's training
    DAYS/2026-11-29/yesterday     yesterday's model on today's data, untrained: what today's is compared with
    DAYS/export/1, 2, …           what is published (--export_dir)
"""
import contextlib
import datetime
import os
import time
from typing import Iterator
from typing import Optional

from absl import logging

from clrec_tf.config import Config
from clrec_tf.config import require
from clrec_tf.data import schema as schema_lib
from clrec_tf.days import comparison
from clrec_tf.days.data_checks import check_data
from clrec_tf.days.day_settings import check_settings
from clrec_tf.days import ending
from clrec_tf.days.explained import explained
from clrec_tf.days.folders import DayFolders
from clrec_tf.days import gate as gate_lib
from clrec_tf.days import history
from clrec_tf.days.one_daily import alone
from clrec_tf.days import stored_days
from clrec_tf.errors import UserError
from clrec_tf.models.trained import Trained
from clrec_tf.preparation.prepare_folder import prepare_folder
from clrec_tf.publishing.export_run import export
from clrec_tf.retrieval.export_folder import newest_version
from clrec_tf.retrieval.manifest import read_manifest
from clrec_tf.training import checkpoint_list
from clrec_tf.training.checkpoint_list import checkpoint_hash
from clrec_tf.training.checkpoints import find_checkpoint
from clrec_tf.training.checkpoints import LATEST_FOLDER
from clrec_tf.training.evaluate_run import evaluate
from clrec_tf.training import loop
from clrec_tf.training.restore import load_trained
from clrec_tf.training.runtime import LocalRuntime
from clrec_tf.training.setup import set_up

_CEILING = "ceiling/full"


def run_day(config: Config) -> int:
    """Does a day; prints the report of the data, how the gate was met, and the history.

    Returns:
      0 when published, or when this day was published already; the exit code of a signal that ended training.

    Raises:
      GateError: today's data drifted too far, or today's model is worse; nothing was replaced. UserError: bad settings
      or data; BusyError: another daily is at work in --days_dir.
    """
    days_dir = require(config.days.days_dir, "days_dir", "daily keeps a folder for each day there")
    demands = gate_lib.demands_of(config.days.gate)
    day = config.days.day or datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    check_settings(config, day)
    with alone(days_dir):
        return _day_alone(config, days_dir, day, demands)


def _day_alone(config: Config, days_dir: str, day: str, demands: list[gate_lib.Demand]) -> int:
    """`run_day`, of the process that has the folder for itself."""
    days, places, refusal = history.read(days_dir), stored_days.of(days_dir), None
    yesterday = history.last_published(days, day)
    _check_order(config, days, day)
    entry = dict(day=day, yesterday=yesterday and yesterday["day"], began=round(time.time()), stages={})
    with places.opened(day, entry["yesterday"]) as (folders, before):
        config = _of_day(config, folders, before)
        if _status(days, day) == history.PUBLISHED:
            if os.path.exists(folders.data):
                _prepared(config, folders, day)  # an error where the day was published from another log
            _check_published(config, days, day)
            logging.info("day %s is published already", day)
            ending.show(places)
            return 0
        if before and not os.path.isdir(before.data):
            raise UserError(f"--days_dir={days_dir}: {before.data} of day {yesterday['day']}, the last published one, "
                            "is gone, and today's numbers go on from it: restore the folder, or begin anew in another "
                            "--days_dir")
        try:
            code = _stages(config, folders, before, demands, entry)
        except gate_lib.GateError as error:
            refusal, code = error, error.exit_code
            entry["reason"] = str(error)
    if refusal or not code:
        ending.record(places, entry)
    if refusal:
        raise refusal
    return code


def _check_published(config: Config, days: list[dict], day: str) -> None:
    """`UserError` where --export_dir holds neither a published day's version nor a later one: it is gone, or elsewhere."""
    number, newest = next(each.get("version", 1) for each in days if each["day"] == day), newest_version(
        config.paths.export_dir)
    if newest < number:
        raise UserError(f"day {day} was published as version {number}, but the newest of --export_dir="
                        f"{config.paths.export_dir} is {newest or 'none'}: give the folder of that day, restore it, or "
                        "publish the day's run there with python -m clrec_tf.export "
                        f"--data_dir={config.paths.data_dir} --workdir={config.paths.workdir}")


def _status(days: list[dict], day: str) -> str:
    """What the history says of a day; "" where it has none."""
    return next((each["status"] for each in days if each["day"] == day), "")


def _check_order(config: Config, days: list[dict], day: str) -> None:
    """`UserError` where a day that came after this one is published, and this one is not."""
    later = history.published_after(days, day)
    if later and _status(days, day) != history.PUBLISHED:
        place = config.paths.export_dir or os.path.join(config.days.days_dir, "export")
        raise UserError(f"--day={day}: day {later} came after it and is published, so this one's older model would "
                        f"take its place in {place}: run the next day, whose log holds this one's clicks")


@contextlib.contextmanager
def _stage(name: str, entry: dict) -> Iterator[None]:
    """Logs a stage, and notes its seconds. What a killed command had done is not in them."""
    logging.info("day %s: %s", entry["day"], name)
    begin = time.monotonic()
    try:
        yield
    finally:
        entry["stages"][name] = round(time.monotonic() - begin, 1)


def _stages(config: Config, folders: DayFolders, before: Optional[DayFolders], demands, entry: dict) -> int:
    """What `run_day` does; fills the day's entry."""
    logging.info("day %s%s", entry["day"], f", after {entry['yesterday']}" if before else ", the first one")
    with _stage("prepare", entry):
        schema = _prepared(config, folders, entry["day"])
        entry |= dict(clicks=schema.total_clicks, items=schema.num_items)
        if before:
            check_data(config, folders, before, entry)
            config = config.but(init_from=before.run)
    with _stage("train", entry):
        code = _trained(config, before, entry)
    if code:
        return code
    with _stage("evaluate", entry):
        today = load_trained(config, config.evaluate.eval_checkpoint)
        metrics = evaluate(config.but(ks=_cutoffs(config, demands)), today)
        entry |= dict(metrics={name: value for name, value in metrics.items() if _is_kept(name)},
                      users=metrics["users"])
        if _CEILING in metrics:
            entry["findable"] = round(metrics[_CEILING], 4)
    if before:
        with _stage("compare", entry):
            _judge(config, folders, before, today, demands, entry)
    with _stage("export", entry):
        entry |= dict(version=_published(config, today), status=history.PUBLISHED)
    return 0


def _trained(config: Config, before: Optional[DayFolders], entry: dict) -> int:
    """Trains, from yesterday's run where there is one; the exit code."""
    try:
        return loop.train(config, LocalRuntime())
    except UserError as error:
        if not before:
            raise
        raise explained(error, entry["day"], f"daily sets --workdir and --init_from itself: give the settings of day "
                                             f"{entry['yesterday']}, or begin anew in another --days_dir") from error


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
        raise explained(error, day, "daily sets --data_dir and --vocabulary_from itself: correct --input, its columns, "
                                    f"--from, --to or --day; remove {folders.root} to begin the day anew, or give "
                                    "another --days_dir to begin without yesterday") from error


def _judge(config, folders, before, today: Trained, demands, entry):
    """Compares both models on today's next clicks; `GateError` where today's is worse."""
    yesterdays, data = config.but(workdir=folders.yesterday, init_from=before.run), comparison.Today.read(config)
    _convert(yesterdays)
    judgements = comparison.compare(load_trained(yesterdays, "latest"), today, data, config, demands)
    few = comparison.too_few(data, config) if demands else ""
    entry["gate"] = [judgement.text() for judgement in judgements]
    entry["compared"] = [judgement.numbers() for judgement in judgements]
    entry["findable_yesterday"] = round(comparison.known_share(data, before.data), 4)
    print(*entry["gate"], sep="\n")
    failed = [*([few] if few else []), *(each.text() for each in judgements if not each.passed)]
    if failed:
        entry["status"] = history.REFUSED
        raise gate_lib.GateError(
            f"the model of day {entry['day']} is not published: {'; '.join(failed)}. The model of day "
            f"{entry['yesterday']} stays. Look at {folders.run}; train longer, or change --gate, and run again")


def _convert(config: Config):
    """Yesterday's model, the one that was evaluated and is served, on today's data: the checkpoint of step 0."""
    if not checkpoint_list.kept(os.path.join(config.paths.workdir, LATEST_FOLDER)):
        which = "latest" if config.evaluate.eval_checkpoint == "latest" else "best"
        set_up(config, LocalRuntime(), which).checkpoints.save()


def _published(config: Config, today: Trained) -> int:
    """Exports today's model, unless the newest version is it already; returns the version."""
    prefix = find_checkpoint(config.paths.workdir, config.export.export_checkpoint, "export_checkpoint")
    newest = newest_version(config.paths.export_dir)
    if newest:
        manifest = read_manifest(os.path.join(config.paths.export_dir, str(newest)))
        if manifest.get("checkpoint_hash") == checkpoint_hash(prefix):
            return newest
    return int(os.path.basename(export(config, today if prefix == today.checkpoint else None)))


def _cutoffs(config: Config, demands) -> tuple[str, ...]:
    """--ks and those of the gate."""
    return tuple(dict.fromkeys((*config.evaluate.ks, *(str(each.k) for each in demands))))


def _is_kept(name: str) -> bool:
    """Whether a metric stands in the history: those of full rankings as trained and at popularity 1, and the popularity
    chosen."""
    return name == "popularity" or name.partition("@")[0] in ("hr", "ndcg", "aggregate_diversity") and (
        name.endswith(("/full", "/full/popularity=1", "/cold", "/warm")))
