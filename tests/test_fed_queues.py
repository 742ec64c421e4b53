"""Queues with a correction of log q, or fed with impressions, against plain NumPy loops; and the impression stream."""
import collections
import math

import numpy as np
import pytest

from clrec_tf.objectives.contrastive import build_variant
from clrec_tf.objectives.full_softmax import FullSoftmax
from clrec_tf.objectives.impression_stream import coprime_stride
from clrec_tf.objectives.impression_stream import ImpressionStream
from tests.loops import local_variable
from tests.loops import LOG_Q
from tests.loops import Loops
from tests.loops import ROWS
from tests.loops import step
from tests.loops import Towers
from tests.loops import WIDE_ROWS
from tests.naive_queue import DIM
from tests.naive_queue import ITEMS
from tests.naive_queue import make_batch
from tests.naive_queue import random_batch
from tests.naive_queue import tiny_model
import tensorflow as tf

SHOWN = np.array([3, 3, 12, 5, 1, 7, 3, 9, 2, 2, 11, 6, 8])


def stream(rows=ROWS, seed=3, items=SHOWN):
    return ImpressionStream(items, rows, seed, local_variable)


def stream_order(count):
    """Items that a new stream gives, by the definition: multiples of its stride."""
    stride = coprime_stride(len(SHOWN), 3)
    return collections.deque(SHOWN[index * stride % len(SHOWN)] for index in range(count))


@pytest.mark.parametrize("kind,balanced", [("in_batch", False), ("raw", False), ("cached", False), ("cached", True)])
@pytest.mark.parametrize("beta,impressions", [(0.0, False), (.4, False), (1.0, True), (.4, True)])
def test_corrected_and_impression_fed_queues_equal_loops(kind, balanced, beta, impressions):
    rng, model = np.random.default_rng(7), tiny_model()
    log_q = (1 - beta) * LOG_Q
    variant = build_variant(kind, model, 10, False, local_variable,
                            log_q=None if beta == 1 else tf.constant(log_q, tf.float32),
                            impressions=stream() if impressions else None, balanced=balanced)
    naive = Loops(kind, 10, log_q, stream_order(100) if impressions else None, balanced)
    table = model.item_encoder.ids.table
    compiled = tf.function(lambda batch: step(variant, batch, [table]))
    for number in range(5):  # while the queue fills, and when it is full
        batch = random_batch(rng, 4)
        loss, [gradient] = compiled(batch)
        now = table.numpy().astype(float)
        naive.push(Towers([now]), batch)
        np.testing.assert_allclose(loss, naive.loss(Towers([now]), batch), rtol=1e-5)
        if number in (1, 4):
            [expected] = naive.gradients([now], batch)
            np.testing.assert_allclose(gradient, expected, atol=2e-5)
        table.assign_add(rng.normal(0, .3, table.shape))
    if kind != "in_batch":
        assert float(variant.open().metrics()["queue_fill"]) == 10


@pytest.mark.parametrize("kind,sizes", [("in_batch", [4, 4, 4]), ("raw", [4, 8, 10]), ("cached", [4, 8, 10])])
def test_beside_impressions_the_positive_stands_once(kind, sizes):
    """All vectors equal: the loss is the logarithm of how many terms there are, the impressions and the positive."""
    model = tiny_model()
    model.item_encoder.ids.table.assign(tf.ones([ITEMS + 1, DIM]))
    variant = build_variant(kind, model, 10, False, local_variable, impressions=stream())
    for size, weights in zip(sizes, ([1, 1, 1, 1], [1, 0, 0, 1], [0, 0, 1, 0])):  # rows without weight change nothing
        losses = variant.open().rows(make_batch([2, 3, 3, 4], weights=weights))
        np.testing.assert_allclose(losses, math.log(size + 1), rtol=1e-6)
    assert set(variant.states) == {"impressions"} | ({"queue"} if kind != "in_batch" else set())
    if kind != "in_batch":
        expected = [list(stream_order(12))[place] for place in (10, 11, 2, 3, 4, 5, 6, 7, 8, 9)]
        assert variant.queue.open().read("item").numpy()[:, 0].tolist() == expected


