"""Bundles in a store: published, updated and read there, with faults in between; against a server of S3."""
import contextlib
import json
import os
import shutil
import threading

import pytest

from clrec_tf.errors import BusyError
from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.publishing import stored_exports
from clrec_tf.publishing.stored_exports import exports_to
from clrec_tf.publishing.stored_exports import updates_version
from clrec_tf.publishing.update_bundle import update_bundle
from clrec_tf.retrieval import stored_versions
from clrec_tf.retrieval.bundle import load_bundle
from clrec_tf.retrieval.stored_versions import reads_bundle
from clrec_tf.stores.store_errors import StoreError
from clrec_tf.stores import transfer
from tests import exported
from tests import s3_server
from tests.cases import in_ci

pytest.importorskip("moto.server")
pytest.importorskip("obstore")


@pytest.fixture(name="store")
def fixture_store(store, tmp_path):
    """The faults of the proxy before a bucket; `address` of a folder of versions, `folder` its objects."""
    faults, faults.address, faults.cache = store.faults, store.at("models"), tmp_path / "cache"
    faults.folder = s3_server.folder(faults.address, "export_dir")
    return faults


@contextlib.contextmanager
def opened(store, opener, address="", **changes):
    """The local folder that an opener gives for the store's versions."""
    with s3_server.opened(store.cache, {"export_dir": opener}, export_dir=address or store.address, **changes) as local:
        yield local["export_dir"]


def copied(folder):
    """An "export" that takes its files from a bundle that is ready, under whatever number it is given."""
    from clrec_tf.publishing import one_publisher  # pylint: disable=import-outside-toplevel
    from clrec_tf.retrieval.export_folder import taken_versions  # pylint: disable=import-outside-toplevel
    choose = lambda: max(taken_versions(folder), default=0) + 1
    with one_publisher.new_version(folder, choose) as (temporary, version):
        shutil.copytree(exported.bundle_folder("string"), temporary, dirs_exist_ok=True)
    return version


def published(store, **changes):
    with opened(store, exports_to, **changes) as local:
        return copied(local)


def complete(store):
    return stored_versions.read_list(store.folder).complete


def test_an_export_is_whole_when_it_is_seen_and_the_model_is_there_last(store):
    assert published(store) == 1
    put = [path.rpartition("/models/")[2] for method, path in store.seen if method == "PUT"]
    of_version = [name for name in put if name.startswith("1/")]
    assert of_version[-2:] == ["1/saved_model.pb", "1/manifest.json"] and len(of_version) > 8
    assert put.index("versions.json") < put.index(of_version[0])  # the number is given out first
    after = put[put.index("1/manifest.json"):]
    assert "versions.json" in after
    assert complete(store) == [1] and "in_use.json" not in store.folder.names()
    with opened(store, reads_bundle) as local:
        assert sorted(os.listdir(local)) == ["1"]
        bundle = load_bundle(local)
    assert list(bundle.item_ids) == list(exported.loaded("string").item_ids)


def test_an_update_of_the_newest_or_of_a_version_becomes_the_next(store, tmp_path):
    assert [published(store), published(store)] == [1, 2]
    gone = tmp_path / "gone.txt"
    gone.write_text(f"{exported.loaded('string').item_ids[0]}\n")
    with opened(store, updates_version) as local:
        assert os.path.basename(update_bundle(local, "", str(gone), 0.5)) == "3"
    with opened(store, updates_version, f"{store.address}/1") as local:
        assert os.path.basename(local) == "1"
        assert os.path.basename(update_bundle(local, "", str(gone), 0.5)) == "4"
    assert complete(store) == [1, 2, 3, 4]
    with opened(store, reads_bundle) as local:
        bundle = load_bundle(local)
    assert bundle.path.endswith("/4") and bundle.counts["withdrawn"] == 1
    with opened(store, reads_bundle, f"{store.address}/2") as local:
        assert load_bundle(local).counts["withdrawn"] == 0
    with opened(store, exports_to) as local:  # a new export keeps the deletion, for which it fetches little
        before = len(store.seen)
        folder = exported.world("string").export(local)
        fetched = [path for method, path in store.seen[before:] if method == "GET" and "/models/4/" in path]
        assert len(set(fetched)) <= 4 and not any("variables" in path for path in fetched)
        assert load_bundle(folder).counts["withdrawn"] == 1
    assert f'base_path: "{store.address}"' in store.folder.read("models.config").decode()
    assert complete(store) == [1, 2, 3, 4, 5]


