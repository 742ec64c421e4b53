"""The same against Ceph's gateway, which checks signatures; where its programs are installed."""
import os

import pytest

from clrec_tf.errors import BusyError
from clrec_tf.errors import UserError
from clrec_tf.stores.lease import Lease
from tests import ceph_gateway
from tests import s3_server
from tests import small_run
from tests import store_conditions
from tests import test_stored_runs

pytest.importorskip("boto3")
pytestmark = [pytest.mark.long, pytest.mark.skipif(
    not ceph_gateway.installed(), reason="needs Ceph's programs: apt-get install radosgw ceph-mon ceph-osd")]
KEY, SECRET = "key", "a secret of forty characters or fewer"


@pytest.fixture(scope="module", name="endpoint")
def fixture_endpoint(tmp_path_factory):
    with ceph_gateway.gateway(tmp_path_factory.mktemp("ceph"), KEY, SECRET) as endpoint:
        ceph_gateway.make_bucket(endpoint, "bucket", KEY, SECRET)
        yield endpoint


@pytest.fixture(name="store")
def fixture_store(endpoint, monkeypatch):
    """The bucket, as in `conftest`."""
    keys = dict(AWS_ACCESS_KEY_ID=KEY, AWS_SECRET_ACCESS_KEY=SECRET, AWS_REGION="us-east-1")
    s3_server.point_at(endpoint, monkeypatch, keys)
    return s3_server.Bucket("bucket", deadline_s=5.0)


def test_objects_conditions_and_leases(store, tmp_path):
    folder = store("ä/b c")
    content = os.urandom(20 << 20)
    (tmp_path / "big").write_bytes(content)
    folder.upload("big+1", str(tmp_path / "big"))
    folder.fetch("big+1", str(tmp_path / "copy"), len(content))
    assert (tmp_path / "copy").read_bytes() == content and folder.names() == {"big+1": len(content)}
    store_conditions.check(folder)
    folder.delete("x")
    assert folder.read("x") is None and folder.head("x") is None
    with Lease(folder, 2.0, "training") as lease, pytest.raises(BusyError, match="in use by another training"), \
         Lease(folder, 2.0, "training"):
        pass
    assert lease.certain and folder.read("in_use.json") is None


def test_wrong_keys_and_absent_buckets_are_told(store, monkeypatch):
    del store
    absent = s3_server.folder("s3://absent/x", "workdir", 5.0)
    with pytest.raises(UserError, match="^--workdir=s3://absent/x: there is no such bucket"):
        absent.read("y")
    for name, value in (("AWS_SECRET_ACCESS_KEY", "another"), ("AWS_ACCESS_KEY_ID", "nobody")):
        monkeypatch.setenv(name, value)
        folder = s3_server.folder("s3://bucket/x", name, 5.0)
        for work in (lambda: folder.read("y"), folder.names, lambda: folder.write("y", b"1")):
            with pytest.raises(UserError, match="does not know these credentials"):
                work()


def test_a_run_in_the_store_is_as_in_a_folder(store, tmp_path):
    local_data = small_run.prepared(tmp_path)
    assert small_run.run(small_run.config(local_data, tmp_path / "whole")) == 0
    test_stored_runs.prepare(store, tmp_path)
    assert test_stored_runs.train(store, tmp_path, epochs=1) == 0
    assert test_stored_runs.train(store, tmp_path) == 0  # goes on from there
    assert test_stored_runs.rows(store) == small_run.losses(tmp_path / "whole")
