"""serve --impression_log: rows are what was answered, files appear whole, losses are counted; prepare reads them."""
import contextlib
import datetime
import io
import os
import pathlib
import re
import resource
import signal
import time

import grpc
import numpy as np
import polars as pl
import pytest
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2
from tensorflow_serving.apis import prediction_service_pb2_grpc

from clrec_tf.data import exposures
from clrec_tf.data.impression_columns import SCHEMA
from clrec_tf.data import schema as schema_lib
from clrec_tf.errors import DataError
from clrec_tf.server.impression_files import ImpressionFiles
from clrec_tf.server.impression_files import rows_of
from clrec_tf.server.impression_files import Shown
from clrec_tf.server.impression_log import ImpressionLog
from clrec_tf.system import atomic
from tests import exported
from tests import prepared_data
from tests import small_run
from tests.service_process import serving, wait_for

ALLOWED = [exported.original_id("int", number) for number in (3, 14, 15, 9, 2, 6, 5, 35)]
KNOWN = ALLOWED[0]


def read(folder):
    """All rows, in the order of the files' names."""
    return pl.concat([pl.read_parquet(path) for path in sorted(pathlib.Path(folder).rglob("*.parquet"))])


def shown(items=3, **others):
    return Shown(**dict(dict(request_id="r", model_name="m", model_version=2, user_id=7, time=86_400.0005,
                             popularity=.5, ids=list(range(items)), scores=[.5] * items), **others))


def test_a_row_per_item_by_pencil():
    rows = rows_of([shown(2, intents=[4, 1]), shown(0), shown(1, user_id=None, ids=["ä"], model_version=3)])
    time_ = datetime.datetime(1970, 1, 2, 0, 0, 0, 0, datetime.UTC)
    assert rows.rows() == [("r", "m", 2, "7", time_, 1, "0", .5, .5, 4), ("r", "m", 2, "7", time_, 2, "1", .5, .5, 1),
                           ("r", "m", 3, None, time_, 1, "ä", .5, .5, None)]
    assert dict(rows.schema) == {name: kind() if isinstance(kind, type) else kind for name, kind in SCHEMA.items()}


def test_files_are_cut_by_rows_and_by_age_and_leftovers_are_removed(tmp_path):
    folder = tmp_path / "log"
    (folder / "date=1970-01-01").mkdir(parents=True)
    killed = folder / "date=1970-01-01" / "x.parquet.incomplete-1"
    killed.touch()
    (killed.parent / f"{killed.name}.lock").touch()
    files = ImpressionFiles(str(folder), 5, 10.0)
    assert not os.listdir(killed.parent)
    files.add([shown(3)], 100.0)
    assert not files.due(109.9) and files.due(110.0)
    files.add([shown(2)], 101.0)
    assert files.due(101.0) and files.publish() == 5 and files.rows == 0 and not files.due(1000.0)
    files.add([shown(1)], 200.0)
    files.publish()
    names = sorted(os.path.relpath(path, folder) for path in folder.rglob("*.parquet"))
    assert len(names) == 2 and all(re.fullmatch(
        r"date=1970-01-02/19700102T000000-[0-9a-f]{8}-00000[12]\.parquet", name) for name in names)
    assert read(folder)["item_id"].to_list() == ["0", "1", "2", "0", "1", "0"]


