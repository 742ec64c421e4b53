"""Object stores: addresses, requests that fail, conditional writes, leases, the cache; against a server of S3."""
import json
import os
import sys
import threading
import time

import pytest

from clrec_tf.errors import BusyError
from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.stores import address as addresses
from clrec_tf.stores import files
from clrec_tf.stores import folder as folder_lib
from clrec_tf.stores import lease as lease_lib
from clrec_tf.stores import names
from clrec_tf.stores import object_store
from clrec_tf.stores import transfer
from clrec_tf.stores.cache import Cache
from clrec_tf.stores.cache import entry_of
from clrec_tf.stores.lease import Lease
from clrec_tf.stores.on_demand import OnDemand
from clrec_tf.stores.store_errors import StoreError
from clrec_tf.stores.store_errors import TakenError
from clrec_tf.stores.store_errors import told
from clrec_tf.stores.store_errors import VanishedError
from tests import s3_server
from tests import store_conditions

pytest.importorskip("moto.server")
pytest.importorskip("obstore")


@pytest.fixture(name="faults")
def fixture_faults(store):
    """Of the proxy before the bucket; `faults.folder(…)` is a folder in that."""
    faults, faults.bucket = store.faults, store.address
    faults.folder = lambda name="a/b", deadline_s=3.0: s3_server.folder(store.at(name), "data_dir", deadline_s)
    return faults


@pytest.mark.parametrize("value, error", [
    ("az://c/x", "no store of this kind"), ("dbfs:/x", "no store of this kind"), ("S4://b/x", "no store of this kind"),
    ("s3:/bucket/x", "no store of this kind"), ("s3://Bucket/x", "'Bucket' is no name of a bucket"),
    ("s3://bucket", "names no folder"), ("s3://bucket///", "names no folder"), ("gs://b/x", "'b' is no name of a bucket"),
    ("s3://bucket/a//b", "a part between two / is empty"), ("s3://bucket/a/../b", "or .."),
    ("s3://bucket/a\nb", "the character '\\\\n'"), ("s3://bucket/" + "k" * 1000, "more than 924 bytes"),
    ("s3://bucket/\udcff", "no UTF-8")])
def test_an_address_that_is_none_names_flag_and_fault(value, error):
    assert addresses.is_address(value)
    with pytest.raises(UserError, match=f"(?s)^--workdir=.*{error}"):
        addresses.parse(value, "workdir")


def test_addresses_have_parts():
    address = addresses.parse("S3://bucket/a/b c/ä/", "workdir")
    assert (address.scheme, address.host, address.key) == ("s3", "bucket", "a/b c/ä")
    assert str(address.child("x")) == "s3://bucket/a/b c/ä/x" and str(address.folder) == "s3://bucket/a/b c"
    assert addresses.parse("hdfs://name:8020/x", "input").host == "name:8020"
    assert not any(map(addresses.is_address, ("data", "/data", "c:/data", "~/x", "file:///x", "a:b", "")))


def test_objects_are_written_read_and_removed(faults, tmp_path, monkeypatch):
    monkeypatch.setattr(folder_lib, "PART_BYTES", 7)
    folder, content = faults.folder("ä b"), os.urandom(50)
    (tmp_path / "file").write_bytes(content)
    folder.upload("one/x", str(tmp_path / "file"))
    folder.write("y", b"small")
    assert folder.names() == {"one/x": 50, "y": 5} and folder.child("one").names() == {"x": 50}
    folder.fetch("one/x", str(tmp_path / "copy"), 50)
    assert (tmp_path / "copy").read_bytes() == content and folder.read("y") == b"small" and folder.head("y")[0] == 5
    folder.delete("y")
    folder.delete("y")
    assert folder.read("y") is None and folder.head("y") is None
    with pytest.raises(VanishedError, match="y in --data_dir=s3://.*/ä b is not there"):
        folder.fetch("y", str(tmp_path / "copy"), 5)


def test_writes_on_conditions(faults):
    folder = faults.folder()
    second = store_conditions.check(folder)
    third = folder.replace("x", b"3", second, certain=True)
    assert folder.replace("x", b"3", second, certain=True).tag == third.tag  # the store had answered badly
    with pytest.raises(TakenError):
        folder.replace("x", b"4", second, certain=True)
    with pytest.raises(TakenError):
        folder.replace("x", b"4", None, certain=True)
    assert folder.read("x") == b"3"
    folder.replace("x", b"4", None, certain=False)
    assert folder.read("x") == b"4"


