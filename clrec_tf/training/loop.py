"""The training loop, one for local and cluster: calls of several steps, and between them reports, validations and
checkpoints. What it loops over is put together in ``setup``."""
import bisect
import time

from absl import logging
import tensorflow as tf

from clrec_tf.config import Config
from clrec_tf.data.fetched_pools import faults_told
from clrec_tf.data.record_faults import may_be_of_a_record
from clrec_tf.data.record_faults import record_faults
from clrec_tf.data import schema as schema_lib
from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.training.collapse import check_variables
from clrec_tf.training.collapse import CollapseWatch
from clrec_tf.training.evaluations import Listener
from clrec_tf.training.memory_faults import memory_told
from clrec_tf.training.monitoring.exporter import metrics_of
from clrec_tf.training.monitoring.profile import ProfileSignal
from clrec_tf.training.monitoring.role_watch import watched_roles
from clrec_tf.training.monitoring.training_metrics import TrainingMetrics
from clrec_tf.training import run_uploads
from clrec_tf.training.reasons import reason
from clrec_tf.training.reasons import servers_named
from clrec_tf.training.reporter import Reporter
from clrec_tf.training.setup import check_paths
from clrec_tf.training.setup import set_up
from clrec_tf.training.stop_signals import StopSignals
from clrec_tf.training.trackers import TRACKERS
from clrec_tf.training.validation import note_validation
from clrec_tf.training.workdir_lock import WorkdirLock


def train(config: Config, runtime) -> int:
    """Trains to the last epoch, from the latest checkpoint if there is one.

    Args:
      config: settings.
      runtime: where calls run, see ``runtime``.

    Returns:
      0 when training is complete, else the exit code of the signal that ended it.

    Raises:
      UserError: settings, data, memory or disk at fault; the last checkpoint stands. BusyError: another trains there.
    """
    _, workdir = check_paths(config.paths)
    with (WorkdirLock(workdir) as lock, ProfileSignal(workdir, config.operations.profile_steps) as profile,
          metrics_of(config, runtime.task) as metrics, watched_roles(metrics, runtime.task), memory_told()):
        code = _train(config, runtime, lock, profile, TrainingMetrics(metrics))
        lock.check()
    return code


def _train(config, runtime, lock, profile, monitor) -> int:
    """`train`, of the process that has the folder for itself."""
    run = set_up(config, runtime)
    progress, settings = run.progress, config.train
    if not run.total_steps and not progress.step:
        runtime.close()
        raise UserError("--epochs=0 trains nothing, and there is no run yet: give 1 or more")
    if run.finished:
        logging.info("the training in --workdir=%s is complete at step %d%s", config.paths.workdir, progress.step,
                     ", ended by early stopping" if progress.stopped_early else "")
        runtime.close()
        return 0
    monitor.begun(progress.step, run.total_steps, config.paths.data_dir)
    logging.info("training from step %d to %d", progress.step, run.total_steps)
    listener, uploads = Listener(config, progress), run_uploads.of(config.paths.workdir)
    collapse = CollapseWatch(settings, run.num_items, progress.step, run.assignments.epoch_ends)
    reporter = Reporter(config.paths.workdir, progress.step, run.total_steps, settings.log_every_steps,
                        TRACKERS[settings.tracker](config), monitor)
    with reporter, StopSignals() as stop:
        while not run.finished:
            until = next_event(progress.step, run, settings)
            train_until(until, run, stop, config, reporter, collapse, profile)
            lock.check()
            uploads.check()
            # Nothing is under way now: model, queues and assignments belong together.
            if runtime.evaluator:
                progress.stopped_early |= listener.listen()  # before saving: the evaluator ends by what is saved
            if progress.step in run.validation_steps and progress.step > progress.last_validation_step:
                with runtime.unwatched():
                    progress.stopped_early = validate(run, reporter, settings)
            if run.finished or stop.exit_code or progress.step % settings.checkpoint_every_steps == 0:
                progress.position = run.assignments.position()
                begin = time.perf_counter()
                with runtime.unharmed("saving a checkpoint"):
                    check_variables(run.model)
                    run.checkpoints.save()
                reporter.saved(progress.step, time.perf_counter() - begin)
                uploads.save()
                reporter.restart_clock()
            if stop.exit_code and not run.finished:
                logging.info("stopped by a signal at step %d; run the same command to go on", progress.step)
                break
    if runtime.evaluator and run.finished:
        listener.wait_for_last()
    if run.finished and progress.best_metric == 0:
        logging.warning("--validation_metric=%s was 0 in every validation, so the best checkpoint is the first, of step "
                        "%d: validate by a larger cut-off or on more users, or take --export_checkpoint=latest",
                        progress.metric, progress.best_step)
    runtime.close()
    reporter.close(run.finished)
    uploads.finish()
    return 0 if run.finished else stop.exit_code


