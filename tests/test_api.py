"""The library from a data frame to recommendations, beside what the commands make of the same data."""
import dataclasses
import io
import json
import os
import pathlib
import random
import signal
import threading

import numpy as np
import pandas as pd
import polars as pl
import pytest

import clrec_tf as clrec
from clrec_tf.api import tables
from clrec_tf.data.catalogue import read_catalogue
from clrec_tf.data.schema import load_manifest
from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from tests import small_run

CLICKS = pl.read_csv(io.StringIO(small_run.click_log()))
FEATURES = dict(feature_columns=["category"], shard_records=16)
TRAINED = {**small_run.SMALL_MODEL, **small_run.SMALL_TRAIN, "epochs": 8, "seed": 3}


class ArrowTable:
    """What any Arrow library gives: a stream of record batches."""

    def __init__(self, frame):
        self._frame = frame

    def __arrow_c_stream__(self, requested_schema=None):
        return self._frame.__arrow_c_stream__(requested_schema)


def as_pandas(frame):
    return pd.DataFrame({column.name: column.to_list() for column in frame.iter_columns()})


@pytest.fixture(scope="module")
def data():
    return clrec.prepare(CLICKS, **FEATURES)


@pytest.fixture(scope="module")
def run(data):
    return clrec.train(data, **TRAINED)


@pytest.fixture(scope="module")
def model(run):
    return clrec.load(run.export(popularity=0, recall_k=5))


def contents(data):
    """Everything of the catalogue, and the clicks of each part."""
    catalogue = read_catalogue(data.folder, data.schema, load_manifest(data.folder))
    shards = load_manifest(data.folder).shards
    return ([np.asarray(part).tolist() for part in dataclasses.astuple(catalogue) if part is not None],
            {part: [(shard.records, shard.sha256) for shard in shards[part]] for part in shards})


@pytest.mark.parametrize("form", [lambda frame: frame, pl.DataFrame.lazy, ArrowTable, as_pandas])
def test_a_frame_becomes_the_same_data_as_its_file(tmp_path, form):
    CLICKS.write_csv(tmp_path / "log.csv")
    items = CLICKS.unique("item_id").select("item_id", title=pl.format("Title {}", "item_id"))
    items.write_csv(tmp_path / "items.csv")
    of_files = clrec.prepare(tmp_path / "log.csv", str(tmp_path / "items.csv"), **FEATURES)
    of_frames = clrec.prepare(form(CLICKS), form(items), **FEATURES)
    assert contents(of_frames) == contents(of_files) and of_frames.pandas == (form is as_pandas)
    assert of_frames.report["items"] == small_run.ITEMS == of_frames.schema.num_items


def test_cells_of_pandas_may_be_scalars_and_arrays_of_any_library():
    frame = pd.DataFrame(dict(number=pd.Series([1, np.int64(2)], dtype=object),
                              texts=[pd.array(["a"], "str"), np.array(["b", "c"])]))
    assert tables.as_polars(frame, "clicks").rows() == [(1, ["a"]), (2, ["b", "c"])]


def test_times_of_pandas_are_instants():
    frame = as_pandas(CLICKS)
    frame["timestamp"] = pd.to_datetime(frame["timestamp"], unit="s")
    zoned = frame.assign(timestamp=frame["timestamp"].dt.tz_localize("UTC").dt.tz_convert("Asia/Tokyo"))
    assert contents(clrec.prepare(frame)) == contents(clrec.prepare(zoned)) == contents(clrec.prepare(CLICKS))


@pytest.mark.parametrize("index", [["user_id"], ["user_id", "item_id"], ["user_id", None]])
def test_what_an_index_of_pandas_names_is_a_column(index):
    frame = as_pandas(CLICKS)
    levels = [frame[name] if name else frame.index for name in index]
    indexed = frame.drop(columns=[name for name in index if name]).set_index(levels)
    assert tables.as_polars(indexed, "clicks").equals(CLICKS)
    assert tables.as_polars(frame.set_index("user_id", drop=False), "clicks").equals(CLICKS)


