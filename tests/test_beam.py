"""--runner=beam writes the folder that one process writes, byte by byte, and refuses what it refuses, in its words."""
import os
import pathlib
import subprocess
import sys

import numpy as np
import polars as pl
import pytest

from clrec_tf.config import Config
from clrec_tf.config import Paths
from clrec_tf.config import PrepareConfig
from clrec_tf.errors import UserError
from clrec_tf import prepare

START = 1_600_000_000


@pytest.fixture
def groups_of_users(monkeypatch):
    """Several groups of users, however small the log is."""
    pytest.importorskip("apache_beam")
    from clrec_tf.preparation.beam_runner import runner  # pylint: disable=import-outside-toplevel
    monkeypatch.setattr(runner, "GROUP_BYTES", 500)


def rows(users=30, items=25, seed=0):
    """Clicks of users of different activity, in an order of their own, some at the same second."""
    rng = np.random.default_rng(seed)
    for number in range(12 * users):
        user = int(rng.integers(users) ** 2 / users)
        second = START + int(rng.integers(40)) * 20_000 + user
        yield dict(user=f"u{user}", item=str(100 + int(rng.integers(items) ** 2 / items)), ms=1000 * second,
                   kind=["pv", "buy", "", "cart"][int(rng.integers(4))], stay=["", "3.7", "90", "-2"][number % 4],
                   place=int(rng.integers(9)), colour=["red", "blue", ""][int(rng.integers(3))],
                   tags=["a|b", "c", "", "b|c|d"][int(rng.integers(4))], title=f"T{number}",
                   country=["de", "fr", "", "it"][user % 4], seen=["x|y", "y", ""][number % 3], age=str(user % 7))


def csv(folder, found, name="part", header=None):
    folder.mkdir(exist_ok=True)
    found = list(found)
    text = "\n".join([",".join(header or found[0]), *(",".join(map(str, row.values())) for row in found)]) + "\n"
    (folder / f"{name}.csv").write_text(text)
    return str(folder)


def parts_of_csv(tmp_path):
    """Three files, of which one is empty, with bad rows in two."""
    found = list(rows())
    found[40]["ms"] = "never"
    found[200]["user"] = ""
    folder = tmp_path / "log"
    csv(folder, found[:150], "a")
    csv(folder, found[150:], "c")
    (folder / "b.csv").write_text("")
    return dict(input=str(folder), user_column="user", item_column="item", timestamp_column="ms", order_column="place",
                title_column="title", feature_columns=("colour",), multi_feature_columns=("tags",), dwell_column="stay",
                event_column="kind", max_bad_rows=2)


def weighed(tmp_path):
    return parts_of_csv(tmp_path) | dict(
        keep_events=("pv", "buy"), event_weights=("buy:3", "pv:1"), split="by_user", valid_share=0.3, min_train_length=2,
        from_time=str(START + 20_000), to_time=str(START + 700_000), max_sequence_length=7, shard_records=4)


def asked(tmp_path):
    users = tmp_path / "users.tsv"
    users.write_text("user\tage\tcity\n" + "".join(f"u{user}\t{20 + user}\tc{user % 3}\n" for user in range(0, 40, 2)))
    return parts_of_csv(tmp_path) | dict(
        context_columns=("country", "seen:list", "age:number"), user_features=str(users),
        user_feature_columns=("city", "age:number"), number_bins=3, split="last_days", test_days=2, shard_records=3,
        feature_columns=(), multi_feature_columns=(), oov_buckets=3, min_item_count=2)


