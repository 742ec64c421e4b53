"""How long `python -m clrec_tf.prepare` takes, and how much memory, on a generated log."""
import os
import subprocess
import sys
import tempfile
import time

import numpy as np
import polars as pl

from clrec_tf.errors import UserError

CLICKS_PER_USER, USERS_PER_ITEM = 40, 2


def write_log(path: str, events: int, seed: int = 0) -> int:
    """Writes a CSV log of `events` rows, in random order of users, and returns its number of users.

    Item popularity falls as one over rank; time stamps spread over 30 days; users have a Poisson number of clicks.
    """
    random = np.random.default_rng(seed)
    users = max(1, events // CLICKS_PER_USER)
    items = max(1, users // USERS_PER_ITEM)
    user = random.integers(users, size=events)
    # The inverse of a distribution that falls as one over rank.
    item = ((items + 1.0) ** random.random(events)).astype(np.int64)
    second = 1_600_000_000 + random.integers(30 * 86_400, size=events)
    pl.DataFrame({"user_id": user, "item_id": item, "category": item % 1000, "timestamp": second}).write_csv(path)
    return len(np.unique(user))


def run(events: int = 20_000_000) -> dict:
    """Generates a log in a temporary folder and prepares it in a process of its own.

    Args:
      events: rows of the log.

    Returns:
      users, events, log_bytes, data_bytes, and of the command: seconds from start to end, cpu_seconds over all cores
      (what other processes on the machine do not lengthen), peak_memory_bytes (its largest resident size).

    Raises:
      UserError: prepare failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        log, data_dir = os.path.join(folder, "log.csv"), os.path.join(folder, "data")
        users = write_log(log, events)
        started = time.monotonic()
        command = [sys.executable, "-m", "clrec_tf.prepare", "--feature_columns=category"]
        process = subprocess.Popen(command + [f"--input={log}", f"--data_dir={data_dir}"], stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - started
        if status:
            raise UserError(f"prepare failed on {events} events with wait status {status}: see its output above")
        data_bytes = sum(entry.stat().st_size for entry in os.scandir(data_dir))
        # Linux counts the resident size in KiB.
        return dict(users=users, events=events, log_bytes=os.path.getsize(log), data_bytes=data_bytes,
                    seconds=round(seconds, 2), cpu_seconds=round(usage.ru_utime + usage.ru_stime, 2),
                    peak_memory_bytes=usage.ru_maxrss * 1024)
