"""Reading evaluated users and the catalogue: values, histories for the query tower, and every way a shard can lie."""
import dataclasses
import os

import clrec_tf  # pylint: disable=unused-import  (before tensorflow)
import numpy as np
import pytest
import tensorflow as tf

from clrec_tf.data.schema import Feature, Manifest, Schema, Shard, load_manifest, load_schema
from clrec_tf.data.catalogue import read_catalogue
from clrec_tf.data.catalogue import read_feature_values
from clrec_tf.data.held_out_examples import read_evaluation_set
from clrec_tf.errors import DataError
from tests.prepared_data import prepare_text

SCHEMA = Schema(
    num_items=4, item_rows=6, features=(Feature("brand", 5, 1, 4), Feature("tags", 9, 2, 8)), content_width=0,
    id_type="string", has_timestamps=True, num_users=3, total_clicks=20, split={}, settings={})


def example(**values):
    """A tf.train.Example from lists of int, float or bytes."""
    def feature(entries):
        if isinstance(entries[0], bytes):
            return tf.train.Feature(bytes_list=tf.train.BytesList(value=entries))
        if isinstance(entries[0], float):
            return tf.train.Feature(float_list=tf.train.FloatList(value=entries))
        return tf.train.Feature(int64_list=tf.train.Int64List(value=entries))
    return tf.train.Example(features=tf.train.Features(
        feature={name: feature(entries) for name, entries in values.items() if entries}))


def sequence(user_id, item_id, target_count=1, weight=1.0, **changes):
    """A user whose click i has time 100·i, brand 1 + i mod 4 and tags (i, 0)."""
    clicks = range(len(item_id))
    values = {"user_id": [user_id] if user_id is not None else [], "weight": [weight],
              "target_count": [target_count], "item_id": item_id,
              "timestamp": [100 * click for click in clicks], "f:brand": [1 + click % 4 for click in clicks],
              "f:tags": sum(([click % 9, 0] for click in clicks), [])}
    return example(**(values | changes))


def item(number, **changes):
    """An item of the catalogue."""
    return example(**({"item_id": [number], "count": [10 * number], "original_id": [f"ä{number}".encode()],
                       "f:brand": [number], "f:tags": [number, 0]} | changes))


def write(folder, **shards):
    """Writes shards {split: [[Example]]} and returns their manifest."""
    entries = {}
    for split, contents in shards.items():
        entries[split] = []
        for number, examples in enumerate(contents):
            name = f"{split}-{number}.tfrecord"
            with tf.io.TFRecordWriter(os.path.join(folder, name)) as writer:
                for example in examples:
                    writer.write(example.SerializeToString())
            entries[split].append(Shard(name, len(examples), 0, os.path.getsize(os.path.join(folder, name)), ""))
    return Manifest("", {split: tuple(files) for split, files in entries.items()})


def read(folder, *examples, schema=SCHEMA, **arguments):
    return read_evaluation_set(str(folder), "test", schema, write(folder, test=[list(examples)]), **arguments)


def test_users_and_targets_across_shards(tmp_path):
    manifest = write(tmp_path, test=[
        [sequence(7, [3, 5, 1])], [sequence(2, [4, 0, 2], target_count=2), sequence(9, [1])]])
    users = read_evaluation_set(str(tmp_path), "test", SCHEMA, manifest)
    assert users.user_ids.tolist() == [7, 2, 9]
    assert users.history_ids.tolist() == [3, 5, 4] and users.history_splits.tolist() == [0, 2, 3, 3]
    assert users.target_ids.tolist() == [1, 0, 2, 1] and users.target_splits.tolist() == [0, 1, 3, 4]
    assert users.next_clicks.tolist() == [1, 0, 1]
    assert users.history_features.tolist() == [[1, 0, 0], [2, 1, 0], [1, 0, 0]]  # brand, tag, tag
    assert users.history_times.tolist() == [0, 100, 0] and users.request_times.tolist() == [200, 100, 0]


