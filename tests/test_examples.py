"""The data folder: bytes against the contract of `schema`, shards, and what a full disk or a kill leaves behind."""
import hashlib
import os
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf

from clrec_tf.config import Config
from clrec_tf.data.held_out_examples import read_evaluation_set
from clrec_tf.data import schema as schema_lib
from clrec_tf.errors import DataError
from clrec_tf.errors import DiskFullError
from clrec_tf.models.build import build_model
from clrec_tf.models.encode import Encoder
from clrec_tf.preparation import data_folder
from clrec_tf.system import atomic

from tests import forked
from tests import prepared_data

# User u: a b c d at 1..4, v: b a at 5, 6; a's tags are p q.
LOG = ("user_id,item_id,timestamp,tags,kind\nu,a,1,p|q,k\nu,b,2,q,\nu,c,3,,m\nu,d,4,p,k\nv,b,5,q,k\nv,a,6,p|q,\n")
SETTINGS = dict(min_train_length=1, feature_columns=("kind",), multi_feature_columns=("tags",))
REPOSITORY = pathlib.Path(__file__).parents[1]


def test_records_by_hand(tmp_path):
    data_dir = prepared_data.prepare_text(tmp_path, LOG, **SETTINGS)
    # Trained on: u a b, v b a. So a and b have 2 clicks each, a is id 1 and b id 2; c and d are unknown.
    # kind k has 2 + 2 clicks: a's first is k, b's first is k. tags: q has 4, p has 2, so q = 1 and p = 2.
    train = sorted(prepared_data.read_split(data_dir, "train"), key=lambda record: record["user_id"])
    assert train == [
        {"user_id": [0], "weight": [1.0], "target_count": [1], "item_id": [1, 2], "timestamp": [1, 2],
         "f:kind": [1, 1], "f:tags": [2, 1, 1, 0]},
        {"user_id": [1], "weight": [1.0], "target_count": [1], "item_id": [2, 1], "timestamp": [5, 6],
         "f:kind": [1, 1], "f:tags": [1, 0, 2, 1]}]
    # The unknown validation target c keeps its place as 0; as history of the test target d it is dropped.
    assert prepared_data.read_split(data_dir, "valid") == [
        {"user_id": [0], "weight": [1.0], "target_count": [1], "item_id": [1, 2, 0], "timestamp": [1, 2, 3],
         "f:kind": [1, 1, 0], "f:tags": [2, 1, 1, 0, 0, 0]}]
    assert prepared_data.read_split(data_dir, "test") == [
        {"user_id": [0], "weight": [1.0], "target_count": [1], "item_id": [1, 2, 0], "timestamp": [1, 2, 4],
         "f:kind": [1, 1, 0], "f:tags": [2, 1, 1, 0, 0, 0]}]
    assert prepared_data.read_split(data_dir, "catalogue") == [
        {"item_id": [1], "count": [2], "original_id": [b"a"], "last_click": [6], "f:kind": [1],
         "f:tags": [2, 1]},
        {"item_id": [2], "count": [2], "original_id": [b"b"], "last_click": [5], "f:kind": [1], "f:tags": [1, 0]}]
    schema = schema_lib.load_schema(data_dir)
    assert (schema.num_items, schema.item_rows, schema.total_clicks, schema.num_users) == (2, 3, 4, 2)
    assert schema.id_type == "string" and schema.has_timestamps
    # Rows: missing, the known values and one hash bucket.
    assert schema.features == (schema_lib.Feature("kind", 3, 1, 1), schema_lib.Feature("tags", 4, 2, 2))


def test_buckets_keep_unknown_items_in_histories_but_not_as_targets(tmp_path):
    data_dir = prepared_data.prepare_text(tmp_path, LOG, oov_buckets=4, **SETTINGS)
    record, = prepared_data.read_split(data_dir, "test")
    assert record["item_id"][:2] == [1, 2] and 3 <= record["item_id"][2] <= 6 and record["item_id"][3] == 0
    assert record["timestamp"] == [1, 2, 3, 4]
    assert record["f:kind"] == [1, 1, 0, 0]  # what shares a bucket has no features of its own
    assert schema_lib.load_schema(data_dir).item_rows == 7


def test_log_without_time_stamps_keeps_its_order(tmp_path):
    data_dir = prepared_data.prepare_text(tmp_path, "7 3\n8 3\n7 1\n7 3\n7 1\n8 1\n", format="sequence",
                                          min_train_length=1)
    # Trained on: 7's 3 1, 8's 3 1. Equal counts: 1 before 3.
    assert prepared_data.read_split(data_dir, "test") == [
        {"user_id": [0], "weight": [1.0], "target_count": [1], "item_id": [2, 1, 2, 1]}]
    assert not schema_lib.load_schema(data_dir).has_timestamps
    assert schema_lib.load_schema(data_dir).id_type == "int"


