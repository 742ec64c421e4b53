"""The command as a whole: a log against its data folder, the real data sets, and the ways in which it must refuse."""
import collections
import json
import os
import pathlib
import sys

from hypothesis import given
from hypothesis import HealthCheck
from hypothesis import settings
from hypothesis import strategies as st
import pytest

from clrec_tf.config import BenchmarkConfig
from clrec_tf.config import Config
from clrec_tf.config import Paths
from clrec_tf.config import PrepareConfig
from clrec_tf.data import schema as schema_lib
from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.lab.benchmarks import suites
from clrec_tf.preparation.report_text import report_text
from clrec_tf import prepare

from tests import forked
from tests import prepared_data

REPOSITORY = pathlib.Path(__file__).parents[1]
DAY = 86_400
IDS = st.text("abz019_é", min_size=1, max_size=3)  # a space inside of all items would mean lists


@st.composite
def logs(draw):
    """Rows (user, item, second, kind) in any order, the kind decided by the item."""
    items = draw(st.lists(IDS, min_size=1, max_size=5, unique=True))
    users = draw(st.lists(IDS, min_size=1, max_size=4, unique=True))
    kinds = {item: draw(st.sampled_from(["", "x", "y"])) for item in items}
    seconds = st.integers(0, 4 * DAY) | st.sampled_from([0, DAY, 2 * DAY])  # with ties
    rows = draw(st.lists(st.tuples(st.sampled_from(users), st.sampled_from(items), seconds), min_size=1, max_size=25))
    return [(*row, kinds[row[1]]) for row in rows]


