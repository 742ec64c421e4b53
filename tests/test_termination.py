"""SIGTERM ends every command soon, also as process 1 of a container, and leaves nothing half done."""
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
