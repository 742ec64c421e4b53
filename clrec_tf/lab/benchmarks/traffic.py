"""Bytes that a training sends per step, counted on the loopback; what runs in the process of a cluster's chief.

Batches are drawn by the workers, and what is constant lies there, so that only parameters and gradients travel.
"""
import statistics
import time
import types

import numpy as np
import tensorflow as tf

from clrec_tf.config import Config
from clrec_tf.lab.benchmarks.counts import distinct_ids
from clrec_tf.lab.benchmarks.drawn_feed import CountedFeed
from clrec_tf.lab.benchmarks.drawn_feed import DrawnFeed
from clrec_tf.lab.benchmarks.measured_cluster import loopback_bytes
from clrec_tf.lab.benchmarks.workload import draw_batches
from clrec_tf.lab.benchmarks.workload import GeneratedItems
from clrec_tf.lab.benchmarks.workload import HISTORY_ONLY
from clrec_tf.lab.benchmarks.workload import Trainer
from clrec_tf.lab.children import cpu_seconds
from clrec_tf.training.dispatch import Dispatcher
from clrec_tf.training.step import TrainCall

NO_STOP = types.SimpleNamespace(exit_code=None)
WARM_CALLS = 2  # of a worker: tracing, and what is sent once


class MeasuredSteps:
    """A call that can be measured.

    Args:
      session: of the chief.
      call: a `TrainCall`.
      feed: a `CountedFeed`.
      steps_per_call: of each call.
    """

    def __init__(self, session, call, feed, steps_per_call: int):
        self._session, self._call, self._feed, self._steps_per_call = session, call, feed, steps_per_call
        self.run(WARM_CALLS * session.runtime.num_workers, 1)

    def run(self, steps: int, steps_per_call: int = 0) -> tuple[float, int]:
        """Runs so many steps; (seconds, bytes) that they took."""
        most = steps_per_call or self._steps_per_call
        dispatcher = Dispatcher(self._call, self._feed, self._feed, self._session.runtime, most, most)
        sent, started = loopback_bytes(), time.perf_counter()
        for _ in dispatcher.results(self._feed.taken + steps, NO_STOP):
            pass
        return time.perf_counter() - started, loopback_bytes() - sent


def drawn_steps(session, config: Config, items: GeneratedItems, kinds) -> tuple[Trainer, dict[str, MeasuredSteps]]:
    """A model on the cluster, and for each kind (see `Trainer`) its steps, all over the same batches."""
    with session.runtime.unharmed("making the model"):
        trainer = Trainer(items, config, kinds, session.runtime, DrawnFeed(items, config).open)
    return trainer, {kind: MeasuredSteps(session, call, DrawnFeed(items, config), config.train.steps_per_call)
                     for kind, call in trainer.calls.items()}


def compare(session, config: Config, items: GeneratedItems, kinds, rounds: int) -> dict:
    """Kinds in turn on one model: of each bytes per step and samples/s, beside what has to move."""
    trainer, steps = drawn_steps(session, config, items, kinds)
    count, size, measured = config.train.steps_per_call, config.train.batch_size, {kind: [] for kind in kinds}
    for turn in range(rounds):
        for kind in (kinds if turn % 2 else reversed(kinds)):
            measured[kind].append(steps[kind].run(count))
    dense = dense_bytes(trainer.model)
    compared = {}
    for kind, rounds_of_kind in measured.items():
        sent = [bytes_sent / count for _, bytes_sent in rounds_of_kind]
        least = row_bytes(trainer.model, items, config, kind) | dict(dense=dense)
        compared[kind] = dict(
            bytes_per_sample=round(statistics.mean(sent) / size), bytes_per_step=round(statistics.mean(sent)),
            spread=round((max(sent) - min(sent)) / statistics.mean(sent), 4),
            samples_per_s=round(size * count / statistics.median(seconds for seconds, _ in rounds_of_kind)),
            has_to_move_per_step=least, over_has_to_move=round(statistics.mean(sent) / sum(least.values()), 3))
    return compared


def dense_bytes(model) -> int:
    """What is not a table of items or their features: once down, and its gradient once up."""
    tables = [model.item_encoder.ids, *model.item_encoder.feature_tables]
    numbers = sum(variable.shape.num_elements() for variable in model.trainable_variables)
    return 2 * 4 * (numbers - sum(table.table.shape.num_elements() for table in tables))


def row_bytes(model, items: GeneratedItems, config: Config, kind: str) -> dict[str, int]:
    """Per step, mean over some: rows in use down and their gradients up, and with both the rows' numbers."""
    steps = distinct_ids(items, draw_batches(items, config, 10), "cached" if kind == HISTORY_ONLY else kind,
                         config.loss.queue_size)
    widths = [table.table.shape[1] for table in model.item_encoder.feature_tables]
    values = numbers = 0
    for step in steps:
        read = step["clicked"] if kind == HISTORY_ONLY else np.union1d(step["clicked"], step["candidates"])
        featured = read if config.tower.candidate_features else step["clicked"]
        columns = [np.unique(column) for column in items.columns(featured)[1:]]
        values += sum(len(ids) * width for ids, width in zip([read, *columns], [config.model.embedding_dim, *widths]))
        numbers += sum(map(len, [read, *columns]))
    return dict(rows=round(2 * 4 * values / len(steps)), row_numbers=round(2 * 4 * numbers / len(steps)))


def hold_steps(session, config: Config, items: GeneratedItems, kind: str) -> None:
    """Makes a model, and steps of a kind that `run_held` runs."""
    _, steps = drawn_steps(session, config, items, (kind,))
    session.kept["steps"] = steps[kind]


def run_held(session, steps: int) -> float:
    """Seconds that so many steps take."""
    return session.kept["steps"].run(steps)[0]


def trivial_calls(session, calls: int, rounds: int) -> dict[str, float]:
    """How many calls of one step the chief hands out per second, where a step adds one to a counter."""
    counter = session.runtime.local_variable(lambda worker: tf.constant(0, tf.int64), (), tf.int64)

    @tf.function
    def count(work):
        tf.raw_ops.AssignAddVariableOp(resource=counter.handle, value=work[1])
        return tf.ones([1])

    steps = MeasuredSteps(session, TrainCall(count, ["counted"]), CountedFeed(), 1)
    cpu, seconds = cpu_seconds(), []
    for _ in range(rounds):
        seconds.append(steps.run(calls)[0])
    cpu = cpu_seconds() - cpu
    expected = calls * rounds + WARM_CALLS * session.runtime.num_workers
    if (counted := sum(session.runtime.read_local(counter))) != expected:
        raise RuntimeError(f"{expected} calls were begun, {counted} were counted")
    return dict(calls_per_s=round(calls / statistics.median(seconds), 1),
                chief_cpu_ms_per_call=round(1000 * cpu / (calls * rounds), 3))
