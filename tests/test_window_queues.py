"""Queues fed by windows, --target_mode=all, against a loop over single entries of a deque, and at their limits."""
import collections
import functools
import math

import numpy as np
import pytest
import tensorflow as tf

from clrec_tf.config import Config
from clrec_tf.errors import UserError
from clrec_tf.objectives.contrastive import build_variant
from clrec_tf.objectives.impression_stream import ImpressionStream
from tests.loops import local_variable
from tests.loops import LOG_Q
from tests.loops import ROWS
from tests.loops import table_step
from tests.naive_queue import DIM
from tests.naive_queue import ITEMS
from tests.naive_queue import make_batch
from tests.naive_queue import TEMPERATURE
from tests.naive_queue import tiny_model
from tests.naive_windows import NaiveWindows
from tests.naive_windows import random_windows
from tests.naive_windows import windows

KINDS = ("in_batch", "raw", "cached")
SHOWN = np.array([3, 3, 12, 5, 1, 7, 3, 9, 2])


def make_variant(kind, model, capacity=10, entering=4, masked=True, **settings):
    return build_variant(kind, model, capacity, masked, local_variable, entering=entering, **settings)


def entries_of(variant, first=0):
    """(item, owner) of all that was pushed after the first so many, oldest first; of those that are there still."""
    opened = variant.queue.open()
    items, owners = (opened.read(name).numpy().reshape(-1) for name in ("item", "owner"))
    count = int(opened.read("count"))
    return [(items[i % len(items)], owners[i % len(items)]) for i in range(max(first, count - len(items)), count)]


@pytest.mark.parametrize("kind,balanced,similarity,beta,shown", [
    ("in_batch", False, "cosine", 1.0, False), ("raw", False, "cosine", 1.0, False), ("raw", False, "dot", .4, False),
    ("cached", False, "cosine", 1.0, False), ("cached", True, "cosine", .4, False), ("cached", True, "dot", 1.0, False),
    ("in_batch", False, "cosine", .4, True), ("raw", False, "cosine", 1.0, True), ("cached", True, "cosine", .4, True)])
def test_losses_and_gradients_equal_the_loop(kind, balanced, similarity, beta, shown):
    rng, model, log_q = np.random.default_rng(9), tiny_model(similarity=similarity), (1 - beta) * LOG_Q
    stream = ImpressionStream(SHOWN, ROWS, 3, local_variable) if shown else None
    twin = ImpressionStream(SHOWN, ROWS, 3, local_variable).open() if shown else None
    variant = make_variant(kind, model, 10, 4, not shown, balanced=balanced, impressions=stream,
                           log_q=None if beta == 1 else log_q.astype(np.float32))
    naive = NaiveWindows(kind, 10 if variant.queue else None, log_q, similarity)
    table, pushed = model.item_encoder.ids.table, 0
    for number in range(5):  # while the queue fills, and when it is full
        batch = random_windows(rng, seed=number)
        now = table.numpy().astype(float)
        loss, gradient = table_step(variant, batch)
        valid = np.flatnonzero(batch["weight"])
        targets = [(batch["target"].numpy()[i, 0], batch["user_id"].numpy()[i]) for i in valid]
        if shown:
            count = 4 if variant.queue else len(batch["weight"])
            entered = [(item, -1) for item in twin.next(count).numpy()[:, 0]]
        else:
            entered = entries_of(variant, pushed) if variant.queue else targets
            assert not collections.Counter(entered) - collections.Counter(targets)
            assert len(entered) == (min(4, len(targets)) if variant.queue else len(targets))
        naive.push(now, entered)
        pushed += len(entered)
        # The row of an in-batch denominator has its positive once, as all own entries but it are left out.
        np.testing.assert_allclose(loss, naive.loss(batch, now, now), rtol=2e-5, atol=1e-6)
        np.testing.assert_allclose(gradient, naive.gradient(batch, now, balanced), atol=3e-5)
        table.assign_add(rng.normal(0, .3, table.shape))


@pytest.mark.parametrize("kind", KINDS)
def test_the_positive_once_own_entries_never_and_others_copies_always(kind):
    """All vectors equal: the loss is the logarithm of how many terms its denominator has."""
    model = tiny_model()
    model.item_encoder.ids.table.assign(tf.ones([ITEMS + 1, DIM]))
    variant = make_variant(kind, model, 20, 20)
    losses = lambda *arguments: np.exp(variant.open().rows(windows(*arguments)))
    # User 1 clicks item 2 three times, user 2 once: itself and the other's, whatever they clicked.
    np.testing.assert_allclose(losses([[5, 2, 2, 2], [5, 2]], [1, 2]), [2, 2, 2, 4], rtol=1e-5)
    # Of the queue user 1 has three, and two more; user 3 is new. In the batch alone there are two of each.
    found = losses([[5, 2, 6], [2, 2, 2]], [1, 3])
    np.testing.assert_allclose(found, [3, 3, 3, 3] if kind == "in_batch" else [4, 4, 7, 7], rtol=1e-5)
    if kind == "in_batch":  # two windows of one user
        np.testing.assert_allclose(losses([[5, 2], [5, 3], [5, 4]], [1, 1, 2]), [2, 2, 3], rtol=1e-5)


