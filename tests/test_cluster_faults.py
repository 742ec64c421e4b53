"""Roles of a cluster that are killed, stand still, are absent or told to end: what goes on, and what ends with which
code."""
import contextlib
import json
import shutil
import signal

import numpy as np
import pytest

from clrec_tf.data import schema as schema_lib
from tests.local_cluster import LocalCluster
from tests.local_cluster import LOSING
from tests.local_cluster import progress_of
from tests.local_cluster import queue_of
from tests.local_cluster import STOPPING
from tests.local_cluster import values
from tests.local_cluster import wait_for
from tests.prepared_data import prepare_text
from tests.prepared_data import read_split
from tests import small_run

pytestmark = pytest.mark.cluster

SMALL = dict(user_encoder="mean", time_embedding="none", use_features=False, queue="raw", parallel_ops=4)
EPOCH = 28  # steps


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    return small_run.prepared(tmp_path_factory.mktemp("training"))


@pytest.fixture(scope="module")
def steady(data_dir, tmp_path_factory):
    """Two workers and two parameter servers for tests in which they stay, or come back."""
    with LocalCluster(tmp_path_factory.mktemp("logs"), dict(data_dir=data_dir, chief_gone_s=0, **SMALL)) as cluster:
        yield cluster.start_servers()


def own_target_log(users: int) -> str:
    """A log in which each user's last training click is on an item of its own; two clicks follow for other parts."""
    lines = ["user_id,item_id,timestamp"]
    for user in range(users):
        items = [user % 5, user % 7, user % 9, user % 11, 100 + user, user % 5, user % 7]
        lines += [f"{user},{item + 1},{1_600_000_000 + 100 * click}" for click, item in enumerate(items)]
    return "\n".join(lines) + "\n"


def checkpoint(workdir, step: int = 0) -> dict:
    """Values of the checkpoint of a step, 0: the latest."""
    return values(workdir, str(workdir / "checkpoints" / f"step-{step}") if step else "latest")


def updates(found: dict) -> int:
    """How often the optimizer has updated the model."""
    return next(int(value) for name, value in found.items() if "iterations" in name)


def slots(found: dict, rows: int) -> list[np.ndarray]:
    """The optimizer's state of the item table."""
    return [value for name, value in found.items()
            if name.startswith("optimizer/") and np.ndim(value) == 2 and len(value) == rows]


