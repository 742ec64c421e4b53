"""The ring buffer against ``collections.deque(maxlen=Q)``, eagerly, compiled and inside a compiled loop."""
import collections

from hypothesis import given, settings, strategies as st
import numpy as np
import pytest

from clrec_tf.objectives import fifo_queue
from clrec_tf.training.runtime import LocalRuntime
import tensorflow as tf

FIELDS = {"item": tf.TensorSpec([2], tf.int64), "vector": tf.TensorSpec([3], tf.float32)}


def make_queue(capacity):
    return fifo_queue.FifoQueue(capacity, FIELDS, LocalRuntime().local_variable)


def rows(serials):
    """Distinguishable rows of both fields for serial numbers [B]."""
    serials = np.asarray(serials)
    return (np.stack([serials, -serials], axis=1).astype(np.int64),
            np.stack([serials, serials * 2, serials + .5], axis=1).astype(np.float32))


def push(opened, valid, serials):
    item, vector = rows(serials)
    return opened.enqueue(tf.constant(valid), item=tf.constant(item), vector=tf.constant(vector))


@st.composite
def pushes(draw):
    """A capacity and some batches of valid masks, each with at most `capacity` valid rows."""
    capacity = draw(st.integers(1, 7))
    batches = draw(st.lists(st.lists(st.booleans(), min_size=1, max_size=9), min_size=1, max_size=6))
    return capacity, [batch for batch in batches if sum(batch) <= capacity]


@settings(max_examples=80, deadline=None)
@given(pushes())
def test_equals_a_deque(case):
    capacity, batches = case
    queue, oracle, serial = make_queue(capacity), collections.deque(maxlen=capacity), 100
    opened = queue.open()
    for valid in batches:
        serials = list(range(serial, serial + len(valid)))
        serial += len(valid)
        before = set(oracle)
        oracle.extend(number for number, enters in zip(serials, valid) if enters)
        done = push(opened, valid, serials)

        fill, contents = int(done.fill), opened.read("item").numpy()
        assert fill == int(opened.fill()) == len(oracle)
        assert sorted(contents[:fill, 0]) == sorted(oracle)
        for name, field in zip(("item", "vector"), rows(contents[:, 0])):
            np.testing.assert_array_equal(opened.read(name)[:fill], field[:fill])
        # Each row stands where `slots` says, and rows left out nowhere.
        assert [contents[slot, 0] if slot >= 0 else None for slot in done.slots.numpy()] == [
            number if enters else None for number, enters in zip(serials, valid)]
        assert {contents[slot, 0] for slot in np.flatnonzero(done.older)} == before & set(oracle)


def test_oldest_are_overwritten_in_order():
    queue = make_queue(5)
    opened = queue.open()
    for serials in ([1, 2, 3], [4, 5, 6], [7]):
        done = push(opened, [True] * len(serials), serials)
    np.testing.assert_array_equal(opened.read("item")[:, 0], [6, 7, 3, 4, 5])
    np.testing.assert_array_equal(done.slots, [1])
    np.testing.assert_array_equal(done.older, [True, False, True, True, True])


def run_steps(queue, valid, serials):
    """All steps in one loop opened outside; what each step gave and left, stacked."""
    opened = queue.open()
    steps = valid.shape[0]
    names = ("slots", "fill", "older", "contents", "vectors")
    results = {name: tf.TensorArray(dtype, steps) for name, dtype in zip(
        names, (tf.int64, tf.int64, tf.bool, tf.int64, tf.float32))}
    for step in tf.range(steps):
        number = serials[step]
        done = opened.enqueue(
            valid[step], item=tf.stack([number, -number], axis=1),
            vector=tf.stack([tf.cast(number, tf.float32)] * 3, axis=1))
        values = (done.slots, done.fill, done.older, opened.read("item"), opened.read("vector"))
        results = {name: results[name].write(step, value) for name, value in zip(names, values)}
    return {name: array.stack() for name, array in results.items()}


