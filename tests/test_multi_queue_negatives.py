"""Multi-CLRec's objective against a loop over single entries, with gradients, and at its limits."""
import dataclasses

import numpy as np
import pytest

from clrec_tf.encoders.base import Clicks
from clrec_tf.losses import auxiliary
from clrec_tf.losses.contrastive import weighted_mean
from clrec_tf.models.intent_margin import directions
from clrec_tf.models.multi_clrec import MultiCLRecSettings
from clrec_tf.objectives.contrastive import build_variant
from clrec_tf.objectives.full_softmax import FullSoftmax
from clrec_tf.objectives.ipw import PropensityWeighted
from clrec_tf.objectives import multi_queue_negatives
from clrec_tf.objectives.multi_queue_negatives import own_entry_once
from clrec_tf.training.runtime import LocalRuntime
from tests import tiny_multi
from tests.tiny_multi import random_batch, tiny_model
import tensorflow as tf

GROUPED, COUNTED = 10**6, 1


def step(objective, batch):
    """(loss, gradients by the model's variables) of one step."""
    with tf.GradientTape() as tape:
        loss = objective.open().loss(batch)
    variables = objective.model.trainable_variables
    return loss, [tf.convert_to_tensor(gradient) if gradient is not None else tf.zeros_like(variable)
                  for gradient, variable in zip(tape.gradient(loss, variables), variables)]


@pytest.mark.parametrize("settings", [tiny_multi.NO_AUXILIARY, tiny_multi.GATED], ids=["paper", "gated"])
@pytest.mark.parametrize("kind, item_rows, compiled, intent_beta", [
    *(("raw", GROUPED, True, beta) for beta in (1.0, 0.0, 0.3)), ("raw", COUNTED, True, 0.3),
    ("cached", GROUPED, True, 1.0), ("raw", GROUPED, False, 0.0), *(pytest.param(*case, beta, marks=pytest.mark.long) for *case, beta in (
        ("raw", COUNTED, True, 1.0), ("raw", COUNTED, True, 0.0), ("cached", GROUPED, True, 0.0),
        ("cached", GROUPED, True, 0.3), ("raw", GROUPED, False, 1.0), ("raw", GROUPED, False, 0.3)))])
def test_loss_equals_loops(kind, item_rows, compiled, settings, intent_beta):
    """The model stays as it is, so cached vectors are fresh ones; queues fill, wrap, and evict; rows of weight 0 stay
    out."""
    model, rng = tiny_model(settings=settings, residual=True, intent_context="attention"), np.random.default_rng(0)
    assert model.gated == (settings is tiny_multi.GATED)
    objective = tiny_multi.objective_of(kind, model, 8, item_rows, intent_beta=intent_beta)
    loops = tiny_multi.Loops(model, 8, intent_beta)
    assert kind == "cached" or objective.by_counts == (item_rows == COUNTED)
    function = lambda batch: objective.open().loss(batch)
    function = tf.function(function) if compiled else function
    for _ in range(12):
        batch = random_batch(rng, 5)
        np.testing.assert_allclose(function(batch), loops(batch), rtol=1e-5)
    assert min(len(queue) for queue in loops.own) > 2


@pytest.mark.parametrize("settings, intent_beta", [(tiny_multi.NO_AUXILIARY, 1.0), (tiny_multi.GATED, 0.0)],
                         ids=["paper", "gated"])
def test_grouped_and_counted_have_equal_gradients(settings, intent_beta):
    rng = np.random.default_rng(1)
    sides = [tiny_multi.objective_of("raw", tiny_model(settings=settings), 8, item_rows, intent_beta=intent_beta)
             for item_rows in (GROUPED, COUNTED)]
    for _ in range(8):
        batch = random_batch(rng, 5)
        (loss, gradients), (other_loss, others) = (step(side, batch) for side in sides)
        np.testing.assert_allclose(loss, other_loss, rtol=1e-5)
        for gradient, other in zip(gradients, others):
            np.testing.assert_allclose(gradient, other, atol=1e-5)


