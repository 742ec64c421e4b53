"""What the loop hands over to Prometheus, where it reports anyway: at the end of calls, validations and checkpoints."""
import os
import time

from clrec_tf.data import schema as schema_lib
from clrec_tf.system import json_files

_QUEUE = ("queue_fill", "queue_duplicate_rate", "queue_age")  # with gauges of their own


class ScoreMetrics:
    """Validations: of the loop, or of an evaluator.

    Args:
      metrics: of the process, see ``exporter``.
    """

    def __init__(self, metrics):
        self._values = metrics.gauge("clrec_train_validation_score", "Metrics of the last validation.", ["metric"])
        self._scored = metrics.gauge("clrec_train_validation_step", "Step that was validated last.")
        self._seconds = metrics.summary("clrec_train_validation_seconds", "Validations, and what they took.")

    def validated(self, step: int, values: dict, seconds: float) -> None:
        """A model was scored: metric -> value."""
        for name, value in values.items():
            self._values.labels(name).set(value)
        self._scored.set(step)
        self._seconds.observe(seconds)


class TrainingMetrics(ScoreMetrics):
    """All of one training, by the process that runs the loop. `worker` is 0 on one machine.

    Args:
      metrics: of the process, see ``exporter``.
    """

    def __init__(self, metrics):
        super().__init__(metrics)
        counter, gauge = metrics.counter, metrics.gauge
        self._step = gauge("clrec_train_step", "Steps done, of this process and those before it.")
        self._target = gauge("clrec_train_target_steps", "Steps of all epochs.")
        self._steps = counter("clrec_train_steps", "Steps of this process.", ["worker"])
        self._examples = counter("clrec_train_examples", "Examples trained on.", ["worker"])
        self._input = counter("clrec_train_input_wait_seconds", "Time in which calls waited for batches.", ["worker"])
        self._calls = counter("clrec_train_call_seconds", "Time in calls, waiting for batches included.", ["worker"])
        self._seen = gauge("clrec_train_result_timestamp_seconds", "When the last call of a worker ended.", ["worker"])
        self._loss = gauge("clrec_train_loss", "Mean loss of the last call that trained.")
        self._norm = gauge("clrec_train_gradient_norm", "Mean norm of the gradient in the last call that trained.")
        self._skipped = counter("clrec_train_skipped_steps", "Steps left out for NaN or infinity.")
        self._repeated = counter("clrec_train_repeated_steps", "Steps that may be trained twice: a worker was lost.")
        self._queue = dict(zip(_QUEUE, (
            gauge("clrec_train_queue_entries", "Entries of the queue, of multi_clrec the main one's.", ["worker"]),
            gauge("clrec_train_queue_duplicate_ratio", "Share of entries that repeat an item.", ["worker"]),
            gauge("clrec_train_queue_age_steps", "Age of the oldest entry, in steps of the worker.", ["worker"]))))
        self._objective = gauge("clrec_train_objective", "Other metrics of the loss, as in metrics.jsonl.",
                                ["metric", "worker"])
        self._bad_rows = gauge("clrec_train_data_bad_rows", "Rows of the log that prepare left out (NaN: not known).")
        self._saved = gauge("clrec_train_checkpoint_timestamp_seconds", "When the last checkpoint was saved; before "
                            "the first of this process, when it began.")
        self._saved_step = gauge("clrec_train_checkpoint_step", "Step of the last checkpoint.")
        self._saving = metrics.summary("clrec_train_checkpoint_seconds", "Checkpoints saved, and what they took.")

    def begun(self, step: int, total_steps: int, data_dir: str) -> None:
        """Training begins, or goes on, after `step` of `total_steps`."""
        self._step.set(step)
        self._saved_step.set(step)
        self._target.set(total_steps)
        self._saved.set(time.time())
        self._bad_rows.set(bad_rows(data_dir))

    def called(self, step: int, steps: int, repeated: int, worker: int, result: dict) -> None:
        """A call ended; see `step.make_train_call` for what `result` holds, and `Reporter.add` for the others."""
        self._step.set(step)
        for counter, value in ((self._steps, steps), (self._examples, result["examples"]),
                               (self._input, result["input_seconds"]), (self._calls, result["call_seconds"])):
            counter.labels(worker).inc(float(value))
        self._seen.labels(worker).set(time.time())
        self._skipped.inc(float(result["skipped"]))
        self._repeated.inc(repeated)
        if trained := float(result["trained"]):
            self._loss.set(float(result["loss"]) / trained)
            self._norm.set(float(result["gradient_norm"]) / trained)

    def objective(self, worker: int, values: dict) -> None:
        """Metrics of the loss after a call of a worker, by their names in metrics.jsonl."""
        for name, value in values.items():
            gauge = self._queue.get(name)
            (self._objective.labels(name, worker) if gauge is None else gauge.labels(worker)).set(float(value))

    def saved(self, step: int, seconds: float) -> None:
        """A checkpoint of this step was saved, in so many seconds."""
        self._saved.set(time.time())
        self._saved_step.set(step)
        self._saving.observe(seconds)


def bad_rows(data_dir: str) -> float:
    """How many rows prepare left out, by its report; NaN where that cannot be read."""
    try:
        return float(json_files.load_json(os.path.join(data_dir, schema_lib.REPORT_FILE), "", "")["bad_rows"])
    except (ValueError, KeyError, TypeError, OSError):
        return float("nan")