def test_warnings_name_the_line_that_prepares_and_log_lines_the_argument(caplog):
    items = CLICKS.unique("item_id").select("item_id", "category", unused="category")
    with pytest.warns(UserWarning, match="have the same time as another of their user") as caught:
        clrec.prepare(CLICKS.with_columns(timestamp=86_400), items, feature_columns=["category"])
    assert {warning.filename for warning in caught if warning.category is UserWarning} == {__file__}
    assert "items: columns not used: unused (--feature_columns, --multi_feature_columns)" in caplog.messages


def test_the_planted_successor_is_recommended(model):
    found = model.recommend([[item - 1, item] for item in range(2, small_run.ITEMS)], k=3, exclude_seen=True)
    following = np.array(found["item"]).reshape(-1, 3) == np.arange(3, small_run.ITEMS + 1)[:, None]
    assert following.any(axis=1).mean() > 0.6  # by chance 3 of 28


def test_another_training_of_the_process_on_a_thread_is_the_same(data, run, model):
    del model  # an export between two trainings
    random.seed(5)
    np.random.seed(6)
    again = []
    thread = threading.Thread(target=lambda: again.append(clrec.train(data, **TRAINED)))
    thread.start()
    thread.join()
    drawn = random.random(), np.random.random()
    random.seed(5)
    np.random.seed(6)
    assert drawn == (random.random(), np.random.random())
    assert again[0].workdir != run.workdir and again[0].history["loss"].to_list() == run.history["loss"].to_list()


def test_the_history_has_a_row_for_each_reported_step(run):
    history = run.history
    assert history["step"].is_sorted() and history["step"].n_unique() == len(history)
    assert history["loss"][-1] < history["loss"][0]


def test_evaluation_and_export_are_those_of_the_commands(run, model):
    metrics = run.evaluate(ks=[1, 10], candidate_sets="full", popularity=[0, 0.5, 1])
    assert metrics == json.loads(pathlib.Path(run.workdir, "metrics.json").read_text())
    assert metrics["hr@1/full"] > 0.4 > metrics["most_popular/hr@1/full"]
    assert {name for name in metrics if name.startswith("hr@1/full/popularity")} == {
        f"hr@1/full/popularity={value}" for value in ("0", "0.5", "1")}
    assert os.path.dirname(model.bundle.path) == os.path.join(run.workdir, "export")


def test_temporary_folders_go_with_their_objects():
    data = clrec.prepare(CLICKS)
    folder = pathlib.Path(data.folder)
    assert (folder / "manifest.json").exists()
    del data
    assert not folder.exists()


def test_relative_paths_stay_the_same_places_when_the_process_changes_its_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = clrec.prepare(CLICKS, data_dir="data", **FEATURES)
    run = clrec.train(data, **{**TRAINED, "epochs": 1, "workdir": pathlib.Path("run")})
    (tmp_path / "elsewhere").mkdir()
    os.chdir("elsewhere")
    assert data.report["items"] == small_run.ITEMS and not run.history.is_empty()
    assert run.export(popularity=0, recall_k=5) == str(tmp_path / "run" / "export" / "1")
    os.chdir("..")
    assert clrec.train("data", **{**TRAINED, "epochs": 0, "workdir": "run"}).workdir == run.workdir
    os.rename("run", "moved")
    with pytest.raises(DataError, match=f"workdir={tmp_path}/run holds no run"):
        run.history  # pylint: disable=pointless-statement


