"""Pools that a worker reads ahead: read once, in the background, and never mixed up or half read."""
import threading

import pytest
import tensorflow as tf

from clrec_tf.training.pool_ahead import NO_POOL
from clrec_tf.training.pool_ahead import PoolAhead
from clrec_tf.training.runtime import LocalRuntime

DEADLINE_S = 60


class Reader:
    """One worker: pools of one number, read by a function that notes and may fail."""

    def __init__(self):
        self.read, self.failing, self.ended = [], set(), threading.Event()
        ahead = PoolAhead(self._dataset, [tf.int64, tf.string], [[], []], LocalRuntime().local_variable)
        pool = tf.TensorSpec([3], tf.int64)

        @tf.function(input_signature=[pool])
        def begin(numbers):
            return ahead.open().begin(numbers)

        @tf.function(input_signature=[pool])
        def take(numbers):
            return ahead.open().take(numbers)

        self._begin, self._take = begin, take

    def _dataset(self, pool):
        parse = lambda numbers: tf.numpy_function(self._parse, [numbers], [tf.int64, tf.string])
        return tf.data.Dataset.from_tensors(pool).map(parse)

    def _parse(self, numbers):
        index = int(numbers[1])
        self.read.append(index)
        self.ended.set()
        if index in self.failing:
            raise ValueError(f"damaged pool {index}")
        return numbers[2], f"pool {index}"

    def begin(self, index):
        """Begins a pool of epoch 0, and waits until the background has read it."""
        self.ended.clear()
        self._begin(tf.constant([0, index, 10 * index], tf.int64))
        assert self.ended.wait(DEADLINE_S)

    def take(self, index, epoch=0):
        """What is read of a pool."""
        value, name = self._take(tf.constant([epoch, index, 10 * index], tf.int64))
        return int(value), name.numpy().decode()


def test_a_pool_is_read_between_calls_and_only_once():
    reader = Reader()
    reader.begin(1)
    assert reader.read == [1]  # no call has asked for it yet
    reader._begin(tf.constant([0, 1, 10], tf.int64))
    assert reader.take(1) == (10, "pool 1") and reader.read == [1]
    assert reader.take(1) == (10, "pool 1") and reader.read == [1, 1]  # it was given away


def test_another_pool_is_read_at_once_and_what_is_begun_stands():
    reader = Reader()
    reader.begin(1)
    assert reader.take(2) == (20, "pool 2") and reader.take(1, epoch=1) == (10, "pool 1")
    reader.begin(3)  # it was told another one meanwhile
    assert reader.take(3) == (30, "pool 3") and reader.take(1) == (10, "pool 1")
    assert reader.read == [1, 2, 1, 3, 1]


def test_no_pool_is_none_to_begin():
    reader = Reader()
    reader._begin(tf.constant([*NO_POOL, -1], tf.int64))
    reader.begin(1)
    reader._begin(tf.constant([*NO_POOL, -1], tf.int64))
    assert reader.take(1) == (10, "pool 1") and reader.read == [1]


def test_an_error_is_that_of_the_call_which_needs_the_pool_and_ends_with_its_cause():
    reader = Reader()
    reader.failing.add(1)
    reader.begin(1)
    assert reader.take(2) == (20, "pool 2")
    for _ in range(2):
        with pytest.raises(tf.errors.InvalidArgumentError, match="damaged pool 1"):
            reader.take(1)
    reader.failing.clear()
    assert reader.take(1) == (10, "pool 1")


def test_feeds_of_one_worker_have_pools_of_their_own():
    readers = Reader(), Reader()
    for index, reader in enumerate(readers):
        reader.begin(1 + index)
    assert [reader.take(1) for reader in readers] == [(10, "pool 1")] * 2
    assert [reader.read for reader in readers] == [[1], [2, 1]]