def test_a_store_that_throttles_is_asked_again_until_the_deadline(faults):
    folder = faults.folder()
    folder.write("x", b"1")
    faults.add("GET", "/x", s3_server.SLOW_DOWN, times=3)
    assert folder.read("x") == b"1"
    faults.add("GET", "/x", s3_server.SLOW_DOWN)
    start = time.monotonic()
    with pytest.raises(StoreError, match="x in --data_dir=s3://.* cannot be read .SlowDown: Please reduce") as error:
        folder.read("x")
    assert 1 < time.monotonic() - start < 20 and error.value.exit_code == 75


@pytest.mark.parametrize("fault, message", [
    (s3_server.DENIED, "no permission .AccessDenied.: allow reading"),
    (s3_server.WRONG_KEY, "does not know these credentials.*correct AWS_ACCESS_KEY_ID")])
def test_what_no_repetition_mends_is_told_at_once(faults, fault, message):
    faults.add("PUT", "/x", fault)
    with pytest.raises(UserError, match=f"^--data_dir=s3://.*: .*{message}") as error:
        faults.folder().write("x", b"1")
    assert error.value.exit_code == 2 and len(faults.seen) == 1


@pytest.mark.parametrize("method, fault, message", [
    ("GET", (301, b""), "in another region, or behind another endpoint .*set AWS_REGION"),
    ("HEAD", (400, b""), "refuses the request, and would again .*credentials have expired"),
    ("PUT", (404, b""), "cannot be written .*correct the bucket's name"),
    ("GET", (404, b"<html>no</html>"), "a web page answers in the store's place .*see AWS_ENDPOINT_URL"),
    ("GET", (407, b""), "a proxy before the store wants a password"),
    ("GET", (403, b"<Error><Code>RequestTimeTooSkewed</Code></Error>"), "the clock of this machine is wrong"),
    ("PUT", (403, b"<Error><Code>QuotaExceeded</Code></Error>"), "the store is full"),
    ("GET", (403, b"<Error><Code>InvalidObjectState</Code></Error>"), "is archived"),
    ("PUT", (501, b"<Error><Code>NotImplemented</Code></Error>"), "cannot do this, which may be a write on")])
def test_each_refusal_has_its_own_remedy(faults, method, fault, message):
    faults.add(method, "/x", fault)
    folder = faults.folder(deadline_s=1.5)
    with pytest.raises(UserError, match=message) as error:
        dict(GET=lambda: folder.read("x"), HEAD=lambda: folder.head("x"), PUT=lambda: folder.write("x", b"1"))[method]()
    assert error.value.exit_code == 2


@pytest.mark.parametrize("method, fault", [
    ("GET", (200, b"<html>Log in</html>")), ("HEAD", (200, b"<html>Log in</html>")),  # a proxy's
    ("PUT", (409, b"<Error><Code>OperationAborted</Code></Error>")), ("GET", (412, b""))])
def test_what_a_repetition_may_mend_has_the_exit_code_of_that(faults, method, fault):
    faults.add(method, "/x", fault)
    folder = faults.folder(deadline_s=0.5)
    with pytest.raises(StoreError) as error:
        dict(GET=lambda: folder.read("x"), HEAD=lambda: folder.head("x"), PUT=lambda: folder.write("x", b"1"))[method]()
    assert error.value.exit_code == 75


@pytest.mark.parametrize("name, value, message", [
    ("AWS_ENDPOINT_URL", "", "AWS_ENDPOINT_URL is set, and empty"), ("AWS_REGION", "", "AWS_REGION is set, and empty"),
    ("AWS_ACCESS_KEY_ID", "key\n", "AWS_ACCESS_KEY_ID has a blank, a line end"),
    ("AWS_SECRET_ACCESS_KEY", "secret\n", "AWS_SECRET_ACCESS_KEY has a blank, a line end"),
    ("AWS_ENDPOINT_URL", "127.0.0.1:9000", "is no address of a server: it is http://HOST:PORT"),
    ("AWS_ENDPOINT_URL", "HTTP://127.0.0.1:9000", "is no address of a server"),
    ("AWS_ENDPOINT_URL", "http://127.0.0.1:9000/bucket/", "ends with the bucket")])
