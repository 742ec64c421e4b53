"""A log that does not fit into memory: the same data folder, byte for byte, by way of the scratch folder."""
import gzip
import os
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import polars as pl
import pytest

from clrec_tf.config import Config
from clrec_tf.config import Paths
from clrec_tf.config import PrepareConfig
from clrec_tf.errors import DataError
from clrec_tf.errors import DiskFullError
from clrec_tf import prepare
from tests import forked
from tests.test_examples import small_disk  # a fixture  # noqa: F401

REPOSITORY = pathlib.Path(__file__).parents[1]
CLICKS, USERS, ITEMS, START = 3000, 150, 60, 1_600_000_000
COLUMNS = dict(user_column="user", item_column="item", timestamp_column="time", shard_records=16, min_train_length=2)


def log_of(seed=0, clicks=CLICKS, users=USERS) -> pl.DataFrame:
    """Users in any order, times with ties; titles, kinds and colours are missing here and there and change in time."""
    rng = np.random.default_rng(seed)
    item = rng.integers(ITEMS, size=clicks)
    words = lambda name, count: pl.Series([f"{name}{n}" if n else None for n in rng.integers(count, size=clicks)])
    numbers = lambda first, end: rng.integers(first, end, size=clicks)
    return pl.DataFrame({
        "user": [f"u{n}" for n in numbers(0, users)], "item": [f"i{n}" for n in item],
        "time": START + 3600 * numbers(0, 24 * 20), "order": numbers(0, 3),
        "kind": words("k", 5), "colours": [f"c{n}|d{n % 3}" for n in numbers(0, 9)], "title": words("t ", 40),
        "country": words("land ", 7), "hour": numbers(0, 24), "stayed": numbers(-5, 99),
        "event": rng.choice(["pv", "buy", "cart"], size=clicks)})


def prepared(folder, path, name, **settings) -> dict[str, bytes]:
    """Name -> content of the files of a data folder."""
    data_dir = folder / name
    prepare.prepare(Config(paths=Paths(data_dir=str(data_dir)),
                           prepare=PrepareConfig(**{**COLUMNS, "input": str(path), **settings})))
    return {entry.name: entry.read_bytes() for entry in data_dir.iterdir()}


@pytest.mark.parametrize("settings", [
    dict(feature_columns=("kind",), multi_feature_columns=("colours",), order_column="order"),
    dict(split="last_days", context_columns=("country", "hour:number", "colours:list"), dwell_column="stayed",
         max_sequence_length=12, oov_buckets=3, min_item_count=25),
    dict(split="by_user", event_column="event", keep_events=("pv", "buy"), event_weights=("pv:1", "buy:3"),
         from_time="2020-09-15", impressions="log"),
    dict(timestamp_column="", user_features="users")])
def test_the_same_folder_with_little_memory(tmp_path, settings):
    path, frame = tmp_path / "log.csv", log_of()
    frame.write_csv(path)
    frame.unique("user", maintain_order=True).select("user", "country").write_csv(tmp_path / "users.csv")
    settings |= {name: str(tmp_path / f"{settings[name]}.csv") for name in ("impressions", "user_features")
                 if name in settings}
    whole = prepared(tmp_path, path, "whole", **settings)
    assert prepared(tmp_path, path, "parts", clicks_in_memory=200, **settings) == whole
    assert len([name for name in whole if name.startswith("train")]) > 3
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["log.csv", "parts", "users.csv", "whole"]


def write_log(folder, form) -> pathlib.Path:
    """log_of() in some form that cannot be read where it lies."""
    path, frame = folder / f"log.{form}", log_of()
    lines = frame.write_csv().splitlines(keepends=True)
    if form == "gz":
        path.write_bytes(gzip.compress("".join(lines).encode()))
    elif form == "zst":
        frame.write_csv(path, compression="zstd", check_extension=False)
    elif form == "latin":
        path.write_bytes("".join(lines).replace("land", "länd").encode("latin-1"))
    elif form == "quotes":
        path.write_text("".join([lines[0], *(line.replace("land", 'la"nd') for line in lines[1:])]))
    elif form == "marks":
        path.write_text("".join(lines).replace(",", "::"))
    elif form == "days":
        for day, part in enumerate(frame.iter_slices(700)):
            (path / f"day=2020-09-{10 + day}").mkdir(parents=True)
            part.write_parquet(path / f"day=2020-09-{10 + day}" / "part.parquet")
    return path


@pytest.mark.parametrize("form", ["gz", "zst", "latin", "quotes", "marks", "days"])
def test_every_form_of_file(tmp_path, form):
    path = write_log(tmp_path, form)
    settings = dict(context_columns=("country", *(("day",) if form == "days" else ())),
                    **(dict(delimiter="::") if form == "marks" else {}))
    whole = prepared(tmp_path, path, "whole", **settings)
    assert prepared(tmp_path, path, "parts", clicks_in_memory=500, **settings) == whole
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [path.name, "parts", "whole"]


def test_errors_leave_no_scratch(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text(log_of().write_csv() + "u1,i1,never,,,,,,,,\nu2,,,,,,,,,,\n")
    with pytest.raises(DataError, match=f"2 bad of {CLICKS + 2} rows(.|\n)*line {CLICKS + 2}: u1,i1,never .*unreadable"):
        prepared(tmp_path, path, "data", clicks_in_memory=200)
    path.write_bytes(gzip.compress(log_of().write_csv().encode())[:-99])
    with pytest.raises(DataError, match="damaged"):
        prepared(tmp_path, path, "data", clicks_in_memory=200)
    assert [entry.name for entry in tmp_path.iterdir()] == ["log.csv"]


def test_a_full_scratch_disk_is_said(tmp_path, small_disk):  # noqa: F811
    path = tmp_path / "log.csv"
    log_of(clicks=20_000).write_csv(path)
    for settings in (dict(), dict(input=str(path) + ".gz")):
        pathlib.Path(str(path) + ".gz").write_bytes(gzip.compress(path.read_bytes()))
        with pytest.raises(DiskFullError, match="--scratch_dir: .*disk.* cannot be written .*free space, or choose"):
            prepared(tmp_path, path, "data", clicks_in_memory=1000, scratch_dir=str(small_disk), **settings)
    assert not list(small_disk.iterdir()) and not (tmp_path / "data").exists()


@pytest.mark.parametrize("when", ["rows-*/00001*", "users-*/part=*", "users-*/part=3.parquet", "records-*/records-*"])
def test_kill_at_any_point_leaves_nothing_that_looks_complete(tmp_path, when):
    path, data_dir = tmp_path / "log.csv", tmp_path / "data"
    log_of(clicks=60_000, users=3000).write_csv(path)
    flags = [f"--{name}={value}" for name, value in COLUMNS.items()]
    process = forked.Popen([sys.executable, "-m", "clrec_tf.prepare", f"--input={path}", f"--data_dir={data_dir}",
                            "--clicks_in_memory=2000", *flags], cwd=REPOSITORY, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 90
    while not list(tmp_path.glob(f"data.scratch.incomplete-*/{when}")):
        assert process.poll() is None and time.monotonic() < deadline, "prepare was too fast or too slow to be killed"
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not data_dir.exists() and list(tmp_path.glob("data.scratch.incomplete-*"))
    log_of().write_csv(path)
    assert "manifest.json" in prepared(tmp_path, path, "data", clicks_in_memory=10**6)
    assert sorted(os.listdir(tmp_path)) == ["data", "log.csv"]
