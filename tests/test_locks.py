"""Locks, and what they say of files and folders that were being written when their process was killed."""
import errno
import fcntl
import os
import pathlib
import subprocess
import sys
import threading
import time

import pytest

from clrec_tf.errors import BusyError
from clrec_tf.errors import DiskFullError
from clrec_tf.system import atomic
from clrec_tf.system import locks

ROOT = pathlib.Path(__file__).parents[1]
WRITES = """
import os, sys, time
from clrec_tf.system import atomic
with atomic.new_folder(sys.argv[1], "data_dir=x") as folder:
    open(os.path.join(folder, "file"), "w").close()
    print("writing", os.getpid(), flush=True)
    time.sleep(float(sys.argv[2]))
"""


def writer(path, seconds, *namespaces):
    """A process that makes a folder and takes its time."""
    process = subprocess.Popen([*namespaces, sys.executable, "-c", WRITES, str(path), str(seconds)], cwd=ROOT, text=True,
                               stdout=subprocess.PIPE)
    assert process.stdout.readline().startswith("writing"), "no line: may this user make process-id namespaces?"
    return process


def test_a_lock_excludes_until_it_is_released(tmp_path):
    path = str(tmp_path / "lock")
    lock = locks.take(path)
    lock.sign()
    assert locks.take(path) is None and f"process {os.getpid()} on host {os.uname().nodename}" in locks.owner(path)
    waited = []
    thread = threading.Thread(target=lambda: waited.append(locks.take(path, wait=True)))
    thread.start()
    time.sleep(0.1)
    assert not waited
    lock.release()
    thread.join(10)
    assert not waited[0].lost() and locks.take(path) is None  # not a lock on the file that was removed
    waited[0].release()
    assert os.listdir(tmp_path) == [] and locks.owner(path) == "an unknown process"


def test_a_lock_whose_file_is_gone_is_lost(tmp_path):
    lock = locks.take(str(tmp_path / "lock"))
    os.remove(tmp_path / "lock")
    other = locks.take(str(tmp_path / "lock"))
    assert lock.lost() and other
    lock.release()
    assert (tmp_path / "lock").exists()  # it was not its own any more


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_without_locks_nothing_is_taken_for_a_leftover(tmp_path, monkeypatch, caplog, number):
    def fails(descriptor, operation):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", fails)
    lock = locks.take(str(tmp_path / "lock"))
    assert lock and not lock.certain
    lock.release()
    with atomic.new_folder(str(tmp_path / "data"), "data_dir=data") as theirs:
        assert os.listdir(tmp_path) == [os.path.basename(theirs)]
        with atomic.new_folder(str(tmp_path / "data"), "data_dir=data"):
            pass
        assert os.path.exists(theirs) and f"{theirs} has no lock, so nobody can tell" in caplog.text
        os.rename(tmp_path / "data", tmp_path / "elsewhere")


@pytest.fixture(name="as_init")
def fixture_as_init():
    """What makes a command process 1 of a namespace of its own, as in a container."""
    command = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if subprocess.run([*command, "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs the right to make process-id namespaces (root)")
    return command


def test_a_killed_container_starts_again(tmp_path, as_init):
    for _ in range(2):  # the same host name and process id 1 each time
        process = writer(tmp_path / "data", 60, *as_init)
        process.kill()  # unshare, and with it process 1 of the namespace
        process.wait()
        locks.take(str(next(tmp_path.glob("*.lock"))), wait=True).leave()  # until process 1 has gone too
    assert not (tmp_path / "data").exists() and len(list(tmp_path.glob("data.incomplete-*"))) == 2
    writer(tmp_path / "data", 0, *as_init).communicate()
    assert sorted(os.listdir(tmp_path)) == ["data"] and os.listdir(tmp_path / "data") == ["file"]


def test_a_container_leaves_alone_what_another_writes(tmp_path, as_init):
    first, second = (writer(tmp_path / "data", seconds, *as_init) for seconds in (2, 0))
    second.communicate()
    os.rename(tmp_path / "data", tmp_path / "of the second")
    first.communicate()
    assert first.returncode == 0 and os.listdir(tmp_path / "data") == ["file"]


def test_a_full_disk_has_an_exit_code_of_its_own(tmp_path, monkeypatch):
    def fails(old, new):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(DiskFullError, match="free space") as caught, atomic.new_file(str(tmp_path / "a"), "output=a"):
        pass
    assert caught.value.exit_code == 74 and os.listdir(tmp_path) == []


def test_a_version_tidies_up_after_all_versions(tmp_path):
    for name in ("7.incomplete-0a", "8.incomplete-0b", "data.incomplete-0c"):
        (tmp_path / name).mkdir()
        (tmp_path / f"{name}.lock").touch()  # of a process that was killed
    (tmp_path / "5.incomplete-0d.lock").touch()  # after version 5 had got its name
    with atomic.new_folder(str(tmp_path / "9"), "export_dir=x"):
        pass
    assert sorted(os.listdir(tmp_path)) == ["9", "data.incomplete-0c", "data.incomplete-0c.lock"]


def test_whoever_comes_second_may_run_again(tmp_path):
    with pytest.raises(BusyError, match="data was made by another process meanwhile, and is left as it is: run again"):
        with atomic.new_folder(str(tmp_path / "data"), "data_dir=data"):
            (tmp_path / "data").mkdir()
            (tmp_path / "data" / "theirs").touch()
    assert os.listdir(tmp_path) == ["data"] and os.listdir(tmp_path / "data") == ["theirs"]