@contextlib.contextmanager
def small_files(size):
    """No file of this process may grow beyond `size` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_what_cannot_be_written_is_counted_warned_of_once_and_leaves_nothing(tmp_path, caplog):
    counts = {"logged": 0, "write": 0, "queue": 0}

    def count(what, items):
        counts[what] += items
    log = ImpressionLog(ImpressionFiles(str(tmp_path), 4, 1000.0), count, most_waiting=10)
    with small_files(100):
        for wanted in (4, 8):
            log.shown([shown(4)])
            wait_for(lambda: counts["write"] == wanted, 10)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 1 and "4 impressions are lost" in warnings[0] and "File too large" in warnings[0]
    log.shown([shown(11)])  # more than may wait
    assert counts == {"logged": 0, "write": 8, "queue": 11}
    log.shown([shown(3)])
    log.close()
    assert counts == {"logged": 3, "write": 8, "queue": 11} and len(read(tmp_path)) == 3


def ask(service, user, items, **others):
    """Shows `items` of the allowed ones to a user over HTTP; returns the ids shown."""
    instance = {"history": [KNOWN], "k": items, "allow": ALLOWED} | ({} if user is None else {"user_id": user}) | others
    answer = service.predict({"signature_name": "retrieve", "instances": [instance]})
    assert answer.status == 200, answer
    return answer.json["request_id"], answer.json["predictions"][0]


def ask_by_grpc(port, user):
    message = predict_pb2.PredictRequest()
    message.model_spec.name, message.model_spec.signature_name = "clrec", "retrieve"
    for name, value in dict(history=np.array([[KNOWN]]), k=np.array([2], np.int32), allow=np.array([ALLOWED]),
                            user_id=np.array([user])).items():
        message.inputs[name].CopyFrom(tf.make_tensor_proto(value))
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        found = stub.Predict(message, timeout=20, metadata=(("x-request-id", "by-grpc"),))
    return tf.make_ndarray(found.outputs["ids"])[0].tolist()


@pytest.fixture(scope="module")
def logged(tmp_path_factory):
    """(folder, rows that were answered) of a service that has ended."""
    folder = tmp_path_factory.mktemp("served") / "log"
    expected = []

    def note(name, user, ids, scores=None, alpha=0.0):
        expected.extend((name, user, str(item), rank, alpha) for rank, item in enumerate(ids, 1))
    with serving(pathlib.Path(exported.bundle_folder("int")).parent, f"--impression_log={folder}", "--grpc_port=0",
                 "--impression_log_rows=7", "--impression_log_s=1000") as service:
        service.port  # pylint: disable=pointless-statement
        for number in range(4):  # of 4 users whose ids are numbers
            name, answer = ask(service, number, 5, popularity=number / 4)
            note(name, str(number), answer["ids"], alpha=number / 4)
        name, answer = ask(service, None, 2)
        note(name, None, answer["ids"])
        note("by-grpc", "u", ask_by_grpc(int(re.search(r"gRPC at \S+:(\d+)", service.log)[1]), "u"))
        service.users({"history": [KNOWN]}, signature="serving_default")  # shows nothing
        assert service.predict({"signature_name": "retrieve", "instances": [{"history": [], "user_id": "x" * 513}]}
                               ).status == 400
        wait_for(lambda: service.metrics()["clrec_impressions_logged_total"] >= 20, 20)
        assert service.metrics()['clrec_impressions_lost_total{reason="queue"}'] == 0
        folder.rename(folder.with_name("elsewhere"))
        folder.write_text("in its place")
        for _ in range(2):
            for _ in range(2):
                ask(service, 9, 5)  # which is answered though it cannot be logged
            time.sleep(0.6)
        lost = wait_for(lambda: service.metrics()['clrec_impressions_lost_total{reason="write"}'], 20)
        folder.unlink()
        folder.with_name("elsewhere").rename(folder)
        name, answer = ask(service, 0, 3)
        note(name, "0", answer["ids"])
        service.signal(signal.SIGTERM)
        assert service.exit_code() == 0
        assert service.log.count("impressions are lost") == 1
    # Those without a file: of the replaced folder, and what waited when it was replaced.
    return folder, expected, lost


def test_the_rows_are_what_was_answered(logged):
    folder, expected, lost = logged
    rows = read(folder)
    found = [row for row in rows.select("request_id", "user_id", "item_id", "rank", "popularity").rows()
             if row[1] != "9"]
    assert found[:20] == expected[:20] and found[-3:] == expected[-3:] and set(found) <= set(expected)
    assert lost >= 14 and len(expected) + 20 == len(rows) + lost
    assert set(rows["model_version"]) == {1} and set(rows["model_name"]) == {"clrec"}
    seconds = (datetime.datetime.now(datetime.UTC) - rows["timestamp"].min()).total_seconds()
    assert 0 <= seconds < 600 and rows["timestamp"].is_sorted()
    assert not [path for path in folder.rglob("*") if atomic.is_incomplete(path.name)]


def clicks_around(log, ids, second):
    """A click log in which users 0 to 3 click before and after they were shown anything; columns of other names."""
    lines = ["who,what,when"]
    for user in range(4):
        for place in range(12):
            item = ids[(3 * user + 5 * place) % len(ids)]
            lines.append(f"{user},{item},{1000 * (second + (place - 6) * 3600 + user)}")
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def prepared(logged, tmp_path_factory):
    folder, _, _ = logged
    ids = [exported.original_id("int", number) for number in range(1, 31)]
    text = clicks_around(folder, ids, int(time.time()))
    return prepared_data.prepare_text(
        tmp_path_factory.mktemp("prepared"), text, impressions=str(folder), user_column="who", item_column="what",
        timestamp_column="when", timestamp_unit="ms", min_train_length=2, max_time="2100-01-01", shard_records=2)


def test_prepare_reads_the_folder_as_it_is(logged, prepared):
    """Though the click log's columns and unit of time are others."""
    rows = read(logged[0])
    manifest = schema_lib.load_manifest(prepared)
    pairs = exposures.read_exposures(prepared, manifest, "--impressions")
    catalogue = {str(item): number for number, item in enumerate(
        [row["original_id"][0].decode() for row in prepared_data.read_split(prepared, "catalogue")], 1)}
    expected = [catalogue[item] for user, item in rows.select("user_id", "item_id").rows()
                if user in ("0", "1", "2", "3") and item in catalogue]
    assert pairs[:, 1].tolist() == expected and len(expected) >= 10
    assert (pairs[:, 0] > 0).all()  # all of them had clicked before
    report = schema_lib.load_json(os.path.join(prepared, "report.json"), "", "")["impressions"]
    assert report["rows"] == len(rows) and report["dropped_without_user"] == rows["user_id"].null_count() > 0
    assert report["bad_rows"] == 0


