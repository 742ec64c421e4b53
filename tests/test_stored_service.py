"""Serving from a store: versions are fetched whole or refused, a store that fails changes nothing; what is shown."""
import contextlib
import os
import re
import shutil
import signal

import polars as pl
import pytest

from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.retrieval.search_options import SearchOptions
from clrec_tf.server.engine import Engine
from clrec_tf.server.impression_files import ImpressionFiles
from clrec_tf.server.impression_files import Shown
from clrec_tf.server.impression_log import ImpressionLog
from clrec_tf.server.model_status import version_states
from clrec_tf.server.stored_folder import follows_versions
from clrec_tf.server.stored_folder import follows_versions_of_run
from clrec_tf.server.versions import Versions
from clrec_tf.stores.outbox import collects_files
from clrec_tf.stores.store_errors import StoreError
from clrec_tf.stores import transfer
from tests import exported
from tests import s3_server
from tests.service_process import serving, wait_for

pytest.importorskip("moto.server")
pytest.importorskip("obstore")
pytestmark = pytest.mark.usefixtures("unfrozen_afterwards")


@pytest.fixture(name="store")
def fixture_store(store, tmp_path):
    """The faults of the proxy before a `bucket`; `address` of a folder of versions, `folder` its objects."""
    faults, faults.bucket, faults.address = store.faults, store.address, store.at("run/export")
    faults.folder, faults.cache = s3_server.folder(faults.address, "export_dir"), tmp_path / "cache"
    return faults


@contextlib.contextmanager
def opened(store, opener, flag="export_dir", address="", **values):
    with s3_server.opened(store.cache, {flag: opener}, dict(store_deadline_s=1.0),
                          **{flag: address or store.address}, **values) as local:
        yield local[flag]


def copy(store, number, but=()):
    """Copies a version by hand, its manifest last, and leaves files out."""
    source = exported.bundle_folder("int")
    for name in sorted(set(transfer.files_below(source)) - set(but), key=lambda name: name == "manifest.json"):
        store.folder.upload(f"{number}/{name}", os.path.join(source, name))


def forget(store):
    """Empties the cache, which has the files of every version by their sha256, whatever the store lacks."""
    shutil.rmtree(store.cache / "files")


class Told:
    """A `Versions` over a folder, and what it told."""

    def __init__(self, folder, wanted=0):
        self.refused = self.failures = 0
        self.versions = Versions(folder, wanted, lambda bundle: Engine(bundle, SearchOptions(k=5), lambda *_: None),
                                 refused=self._refused, unreachable=self._unreachable)

    def _refused(self):
        self.refused += 1

    def _unreachable(self):
        self.failures += 1

    def look(self, asked=False):
        """The version served after a look."""
        if asked:
            self.versions._asked.set()
        self.versions.look()
        return self.versions.engine.version


def test_versions_are_followed_and_nothing_incomplete_or_unreachable_takes_their_place(store, caplog):
    copy(store, 1)
    with opened(store, follows_versions) as local:
        told = Told(local)
        told.versions.start()
        assert told.versions.engine.version == 1 and os.listdir(local) == ["1"]
        copy(store, 2, but=["manifest.json"])  # being uploaded
        assert told.look() == 1 and not told.refused
        store.add("GET", "run/export", s3_server.SLOW_DOWN)  # out of reach
        assert told.look() == 1 and told.failures == 1 and not told.refused
        assert "served is still version 1: " in caplog.text and "did not answer as it should" in caplog.text
        store.clear()
        forget(store)
        copy(store, 2, but=["item_ids.npy"])  # a copy in the wrong order
        store.folder.delete("2/item_ids.npy")
        assert told.look() == 1 and told.refused == 1 and told.failures == 1
        [text] = [state["status"]["error_message"] for state in version_states(told.versions)
                  if state["version"] == "2"]
        assert "item_ids.npy" in text and "s3://" not in text and str(store.cache) not in text
        assert not [name for name in os.listdir(local) if name != "1"]
        copy(store, 2)
        assert told.look(asked=True) == 2 and not told.versions.refusals
        forget(store)
        store.add("GET", "3/variables/variables.data", s3_server.NO_KEY)  # vanishes while the version is fetched
        copy(store, 3)
        assert told.look() == 2 and 3 in told.versions.refusals and told.refused == 2
        store.clear()
        store.add("GET", "list-type", s3_server.STALE)  # knows no version that was copied by hand
        assert told.look() == 2
        store.clear()
        assert told.look(asked=True) == 3
        assert sorted(os.listdir(local)) == ["2", "3"]
        store.folder.write("serve_version", b"1\n")  # back
        assert told.look() == 1 and sorted(os.listdir(local)) == ["1", "3"]
        store.folder.write("serve_version", b"one")
        assert told.look() == 1 and "serve_version holds 'one'" in told.versions.complaint
        store.folder.delete("serve_version")
        assert told.look() == 3
        for name in store.folder.names():  # emptied
            store.folder.delete(name)
        assert told.look() == 3
        seen = told.versions.engine.bundle
        assert len(seen.item_vectors()) == exported.ITEMS  # files that are gone from the disk are in memory


