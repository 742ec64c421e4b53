"""The three queue variants against a loop over single entries, with gradients, and at their limits."""
import collections
import math

import numpy as np
import pytest

from clrec_tf.config import Config
from clrec_tf.data.schema import Feature
from clrec_tf.errors import UserError
from clrec_tf.losses.contrastive import contrastive_loss
from clrec_tf.losses.contrastive import weighted_mean
from clrec_tf.objectives.contrastive import build_variant
from clrec_tf.training.runtime import LocalRuntime
from tests.naive_queue import DIM, ITEMS, TEMPERATURE, NaiveQueue, make_batch, random_batch, tiny_model
import tensorflow as tf

KINDS = ("in_batch", "raw", "cached")


def make_variant(kind, model, capacity, mask_same_user=False, balanced=True, context=None):
    return build_variant(kind, model, capacity, mask_same_user, LocalRuntime().local_variable, balanced=balanced,
                         context=context)


def losses_of(variant, batch):
    return contrastive_loss(*variant.open().logits(batch))


def step(variant, batch):
    """(loss, sparse gradient of the item table) of one step."""
    with tf.GradientTape() as tape:
        loss = weighted_mean(losses_of(variant, batch), batch["weight"])
    return loss, tape.gradient(loss, variant.model.item_encoder.ids.table)


def queued(variant):
    """Item ids of the valid entries, in slot order."""
    opened = variant.queue.open()
    return opened.read("item").numpy()[:int(opened.fill()), 0].tolist()


def gradients_over_batches(sides, seed, steps):
    """Name of each variant -> its mean gradient over the same batches, from a full queue on; the standard error of what
    "balanced" and "raw" differ by."""
    rng, found = np.random.default_rng(seed), {name: [] for name in sides}
    gradients = {name: tf.function(lambda batch, variant=variant: tf.convert_to_tensor(step(variant, batch)[1]))
                 for name, variant in sides.items()}
    for number in range(steps):
        batch = random_batch(rng, 4, all_valid=True)
        for name, gradient in gradients.items():
            value = gradient(batch).numpy()
            if number >= 4:  # the queue is full
                found[name].append(value)
    error = np.std(np.array(found["balanced"]) - found["raw"], axis=0) / np.sqrt(steps)
    return {name: np.mean(values, axis=0) for name, values in found.items()}, error


def test_balanced_gradient_has_the_raw_queues_expectation():
    """Over random batches that leave the table as it is, so that cached vectors are fresh ones; the plain gradient, whose
    items are pushed away by a quarter of the queue, has another."""
    means, error = gradients_over_batches({
        name: make_variant(kind, tiny_model(), 16, balanced=balanced) for name, kind, balanced in (
            ("raw", "raw", True), ("balanced", "cached", True), ("plain", "cached", False))}, seed=0, steps=400)
    assert (np.abs(means["balanced"] - means["raw"])[1:] < 4.5 * error[1:] + 1e-4).all()
    assert (np.abs(means["plain"] - means["raw"])[1:] > 6 * error[1:]).any()


@pytest.mark.parametrize("capacity", [4, 10])
@pytest.mark.parametrize("mask_same_user", [False, True])
@pytest.mark.parametrize("kind,similarity,balanced", [
    ("in_batch", "cosine", False), ("raw", "cosine", False), ("cached", "cosine", False), ("cached", "cosine", True),
    ("cached", "dot", True)])
def test_losses_and_gradients_equal_the_naive_queue(kind, similarity, balanced, mask_same_user, capacity):
    rng = np.random.default_rng(capacity)
    model = tiny_model(similarity=similarity)
    variant = make_variant(kind, model, capacity, mask_same_user, balanced)
    naive = NaiveQueue(kind, capacity, mask_same_user, similarity, balanced)
    for _ in range(5):
        batch, table = random_batch(rng, 4), model.item_encoder.ids.table
        loss, gradient = step(variant, batch)
        now = table.numpy().astype(float)
        naive.enqueue(now, batch)
        np.testing.assert_allclose(loss, naive.loss(now, batch), rtol=1e-5)
        np.testing.assert_allclose(tf.convert_to_tensor(gradient), naive.gradient(now, batch), atol=2e-5)
        # The table moves, as in training: only the cached queue keeps what the vectors were.
        table.assign_add(rng.normal(0, .3, table.shape))


