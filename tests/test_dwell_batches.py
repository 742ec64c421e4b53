"""Dwell times: from Examples to training batches, to evaluated histories and to the towers that read them."""
import collections
import dataclasses
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from clrec_tf.data.assignments import Assignments
from clrec_tf.data.epoch_plan import EpochPlan
from clrec_tf.data.held_out_examples import read_evaluation_set
from clrec_tf.data.input_pipeline import training_dataset
from clrec_tf.data import schema as schema_lib
from clrec_tf.errors import DataError
from clrec_tf.models.build import build_model
from clrec_tf.models.clrec import CLRec
from clrec_tf.models import encode
from clrec_tf.training.runtime import LocalRuntime
from clrec_tf.training.setup import set_up
from tests import small_run
from tests.prepared_data import prepare_text, read_split

T = 6


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    return small_run.prepared(tmp_path_factory.mktemp("dwell"), dwell_column="stayed")


def batches(data_dir, time_dropout=0.0, epochs=1, has_dwell=True):
    schema, manifest = schema_lib.load_schema(data_dir), schema_lib.load_manifest(data_dir)
    plan = EpochPlan(manifest.shards["train"], 16, 2, "sliding", 0)
    return list(training_dataset(data_dir, dataclasses.replace(schema, has_dwell=has_dwell), manifest, plan,
                                 Assignments(plan, epochs).remaining(), T, time_dropout).as_numpy_iterator())


def test_batches_have_the_dwell_times_of_their_histories(data_dir):
    found, expected = collections.Counter(), collections.Counter()
    for batch in batches(data_dir):
        assert batch["dwell"].dtype == np.int64
        for row in np.flatnonzero(batch["weight"]):
            found[batch["user_id"][row], *(tuple(values[row].tolist()) for values in (
                batch["history"][:, :, 0], batch["target"][:, 0:1], batch["time_gap"], batch["dwell"]))] += 1
    for record in read_split(data_dir, "train"):
        seconds = record["timestamp"]
        for target in range(1, len(seconds)):
            history = slice(max(0, target - T), target)
            padded = lambda values, filler: tuple((values + [filler] * T)[:T])
            expected[record["user_id"][0], padded(record["item_id"][history], 0), (record["item_id"][target],),
                     padded([seconds[target] - second for second in seconds[history]], -1),
                     padded([small_run.stayed(second) for second in seconds[history]], -1)] += 1
    assert found == expected and len(found) > 300


def test_dwell_of_the_target_is_not_there(tmp_path):
    log = "".join(f"{user},{click},{100 * click},{10 * click}\n" for user in range(3) for click in range(1, 7))
    folder = prepare_text(tmp_path, "user_id,item_id,timestamp,stayed\n" + log, dwell_column="stayed",
                          min_train_length=1)
    found = {tuple(row) for batch in batches(folder) for row in batch["dwell"][batch["weight"] > 0].tolist()}
    # Trained on are items 1 to 4; of each target what comes before it.
    assert found == {(10, -1, -1, -1, -1, -1), (10, 20, -1, -1, -1, -1), (10, 20, 30, -1, -1, -1)}


def test_dropout_hides_them_with_the_time_stamps(data_dir):
    dropped = []
    for batch, whole in zip(batches(data_dir, 0.25, 8), batches(data_dir, 0.0, 8)):
        hidden = (batch["time_gap"] == -1).all(1)
        np.testing.assert_array_equal(batch["dwell"], np.where(hidden[:, None], -1, whole["dwell"]))
        dropped += hidden[batch["weight"] > 0].tolist()
    assert 0.2 < np.mean(dropped) < 0.3
    # The same examples as without dwell times, whose training is what it was.
    for batch, without in zip(batches(data_dir, 0.25), batches(data_dir, 0.25, has_dwell=False)):
        assert set(batch) - set(without) == {"dwell"}
        for name in without:
            np.testing.assert_array_equal(batch[name], without[name])


def test_dropout_without_time_stamps(tmp_path):
    log = "".join(f"{user},{click},7\n" for user in range(40) for click in range(1, 12))
    folder = prepare_text(tmp_path, "user_id,item_id,stayed\n" + log, dwell_column="stayed", timestamp_column="")
    found = np.concatenate([batch["dwell"][batch["weight"] > 0] for batch in batches(folder, 0.5)])
    assert 0.4 < np.mean((found == -1).all(1)) < 0.6 and "time_gap" not in batches(folder)[0]


def small_model(data_dir):
    return build_model(small_run.config(data_dir, ""), schema_lib.load_schema(data_dir))


@pytest.mark.parametrize("reads", [False, True])
def test_only_models_that_read_them_are_given_them(data_dir, tmp_path, monkeypatch, reads):
    assert not small_model(data_dir).uses_dwell
    monkeypatch.setattr(CLRec, "uses_dwell", reads)
    run = set_up(small_run.config(data_dir, tmp_path), LocalRuntime())
    assert ("dwell" in next(iter(run.dataset()))) == reads
    result = run.call(iter(run.dataset()), tf.constant(1, tf.int64))
    assert np.isfinite(result["loss"].numpy())


