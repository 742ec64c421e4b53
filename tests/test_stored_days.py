"""Days in a store: each step is there when it is done, and a command that was stopped finishes its day."""
import contextlib
import json
import os

import pytest

from clrec_tf.days import history
from clrec_tf.days.day import run_day
from clrec_tf.days.gate import GateError
from clrec_tf.days.stored_days import keeps_days
from clrec_tf.errors import BusyError
from clrec_tf.retrieval import stored_versions
from clrec_tf.stores.store_errors import StoreError
from tests import s3_server
from tests.test_daily import day_config

pytest.importorskip("moto.server")
pytest.importorskip("obstore")
pytestmark = pytest.mark.long


@pytest.fixture(name="store")
def fixture_store(store, tmp_path):
    """The faults of the proxy before a bucket; `address` of a folder of days, `folder` its objects."""
    faults, faults.address, faults.cache = store.faults, store.at("days"), tmp_path / "cache"
    faults.folder = s3_server.folder(faults.address, "days_dir")
    return faults


@contextlib.contextmanager
def opened(store, number, tmp_path, **settings):
    """The settings of a day in the store, as the command gets them."""
    config = day_config(tmp_path / "logs" / "days", number, **settings)
    with s3_server.opened(store.cache, {"days_dir": keeps_days}, days_dir=store.address) as local:
        yield config.but(days_dir=local["days_dir"])


def day(store, number, tmp_path, **settings):
    with opened(store, number, tmp_path, **settings) as config:
        return run_day(config)


def entries(store):
    return [json.loads(line) for line in (store.folder.read(history.HISTORY_FILE) or b"").splitlines()]


def complete(store):
    return stored_versions.read_list(store.folder.child("export")).complete


def test_days_in_a_store_follow_each_other_and_one_that_was_stopped_is_finished(store, tmp_path):
    (tmp_path / "logs").mkdir()
    assert day(store, 0, tmp_path) == 0
    names = store.folder.names()
    assert {"day0/data/manifest.json", "day0/run/metrics.json", "day0/run/checkpoints.json", "history.jsonl",
            "history.png", "export/1/manifest.json"} <= set(names) and not [name for name in names if "in_use" in name]
    assert str(store.cache) not in store.folder.read("day0/run/config.json").decode()

    # Stopped when the version is published and the history not yet written.
    store.add("PUT", "days/history.jsonl", s3_server.SLOW_DOWN)
    with pytest.raises(StoreError, match=f"history.jsonl in --days_dir={store.address} cannot be written"):
        day(store, 1, tmp_path)
    store.clear()
    assert complete(store) == [1, 2] and len(entries(store)) == 1
    uploaded = len(store.seen)
    assert day(store, 1, tmp_path) == 0
    again = [path for method, path in store.seen[uploaded:] if method == "PUT"]
    assert not [path for path in again if "/data/" in path and "in_use" not in path] and complete(store) == [1, 2]
    assert [(each["day"], each["status"], each["version"], each["yesterday"]) for each in entries(store)] == [
        ("day0", "published", 1, None), ("day1", "published", 2, "day0")]
    run = json.loads(store.folder.read("day1/run/config.json"))
    assert run["train"]["init_from"] == f"{store.address}/day0/run"
    assert run["paths"]["data_dir"] == f"{store.address}/day1/data"

    # A model that is refused is recorded too, and nothing is published.
    with pytest.raises(GateError, match="day2 is not published"):
        day(store, 2, tmp_path, gate=("hr@10/full:5",))
    assert entries(store)[2]["status"] == "refused" and complete(store) == [1, 2]
    with opened(store, 3, tmp_path) as config:
        with pytest.raises(BusyError, match="in use by another daily"):
            with opened(store, 3, tmp_path):
                pass
        assert os.listdir(config.days.days_dir)