def train_until(until: int, run, stop, config, reporter, collapse, profile) -> None:
    """All calls up to a step; their results are counted, judged and reported as they come."""
    progress = run.progress
    for steps, repeated, worker, result in results(run, until, stop, config):
        progress.step += steps
        progress.repeated_steps += repeated
        check_finite(progress, result, steps, config.train.max_nonfinite_steps)
        reporter.add(progress.step, steps, repeated, worker, result)
        collapse.add(progress, result)
        profile.at(progress.step)


def next_event(step: int, run, settings) -> int:
    """The step of the next checkpoint or validation, or the last."""
    ends = [run.total_steps, (step // settings.checkpoint_every_steps + 1) * settings.checkpoint_every_steps]
    ends += run.validation_steps[bisect.bisect_right(run.validation_steps, step):][:1]
    return min(ends)


def results(run, until, stop, config):
    """What the dispatcher gives; an error of the input pipeline becomes one that names the shard."""
    try:
        with faults_told(config.paths.data_dir):
            yield from run.dispatcher.results(until, stop)
    except (tf.errors.DataLossError, tf.errors.InvalidArgumentError, tf.errors.NotFoundError, tf.errors.OutOfRangeError,
            UnicodeDecodeError) as error:
        if may_be_of_a_record(error):
            name_record(config.paths.data_dir, error)
        if isinstance(error, UnicodeDecodeError) or isinstance(error, tf.errors.InvalidArgumentError) and not any(
                sign in str(error.message) for sign in ("damaged training data", "Dataset was empty")):
            raise
        through = servers_named(error)
        where = f" (seen at {through}: all roles need the data at the same path)" if through else ""
        schema_lib.load_manifest(config.paths.data_dir, "sha256")  # names the shard that changed, if one did
        raise DataError(f"reading --data_dir={config.paths.data_dir} failed: {reason(error)}{where}") from error


def name_record(data_dir: str, error: Exception):
    """`DataError` that names the shard with a record that cannot be read, if there is one."""
    logging.info("reading --data_dir=%s once more for the record at fault", data_dir)
    manifest, schema = schema_lib.load_manifest(data_dir, "sha256"), schema_lib.load_schema(data_dir)
    for path, why in record_faults(data_dir, manifest, schema):
        raise DataError(f"shard {path} is damaged: {reason(why)}: restore it, or prepare the data again") from error


def check_finite(progress, result, steps, limit):
    """Counts steps skipped for NaN or infinity; `UserError` after too many in a row."""
    trailing = int(result["trailing_skipped"])
    progress.skipped_steps += int(result["skipped"])
    leading = int(result["leading_skipped"])
    in_a_row = max(progress.trailing_skipped + leading if leading else 0, int(result["longest_skipped"]))
    progress.trailing_skipped = progress.trailing_skipped + steps if trailing == steps else trailing
    if in_a_row > limit:
        raise UserError(
            f"loss or gradient was NaN or infinite in {in_a_row} steps in a row before step "
            f"{progress.step} (--max_nonfinite_steps={limit}); the last checkpoint is from before. Lower "
            "--learning_rate, raise --temperature or --warmup_steps, or look for extreme values in the data")


def validate(run, reporter, settings) -> bool:
    """Scores the model, keeps it if it is the best; returns whether training should stop."""
    begin, metrics = time.perf_counter(), run.validator.metrics()
    names = ("hr@", "ndcg@", "recall@", "mrr/", "auc/coin_flip", "auc/paired")
    ranking = {name: value for name, value in metrics.items() if name.startswith(names)}
    reporter.validated(run.progress.step, ranking, time.perf_counter() - begin)
    best, stop = note_validation(run.progress, metrics[settings.validation_metric], settings.early_stopping_patience)
    if best:
        run.checkpoints.save_best()
    reporter.restart_clock()
    return stop