@pytest.mark.slow
def test_ctrl_c_saves_a_checkpoint_from_which_the_same_call_goes_on(data, tmp_path):
    def interrupt():
        while not (tmp_path / "metrics.jsonl").exists() or not (tmp_path / "metrics.jsonl").stat().st_size:
            stopped.wait(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    stopped, before = threading.Event(), signal.getsignal(signal.SIGINT)
    threading.Thread(target=interrupt, daemon=True).start()
    settings = {**TRAINED, "workdir": tmp_path}
    with pytest.raises(KeyboardInterrupt, match="the same call with the same workdir goes on"):
        clrec.train(data, **{**settings, "epochs": 10_000})
    assert signal.getsignal(signal.SIGINT) is before and list((tmp_path / "checkpoints").glob("step-*.index"))
    step = clrec.train(data, **settings).history["step"]
    assert step.n_unique() == len(step) and step[-1] >= json.loads(
        (tmp_path / "metrics.jsonl").read_text().splitlines()[0])["step"]


def test_results_are_of_pandas_where_clicks_were(run):
    history, expected = dataclasses.replace(run, data=dataclasses.replace(run.data, pandas=True)).history, run.history
    assert isinstance(history, pd.DataFrame) and list(history.columns) == expected.columns
    assert history["loss"].tolist() == expected["loss"].to_list()
    given = pl.DataFrame(dict(user=["a", "b"], intent=pl.Series([None, 2], dtype=pl.Int64), score=[0.5, None]))
    frame = tables.of_kind(given, pandas=True)
    assert frame["intent"].dtype == "Int64" and frame["intent"].isna().tolist() == [True, False]
    assert frame["user"].tolist() == ["a", "b"] and frame["score"].isna().tolist() == [False, True]


@pytest.mark.parametrize("clicks, flags, error, message", [
    (3, {}, UserError, "clicks is of type int: give a polars or pandas DataFrame, an Arrow table, or the path"),
    ("nowhere.csv", {}, UserError, "--input=nowhere.csv does not exist"),
    (CLICKS.rename(dict(user_id="who")), {}, UserError,
     "^clicks has no column 'user_id': give --user_column as one of who, item_id, timestamp, category, stayed"),
    (as_pandas(CLICKS).assign(item_id=["x", *CLICKS["item_id"][1:]]), {}, DataError,
     r"clicks: column 'item_id' holds int \(27\) and str \('x'\): make its values of one type"),
    (pd.concat([as_pandas(CLICKS)] * 2, axis=1), {}, DataError, "clicks has the column 'user_id' twice: rename one"),
    (as_pandas(CLICKS).rename(columns=dict(category=7)), {}, DataError, "clicks has a column called 7, which is no"),
    (CLICKS.with_columns(item_id=pl.Series([object()] * len(CLICKS))), {}, DataError,
     "clicks: column 'item_id' holds objects of type object: give numbers, texts"),
    (CLICKS.with_columns(timestamp=pl.lit(None, pl.Int64)), {}, DataError,
     "every one of the 619 rows of clicks is bad:\n  row 0: 0,26,,c1,200 .missing or unreadable time stamp"),
    (CLICKS.clear(), {}, DataError, "clicks holds no rows"),
    (CLICKS, dict(items=CLICKS.select("category")), UserError, "^items: of its columns category, none could be"),
    (CLICKS, dict(feature_column=["category"]), UserError,
     r"prepare\(\) does not read 'feature_column': did you mean 'feature_columns'\?"),
    (CLICKS, dict(userid="who"), UserError, r"'userid': it is no flag; `clrec prepare --help` lists them"),
    (CLICKS, dict(epochs=3), UserError, r"prepare\(\) does not read 'epochs': give it to train\(\)"),
    (CLICKS, dict(dry_run=True), UserError, "it is a flag of commands alone"),
    (CLICKS, dict(min_train_length="5"), UserError, "min_train_length='5' is of type str: give an integer"),
    (CLICKS, dict(min_train_length=0), UserError, "--min_train_length=0: must be ≥ 1"),
])
def test_what_cannot_be_prepared_is_said(clicks, flags, error, message):
    with pytest.raises(error, match=message):
        clrec.prepare(clicks, **flags)


def test_what_cannot_be_trained_or_evaluated_is_said(data, run, monkeypatch):
    for flags, message in ((dict(batch_size=64, queue_size=10), "--queue_size=10 is smaller than --batch_size=64"),
                           (dict(seed=2**32), "--seed=4294967296: must be ≤ 4294967295"),
                           (dict(learning_rate=True), "learning_rate=True is of type bool: give a number"),
                           (dict(ks=[1]), r"train\(\) does not read 'ks': give it to Run.evaluate\(\)"),
                           (dict(threads=97), "TensorFlow has run in this process with other numbers of threads")):
        with pytest.raises(UserError, match=message):
            clrec.train(data, **flags)
    with pytest.raises(DataError, match="nowhere holds no complete data set"):
        clrec.train("nowhere")
    with pytest.raises(UserError, match="--ks=0: cut-offs must be ≥ 1"):
        run.evaluate(ks=0)
    monkeypatch.setenv("TF_CONFIG", "{}")
    with pytest.raises(UserError, match="TF_CONFIG is set"):
        clrec.train(data)