def test_histories_are_cut_on_the_left_and_padded_on_the_right(tmp_path):
    users = read(tmp_path, sequence(0, [1, 2, 3, 4, 1]), sequence(1, [4, 2]), sequence(2, [3]))
    histories = users.histories(0, 3, max_history=3)
    assert histories.mask.tolist() == [[True] * 3, [True, False, False], [False] * 3]
    assert histories.item_rows.dtype == histories.time_gaps.dtype == np.int64
    assert histories.item_rows.tolist() == [
        [[2, 2, 1, 0], [3, 3, 2, 0], [4, 4, 3, 0]],  # the last three of four clicks, oldest first
        [[4, 1, 0, 0], [0] * 4, [0] * 4], [[0] * 4] * 3]
    assert histories.time_gaps.tolist() == [[300, 200, 100], [-1] * 3, [-1] * 3]  # a time stamp of 0 is unknown
    later = users.histories(1, 3, max_history=3)
    np.testing.assert_array_equal(later.item_rows, histories.item_rows[1:])
    np.testing.assert_array_equal(later.time_gaps, histories.time_gaps[1:])


def test_clicks_after_the_request_have_no_negative_gap(tmp_path):
    users = read(tmp_path, sequence(0, [1, 2], timestamp=[500, 400]))
    assert users.histories(0, 1, 2).time_gaps.tolist() == [[0, -1]]


def test_data_without_time_stamps_and_features(tmp_path):
    schema = dataclasses.replace(SCHEMA, features=(), has_timestamps=False)
    histories = read(tmp_path, sequence(0, [1, 2, 3]), schema=schema).histories(0, 1, 4)
    assert histories.item_rows.tolist() == [[[1], [2], [0], [0]]]
    assert histories.time_gaps.tolist() == [[-1] * 4] and histories.mask.tolist() == [[True, True, False, False]]


def test_users_of_weight_zero_are_ignored(tmp_path):
    assert read(tmp_path, sequence(3, [1, 2]), sequence(4, [1, 2], weight=0.0)).user_ids.tolist() == [3]


def test_a_sample_is_drawn_by_seed_across_batches(tmp_path):
    everyone = [sequence(number, [1 + number % 4, 2]) for number in range(1500)]  # more than a parsed batch
    samples = [read(tmp_path, *everyone, max_users=40, seed=seed) for seed in (0, 0, 1)]
    drawn = [sample.user_ids.tolist() for sample in samples]
    assert drawn[0] == drawn[1] == sorted(set(drawn[0])) and len(drawn[0]) == 40 and drawn[0] != drawn[2]
    assert max(drawn[0]) >= 1024
    assert samples[0].history_ids.tolist() == [1 + number % 4 for number in drawn[0]]


def test_catalogue(tmp_path):
    manifest = write(tmp_path, catalogue=[[item(1), item(2, title=[b"T"])], [item(3), item(4)]])
    catalogue = read_catalogue(str(tmp_path), SCHEMA, manifest)
    assert catalogue.item_rows.tolist() == [[number, number, number, 0] for number in (1, 2, 3, 4)]
    assert catalogue.counts.tolist() == [10, 20, 30, 40]
    assert catalogue.original_ids.tolist() == ["ä1", "ä2", "ä3", "ä4"]
    assert catalogue.titles.tolist() == ["", "T", "", ""]


def test_catalogue_with_integer_ids_and_no_titles(tmp_path):
    manifest = write(tmp_path, catalogue=[[item(number, original_id=[b"-%d0" % number]) for number in (1, 2, 3, 4)]])
    catalogue = read_catalogue(str(tmp_path), dataclasses.replace(SCHEMA, id_type="int"), manifest)
    assert catalogue.original_ids.dtype == np.int64 and catalogue.original_ids.tolist() == [-10, -20, -30, -40]
    assert catalogue.titles is None


@pytest.mark.parametrize("numbers,problem", [((1, 2, 4, 3), "must go on from 1"), ((1, 2, 3), "has 3 items")])
def test_catalogue_out_of_order_or_incomplete(tmp_path, numbers, problem):
    manifest = write(tmp_path, catalogue=[[item(number) for number in numbers]])
    with pytest.raises(DataError, match=problem):
        read_catalogue(str(tmp_path), SCHEMA, manifest)


@pytest.mark.parametrize("left_over", [0, 5, -1, -40])  # inside the length (silent), inside the data, between records
def test_a_truncated_shard_is_named(tmp_path, left_over):
    records = [sequence(number, [1, 2, 3]) for number in range(3)]
    manifest = write(tmp_path, test=[records, records])
    path = tmp_path / "test-1.tfrecord"
    record_bytes = path.stat().st_size // 3
    with open(path, "rb+") as file:
        file.truncate(2 * record_bytes + left_over)
    with pytest.raises(DataError, match=r"test-1\.tfrecord.*(holds 2 records|damaged)"):
        read_evaluation_set(str(tmp_path), "test", SCHEMA, manifest)