def test_settings_that_the_library_panics_at_or_takes_wrongly(endpoint, monkeypatch, name, value, message):
    del endpoint
    monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match=f"^--workdir=s3://bucket/x: {name}.*{message.removeprefix(name)}") as error:
        s3_server.folder("s3://bucket/x", "workdir", 1.0)
    assert "secret\n" not in str(error.value)


def test_a_panic_of_the_library_is_an_error_of_settings():
    panic = type("PanicException", (BaseException,), {})
    with pytest.raises(UserError, match="^--workdir=s3://b/x: the store's library cannot work with its .*boom"), \
         told("--workdir=s3://b/x", "read"):
        raise panic("boom")


def test_a_bucket_that_is_absent_and_settings_that_are_wrong(faults, endpoint, monkeypatch):
    del faults
    folder = s3_server.folder("s3://no-such-bucket/x", "workdir")
    for work in (lambda: folder.read("y"), folder.names, lambda: folder.write("y", b"1")):
        with pytest.raises(UserError, match="^--workdir=s3://no-such-bucket/x: there is no such bucket"):
            work()
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    closed = s3_server.folder("s3://closed/x", "workdir", 1.0)
    with pytest.raises(StoreError, match="did not answer as it should until the deadline"):
        closed.read("y")
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    with pytest.raises(UserError, match="there is no such bucket"):  # the corrected address counts, in one process too
        s3_server.folder("s3://closed/x", "workdir", 1.0).read("y")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere.json")
    with pytest.raises(UserError, match="^--workdir=gs://bucket/x: the store's settings in the environment are wrong"):
        s3_server.folder("gs://bucket/x", "workdir", 1.0)


def test_a_package_that_is_absent_is_named(monkeypatch):
    monkeypatch.delattr("clrec_tf.stores.object_store")
    monkeypatch.delitem(sys.modules, "clrec_tf.stores.object_store")
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(UserError, match="--input=s3://bucket/x needs the package obstore.*'clrec_tf.stores.'"):
        s3_server.folder("s3://bucket/x", "input", 1.0)


def test_an_upload_cut_in_the_middle_leaves_nothing(faults, tmp_path, monkeypatch):
    monkeypatch.setattr(object_store, "PART_BYTES", 5 << 20)
    (tmp_path / "big").write_bytes(os.urandom(11 << 20))
    folder = faults.folder(deadline_s=30.0)
    faults.add("PUT", "partNumber=2", s3_server.CUT)
    with pytest.raises(StoreError, match="big in .* cannot be written"):
        faults.folder(deadline_s=1.0).upload("big", str(tmp_path / "big"))
    assert folder.names() == {} and folder.head("big") is None
    assert any(method == "DELETE" and "uploadId" in path for method, path in faults.seen)  # aborted
    faults.clear()
    faults.add("PUT", "partNumber=2", s3_server.CUT, times=1)
    folder.upload("big", str(tmp_path / "big"))
    assert folder.names() == {"big": 11 << 20}


def test_what_is_fetched_is_what_the_list_says(faults, tmp_path):
    folder, cache = faults.folder(), Cache(str(tmp_path / "cache"), 10**9)
    (tmp_path / "x").write_bytes(b"content")
    entry = entry_of(str(tmp_path), "x")
    for content, error in ((b"Content", "has 7 bytes and sha256"), (b"conte", "has 5 bytes|cannot be read")):
        folder.write("x", content)
        with pytest.raises(UserError, match=f"x (of|in) --data_dir=s3://.* {error}"):
            cache.fetch(folder, entry, str(tmp_path / "out"))
        assert not (tmp_path / "out").exists()
    folder.write("x", b"content")
    faults.add("GET", "/x", s3_server.CUT, times=1)  # an answer that ends early is asked for again
    cache.fetch(folder, entry, str(tmp_path / "out"))
    assert (tmp_path / "out").read_bytes() == b"content"
    faults.add("GET", "/x", s3_server.DENIED)
    cache.fetch(folder, entry, str(tmp_path / "again"))  # from the cache
    assert (tmp_path / "again").read_bytes() == b"content"