def test_the_start(store):
    with opened(store, follows_versions) as local:
        with pytest.raises(DataError, match="holds no complete version"):
            Told(local).versions.start()
        copy(store, 4)
        copy(store, 5, but=["item_ids.npy"])
        told = Told(local)
        told.versions.start()
        assert told.versions.engine.version == 4 and list(told.versions.refusals) == [5]
        store.add("GET", "run/export", s3_server.SLOW_DOWN)
        with pytest.raises(StoreError, match="export_dir=s3"):
            Told(local).versions.start()
    store.clear()
    store.folder.delete("5/manifest.json")
    with opened(store, follows_versions_of_run, "workdir", f"{store.bucket}/run") as local:
        told = Told(os.path.join(local, "export"))
        told.versions.start()
        assert told.versions.engine.version == 4
    with pytest.raises(UserError, match="is version 4 itself: give the folder .*--serve_version=4"):
        with opened(store, follows_versions, address=f"{store.address}/4"):
            pass


def shown(items):
    return Shown("r", "m", 2, 7, 86_400.0, .5, list(range(items)), [.5] * items)


def test_files_of_what_was_shown_appear_whole_or_are_counted_as_lost(store):
    counts = dict(logged=0, write=0, queue=0)
    with opened(store, collects_files, "impression_log", f"{store.bucket}/shown") as local:
        folder = s3_server.folder(f"{store.bucket}/shown", "impression_log")
        log = ImpressionLog(ImpressionFiles(local, 3, 60),
                            lambda what, items: counts.update({what: counts[what] + items}))
        log.shown([shown(3)])
        wait_for(lambda: counts["logged"] == 3, 30)
        store.add("PUT", "shown/", s3_server.SLOW_DOWN)
        log.shown([shown(4)])
        wait_for(lambda: counts["write"] == 4, 30)
        store.clear()
        log.shown([shown(2)])
        log.close()
        assert counts == dict(logged=5, write=4, queue=0)
        assert not [name for _, _, names in os.walk(local) for name in names]
    names = list(folder.names())
    assert len(names) == 2 and all(re.fullmatch(r"date=1970-01-02/19700102T000000-\w+-00000\d\.parquet", each)
                                   for each in names)
    assert sorted(len(pl.read_parquet(folder.read(name))) for name in names) == [2, 3]


def test_a_service_follows_a_store_and_logs_into_it(store, tmp_path):
    copy(store, 1)
    history = [exported.original_id("int", number) for number in (3, 14, 15)]
    with serving(store.address, f"--cache_dir={store.cache}", "--store_deadline_s=1", "--impression_log_rows=5",
                 f"--impression_log={store.bucket}/shown") as service:
        first = service.users({"history": history, "k": 5})
        store.add("GET", "", s3_server.SLOW_DOWN)
        wait_for(lambda: service.metrics()["clrec_store_failures_total"] >= 1, 30)
        assert service.users({"history": history, "k": 5}) == first
        store.clear()
        copy(store, 2)
        wait_for(lambda: service.metrics()["clrec_model_version"] == 2, 30)
        assert service.users({"history": history, "k": 5}) == first
        wait_for(lambda: service.metrics()["clrec_impressions_logged_total"] >= 10, 30)
        service.signal(signal.SIGTERM)
        assert service.exit_code() == 0
        assert str(store.cache) not in service.log and f"loading from {store.address}" in service.log
    root = s3_server.folder(f"{store.bucket}/shown", "impression_log")
    assert sum(len(pl.read_parquet(root.read(name))) for name in root.names()) == 15
    assert not os.listdir(store.cache / "work")  # an ordered end leaves nothing behind but the cache
    shutil.rmtree(store.cache)