def test_two_exports_at_once_share_no_number(store):
    versions, ready = [], threading.Barrier(3)

    def export():
        with opened(store, exports_to) as local:
            ready.wait()
            versions.append(copied(local))
    threads = [threading.Thread(target=export) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(versions) == [1, 2, 3] and complete(store) == [1, 2, 3]


def test_without_a_lease_numbers_are_still_given_out_once(store):
    """Two that both think they may publish, as after a pause of one: the later number alone is refused, or retried."""
    with opened(store, exports_to) as first, opened(store, exports_to) as second:
        one, other = stored_exports.of(first), stored_exports.of(second)
        for export, token in ((one, "aa"), (other, "bb")):
            export._lease = type("Held", (), dict(token=token, certain=True, check=lambda self: None))()
        claim = lambda local: lambda: max(map(int, filter(str.isdigit, os.listdir(local))), default=0) + 1
        assert [one.claim(claim(first)), other.claim(claim(second))] == [1, 2]
        for local, number in ((first, 1), (second, 2)):
            shutil.copytree(exported.bundle_folder("string"), os.path.join(local, str(number)), dirs_exist_ok=True)
        other.publish(2, 0)
        with pytest.raises(BusyError, match="version 2 is the newest now, it was 0"):
            one.publish(1, 0)
    assert complete(store) == [2] and not [name for name in store.folder.names() if name.startswith("1/")]


@pytest.mark.parametrize("part", in_ci(["variables/variables.data", "saved_model.pb", "manifest.json", "versions.json"],
                                       "variables/variables.data", "versions.json"))
def test_an_upload_that_is_interrupted_shows_nothing_and_is_removed_by_the_next(store, part):
    published(store)
    store.add("PUT", f"models/2/{part}" if "versions" not in part else part, s3_server.SLOW_DOWN,
              after=0 if "versions" not in part else 1)  # the first write of the list gives the number out
    with pytest.raises(StoreError, match="export_dir=.* cannot be written"):
        published(store, changes=dict(store_deadline_s=1.0))
    store.clear()
    left = [name for name in store.folder.names() if name.startswith("2/")]
    assert left and complete(store) == [1]
    with opened(store, reads_bundle) as local:
        assert os.listdir(local) == ["1"]
    assert published(store) == 3  # a number is given out once
    assert complete(store) == [1, 3] and not [name for name in store.folder.names() if name.startswith("2/")]


def test_a_listing_that_is_stale_hides_no_version_and_frees_no_number(store):
    published(store)
    store.add("GET", "list-type", s3_server.STALE)
    assert complete(store) == [1] and published(store) == 2
    with opened(store, reads_bundle) as local:
        assert os.listdir(local) == ["2"]


@pytest.mark.parametrize("fault, error, message", [
    (s3_server.NO_KEY, DataError, "is not there"), (s3_server.SLOW_DOWN, StoreError, "did not answer"),
    (s3_server.CUT, StoreError, "did not answer"), (s3_server.DENIED, UserError, "no permission")])
def test_a_version_that_cannot_be_fetched_whole_is_not_there(store, fault, error, message):
    published(store)
    store.add("GET", "models/1/variables/variables.data", fault)
    with pytest.raises(error, match=message):
        with opened(store, reads_bundle, changes=dict(store_deadline_s=1.0)):
            pass
    store.clear()
    shutil.rmtree(store.cache)
    content = store.folder.read("1/item_ids.npy")
    store.folder.write("1/item_ids.npy", content[:-1] + b"?")
    with pytest.raises(DataError, match="item_ids.npy .* sha256"):
        with opened(store, reads_bundle):
            pass


def test_a_throttled_store_makes_an_export_slower_only(store):
    store.add("PUT", "models/1/", s3_server.SLOW_DOWN, times=5)
    store.add("GET", "models/1/", s3_server.SLOW_DOWN, times=5)
    assert published(store) == 1
    with opened(store, reads_bundle) as local:
        assert list(load_bundle(local).item_ids) == list(exported.loaded("string").item_ids)
    assert store.failed == 10 and complete(store) == [1]
    asked = [request for request in store.seen if "/models/1/" in request[1] and request[0] in ("PUT", "GET")]
    assert len(asked) >= 10 + len(set(asked))  # each failure was asked again


def test_a_version_copied_by_hand_counts_when_it_has_its_manifest(store):
    source = exported.bundle_folder("string")
    for name in transfer.files_below(source):
        if name != "manifest.json":
            store.folder.upload(f"7/{name}", os.path.join(source, name))
    assert complete(store) == [] and stored_versions.read_list(store.folder).taken == [7]
    store.folder.upload("7/manifest.json", os.path.join(source, "manifest.json"))
    assert complete(store) == [7] and published(store) == 8


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../../x", "", "manifest.json"])
def test_a_manifest_that_names_files_elsewhere_is_refused(store, name, tmp_path):
    published(store)
    from clrec_tf.system import json_files  # pylint: disable=import-outside-toplevel
    facts = json_files.unsealed(json.loads(store.folder.read("1/manifest.json")))
    facts["files"][name] = dict(bytes=1, sha256="0" * 64)
    store.folder.write("1/manifest.json", json.dumps(json_files.sealed(facts)).encode())
    with pytest.raises(DataError, match="an entry that cannot be"):
        with opened(store, reads_bundle):
            pass
    assert not [path for path in tmp_path.rglob("x")]


def test_addresses_that_are_not_what_a_command_takes(store):
    published(store)
    with pytest.raises(UserError, match="is itself a version: give the folder"):
        with opened(store, exports_to, f"{store.address}/1"):
            pass
    with opened(store, reads_bundle, f"{store.address}/none") as local:
        with pytest.raises(DataError, match="holds no complete bundle"):
            load_bundle(local)
    store.folder.write("versions.json", b"[")
    with pytest.raises(DataError, match="versions.json in .* is damaged"):
        with opened(store, reads_bundle):
            pass
