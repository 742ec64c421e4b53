"""What a person or a program sees of a training: metrics.jsonl, what tracks it, a progress bar or log lines."""
import json
import os
import time

from absl import logging
import tqdm

from clrec_tf.system import atomic
from clrec_tf.system import json_files
from clrec_tf.system import json_log
from clrec_tf.system.watched import watched
from clrec_tf.training.step import FLAT
from clrec_tf.training.step import RUNS
from clrec_tf.training.step import SUMS
from clrec_tf.training.step import TIMES

METRICS_LOG = "metrics.jsonl"
_OF_STEPS = {*SUMS, *FLAT, *TIMES, *RUNS}  # in the results of calls; the others are metrics of the objective


class Reporter:
    """Collects the sums of calls and writes means every `log_every` steps, or over what a stop has left of them.

    Args:
      workdir: folder of the run.
      first_step: steps already done; rows of metrics.jsonl after it, from a killed run, are dropped.
      total_steps: for the progress bar.
      log_every: steps between rows.
      tracker: see ``trackers``.
      monitor: a `TrainingMetrics`.
    """

    def __init__(self, workdir, first_step, total_steps, log_every, tracker, monitor):
        self._log_every, self._total, self._tracker, self._monitor = log_every, total_steps, tracker, monitor
        path = os.path.join(workdir, METRICS_LOG)
        _drop_rows_after(path, first_step)
        self._file = open(path, "a", encoding="utf-8")
        self._bar = tqdm.tqdm(total=total_steps, initial=first_step, unit="step", disable=not watched(),
                              dynamic_ncols=True)
        self._reset()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        """A training that fails is told as one that did not finish; of others `close` says how they ended."""
        if kind:
            self.close(finished=False)

    def _reset(self):
        self._sums, self._steps, self._start = {}, 0, time.perf_counter()

    def add(self, step, steps, repeated, worker, result):
        """Takes the result of one call of `steps` steps of a worker that ended at `step`; see `Dispatcher.results`."""
        json_log.note(step=step)
        of_objective = objective_metrics(steps, result)
        self._monitor.called(step, steps, repeated, worker, result)
        self._monitor.objective(worker, of_objective)
        self._bar.update(steps)
        self._steps += steps
        for name in SUMS:
            self._sums[name] = self._sums.get(name, 0.0) + float(result[name])
        if step // self._log_every > (step - steps) // self._log_every or step == self._total:
            good = max(1.0, self._sums["trained"])
            seconds = time.perf_counter() - self._start
            row = {"steps": self._steps, "loss": self._sums["loss"] / good,
                   "gradient_norm": self._sums["gradient_norm"] / good,
                   "skipped_steps": self._sums["skipped"], "examples_per_second": self._sums["examples"] / seconds}
            self.write(step, row | of_objective)
            self._reset()

    def write(self, step, row):
        """One row: {name: number} at a step."""
        self._file.write(json.dumps({"step": step, **row}) + "\n")
        self._file.flush()
        numbers = {name: value for name, value in row.items() if isinstance(value, (int, float))}
        self._tracker.write(step, numbers)
        text = " ".join(f"{name}={value:.5g}" for name, value in numbers.items())
        if self._bar.disable:
            logging.info("step %d/%d %s", step, self._total, text)
        else:
            self._bar.set_postfix_str(text[:90])

    def validated(self, step, row, seconds):
        """A validation at a step, which took so many seconds: {metric: number}."""
        self.write(step, {f"valid/{name}": value for name, value in row.items()})
        self._monitor.validated(step, row, seconds)

    def saved(self, step, seconds):
        """A checkpoint was saved in so many seconds."""
        self._monitor.saved(step, seconds)

    def restart_clock(self):
        """Leaves validation and checkpoints out of examples per second."""
        self._start = time.perf_counter() if not self._steps else self._start

    def close(self, finished: bool):
        """Closes files and bar; `finished`: no step is left."""
        self._bar.close()
        self._file.close()
        self._tracker.close(finished)


def objective_metrics(steps: int, result: dict) -> dict[str, float]:
    """What a call of some steps tells of queues and samplers, by name.

    A queue that tells how many entries the call brought in, `queue_entered`, has an age by that: `queue_age`, steps
    since its oldest entry came in.
    """
    values = {name: float(value) for name, value in result.items() if name not in _OF_STEPS}
    if entered := values.pop("queue_entered", 0.0):
        values["queue_age"] = values["queue_fill"] * steps / entered
    return values


def _drop_rows_after(path, step):
    """Keeps rows up to a step; a half-written or damaged line goes too."""
    if not os.path.exists(path):
        return
    kept = []
    with open(path, "rb") as file:
        for line in file:
            try:
                if json_files.parse(line)["step"] <= step:
                    kept.append(line)
            except (ValueError, KeyError, TypeError):
                continue
    with atomic.new_file(path) as name, open(name, "wb") as file:
        file.writelines(kept)