def test_a_killed_workers_steps_are_done_by_others_and_it_comes_back(steady, tmp_path):
    data_dir, workdir = prepare_text(tmp_path, own_target_log(3200), shard_records=200), tmp_path / "run"
    steps, epoch = 10, 800
    steady.start("chief", data_dir=data_dir, workdir=workdir, batch_size=4, target_mode="last", epochs=100,
                 steps_per_call=steps, log_every_steps=20, checkpoint_every_steps=epoch // 2, keep_checkpoints=50)
    steady.wait_for_step(workdir, 200)
    steady.kill("worker", 1)
    steady.wait_for_step(workdir, epoch // 2)  # the others go on, through a checkpoint
    steady.start("worker", 1)
    steady.wait_for_step(workdir, epoch + 20)
    # All of the epoch is trained: each target has a row of its own, which nothing but its step touches.
    whole = checkpoint(workdir, epoch)
    targets = {record["item_id"][-1] for record in read_split(data_dir, "train")}
    rows = schema_lib.load_schema(data_dir).item_rows
    state = slots(whole, rows)
    assert len(targets) == 3200 and len(state) == 2
    assert all(np.abs(values[sorted(targets)]).max(axis=1).min() > 0 for values in state)
    assert progress_of(whole)["step"] == epoch
    # Nothing more was trained than the call that the worker was in.
    repeated = progress_of(whole)["repeated_steps"]
    assert repeated <= steps and epoch <= updates(whole) <= epoch + repeated
    assert f"{repeated} steps were begun by worker 1 and then done by worker 0" in steady.log("chief") or not repeated

    def trained_by_the_new_one():
        return (queue_of(checkpoint(workdir), "count", 1) or 0) > (queue_of(whole, "count", 1) or 0)
    wait_for(trained_by_the_new_one, "a step by the worker that was started again")
    steady.signal("chief", 0, signal.SIGTERM)
    assert steady.ended("chief") == 75
    last, done = checkpoint(workdir), progress_of(checkpoint(workdir))
    assert done["step"] <= updates(last) <= done["step"] + done["repeated_steps"] <= done["step"] + 2 * steps


def test_a_chief_that_is_told_to_end_or_killed_goes_on_alone(steady, data_dir, tmp_path):
    settings = dict(workdir=tmp_path, epochs=40, log_every_steps=10, checkpoint_every_steps=50)
    steady.start("chief", **settings)
    steady.wait_for_step(tmp_path, 80)
    steady.signal("chief", 0, signal.SIGTERM)
    assert steady.ended("chief") == 75
    done = progress_of(checkpoint(tmp_path))["step"]
    assert done >= 80 and f"stopped by a signal at step {done}" in steady.log("chief")

    steady.start("chief", **settings)
    steady.wait_for_step(tmp_path, done + 130)
    steady.kill("chief")
    killed = progress_of(checkpoint(tmp_path))["step"]
    assert f"going on from {tmp_path}/checkpoints/step-{done}" in steady.log("chief") and killed >= done + 50

    assert steady.chief(**settings) == 0
    assert f"going on from {tmp_path}/checkpoints/step-{killed}" in steady.log("chief")
    last = checkpoint(tmp_path)
    assert progress_of(last)["step"] == updates(last) == 40 * EPOCH  # what came after step-N is gone
    assert progress_of(last)["repeated_steps"] == 0
    examples = sum(len(record["item_id"]) - 1 for record in read_split(data_dir, "train"))
    assert sum(queue_of(last, "count", worker) for worker in (0, 1)) == 40 * examples  # queues went on too


def test_a_lost_parameter_server_ends_the_chief_and_all_roles_anew_go_on(data_dir, tmp_path):
    settings = dict(workdir=tmp_path / "run", epochs=30, log_every_steps=10, checkpoint_every_steps=50)
    with LocalCluster(tmp_path / "logs", dict(data_dir=data_dir, chief_gone_s=3, **SMALL), workers=1) as cluster:
        cluster.start_servers()
        cluster.start("chief", **settings)
        cluster.wait_for_step(tmp_path / "run", 120)
        cluster.kill("ps", 1)
        assert cluster.ended("chief", seconds=20) == 69
        assert_reason(cluster, "lost")
        killed = progress_of(checkpoint(tmp_path / "run"))["step"]
        assert killed >= 100
        # The other roles see that the chief is gone, and end so that they are started anew.
        assert cluster.ended("worker", 0, 20) == cluster.ended("ps", 0, 20) == 75
        cluster.start_servers()
        assert cluster.chief(**settings) == 0
        assert f"going on from {tmp_path}/run/checkpoints/step-{killed}" in cluster.log("chief")
    last = checkpoint(tmp_path / "run")
    assert progress_of(last)["step"] == updates(last) == 30 * EPOCH


def assert_reason(cluster, words: str):
    """The chief's last line says what happened and what to do; nothing was left to TensorFlow to say."""
    log = cluster.log("chief")
    last = [line for line in log.splitlines() if line.startswith("error: ")][-1]
    assert words in last and "Run the same command again" in last, log[-3000:]
    assert "Traceback" not in log


# How many steps the worker holds depends on where it is stopped: the last call of an epoch has fewer.
@pytest.mark.parametrize("role, words", [("worker", "worker 1 ("), ("ps", "parameter server")])
def test_a_role_that_stands_still_ends_the_chief(steady, tmp_path, role, words):
    steady.start("chief", workdir=tmp_path, epochs=1000, log_every_steps=4, checkpoint_every_steps=1000,
                 progress_deadline_s=12)
    steady.wait_for_step(tmp_path, 40)
    with stopped(steady, role, 1):
        assert steady.ended("chief", seconds=40) == 69
        assert_reason(steady, words)
        assert "--progress_deadline_s=12" in steady.log("chief").split("error: ")[-1]


def test_a_call_whose_worker_is_killed_before_its_result_is_copied_is_done_by_another(steady, tmp_path):
    steady.wait_for_servers()
    steady.start("chief", workdir=tmp_path, epochs=10, log_every_steps=4, code=LOSING,
                 environ={"LOST": str(steady.pids("worker")[1])})
    wait_for(lambda: "LOST worker 1 (" in steady.log("chief"), "the loss of a result")
    steady.start("worker", 1)
    assert steady.ended("chief") == 0
    done = progress_of(values(tmp_path))
    assert done["step"] == 10 * EPOCH and 1 <= done["repeated_steps"] <= 10
    assert "were begun by worker 1 and then done by worker 0" in steady.log("chief")


def test_a_worker_that_stands_still_before_its_result_is_fetched_ends_the_chief(steady, tmp_path):
    steady.wait_for_servers()
    try:
        code = steady.chief(seconds=60, workdir=tmp_path, epochs=1000, log_every_steps=4, checkpoint_every_steps=1000,
                            progress_deadline_s=5, code=STOPPING, environ={"STOPPED": str(steady.pids("worker")[1])})
    finally:
        steady.signal("worker", 1, signal.SIGCONT)
    assert code == 69
    assert_reason(steady, "fetching from worker 1 (")


def test_a_role_that_stands_still_at_the_start_ends_the_chief(steady, tmp_path):
    steady.wait_for_servers()
    with stopped(steady, "worker", 0):  # its port still takes connections
        assert steady.chief(workdir=tmp_path, seconds=60, progress_deadline_s=5) == 69
        assert_reason(steady, "connecting takes longer than --progress_deadline_s=5")


def test_a_parameter_server_that_stands_still_while_the_lock_of_python_is_held_ends_the_chief(steady, tmp_path):
    steady.start("chief", workdir=tmp_path, progress_deadline_s=5)
    wait_for(lambda: "the cluster has 2 workers" in steady.log("chief"), "the connection")
    with stopped(steady, "ps", 1):  # while the model is made there
        assert steady.ended("chief", seconds=60) in (1, 69)


@contextlib.contextmanager
def stopped(cluster, role: str, index: int):
    """A role stands still."""
    cluster.signal(role, index, signal.SIGSTOP)
    try:
        yield
    finally:
        cluster.signal(role, index, signal.SIGCONT)


def test_a_role_that_is_absent_is_named(steady, tmp_path):
    absent = {**steady.addresses, "ps": steady.addresses["ps"] + ["127.0.0.1:1"]}
    environ = {"TF_CONFIG": json.dumps({"cluster": absent, "task": {"type": "chief", "index": 0}})}
    steady.wait_for_servers()
    assert steady.chief(workdir=tmp_path / "run", connect_deadline_s=2, environ=environ) == 69
    assert "error: not there after --connect_deadline_s=2: ps 2 at 127.0.0.1:1. Start" in steady.log("chief")
    assert not (tmp_path / "run").exists()


def test_a_damaged_shard_read_by_a_worker_is_named(steady, data_dir, tmp_path):
    folder = shutil.copytree(data_dir, tmp_path / "data")
    name = schema_lib.load_manifest(folder).shards["train"][1].name
    content = bytearray((folder / name).read_bytes())
    content[50] ^= 0xff
    (folder / name).write_bytes(content)
    assert steady.chief(data_dir=folder, workdir=tmp_path / "run") == 2
    last = steady.log("chief").split("error: ")[-1]
    assert name in last and "sha256" in last and "Traceback" not in last


def test_gradients_that_are_not_finite_end_the_training(steady, tmp_path):
    assert steady.chief(workdir=tmp_path, learning_rate=1e38, clip_norm=0, max_nonfinite_steps=0) == 2
    assert "NaN or infinite" in steady.log("chief").split("error: ")[-1]
    assert not (tmp_path / "checkpoints").exists()


def test_checkpoints_where_only_the_chief_sees_the_workdir(data_dir, tmp_path):
    # The same --workdir is another folder in each role.
    settings = dict(data_dir=data_dir, workdir="/proc/self/cwd/run", **SMALL)
    folders = {role: tmp_path / role for role in ("chief", "worker", "ps")}
    for folder in folders.values():
        folder.mkdir()
    with LocalCluster(tmp_path / "logs", settings, workers=1) as cluster:
        for role, index in (("worker", 0), ("ps", 0), ("ps", 1)):
            cluster.start(role, index, cwd=folders[role])
        assert cluster.chief(cwd=folders["chief"], epochs=1) == 2
        last = cluster.log("chief").split("error: ")[-1]
        assert "--workdir=/proc/self/cwd/run is not the same folder for the chief and parameter server 0" in last
        assert "--checkpoint_io=chief" in last and "Traceback" not in last
        for epochs in (1, 2):
            assert cluster.chief(cwd=folders["chief"], epochs=epochs, checkpoint_io="chief") == 0
            last = checkpoint(folders["chief"] / "run")
            assert progress_of(last)["step"] == updates(last) == epochs * EPOCH
        assert f"going on from /proc/self/cwd/run/checkpoints/step-{EPOCH}" in cluster.log("chief")