def test_ties_of_time_keep_the_order_of_the_file(tmp_path):
    rows = np.random.default_rng(0).integers(0, [1000, 50], [5000, 2]).tolist()  # 100 clicks in each second
    text = "user_id,item_id,timestamp\n" + "".join(f"u,{item},{second}\n" for item, second in rows)
    data_dir = prepared_data.prepare_text(tmp_path, text, oov_buckets=1)
    original = {record["item_id"][0]: int(record["original_id"][0])
                for record in prepared_data.read_split(data_dir, "catalogue")}
    train, = prepared_data.read_split(data_dir, "train")
    expected = [item for item, _ in sorted(rows, key=lambda row: row[1])[:-2]]
    assert [original.get(item) for item in train["item_id"]] == expected


def test_features_in_the_log_are_those_first_seen_in_time(tmp_path):
    text = "user_id,item_id,timestamp,kind\nu,a,9,late\nu,a,1,\nu,a,3,early\nu,b,4,early\n"
    data_dir = prepared_data.prepare_text(tmp_path, text, min_train_length=1, feature_columns=("kind",),
                                          oov_buckets=1, feature_oov_buckets=0)
    # Trained on: a a, of kind early, the only value known. The unknown b is a bucket, which has no features.
    assert schema_lib.load_schema(data_dir).features == (schema_lib.Feature("kind", 2, 1, 1),)
    assert prepared_data.read_split(data_dir, "test")[0]["f:kind"] == [1, 1, 0, 1]


def test_titles_and_dense_vectors(tmp_path):
    np.savez(tmp_path / "v.npz", ids=np.array(["b", "unused"]), vectors=np.array([[1.0, 2.0], [9.0, 9.0]]))
    (tmp_path / "i.tsv").write_text("item_id\ttitle\na\tCafé\n")
    data_dir = prepared_data.prepare_text(tmp_path, LOG, min_train_length=1, item_features=str(tmp_path / "i.tsv"),
                                          dense_features=str(tmp_path / "v.npz"))
    titles = [record["title"] for record in prepared_data.read_split(data_dir, "catalogue")]
    assert titles == [["Café".encode()], [b""]]
    content = np.load(os.path.join(data_dir, schema_lib.CONTENT_FILE))
    assert content.tolist() == [[0, 0], [0, 0], [1, 2]] and content.dtype == np.float32
    assert schema_lib.load_schema(data_dir).content_width == 2
    assert schema_lib.load_manifest(data_dir).content.records == 3


def many_users(count):
    return "user_id,item_id,timestamp\n" + "".join(
        f"{user},{(user * 3 + click) % 11},{user + click}\n" for user in range(count) for click in range(5))


def shard_bytes(data_dir):
    return {path.name: path.read_bytes() for path in pathlib.Path(data_dir).iterdir()}


def test_shards_and_manifest(tmp_path):
    data_dir = prepared_data.prepare_text(tmp_path, many_users(25), min_train_length=1, shard_records=10)
    manifest = schema_lib.load_manifest(data_dir)
    assert [(shard.name, shard.records, shard.events) for shard in manifest.shards["train"]] == [
        ("train-00000-of-00003.tfrecord", 10, 30), ("train-00001-of-00003.tfrecord", 10, 30),
        ("train-00002-of-00003.tfrecord", 5, 15)]
    assert manifest.records("test") == 25 and manifest.records("catalogue") == 11
    for name, content in shard_bytes(data_dir).items():
        entry = next((s for shards in manifest.shards.values() for s in shards if s.name == name), None)
        if entry:
            assert (entry.bytes, entry.sha256) == (len(content), hashlib.sha256(content).hexdigest())
    users = [record["user_id"][0] for record in prepared_data.read_split(data_dir, "train")]
    assert sorted(users) == list(range(25)) and users != sorted(users)


def test_equal_seeds_give_equal_bytes(tmp_path):
    first, again, other = (prepared_data.prepare_text(tmp_path, many_users(25), seed, name, min_train_length=1)
                           for seed, name in ((1, "a"), (1, "b"), (2, "c")))
    assert shard_bytes(first) == shard_bytes(again)
    for path in schema_lib.load_manifest(first).paths(first, "train"):
        # Keys in canonical order, so that equality does not depend on the process.
        for record in tf.data.TFRecordDataset(path).as_numpy_iterator():
            assert tf.train.Example.FromString(record).SerializeToString(deterministic=True) == record
    key = lambda record: record["user_id"]
    left, right = (prepared_data.read_split(folder, "train") for folder in (first, other))
    assert left != right and sorted(left, key=key) == sorted(right, key=key)


def test_damage_is_found(tmp_path):
    data_dir = prepared_data.prepare_text(tmp_path, many_users(5), min_train_length=1)
    path = pathlib.Path(data_dir) / "train-00000-of-00001.tfrecord"
    content = bytearray(path.read_bytes())
    content[20] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match="train-00000-of-00001.tfrecord has sha256"):
        schema_lib.load_manifest(data_dir, verify="sha256")


