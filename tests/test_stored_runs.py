"""Data sets and runs in a store: prepared, trained, killed, resumed, evaluated; against a server of S3 that fails."""
import json
import os
import re
import signal
import sys
import time

import pytest

from clrec_tf.config import Paths
from clrec_tf.config import PrepareConfig
from clrec_tf.data import schema as schema_lib
from clrec_tf.data import stored_data
from clrec_tf.errors import BusyError
from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.evaluate import evaluate
from clrec_tf.preparation.prepare_folder import prepare_folder
from clrec_tf.reporting.page import page_of
from clrec_tf.reporting.runs import read_runs
from clrec_tf.stores.lease import Lease
from clrec_tf.stores.store_errors import StoreError
from clrec_tf.system import json_files
from clrec_tf.training import checkpoint_list
from clrec_tf.training import checkpoints
from clrec_tf.training import run_config
from clrec_tf.training import stored_list
from clrec_tf.training import stored_run
from tests import forked
from tests import s3_server
from tests import small_run

pytest.importorskip("moto.server")
pytest.importorskip("obstore")

LISTING = "list-type=2"  # in the address of a request that lists
READ = dict(data_dir=stored_data.reads_data_set)
TRAIN = dict(READ, init_from=stored_run.starts_from_run, workdir=stored_run.keeps_run)
EVALUATE = dict(READ, workdir=stored_run.reads_run, eval_checkpoint=stored_run.reads_checkpoint)


@pytest.fixture(scope="module", name="local_data")
def fixture_local_data(tmp_path_factory):
    return small_run.prepared(tmp_path_factory.mktemp("local"))


def prepare(store, tmp_path, name="data", dry_run=False, **settings):
    """Prepares the log of `small_run` into a folder of the store."""
    log = tmp_path / "log.csv"
    log.write_text(small_run.click_log())
    settings = dict(shard_records=16, feature_columns=("category",), input=str(log), dry_run=dry_run) | settings
    with s3_server.opened(tmp_path / "cache", dict(data_dir=stored_data.makes_data_set), data_dir=store.at(name),
                          dry_run=dry_run) as local:
        prepare_folder(Paths(data_dir=local["data_dir"]), PrepareConfig(**settings), lambda text: None)


def train(store, tmp_path, run="run", openers=None, changes=None, init_from="", **settings):
    """Trains on the store's data set as the command does; the exit code."""
    with s3_server.opened(tmp_path / "cache", openers or TRAIN, changes, data_dir=store.at("data"),
                          workdir=store.at(run), init_from=init_from) as local:
        return small_run.run(small_run.config(local["data_dir"], local["workdir"], init_from=local["init_from"],
                                              **settings))


def listed(store, run="run"):
    return stored_list.read(store(run))[0]


def rows(store, run="run"):
    """step -> loss, of the metrics.jsonl in the store."""
    lines = map(json.loads, store(run).read("metrics.jsonl").splitlines())
    return {row["step"]: row["loss"] for row in lines if "loss" in row}


def test_a_data_set_in_a_store_is_that_of_a_folder_whatever_was_interrupted(store, tmp_path, local_data):
    store.faults.add("PUT", "train-00002", s3_server.DENIED)
    with pytest.raises(UserError, match="no permission"):
        prepare(store, tmp_path)
    assert store("data").read("manifest.json") is None and store("data").read("unfinished.json") is not None
    with s3_server.opened(tmp_path / "cache", READ, data_dir=store.at("data")) as local:
        with pytest.raises(DataError, match="holds no complete data set"):
            schema_lib.load_manifest(local["data_dir"])
    store.faults.clear()
    store("data").write("train-00099-of-00100.tfrecord", b"of another attempt")
    prepare(store, tmp_path)
    for name in ("manifest.json", "schema.json", "train-00001-of-00004.tfrecord"):
        with open(os.path.join(local_data, name), "rb") as file:
            assert file.read() == store("data").read(name), name
    assert set(store("data").names()) == set(os.listdir(local_data))
    writes = [path.rpartition("/")[2] for method, path in store.faults.seen if method == "PUT"]
    assert writes[-1] == "manifest.json" or "in_use.json" in writes[writes.index("manifest.json") + 1:]


