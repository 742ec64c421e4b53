"""The evaluator of a cluster: scores each checkpoint beside the training, which does not wait, and keeps the best.

It talks to nobody: it reads checkpoints from --workdir, and writes its results there, which the chief reads.
"""
import json
import os
import time

from absl import logging
import tensorflow as tf

from clrec_tf.config import Config
from clrec_tf.data.assignments import Assignments
from clrec_tf.data import schema as schema_lib
from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.models.build import build_model
from clrec_tf.models.build import load_content
from clrec_tf.training import checkpoint_list
from clrec_tf.training.checkpoints import BEST_FOLDER
from clrec_tf.training.checkpoints import LATEST_FOLDER
from clrec_tf.training.checkpoints import restore
from clrec_tf.training import evaluations
from clrec_tf.training.monitoring.exporter import metrics_of
from clrec_tf.training.monitoring.training_metrics import ScoreMetrics
from clrec_tf.training.progress import Progress
from clrec_tf.training.progress import ProgressState
from clrec_tf.training.setup import check_paths
from clrec_tf.training.setup import training_plan
from clrec_tf.training.stop_signals import StopSignals
from clrec_tf.training.validation import note_validation
from clrec_tf.training.validation import Validator


def run(config: Config, task=None) -> int:
    """Scores checkpoints until that of the last step is scored.

    Args:
      config: settings.
      task: of this process in its cluster, a `roles.Task`.

    Returns:
      0, or the exit code of the signal that ended it.

    Raises:
      UserError: settings or data at fault.
    """
    data_dir, workdir = check_paths(config.paths)
    with StopSignals() as stop, metrics_of(config, task) as metrics:
        # The chief generates and prepares the data, which may take long.
        while not os.path.exists(os.path.join(data_dir, schema_lib.MANIFEST_FILE)):
            if stop.exit_code is not None:
                return stop.exit_code
            time.sleep(evaluations.POLL_S)
        schema, manifest = schema_lib.load_schema(data_dir), schema_lib.load_manifest(data_dir)
        if not manifest.records("valid"):
            raise DataError(f"--data_dir={data_dir} has no validation part: an evaluator has nothing to do; leave it "
                            "out, or prepare with a split that has one")
        model = build_model(config, schema, load_content(data_dir, schema), config.paths.seed)
        scored = _Scored(config, model, Validator(config, schema, manifest, model), ScoreMetrics(metrics))
        total = Assignments(training_plan(config, manifest), config.train.epochs).total
        while True:
            if stop.exit_code is not None:
                return stop.exit_code
            if not scored.score_new():
                time.sleep(evaluations.POLL_S)
            elif scored.progress.stopped_early or scored.progress.step >= total:
                return 0


class _Scored:
    """The checkpoints scored so far, and the best of them."""

    def __init__(self, config, model, validator, monitor):
        workdir, self._monitor = config.paths.workdir, monitor
        self.progress, self._search = Progress(), Progress(metric=config.train.validation_metric)
        self._validator, self._folder = validator, os.path.join(workdir, LATEST_FOLDER)
        self._checkpoint = tf.train.Checkpoint(model=model, progress=ProgressState(self.progress))
        checkpoint_list.tidy(os.path.join(workdir, BEST_FOLDER))
        self._best = tf.train.CheckpointManager(
            tf.train.Checkpoint(model=model), os.path.join(workdir, BEST_FOLDER), max_to_keep=1,
            checkpoint_name=checkpoint_list.NAME)
        self._log = os.path.join(workdir, evaluations.FILE)
        for row in evaluations.read(workdir, config.train.validation_metric):
            self._note(row)

    def _note(self, row):
        self._search.step = row["step"]
        return note_validation(self._search, row["value"], 0)[0]

    def score_new(self) -> bool:
        """Scores the latest checkpoint, unless that is done; returns whether it did."""
        prefix = checkpoint_list.newest(self._folder)
        if prefix is None or int(prefix.rsplit("-", 1)[1]) == self._search.step:
            return False
        try:
            restore(self._checkpoint, prefix).expect_partial().assert_existing_objects_matched()
        except UserError as error:
            if not isinstance(error, DataError) and os.path.exists(prefix + ".index"):
                raise
            # It may have been removed while it was read: there is a newer one.
            logging.warning("%s: waiting for the next", error)
            return False
        step, metric = self.progress.step, self._search.metric
        begin = time.perf_counter()
        row = {"step": step, "metric": metric, "value": self._validator.metrics()[metric]}
        self._monitor.validated(step, {metric: row["value"]}, time.perf_counter() - begin)
        best = self._note(row)
        if best:
            checkpoint_list.save(self._best, step)
        with open(self._log, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        logging.info("step %d: %s=%.5g%s", step, metric, row["value"], ", the best so far" if best else "")
        return True