def changed_shards(data_dir, split, change):
    """Rewrites the first shard of a split with the first record's dwell changed; the manifest's size with it."""
    manifest = schema_lib.load_manifest(data_dir)
    first, *others = manifest.shards[split]
    path = pathlib.Path(data_dir) / first.name
    records = [tf.train.Example.FromString(record) for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator()]
    values = records[0].features.feature["dwell"].int64_list.value
    values[:] = change(list(values))
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            writer.write(record.SerializeToString())
    first = dataclasses.replace(first, bytes=path.stat().st_size)
    schema_lib.save_manifest(data_dir, dataclasses.replace(
        manifest, shards={**manifest.shards, split: (first, *others)}))


@pytest.mark.parametrize("change", [lambda values: values[1:], lambda values: []])
def test_too_few_are_damage(tmp_path, change):
    data_dir = small_run.prepared(tmp_path, dwell_column="stayed")
    for split in ("train", "test"):
        changed_shards(data_dir, split, change)
    with pytest.raises(tf.errors.InvalidArgumentError, match="dwell is not one per click"):
        batches(data_dir)
    with pytest.raises(DataError, match=r"test-00000.*dwell and item_id differ in length"):
        evaluated(data_dir)


def test_what_is_below_zero_is_unknown(tmp_path):
    data_dir = small_run.prepared(tmp_path, dwell_column="stayed")
    for split in ("train", "test"):
        changed_shards(data_dir, split, lambda values: [-77] * len(values))
    assert min(batch["dwell"].min() for batch in batches(data_dir)) == -1
    users = evaluated(data_dir)
    assert users.histories(0, users.num_users, T).dwell.min() == -1


def evaluated(data_dir, **arguments):
    return read_evaluation_set(data_dir, "test", schema_lib.load_schema(data_dir), schema_lib.load_manifest(data_dir),
                               **arguments)


def expected_histories(data_dir):
    """user id -> dwell [T] of the last T clicks before the target, padded at the right."""
    found = {}
    for record in read_split(data_dir, "test"):
        last = [small_run.stayed(second) for second in record["timestamp"][:-1]][-T:]
        found[record["user_id"][0]] = last + [-1] * (T - len(last))
    return found


def test_evaluated_histories(data_dir):
    expected, users = expected_histories(data_dir), evaluated(data_dir)
    assert users.num_users == small_run.USERS and len(schema_lib.load_manifest(data_dir).shards["test"]) > 1
    some = users.take(np.array([40, 3, 17]))
    for subset in (users, some, users.sample(9, 1), evaluated(data_dir, max_users=9)):
        dwell = subset.histories(0, subset.num_users, T).dwell
        assert dwell.dtype == np.int64
        assert dwell.tolist() == [expected[user] for user in subset.user_ids.tolist()]
    assert users.histories(5, 8, 30).dwell[:, -1].tolist() == [-1] * 3  # no history is so long
    without = dataclasses.replace(users, history_dwell=None)
    assert (without.histories(0, 9, T).dwell == -1).all() and without.take(np.array([1])).history_dwell is None


def test_towers_get_them(data_dir, monkeypatch):
    monkeypatch.setattr(encode, "CHUNK_USERS", 7)  # 60 users are 8 whole chunks and a part
    users, expected = evaluated(data_dir), expected_histories(data_dir)
    model = small_model(data_dir)
    model.user_vectors = lambda items, mask, gaps, dwell, events, query: tf.cast(dwell, tf.float32)
    model.user_intents = lambda items, mask, gaps, dwell, events, query: (
        tf.stack([dwell, gaps], 1), tf.cast(dwell, tf.float32)[:, :2], tf.zeros_like(dwell[:, :2], tf.int32) + [4, 2])
    encoder = encode.Encoder(model, T)
    dwell = np.array([expected[user] for user in users.user_ids.tolist()])
    np.testing.assert_array_equal(encoder.user_vectors(users), dwell)
    vectors, weights, numbers = encoder.user_intents(users)
    np.testing.assert_array_equal(vectors, np.stack([dwell, users.histories(0, users.num_users, T).time_gaps], 1))
    np.testing.assert_array_equal(weights, dwell[:, :2])
    np.testing.assert_array_equal(numbers, [[4, 2]] * users.num_users)


def test_clrec_has_one_intent_and_reads_no_dwell(data_dir):
    users = evaluated(data_dir)
    model = small_model(data_dir)
    encoder = encode.Encoder(model, T)
    vectors, weights, numbers = encoder.user_intents(users)
    np.testing.assert_array_equal(vectors[:, 0], encoder.user_vectors(users))
    assert vectors.shape == (users.num_users, 1, 8) and (weights == 1).all() and weights.shape == (users.num_users, 1)
    assert numbers.dtype == np.int32 and numbers.shape == (users.num_users, 1) and not numbers.any()
    np.testing.assert_array_equal(
        encoder.user_vectors(dataclasses.replace(users, history_dwell=None)), encoder.user_vectors(users))