@pytest.mark.parametrize("capacity", [4, 7, 10])
def test_compiled_loop_equals_eager_and_deque(capacity):
    rng = np.random.default_rng(capacity)
    valid, serials = tf.constant(rng.random((9, 4)) < .7), tf.reshape(tf.range(36, dtype=tf.int64), [9, 4])
    queue, twin = make_queue(capacity), make_queue(capacity)
    compiled = tf.function(lambda: run_steps(twin, valid, serials)).get_concrete_function()
    assert any("While" in op.type for op in compiled.graph.get_operations())
    eager, looped = run_steps(queue, valid, serials), compiled()
    for name, value in eager.items():
        np.testing.assert_array_equal(looped[name], value, err_msg=name)
    oracle = collections.deque(maxlen=capacity)
    for step in range(9):  # every step reads what it has just written
        oracle.extend(serials[step].numpy()[valid[step].numpy()])
        assert sorted(looped["contents"][step, :len(oracle), 0].numpy()) == sorted(oracle)
    for name, variable in queue.local_variables.items():
        np.testing.assert_array_equal(variable, twin.local_variables[name])


def test_count_beyond_32_bits():
    queue = make_queue(7)
    count = 2 ** 40 + 3
    queue.local_variables["count"].assign(count)
    opened = queue.open()
    done = push(opened, [True, False, True], [1, 2, 3])
    assert list(done.slots.numpy()) == [count % 7, -1, (count + 1) % 7]
    assert int(done.fill) == 7 and int(queue.local_variables["count"]) == count + 2
    np.testing.assert_array_equal(np.flatnonzero(~done.older.numpy()), sorted([count % 7, (count + 1) % 7]))


def test_no_gradient_enters():
    queue = make_queue(2)
    opened = queue.open()
    vector = tf.Variable(tf.ones([2, 3]))
    with tf.GradientTape() as tape:
        opened.enqueue(tf.constant([True, True]), item=tf.zeros([2, 2], tf.int64), vector=vector * 2)
        total = tf.reduce_sum(opened.read("vector")) + 0 * tf.reduce_sum(vector)
    assert float(total) == 12
    np.testing.assert_array_equal(tape.gradient(total, vector), np.zeros((2, 3)))


def test_an_empty_queue_on_any_worker():
    """The initial value is made per worker, again when one restarts; variables start empty and are not trained."""
    workers = []

    def local_variable(make, shape, dtype):
        workers.append(make(3))
        return tf.Variable(make(0), shape=shape, dtype=dtype, trainable=False)

    queue = fifo_queue.FifoQueue(4, FIELDS, local_variable)
    assert int(queue.open().fill()) == 0 and not queue.trainable_variables
    assert sorted(tuple(value.shape) for value in workers) == [(), (4, 2), (4, 3)]


def test_state_survives_a_checkpoint(tmp_path):
    queue, other = make_queue(3), make_queue(3)
    push(queue.open(), [True, True], [8, 9])
    path = tf.train.Checkpoint(queue=queue).write(str(tmp_path / "queue"))
    tf.train.Checkpoint(queue=other).read(path).assert_consumed()
    push(queue.open(), [True, True], [10, 11])
    push(other.open(), [True, True], [10, 11])
    np.testing.assert_array_equal(other.local_variables["item"][:, 0], [11, 9, 10])
    np.testing.assert_array_equal(other.local_variables["vector"], queue.local_variables["vector"])


def test_duplicate_rate():
    rate = tf.function(fifo_queue.duplicate_rate, input_signature=[tf.TensorSpec([None], tf.int64)])
    assert float(rate(tf.constant([5, 6, 5, 5], tf.int64))) == 0.5
    assert float(rate(tf.constant([5, 6], tf.int64))) == 0
    assert float(rate(tf.constant([], tf.int64))) == 0