# Writing that fails or stops half way.

COMMAND = [sys.executable, "-m", "clrec_tf.prepare", "--min_train_length=1", "--shard_records=1"]


def command(tmp_path, data_dir, users):
    (tmp_path / "log.csv").write_text(many_users(users))
    return COMMAND + [f"--input={tmp_path / 'log.csv'}", f"--data_dir={data_dir}"]


def test_kill_leaves_nothing_that_looks_complete(tmp_path):
    data_dir = tmp_path / "data"
    process = forked.Popen(command(tmp_path, data_dir, 3000), cwd=REPOSITORY, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("data.incomplete-*/train-000[1-9]*")):
        assert process.poll() is None and time.monotonic() < deadline, "prepare was too fast or too slow to be killed"
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not data_dir.exists()
    leftover, lock = sorted(tmp_path.glob("data.incomplete-*"))
    assert lock == pathlib.Path(f"{leftover}.lock")
    assert not (leftover / schema_lib.MANIFEST_FILE).exists()
    with pytest.raises(DataError, match="no complete data set"):
        schema_lib.load_manifest(str(leftover))
    # The next call removes what was left, and completes.
    prepared_data.prepare_text(tmp_path, many_users(3), min_train_length=1)
    assert not leftover.exists() and not lock.exists() and len(prepared_data.read_split(str(data_dir), "test")) == 3


def test_what_another_still_writes_stays(tmp_path):
    with atomic.new_folder(str(tmp_path / "data"), "data_dir=data") as theirs:
        prepared_data.prepare_text(tmp_path, many_users(3), min_train_length=1)
        assert os.path.exists(theirs)
        os.rename(tmp_path / "data", tmp_path / "elsewhere")


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 64 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder], capture_output=True,
                             check=False)
    if mounted.returncode:
        pytest.skip("mounting a small file system needs root; the limit on file size is tested instead")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_full_disk(tmp_path, small_disk):
    with pytest.raises(DiskFullError, match="--data_dir=.*cannot be written.*choose another --data_dir"):
        prepared_data.prepare_text(tmp_path, many_users(2000), name=str(small_disk / "data"), min_train_length=1)
    assert not list(small_disk.iterdir())


LIMITED = """
import resource, runpy
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
runpy.run_module("clrec_tf.prepare", run_name="__main__", alter_sys=True)
"""


def test_limit_on_file_size(tmp_path):
    data_dir = tmp_path / "data"
    limited = forked.run(
        [sys.executable, "-c", LIMITED, *command(tmp_path, data_dir, 300)[3:], "--shard_records=300"], cwd=REPOSITORY,
        capture_output=True, text=True)
    assert limited.returncode == 2 and "error: --data_dir=" in limited.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["log.csv"]


def test_shard_shorter_than_written(tmp_path, monkeypatch):
    monkeypatch.setattr(data_folder.tf.io.TFRecordWriter, "write", lambda writer, record: None)
    with pytest.raises(OSError, match="has 0 bytes after 19 were written"):
        data_folder.write_shard(str(tmp_path), "s.tfrecord", [b"abc"], 1)


def test_hash_buckets_have_no_features_in_any_part(tmp_path):
    # Items 20 and above stand once, in one user's history: one bucket holds them all, though their kinds differ.
    rows = [f"u{user},{item},{10 * user + click},k{item % 5}" for user in range(30)
            for click, item in enumerate([1, 2, 20 + user, 3, 4, 60 + user, 90 + user, 1, 2 + user % 3])]
    data_dir = prepared_data.prepare_text(tmp_path, "\n".join(["user_id,item_id,timestamp,kind", *rows, ""]),
                                          oov_buckets=1, min_item_count=2, feature_columns=("kind",))
    schema, manifest = schema_lib.load_schema(data_dir), schema_lib.load_manifest(data_dir)
    bucket = schema.num_items + 1
    assert (schema.num_items, schema.item_rows) == (4, 6)
    kinds = {record["item_id"][0]: record["f:kind"][0] for record in prepared_data.read_split(data_dir, "catalogue")}
    for split in ("train", "valid", "test"):
        records = prepared_data.read_split(data_dir, split)
        assert len(records) == 30 and sum(record["item_id"].count(bucket) for record in records) == 90
        for record in records:
            assert record["f:kind"] == [kinds.get(item, 0) for item in record["item_id"]]
    # So a user's vector is the same alone and among others, of whom each distinct item is encoded once.
    users = read_evaluation_set(data_dir, "test", schema, manifest)
    encoder = Encoder(build_model(Config.of(embedding_dim=8, max_history=9), schema), 9)
    together = encoder.user_vectors(users)
    for row in (0, 1, 29):
        np.testing.assert_allclose(encoder.user_vectors(users.take(np.array([row]))), together[[row]], atol=1e-6)
    reverse = encoder.user_vectors(users.take(np.arange(29, -1, -1)))
    np.testing.assert_allclose(reverse[::-1], together, atol=1e-6)
