"""A profile by SIGUSR2 while a training runs: it holds the steps, changes no loss, and its faults are warnings."""
import os
import signal

import pytest
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from clrec_tf.training.monitoring import profile
from clrec_tf.training.reporter import Reporter
from tests import small_run


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    return small_run.prepared(tmp_path_factory.mktemp("training"))


@pytest.fixture(scope="module")
def plain(data_dir, tmp_path_factory):
    """The folder of a training without any signal."""
    folder = tmp_path_factory.mktemp("plain") / "run"
    assert small_run.run(settings(data_dir, folder)) == 0
    return folder


def settings(data_dir, workdir):
    return small_run.config(data_dir, workdir, epochs=1, model=dict(queue="in_batch")).but(profile_steps=8)


def trained(data_dir, workdir, monkeypatch, signals=(), act=lambda: None):
    """Losses by step of a training that sends itself SIGUSR2 after some steps; `act` goes before."""
    add = Reporter.add

    def signalling(reporter, step, *arguments):
        add(reporter, step, *arguments)
        if step in signals:
            act()
            os.kill(os.getpid(), signal.SIGUSR2)
    monkeypatch.setattr(Reporter, "add", signalling)
    assert small_run.run(settings(data_dir, workdir)) == 0
    monkeypatch.undo()
    return small_run.losses(workdir)


def steps_in(folder) -> int:
    """How many steps' gradients of the score matrix the profiler has seen."""
    [file] = folder.rglob("*.xplane.pb")
    planes = xplane_pb2.XSpace.FromString(file.read_bytes()).planes
    return sum("gradient_tape/while/MatMul/MatMul:" in plane.event_metadata[event.metadata_id].name
               for plane in planes for line in plane.lines for event in line.events)


def test_profiles_of_some_steps_and_the_losses_of_none(data_dir, plain, tmp_path, monkeypatch, caplog):
    before = signal.getsignal(signal.SIGUSR2)
    found = trained(data_dir, tmp_path / "run", monkeypatch, signals=(4, 8, 16))
    assert found == small_run.losses(plain) and len(found) > 20  # bit for bit
    folder = tmp_path / "run" / "profile"
    # The one asked for at step 8 came while the first was under way; that of 16 began after it had ended at 12.
    assert sorted(path.name for path in folder.iterdir()) == ["step-16", "step-4"]
    assert "a profile is under way until step 12" in caplog.text
    assert [steps_in(path) for path in folder.iterdir()] == [8, 8]
    assert not (plain / "profile").exists() and signal.getsignal(signal.SIGUSR2) == before


def test_what_goes_wrong_is_a_warning(data_dir, plain, tmp_path, monkeypatch, caplog):
    def spoil():
        (tmp_path / "run" / "profile").write_text("no folder")
    assert trained(data_dir, tmp_path / "run", monkeypatch, signals=(4,), act=spoil) == small_run.losses(plain)
    assert "no profile: " in caplog.text and "the training goes on" in caplog.text
    assert (tmp_path / "run" / "profile").read_text() == "no folder"


def test_a_profile_that_could_not_be_written_leaves_nothing(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(profile.tf.profiler.experimental, "start", lambda folder: None)
    monkeypatch.setattr(profile.tf.profiler.experimental, "stop", lambda: None)
    with profile.ProfileSignal(str(tmp_path), 3) as asked:
        os.kill(os.getpid(), signal.SIGUSR2)
        asked.at(5)
        assert os.listdir(tmp_path / "profile")  # under a name of its own
        asked.at(8)
    assert os.listdir(tmp_path / "profile") == [] and "TensorFlow wrote none" in caplog.text


def test_before_and_after_training_the_signal_ends_nothing(tmp_path, caplog):
    before = signal.getsignal(signal.SIGUSR2)
    try:
        profile.refuse("no step is being trained now")
        with profile.ProfileSignal(str(tmp_path), 3):
            pass
        os.kill(os.getpid(), signal.SIGUSR2)
        assert "SIGUSR2 changes nothing here: no step is being trained now" in caplog.text
    finally:
        signal.signal(signal.SIGUSR2, before)


def test_the_end_of_training_ends_a_profile(tmp_path):
    with profile.ProfileSignal(str(tmp_path), 3) as asked:
        os.kill(os.getpid(), signal.SIGUSR2)
        asked.at(5)
    assert [path.parent.name for path in (tmp_path / "profile").rglob("*.xplane.pb")] != []
