"""The doctor's checks of addresses, storage, inputs and machine, its deadline, and the command as a user calls it."""
import dataclasses
import json
import os
import pathlib
import socket
import sys
import threading
import time

import pytest

from clrec_tf.command_line import all_sections
from clrec_tf.config import Config
from clrec_tf.diagnosis import checkup
from clrec_tf.diagnosis import machine
from clrec_tf.diagnosis import report
from clrec_tf.diagnosis.addresses import cluster_checks
from clrec_tf.diagnosis.deadline import found_by
from clrec_tf.diagnosis.findings import About
from clrec_tf.diagnosis.findings import Check
from clrec_tf.diagnosis.inputs import check_read
from clrec_tf.diagnosis.storage import check_written
from clrec_tf.errors import UserError
from clrec_tf.training.cluster import roles
from tests import forked

ROOT = pathlib.Path(__file__).parents[1]
ABOUT = About("check", "subject")
# Paths that only measurements and proofs read, and names of checkpoints and curves.
NOT_OF_A_DEPLOYMENT = {"eval_checkpoint", "export_checkpoint", "curve_points", "rectools_python", "world_dir",
                       "selected_ratings", "random_ratings", "propensity_matrix", "item_vectors", "tables_dir",
                       "public_dir", "markdown"}


def states(findings) -> list[str]:
    return [finding.state for finding in findings]


def told(findings) -> str:
    return "\n".join(map(report.line, findings))


def run(checks, seconds=20.0):
    return list(found_by(checks, time.monotonic() + seconds, f"--doctor_deadline_s={seconds:g}"))


def command(*flags, **environ):
    return forked.run([sys.executable, "-m", "clrec_tf.doctor", *flags], capture_output=True, text=True, cwd=ROOT,
                      timeout=120, env={**os.environ, **environ})


def listener(backlog=5):
    place = socket.socket()
    place.bind(("127.0.0.1", 0))
    place.listen(backlog)
    return place, f"127.0.0.1:{place.getsockname()[1]}"


def of_cluster(monkeypatch, timeout_s=0.5, **addresses):
    cluster = dict(chief=["127.0.0.1:2222"], worker=["127.0.0.1:2223"], ps=["127.0.0.1:2224"]) | addresses
    monkeypatch.setenv("TF_CONFIG", json.dumps(dict(cluster=cluster, task=dict(type="chief", index=0))))
    return run(cluster_checks(timeout_s))


def test_each_address_of_a_cluster_is_named_with_what_is_wrong(monkeypatch):
    here, answers = listener()
    full, silent = listener(backlog=0)
    waiting = [socket.socket() for _ in range(3)]  # fill the queue: the kernel then answers nobody
    for connection in waiting:
        connection.setblocking(False)
        connection.connect_ex(full.getsockname())
    gone, refuses = listener()
    gone.close()
    begun = time.monotonic()
    found = of_cluster(monkeypatch, worker=[answers, silent, refuses], ps=["no-such-host.invalid:2222"])
    assert time.monotonic() - begun < 15
    by_subject = {finding.subject: (finding.state, finding.text) for finding in found}
    assert by_subject["TF_CONFIG"] == ("ok", "1 chief, 3 worker, 1 ps; this process is chief 0")
    assert by_subject[f"worker 0 at {answers}"] == ("ok", "answers")
    assert by_subject[f"worker 1 at {silent}"] == ("fault", "does not answer within 0.5 s")
    assert by_subject[f"worker 2 at {refuses}"] == ("fault", "cannot be connected to (Connection refused)")
    assert by_subject["ps 0 at no-such-host.invalid:2222"][1].startswith("no-such-host.invalid does not resolve")
    assert all(finding.remedy for finding in found if finding.state == "fault")
    for place in (here, full, *waiting):
        place.close()