def test_one_intent_equals_the_single_queue():
    """H = 1: both queues together are one queue of twice the capacity, and there is nothing to route or to select."""
    model, rng = tiny_model(intents=1, settings=MultiCLRecSettings()), np.random.default_rng(2)
    multi = tiny_multi.objective_of("raw", model, 8)
    single = build_variant("raw", model, 16, False, LocalRuntime().local_variable)
    single.model = tiny_model(intents=1)
    for _ in range(8):
        batch = random_batch(rng, 5)
        loss, gradients = step(multi, batch)
        with tf.GradientTape() as tape:
            expected = weighted_mean(single.open().rows(batch), batch["weight"])
        np.testing.assert_allclose(loss, expected, rtol=1e-5)
        found = tape.gradient(expected, single.model.trainable_variables)
        for gradient, other in zip(gradients, found):
            np.testing.assert_allclose(gradient, 0 if other is None else tf.convert_to_tensor(other), atol=1e-5)


def test_one_intent_is_not_gated():
    """H = 1: nothing is weighed or named, so both objectives are one, bit for bit."""
    batches = [random_batch(np.random.default_rng(2), 5) for _ in range(4)]
    sides = [tiny_multi.objective_of("raw", tiny_model(intents=1, settings=settings), 8)
             for settings in (tiny_multi.NO_AUXILIARY, tiny_multi.GATED)]
    for batch in batches:
        (loss, gradients), (other_loss, others) = (step(side, batch) for side in sides)
        np.testing.assert_array_equal(loss, other_loss)
        for gradient, other in zip(gradients, others):
            np.testing.assert_array_equal(gradient, other)


def test_a_large_margin_is_finite_and_leaves_each_item_to_its_intent():
    """Exponents of e^200 need the shift that the bound asks for."""
    settings = dataclasses.replace(tiny_multi.GATED, intent_margin=200.0)
    model, rng = tiny_model(settings=settings), np.random.default_rng(0)
    objective, loops = tiny_multi.objective_of("raw", model, 8), tiny_multi.Loops(model, 8)
    for _ in range(3):
        batch = random_batch(rng, 5)
        loss, gradients = step(objective, batch)
        np.testing.assert_allclose(loss, loops(batch), rtol=1e-4)
        assert all(np.isfinite(gradient).all() for gradient in gradients)


@pytest.mark.parametrize("count", [5, 16, 20, 32, 64])
def test_directions_are_of_norm_1_and_apart(count):
    found = directions(count)
    assert found.shape == (count, min(count, 16))
    cosines = found @ found.T
    np.testing.assert_allclose(np.diag(cosines), 1)
    assert (cosines - np.eye(count)).max() < (1e-9 if count <= 32 else 0.8)


def touched(gradients, model):
    """Items whose rows of the id table have a gradient."""
    table = next(number for number, variable in enumerate(model.trainable_variables)
                 if variable is model.item_encoder.ids.table)
    return set(np.flatnonzero(np.abs(gradients[table].numpy()).sum(axis=1)))


def test_who_gets_a_gradient():
    """Raw: every queued item; cached: only what the batch holds."""
    batches = [tiny_multi.make_batch(targets, [[1, 2, 0]] * 2, [1.0, 1.0]) for targets in ([3, 4], [5, 6], [7, 8])]
    for kind, expected in (("raw", {1, 2, 3, 4, 5, 6, 7, 8}), ("cached", {1, 2, 7, 8})):
        model = tiny_model()
        objective = tiny_multi.objective_of(kind, model, 8)
        for batch in batches:
            _, gradients = step(objective, batch)
        assert touched(gradients, model) == expected


