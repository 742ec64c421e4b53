"""TF_CONFIG from role and index: one cluster for all, clear refusals, and a command that takes the process over."""
import json
import subprocess
import sys

import pytest

from tests.kubernetes_manifests import PRINT
from tests.kubernetes_manifests import ROOT

SCRIPT = ROOT / "launch" / "tf_config.py"
GOOD = {"role": "worker", "index": "1", "workers": "2", "parameter_servers": "1", "hosts": "run-{role}-{index}.run"}
CLUSTER = {"chief": ["run-chief-0.run:2222"], "worker": ["run-worker-0.run:2222", "run-worker-1.run:2222"],
           "ps": ["run-ps-0.run:2222"]}


def launch(*command, environ=None, **changes):
    arguments = [f"--{name}={value}" for name, value in (GOOD | changes).items() if value is not None]
    return subprocess.run([sys.executable, SCRIPT, *arguments, *command], env=environ or {}, capture_output=True,
                          text=True, check=False)


@pytest.mark.parametrize("role,index", [("chief", 0), ("worker", 0), ("worker", 1), ("ps", 0), ("evaluator", 0)])
def test_each_task_sees_the_same_cluster_and_its_own_place(role, index):
    ran = launch("--", sys.executable, *PRINT, role=role, index=index)
    assert json.loads(ran.stdout) == {"cluster": CLUSTER, "task": {"type": role, "index": index}, "rpc_layer": "grpc"}


def test_the_environment_fills_in_what_is_not_given_and_an_old_tf_config_is_replaced():
    environ = {"JOB_COMPLETION_INDEX": "0", "CLREC_WORKERS": "9", "CLREC_PORT": "7", "TF_CONFIG": "old", "KEPT": "yes"}
    code = "import os; print(os.environ['TF_CONFIG'], os.environ['KEPT'])"
    config, kept = launch("--", sys.executable, "-c", code, environ=environ, index=None).stdout.rsplit(" ", 1)
    config = json.loads(config)
    assert kept.strip() == "yes" and config["task"] == {"type": "worker", "index": 0}
    assert config["cluster"]["worker"] == ["run-worker-0.run:7", "run-worker-1.run:7"]  # arguments win


def test_the_command_takes_the_process_over_with_its_arguments_and_exit_code():
    code = "import os, sys; print(os.getpid(), sys.argv[1:]); sys.exit(75)"
    arguments = [f"--{name}={value}" for name, value in GOOD.items()]
    command = [sys.executable, "-c", code, "--role=x", "--"]
    with subprocess.Popen([sys.executable, SCRIPT, *arguments, "--", *command], stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True) as process:
        out, _ = process.communicate()
    assert out.strip() == f"{process.pid} ['--role=x', '--']" and process.returncode == 75


@pytest.mark.parametrize("changes,words", [
    (dict(role="master"), "--role=master: choose from chief, worker, ps, evaluator"),
    (dict(role=None), "--role is missing"),
    (dict(index=2), "--index=2: there are 2 tasks of --role=worker"),
    (dict(role="chief"), "--index=1: there are 1 tasks of --role=chief"),
    (dict(role="evaluator"), "--index=1"),
    (dict(index="-1"), "--index=-1"),
    (dict(index=None), "--index is missing: give it, or set JOB_COMPLETION_INDEX"),
    (dict(workers=0), "--workers=0: a cluster has 1 to"),
    (dict(workers="two"), "--workers=two (or CLREC_WORKERS): must be a whole number"),
    (dict(workers=999999999), "--workers=999999999"),
    (dict(parameter_servers=0), "--parameter_servers=0"),
    (dict(parameter_servers=None), "set CLREC_PARAMETER_SERVERS"),
    (dict(port=0), "--port=0"),
    (dict(port=65536), "--port=65536"),
    (dict(hosts="run-{role}.run"), "must hold {role} and {index}"),
    (dict(hosts="run-{role}-{index}-{job}.run"), "is no DNS label"),
    (dict(hosts="run_{role}-{index}"), "is no DNS label"),
    (dict(hosts="{role}-{index}." + "x" * 64), "longer than 63 characters"),
])
def test_bad_input_is_refused_with_its_name_and_value(changes, words):
    ran = launch("--", sys.executable, *PRINT, **changes)
    assert ran.returncode == 2 and ran.stderr.startswith("error: ") and words in ran.stderr and not ran.stdout


@pytest.mark.parametrize("command,words", [((), "no command"), (("--",), "no command"),
                                           (("--", "no-such-program"), "no-such-program cannot be run")])
def test_a_command_is_needed(command, words):
    ran = launch(*command)
    assert ran.returncode == 2 and words in ran.stderr