@pytest.mark.parametrize("damage", [b"cached", b"cacheD bytes"], ids=["shorter", "another byte"])
def test_a_file_of_the_cache_that_is_damaged_is_fetched_again(faults, tmp_path, damage):
    folder, cache = faults.folder(), Cache(str(tmp_path / "cache"), 10**9)
    (tmp_path / "x").write_bytes(b"cached bytes")
    folder.upload("x", str(tmp_path / "x"))
    entry = entry_of(str(tmp_path), "x")
    cache.fetch(folder, entry, str(tmp_path / "first"))
    kept = next(path for path in (tmp_path / "cache").rglob("*") if path.is_file())
    kept.write_bytes(damage)
    cache.fetch(folder, entry, str(tmp_path / "second"))
    assert (tmp_path / "second").read_bytes() == kept.read_bytes() == b"cached bytes"


def test_the_cache_keeps_its_bound_and_takes_nothing_from_its_users(faults, tmp_path):
    folder, cache, entries = faults.folder(), Cache(str(tmp_path / "cache"), 250), []
    for number in range(4):
        (tmp_path / f"x{number}").write_bytes(bytes([number]) * 100)
        folder.upload(f"x{number}", str(tmp_path / f"x{number}"))
        entries.append(entry_of(str(tmp_path), f"x{number}"))
    source = OnDemand(str(tmp_path / "view"), folder, cache, entries)
    with source.held(["x0", "x1"]):
        with source.held(["x0", "x2", "x3"]):
            assert sorted(os.listdir(tmp_path / "view")) == ["x0", "x1", "x2", "x3"]
            kept = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
            assert sum(path.stat().st_size for path in kept) <= 250
            assert (tmp_path / "view" / "x0").read_bytes() == bytes(100)
        assert sorted(os.listdir(tmp_path / "view")) == ["x0", "x1"] and source.comes_later("x3")
    assert os.listdir(tmp_path / "view") == []
    faults.add("GET", "/x2", s3_server.NO_KEY)
    faults.add("GET", "/x0", s3_server.NO_KEY)
    with pytest.raises(DataError, match="x0 in --data_dir=.* is not there"):
        source.take(["x0"])
    faults.add("HEAD", "/x1", s3_server.NO_KEY)
    with pytest.raises(DataError, match="x1 in --data_dir=.* is not there, or not with the 100 bytes"):
        source.check()


