"""Commands end soon at SIGTERM, also as process 1 of a container, and with the right exit code however they end."""
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from clrec_tf.system import termination

ROOT = pathlib.Path(__file__).parents[1]
COMMAND = """
import sys, time
from clrec_tf import command_line
from clrec_tf.system import atomic
def main(config):
    with atomic.new_folder(config.paths.data_dir, "data_dir"):
        print("at work", flush=True)
        time.sleep(60)
command_line.run(main, uses=("paths",), usage="")
"""
# Python's handlers do not run while C code does: this is one operation of many minutes.
DEAF = """
import hashlib
from clrec_tf.system import termination
termination.install(patience_s=0.2)
print("at work", flush=True)
hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)
"""


def started(*command):
    process = subprocess.Popen(command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.readline() == "at work\n", process.communicate()
    return process


@pytest.mark.parametrize("init", [False, True])
def test_a_command_ends_and_tidies_up(tmp_path, init):
    namespace = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"] if init else []
    if init and subprocess.run([*namespace, "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs the right to make process-id namespaces (root)")
    process = started(*namespace, sys.executable, "-c", COMMAND, f"--data_dir={tmp_path}/data")
    child = process.pid
    if init:
        child = int(pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text())
    start = time.monotonic()
    os.kill(child, signal.SIGTERM)
    _, text = process.communicate(timeout=30)
    assert process.returncode == 75 and text.endswith("stopped by SIGTERM: run the same command again\n"), text
    assert time.monotonic() - start < termination.PATIENCE_S / 2 and os.listdir(tmp_path) == []


def test_a_long_operation_does_not_keep_a_command_alive():
    process = started(sys.executable, "-c", DEAF)
    time.sleep(1)  # until it is inside the operation: before, the exception would end it
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 75


ENDING = """
import atexit, os, sys, threading, types
from clrec_tf import command_line
def main(config):
    {before}
    print("printed" * 2000)
    return 3
command_line.run(main, uses=(), usage="")
"""


@pytest.mark.parametrize("before, last", [
    ("atexit.register(print, 'farewell')", "farewell"),
    ("atexit.register(os.abort); sys.modules['tensorflow_io'] = types.ModuleType('tensorflow_io')", "printed"),
    ("atexit.register(os.abort); threading.Thread(target=threading.Event().wait, daemon=True).start()", "printed")],
    ids=["ordinary", "tensorflow-io", "thread"])
def test_an_exit_code_and_all_output_arrive_also_where_an_ordinary_exit_would_abort(before, last):
    ended = subprocess.run([sys.executable, "-c", ENDING.format(before=before)], cwd=ROOT, text=True,
                           capture_output=True, check=False)
    assert ended.returncode == 3 and ended.stdout.count("printed") == 2000 and ended.stdout.strip().endswith(last)


def test_a_reader_that_has_gone_and_a_full_disk_do_not_change_the_exit_code():
    command = [sys.executable, "-c", ENDING.format(before="print('printed' * 100_000)")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b"" and process.wait() == 141
    with open("/dev/full", "wb") as full:
        ended = subprocess.run([sys.executable, "-c", ENDING.format(before="")], cwd=ROOT, stdout=full, check=False)
    assert ended.returncode == 74