@pytest.mark.parametrize("weighted", [False, True])
def test_own_entry_once_by_central_differences(weighted):
    """Its value is 0; its gradient is (1 − n) times that of the row's own entry in log Z."""
    rng = np.random.default_rng(0)
    vectors, positives = (tiny_multi.unit(rng.normal(size=shape)) for shape in ((2, 3, 4), (2, 4)))
    others, stands_for, temperature = np.array([5.0, 9.0]), np.array([4.0, 2.5]), 0.4
    weights = np.array([[.2, .5, .3], [.1, .1, .8]]) if weighted else np.ones((2, 3))
    own = lambda g: (weights * np.exp(np.einsum("bhd,bd->bh", vectors, g) / temperature)).sum(axis=1)
    logs = np.log(own(positives) + others)
    logs = logs[:, None] - np.log(weights) if weighted else logs
    g = tf.Variable(positives, dtype=tf.float32)
    with tf.GradientTape() as tape:
        value = own_entry_once(g, *(tf.constant(part, tf.float32) for part in (vectors, logs, stands_for)), temperature)
        total = tf.reduce_sum(value)
    np.testing.assert_array_equal(value, [0, 0])
    expected = np.zeros((2, 4))
    for place in np.ndindex(2, 4):
        moved = [positives.copy() for _ in range(2)]
        moved[0][place], moved[1][place] = positives[place] + 1e-5, positives[place] - 1e-5
        up, down = (np.log(own(side) + others)[place[0]] for side in moved)
        expected[place] = (1 - stands_for[place[0]]) * (up - down) / 2e-5
    np.testing.assert_allclose(tape.gradient(total, g), expected, rtol=1e-4)


def test_own_entries_are_those_of_the_denominators(monkeypatch):
    """What is taken back of a row's own entry is its chance in log Z: weights, margin and what the entry counts."""
    asked, honest = [], multi_queue_negatives.own_entry_once
    monkeypatch.setattr(multi_queue_negatives, "own_entry_once", lambda *arguments: asked.append(arguments)
                        or honest(*arguments))
    model = tiny_model(settings=dataclasses.replace(tiny_multi.GATED, intent_margin=2.0))
    objective, loops = (side(model) for side in (
        lambda model: tiny_multi.objective_of("cached", model, 8, intent_beta=0.0),
        lambda model: tiny_multi.Loops(model, 8, 0.0)))
    rng = np.random.default_rng(6)
    for _ in range(6):
        batch = random_batch(rng, 5, all_valid=True)
        step(objective, batch)
        loops.enqueue(batch)
    positives, vectors, logs, _, temperature = asked[-1]
    chances = np.exp(np.einsum("bhd,bd->bh", vectors, positives) / temperature - logs)
    history = batch["history"]
    clicks = tf.reshape(model.history_vectors(tf.reshape(history, [-1, 2])), [5, tiny_multi.HISTORY, -1])
    found = model.user_encoder(Clicks(None, clicks, history[:, :, 0] > 0))
    for row, target in enumerate(batch["target"].numpy()[:, 0]):
        intent = int(loops.intents([target])[0])
        ids = [*loops.main, *loops.own[intent]]
        powers = lambda ids: tf.nn.softmax(found.logits[row]).numpy()[:, None] * np.exp(
            found.vectors[row].numpy() @ loops.vectors(ids).T / tiny_multi.TEMPERATURE + loops.margins(ids))
        own, weight = powers([target])[:, 0], loops.weight(intent)
        expected = weight * own / ((powers(ids) @ loops.counts(intent)).sum() + (1 - weight) * own.sum())
        np.testing.assert_allclose(chances[row], expected, rtol=1e-4)


def test_auxiliary_losses_join_with_their_weights():
    """λ1·L1 + λ2·L2 + λ3·L3, rows of weight 0 and padding left out of all three."""
    weights = dict(routing_weight=0.5, vector_weight=2.0, balance_weight=3.0)
    rng = np.random.default_rng(4)
    batch = random_batch(rng, 6)
    plain = tiny_multi.objective_of("raw", tiny_model(), 8)
    settings = MultiCLRecSettings(multi_objective="paper", **weights)
    with_all = tiny_multi.objective_of("raw", tiny_model(settings=settings), 8)
    difference = step(with_all, batch)[0] - step(plain, batch)[0]
    model, rows = plain.model, batch["weight"].numpy() > 0
    logits = model.user_encoder.route(model.item_encoder.categories(batch["target"])).numpy()
    intents = logits.argmax(axis=1)
    history = batch["history"]
    clicks = tf.reshape(model.history_vectors(tf.reshape(history, [-1, 2])), [6, tiny_multi.HISTORY, -1])
    users = model.user_encoder(Clicks(None, clicks, history[:, :, 0] > 0)).vectors.numpy()
    targets = tiny_multi.unit(model.item_vectors(batch["target"]).numpy())
    scores = np.einsum("bhd,bd->bh", users, targets) / tiny_multi.TEMPERATURE
    of_rows = (0.5 * auxiliary.intent_cross_entropy(tf.constant(logits), tf.constant(intents))
               + 2.0 * auxiliary.intent_cross_entropy(tf.constant(scores, tf.float32), tf.constant(intents)))
    counted = [*history.numpy()[rows].reshape(-1, 2), *batch["target"].numpy()[rows]]
    counted = tf.constant([row for row in counted if row[0] > 0], tf.int64)
    routed = tf.nn.softmax(model.user_encoder.route(model.item_encoder.categories(counted))).numpy().mean(axis=0)
    balance = np.sum(1 / 3 * (np.log(1 / 3) - np.log(routed)))
    expected = np.sum(batch["weight"] * of_rows) / np.sum(batch["weight"]) + 3.0 * balance
    np.testing.assert_allclose(difference, expected, rtol=1e-4)


