"""The plan and the pipeline: every example of an epoch exactly once, windows as a plain loop cuts them."""
import collections
import dataclasses
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from clrec_tf.data.assignments import Assignments
from clrec_tf.data.epoch_plan import EpochPlan
from clrec_tf.data.input_pipeline import training_dataset
from clrec_tf.data import schema as schema_lib
from clrec_tf.errors import DataError
from tests.prepared_data import read_split
from tests.small_run import prepared

T, B = 6, 16


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    return prepared(tmp_path_factory.mktemp("pipeline"))


def batches(data_dir, mode="sliding", first_step=0, epochs=1, seed=0, shuffle_shards=2, time_dropout=0.0, batch_size=B):
    schema, manifest = schema_lib.load_schema(data_dir), schema_lib.load_manifest(data_dir)
    plan = EpochPlan(manifest.shards["train"], batch_size, shuffle_shards, mode, seed)
    dataset = training_dataset(data_dir, schema, manifest, plan, Assignments(plan, epochs, first_step).remaining(), T,
                               time_dropout)
    return plan, list(dataset.as_numpy_iterator())


def rows_of(batch_list):
    """Every example of weight > 0 as a comparable tuple."""
    for batch in batch_list:
        for i in np.flatnonzero(batch["weight"] > 0):
            n = batch["length"][i]
            assert not batch["history"][i, n:].any() and (batch["time_gap"][i, n:] == -1).all()
            yield (int(batch["user_id"][i]), tuple(map(tuple, batch["history"][i, :n].tolist())),
                   tuple(batch["target"][i].tolist()), tuple(batch["time_gap"][i, :n].tolist()))


def expected_rows(data_dir, mode):
    """The same by a loop over the records."""
    for record in read_split(data_dir, "train"):
        rows = list(zip(record["item_id"], record["f:category"]))
        times = record["timestamp"]
        for target in range(1, len(rows)) if mode == "sliding" else [len(rows) - 1]:
            first = max(0, target - T)
            yield (record["user_id"][0], tuple(rows[first:target]), rows[target],
                   tuple(times[target] - t for t in times[first:target]))


@pytest.mark.parametrize("mode", ["last", "sliding"])
@pytest.mark.parametrize("shuffle_shards", [1, 3, 100])
def test_an_epoch_holds_every_example_exactly_once(data_dir, mode, shuffle_shards):
    plan, read = batches(data_dir, mode, shuffle_shards=shuffle_shards)
    assert collections.Counter(rows_of(read)) == collections.Counter(expected_rows(data_dir, mode))
    assert len(read) == plan.steps(0) == plan.epoch_ends(1)[0]
    assert all(batch["weight"].shape == (B,) for batch in read)


def test_epochs_differ_in_order_and_agree_in_content(data_dir):
    plan, read = batches(data_dir, epochs=2)
    ends = plan.epoch_ends(2)
    first, second = list(rows_of(read[:ends[0]])), list(rows_of(read[ends[0]:]))
    assert first != second and collections.Counter(first) == collections.Counter(second)


def test_examples_are_shuffled_across_users(data_dir):
    _, read = batches(data_dir, shuffle_shards=4)
    users = [row[0] for row in rows_of(read)]
    same_as_before = np.mean(np.array(users[1:]) == np.array(users[:-1]))
    assert same_as_before < 0.1  # 0.02 to be expected of 60 users, above 0.85 without a shuffle


@pytest.mark.parametrize("first_step", [1, 7, 20, 43])
def test_going_on_gives_the_rest_bit_for_bit(data_dir, first_step):
    _, whole = batches(data_dir, epochs=2, time_dropout=0.3)
    _, rest = batches(data_dir, epochs=2, time_dropout=0.3, first_step=first_step)
    assert len(rest) == len(whole) - first_step
    for a, b in zip(rest, whole[first_step:]):
        tf.nest.map_structure(np.testing.assert_array_equal, a, b)


def test_seed_decides_the_order(data_dir):
    first, again, other = (list(rows_of(batches(data_dir, seed=seed)[1])) for seed in (0, 0, 1))
    assert first == again and first != other


def test_time_dropout_hides_all_times_of_an_example_or_none(data_dir):
    _, read = batches(data_dir, epochs=20, time_dropout=0.25)
    hidden = []
    for batch in read:
        for i in np.flatnonzero(batch["weight"] > 0):
            gaps = batch["time_gap"][i, :batch["length"][i]]
            assert (gaps == -1).all() or (gaps >= 0).all()
            hidden.append((gaps == -1).all())
    assert 0.22 < np.mean(hidden) < 0.28