@pytest.mark.parametrize("mask_same_user", [False, True])
@pytest.mark.parametrize("kind", ["in_batch", "raw", "cached"])
def test_negatives_of_the_rows_context_alone(kind, mask_same_user):
    """Against the loop, and not equal to the loss over all contexts; equal scores give the chance loss."""
    rng, model = np.random.default_rng(7), tiny_model()
    variant = make_variant(kind, model, 10, mask_same_user, False, context=0)
    naive, everywhere = (NaiveQueue(kind, 10, mask_same_user, contexts=contexts) for contexts in (True, False))
    apart = 0.0
    for _ in range(4):
        batch, table = random_batch(rng, 4), model.item_encoder.ids.table
        loss, gradient = step(variant, batch)
        now = table.numpy().astype(float)
        naive.enqueue(now, batch)
        everywhere.enqueue(now, batch)
        np.testing.assert_allclose(loss, naive.loss(now, batch), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(tf.convert_to_tensor(gradient), naive.gradient(now, batch), atol=2e-5)
        apart += abs(float(loss) - everywhere.loss(now, batch))
        flat, kept = np.ones_like(now), [entry.vector for entry in naive.entries]
        opened = variant.open()
        for entry in naive.entries:  # as if all scores were equal
            entry.vector = naive.compared(flat[0])
        np.testing.assert_allclose(opened.chance_loss(batch), naive.loss(flat, batch), rtol=1e-5)
        for entry, vector in zip(naive.entries, kept):
            entry.vector = vector
        table.assign_add(rng.normal(0, .3, table.shape))
    assert apart > .1


def test_balanced_gradient_has_the_raw_queues_expectation_within_contexts():
    means, error = gradients_over_batches({
        name: make_variant(kind, tiny_model(), 16, balanced=True, context=0)
        for name, kind in (("raw", "raw"), ("balanced", "cached"))}, seed=1, steps=500)
    assert (np.abs(means["balanced"] - means["raw"])[1:] < 4.5 * error[1:] + 1e-4).all()


@pytest.mark.parametrize("kind", ["raw", "cached"])
def test_a_queue_of_the_batch_size_is_in_batch(kind):
    rng, model = np.random.default_rng(5), tiny_model()
    in_batch, variant = make_variant("in_batch", model, 4), make_variant(kind, model, 4)
    for _ in range(3):
        batch = random_batch(rng, 4, all_valid=True)
        (loss, gradient), (expected, wanted) = step(variant, batch), step(in_batch, batch)
        np.testing.assert_allclose(loss, expected, atol=1e-6)
        np.testing.assert_allclose(tf.convert_to_tensor(gradient), tf.convert_to_tensor(wanted), atol=1e-6)


@pytest.mark.parametrize("kind,sizes", [
    ("in_batch", [4, 4, 3, 4]), ("raw", [4, 8, 10, 10]), ("cached", [4, 8, 10, 10])])
def test_positive_once_and_duplicates_kept(kind, sizes):
    """Where all vectors are equal the loss is the logarithm of how many terms its denominator has."""
    model = tiny_model()
    model.item_encoder.ids.table.assign(tf.ones([ITEMS + 1, DIM]))
    variant = make_variant(kind, model, 10)
    for size, targets, weights in zip(sizes, ([2, 2, 2, 2], [2, 3, 4, 5], [2, 2, 6, 9], [7, 8, 9, 10]),
                                      ([1] * 4, [1] * 4, [1, 1, 0, 1], [1] * 4)):
        losses = losses_of(variant, make_batch(targets, weights=weights)).numpy()[np.array(weights) > 0]
        np.testing.assert_allclose(losses, math.log(size), rtol=1e-6)
    if kind != "in_batch":
        assert 6 not in queued(variant)  # its row had no weight


@pytest.mark.parametrize("kind", ["raw", "cached"])
@pytest.mark.parametrize("capacity,appearances", [(4, [1, 1, 1, 1]), (8, [2, 2, 2, 2]), (10, [2, 2, 3, 3])])
def test_each_click_is_in_as_many_denominators_as_batches_fit(kind, capacity, appearances):
    """Q/B of them; 10/4 = 2.5 is an average: a click leaves when 10 newer ones came, so a batch's first rows sooner."""
    model = tiny_model()
    angle = np.arange(ITEMS + 1) * math.pi / (ITEMS + 1)
    model.item_encoder.ids.table.assign(np.stack([np.cos(angle), np.sin(angle), 0 * angle], axis=1))
    variant, seen = make_variant(kind, model, capacity), collections.Counter()
    for number in range(6):
        # Twelve items in three batches, over and over: a click is told from the same item's click three steps on.
        targets = [(4 * number + row) % ITEMS + 1 for row in range(4)]
        _, *blocks = variant.open().logits(make_batch(targets))
        candidates = tf.concat(blocks, axis=1)
        # All users look along item 1, so a logit is the cosine of its item's angle to it.
        present = candidates[0][candidates[0] > -1e8].numpy().astype(float) * TEMPERATURE
        for cosine in np.clip(present, -1, 1):
            item = round(float((np.arccos(cosine) + angle[1]) / angle[1])) - 1
            age = (number - (item // 4)) % 3
            seen[4 * (number - age) + item % 4] += 1
    # The last two batches have not had all their time.
    assert [seen[serial] for serial in range(16)] == appearances * 4


@pytest.mark.parametrize("kind", ["raw", "cached"])
def test_warming_up_equals_a_smaller_full_queue(kind):
    rng, model = np.random.default_rng(2), tiny_model()
    small, large = make_variant(kind, model, 8), make_variant(kind, model, 11)
    for name, variable in large.queue.local_variables.items():
        if name != "count":  # what empty slots hold does not matter
            variable.assign(tf.cast(rng.integers(1, ITEMS, variable.shape), variable.dtype))
    for _ in range(2):
        batch = random_batch(rng, 4, all_valid=True)
        (loss, gradient), (expected, wanted) = step(large, batch), step(small, batch)
        np.testing.assert_allclose(loss, expected, rtol=1e-6)
        np.testing.assert_allclose(tf.convert_to_tensor(gradient), tf.convert_to_tensor(wanted), atol=1e-6)


def test_what_is_encoded_and_trained():
    """Raw: every queued item. Cached: the batch's items only, those as live negatives of each other too."""
    old, new = [2, 3, 4, 5], [6, 7, 8, 9]
    for kind, touched in (("raw", {0, 1, *old, *new}), ("cached", {0, 1, *new}), ("in_batch", {0, 1, *new})):
        variant = make_variant(kind, tiny_model(), 8)
        step(variant, make_batch(old))
        batch = make_batch(new)
        with tf.GradientTape() as tape:
            # The first row's loss alone: its candidates are trained through the denominator.
            loss = losses_of(variant, batch)[0]
        gradient = tape.gradient(loss, variant.model.item_encoder.ids.table)
        assert set(gradient.indices.numpy()) == touched and len(gradient.indices) == len(touched)
        moved = np.flatnonzero(np.abs(tf.convert_to_tensor(gradient)).max(axis=1))
        assert set(moved) == touched - {0}


def test_a_vector_that_is_not_finite_does_not_enter_the_cached_queue():
    model = tiny_model()
    variant, naive = make_variant("cached", model, 8), NaiveQueue("cached", 8, False)
    table = model.item_encoder.ids.table
    healthy = table.numpy()
    table.scatter_nd_update([[3]], [[math.nan] * DIM])
    variant.open().logits(make_batch([2, 3, 4]))
    assert queued(variant) == [2, 4]
    assert np.isfinite(variant.queue.local_variables["vector"]).all()
    table.assign(healthy)
    naive.enqueue(healthy, make_batch([2, 4]))
    batch = make_batch([5, 3, 6])
    naive.enqueue(healthy, batch)
    np.testing.assert_allclose(step(variant, batch)[0], naive.loss(healthy.astype(float), batch), rtol=1e-5)


@pytest.mark.parametrize("kind", ["raw", "cached"])
def test_prefilled_equals_earlier_batches_of_the_same_model(kind):
    model = tiny_model()
    variant, naive = make_variant(kind, model, 6), NaiveQueue(kind, 6, True)
    variant.mask_same_user = True
    batches = [make_batch([2, 3, 4, 5], users=[5, 6, 0, 8]),
               make_batch([6, 7, 8, 9], users=[1, 2, 3, 9], weights=[1, 0, 1, 1]), make_batch([10, 10, 10, 10])]
    variant.prefill(batches)
    assert sorted(queued(variant)) == [3, 4, 5, 6, 8, 9]  # full before the third
    table, batch = model.item_encoder.ids.table.numpy().astype(float), make_batch([11, 12])
    for earlier in batches[:2] + [batch]:
        naive.enqueue(table, earlier)
    np.testing.assert_allclose(step(variant, batch)[0], naive.loss(table, batch), rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_without_weight_counts_nothing(kind):
    variant = make_variant(kind, tiny_model(), 8)
    loss, gradient = step(variant, make_batch([2, 3], weights=[0, 0]))
    assert float(loss) == 0 and (tf.convert_to_tensor(gradient).numpy() == 0).all()
    assert variant.queue is None or queued(variant) == []


@pytest.mark.parametrize("kind", ["raw", "cached"])
def test_features_stay_with_their_items(kind):
    features = (Feature("category", 4, 1, 3), Feature("tags", 5, 2, 4))
    model = tiny_model(features)
    facts = np.random.default_rng(0).integers(0, 4, (ITEMS + 1, 3))
    rows = lambda ids: np.concatenate([ids, facts[ids[..., 0]] * (ids > 0)], axis=-1)
    variant, entries = make_variant(kind, model, 6), collections.deque(maxlen=6)
    for targets in ([2, 3, 4, 2], [5, 6, 7, 8]):
        batch = make_batch(targets)
        batch["history"], batch["target"] = (tf.constant(rows(batch[name].numpy())) for name in ("history", "target"))
        entries.extend(batch["target"].numpy())
        items = model.score_vectors(model.item_vectors(tf.constant(np.array(entries))))
        user = model.score_vectors(model.item_vectors(batch["history"][0, :1]))
        logits = (tf.matmul(user, items, transpose_b=True) / TEMPERATURE).numpy()[0].astype(float)
        expected = np.log(np.exp(logits).sum()) - logits[len(entries) - 4:]
        np.testing.assert_allclose(losses_of(variant, batch), expected, rtol=1e-5)


def test_health():
    variant = make_variant("cached", tiny_model(), 6)
    assert {name: float(value) for name, value in variant.open().metrics().items()} == {
        "queue_fill": 0, "queue_duplicate_rate": 0, "queue_entered": 0}
    opened = variant.open()
    opened.logits(make_batch([2, 2, 3, 2]))
    opened.logits(make_batch([4, 2, 5, 3]))
    assert float(opened.metrics()["queue_entered"]) == 8 and float(variant.open().metrics()["queue_entered"]) == 0
    assert {name: float(value) for name, value in variant.open().metrics().items()} == {
        "queue_fill": 6, "queue_duplicate_rate": pytest.approx(2 / 6), "queue_entered": 0}
    assert make_variant("in_batch", tiny_model(), 6).open().metrics() == {}


@pytest.mark.parametrize("kind,mask_same_user", [("in_batch", False), ("raw", False), ("cached", False), ("raw", True)])
def test_compiled_equals_eager_with_one_trace(kind, mask_same_user):
    rng, model = np.random.default_rng(4), tiny_model()
    eager, twin = make_variant(kind, model, 10, mask_same_user), make_variant(kind, model, 10, mask_same_user)
    compiled = tf.function(lambda batch: step(twin, batch))
    for _ in range(5):
        batch = random_batch(rng, 4)
        (loss, gradient), (expected, wanted) = compiled(batch), step(eager, batch)
        np.testing.assert_allclose(loss, expected, rtol=1e-6)
        np.testing.assert_allclose(tf.convert_to_tensor(gradient), tf.convert_to_tensor(wanted), atol=1e-6)
    assert compiled.experimental_get_tracing_count() == 1


def test_a_queue_smaller_than_the_batch_is_refused():
    with pytest.raises(UserError, match="--queue_size=3 .*--batch_size=4"):
        Config.of(queue_size=3, batch_size=4)
    for settings in (dict(queue_size=4), dict(queue_size=3, queue="in_batch")):
        Config.of(**settings, batch_size=4)
