"""The evaluator: a real process beside a training, its scores, the best it keeps, and what the chief makes of them."""
import dataclasses
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf

from clrec_tf.config import ClusterConfig
from clrec_tf.config import Config
from clrec_tf.errors import DataError
from clrec_tf.system import json_files
from clrec_tf.training.checkpoints import find_checkpoint
from clrec_tf.training.cluster import evaluator
from clrec_tf.training import evaluations
from clrec_tf.training.loop import train
from clrec_tf.training.progress import Progress
from clrec_tf.training.runtime import LocalRuntime
from tests import forked
from tests.service_process import wait_for
from tests import small_run

METRIC = "ndcg@5/full"
TASK = {"cluster": {"chief": ["c:1"], "worker": ["w:1"], "ps": ["p:1"]}, "task": {"type": "evaluator", "index": 0}}


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    return small_run.prepared(tmp_path_factory.mktemp("training"))


def settings(data_dir, workdir, **changes):
    return small_run.config(data_dir, workdir, **{
        "validation_metric": METRIC, "checkpoint_every_steps": 20, "keep_checkpoints": 100, **changes})


def process(config, *flags):
    """An evaluator with the settings that differ from the defaults."""
    given = [f"--{name}={value}" for section in ("model", "loss", "train")
             for name, value in dataclasses.asdict(getattr(config, section)).items()
             if value != getattr(getattr(Config(), section), name) and not isinstance(value, tuple)]
    given += [f"--{name}={value}" for name, value in config.plugs.items()]
    return forked.Popen(
        [sys.executable, "-m", "clrec_tf.train", f"--data_dir={config.paths.data_dir}",
         f"--workdir={config.paths.workdir}", *given, *flags],
        env={**os.environ, "TF_CONFIG": json.dumps(TASK)}, stderr=subprocess.PIPE, text=True)


def model_values(prefix):
    reader = tf.train.load_checkpoint(prefix)
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()
            if name.startswith("model/") and "OPTIMIZER" not in name}


@pytest.mark.cluster
def test_an_evaluator_beside_a_training_scores_as_validation_does_and_keeps_the_best(data_dir, tmp_path):
    config = settings(data_dir, tmp_path / "run", epochs=3)
    beside = process(config, "--validation_by=evaluator")
    try:
        small_run.run(config)
        assert beside.wait(120) == 0, beside.stderr.read()
    finally:
        beside.kill()
    rows = evaluations.read(config.paths.workdir, METRIC)
    validated = settings(data_dir, tmp_path / "validated", epochs=3, validate_every=3.0)
    small_run.run(validated)
    last = [json.loads(line) for line in (tmp_path / "validated/metrics.jsonl").read_text().splitlines()][-1]
    assert rows[-1]["step"] == last["step"] and rows[-1]["value"] == pytest.approx(last[f"valid/{METRIC}"], abs=1e-6)
    best = max(rows, key=lambda row: row["value"])["step"]
    prefix = find_checkpoint(config.paths.workdir, "best")
    assert prefix.endswith(f"best/step-{best}")
    kept, trained = (model_values(path) for path in (prefix, f"{config.paths.workdir}/checkpoints/step-{best}"))
    assert kept.keys() == trained.keys() and len(kept) > 3
    for name, value in kept.items():
        np.testing.assert_array_equal(value, trained[name])


def test_an_evaluator_that_comes_late_scores_the_last_and_once(data_dir, tmp_path):
    config = settings(data_dir, tmp_path, epochs=1)
    small_run.run(config)
    assert evaluator.run(config) == 0
    rows = (tmp_path / "evaluations.jsonl").read_text().splitlines()
    assert len(rows) == 1
    # A worse model does not replace the best, a better one does; what was found before counts.
    (tmp_path / "evaluations.jsonl").write_text(json.dumps(dict(step=1, metric=METRIC, value=2.0)) + "\n" + '{"step"')
    before = find_checkpoint(str(tmp_path), "best")
    assert evaluator.run(config) == 0
    assert find_checkpoint(str(tmp_path), "best") == before
    assert [row["step"] for row in evaluations.read(str(tmp_path), METRIC)][0] == 1


