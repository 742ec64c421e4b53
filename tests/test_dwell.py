"""Dwell times: from the log to Examples, and what a data folder without them is."""
import dataclasses
import datetime
import hashlib
import json
import pathlib

import numpy as np
import polars as pl
import pytest

from clrec_tf.config import PrepareConfig
from clrec_tf.data import schema as schema_lib
from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.preparation import dwell
from clrec_tf.preparation import logs
from tests import log_files
from tests import prepared_data
from tests import small_run


def read(path, **settings):
    settings = PrepareConfig(input=str(path), dwell_column="stayed", **settings)
    return log_files.in_memory(logs.read_log(logs.open_log(settings), settings))


def text_log(folder, *values):
    path = folder / "l.csv"
    path.write_text("\n".join(["user_id,item_id,timestamp,stayed", *(f"1,2,3,{value}" for value in values), ""]))
    return path


def test_text_is_seconds_rounded_down(tmp_path):
    values = {"7": 7, "0": 0, "3.99": 3, "1e2": 100, "-1": -1, "-0.5": -1, "-900": -1, "": -1, "nan": -1, " ": -1, "NULL": -1}
    log = read(text_log(tmp_path, *values))
    assert log.clicks["dwell"].dtype == pl.Int64 and log.clicks["dwell"].to_list() == list(values.values())
    assert log.clicks["timestamp"].to_list() == [3] * len(values)


@pytest.mark.parametrize("value", ["3s", "inf", "1e30", "0:05"])
def test_what_is_no_number_is_a_bad_row(tmp_path, value):
    path = text_log(tmp_path, "1", value)
    with pytest.raises(DataError, match=r"(?s)has 1 bad of 2 rows.*line 3.*\(unreadable dwell time\)"):
        read(path)
    log = read(path, max_bad_rows=1)
    assert log.clicks["dwell"].to_list() == [1] and log.bad_rows == 1
    with pytest.raises(DataError, match="missing or unreadable time stamp"):  # the earlier reason is given
        read(text_log(tmp_path, "1", f"{value}\n1,2,,{value}"), max_bad_rows=1)


@pytest.mark.parametrize("values, expected", [
    (pl.Series([5, None, -3, 0]), [5, -1, -1, 0]),
    (pl.Series([5.9, float("nan"), -0.1, None]), [5, -1, -1, -1]),
    (pl.Series(["5.9", None, "", "-2"]), [5, -1, -1, -1]),
    (pl.Series([datetime.timedelta(milliseconds=1500), None, datetime.timedelta(seconds=-1), datetime.timedelta()]),
     [1, -1, -1, 0])])
def test_parquet_keeps_its_types(tmp_path, values, expected):
    path = tmp_path / "l.parquet"
    pl.DataFrame({"user_id": 1, "item_id": [1, 2, 3, 4], "timestamp": 5, "stayed": values}).write_parquet(path)
    assert read(path).clicks["dwell"].to_list() == expected


def test_recbole_has_them_too(tmp_path):
    path = tmp_path / "l.inter"
    path.write_text("user_id:token\titem_id:token\ttimestamp:float\tstayed:float\n1\t2\t3\t4.5\n1\t5\t6\t\n")
    assert read(path, format="recbole").clicks["dwell"].to_list() == [4, -1]


def test_flags_that_fit_no_log(tmp_path):
    path = tmp_path / "l.csv"
    path.write_text("user_id,item_id,timestamp\n1,2,3\n")
    with pytest.raises(UserError, match="no column 'stayed': give --dwell_column as one of user_id, item_id"):
        read(path)
    for form in ("taobao", "sequence"):
        with pytest.raises(UserError, match=f"--dwell_column=stayed: --format={form} has no dwell times; leave it out"):
            read(path, format=form)


def test_summary_warns_of_milliseconds_and_of_nothing(caplog):
    assert dwell.summary(np.array([-1, 4, 8, 9]), np.array([1, 1, 1, 1])) == dict(known_share=0.75, median_seconds=8.0) and not caplog.text
    assert dwell.summary(np.array([20_000, 30_000]), np.array([7, 7])) == dict(known_share=1.0, median_seconds=25_000.0)
    assert "divide them by 1000" in caplog.text
    assert dwell.summary(np.array([-1]), np.array([2])) == dict(known_share=0.0) and "check --dwell_column" in caplog.text