def test_what_enters_is_drawn_anew_in_each_step_and_every_target_as_often():
    clicks, times = [[1, 2, 3], [1, 4, 5, 6], [1, 7, 8], [1, 9, 10, 11, 12]], collections.Counter()
    variant, runs = make_variant("raw", tiny_model(), 3, 3), set()
    push = tf.function(lambda batch: variant.open().logits(batch)[0])
    for seed in range(150):
        push(windows(clicks, [1, 2, 3, 4], [1, 1, 0, 1], seed))
        entered = entries_of(variant)
        assert len(set(entered)) == 3 and not {item for item, _ in entered} & {7, 8}
        assert all(owner == {2: 1, 3: 1, 4: 2, 5: 2, 6: 2}.get(item, 4) for item, owner in entered)
        times.update(item for item, _ in entered)
        runs.add(tuple(entered))
    # 3 of 9 for each: 50 times, σ 5.8
    assert set(times) == {2, 3, 4, 5, 6, 9, 10, 11, 12} and all(abs(count - 50) < 24 for count in times.values())
    assert len(runs) > 100  # of 504
    variant = make_variant("raw", tiny_model(), 50, 30)
    variant.open().logits(windows(clicks, [1, 2, 3, 4], [1, 1, 0, 1]))
    assert sorted(item for item, _ in entries_of(variant)) == [2, 3, 4, 5, 6, 9, 10, 11, 12]
    variant.open().logits(windows(clicks, [1, 2, 3, 4], [0, 0, 0, 0]))
    assert len(entries_of(variant)) == 9


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_counts_in_a_batch_without_weight_and_a_row_without_any_changes_nothing(kind):
    rng = np.random.default_rng(2)
    with_row, without = (make_variant(kind, tiny_model(), 8, 4) for _ in range(2))
    for clicks in ([[1, 2, 3], [4, 5]], [[6, 7, 8], [9, 2]]):
        extra = rng.integers(1, ITEMS, 3).tolist()
        (loss, gradient), (expected, wanted) = (
            table_step(with_row, windows([*clicks, extra], [1, 2, 3], [1, 2, 0])),
            table_step(without, windows(clicks, [1, 2], [1, 2])))
        np.testing.assert_allclose(loss, expected, rtol=1e-6)
        np.testing.assert_allclose(gradient, wanted, atol=1e-6)
    loss, gradient = table_step(with_row, windows([[1, 2, 3]], [1], [0.0]))
    assert loss == 0 and not gradient.any()


@pytest.mark.parametrize("count", [2, 4])
def test_balanced_gradient_is_the_raw_queues_where_entries_are_alike(count):
    """All windows have the same targets, in another order and after another history, and so had all in the queue: then
    what a row is compared with of this step is a part of all that it is compared with, of two windows a small one."""
    items, gradients = [2, 3, 3, 9], {}
    orders = [[start, *items[start:], *items[:start]] for start in range(4)]
    for name, kind, balanced in (("raw", "raw", True), ("balanced", "cached", True), ("plain", "cached", False)):
        variant = make_variant(kind, tiny_model(), 24, 4 * count, balanced=balanced)
        variant.prefill([windows([order], [10 + owner]) for owner, order in enumerate(orders[:3] * 2)])
        batch = windows([[5 + order[0], *order[1:]] for order in orders[:count]], range(count))
        gradients[name] = table_step(variant, batch)[1]
    np.testing.assert_allclose(gradients["balanced"], gradients["raw"], atol=2e-6)
    assert np.abs(gradients["plain"] - gradients["raw"]).max() > .02


def test_steps_without_an_entry_of_the_context_are_made_up_for():
    """Four batches in turn, of which one alone brings another user's entry of the row's context; the queue holds all."""
    gradients = {}
    for name, kind, balanced in (("raw", "raw", True), ("balanced", "cached", True), ("plain", "cached", False)):
        variant = make_variant(kind, tiny_model(), 20, 5, balanced=balanced, context=0)
        batches = [make_batch([2, 9, 10, 11, 3 + turn], [0, *range(1 + 4 * turn, 5 + 4 * turn)], [1] + [1e-6] * 4,
                              [[7, 8]] * 5, [1, 0, 0, 0, int(turn == 0)]) | dict(seed=tf.constant([turn, 1], tf.int64))
                   for turn in range(4)]
        variant.prefill(batches)
        gradients[name] = sum(table_step(variant, batch)[1] for batch in batches)
    np.testing.assert_allclose(gradients["balanced"], gradients["raw"], atol=2e-5)
    assert np.abs(gradients["plain"] - gradients["raw"]).max() > .02