def split_by_loop(rows, leave_one_out, min_length, min_count):
    """The data folder in original ids, by plain loops: {split: {user: (target_count, events)}}, counts of items."""
    order = {user: number for number, user in enumerate(dict.fromkeys(row[0] for row in rows))}
    by_time = sorted(rows, key=lambda row: row[2])
    histories = {user: [row[1:] for row in by_time if row[0] == user] for user in order}
    last_day = max(row[2] // DAY for row in rows)
    parts = {}
    for user, events in histories.items():
        if leave_one_out:
            cuts = (len(events) - 2, len(events) - 1) if len(events) >= 3 else (len(events), len(events))
        else:
            cuts = tuple(sum(event[1] // DAY < day for event in events) for day in (last_day - 1, last_day))
        parts[user] = cuts
    train = {user: events[:parts[user][0]] for user, events in histories.items()}
    train = {user: events for user, events in train.items() if events and len(events) >= min_length}
    counts = collections.Counter(event[0] for events in train.values() for event in events)
    counts = {item: count for item, count in counts.items() if count >= min_count}
    known = lambda events: [event for event in events if event[0] in counts]
    sequences = {"train": {order[user]: (1, known(events)) for user, events in train.items() if known(events)}}
    for name, begin, end in (("valid", 0, 1), ("test", 1, 2)):
        sequences[name] = {}
        for user, events in histories.items():
            cuts = (*parts[user], len(events))
            history, targets = known(events[:cuts[begin]]), events[cuts[begin]:cuts[end]]
            if history and targets:
                masked = [event if event[0] in counts else (None, event[1], "") for event in targets]
                sequences[name][order[user]] = (len(targets), history + masked)
    return sequences, counts


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=logs(), leave_one_out=st.booleans(), min_length=st.integers(1, 3), min_count=st.integers(1, 2))
def test_log_to_records_and_back(tmp_path_factory, capsys, rows, leave_one_out, min_length, min_count):
    expected, counts = split_by_loop(rows, leave_one_out, min_length, min_count)
    text = "user_id,item_id,timestamp,kind\n" + "".join(",".join(map(str, row)) + "\n" for row in rows)
    prepared = lambda: prepared_data.prepare_text(
        tmp_path_factory.mktemp("log"), text, split="leave_one_out" if leave_one_out else "last_days", shard_records=2,
        feature_columns=("kind",), min_train_length=min_length, min_item_count=min_count)
    if not counts:
        with pytest.raises(DataError, match="lower --min_train_length|lower --valid_days"):
            prepared()
        return
    data_dir = prepared()
    catalogue = prepared_data.read_split(data_dir, "catalogue")
    original = {record["item_id"][0]: record["original_id"][0].decode() for record in catalogue}
    assert {original[record["item_id"][0]]: record["count"][0] for record in catalogue} == counts
    kind_of = {row[1]: row[3] for row in rows}
    kinds = {record["f:kind"][0]: kind_of[original[record["item_id"][0]]] for record in catalogue}
    for split, sequences in expected.items():
        read = {}
        for record in prepared_data.read_split(data_dir, split):
            events = zip(record["item_id"], record["timestamp"], record["f:kind"])
            read[record["user_id"][0]] = (record["target_count"][0], [
                (original.get(item), second, kinds.get(kind, "")) for item, second, kind in events])
        assert read == sequences
    schema = schema_lib.load_schema(data_dir)
    assert schema.total_clicks == sum(counts.values())
    assert schema.total_clicks == sum(s.events for s in schema_lib.load_manifest(data_dir).shards["train"])
    assert schema.id_type == ("int" if all(row[1] == "0" or row[1].isdecimal() and row[1][0] != "0" for row in rows)
                              else "string")


def call(tmp_path, text, seed=0, **given_settings):
    (tmp_path / "log.csv").write_text(text)
    return prepare.prepare(Config(Paths(data_dir=str(tmp_path / "data"), seed=seed), prepare=PrepareConfig(
        **dict(dict(input=str(tmp_path / "log.csv"), min_train_length=1), **given_settings))))


LOG = "user_id,item_id,timestamp,event\n" + "".join(
    f"{user},{item},{day * DAY},{'buy' if item % 2 else 'pv'}\n"
    for user in range(3) for day, item in enumerate((4, 5, 6, 7)))


def test_filters_are_applied_and_reported(tmp_path, capsys):
    call(tmp_path, LOG + "9,9,0,cart\n", event_column="event", keep_events=("pv", "buy"), from_time="1970-01-02")
    report = json.loads((tmp_path / "data" / "report.json").read_text())
    # One cart; then each of three users loses day 0 and keeps 5, 6, 7.
    assert (report["dropped_by_keep_events"], report["dropped_by_time"], report["clicks"]) == (1, 3, 9)
    assert report["train"] == {"sequences": 3, "clicks": 3} and report["vocabulary"] == 1
    assert report["test"]["unknown_share_of_targets"] == 1.0 and report["test"]["unknown_share_of_histories"] == 0.5
    assert sorted(report_text(report).split("\n")) == sorted(capsys.readouterr().out.rstrip("\n").split("\n"))


def test_dry_run_reports_and_writes_nothing(tmp_path, capsys):
    call(tmp_path, LOG, dry_run=True)
    assert "clicks: 12" in capsys.readouterr().out and [path.name for path in tmp_path.iterdir()] == ["log.csv"]


def test_complete_folder_is_left_alone_or_refused(tmp_path):
    schema = call(tmp_path, LOG)
    stamp = os.stat(tmp_path / "data" / "manifest.json").st_mtime_ns
    assert call(tmp_path, LOG) == schema
    assert os.stat(tmp_path / "data" / "manifest.json").st_mtime_ns == stamp
    with pytest.raises(UserError, match="prepared with split=leave_one_out, this call has last_days: choose another"):
        call(tmp_path, LOG, split="last_days")
    with pytest.raises(UserError, match="prepared with sha256="):
        call(tmp_path, LOG.replace("4", "8"))
    (tmp_path / "data" / "manifest.json").unlink()
    with pytest.raises(UserError, match="data set that is not complete: choose another --data_dir or delete it"):
        call(tmp_path, LOG)


def test_a_folder_of_older_settings_stays_complete(tmp_path):
    """Its schema names seconds, and none of the settings that came later."""
    written = call(tmp_path, LOG).settings
    assert written["timestamp_unit"] == "s"
    assert not {"columns", "encoding", "quote", "null_values", "id_type", "max_time", "order_column"} & set(written)
    with pytest.raises(UserError, match="prepared with id_type=None, this call has string"):
        call(tmp_path, LOG, id_type="string")


def test_nobody_is_advised_to_delete_what_prepare_did_not_write(tmp_path):
    for make, message in ((lambda path: path.write_text("letters"), "data is a file, not a folder: choose another"),
                          (lambda path: [path.mkdir(), (path / "thesis.doc").touch()],
                           "holds files that prepare did not write: choose another")):
        make(tmp_path / "data")
        with pytest.raises(UserError, match=f"--data_dir=.*{message}") as caught:
            call(tmp_path, LOG)
        assert "delete" not in str(caught.value)
        if (tmp_path / "data").is_file():
            (tmp_path / "data").unlink()


def test_features_that_could_be_meant_are_named(tmp_path):
    text = "user_id,item_id,timestamp,noun,colour\n" + "".join(f"1,{item},{item},a,b\n" for item in range(1, 6))
    (tmp_path / "items.tsv").write_text("item_id\ttitle\tbrand\n1\tOne\tx\n")
    with pytest.raises(UserError, match="feature 'nounn' .*log.csv: choose from colour, noun$"):
        call(tmp_path, text, feature_columns=("nounn",))
    with pytest.raises(UserError, match="log.csv or .*items.tsv: choose from brand, colour, noun$"):
        call(tmp_path, text, multi_feature_columns=("nounn",), item_features=str(tmp_path / "items.tsv"))
    with pytest.raises(UserError, match="choose from none, since there are no other columns$"):
        call(tmp_path, text.replace(",noun,colour", "").replace(",a,b", ""), feature_columns=("nounn",))


@pytest.mark.parametrize("given_settings, message", [
    (dict(keep_events=("pv",)), "give --event_column"),
    (dict(event_column="event", keep_events=("sell",)), "sell is not in the log, which has buy, pv"),
    (dict(from_time="2020-01-01"), "no click remains of 12 rows"),
    (dict(timestamp_column="", from_time="5"), "--from and --to need time stamps"),
    (dict(timestamp_column="", split="last_days"), "--split=last_days needs time stamps"),
    (dict(split="last_days", test_days=2, valid_days=2), "lower --valid_days or --test_days"),
    (dict(min_train_length=3), "lower --min_train_length"),
    (dict(feature_columns=("colour",)), "feature 'colour' of --feature_columns"),
    (dict(title_column="name"), "--title_column=name is no column"),
    (dict(item_features="absent.tsv"), "--item_features=absent.tsv is no file: correct the path"),
    (dict(dense_features="absent.npz"), "--dense_features=absent.npz is no file"),
    (dict(impressions="absent.csv"), "--impressions=absent.csv is no file"),
    (dict(vocabulary="all", min_item_count=2), "--vocabulary=all with --min_item_count=2: .*leave one of them out"),
    (dict(max_bad_rows=-1), "--max_bad_rows=-1: must be ≥ 0")])
def test_refusals_leave_nothing(tmp_path, given_settings, message):
    with pytest.raises(UserError, match=message):
        call(tmp_path, LOG, **given_settings)
    assert not (tmp_path / "data").exists()


def test_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="--data_dir=.*is not a writable folder"):
        prepared_data.prepare_text(tmp_path, LOG, name="file/data")
    with pytest.raises(UserError, match="is a file, not a folder"):
        prepared_data.prepare_text(tmp_path, LOG, name="file")
    with pytest.raises(UserError, match="--data_dir is not set"):
        prepare.prepare(Config(prepare=PrepareConfig(input=str(tmp_path / "log.csv"))))


def test_command_exits_with_a_message_and_no_traceback(tmp_path):
    (tmp_path / "log.csv").write_text("user_id,item_id,timestamp\n1,2,3\n1,2\n")
    done = forked.run([sys.executable, "-m", "clrec_tf.prepare", "--input", str(tmp_path / "log.csv"), "--data_dir",
                       str(tmp_path / "data")], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "line 3: 1,2 (missing or unreadable time stamp)" in done.stderr
    assert "Traceback" not in done.stderr and not (tmp_path / "data").exists()


def test_benchmark_measures_a_run():
    measured = suites.run_suites(Config(benchmark=BenchmarkConfig(suite=("prepare",), events=2000)))["prepare"]
    assert measured["events"] == 2000 and 1 <= measured["users"] <= 50 and measured["seconds"] > 0
    assert measured["peak_memory_bytes"] > 50_000_000 and measured["data_bytes"] > 0