def test_files_that_make_others_visible_come_last(faults, tmp_path):
    for name in ("manifest.json", "a", "sub/b", "list"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    order = transfer.files_below(str(tmp_path))
    assert order == ["a", "list", "manifest.json", "sub/b"]
    transfer.upload(faults.folder(), str(tmp_path), order, ["list", "manifest.json"])
    written = [path.rpartition("/a/b/")[2] for method, path in faults.seen if method == "PUT"]
    assert written[2:] == ["list", "manifest.json"] and set(written[:2]) == {"a", "sub/b"}
    faults.add("PUT", "/sub/b", s3_server.DENIED)
    with pytest.raises(UserError, match="no permission"):
        transfer.upload(faults.folder("other"), str(tmp_path), order, ["list", "manifest.json"])
    assert set(faults.folder("other").names()) <= {"a"}


def test_a_lease_keeps_a_second_writer_out_and_ends_with_its_owner(faults):
    folder = faults.folder(deadline_s=1.5)
    with Lease(folder, 2.0, "training") as first:
        with pytest.raises(BusyError, match="in use by another training, process .* on host"), \
             Lease(folder, 2.0, "training"):
            pass
        time.sleep(2.5)
        first.check()
        assert json.loads(folder.read(lease_lib.NAME))["token"] == first.token
    assert folder.read(lease_lib.NAME) is None
    with Lease(folder, 1.0, "training") as second:
        assert second.token != first.token and second.certain


def test_a_dead_owners_lease_is_taken_over_after_its_time(faults):
    folder = faults.folder()
    folder.write(lease_lib.NAME, json.dumps(dict(token="t", process=7, host="h", since="s", seconds=1.0)).encode())
    start = time.monotonic()
    with Lease(folder, 60.0, "training") as lease:
        assert 0.9 < time.monotonic() - start < 15  # the dead one's own time
        lease.check()
    folder.write(lease_lib.NAME, b"no lease at all")
    with Lease(folder, 0.5, "training"):
        pass


def test_a_store_that_contradicts_itself_is_not_asked_for_ever(faults):
    faults.add("PUT", lease_lib.NAME, (412, b""))
    with pytest.raises(StoreError, match="refuses to write in_use.json where there is none"):
        Lease(faults.folder(deadline_s=10.0), 1.0, "training").__enter__()  # pylint: disable=unnecessary-dunder-call


def test_of_two_that_wait_for_a_dead_one_one_goes_on(faults):
    folder, results = faults.folder(), []
    folder.write(lease_lib.NAME, json.dumps(dict(token="t", seconds=0.5)).encode())

    def wait():
        try:
            with Lease(folder, 3.0, "training"):
                time.sleep(4)
            results.append("had it")
        except BusyError:
            results.append("busy")

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == ["busy", "busy", "had it"]


def test_a_lease_counts_from_when_its_renewal_was_sent(faults):
    """An answer may come late: others count from when the renewal stands in the store."""
    folder, sent, write = faults.folder(), [], folder_lib.Folder.write

    class Late(folder_lib.Folder):
        """Answers late."""

        def write(self, name, content, mode=None):
            sent.append(time.monotonic())
            version = write(self, name, content, mode)
            time.sleep(0.1)
            return version

    with Lease(Late(folder.address, folder.flag, folder._backend), 0.6, "training") as lease:
        assert lease._seen <= sent[0]
        while len(sent) < 4:
            time.sleep(0.01)
        assert lease._seen <= sent[-1] - 0.1
        lease.check()


def test_a_lost_lease_is_noticed(faults):
    folder = faults.folder(deadline_s=1.0)

    def checked(lease):
        for _ in range(100):
            lease.check()
            time.sleep(0.1)
    with Lease(folder, 3.0, "training") as lease:
        folder.write(lease_lib.NAME, json.dumps(dict(token="t", process=7, host="h", since="s")).encode())
        with pytest.raises(BusyError, match="taken over by another training .process 7 on host h"):
            checked(lease)
    assert folder.read(lease_lib.NAME) is not None  # the other's stays
    folder.delete(lease_lib.NAME)
    with Lease(folder, 1.0, "training") as lease:
        faults.add("PUT", lease_lib.NAME, s3_server.SLOW_DOWN)
        with pytest.raises(StoreError, match="the lease could not be renewed for"):
            checked(lease)


def test_logs_are_fetched_as_files_folders_and_patterns(faults, tmp_path):
    folder = faults.folder("logs")
    for name in ("day=1/a.csv", "day=1/b.csv", "day=2/a.csv", "clicks.csv", "clicks.csv.old"):
        folder.write(name, name.encode())
    openers = {"input": files.reads_files, "impressions": files.reads_files}

    def fetched(value, **values):
        with s3_server.opened(tmp_path, openers, input=value, **values) as local:
            paths = [str(path) for path in (tmp_path / "work").rglob("*") if path.is_file() and path.suffix != ".lock"]
            return names.shown(local["input"]), sorted(names.shown(path) for path in paths)

    logs = f"{faults.bucket}/logs"
    assert fetched(f"{logs}/clicks.csv") == (f"{logs}/clicks.csv", [f"{logs}/clicks.csv"])
    assert fetched(f"{logs}/day=1")[1] == [f"{logs}/day=1/a.csv", f"{logs}/day=1/b.csv"]
    assert fetched(f"{logs}/day=*/a.csv")[1] == [f"{logs}/day=1/a.csv", f"{logs}/day=2/a.csv"]
    assert fetched(f"{logs}/day=2,{logs}/clicks.csv,/local.csv")[0] == f"{logs}/day=2,{logs}/clicks.csv,/local.csv"
    with pytest.raises(UserError, match="nothing is there"):
        fetched(f"{logs}/day=3")
    folder.write("day=2", b"")  # some tools mark folders so
    assert fetched(f"{logs}/day=2")[1] == fetched(f"{logs}/day=2*")[1] == [f"{logs}/day=2/a.csv"]
    folder.write("day=2", b"u,i,t")
    for both in ("day=2", "day=2*"):
        with pytest.raises(UserError, match="day=2 is an object of 5 bytes and a folder too"):
            fetched(f"{logs}/{both}")
    with pytest.raises(UserError, match="--format=movielens reads the files beside it too: give their folder"):
        fetched(f"{logs}/clicks.csv", format="movielens")
    faults.add("GET", "/a.csv", s3_server.NO_KEY)
    with pytest.raises(VanishedError, match="day=1/a.csv in --input=s3://.* is not there"):
        fetched(f"{logs}/day=1")
    assert not [path for path in (tmp_path / "work").iterdir()]
