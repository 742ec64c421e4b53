"""launch/local_cluster.sh: the whole way from log to bundle on a cluster, its exit codes, and nothing left behind."""
import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest

from tests.local_cluster import flags
from tests.local_cluster import ROOT
from tests.local_cluster import wait_for
from tests import small_run

pytestmark = pytest.mark.cluster

TINY = dict(world_users=60, world_items=50, world_clicks_per_user=12, embedding_dim=8, user_encoder="mean",
            queue_size=64, batch_size=32, shard_records=16, shuffle_shards=1, recall_k=5, log_every_steps=5,
            checkpoint_every_steps=20)


def start(folder, **settings):
    """The script in a process group of its own, as a shell starts it."""
    environ = {**os.environ, "PYTHON": sys.executable, "LOGS": str(folder / "logs"), "WORKERS": "1",
               "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [str(ROOT / "launch" / "local_cluster.sh"), *flags(data_dir=folder / "data", workdir=folder / "run",
                                                           **{**TINY, **settings})],
        env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        # What runs in the background ignores Ctrl-C, and bash then cannot trap it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))


def left_behind(folder) -> list[str]:
    """Commands of running processes that name the run."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes().replace(b"\0", b" ").decode()
        except (OSError, UnicodeDecodeError):
            continue
        if f"--workdir={folder}/run" in command:
            found.append(command)
    return found


def roles(folder) -> list[str]:
    """Process ids of the run's roles."""
    return [path.parent.name for path in pathlib.Path("/proc").glob("[0-9]*/cmdline")
            if f"--workdir={folder}/run".encode() in read(path)]


def read(path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def network(process) -> tuple[str, list[str]]:
    """The network namespace of a process, and its routes to anywhere."""
    return os.readlink(f"/proc/{process}/ns/net"), read(pathlib.Path(f"/proc/{process}/net/route")).splitlines()[1:]


def end(process):
    """Kills the script's group and all its roles, whatever happened."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def test_from_log_to_bundle(tmp_path):
    process = start(tmp_path, stages=("generate", "prepare", "train", "evaluate", "export"), validate_every=0)
    try:
        text, _ = process.communicate(timeout=200)
        assert process.returncode == 0, text[-3000:]
    finally:
        end(process)
    assert left_behind(tmp_path) == []
    evaluated = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert evaluated["step"] == max(small_run.losses(tmp_path / "run"))
    assert list((tmp_path / "run" / "export").rglob("saved_model.pb"))
    assert sorted(path.name for path in (tmp_path / "logs").glob("*.log")) == [
        "chief.log", "ps-0.log", "ps-1.log", "worker-0.log"]
    assert "the cluster has 1 workers and 2 parameter servers" in (tmp_path / "logs" / "chief.log").read_text()
    assert "evaluating" in text  # the chief's log is shown


@pytest.mark.parametrize("number, code", [(signal.SIGTERM, 75), (signal.SIGINT, 130)])
def test_a_signal_ends_all_with_the_chiefs_code_after_a_checkpoint(tmp_path, number, code):
    small_run.prepared(tmp_path)
    process = start(tmp_path, target_mode="sliding", epochs=5000, validate_every=0)
    try:
        def trains():
            assert process.poll() is None, process.communicate()[0][-3000:]
            return (tmp_path / "run" / "metrics.jsonl").exists() and small_run.losses(tmp_path / "run")
        wait_for(trains, "the first step")
        assert len(left_behind(tmp_path)) >= 4
        for role in roles(tmp_path):  # nobody else can reach their servers
            namespace, routes = network(role)
            assert namespace != network("self")[0] and not routes
        process.send_signal(number)
        text, _ = process.communicate(timeout=100)
    finally:
        end(process)
    assert process.returncode == code, text[-3000:]
    assert "stopped by a signal" in text and left_behind(tmp_path) == []


def test_without_a_network_of_its_own_it_does_not_start(tmp_path):
    (tmp_path / "unshare").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "unshare").chmod(0o755)
    done = subprocess.run([ROOT / "launch" / "local_cluster.sh"], capture_output=True, text=True, check=False,
                          env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHON": sys.executable,
                               "PYTHONPATH": str(ROOT)})
    assert done.returncode == 2 and "NETWORK=host allows that" in done.stderr