@pytest.mark.parametrize("balanced, counted", [("targets", [4, 4, 9]), ("unique", [1, 2, 4, 9])])
def test_whose_routing_is_balanced(balanced, counted):
    settings = MultiCLRecSettings(routing_weight=0.0, vector_weight=0.0, balance_items=balanced,
                                  multi_objective="paper")
    batch = tiny_multi.make_batch([4, 4, 9, 7], [[1, 2, 0], [2, 4, 9], [1, 0, 0], [5, 6, 7]], [1, 1, 1, 0])
    found = (step(tiny_multi.objective_of("raw", tiny_model(settings=settings), 8), batch)[0]
             - step(tiny_multi.objective_of("raw", tiny_model(), 8), batch)[0])
    model = tiny_model()
    routed = tf.nn.softmax(model.user_encoder.route(
        model.item_encoder.categories(tiny_multi.rows_of(np.array(counted))))).numpy().mean(axis=0)
    np.testing.assert_allclose(found, np.sum(1 / 3 * (np.log(1 / 3) - np.log(routed))), atol=2e-6)


def test_inverse_propensity_weighs_the_softmax_alone():
    """What the model adds to each row's loss is not multiplied by the row's weight."""
    batch, rows = random_batch(np.random.default_rng(5), 6), tiny_multi.rows_of(np.arange(tiny_multi.ITEMS + 1))
    found = {}
    for name, settings in (("none", tiny_multi.NO_AUXILIARY), ("all", MultiCLRecSettings(multi_objective="paper"))):
        softmax = FullSoftmax(tiny_model(settings=settings), rows)
        weighted = PropensityWeighted(
            softmax, lambda batch, constants: tf.cast(batch["target"][:, 0], tf.float32) / 20, 9.0)
        found[name] = weighted.open().rows(batch), softmax.open().rows(batch)
    added = found["all"][1] - found["none"][1]
    np.testing.assert_allclose(found["all"][0] - found["none"][0], added, rtol=1e-4)
    assert np.std(added) > 0.1 and np.std(found["none"][0] / found["none"][1]) > 0.1


def test_vectors_come_by_falling_weight_even_where_weights_vanish():
    model, batch = tiny_model(intents=9), random_batch(np.random.default_rng(0), 20)
    model.user_encoder.temperature = 1e-3
    clicks = tf.reshape(model.history_vectors(tf.reshape(batch["history"], [-1, 2])), [20, tiny_multi.HISTORY, -1])
    mask = batch["history"][:, :, 0] > 0
    vectors, weights, numbers = model.user_intents(clicks, mask)
    found = model.user_encoder(Clicks(None, clicks, mask))
    order = np.argsort(-found.logits.numpy(), axis=1, kind="stable")
    np.testing.assert_array_equal(numbers, order)
    np.testing.assert_array_equal(vectors, np.take_along_axis(found.vectors.numpy(), order[:, :, None], axis=1))
    gated = tiny_model(intents=9, settings=tiny_multi.GATED)
    gated.user_encoder.temperature = 1e-3
    wider, _, _ = gated.user_intents(clicks, mask)
    np.testing.assert_array_equal(wider[:, :, :tiny_multi.DIM], vectors)
    np.testing.assert_allclose(wider[:, :, tiny_multi.DIM:-1], np.sqrt(7 * tiny_multi.TEMPERATURE) * np.eye(9)[numbers],
                               rtol=1e-6)
    np.testing.assert_allclose(wider[:, :, -1], tiny_multi.TEMPERATURE * tf.nn.log_softmax(
        np.take_along_axis(found.logits.numpy(), order, 1)), rtol=1e-5)
    np.testing.assert_allclose(weights, np.take_along_axis(tf.nn.softmax(found.logits).numpy(), order, 1), rtol=1e-5)


