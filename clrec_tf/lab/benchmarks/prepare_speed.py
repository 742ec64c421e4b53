"""How long `python -m clrec_tf.prepare` takes, and how much memory, on a generated log."""
import contextlib
import os
import tempfile
import time

import numpy as np
import polars as pl

from clrec_tf.config import Config
from clrec_tf.config import Paths
from clrec_tf.config import PrepareConfig
from clrec_tf.lab.benchmarks.workload import zipf_ids
from clrec_tf.lab.children import cpu_seconds
from clrec_tf.lab.children import in_child
from clrec_tf.lab.children import peak_memory_bytes
from clrec_tf.preparation.prepare_folder import prepare_folder

CLICKS_PER_USER, USERS_PER_ITEM = 40, 2
_AT_A_TIME = 20_000_000  # clicks that are generated in memory


def write_log(path: str, events: int, seed: int = 0) -> int:
    """Writes a CSV log of `events` rows, in random order of users, and returns its number of users.

    Item popularity falls as one over rank; time stamps spread over 30 days; users have a Poisson number of clicks.
    """
    random = np.random.default_rng(seed)
    users = max(1, events // CLICKS_PER_USER)
    items = max(1, users // USERS_PER_ITEM)
    met = np.zeros(users, bool)
    with open(path, "wb") as file:
        for begin in range(0, events, _AT_A_TIME):
            size = min(_AT_A_TIME, events - begin)
            user = random.integers(users, size=size)
            item = zipf_ids(random.random(size), items)
            second = 1_600_000_000 + random.integers(30 * 86_400, size=size)
            pl.DataFrame({"user_id": user, "item_id": item, "category": item % 1000, "timestamp": second}).write_csv(
                file, include_header=not begin)
            met[user] = True
    return int(met.sum())


def run(config: Config) -> dict:
    """Generates a log of --events clicks in a temporary folder and prepares it in a process of its own.

    Returns:
      users, events, log_bytes, data_bytes, and of the process: seconds from start to end, cpu_seconds over all cores,
      peak_memory_bytes (its largest resident size).

    Raises:
      UserError: prepare failed.
    """
    events = config.benchmark.events
    with tempfile.TemporaryDirectory() as folder:
        log, data_dir = os.path.join(folder, "log.csv"), os.path.join(folder, "data")
        users = write_log(log, events)
        started = time.monotonic()
        used = in_child(prepare_log, Config(paths=Paths(data_dir=data_dir), prepare=PrepareConfig(
            input=log, feature_columns=("category",))))
        seconds = time.monotonic() - started
        data_bytes = sum(entry.stat().st_size for entry in os.scandir(data_dir))
        return dict(users=users, events=events, log_bytes=os.path.getsize(log), data_bytes=data_bytes,
                    seconds=round(seconds, 2), **used)


def prepare_log(config: Config) -> dict:
    """Prepares without its report; what that took of this process."""
    with open(os.devnull, "w", encoding="utf-8") as nowhere, contextlib.redirect_stdout(nowhere):
        prepare_folder(config.paths, config.prepare)
    return dict(cpu_seconds=round(cpu_seconds(), 2), peak_memory_bytes=peak_memory_bytes())
