"""The Python library with addresses of stores: prepared, trained, stopped, resumed, evaluated, published, loaded."""
import contextlib
import json
import logging
import re
import signal

import pytest

import clrec_tf as clrec
from clrec_tf.errors import BusyError
from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.stores.lease import Lease
from clrec_tf.training import stored_list
from tests import s3_server
from tests import small_run

pytest.importorskip("moto.server")
pytest.importorskip("obstore")

FEATURES = dict(feature_columns=["category"], shard_records=16)
TRAINED = {**small_run.SMALL_MODEL, **small_run.SMALL_TRAIN, "seed": 3}
STOPPED_AT = 14  # between two checkpoints


@pytest.fixture(autouse=True)
def fixture_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@contextlib.contextmanager
def callback(message, work):
    """Context in which a handler of the program's own calls `work` at the log line that begins with `message`."""
    class Handler(logging.Handler):
        """Its errors are the caller's."""

        def emit(self, record):
            if record.getMessage().startswith(message):
                work()

    handler = Handler()
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)


def fail():
    raise RuntimeError("of the callback")


def test_from_a_log_in_a_store_to_a_bundle_in_a_store(store, tmp_path, caplog):
    store("x").write("clicks.csv", small_run.click_log().encode())
    log, place, workdir = store.at("x/clicks.csv"), store.at("data"), store.at("run")
    store.faults.add("PUT", "train-00002", s3_server.DENIED)
    with pytest.raises(UserError, match=f"--data_dir={place}: no permission"):
        clrec.prepare(log, data_dir=place, **FEATURES)
    store.faults.clear()
    assert not {"manifest.json", "in_use.json"} & set(store("data").names())
    with pytest.raises(DataError, match=f"--data_dir={place} holds no complete data set"):
        clrec.train(place)
    data = clrec.prepare(log, data_dir=place, **FEATURES)
    local = clrec.prepare(log, **FEATURES)
    assert (data.folder, data.schema, data.report["items"]) == (place, local.schema, small_run.ITEMS)
    files = set(store("data").names())
    assert "manifest.json" in files and not files & {"unfinished.json", "in_use.json"}
    writes = len([1 for method, _ in store.faults.seen if method == "PUT"])
    assert clrec.prepare(log, data_dir=place, **FEATURES) == data
    assert len([1 for method, _ in store.faults.seen if method == "PUT"]) == writes

    with callback("training from step 0", fail), pytest.raises(RuntimeError, match="of the callback"):
        clrec.train(data, workdir=workdir, **TRAINED)
    assert "in_use.json" not in store("run").names() and not stored_list.read(store("run"))[0].checkpoints
    with (callback(f"step {STOPPED_AT}/", lambda: signal.raise_signal(signal.SIGINT)),
          pytest.raises(KeyboardInterrupt, match="the same call with the same workdir goes on")):
        clrec.train(place, workdir=workdir, **TRAINED)
    stopped = stored_list.read(store("run"))[0].of("checkpoints")[-1].step
    assert stopped % TRAINED["checkpoint_every_steps"] and "in_use.json" not in store("run").names()
    with Lease(store("run"), 1.5, "training"), pytest.raises(
            BusyError, match=re.escape(f"--workdir={workdir} is in use by another training, process")):
        clrec.train(data, workdir=workdir, **TRAINED)
    caplog.clear()
    run = clrec.train(place, workdir=workdir, **TRAINED)
    assert [f"going on from {workdir}/checkpoints/step-{stopped}"] == [
        line for line in caplog.messages if line.startswith("going on from")]
    assert (run.workdir, run.data.folder, run.data.report) == (workdir, place, local.report)
    steps = json.loads(store("run").read("metrics.jsonl").splitlines()[-1])["step"]
    assert run.history["step"].to_list() == list(range(1, steps + 1))
    assert stored_list.read(store("run"))[0].of("checkpoints")[-1].step == steps
    assert set(store("data").names()) == files  # which nobody has written in

    metrics = run.evaluate(ks=[1, 10], candidate_sets="full", eval_checkpoint=f"{workdir}/checkpoints/step-{steps}")
    assert metrics == json.loads(store("run").read("metrics.json"))
    assert metrics["hr@10/full"] > metrics["most_popular/hr@10/full"]
    assert clrec.train(data, workdir=workdir, **TRAINED).history.equals(run.history)  # it is complete
    version = run.export(popularity=0, recall_k=5)
    assert version == f"{workdir}/export/1"
    assert run.export(export_dir=store.at("export"), popularity=0, recall_k=5) == store.at("export/1")
    model, other = clrec.load(version), clrec.load(store.at("export"))
    items = list(model.recommend([[3, 4]], k=3)["item"])
    assert items == list(other.recommend([[3, 4]], k=3)["item"]) and len(items) == 3
    assert str(tmp_path) not in caplog.text and list((tmp_path / "cache/clrec_tf/work").iterdir()) == []


def test_what_is_wrong_with_an_address_is_said_of_the_address(store, tmp_path):
    store("x").write("clicks.csv", small_run.click_log().encode())
    log, none, data = store.at("x/clicks.csv"), store.at("none"), clrec.prepare(store.at("x/clicks.csv"), **FEATURES)
    for error, text, call in (
            (DataError, f"{none} holds no complete bundle", lambda: clrec.load(none)),
            (UserError, f"--input={none}.csv: nothing is there", lambda: clrec.prepare(f"{none}.csv")),
            (UserError, f"--data_dir={store.at('x')} holds files that prepare did not write (clicks.csv",
             lambda: clrec.prepare(log, data_dir=store.at("x"))),
            (DataError, f"--data_dir={none} holds no complete data set", lambda: clrec.train(none)),
            (UserError, f"--workdir={store.at('x')} holds files but no run (clicks.csv",
             lambda: clrec.train(data, workdir=store.at("x"))),
            (UserError, f"--init_from={none}", lambda: clrec.train(data, init_from=none)),
            (UserError, f"--cache_dir={none}: this is read and written on file systems of this machine only",
             lambda: clrec.train(data, workdir=store.at("run"), cache_dir=none)),
            (UserError, "--queue_size=10 is smaller than --batch_size=64",
             lambda: clrec.train(data, workdir=store.at("run"), queue_size=10, batch_size=64)),
            (UserError, "--data_dir=s3:/x/y: no store of this kind is known; give s3://",
             lambda: clrec.train("s3:/x/y"))):
        with pytest.raises(error, match=re.escape(text)) as caught:
            call()
        assert str(tmp_path) not in str(caught.value), text
    assert not store("run").names() and set(store("x").names()) == {"clicks.csv"}
    clrec.prepare(log, data_dir=store.at("data"), cache_dir=tmp_path / "elsewhere", **FEATURES)
    assert (tmp_path / "elsewhere/work").is_dir()
