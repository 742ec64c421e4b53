"""The chief's watch ends a process that stands still, also where Python's lock is held, until it is stopped."""
import sys

import pytest

from tests import forked

# The pattern takes longer than anybody waits, and holds the lock; what it may take is set below.
SCRIPT = """
import re, signal, sys, threading, time
import clrec_tf
from clrec_tf.training.cluster import watch
watch.LATER_S = 1.0
one = watch.Watch(0, 1.0)
{before}
with one.busy("thinking"):
    {work}
print("done")
"""
HOLDS_LOCK = 'end = time.monotonic() + 5\n    while time.monotonic() < end: re.match("(a+)+$", "a" * 27 + "b")'


@pytest.mark.parametrize("before, work, code, said", [
    ("", "time.sleep(5)", 69, "error: thinking takes longer than --progress_deadline_s=1"),
    ("", HOLDS_LOCK, 1, "Timeout"),
    ("one.stop()", HOLDS_LOCK, 0, "done"),
    ("one.stop()", "time.sleep(4)", 0, "done")], ids=["sleeps", "holds the lock", "stopped, lock", "stopped, sleeps"])
def test_what_takes_too_long_ends_the_process(before, work, code, said):
    found = forked.run([sys.executable, "-c", SCRIPT.format(before=before, work=work)], capture_output=True,
                       text=True, timeout=120, check=False)
    assert found.returncode == code and said in found.stdout + found.stderr, found.stderr[-1000:]