@pytest.mark.parametrize("settings", [
    dict(), dict(min_item_count=12), dict(min_item_count=12, oov_buckets=2), dict(split="last_days"),
    dict(max_sequence_length=5, min_train_length=2)])
def test_each_click_keeps_its_dwell_time_in_every_part(tmp_path, settings):
    rng, rows = np.random.default_rng(0), ["user_id,item_id,timestamp,stayed"]
    seconds = rng.permutation(3 * 86_400)[:800] + 1_599_955_200  # over three days, and no two clicks at one time
    expected = dict(zip(seconds.tolist(), rng.integers(-1, 30, 800).tolist()))
    for second, value in expected.items():  # in an order that is not that of time
        rows.append(f"{rng.integers(40)},{rng.integers(60)},{second},{value}")
    data_dir = prepared_data.prepare_text(tmp_path, "\n".join([*rows, ""]), dwell_column="stayed", **settings)
    assert schema_lib.load_schema(data_dir).has_dwell
    for split in ("train", "valid", "test"):
        records = prepared_data.read_split(data_dir, split)
        assert len(records) > 10
        for record in records:
            assert record["dwell"] == [expected[second] for second in record["timestamp"]]
    report = json.loads((pathlib.Path(data_dir) / "report.json").read_text())
    if "max_sequence_length" not in settings:
        assert report["dwell"]["known_share"] == round(np.mean([value >= 0 for value in expected.values()]), 6) < 1


def test_logs_without_time_stamps_may_have_dwell_times(tmp_path):
    log = "".join(f"{user},{item},{10 * user + item}\n" for user in (1, 2) for item in range(6))
    data_dir = prepared_data.prepare_text(tmp_path, "user_id,item_id,stayed\n" + log, timestamp_column="",
                                          dwell_column="stayed", min_train_length=1)
    schema = schema_lib.load_schema(data_dir)
    assert schema.has_dwell and not schema.has_timestamps
    assert sorted(record["dwell"] for record in prepared_data.read_split(data_dir, "train")) == [
        [10, 11, 12, 13], [20, 21, 22, 23]]


def test_the_log_of_impressions_needs_none(tmp_path):
    shown = tmp_path / "shown.csv"
    shown.write_text("user_id,item_id,timestamp\n0,3,1600000001\n")
    data_dir = small_run.prepared(tmp_path, dwell_column="stayed", impressions=str(shown))
    assert schema_lib.load_schema(data_dir).has_dwell and schema_lib.load_manifest(data_dir).impressions.records == 1


def test_a_data_folder_without_them_is_as_it_was(tmp_path):
    data_dir = pathlib.Path(small_run.prepared(tmp_path))
    assert all("dwell" not in record for record in prepared_data.read_split(str(data_dir), "train"))
    path = data_dir / "schema.json"
    values = json.loads(path.read_text())
    assert values.pop("has_dwell") is False and "dwell_column" not in values["settings"]
    assert values.pop("event_weights") == [] and "event_weights" not in values["settings"]
    assert values.pop("query_features") == [] and "context_columns" not in values["settings"]
    path.write_text(json.dumps(values))  # as it was written before there were dwell times, weights, or these
    schema, manifest = schema_lib.load_schema(str(data_dir)), schema_lib.load_manifest(str(data_dir))
    facts = json.dumps({name: value for name, value in values.items() if name != "versions"}, sort_keys=True)
    assert schema.hash() == manifest.schema_hash == hashlib.sha256(facts.encode()).hexdigest()
    assert dataclasses.replace(schema, has_dwell=True).hash() != schema.hash()
    assert small_run.prepared(tmp_path) == str(data_dir)  # complete for the command too: nothing is done
    with pytest.raises(UserError, match="was prepared with dwell_column=None, this call has stayed"):
        small_run.prepared(tmp_path, dwell_column="stayed")