def test_errors_name_the_address_where_what_is_there_is_opened_and_where_it_is_read(store, tmp_path):
    store("bad").write("manifest.json", b"{oops")
    for name, text in (("none", f"--data_dir={store.at('none')} holds no complete data set"),
                       ("bad", f"{store.at('bad')}/manifest.json is not readable JSON")):
        with pytest.raises(DataError, match=f"^[^ ]*{re.escape(text)}|: {re.escape(text)}") as caught:
            with s3_server.opened(tmp_path / "cache", READ, data_dir=store.at(name)) as local:
                schema_lib.load_manifest(local["data_dir"])
        assert str(tmp_path) not in str(caught.value)


def test_a_data_set_that_is_there_is_left_alone_or_refused(store, tmp_path):
    prepare(store, tmp_path, dry_run=True)
    assert store("data").names() == {}
    prepare(store, tmp_path)
    before = len([1 for method, _ in store.faults.seen if method == "PUT"])
    prepare(store, tmp_path)
    assert len([1 for method, _ in store.faults.seen if method == "PUT"]) == before
    with pytest.raises(UserError, match="was prepared with min_train_length=5, this call has 3"):
        prepare(store, tmp_path, min_train_length=3)
    store("data").delete("train-00001-of-00004.tfrecord")
    with pytest.raises(DataError, match="train-00001-of-00004.tfrecord in --data_dir=s3://.*/data is not there"):
        prepare(store, tmp_path)
    store("other").write("holiday.jpg", b"x")
    with pytest.raises(UserError, match="holds files that prepare did not write .holiday.jpg"):
        prepare(store, tmp_path, "other")
    with Lease(store("busy"), 3.0, "prepare"), pytest.raises(BusyError, match="busy is in use by another prepare"):
        prepare(store, tmp_path, "busy")


@pytest.mark.parametrize("run", ["data", "data/run", "data//"])
def test_a_run_is_not_kept_in_a_data_set(store, tmp_path, run):
    with pytest.raises(UserError, match="--workdir=s3://.* is (equal to|inside) --data_dir=s3://.*/data"):
        openers = dict(data_dir=stored_data.makes_data_set, workdir=stored_run.keeps_run)
        with s3_server.opened(tmp_path / "cache", openers, data_dir=store.at("data"), workdir=store.at(run)):
            pytest.fail("opened")
    assert store("data").names() == {}
    with pytest.raises(UserError, match="--init_from=s3://.*/run is --workdir itself"):
        with s3_server.opened(tmp_path / "cache", TRAIN, data_dir="", workdir=store.at("run/"),
                              init_from=store.at("run")):
            pytest.fail("opened")


@pytest.mark.slow
def test_trained_killed_and_resumed_in_a_store_is_as_in_a_folder(store, tmp_path, local_data):
    prepare(store, tmp_path)
    settings = dict(epochs=2, validate_every=1.0, keep_checkpoints=2)
    whole = tmp_path / "whole"
    small = {**small_run.SMALL_MODEL, **small_run.SMALL_TRAIN, **settings}
    train = lambda **flags: [sys.executable, "-m", "clrec_tf.train",
                             *(f"--{name}={value}" for name, value in {**small, **flags}.items())]
    # In a process of its own too: what other tests have made would be in the names of this one's variables.
    assert forked.run(train(data_dir=local_data, workdir=whole), capture_output=True, text=True).returncode == 0
    local = small_run.config(local_data, whole, **settings).but(candidate_sets=("full",))
    expected = evaluate(local)

    command = train(lease_s=4.0, store_deadline_s=20.0, cache_dir=tmp_path / "cache", data_dir=store.at("data"),
                    workdir=store.at("run"))
    with forked.Popen(command, stderr=-3) as process:
        while (found := stored_list.read(store("run"))) is None or not found[0].checkpoints:
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    steps = [one.step for one in listed(store).of("checkpoints")]
    assert 0 < steps[-1] < max(small_run.losses(whole)), steps
    store.faults.add("GET", LISTING, s3_server.STALE)  # nothing goes by listings
    done = forked.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"going on from {store.at('run')}/checkpoints/step-" in done.stderr and "/cache/work" not in done.stderr
    assert rows(store) == small_run.losses(whole)
    for folder in ("checkpoints", "best"):
        newest = listed(store).of(folder)[-1]
        for name, entry in newest.files.items():
            with open(whole / name, "rb") as file:
                assert file.read() == store("run").read(entry.name), name
    saved = json.loads(store("run").read("config.json"))["paths"]
    assert saved["data_dir"] == store.at("data") and saved["workdir"] == store.at("run")
    assert os.listdir(tmp_path / "cache" / "work") == []

    with s3_server.opened(tmp_path / "cache", EVALUATE, data_dir=store.at("data"), workdir=store.at("run")) as here:
        assert evaluate(local.but(data_dir=here["data_dir"], workdir=here["workdir"])) == expected
    assert json.loads(store("run").read("metrics.json"))["hr@10/full"] == expected["hr@10/full"]
    assert "dial.png" in {path.rpartition("/")[2] for method, path in store.faults.seen if method == "PUT"}
    with s3_server.opened(tmp_path / "cache", dict(RUN=stored_run.reads_record), RUN=[store.at("run")]) as here:
        assert "hr@10/full" in page_of(read_runs(here["RUN"]))


