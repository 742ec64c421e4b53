"""A cluster of real processes on this machine, role by role: started, killed, stopped and started again by tests.

Flags and logs of the roles; the processes themselves are those of ``training/cluster/local_roles``.
"""
import io
import json
import pathlib
import subprocess
import sys
import time

import numpy as np
import tensorflow as tf

from clrec_tf.training.checkpoints import find_checkpoint
from clrec_tf.training.cluster.local_roles import LocalRoles
from clrec_tf.training.cluster.roles import Task
from clrec_tf.training.cluster.roles import wait_for_servers
from tests import forked
from tests import small_run

ROOT = pathlib.Path(__file__).parents[1]

STARTED = "-- started\n"  # in logs

# A chief that says at the end how its function was traced and where the variables are.
TELLING = """
import json
import os
from clrec_tf import command_line, train
from clrec_tf.training import loop

made, set_up = [], loop.set_up

def telling(*arguments):
    made.append(set_up(*arguments))
    return made[-1]

def main(config):
    loop.set_up = telling
    code = train.main(config)
    run = made[-1]
    variables = {}
    for variable in run.model.trainable_variables:
        variables.setdefault(variable.name.split("/part_")[0], []).append(variable.device)
    print("TOLD", json.dumps({"traces": run.call.function.experimental_get_tracing_count(), "devices": variables}))
    return code

command_line.run(main, uses=("paths", "model", "loss", "train", "cluster"), usage="")
"""
# A chief that stops worker 1, process $STOPPED, between the end of one of its calls and the fetch of the result: until a
# result has not come yet when it is fetched.
STOPPING = """
import os
import signal
from clrec_tf import command_line, train
from clrec_tf.training.cluster.cluster_runtime import ClusterRuntime

fetch, process = ClusterRuntime.fetch, int(os.environ["STOPPED"])

def stopping(runtime, result, holder):
    if not holder.startswith("worker 1 "):
        return fetch(runtime, result, holder)
    os.kill(process, signal.SIGSTOP)
    while open(f"/proc/{process}/stat").read().rpartition(")")[2].split()[0] != "T":
        pass
    value = fetch(runtime, result, holder)
    os.kill(process, signal.SIGCONT)
    return value

ClusterRuntime.fetch = stopping
command_line.run(train.main, uses=("paths", "model", "loss", "train", "cluster"), usage="")
"""
# A chief that kills worker 1, process $LOST, once, between the end of one of its calls and the copy of the result.
LOSING = """
import os
import signal
import threading
import time
from clrec_tf import command_line, train
from clrec_tf.training.cluster.cluster_runtime import ClusterRuntime
from tensorflow.python.distribute.coordinator import values

fetch, get, process, killed = ClusterRuntime.fetch, values.RemoteValueImpl.get, int(os.environ["LOST"]), []

def late(result):  # the coordinator's own threads copy results after the chief has seen them
    if threading.current_thread() is not threading.main_thread():
        time.sleep(.05)
    return get(result)

def losing(runtime, result, holder):
    if not killed and holder.startswith("worker 1 "):
        with result._has_fetched_to_local_lock:
            if not result._has_fetched_to_local:
                killed.append(process)
                os.kill(process, signal.SIGKILL)
                time.sleep(.05)  # until its connections are closed
    value = fetch(runtime, result, holder)
    if value is None:
        print("LOST", holder, flush=True)
    return value

values.RemoteValueImpl.get, ClusterRuntime.fetch = late, losing
command_line.run(train.main, uses=("paths", "model", "loss", "train", "cluster"), usage="")
"""
# A chief that restores the latest checkpoint and writes it again, without training.
SAVING_AGAIN = """
from clrec_tf import command_line
from clrec_tf.training.cluster.cluster_runtime import ClusterRuntime
from clrec_tf.training.cluster import roles
from clrec_tf.training.setup import set_up

def main(config):
    run = set_up(config, ClusterRuntime(roles.task_from_environment(), config))
    run.checkpoints.save()

command_line.run(main, uses=("paths", "model", "loss", "train", "cluster"), usage="")
"""


def flags(**settings) -> list[str]:
    """--name=value of each; tuples with commas."""
    return [f"--{name}={','.join(value) if isinstance(value, tuple) else value}" for name, value in settings.items()]


