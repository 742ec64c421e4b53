"""Pools that a worker reads ahead: read once, in the background, and never mixed up or half read."""
import threading

import numpy as np
import pytest
import tensorflow as tf

from clrec_tf.training.pool_ahead import NO_POOL
from clrec_tf.training.pool_ahead import PoolAhead
from clrec_tf.training.runtime import LocalRuntime

DEADLINE_S = 60


class Reader:
    """One worker: pools of two records, read by a function that notes and may fail."""

    def __init__(self):
        self.read, self.failing, self.ended = [], set(), threading.Event()
        ahead = PoolAhead(self._dataset, LocalRuntime().local_variable)
        pool = tf.TensorSpec([3], tf.int64)

        @tf.function(input_signature=[pool])
        def begin(numbers):
            ahead.open().begin(numbers)

        @tf.function(input_signature=[pool])
        def take(numbers):
            return ahead.open().take(numbers)

        self._begin, self._take = begin, take

    def _dataset(self, pool):
        records = lambda numbers: tf.ensure_shape(tf.numpy_function(self._records, [numbers], tf.string), [None])
        return tf.data.Dataset.from_tensors(pool).map(records)

    def _records(self, numbers):
        index = int(numbers[1])
        self.read.append(index)
        self.ended.set()
        if index in self.failing:
            raise ValueError(f"damaged pool {index}")
        return np.array([f"pool {numbers[0]}.{index}", "its end"], object)

    def begin(self, index):
        """Begins a pool of epoch 0, and waits until the background has read it."""
        self.ended.clear()
        self._begin(tf.constant([0, index, 9], tf.int64))
        assert self.ended.wait(DEADLINE_S)

    def take(self, index, epoch=0):
        """What is read of a pool."""
        name, _ = self._take(tf.constant([epoch, index, 9], tf.int64)).numpy()
        return name.decode()


def test_a_pool_is_read_between_calls_and_only_once():
    reader = Reader()
    reader.begin(1)
    assert reader.read == [1]  # no call has asked for it yet
    reader._begin(tf.constant([0, 1, 9], tf.int64))
    assert reader.take(1) == "pool 0.1" and reader.read == [1]
    assert reader.take(1) == "pool 0.1" and reader.read == [1, 1]  # it was given away


def test_another_pool_is_read_at_once_and_what_is_begun_stands():
    reader = Reader()
    reader.begin(1)
    assert reader.take(2) == "pool 0.2" and reader.take(1, epoch=1) == "pool 1.1"
    reader.begin(3)  # it was told another one meanwhile
    assert reader.take(3) == "pool 0.3" and reader.take(1) == "pool 0.1"
    assert reader.read == [1, 2, 1, 3, 1]


def test_no_pool_is_none_to_begin():
    reader = Reader()
    reader._begin(tf.constant([*NO_POOL, -1], tf.int64))
    reader.begin(1)
    reader._begin(tf.constant([*NO_POOL, -1], tf.int64))
    assert reader.take(1) == "pool 0.1" and reader.read == [1]


def test_an_error_is_that_of_the_call_which_needs_the_pool_and_ends_with_its_cause():
    reader = Reader()
    reader.failing.add(1)
    reader.begin(1)
    assert reader.take(2) == "pool 0.2"
    for _ in range(2):
        with pytest.raises(tf.errors.InvalidArgumentError, match="damaged pool 1"):
            reader.take(1)
    reader.failing.clear()
    assert reader.take(1) == "pool 0.1"


def test_feeds_of_one_worker_have_pools_of_their_own():
    readers = Reader(), Reader()
    for index, reader in enumerate(readers):
        reader.begin(1 + index)
    assert [reader.take(1) for reader in readers] == ["pool 0.1"] * 2
    assert [reader.read for reader in readers] == [[1], [2, 1]]