def _sparse_gradient(variant, batch):
    with tf.GradientTape() as tape:
        loss = variant.open().loss(batch)
    return tape.gradient(loss, variant.model.item_encoder.ids.table)


@pytest.mark.parametrize("kind", KINDS)
def test_a_user_who_repeats_an_item_does_not_push_itself_away_from_it(kind):
    """User 1 has clicked item 2 alone and fills half of each step. Were its own clicks its own candidates, they would be
    much of its denominator, and its score would not rise by half as much."""
    model, rng = tiny_model(), np.random.default_rng(0)
    table = model.item_encoder.ids.table
    table.assign(rng.normal(0, 1, table.shape))
    variant, scores = make_variant(kind, model, 24, 12), []
    for number in range(12):
        clicks = [[2] * 9] + [[int(item), int(rng.integers(3, ITEMS + 1))] for item in rng.integers(3, ITEMS + 1, 8)]
        batch = windows(clicks, [1, *range(10, 18)], [1.0] + [0.001] * 8, seed=number)
        encoded = model.encode(batch)
        items = model.score_vectors(model.item_vectors(ROWS)[1:]).numpy()
        logits = items @ encoded.users.numpy()[0] / TEMPERATURE
        scores.append(logits[1] - np.log(np.mean(np.exp(np.delete(logits, 1)))))
        _, gradient = table_step(variant, batch)
        table.assign_sub(.6 * gradient)
    # By .9 at least; by .36 where its own clicks are candidates.
    assert scores[-1] > scores[0] + .6 and scores[-1] > scores[6] > scores[2]


@pytest.mark.parametrize("kind,shown", [("in_batch", False), ("raw", False), ("cached", False), ("in_batch", True)])
def test_compiled_once_for_batches_of_any_size(kind, shown):
    rng = np.random.default_rng(4)
    spec = {name: tf.TensorSpec([None] * part.shape.rank, part.dtype) for name, part in random_windows(rng).items()}
    spec |= {name: tf.TensorSpec(shape, tf.int64) for name, shape in dict(
        history=[None, None, 1], target=[None, 1], seed=[2]).items()}
    one, twin = (make_variant(kind, tiny_model(), 10, 4, not shown, impressions=ImpressionStream(
        SHOWN, ROWS, 3, local_variable) if shown else None) for _ in range(2))
    compiled = tf.function(functools.partial(_sparse_gradient, one), input_signature=[spec])
    for number in range(4):
        batch = random_windows(rng, 1 + number, number)
        np.testing.assert_allclose(tf.convert_to_tensor(compiled(batch)), table_step(twin, batch)[1], atol=1e-6)
    assert compiled.experimental_get_tracing_count() == 1


@pytest.mark.parametrize("kind", ["raw", "cached"])
def test_prefilled_equals_earlier_batches_of_the_same_model(kind):
    batches = [windows([[1, 2, 3], [4, 5, 6]], [1, 2], [1, 0], 1), windows([[1, 7, 8, 9], [4, 5]], [3, 1], None, 2)]
    filled, stepped = (make_variant(kind, tiny_model(), 6, 3) for _ in range(2))
    filled.prefill(batches)
    for batch in batches:
        stepped.open().logits(batch)
    assert entries_of(filled) == entries_of(stepped) and len(entries_of(filled)) == 5
    last = windows([[3, 4, 5]], [2], None, 3)
    for found, expected in zip(table_step(filled, last), table_step(stepped, last)):
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("kind", KINDS)
def test_chance_is_the_loss_of_equal_scores(kind):
    model = tiny_model()
    model.item_encoder.ids.table.assign(tf.ones_like(model.item_encoder.ids.table))
    opened = make_variant(kind, model, 6, 3 if kind != "in_batch" else None).open()
    for step_, (users, weights) in enumerate((((1, 2), [1, 0]), ((3, 1), [2, .5]), ((1, 1), [1, 1]), ((2, 4), [1, 3]))):
        batch = windows([[1, 7, 8, 9], [4, 5]], users, weights, step_)
        loss = float(opened.loss(batch))
        assert float(opened.chance_loss(batch)) == pytest.approx(loss, abs=1e-5) and math.isfinite(loss)


def test_a_queue_smaller_than_what_enters_is_refused():
    settings = dict(target_mode="all", user_encoder="mean", time_embedding="none")
    with pytest.raises(UserError, match="--queue_size=99 .*--enqueue_per_step=100.*raise --queue_size or lower --enq"):
        Config.of(**settings, queue_size=99, enqueue_per_step=100, batch_size=50)
    Config.of(**settings, queue_size=99, enqueue_per_step=99, batch_size=500)
    Config.of(**settings, queue_size=9, queue="in_batch")