def wait_for(condition, what: str, seconds: float = 150.0):
    """The first true value of condition(); an AssertionError that says `what` did not come."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.05)
    raise AssertionError(f"{what} did not come within {seconds:g} s")


def values(workdir, which: str = "latest") -> dict:
    """Name -> value of everything in a checkpoint; of archives of worker-local values, and of JSON, the parts."""
    reader, found = tf.train.load_checkpoint(find_checkpoint(str(workdir), which)), {}
    for name in reader.get_variable_to_shape_map():
        value = reader.get_tensor(name)
        if not isinstance(value, bytes):
            found[name] = value
        elif value.startswith(b"PK"):
            with np.load(io.BytesIO(value), allow_pickle=False) as archive:
                found |= {f"{name}/{part}": archive[part] for part in archive.files}
        elif "OBJECT_GRAPH" not in name:
            found[name] = json.loads(value)
    return found


def progress_of(found: dict) -> dict:
    """Where the training stands, in `values`."""
    return next(value for value in found.values() if isinstance(value, dict))


def queue_of(found: dict, part: str, worker: int):
    """A part of a worker's queue in `values`; None where the worker was never seen."""
    return next((value for name, value in found.items()
                 if name.startswith("queue/") and name.endswith(f"{part}/{worker}")), None)


class LocalCluster(LocalRoles):
    """Roles at fixed addresses.

    Args:
      folder: for logs; each role's file is appended to when the role is started again.
      settings: flags of all roles, besides those of ``small_run``.
      workers, servers: how many.
    """

    def __init__(self, folder: pathlib.Path, settings: dict, workers: int = 2, servers: int = 2):
        super().__init__(workers, servers, start=forked.Popen)
        self._folder, self._workers, self._servers = folder, workers, servers
        self._settings = {**small_run.SMALL_MODEL, **small_run.SMALL_TRAIN, "parallel_ops": 4, "threads": 1,
                          "shard_rows": 30, "seed": 0, **settings}

    def start(self, role: str, index: int = 0, cwd=ROOT, environ=None, code: str = "", **settings) -> subprocess.Popen:
        """Starts one role, the command or Python code; settings go over those of the cluster."""
        self._folder.mkdir(parents=True, exist_ok=True)
        environ = {"TF_CPP_MIN_LOG_LEVEL": "1", "PYTHONPATH": str(ROOT), **(environ or {})}
        with open(self._log(role, index), "a", encoding="utf-8") as log:
            log.write(STARTED)
            log.flush()
            command = [sys.executable, *(["-c", code] if code else ["-m", "clrec_tf.train"])]
            given = small_run.read_by_encoder({**self._settings, **settings})
            return self.launch(role, index, command + flags(**given), log, environ, cwd)

    def start_servers(self, **settings):
        """Starts all workers and parameter servers."""
        for role, count in (("worker", self._workers), ("ps", self._servers)):
            for index in range(count):
                self.start(role, index, **settings)
        return self

    def wait_for_servers(self):
        """Until all workers and parameter servers listen."""
        wait_for_servers(Task("chief", 0, self.addresses), 150.0)

    def chief(self, seconds: float = 150.0, **settings) -> int:
        """Runs a chief to its end; returns its exit code."""
        self.start("chief", **settings)
        return self.ended("chief", seconds=seconds)

    def told(self) -> dict:
        """What the last chief that ran `TELLING` told."""
        lines = [line for line in self.log("chief").splitlines() if line.startswith("TOLD ")]
        return json.loads(lines[-1].removeprefix("TOLD "))

    def ended(self, role: str, index: int = 0, seconds: float = 150.0) -> int:
        """The exit code, once the process has ended."""
        try:
            return self.wait(role, index, seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{role} {index} runs on: {self.log(role, index)[-3000:]}") from None

    def wait_for_step(self, workdir, step: int, seconds: float = 150.0):
        """Until metrics.jsonl shows a step, while the chief runs."""
        def reached():
            assert self.running("chief"), self.log("chief")[-3000:]
            return (pathlib.Path(workdir) / "metrics.jsonl").exists() and max(
                small_run.losses(workdir), default=0) >= step
        wait_for(reached, f"step {step}", seconds)

    def log(self, role: str, index: int = 0) -> str:
        """What it has printed since it was started last."""
        return self._log(role, index).read_text(encoding="utf-8").rsplit(STARTED, 1)[-1]

    def _log(self, role, index):
        return self._folder / f"{role}-{index}.log"