def test_a_log_that_names_no_user_is_refused(tmp_path):
    files = ImpressionFiles(str(tmp_path / "log"), 5, 10.0)
    files.add([shown(3, user_id=None)], 0.0)
    files.publish()
    with pytest.raises(DataError, match="none of its 3 rows names a user: send `user_id` with requests"):
        prepared_data.prepare_text(tmp_path, "user_id,item_id,timestamp\n1,1,1\n1,2,2\n1,3,3\n", min_train_length=1,
                                   impressions=str(tmp_path / "log"))


def test_rows_whose_user_is_a_word_for_nobody_are_left_out_not_bad(tmp_path):
    """Clients that do not know their user say so by a text, over gRPC for want of another way."""
    files = ImpressionFiles(str(tmp_path / "log"), 5, 10.0)
    files.add([shown(2, user_id=user, time=2.0) for user in ("", " ", "null", "1")], 0.0)
    files.publish()
    assert read(tmp_path / "log")["user_id"].to_list() == [None, None, " ", " ", "null", "null", "1", "1"]
    folder = prepared_data.prepare_text(
        tmp_path, "user_id,item_id,timestamp\n" + "".join(f"1,{place % 2},{place}\n" for place in range(1, 9)),
        min_train_length=1, impressions=str(tmp_path / "log"))
    counts = schema_lib.load_json(os.path.join(folder, "report.json"), "", "")["impressions"]
    assert (counts["rows"], counts["dropped_without_user"], counts["kept"], counts["bad_rows"]) == (8, 6, 2, 0)


@pytest.mark.slow
def test_the_queue_of_the_next_training_holds_what_was_shown(prepared, tmp_path):
    settings = small_run.config(prepared, tmp_path / "run", batch_size=4, epochs=1).but(
        negatives="impressions", queue="raw", queue_size=8)
    assert small_run.run(settings) == 0
    checkpoint = tf.train.load_checkpoint(str(tmp_path / "run" / "checkpoints"))
    with np.load(io.BytesIO(checkpoint.get_tensor("queue/.ATTRIBUTES/py_state")), allow_pickle=False) as archive:
        [queue] = [archive[name] for name in archive.files if archive[name].shape == (8, 1)]
    shown_ids = set(exposures.read_exposures(prepared, schema_lib.load_manifest(prepared), "")[:, 1].tolist())
    assert set(queue[:, 0].tolist()) <= shown_ids and len(set(queue[:, 0].tolist())) > 1