@pytest.mark.parametrize("cluster, words", [
    (dict(ps=["host:0"]), "a port is a number from 1 to 65535"), (dict(ps=["host:65536"]), "from 1 to 65535"),
    (dict(ps=["host:" + "9" * 5000]), "from 1 to 65535"), (dict(master=["host:1"]), "has a role 'master'"),
    (dict(worker=["127.0.0.1:2222"]), "an address twice"), (dict(ps=["host"]), "must be host:port"),
    (dict(chief=[]), "needs one chief")])
def test_a_wrong_tf_config_is_one_fault(monkeypatch, cluster, words):
    found = of_cluster(monkeypatch, **cluster)
    assert states(found) == ["fault"] and words in found[0].text and "launch/tf_config.py" in found[0].remedy
    with pytest.raises(UserError, match="TF_CONFIG"):
        roles.task_from_environment()


def test_without_tf_config_no_address_is_looked_for(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    assert not cluster_checks(1.0)


def test_what_is_silent_holds_up_nothing_else():
    never = threading.Event()

    def silent():
        yield ABOUT.ok("begins")
        never.wait()

    def broken():
        raise ZeroDivisionError("ours")
        yield  # pylint: disable=unreachable

    begun = time.monotonic()
    found = run([Check("a", "silent", silent, "-"), Check("b", "broken", broken, "-"),
                 Check("c", "sound", lambda: [ABOUT.ok("is well")], "-")], 1.0)
    assert time.monotonic() - begun < 5
    assert states(found) == ["ok", "fault", "fault", "ok"]
    assert "did not end within --doctor_deadline_s=1" in found[1].text and "ZeroDivisionError: ours" in found[2].text
    never.set()


def test_a_place_is_tried_and_left_as_it_was(tmp_path):
    (tmp_path / "kept").write_text("as it was")
    for path, is_file in (("", False), ("new/folder", False), ("page.html", True)):
        found = list(check_written(ABOUT, str(tmp_path / path), is_file, 1000))
        assert states(found) == ["ok", "ok"] and "at least 1.0 kB will be written" in found[1].text
    assert os.listdir(tmp_path) == ["kept"] and (tmp_path / "kept").read_text() == "as it was"


@pytest.mark.parametrize("path, is_file, need, words", [
    ("/proc/run", False, 0, "cannot make a folder"), ("{}/kept", False, 0, "is no folder"),
    ("{}", True, 0, "it is a folder"), ("{}", False, 10**19, "TB are free in")])
def test_a_place_of_no_use_is_a_fault(tmp_path, path, is_file, need, words):
    (tmp_path / "kept").write_text("")
    found = list(check_written(ABOUT, path.format(tmp_path), is_file, need))
    assert states(found)[-1] == "fault" and words in told(found).replace("GB are", "TB are") and found[-1].remedy


def test_inputs_are_opened(tmp_path):
    (tmp_path / "part=1").mkdir()
    (tmp_path / "part=1" / "a.csv").write_text("12345")
    (tmp_path / "empty").mkdir()
    found = list(check_read(ABOUT, [str(tmp_path), f"{tmp_path}/*/*.csv", f"{tmp_path}/no.csv", f"{tmp_path}/*.tsv",
                                    f"{tmp_path}/empty"]))
    assert states(found) == ["ok", "ok", "fault", "fault", "fault"]
    assert "1 file(s) of 5 bytes" in found[0].text and "No such file" in found[2].text
    assert "no file matches" in found[3].text and "holds no file" in found[4].text


def test_memory_is_compared_with_the_machine_and_the_container(monkeypatch, tmp_path):
    assert states(machine.check_memory(ABOUT, 1000, "training")) == ["ok"]
    found = list(machine.check_memory(ABOUT, 10**17, "training"))
    assert states(found) == ["fault"] and "needs at least 100000.0 TB, " in found[0].text
    (tmp_path / "memory.max").write_text("4000\n")
    monkeypatch.setattr(machine, "_LIMITS", (str(tmp_path / "none"), str(tmp_path / "memory.max")))
    found = list(machine.check_memory(ABOUT, 5000, "training"))
    assert states(found) == ["fault"] and "the container may take 4.0 kB" in found[0].text
    (tmp_path / "memory.max").write_text("max\n")
    assert states(machine.check_memory(ABOUT, 5000, "training")) == ["ok"]


def test_gpus_that_only_the_system_sees_are_a_fault(monkeypatch, tmp_path):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(machine.tf.config, "list_physical_devices", lambda kind: [])
    monkeypatch.setattr(machine, "_DEVICES", str(tmp_path / "nvidia[0-9]*"))
    assert states(machine.check_gpus(ABOUT, "bfloat16")) == ["ok", "note"]
    (tmp_path / "nvidia0").write_text("")
    assert states(machine.check_gpus(ABOUT, "float32")) == ["fault"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert states(machine.check_gpus(ABOUT, "float32")) == ["note"]


def test_every_path_is_read_written_or_of_no_deployment():
    groups = [checkup.READ, checkup.WRITTEN_FOLDERS, checkup.WRITTEN_FILES, NOT_OF_A_DEPLOYMENT]
    named = [name for group in groups for name in group]
    paths = {field.name for section in all_sections().values() for field in dataclasses.fields(section)
             if field.metadata["path"]}
    assert sorted(named) == sorted(paths)


def test_what_is_only_read_is_not_written_to(tmp_path):
    config = Config.of(export_dir="/proc", workdir=str(tmp_path))
    assert {check.subject for check in checkup.checks(config, frozenset()) if check.name == "storage"} == {
        "--export_dir=/proc", f"--workdir={tmp_path}"}
    config = config.but(doctor_read_only=("export_dir",))
    assert {check.subject for check in checkup.checks(config, frozenset()) if check.name == "storage"} == {
        f"--workdir={tmp_path}"}
    with pytest.raises(UserError, match="choose from data_dir"):
        Config.of(doctor_read_only=("html",))


def test_the_command_ends_in_time_and_writes_what_it_found(tmp_path):
    """A named pipe that nobody writes to: opening it waits for ever."""
    os.mkfifo(tmp_path / "users.jsonl")
    begun, file = time.monotonic(), tmp_path / "found.json"
    result = command(f"--users={tmp_path}/users.jsonl", f"--output={tmp_path}/out.jsonl", f"--json={file}",
                     "--doctor_deadline_s=8")
    assert time.monotonic() - begun < 60 and result.returncode == 1, result.stderr
    found = json.loads(file.read_text())
    late = [finding for finding in found["findings"] if finding["state"] == "fault"]
    assert found["counts"]["fault"] == len(late) == 1 and late[0]["check"] == "input"
    assert "did not end within --doctor_deadline_s=8" in late[0]["text"] and late[0]["remedy"]
    assert [finding["subject"] for finding in found["findings"]][0].startswith("tensorflow ")
    assert all(f"{number} {state}, " in result.stdout for state, number in found["counts"].items())
    assert f"FAIL  input    --users={tmp_path}/users.jsonl" in result.stdout
    assert sorted(os.listdir(tmp_path)) == ["found.json", "users.jsonl"]


def test_exit_codes_of_the_command(tmp_path):
    (tmp_path / "log.csv").write_text("user_id,item_id,timestamp\n")
    sound = [f"--input={tmp_path}/log.csv", f"--data_dir={tmp_path}/data", f"--workdir={tmp_path}/run"]
    result = command(*sound)
    assert result.returncode == 0 and result.stdout.endswith(", 0 fault, packages included\n"), result.stdout + result.stderr
    result = command(*sound, TF_CONFIG="{")
    assert result.returncode == 1 and "FAIL  cluster  TF_CONFIG: TF_CONFIG={ cannot be read" in result.stdout
    result = command(*sound, f"--json={tmp_path}/none/found.json")
    assert result.returncode == 2 and "--json" in result.stderr and "its folder does not exist" in result.stderr
    assert os.listdir(tmp_path) == ["log.csv"]