def test_a_flipped_byte_and_a_missing_shard_are_named(tmp_path):
    manifest = write(tmp_path, test=[[sequence(0, [1, 2])]])
    path = tmp_path / "test-0.tfrecord"
    content = bytearray(path.read_bytes())
    content[20] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"test-0\.tfrecord is damaged after 0 records"):
        read_evaluation_set(str(tmp_path), "test", SCHEMA, manifest)
    path.unlink()
    with pytest.raises(DataError, match=r"test-0\.tfrecord"):
        read_evaluation_set(str(tmp_path), "test", SCHEMA, manifest)


@pytest.mark.parametrize("bad,problem", [
    (dict(item_id=[1, 6]), r"item_id outside \[1, 6\)"), (dict(item_id=[0, 2]), "0 in a history"),
    (dict(item_id=[1, -1]), "item_id outside"), (dict(target_count=3), "target_count must be between 1"),
    (dict(target_count=0), "target_count must be between 1"), (dict(timestamp=[5]), "timestamp and item_id differ"),
    (dict(timestamp=[]), "timestamp and item_id differ"), ({"f:brand": [1, 5]}, r"f:brand outside \[0, 5\)"),
    ({"f:tags": [1, 2, 3]}, r"f:tags must have 2 value\(s\) per event"), (dict(user_id=None), "test-0.*user_id"),
])
def test_values_against_the_schema(tmp_path, bad, problem):
    with pytest.raises(DataError, match=problem):
        read(tmp_path, sequence(0, [1, 2]), sequence(**(dict(user_id=1, item_id=[1, 2]) | bad)))


@pytest.mark.parametrize("shards", [dict(), dict(test=[]), dict(test=[[]])])
def test_nobody_to_evaluate(tmp_path, shards):
    with pytest.raises(DataError, match="no user to evaluate in its part 'test'"):
        read_evaluation_set(str(tmp_path), "test", SCHEMA, write(tmp_path, **shards))


def test_a_prepared_log_is_read_back(tmp_path):
    rng = np.random.default_rng(9)
    log = {user: (rng.permutation(12)[:9] + 100).tolist() for user in range(12)}  # all 12 items in training
    rows = [f"{user},{item},{1000 * click + 1},b{item % 3}"
            for user, items in log.items() for click, item in enumerate(items)]
    data_dir = prepare_text(tmp_path, "\n".join(["user_id,item_id,timestamp,brand", *rows, ""]),
                            feature_columns=("brand",))
    schema, manifest = load_schema(data_dir), load_manifest(data_dir)
    catalogue = read_catalogue(data_dir, schema, manifest)
    users = read_evaluation_set(data_dir, "test", schema, manifest)
    original = dict(zip(catalogue.item_rows[:, 0].tolist(), map(int, catalogue.original_ids)))
    features = {item: row for item, row in zip(original.values(), catalogue.item_rows[:, 1:].tolist())}
    read_back = []
    for row in range(users.num_users):
        clicks = users.history_ids[users.history_splits[row]:users.history_splits[row + 1]].tolist()
        read_back.append([original[item] for item in clicks + [users.next_clicks[row]]])
        histories = users.histories(row, row + 1, 10)
        assert histories.item_rows[0, :8, 1:].tolist() == [features[original[item]] for item in clicks]
        assert histories.time_gaps[0].tolist() == [1000 * gap for gap in range(8, 0, -1)] + [-1, -1]
    assert sorted(read_back) == sorted(log.values())
    train_clicks = [item for items in log.values() for item in items[:-2]]
    assert catalogue.counts.tolist() == [train_clicks.count(item) for item in original.values()]


def test_values_of_features_by_number(tmp_path):
    # Trained on: u's a and b, v's b and a. Of their clicks q has four, p two; c and d are unknown, and so is m.
    log = ("user_id,item_id,timestamp,tags,kind\nu,a,1,p|q,k\nu,b,2,q,\nu,c,3,,m\nu,d,4,p,k\nv,b,5,q,k\n"
           "v,a,6,p|q,\n")
    data_dir = prepare_text(tmp_path, log, min_train_length=1, feature_columns=("kind",),
                            multi_feature_columns=("tags",))
    assert read_feature_values(data_dir) == {"kind": ["k"], "tags": ["q", "p"]}
    os.remove(os.path.join(data_dir, "feature_values.json"))
    assert read_feature_values(data_dir) == {}  # a folder from before the file was written
    load_manifest(data_dir)
