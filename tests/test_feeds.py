"""A worker's pool: its batches are those of the iterator, a pool is read once, and what is half read is not used."""
import os
import shutil
import threading

import numpy as np
import pytest
import tensorflow as tf

from clrec_tf.data.assignments import Assignments
from clrec_tf.data.epoch_plan import EpochPlan
from clrec_tf.data.input_pipeline import training_dataset
from clrec_tf.data import pools
from clrec_tf.data import schema as schema_lib
from clrec_tf.training import feeds
from clrec_tf.training.feeds import PoolFeed
from clrec_tf.training.runtime import LocalRuntime
from tests import query_world
from tests import small_run

T, DROPOUT = 6, 0.3


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    return small_run.prepared(tmp_path_factory.mktemp("training"), dwell_column="stayed")


class Reader:
    """A feed as one worker uses it."""

    def __init__(self, folder, mode="sliding", epochs=2, clicks_after=0):
        self.schema, manifest = schema_lib.load_schema(folder), schema_lib.load_manifest(folder)
        self.plan = EpochPlan(manifest.shards["train"], 16, 2, mode, 3, T, clicks_after)
        self.assignments = Assignments(self.plan, epochs)
        self.feed = PoolFeed(self.assignments, self.plan, manifest.paths(folder, "train"), self.schema, T, DROPOUT,
                             LocalRuntime().local_variable)
        self.expected = list(training_dataset(folder, self.schema, manifest, self.plan, self.assignments.remaining(), T,
                                              DROPOUT).as_numpy_iterator())

        @tf.function(input_signature=[self.feed.spec, tf.TensorSpec([], tf.int64)])
        def batch(work, step):
            batch_of, steps = self.feed.open(work)
            return batch_of(step), steps

        self._batch = batch

    def slice(self, worker, steps):
        """Batches of the worker's next slice."""
        steps, (work,) = self.feed.next(worker, steps)
        found = [self._batch(work, tf.constant(step, tf.int64)) for step in range(max(steps, 1))]
        assert all(int(count) == steps for _, count in found)
        return [tf.nest.map_structure(lambda tensor: tensor.numpy(), batch) for batch, _ in found][:steps]


@pytest.mark.parametrize("mode", ["sliding", "last", "all"])
def test_one_worker_gets_the_batches_of_the_iterator(data_dir, mode):
    reader, found = Reader(data_dir, mode), []
    while part := reader.slice(0, 3):
        found += part
    assert len(found) == len(reader.expected) > 5 and reader.assignments.taken == reader.assignments.total
    for batch, expected in zip(found, reader.expected):
        tf.nest.map_structure(np.testing.assert_array_equal, batch, expected)


@pytest.mark.parametrize("mode", ["sliding", "all"])
def test_features_of_requests_and_behaviours_travel_too(tmp_path, mode):
    reader = Reader(query_world.prepared(tmp_path), mode, epochs=1)
    found = [batch for _ in range(20) for batch in reader.slice(0, 3)]
    assert len(found) == len(reader.expected) and {"query", "event"} <= set(found[0])
    for batch, expected in zip(found, reader.expected):
        tf.nest.map_structure(np.testing.assert_array_equal, batch, expected)


def test_pools_in_turn_give_the_same_batches(data_dir):
    reader, found = Reader(data_dir, epochs=1), []
    for worker in [0, 1, 0, 2, 1, 0] * 50:  # one memory for all, so that it changes hands each time
        found += reader.slice(worker, 2)
    rows = lambda batches: sorted(batch["target"].tobytes() + batch["history"].tobytes() for batch in batches)
    assert rows(found) == rows(reader.expected)


def test_a_call_without_work_reads_nothing(data_dir):
    reader = Reader(data_dir)

    @tf.function
    def targets(work):
        batch_of, steps = reader.feed.open(work)
        found = tf.constant(0, tf.int64)
        for step in tf.range(steps):
            batch = batch_of(step)
            found += tf.reduce_sum([tf.reduce_sum(tf.cast(value, tf.int64)) for value in batch.values()])
        return found

    for limit, something in ((0, False), (2, True), (2, False)):
        reader.assignments.limit = limit
        _, (work,) = reader.feed.next(0, 3)
        assert (int(targets(work)) != 0) == something


def test_pools_of_later_epochs_may_have_more_shards():
    shards = [schema_lib.Shard(f"train-{i}", records, events, 0, "") for i, (records, events) in enumerate(
        [(1, 1), (1, 1), (2, 40)])]
    plan = EpochPlan(tuple(shards), 4, 2, "sliding", 1)
    sizes = {len(pool.shards) for epoch in range(6) for pool in plan.pools(epoch)}
    assert len(sizes) > 1 and max(sizes) == plan.max_shards == 2


def test_a_pool_is_read_once_and_what_fails_is_not_held(data_dir, tmp_path):
    folder = tmp_path / "data"
    shutil.copytree(data_dir, folder)
    reader = Reader(str(folder), epochs=1)
    first, second = reader.slice(0, 1), reader.slice(1, 1)  # of a pool each; the memory has the second now
    away = tmp_path / "away"
    for name in sorted(os.listdir(folder)):
        if name.startswith("train"):
            os.rename(folder / name, away.with_suffix("." + name))
    later = reader.plan.pools(0)[0].batches
    tf.nest.map_structure(np.testing.assert_array_equal, [*first, *second, *reader.slice(1, 1)],
                          [reader.expected[0], *reader.expected[later:later + 2]])
    for _ in range(2):
        with pytest.raises(tf.errors.NotFoundError):
            reader.slice(0, 1)  # the other pool, which is not there any more
    # The memory holds neither pool now: this one is read again, which fails too, rather than mixed with the other.
    with pytest.raises(tf.errors.NotFoundError):
        reader.slice(1, 1)


def test_a_slice_of_the_next_pool_does_not_wait_for_its_files(data_dir, tmp_path, monkeypatch):
    """They are gone when it begins: the pool was read while the first slice was used."""
    folder, read = tmp_path / "data", threading.Semaphore(0)
    shutil.copytree(data_dir, folder)

    def serialized_pool(files, records):
        whole = pools.serialized_pool(files, records)
        return whole.map(lambda found: tf.ensure_shape(tf.numpy_function(noted, [found], tf.string), [None]))

    def noted(found):
        read.release()
        return found

    monkeypatch.setattr(feeds, "serialized_pool", serialized_pool)
    reader = Reader(str(folder), epochs=1)
    found = reader.slice(0, 1)
    assert all(read.acquire(timeout=60) for _ in range(2))  # its own pool, and the next
    for name in os.listdir(folder):
        if name.startswith("train"):
            os.remove(folder / name)
    while part := reader.slice(0, 3):
        found += part
    for batch, expected in zip(found, reader.expected, strict=True):
        tf.nest.map_structure(np.testing.assert_array_equal, batch, expected)
