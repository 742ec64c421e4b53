"""Lists of checkpoints that are lost, damaged or wrong, what kills leave, and "best", never silently the latest."""
import json
import os
import pathlib
import shutil

import pytest
import tensorflow as tf

from clrec_tf.errors import DataError
from clrec_tf.system import atomic
from clrec_tf.training import checkpoint_list
from clrec_tf.training.checkpoint_list import checkpoint_hash
from clrec_tf.training.checkpoints import find_checkpoint
from clrec_tf.training.loop import train
from clrec_tf.training.runtime import LocalRuntime
from tests import small_run

DAMAGE = {"a bad byte": lambda text: text.replace(b"step-20", b"step\xff20"), "empty": lambda text: b"",
          "no list": lambda text: b"\0" * 100, "an older one as the latest": lambda text: text.replace(b"20", b"10", 1),
          "one that is not there": lambda text: text.replace(b"20", b"21"), "cut": lambda text: text[:25],
          "another field": lambda text: text.replace(b"model_check", b"model_chock", 1)}


@pytest.fixture(name="folder")
def fixture_folder(tmp_path):
    """Checkpoints of steps 10 and 20, of a variable whose value is the step."""
    value = tf.Variable(0)
    manager = tf.train.CheckpointManager(tf.train.Checkpoint(value=value), str(tmp_path), 2, checkpoint_name="step")
    for step in (0, 10, 20):
        value.assign(step)
        checkpoint_list.save(manager, step)
    return tmp_path


def names(folder):
    return [os.path.basename(prefix) for prefix in checkpoint_list.kept(str(folder))]


@pytest.mark.parametrize("damage", DAMAGE)
def test_the_files_do_where_the_list_does_not(folder, damage, caplog):
    assert names(folder) == ["step-10", "step-20"] and not caplog.text
    listing = folder / "checkpoint"
    listing.write_bytes(DAMAGE[damage](listing.read_bytes()))
    assert names(folder) == ["step-10", "step-20"] and "lost or damaged: going by the files" in caplog.text
    checkpoint_list.tidy(str(folder))
    assert tf.train.latest_checkpoint(str(folder)) == str(folder / "step-20")
    manager = tf.train.CheckpointManager(tf.train.Checkpoint(value=tf.Variable(30)), str(folder), 2,
                                         checkpoint_name="step")
    checkpoint_list.save(manager, 30)  # the oldest goes, as if nothing had been
    assert names(folder) == ["step-20", "step-30"] and not list(folder.glob("step-10.*"))


def test_what_kills_leave(folder, caplog):
    (folder / "step-30_temp").mkdir()
    (folder / "step-30_temp" / "part-00000-of-00001.data-00000-of-00001").write_text("half")
    shutil.copy(folder / "step-20.data-00000-of-00001", folder / "step-25.data-00000-of-00001")  # without its index
    (folder / "step-10.index").unlink()  # about to be removed
    assert names(folder) == ["step-20"] and not caplog.text
    checkpoint_list.tidy(str(folder))
    assert sorted(os.listdir(folder)) == ["checkpoint", "step-20.data-00000-of-00001", "step-20.index"]
    assert names(folder) == ["step-20"] and checkpoint_list.newest(str(folder)) == str(folder / "step-20")
    assert checkpoint_list.newest(str(folder / "nowhere")) is None


def test_equal_trainings_have_equal_checkpoints(folder, tmp_path):
    value = tf.Variable(20)
    manager = tf.train.CheckpointManager(tf.train.Checkpoint(value=value), str(tmp_path / "once"), 2,
                                         checkpoint_name="step")
    once = checkpoint_list.save(manager, 20)
    assert checkpoint_hash(once) == checkpoint_hash(str(folder / "step-20"))
    value.assign(21)
    assert checkpoint_hash(checkpoint_list.save(manager, 20)) != checkpoint_hash(str(folder / "step-20"))


def test_a_checkpoint_is_on_disk_before_the_list_names_it(folder, monkeypatch):
    flushed, sync = [], atomic.sync

    def noted(path):
        flushed.append(os.path.basename(path))
        assert "step-30" not in (folder / "checkpoint").read_text() and (folder / "step-10.index").exists()
        sync(path)

    monkeypatch.setattr(atomic, "sync", noted)
    manager = tf.train.CheckpointManager(tf.train.Checkpoint(value=tf.Variable(30)), str(folder), 2,
                                         checkpoint_name="step")
    checkpoint_list.save(manager, 30)
    assert flushed == ["step-30.index", "step-30.data-00000-of-00001", folder.name]
    assert names(folder) == ["step-20", "step-30"]


@pytest.fixture(name="trained", scope="module")
def fixture_trained(tmp_path_factory):
    """A run with validation, whose best is not its latest."""
    folder = tmp_path_factory.mktemp("trained")
    data_dir = small_run.prepared(folder)
    settings = small_run.config(data_dir, folder / "run", epochs=1, validate_every=0.5, checkpoint_every_steps=5)
    assert train(settings, LocalRuntime()) == 0
    return folder / "run"


@pytest.fixture(name="run")
def fixture_run(trained, tmp_path):
    shutil.copytree(trained, tmp_path / "run")
    return tmp_path / "run"


def test_best_is_found_by_its_files(run, caplog):
    before = find_checkpoint(str(run), "best")
    assert pathlib.Path(before).parent.name == "best"
    for content in (b"\xff\xfe", b"", None):
        (run / "best" / "checkpoint").write_bytes(content) if content is not None else (
            run / "best" / "checkpoint").unlink()
        assert find_checkpoint(str(run), "best") == before and "going by the files" in caplog.text


@pytest.mark.parametrize("lose", [
    lambda run: shutil.rmtree(run / "best"), lambda run: next((run / "best").glob("*.index")).unlink(),
    lambda run: next((run / "best").glob("*.data-*")).unlink()])
def test_a_lost_best_is_an_error_and_never_the_latest(run, lose):
    lose(run)
    latest = find_checkpoint(str(run), "latest")
    if (run / "best").exists():
        (run / "best" / "checkpoint").unlink()
    with pytest.raises(DataError, match=f"--export_checkpoint=best: {run}/best holds no complete checkpoint, though .*"
                                        f"give --export_checkpoint=latest for {latest}"):
        find_checkpoint(str(run), "best", "export_checkpoint")


def test_best_is_the_latest_where_nothing_was_validated(run):
    shutil.rmtree(run / "best")
    folder = run / "checkpoints"
    shutil.rmtree(folder)
    manager = tf.train.CheckpointManager(tf.train.Checkpoint(value=tf.Variable(1)), str(folder), 1,
                                         checkpoint_name="step")
    checkpoint_list.save(manager, 7)  # without progress, as of a model alone
    assert find_checkpoint(str(run), "best") == str(folder / "step-7")


def test_a_best_of_before_training_without_validation_is_told(run, caplog):
    find_checkpoint(str(run), "best")
    assert "without validation" not in caplog.text
    data_dir = json.loads((run / "config.json").read_text())["paths"]["data_dir"]
    further = small_run.config(data_dir, run, epochs=2, validate_every=0.0, checkpoint_every_steps=5)
    assert train(further, LocalRuntime()) == 0
    best, latest = (find_checkpoint(str(run), which, "export_checkpoint") for which in ("best", "latest"))
    assert [pathlib.Path(prefix).parent.name for prefix in (best, latest)] == ["best", "checkpoints"]
    assert f"--export_checkpoint=best is of step {best.rpartition('-')[2]}, of before this run trained to step " in (
        caplog.text)