def parts_of_parquet(tmp_path):
    """Partitions by folder, item features, dense vectors, and items that nobody has clicked."""
    frame = pl.DataFrame(list(rows(seed=1))).select("user", pl.col("item").cast(pl.Int64), second=pl.col("ms") // 1000)
    for number, part in enumerate(frame.iter_slices(100)):
        (tmp_path / "log" / f"day={number}").mkdir(parents=True)
        part.write_parquet(tmp_path / "log" / f"day={number}" / "0.parquet")
    (tmp_path / "items.tsv").write_text("item\tbrand\n" + "".join(f"{i}\tb{i % 4}\n" for i in range(100, 130)))
    ids = np.arange(100, 120)
    np.savez(tmp_path / "dense.npz", ids=ids, vectors=np.outer(ids, [1.0, -2.0]).astype(np.float32))
    return dict(input=str(tmp_path / "log"), user_column="user", item_column="item", timestamp_column="second",
                item_features=str(tmp_path / "items.tsv"), feature_columns=("brand",), vocabulary="catalogue",
                dense_features=str(tmp_path / "dense.npz"))


def lines_per_user(tmp_path):
    lines = {}
    for row in rows(seed=2):
        lines.setdefault(row["user"], []).append(row["item"] + ".0")
    (tmp_path / "log.txt").write_text("".join(f"{user} {' '.join(items)}\n" for user, items in lines.items()))
    return dict(input=str(tmp_path / "log.txt"), format="sequence_per_user", shard_records=5)


def recbole(tmp_path):
    (tmp_path / "x.inter").write_text("user_id:token\titem_id:token\ttimestamp:float\n" + "".join(
        f"{row['user']}\t{row['item']}\t{row['ms'] / 1000}\n" for row in rows(seed=3)))
    (tmp_path / "x.item").write_text("item_id:token\tname:token_seq\n" + "".join(
        f"{item}\tn{item % 3} m{item % 2}\n" for item in range(100, 125)))
    return dict(input=str(tmp_path), format="recbole")


def prepared(tmp_path, runner, given, name=""):
    settings = PrepareConfig(runner=runner, **given)
    data_dir = str(tmp_path / f"{runner}{name}")
    prepare.prepare(Config(paths=Paths(data_dir=data_dir, seed=3), prepare=settings))
    return {name: (pathlib.Path(data_dir) / name).read_bytes() for name in sorted(os.listdir(data_dir))}


@pytest.mark.parametrize("log", [
    parts_of_csv, weighed, asked, parts_of_parquet, pytest.param(lines_per_user, marks=pytest.mark.long),
    pytest.param(recbole, marks=pytest.mark.long)])
def test_folders_are_equal(log, tmp_path, groups_of_users):
    given = log(tmp_path)
    local = prepared(tmp_path, "local", given)
    assert len([name for name in local if name.startswith("train-")]) >= 1 + ("shard_records" in given)
    # Bundles that run again are those of workers that were lost.
    beam = prepared(tmp_path, "beam", given | dict(beam_options="--direct_runner_bundle_repeat=1"))
    assert beam == local


def test_an_earlier_vocabulary_is_continued(tmp_path, groups_of_users):
    found = list(rows())
    middle = 1000 * START + 4e8
    early, late = [row for row in found if row["ms"] < middle], [row for row in found if row["ms"] >= middle]
    columns = dict(user_column="user", item_column="item", timestamp_column="ms", feature_columns=("colour",),
                   min_train_length=1)
    prepared(tmp_path, "local", columns | dict(input=csv(tmp_path / "early", early)), "early")
    given = columns | dict(input=csv(tmp_path / "late", late), vocabulary_from=str(tmp_path / "localearly"),
                           retire_after=1)
    assert prepared(tmp_path, "beam", given) == prepared(tmp_path, "local", given)


def told_alike(given, capsys) -> str:
    """What a dry run says, the same with either runner."""
    told = []
    for runner in ("local", "beam"):
        prepare.prepare(Config(prepare=PrepareConfig(runner=runner, dry_run=True, **given)))
        told.append(capsys.readouterr().out)
    assert told[0] == told[1]
    return told[0]


def test_a_dry_run_says_the_same_and_writes_nothing(tmp_path, groups_of_users, capsys):
    told = told_alike(parts_of_csv(tmp_path), capsys)
    assert "dry run: nothing is written" in told and os.listdir(tmp_path) == ["log"]


@pytest.mark.parametrize("given", [
    dict(max_bad_rows=1), dict(input="none.csv"), dict(item_column="thing"), dict(keep_events=("sell",)),
    dict(event_weights=("buy:3",)), dict(from_time="2030-01-01"), dict(split="last_days", test_days=99),
    dict(timestamp_unit="s"), dict(feature_columns=("size",)), dict(format="lists"), dict(vocabulary="catalogue")])
def test_refusals_are_those_of_one_process(given, tmp_path, groups_of_users, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = parts_of_csv(tmp_path) | given
    told = {}
    for runner in ("local", "beam"):
        with pytest.raises(UserError) as caught:
            prepared(tmp_path, runner, given)
        told[runner] = (type(caught.value), str(caught.value).replace("log/a.csv", "log"))
        assert not [name for name in os.listdir(tmp_path) if name.startswith(runner)]
    assert told["beam"] == told["local"]


@pytest.mark.parametrize("second, given, message", [
    (dict(user=["u1"], item=["7"], second=[START], hour=["3"]), {}, "b.parquet has c:hour as String, .*a.parquet as Int64: .*local"),
    (dict(user=["u1"], item=[7], second=[START]), {}, "has the columns"),
    (dict(user=["u1"], item=[7], second=["1"], hour=[3]), {}, "has timestamp as String, .*a.parquet as Int64: .*local"),
    (None, dict(beam_options="--direct_num_worker=2"), "no option --direct_num_worker:"),
    (None, dict(beam_options="--direct_num_workers=two"), "invalid int value: 'two'"),
    (None, dict(beam_options="direct"), "'direct' is no option"), (None, dict(beam_options="'"), "No closing quotation"),
    (None, dict(context_columns=("seen:list",)), "hold lists, such as seen")])
def test_what_beam_cannot_do_equally_is_refused(second, given, message, tmp_path, groups_of_users):
    first = dict(user=["u1", "u2"], item=[7, 8], second=[START, START], hour=[3, 4])
    first |= dict(seen=[["x"], ["y"]]) if "context_columns" in given else {}
    (tmp_path / "log").mkdir()
    pl.DataFrame(first).write_parquet(tmp_path / "log" / "a.parquet")
    if second:
        pl.DataFrame(second).write_parquet(tmp_path / "log" / "b.parquet")
    with pytest.raises(UserError, match=message):
        prepared(tmp_path, "beam", dict(context_columns=("hour",) if "hour" in message else (), user_column="user",
                                        input=str(tmp_path / "log"), item_column="item", timestamp_column="second") | given)


def test_without_the_package_its_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    for name in [name for name in sys.modules if "beam_runner" in name]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(UserError, match=r"--runner=beam needs Apache Beam.*clrec_tf\[beam\]"):
        prepared(tmp_path, "beam", parts_of_csv(tmp_path))


@pytest.mark.long
def test_processes_of_workers(tmp_path, groups_of_users):
    given = weighed(tmp_path)
    given["impressions"] = str(tmp_path / "shown.csv")
    (tmp_path / "shown.csv").write_text("user,item,ms\n" + "".join(
        f"{row['user']},{row['item']},{row['ms'] - number % 2}\n" for number, row in enumerate(rows(seed=4))))
    local = prepared(tmp_path, "local", given)
    assert "impressions.npy" in local
    flags = [f"--{dict(from_time='from', to_time='to').get(name, name)}="
             f"{','.join(value) if isinstance(value, tuple) else value}" for name, value in given.items()]
    options = "--runner=DirectRunner --direct_num_workers=2 --direct_running_mode=multi_processing"
    done = subprocess.run([sys.executable, "-m", "clrec_tf.prepare", "--runner=beam", f"--beam_options={options}",
                           "--seed=3", f"--data_dir={tmp_path}/beam", *flags], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    folder = tmp_path / "beam"
    assert {name: (folder / name).read_bytes() for name in sorted(os.listdir(folder))} == local