@pytest.mark.parametrize("kind", ["raw", "cached"])
def test_an_empty_batch_moves_nothing(kind):
    objective = tiny_multi.objective_of(kind, tiny_model(settings=MultiCLRecSettings()), 8)
    batch = tiny_multi.make_batch([3, 4], [[0, 0, 0]] * 2, [0.0, 0.0])
    loss, gradients = step(objective, batch)
    assert loss == 0 and all(np.isfinite(gradient).all() for gradient in gradients)
    opened = objective.queue.open()
    assert int(opened.main.fill()) == 0


def test_prefill_fills_all_queues():
    rng = np.random.default_rng(0)
    for kind in ("raw", "cached"):
        objective = tiny_multi.objective_of(kind, tiny_model(), 6)
        objective.prefill(random_batch(rng, 5) for _ in range(100))
        assert bool(objective.queue.open().full())
        health = objective.open().metrics()
        assert list(health) == list(objective.metric_names)
        assert (health["queue_fill"], health["queue_intent_fill_min"]) == (6, 6)
    opened = objective.queue.open()
    for vectors in (opened.main.read("vector"), opened.read("vector")):
        np.testing.assert_allclose(tf.norm(vectors, axis=1), 1.0, rtol=1e-5)


def test_entries_of_each_by_hand():
    """Queues of 6. To all rows, 3 items stand for a main queue of 6, a row's own aside: 5/2. Of an intent's 6, each of
    two stands for the whole, to the other; so does one that is alone, to nobody."""
    objective = tiny_multi.objective_of("cached", tiny_model(), 6)
    rng = np.random.default_rng(0)
    objective.prefill(random_batch(rng, 5) for _ in range(100))
    opened = objective.queue.open()
    found = objective.open()._entries_of_each(tf.constant([0, 0, 1, 2]), tf.constant(6, tf.int64),
                                              tf.constant([True, True, True, False]))
    np.testing.assert_allclose(found, 2.5 + 6 * np.array([[1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]]))


@pytest.mark.parametrize("settings, intent_beta", [(tiny_multi.NO_AUXILIARY, 1.0), (tiny_multi.GATED, 0.0)],
                         ids=["paper", "gated"])
def test_balanced_gradient_has_the_raw_queues_expectation(settings, intent_beta):
    """Over random batches that leave the model as it is, so that cached vectors are fresh ones; the plain gradient,
    whose items are pushed away by a small part of the queues, has another."""
    rng, steps = np.random.default_rng(0), 400
    sides = {name: tiny_multi.objective_of(kind, tiny_model(settings=settings), 24, balanced=balanced,
                                           intent_beta=intent_beta)
             for name, kind, balanced in (("raw", "raw", True), ("balanced", "cached", True),
                                          ("plain", "cached", False))}

    def gradient_of(objective):
        table = objective.model.item_encoder.ids.table

        @tf.function
        def gradient(batch):
            with tf.GradientTape() as tape:
                loss = objective.open().loss(batch)
            return tf.convert_to_tensor(tape.gradient(loss, table))
        return gradient

    gradients, found = {name: gradient_of(side) for name, side in sides.items()}, {name: [] for name in sides}
    for number in range(steps):
        batch = random_batch(rng, 12, all_valid=True)
        for name, gradient in gradients.items():
            value = gradient(batch).numpy()
            if number >= 60:  # the queues are full
                found[name].append(value)
    means = {name: np.mean(values, axis=0)[1:] for name, values in found.items()}
    distance = {name: np.linalg.norm(means[name] - means["raw"]) / np.linalg.norm(means["raw"]) for name in means}
    assert distance["balanced"] < 0.08 and distance["plain"] > 0.5, distance  # .03 is noise
