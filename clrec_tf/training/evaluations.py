"""What an evaluator has written to --workdir, and what the training makes of it."""
import os
import time

from absl import logging

from clrec_tf.config import Config
from clrec_tf.system import json_files
from clrec_tf.training.progress import Progress
from clrec_tf.training.validation import note_validation

FILE = "evaluations.jsonl"  # one row per checkpoint scored: step, metric, value
POLL_S = 2.0


def read(workdir: str, metric: str) -> list[dict]:
    """The rows of the evaluator by one metric, each step once; lines that are none are left out."""
    path, rows = os.path.join(workdir, FILE), {}
    if os.path.exists(path):
        with open(path, "rb") as file:
            for line in file:
                try:
                    row = json_files.parse(line)
                    if row["metric"] == metric:
                        rows[row["step"]] = row
                except (ValueError, KeyError, TypeError):
                    continue
    return list(rows.values())


class Listener:
    """The chief's side: what the evaluator measured, in place of validations of its own.

    Args:
      config: settings.
      progress: of the training; early stopping and the best step are noted in it.
    """

    def __init__(self, config: Config, progress: Progress):
        self._workdir, self._settings, self._progress = config.paths.workdir, config.train, progress
        self._patience_s = config.cluster.progress_deadline_s

    def listen(self) -> bool:
        """Notes what is new; returns whether training should stop."""
        stop = False
        for row in read(self._workdir, self._settings.validation_metric):
            if self._progress.last_validation_step < row["step"] <= self._progress.step:
                step, self._progress.step = self._progress.step, row["step"]
                stop |= note_validation(self._progress, row["value"], self._settings.early_stopping_patience)[1]
                self._progress.step = step
        return stop

    def wait_for_last(self) -> None:
        """Waits until the last checkpoint is scored, since the best is about to be used."""
        end = time.monotonic() + self._patience_s
        while self._progress.last_validation_step < self._progress.step:
            self.listen()
            if time.monotonic() > end:
                logging.warning("the evaluator has not scored step %d within --progress_deadline_s=%g: the best "
                                "checkpoint is the best of those before", self._progress.step, self._patience_s)
                return
            time.sleep(POLL_S / 4)
