"""The 1+H queues against a trace by hand and against deques."""
import collections

import numpy as np
import pytest

from clrec_tf.objectives.intent_queues import intent_slots
from clrec_tf.objectives.intent_queues import MultiQueue
from clrec_tf.training.runtime import LocalRuntime
import tensorflow as tf

ITEM = {"item": tf.TensorSpec([], tf.int64), "twice": tf.TensorSpec([2], tf.float32)}


class Pushed:
    """A queue of items routed modulo the number of intents, with its pushes compiled."""

    def __init__(self, main, own, intents, compiled=True):
        self.queue = MultiQueue(main, own, intents, ITEM, LocalRuntime().local_variable)
        self._route = lambda entries: tf.cast(entries["item"] % intents, tf.int32)
        self.push = tf.function(self._push) if compiled else self._push

    def _push(self, items, valid):
        twice = tf.repeat(tf.cast(items, tf.float32)[:, None], 2, axis=1)
        return self.queue.open().push(valid, self._route, item=items, twice=twice).slots

    def __call__(self, items, valid=None):
        items = tf.constant(items, tf.int64)
        return self.push(items, tf.ones_like(items, tf.bool) if valid is None else tf.constant(valid))

    def main(self):
        """Items of the main queue, sorted."""
        main = self.queue.open().main
        return sorted(main.read("item").numpy()[:int(main.fill())])

    def own(self, intent):
        """Items of an intent's queue, sorted; checks that both fields moved together."""
        opened = self.queue.open()
        valid = opened.valid().numpy()[intent]
        rows = slice(intent * self.queue.capacity, (intent + 1) * self.queue.capacity)
        items = opened.read("item").numpy()[rows][valid]
        np.testing.assert_array_equal(opened.read("twice").numpy()[rows][valid], np.stack([items] * 2, 1))
        return sorted(items)


@pytest.mark.parametrize("compiled", [False, True])
def test_trace_by_hand(compiled):
    queue = Pushed(4, 2, 2, compiled)
    for number, batch in enumerate([[1, 2], [3, 4], [5, 6], [7, 9], [8, 10], [11, 13]]):
        queue(batch)
        if number == 2:
            assert (queue.main(), queue.own(0), queue.own(1)) == ([3, 4, 5, 6], [2], [1])
    assert (queue.main(), queue.own(0), queue.own(1)) == ([8, 10, 11, 13], [4, 6], [7, 9])


@pytest.mark.parametrize("main, own, intents, batch", [(8, 4, 3, 4), (6, 2, 2, 6), (16, 3, 4, 16), (5, 5, 1, 3)])
def test_equals_deques(main, own, intents, batch):
    """Random batches with rows that do not count: after each, all queues hold what chained deques hold."""
    rng = np.random.default_rng(0)
    queue, expected_main = Pushed(main, own, intents), collections.deque()
    expected = [collections.deque(maxlen=own) for _ in range(intents)]
    for _ in range(40):
        items, valid = rng.integers(0, 50, batch), rng.random(batch) < 0.8
        queue(items, valid)
        for item in items[valid]:
            expected_main.append(item)
            if len(expected_main) > main:
                old = expected_main.popleft()
                expected[old % intents].append(old)
        assert queue.main() == sorted(expected_main)
        assert [queue.own(intent) for intent in range(intents)] == [sorted(items) for items in expected]


def test_an_entry_is_in_one_queue_at_a_time():
    queue = Pushed(6, 4, 2)
    for begin in range(0, 60, 3):
        queue(list(range(begin, begin + 3)))
        held = [*queue.main(), *queue.own(0), *queue.own(1)]
        assert len(held) == len(set(held)) and queue.main() == list(range(max(0, begin - 3), begin + 3))


def test_more_items_of_one_intent_than_its_queue_holds():
    """Five at once into three slots, of which the next is the second: the last three stay, each in a slot of its own."""
    intents = tf.constant([1, 0, 1, 1, 1, 1])
    found = intent_slots(intents, tf.ones([6], tf.bool), tf.constant([0, 4], tf.int64), 3)
    # Ranks 0..4 of intent 1 begin at its count 4: places 4, 5, 6, 7, 8 modulo 3.
    np.testing.assert_array_equal(found.slots, [-1, 0, -1, 3 + 0, 3 + 1, 3 + 2])
    np.testing.assert_array_equal(found.received, [1, 5])
    queue = Pushed(6, 2, 2)
    for batch in ([1, 3, 5, 7, 9, 11], [0, 2, 4, 6, 8, 10]):
        queue(batch)
    assert queue.own(1) == [9, 11] and queue.own(0) == []
    queue([13, 13, 13, 13, 13, 13])
    assert queue.own(0) == [8, 10] and queue.own(1) == [9, 11]  # where the wrapped queue goes on is right too
    queue([15] * 6)
    assert queue.own(1) == [13, 13]


def test_rows_left_out_move_nothing():
    queue = Pushed(4, 2, 2)
    queue([1, 2, 3, 4])
    slots = queue([5, 6, 7, 8], [False] * 4)
    assert queue.main() == [1, 2, 3, 4] and queue.own(0) == queue.own(1) == []
    np.testing.assert_array_equal(slots, [-1] * 4)


def test_fill_and_ages():
    queue = Pushed(4, 2, 2)
    opened = queue.queue.open()
    np.testing.assert_array_equal(opened.ages(), [0, 0, 0])
    for batch in ([1, 2], [3, 4], [5, 7], [9, 11]):
        queue(batch)
    # In the main queue 5, 7 of the push before the last; in queue 1 the items 1 and 3, in queue 0 2 and 4.
    np.testing.assert_array_equal(opened.fill(), [2, 2])
    np.testing.assert_array_equal(opened.ages(), [2, 4, 4])
    assert bool(opened.full())


def test_checkpoint_holds_everything(tmp_path):
    queue, other = Pushed(4, 2, 2), Pushed(4, 2, 2)
    for batch in ([1, 2], [3, 4], [5, 6]):
        queue(batch)
    variables = queue.queue.local_variables
    assert len(variables) == 2 * 3 + 3  # item, twice, entered in both; main's count, counts and the clock
    path = tf.train.Checkpoint(**variables).write(str(tmp_path / "queue"))
    tf.train.Checkpoint(**other.queue.local_variables).read(path).assert_consumed()
    for batch in ([7, 9], [8, 10], [11, 13]):
        queue(batch)
        other(batch)
    assert (queue.main(), queue.own(0), queue.own(1)) == (other.main(), other.own(0), other.own(1))
    assert queue.own(0) == [4, 6]