def test_an_evaluator_needs_a_validation_part(data_dir, tmp_path):
    alone = tmp_path / "data"
    shutil.copytree(data_dir, alone)
    manifest = json.loads((alone / "manifest.json").read_text())
    manifest["shards"]["valid"] = []
    (alone / "manifest.json").write_text(json.dumps(json_files.sealed(manifest)))
    with pytest.raises(DataError, match="has no validation part: an evaluator has nothing to do"):
        evaluator.run(settings(str(alone), tmp_path / "run"))


@pytest.mark.cluster
@pytest.mark.parametrize("flags, code, message", [((), 2, "--validation_by=chief, but this task is an evaluator")])
def test_an_evaluator_refuses_a_chief_that_validates(data_dir, tmp_path, flags, code, message):
    beside = process(settings(data_dir, tmp_path), *flags)
    assert beside.wait(60) == code and message in beside.stderr.read()


def catches(pid, number) -> bool:
    """Whether a process has a handler of its own for a signal."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return bool(int(re.search(r"SigCgt:\s*(\w+)", status)[1], 16) >> number - 1 & 1)


@pytest.mark.cluster
def test_an_evaluator_ends_when_told(tmp_path):
    beside = process(settings(str(tmp_path / "no-data-yet"), tmp_path / "run"), "--validation_by=evaluator")
    wait_for(lambda: catches(beside.pid, signal.SIGTERM), 60)
    time.sleep(1)  # it waits for the data
    assert beside.poll() is None
    beside.send_signal(signal.SIGTERM)
    assert beside.wait(30) == 75


def listener(workdir, patience, step, **cluster):
    config = settings("data", workdir, early_stopping_patience=patience)
    progress = Progress(step=step, metric=METRIC)
    return progress, evaluations.Listener(dataclasses.replace(config, cluster=ClusterConfig(**cluster)), progress)


def test_the_chief_stops_early_by_the_evaluators_scores(tmp_path):
    scores = [(10, .1), (20, .3), (30, .2), (40, .25), (50, .9)]
    (tmp_path / "evaluations.jsonl").write_text("".join(
        json.dumps(dict(step=step, metric=METRIC, value=value)) + "\n" for step, value in scores))
    for patience, step, stops, best in [(2, 30, False, 20), (2, 40, True, 20), (3, 40, False, 20), (0, 40, False, 20),
                                        (2, 50, True, 50)]:
        progress, chief = listener(tmp_path, patience, step)
        assert chief.listen() == stops
        assert (progress.best_step, progress.step, progress.last_validation_step) == (best, step, step)
    progress, chief = listener(tmp_path, 2, 20)
    assert not chief.listen()
    progress.step = 40  # what was noted is not noted again
    assert chief.listen() and progress.validations_since_best == 2


class WithEvaluator(LocalRuntime):
    """One process that leaves validation to another."""
    evaluator = True


def test_a_stop_by_the_evaluator_is_saved(data_dir, tmp_path):
    config = settings(data_dir, tmp_path, epochs=3, early_stopping_patience=1, checkpoint_every_steps=10)
    (tmp_path / "evaluations.jsonl").write_text("".join(
        json.dumps(dict(step=step, metric=METRIC, value=1 / step)) + "\n" for step in range(10, 1000, 10)))
    for _ in range(2):  # the second goes on with nothing
        assert train(config, WithEvaluator()) == 0
        assert find_checkpoint(str(tmp_path), "latest").endswith("step-20")
    assert evaluator.run(config) == 0  # which ends, since the stop is in the checkpoint


def test_the_chief_waits_for_the_last_score_but_not_for_ever(tmp_path):
    progress, chief = listener(tmp_path, 0, 10, progress_deadline_s=1.0)
    start = time.monotonic()
    chief.wait_for_last()
    assert 1 <= time.monotonic() - start < 4 and progress.best_metric is None
    (tmp_path / "evaluations.jsonl").write_text(json.dumps(dict(step=10, metric=METRIC, value=.5)) + "\n")
    chief.wait_for_last()
    assert (progress.best_step, progress.best_metric) == (10, .5)
