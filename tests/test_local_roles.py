"""Roles of a cluster as processes on this machine: what they are told, and that they end with what they have started."""
import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest

from clrec_tf.training.cluster.local_roles import free_addresses
from clrec_tf.training.cluster.local_roles import LocalRoles
from tests.local_cluster import wait_for

# Prints what it was told and the number of a process of its own, and goes on.
SPEAKS = ("import json, os, subprocess, sys\n"
          "child = subprocess.Popen(['sleep', '600'])\n"
          "print(json.dumps([os.environ['TF_CONFIG'], os.environ['GIVEN'], child.pid]), flush=True)\n"
          "sys.exit(child.wait())")


def said(path):
    """What the process has printed, once it has."""
    return json.loads(wait_for(lambda: path.read_text().strip(), "a line"))


def state(pid: int) -> str:
    """The letter of a process's state; of one that is gone, or that nobody waits for any more, Z."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def test_addresses_are_free_and_apart():
    addresses = free_addresses(3, 2)
    assert {role: len(hosts) for role, hosts in addresses.items()} == {"chief": 1, "worker": 3, "ps": 2}
    every = sum(addresses.values(), [])
    assert len(set(every)) == 6 and all(host.startswith("127.0.0.1:") for host in every)


@pytest.mark.parametrize("own_groups", [True, False])
def test_a_process_knows_its_place_and_is_stopped_continued_and_killed(tmp_path, own_groups):
    with LocalRoles(2, 1, own_groups) as roles, open(tmp_path / "log", "wb") as log:
        process = roles.launch("worker", 1, [sys.executable, "-c", SPEAKS], log, {"GIVEN": "more"})
        config, given, child = said(tmp_path / "log")
        assert json.loads(config) == {"cluster": roles.addresses, "task": {"type": "worker", "index": 1}}
        assert given == "more" and roles.pids("worker") == [process.pid] and roles.pids("ps") == []
        assert (os.getpgid(process.pid) == process.pid) == own_groups
        roles.signal("worker", 1, signal.SIGSTOP)
        wait_for(lambda: state(process.pid) == "T", "the stop")
        roles.signal("worker", 1, signal.SIGCONT)
        assert roles.running("worker", 1)
        with pytest.raises(subprocess.TimeoutExpired):
            roles.wait("worker", 1, 0.01)
        if not own_groups:  # else it is the group's, and killed with it
            os.kill(child, signal.SIGKILL)
    assert process.returncode is not None and roles.pids("worker") == []
    wait_for(lambda: state(child) == "Z", "the end of what it has started")


def test_the_end_of_a_process_is_its_exit_code(tmp_path):
    with LocalRoles(1, 1) as roles, open(tmp_path / "log", "wb") as log:
        roles.launch("ps", 0, [sys.executable, "-c", "raise SystemExit(7)"], log)
        assert roles.wait("ps", 0, 60) == 7 and not roles.running("ps", 0)
        roles.kill("ps", 0)
        assert roles.pids("ps") == []