def test_one_pool_is_shuffled_anew_in_every_epoch(tmp_path):
    data_dir = prepared(tmp_path, shard_records=1000)  # one shard: the order of shards cannot hide the shuffle
    plan, read = batches(data_dir, epochs=2)
    assert len(plan.pools(0)) == 1 and plan.pools(0)[0].shards == plan.pools(1)[0].shards == (0,)
    first, second = list(rows_of(read[:len(read) // 2])), list(rows_of(read[len(read) // 2:]))
    assert np.mean([a == b for a, b in zip(first, second)]) < 0.1  # place by place
    assert sorted(first) == sorted(second)


def test_time_dropout_falls_on_other_places_of_each_batch(data_dir):
    _, read = batches(data_dir, epochs=2, time_dropout=0.5)
    places = [tuple((batch["time_gap"] == -1).all(axis=1)) for batch in read if (batch["weight"] > 0).all()]
    assert len(places) > 30 and len(set(places)) > 0.9 * len(places)  # 2^16 masks are equally likely


def one_shard(folder, *records):
    """A data folder like `prepared` with the given training records alone -> (it, schema, manifest)."""
    data_dir = prepared(folder, shard_records=1000)
    schema, manifest = schema_lib.load_schema(data_dir), schema_lib.load_manifest(data_dir)
    path = pathlib.Path(data_dir) / manifest.shards["train"][0].name
    with tf.io.TFRecordWriter(str(path)) as writer:
        for user, values in enumerate(records):
            example = tf.train.Example()
            clicks = len(values["item_id"])
            values = dict(dict(user_id=[user], target_count=[1], category=[1] * clicks, timestamp=range(5, 5 + clicks),
                               weight=[1.0]), **values)
            for name, value in values.items():
                kind = "float_list" if name == "weight" else "int64_list"
                feature = example.features.feature["f:category" if name == "category" else name]
                getattr(feature, kind).value.extend(value)
            writer.write(example.SerializeToString())
    events = sum(len(values["item_id"]) for values in records)
    shard = schema_lib.Shard(path.name, len(records), events, 0, "")
    return data_dir, schema, dataclasses.replace(manifest, shards={"train": (shard,)})


def batches_of(data, mode):
    data_dir, schema, manifest = data
    plan = EpochPlan(manifest.shards["train"], 4, 1, mode, 0)
    return list(training_dataset(data_dir, schema, manifest, plan, Assignments(plan, 1).remaining(), T).as_numpy_iterator())


def test_a_sequence_of_one_click_has_no_weight(tmp_path):
    plan = EpochPlan((schema_lib.Shard("a", 3, 3, 1, ""),), 2, 1, "last", 0)
    assert plan.steps(0) == 2
    read, = batches_of(one_shard(tmp_path, dict(item_id=[3]), dict(item_id=[4, 5]), dict(item_id=[6])), "last")
    assert {user: weight for user, weight in zip(read["user_id"][:3], read["weight"][:3])} == {0: 0, 1: 1, 2: 0}
    assert read["weight"][3] == 0  # the place that fills the batch
    with pytest.raises(DataError, match="shorter than two"):
        EpochPlan((schema_lib.Shard("a", 3, 3, 1, ""),), 2, 1, "sliding", 0)


def test_gaps_without_a_time_stamp_are_unknown(tmp_path):
    clicks = [([0, 5, 9], [-1, 4]), ([7, -3, 9], [2, -1]), ([4, 5, 0], [-1, -1]), ([-4, -3, -2], [-1, -1])]
    data = one_shard(tmp_path, *(dict(item_id=[1, 2, 3], timestamp=times) for times, _ in clicks))
    read, = batches_of(data, "last")
    assert (read["weight"] == 1).all()
    assert {int(user): gaps[:2].tolist() for user, gaps in zip(read["user_id"], read["time_gap"])} == {
        user: gaps for user, (_, gaps) in enumerate(clicks)}


def damaged(data_dir, change):
    """First training shard changed by a function of its bytes, manifest sizes adjusted so that only reading can tell."""
    manifest = schema_lib.load_manifest(data_dir)
    shards = list(manifest.shards["train"])
    path = pathlib.Path(data_dir) / shards[0].name
    path.write_bytes(change(path.read_bytes()))
    shards[0] = dataclasses.replace(shards[0], bytes=path.stat().st_size)
    schema_lib.save_manifest(data_dir, dataclasses.replace(manifest, shards={**manifest.shards, "train": tuple(shards)}))


def record_ends(data):
    ends, at = [], 0
    while at < len(data):
        at += 16 + int.from_bytes(data[at:at + 8], "little")
        ends.append(at)
    return ends


@pytest.mark.parametrize("change, message", [
    (lambda d: d[:record_ends(d)[4]], "a file ends early or late"),  # cut between records: silent in TensorFlow
    (lambda d: d[:record_ends(d)[4] + 7], "a file ends early or late"),  # cut inside a length: silent too
    (lambda d: d + d[:record_ends(d)[0]], "a file ends early or late"),  # a record too many
    (lambda d: d[:record_ends(d)[4] + 20], "truncated"),
    (lambda d: d[:40] + bytes([d[40] ^ 255]) + d[41:], "corrupted"),
])
def test_damaged_shards_are_errors(tmp_path, change, message):
    data_dir = prepared(tmp_path)
    damaged(data_dir, change)
    with pytest.raises((tf.errors.InvalidArgumentError, tf.errors.DataLossError), match=message):
        plan, read = batches(data_dir)
        assert len(read) == plan.steps(0)


def test_an_empty_shard_cannot_hold_what_the_manifest_says(tmp_path):
    data_dir = prepared(tmp_path)
    damaged(data_dir, lambda data: b"")
    with pytest.raises(DataError, match="train-00000-of-00004.tfrecord has 16 records and 132 clicks in 0 bytes"):
        batches(data_dir)


@pytest.mark.parametrize("record, message", [
    (dict(item_id=[1, 31]), "item_id is outside"),
    (dict(item_id=[0, 2]), "item_id is outside"),
    (dict(category=[1, 99]), "f:category has a value outside"),
    (dict(category=[1]), r"f:category does not have 1 value\(s\) per click"),
    (dict(timestamp=[1]), "timestamp is not one per click"),
    (dict(user_id=[]), "user_id is not one value"),
    (dict(weight=[float("nan")]), "a weight is negative or not finite"),
])
def test_mis_declared_records_are_errors(tmp_path, record, message):
    data = one_shard(tmp_path, dict(dict(item_id=[1, 2]), **record))
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        batches_of(data, "sliding")