def test_a_store_that_fails_ends_the_training_and_it_goes_on_later(store, tmp_path):
    prepare(store, tmp_path)
    store.faults.add("PUT", "/checkpoints/", s3_server.SLOW_DOWN, after=3)
    with pytest.raises(StoreError, match="cannot be written .SlowDown"):
        train(store, tmp_path)
    kept = [one.step for one in listed(store).of("checkpoints")]
    assert kept == [10]
    store.faults.clear()
    assert train(store, tmp_path) == 0
    assert sorted(rows(store)) == list(range(1, 57))
    named = {entry.name for one in listed(store).checkpoints for entry in one.files.values()}
    there = {name for name in store("run").names() if name.startswith("checkpoints/")}
    assert there == named and len(listed(store).of("checkpoints")) == 3


def test_only_one_trains_in_a_folder_of_a_store(store, tmp_path):
    prepare(store, tmp_path)
    with Lease(store("run"), 3.0, "training"), pytest.raises(BusyError, match="run is in use by another training"):
        train(store, tmp_path)
    assert train(store, tmp_path, epochs=1) == 0
    with pytest.raises(BusyError, match="another training has written its list of checkpoints"), \
         s3_server.opened(tmp_path / "cache", TRAIN, data_dir=store.at("data"), workdir=store.at("run")) as local:
        found = stored_list.read(store("run"))
        store("run").write(stored_list.LIST, found[0].content() + b" ", found[1])  # as one that took over
        small_run.run(small_run.config(local["data_dir"], local["workdir"]))
    store("other").write("holiday.jpg", b"x")
    with pytest.raises(UserError, match="holds files but no run .holiday.jpg"):
        train(store, tmp_path, "other")


@pytest.mark.long
def test_a_shard_that_vanishes_or_is_damaged_is_named(store, tmp_path):
    prepare(store, tmp_path)
    name = "train-00001-of-00004.tfrecord"
    whole = store("data").read(name)
    for content, error in ((b"X" + whole[1:], "sha256 .*its list says"), (None, "is not there")):
        store("data").delete(name) if content is None else store("data").write(name, content)
        with pytest.raises(DataError, match=f"{name} (of|in) --data_dir=s3://.*/data .*{error}"):
            train(store, tmp_path, changes=dict(cache_gb=0.0))
    store("data").write(name, whole)
    assert train(store, tmp_path, changes=dict(cache_gb=0.0)) == 0  # nothing is kept, all is fetched again