@pytest.mark.parametrize("kind", ["raw", "cached"])
def test_prefilled_with_impressions(kind):
    model = tiny_model()
    variant = build_variant(kind, model, 10, False, local_variable, impressions=stream())
    variant.prefill([make_batch([2, 3, 4, 5])] * 5)
    naive, batch = Loops(kind, 10, np.zeros(ITEMS + 1), stream_order(100)), make_batch([6, 7, 8, 9])
    towers = Towers([model.item_encoder.ids.table.numpy().astype(float)])
    for _ in range(4):  # three fill it, the fourth is the step
        naive.push(towers, batch)
    loss, _ = step(variant, batch, [model.item_encoder.ids.table])
    np.testing.assert_allclose(loss, naive.loss(towers, batch), rtol=1e-5)


def test_without_debiasing_a_queue_like_the_whole_catalogue_is_the_full_softmax():
    """n_y copies of each item y and the correction log n_y/N: Σ n_y e^(φ−log n_y) = Σ e^φ; the loss is log n_y more."""
    copies = np.array([0, *(1 + item % 3 for item in range(1, ITEMS + 1))])
    events = np.repeat(np.arange(ITEMS + 1), copies).tolist()
    batches = [make_batch(events[start:start + 4]) for start in range(0, len(events), 4)]
    assert len(events) == 24
    log_q = tf.constant(np.log(np.maximum(copies, 1) / 24), tf.float32)
    for kind in ("raw", "cached"):
        model = tiny_model()
        variant = build_variant(kind, model, 24, False, local_variable, log_q=log_q)
        for batch in batches[:-1]:
            variant.open().rows(batch)
        losses = variant.open().rows(batches[-1])
        full = FullSoftmax(model, ROWS)
        counts = copies[batches[-1]["target"].numpy()[:, 0]]
        np.testing.assert_allclose(losses, full.open().rows(batches[-1]) + np.log(counts), rtol=1e-5)
    variant = build_variant("raw", model, 24, False, local_variable, log_q=log_q)
    variant.prefill(batches)
    table = model.item_encoder.ids.table
    _, [gradient] = step(variant, batches[0], [table])
    _, [expected] = step(full, batches[0], [table])
    np.testing.assert_allclose(gradient, expected, atol=1e-6)


# The stream of impressions.


def test_each_impression_once_per_pass():
    for size in [*range(1, 41), 97, 100, 1024, 30030]:
        for seed in range(3):
            stride = coprime_stride(size, seed)
            assert math.gcd(stride, size) == 1 and 0 < stride < max(size, 2)
        one = stream(tf.range(size, dtype=tf.int64)[:, None], 1, np.arange(size))
        taken = [one.open().next(count).numpy()[:, 0] for count in (size // 2, size - size // 2, size)]
        passes = np.concatenate(taken).reshape(2, size)
        np.testing.assert_array_equal(np.sort(passes, axis=1), [np.arange(size)] * 2)


def test_neighbours_in_the_log_are_no_neighbours_in_the_stream():
    size = 10_000
    for seed in range(4):
        one = stream(tf.range(size, dtype=tf.int64)[:, None], seed, np.arange(size))
        places = one.open().next(256).numpy()[:, 0]
        assert np.abs(np.diff(places)).min() >= size // 3
        # A batch is spread over the whole log: each tenth of it holds at least half of its share.
        assert np.bincount(places * 10 // size, minlength=10).min() > 256 / 20


def test_the_stream_goes_on_from_its_state_and_workers_start_elsewhere():
    one, twin = stream(), stream()
    first = [one.open().next(5).numpy().tolist() for _ in range(4)]
    state = one.local_variables["taken"].numpy()
    assert state == 20
    following = one.open().next(5).numpy().tolist()
    twin.local_variables["taken"].assign(state)
    assert twin.open().next(5).numpy().tolist() == following
    assert [row for rows in first for row in rows] == [[item] for item in stream_order(20)]
    items, starts = np.arange(1000), set()
    for worker in range(8):
        far = ImpressionStream(items, tf.range(1000, dtype=tf.int64)[:, None], 0, lambda make, *rest, worker=worker:
                               local_variable(lambda _: make(tf.constant(worker)), *rest))
        starts |= set(far.open().next(20).numpy()[:, 0].tolist())
    assert len(starts) == 8 * 20


def test_the_stream_gives_whole_rows():
    one = stream(WIDE_ROWS)
    rows = one.open().next(6).numpy()
    np.testing.assert_array_equal(rows, WIDE_ROWS.numpy()[list(stream_order(6))])
