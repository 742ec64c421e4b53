"""One training at a time in a --workdir, whoever and wherever the other is, and however it ended."""
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys

import pytest

from clrec_tf.errors import BusyError
from clrec_tf.errors import UserError
from clrec_tf.training import loop
from clrec_tf.training.workdir_lock import LOCK_FILE
from clrec_tf.training.workdir_lock import WorkdirLock
from tests import forked
from tests import small_run

ROOT = pathlib.Path(__file__).parents[1]
HOLDS = """
import sys, time
from clrec_tf.training.workdir_lock import WorkdirLock
with WorkdirLock(sys.argv[1]):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    return small_run.prepared(tmp_path_factory.mktemp("training"))


def holder(workdir):
    process = forked.Popen([sys.executable, "-c", HOLDS, str(workdir)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    return process


def test_a_second_training_is_refused_and_a_dead_one_is_replaced(data_dir, tmp_path, caplog):
    settings = small_run.config(data_dir, tmp_path / "run", epochs=1)
    process = holder(tmp_path / "run")
    try:
        with pytest.raises(BusyError, match=f"in use by another training, process {process.pid} on host "
                                            f"{socket.gethostname()} since 20.*: wait for its end") as caught:
            small_run.run(settings)
        assert caught.value.exit_code == 75 and os.listdir(tmp_path / "run") == [LOCK_FILE]
    finally:
        process.kill()
        process.wait()
    assert (tmp_path / "run" / LOCK_FILE).exists()
    assert small_run.run(settings) == 0
    assert f"the training of process {process.pid} on host" in caplog.text
    assert not (tmp_path / "run" / LOCK_FILE).exists() and small_run.losses(tmp_path / "run")


def test_two_trainings_at_once_are_one(data_dir, tmp_path, monkeypatch):
    """The first is in the middle of its steps when the second comes, in the same process."""
    settings, found = small_run.config(data_dir, tmp_path / "run", epochs=1), []
    results = loop.results

    def disturbed(*arguments):
        if not found:
            with pytest.raises(BusyError) as caught:
                small_run.run(small_run.config(data_dir, tmp_path / "run", epochs=1, learning_rate=0.5))
            found.append(caught.value)
        yield from results(*arguments)

    monkeypatch.setattr(loop, "results", disturbed)
    assert small_run.run(settings) == 0 and found
    assert json.loads((tmp_path / "run" / "config.json").read_text())["train"]["learning_rate"] == 0.01


def test_a_folder_that_goes_away_is_an_error(data_dir, tmp_path, monkeypatch):
    results = loop.results

    def removed(run, *arguments):
        if run.progress.step >= 10:
            shutil.rmtree(tmp_path / "run", ignore_errors=True)
        yield from results(run, *arguments)

    monkeypatch.setattr(loop, "results", removed)
    with pytest.raises(UserError, match="was removed or replaced while it was trained in"):
        small_run.run(small_run.config(data_dir, tmp_path / "run", epochs=1))
    assert not (tmp_path / "run").exists()


def test_a_folder_that_another_has_made_anew_is_left_to_it(tmp_path):
    with WorkdirLock(str(tmp_path / "run")) as first:
        first.check()
        shutil.rmtree(tmp_path / "run")
        with WorkdirLock(str(tmp_path / "run")):
            with pytest.raises(UserError, match="was removed or replaced"):
                first.check()
            first.__exit__()
            assert os.listdir(tmp_path / "run") == [LOCK_FILE]
        first.__enter__()


def test_a_folder_made_for_nothing_goes_again(data_dir, tmp_path):
    with pytest.raises(UserError, match="--batch_size=64"):
        small_run.run(small_run.config(data_dir, tmp_path / "run", batch_size=64))
    assert os.listdir(tmp_path) == []


@pytest.mark.usefixtures("without_locks")
def test_a_folder_without_locks_is_named(tmp_path, caplog):
    with WorkdirLock(str(tmp_path / "run")):
        pass
    assert f"the file system of --workdir={tmp_path}/run has no locks: nothing keeps a second training" in caplog.text