def test_a_damaged_checkpoint_is_passed_over_and_others_are_found(store, tmp_path):
    prepare(store, tmp_path)
    assert train(store, tmp_path, epochs=1, validate_every=1.0) == 0
    steps = [one.step for one in listed(store).of("checkpoints")]
    newest = listed(store).of("checkpoints")[-1]
    key = next(entry.name for entry in newest.files.values() if ".data-" in entry.name)
    whole = store("run").read(key)
    store("run").write(key, b"\0" + whole[1:])
    with s3_server.opened(tmp_path / "cache-2", TRAIN, data_dir=store.at("data"), workdir=store.at("run")) as local:
        kept = checkpoint_list.kept(os.path.join(local["workdir"], "checkpoints"))
        assert [int(prefix.rpartition("-")[2]) for prefix in kept] == steps[-2:-1]
    with pytest.raises(DataError, match="has .* its list says"):
        with s3_server.opened(tmp_path / "cache-3", EVALUATE, data_dir=store.at("data"), workdir=store.at("run")):
            pass
    earlier = store.at(f"run/checkpoints/step-{steps[0]}")
    store("run").write(key, b"")
    with s3_server.opened(tmp_path / "cache", EVALUATE, data_dir=store.at("data"), workdir=store.at("run"),
                          eval_checkpoint=earlier) as local:
        assert checkpoints.find_checkpoint(local["workdir"], local["eval_checkpoint"]).endswith(f"-{steps[0]}")
    store("run").write(key, whole)
    with pytest.raises(UserError, match="--eval_checkpoint=s3://.*step-999 is no checkpoint of --workdir"):
        with s3_server.opened(tmp_path / "cache", EVALUATE, data_dir=store.at("data"), workdir=store.at("run"),
                              eval_checkpoint=store.at("run/checkpoints/step-999")):
            pass


@pytest.mark.parametrize("prefix, name, key, sha256", [
    ("checkpoints/step-one", "checkpoints/step-1.index", "k", "0" * 64),
    ("../checkpoints/step-1", "checkpoints/step-1.index", "k", "0" * 64),
    ("checkpoints/step-1", "../../step-1.index", "k", "0" * 64),
    ("checkpoints/step-1", "/step-1.index", "k", "0" * 64),
    ("checkpoints/step-1", "checkpoints/step-1.index", "../k", "0" * 64),
    ("checkpoints/step-1", "checkpoints/step-1.index", "k", "../../../x")],
                         ids=["no step", "prefix above", "name above", "absolute name", "key above", "no sha256"])
def test_a_list_that_names_what_cannot_be_is_refused(store, prefix, name, key, sha256):
    def write(prefix, name, key, sha256):
        files = {name: dict(name=key, bytes=1, sha256=sha256)}
        values = json_files.sealed(dict(token="t", checkpoints=[dict(prefix=prefix, files=files)]))
        store("run").write(stored_list.LIST, json.dumps(values).encode())

    write("checkpoints/step-1", "checkpoints/step-1.index", "k", "0" * 64)
    assert [one.step for one in listed(store).of("checkpoints")] == [1]
    write(prefix, name, key, sha256)
    with pytest.raises(DataError, match="the list of checkpoints, is damaged"):
        listed(store)


def test_a_manifest_of_data_with_a_sha256_that_is_none_is_refused(store, tmp_path):
    prepare(store, tmp_path)
    facts = json_files.unsealed(json.loads(store("data").read("manifest.json")))
    facts["shards"]["train"][0]["sha256"] = "../../../x"
    store("data").write("manifest.json", json.dumps(json_files.sealed(facts)).encode())
    with pytest.raises(DataError, match="manifest.json .* has an entry that cannot be"):
        with s3_server.opened(tmp_path / "cache", READ, data_dir=store.at("data")):
            pass


@pytest.mark.long
def test_a_training_starts_from_a_run_in_a_store(store, tmp_path):
    prepare(store, tmp_path)
    assert train(store, tmp_path, epochs=1) == 0
    data_next = dict(vocabulary_from=stored_data.reads_data_set, data_dir=stored_data.makes_data_set)
    with s3_server.opened(tmp_path / "cache", data_next, data_dir=store.at("next"),
                          vocabulary_from=store.at("data")) as local:
        prepare_folder(Paths(data_dir=local["data_dir"]), PrepareConfig(
            input=str(tmp_path / "log.csv"), vocabulary_from=local["vocabulary_from"], shard_records=16,
            feature_columns=("category",)), lambda text: None)
    with s3_server.opened(tmp_path / "cache", TRAIN, data_dir=store.at("next"), workdir=store.at("second"),
                          init_from=store.at("run")) as local:
        settings = small_run.config(local["data_dir"], local["workdir"], init_from=local["init_from"], epochs=1)
        assert small_run.run(settings) == 0
    assert min(rows(store, "second").values()) < min(rows(store).values())
    saved = json.loads(store("second").read(run_config.CONFIG_FILE))
    assert saved["paths"]["data_dir"] == store.at("next")
