"""Every comparison loss, and the queues with correction or impressions, against plain NumPy loops, with gradients.

The loops are in double precision and take the very negatives that were drawn, from a twin of the sampler or stream.
"""
import collections
import math

import numpy as np
import pytest

from clrec_tf.config import ModelConfig
from clrec_tf.data.schema import Feature
from clrec_tf.data.schema import Schema
from clrec_tf.encoders.attention_user import MeanUserEncoder
from clrec_tf.encoders.clicks import ClickEncoder
from clrec_tf.encoders.items import ItemEncoder
from clrec_tf.losses.contrastive import weighted_mean
from clrec_tf.models import sampled_variants
from clrec_tf.models.build import build_model
from clrec_tf.models.clrec import CLRec
from clrec_tf.models.queue_variants import build_variant
from clrec_tf.negatives.alias_sampler import AliasSampler
from clrec_tf.negatives.impression_stream import ImpressionStream
from clrec_tf.negatives.impression_stream import coprime_stride
from clrec_tf.training.runtime import LocalRuntime
from tests.naive_queue import DIM
from tests.naive_queue import HISTORY
from tests.naive_queue import ITEMS
from tests.naive_queue import TEMPERATURE
from tests.naive_queue import make_batch
from tests.naive_queue import random_batch
from tests.naive_queue import tiny_model
import tensorflow as tf

KINDS = ("in_batch", "raw", "cached")
ROWS = tf.range(ITEMS + 1, dtype=tf.int64)[:, None]
SHARE = np.arange(1, ITEMS + 1) ** 1.5 / np.sum(np.arange(1, ITEMS + 1) ** 1.5)
LOG_Q = np.append(0.0, np.log(SHARE))
NEGATIVES = 9
FEATURES = (Feature("category", 4, 1, 3), Feature("tags", 5, 2, 4))
FACTS = np.random.default_rng(0).integers(0, 4, (ITEMS + 1, 3)) * (np.arange(ITEMS + 1) > 0)[:, None]
WIDE_ROWS = tf.concat([ROWS, tf.constant(FACTS)], axis=1)


def local_variable(*arguments):
    return LocalRuntime().local_variable(*arguments)


def alias_sampler(seed=4):
    return AliasSampler(SHARE, seed, local_variable)


def twin_draws(shape):
    """Ids that a new sampler's first call draws."""
    twin = alias_sampler()
    return (1 + twin.sample(twin.handles(), shape)).numpy()


def step(objective, batch, variables):
    """(loss, gradients) of one step."""
    with tf.GradientTape() as tape:
        losses = objective.losses(batch, objective.handles())
        loss = weighted_mean(losses, batch["weight"])
    return loss, [tf.convert_to_tensor(gradient) for gradient in tape.gradient(loss, variables)]


def central_differences(loss, tables, width=1e-5):
    """Gradients of loss(*tables) by every entry."""
    gradients = [np.zeros_like(table) for table in tables]
    for table, gradient in zip(tables, gradients):
        for place in np.ndindex(*table.shape):
            middle = table[place]
            values = []
            for table[place] in (middle + width, middle - width):
                values.append(loss(*tables))
            table[place] = middle
            gradient[place] = (values[0] - values[1]) / (2 * width)
    return gradients


def l2(vector):
    return vector / np.sqrt(max(vector @ vector, 1e-12))


class Towers:
    """φ in loops: items by id alone, or histories by id and features."""

    def __init__(self, tables, features=False):
        self.ids, self.features = tables[0], tables[1:] if features else None

    def item(self, item):
        return l2(self.ids[item])

    def read(self, item):
        """g as histories use it."""
        if self.features is None:
            return self.ids[item]
        category, tags = self.features
        known = [tags[tag] for tag in FACTS[item, 1:] if tag]
        slot = np.zeros(2) if FACTS[item, 0] == 0 else category[FACTS[item, 0]]
        return self.ids[item] + np.concatenate([slot, sum(known) / len(known) if known else np.zeros(1)])

    def logit(self, history, candidate):
        """φ of a history of ids, and a candidate's id or normalized vector."""
        user = l2(sum(self.read(item) for item in history if item) / np.count_nonzero(history))
        return user @ (self.item(candidate) if np.ndim(candidate) == 0 else candidate) / TEMPERATURE


def mean_of_rows(batch, loss_of_row):
    """Σ w ℓ / Σ w of ℓ(row, history, target)."""
    weights = batch["weight"].numpy()
    return sum(weights[row] * loss_of_row(row, batch["history"].numpy()[row, :, 0], batch["target"].numpy()[row, 0])
               for row in np.flatnonzero(weights)) / weights.sum()


def log_sum_exp(terms):
    return np.log(np.sum(np.exp(terms)))


def softplus(value):
    return np.log1p(np.exp(value))


def batch_with_padding(seed=1):
    """A random batch and a row of weight 0 without history and target."""
    batch = random_batch(np.random.default_rng(seed), 5)
    histories, targets, weights = (batch[name].numpy().copy() for name in ("history", "target", "weight"))
    histories[4], targets[4], weights[3:] = 0, 0, [1.5, 0.0]
    return make_batch(targets[:, 0], weights=weights, histories=histories[:, :, 0])


def full_softmax(towers, batch):
    return mean_of_rows(batch, lambda row, history, target: log_sum_exp(
        [towers.logit(history, item) for item in range(1, ITEMS + 1)]) - towers.logit(history, target))


def sampled_softmax(towers, batch, ids):
    logit = lambda history, item: towers.logit(history, item) - LOG_Q[item]
    return mean_of_rows(batch, lambda row, history, target: log_sum_exp(
        [logit(history, item) for item in (target, *ids)]) - logit(history, target))


def negative_sampling(towers, batch, ids):
    return mean_of_rows(batch, lambda row, history, target: softplus(-towers.logit(history, target)) + sum(
        softplus(towers.logit(history, item)) for item in ids[row]))


def inverse_propensity(towers, batch, propensity, cap, ids):
    weights, kept = batch["weight"].numpy(), batch["weight"].numpy() > 0
    inverse = np.array([min(1 / propensity[item], cap) if item else 1e9 for item in batch["target"].numpy()[:, 0]])
    inverse /= (inverse * weights)[kept].sum() / weights.sum()
    single = lambda row: {**batch, "weight": tf.one_hot(row, len(weights))}
    return sum(weights[row] * inverse[row] * sampled_softmax(towers, single(row), ids)
               for row in np.flatnonzero(weights)) / weights.sum()


PROPENSITY = np.append(0.0, SHARE[::-1])


def case(name, model):
    """(objective, its loss in loops of (towers, batch))."""
    sampled = lambda: sampled_variants.SampledSoftmax(
        model, ROWS, alias_sampler(), NEGATIVES, tf.constant(LOG_Q, tf.float32))
    if name == "full_softmax":
        return sampled_variants.FullSoftmax(model, ROWS), full_softmax
    if name == "sampled_softmax":
        return sampled(), lambda towers, batch: sampled_softmax(towers, batch, twin_draws([NEGATIVES]))
    if name == "ipw":
        propensity = lambda batch: tf.gather(tf.constant(PROPENSITY, tf.float32), batch["target"][:, 0])
        cap = 1 / np.sort(PROPENSITY)[5]
        return (sampled_variants.PropensityWeighted(sampled(), propensity, cap),
                lambda towers, batch: inverse_propensity(towers, batch, PROPENSITY, cap, twin_draws([NEGATIVES])))
    shared, count = name == "shared_negative_sampling", 1 if name == "bce" else NEGATIVES
    ids = np.tile(twin_draws([NEGATIVES]), (5, 1)) if shared else twin_draws([5 * count]).reshape(5, count)
    return (sampled_variants.NegativeSampling(model, ROWS, alias_sampler(), count, shared),
            lambda towers, batch: negative_sampling(towers, batch, ids))


@pytest.mark.parametrize("name", ["full_softmax", "sampled_softmax", "ipw", "negative_sampling",
                                  "shared_negative_sampling", "bce"])
@pytest.mark.parametrize("seed", [1, 2])
def test_losses_and_gradients_equal_loops_over_the_negatives_drawn(name, seed):
    model, batch = tiny_model(seed=seed), batch_with_padding(seed)
    objective, naive = case(name, model)
    ids = twin_draws([NEGATIVES])
    assert len(set(ids)) < NEGATIVES and set(ids) & set(batch["target"].numpy()[:3, 0])  # duplicates, and hits
    table = model.item_encoder.ids.table
    now = table.numpy().astype(float)
    loss, [gradient] = step(objective, batch, [table])
    np.testing.assert_allclose(loss, naive(Towers([now]), batch), rtol=1e-5)
    [expected] = central_differences(lambda ids: naive(Towers([ids]), batch), [now])
    np.testing.assert_allclose(gradient, expected, atol=2e-5)
    assert np.abs(expected).max() > .05
    assert objective.health(objective.handles()) == {}
    assert set(objective.states) == (set() if name == "full_softmax" else {"sampler"})


def test_negatives_differ_from_step_to_step():
    objective, _ = case("sampled_softmax", tiny_model())
    batch = batch_with_padding()
    assert len({float(step(objective, batch, [objective.model.item_encoder.ids.table])[0]) for _ in range(4)}) == 4


def test_rows_have_negatives_of_their_own_unless_shared():
    """Rows alike in all have equal losses only where the negatives are shared."""
    batch = make_batch([2, 2, 2, 2, 2])
    for name, distinct in (("negative_sampling", 5), ("shared_negative_sampling", 1)):
        objective, _ = case(name, tiny_model())
        assert len(set(np.round(objective.losses(batch, objective.handles()).numpy(), 5))) == distinct


@pytest.mark.parametrize("negatives,drawn_items", [(6, 6), (50, ITEMS)])  # never more than there are
def test_tf_default_is_tensorflows_own_loss(monkeypatch, negatives, drawn_items):
    drawn, sample = [], tf.random.log_uniform_candidate_sampler

    def recorded(*arguments):
        drawn.append((arguments, sample(*arguments)))
        return drawn[-1][1]

    monkeypatch.setattr(tf.random, "log_uniform_candidate_sampler", recorded)
    model, batch = tiny_model(), batch_with_padding()
    objective = sampled_variants.TfDefaultSampledSoftmax(model, ROWS, None, negatives)
    table = model.item_encoder.ids.table
    with tf.GradientTape(persistent=True) as tape:
        losses = objective.losses(batch, objective.handles())
        loss = weighted_mean(losses, batch["weight"])
    gradient = tf.convert_to_tensor(tape.gradient(loss, table))
    (arguments, values), kept = drawn[0], batch["weight"].numpy() > 0
    assert arguments[1:] == (1, drawn_items, True, ITEMS) and len(set(values[0].numpy())) == drawn_items
    labels = batch["target"] - 1
    assert set(labels.numpy()[kept, 0]) & set(values[0].numpy())  # accidental hits, which it removes
    np.testing.assert_array_equal(arguments[0][:4], labels[:4])
    with tf.GradientTape() as tape:
        weights = tf.math.l2_normalize(tf.convert_to_tensor(table)[1:], axis=1) / TEMPERATURE
        clicked = [[item for item in row if item] for row in batch["history"].numpy()[:4, :, 0]]
        users = tf.stack([tf.reduce_mean(tf.gather(table, row), axis=0) for row in clicked])
        expected = tf.nn.sampled_softmax_loss(
            weights, tf.zeros(ITEMS), labels[:4], tf.math.l2_normalize(users, axis=1), drawn_items, ITEMS,
            sampled_values=(values[0], values[1][:4], values[2]))
        theirs = weighted_mean(expected, batch["weight"][:4])
    np.testing.assert_allclose(losses.numpy()[kept], expected.numpy()[kept[:4]], rtol=1e-5)
    np.testing.assert_allclose(gradient, tf.convert_to_tensor(tape.gradient(theirs, table)), atol=1e-5)
    assert objective.states == {}


def test_weights_without_bound_leave_padding_alone():
    """q̂ of a row that does not count may be 0, which without a cap is an infinite weight."""
    model, batch = tiny_model(), batch_with_padding()
    softmax = sampled_variants.FullSoftmax(model, ROWS)
    weighted = sampled_variants.PropensityWeighted(
        softmax, lambda batch: tf.gather(tf.constant(PROPENSITY, tf.float32), batch["target"][:, 0]), math.inf)
    loss, [gradient] = step(weighted, batch, [model.item_encoder.ids.table])
    assert np.isfinite(loss) and np.isfinite(gradient).all() and np.abs(gradient).max() > .01


# The queue with a correction, and fed with impressions.


class Loops:
    """A queue's denominator in loops: entries [item, vector as it was, whether of this step]."""

    def __init__(self, kind, capacity, log_q, impressions):
        self.kind, self.log_q, self.impressions = kind, log_q, impressions
        self.entries = collections.deque(maxlen=capacity)

    def push(self, towers, batch):
        if self.kind == "in_batch":
            self.entries.clear()
        for entry in self.entries:
            entry[2] = False
        items = batch["target"].numpy()[batch["weight"].numpy() > 0, 0]
        if self.impressions is not None:
            items = [self.impressions.popleft() for _ in batch["weight"]]
        self.entries.extend([item, towers.item(item), True] for item in items)

    def loss(self, towers, batch):
        def of_row(row, history, target):
            terms = [towers.logit(history, vector if self.kind == "cached" and not live else item) - self.log_q[item]
                     for item, vector, live in self.entries]
            positive = towers.logit(history, target) - self.log_q[target]
            return log_sum_exp(terms + [positive] * (self.impressions is not None)) - positive
        return mean_of_rows(batch, of_row)


SHOWN = np.array([3, 3, 12, 5, 1, 7, 3, 9, 2, 2, 11, 6, 8])


def stream(rows=ROWS, seed=3, items=SHOWN):
    return ImpressionStream(items, rows, seed, local_variable)


def stream_order(count):
    """Items that a new stream gives, by the definition: multiples of its stride."""
    stride = coprime_stride(len(SHOWN), 3)
    return collections.deque(SHOWN[index * stride % len(SHOWN)] for index in range(count))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("beta,impressions", [(0.0, False), (.4, False), (1.0, True), (.4, True)])
def test_corrected_and_impression_fed_queues_equal_loops(kind, beta, impressions):
    rng, model = np.random.default_rng(7), tiny_model()
    log_q = (1 - beta) * LOG_Q
    variant = build_variant(kind, model, 10, False, local_variable,
                            None if beta == 1 else tf.constant(log_q, tf.float32), stream() if impressions else None)
    naive = Loops(kind, 10, log_q, stream_order(100) if impressions else None)
    table = model.item_encoder.ids.table
    compiled = tf.function(lambda batch: step(variant, batch, [table]))
    for number in range(5):  # while the queue fills, and when it is full
        batch = random_batch(rng, 4)
        loss, [gradient] = compiled(batch)
        now = table.numpy().astype(float)
        naive.push(Towers([now]), batch)
        np.testing.assert_allclose(loss, naive.loss(Towers([now]), batch), rtol=1e-5)
        if number in (1, 4):
            [expected] = central_differences(lambda ids: naive.loss(Towers([ids]), batch), [now])
            np.testing.assert_allclose(gradient, expected, atol=2e-5)
        table.assign_add(rng.normal(0, .3, table.shape))
    if kind != "in_batch":
        assert float(variant.health(variant.handles())["queue_fill"]) == 10


@pytest.mark.parametrize("kind,sizes", [("in_batch", [4, 4, 4]), ("raw", [4, 8, 10]), ("cached", [4, 8, 10])])
def test_beside_impressions_the_positive_stands_once(kind, sizes):
    """All vectors equal: the loss is the logarithm of how many terms there are, the impressions and the positive."""
    model = tiny_model()
    model.item_encoder.ids.table.assign(tf.ones([ITEMS + 1, DIM]))
    variant = build_variant(kind, model, 10, False, local_variable, None, stream())
    for size, weights in zip(sizes, ([1, 1, 1, 1], [1, 0, 0, 1], [0, 0, 1, 0])):  # rows without weight change nothing
        losses = variant.losses(make_batch([2, 3, 3, 4], weights=weights), variant.handles())
        np.testing.assert_allclose(losses, math.log(size + 1), rtol=1e-6)
    assert set(variant.states) == {"impressions"} | ({"queue"} if kind != "in_batch" else set())
    if kind != "in_batch":
        expected = [list(stream_order(12))[place] for place in (10, 11, 2, 3, 4, 5, 6, 7, 8, 9)]
        assert variant.queue.read(variant.queue.handles(), "item").numpy()[:, 0].tolist() == expected


@pytest.mark.parametrize("kind", ["raw", "cached"])
def test_prefilled_with_impressions(kind):
    model = tiny_model()
    variant = build_variant(kind, model, 10, False, local_variable, None, stream())
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
        variant = build_variant(kind, model, 24, False, local_variable, log_q)
        for batch in batches[:-1]:
            variant.losses(batch, variant.handles())
        losses = variant.losses(batches[-1], variant.handles())
        full = sampled_variants.FullSoftmax(model, ROWS)
        counts = copies[batches[-1]["target"].numpy()[:, 0]]
        np.testing.assert_allclose(losses, full.losses(batches[-1], {}) + np.log(counts), rtol=1e-5)
    variant = build_variant("raw", model, 24, False, local_variable, log_q)
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
        taken = [one.next(one.handles(), count).numpy()[:, 0] for count in (size // 2, size - size // 2, size)]
        passes = np.concatenate(taken).reshape(2, size)
        np.testing.assert_array_equal(np.sort(passes, axis=1), [np.arange(size)] * 2)


def test_neighbours_in_the_log_are_no_neighbours_in_the_stream():
    size = 10_000
    for seed in range(4):
        one = stream(tf.range(size, dtype=tf.int64)[:, None], seed, np.arange(size))
        places = one.next(one.handles(), 256).numpy()[:, 0]
        assert np.abs(np.diff(places)).min() >= size // 3
        # A batch is spread over the whole log: each tenth of it holds at least half of its share.
        assert np.bincount(places * 10 // size, minlength=10).min() > 256 / 20


def test_the_stream_goes_on_from_its_state_and_workers_start_elsewhere():
    one, twin = stream(), stream()
    first = [one.next(one.handles(), 5).numpy().tolist() for _ in range(4)]
    state = one.local_variables["taken"].numpy()
    assert state == 20
    following = one.next(one.handles(), 5).numpy().tolist()
    twin.local_variables["taken"].assign(state)
    assert twin.next(twin.handles(), 5).numpy().tolist() == following
    assert [row for rows in first for row in rows] == [[item] for item in stream_order(20)]
    items, starts = np.arange(1000), set()
    for worker in range(8):
        far = ImpressionStream(items, tf.range(1000, dtype=tf.int64)[:, None], 0, lambda make, *rest, worker=worker:
                               local_variable(lambda _: make(tf.constant(worker)), *rest))
        starts |= set(far.next(far.handles(), 20).numpy()[:, 0].tolist())
    assert len(starts) == 8 * 20


def test_the_stream_gives_whole_rows():
    one = stream(WIDE_ROWS)
    rows = one.next(one.handles(), 6).numpy()
    np.testing.assert_array_equal(rows, WIDE_ROWS.numpy()[list(stream_order(6))])


# Candidates without features.


def featured_model():
    return CLRec(ItemEncoder(ITEMS + 1, DIM, FEATURES, seed=3), ClickEncoder(DIM, HISTORY, "none", (), 0),
                 MeanUserEncoder(), "cosine", TEMPERATURE, candidate_features=False)


def wide(batch):
    return {**batch, **{name: tf.gather(WIDE_ROWS, batch[name][..., 0]) for name in ("history", "target")}}


def candidates_without_features(name, model):
    """(objective, its `Loops` or its loss in loops)."""
    if name in KINDS:
        naive = Loops(name, 10, np.zeros(ITEMS + 1), None)
        return build_variant(name, model, 10, False, local_variable), naive
    sampled = sampled_variants.SampledSoftmax(model, WIDE_ROWS, alias_sampler(), NEGATIVES,
                                              tf.constant(LOG_Q, tf.float32))
    return sampled, lambda towers, batch: sampled_softmax(towers, batch, twin_draws([NEGATIVES]))


@pytest.mark.parametrize("name", [*KINDS, "sampled_softmax"])
def test_candidates_without_features_equal_loops(name):
    rng, model = np.random.default_rng(3), featured_model()
    objective, naive = candidates_without_features(name, model)
    variables = [table.table for table in (model.item_encoder.ids, *model.item_encoder.feature_tables)]
    largest = np.zeros(3)
    for _ in range(3 if name in KINDS else 1):
        batch = random_batch(rng, 4)
        loss, gradients = step(objective, wide(batch), variables)
        now = [variable.numpy().astype(float) for variable in variables]
        if name in KINDS:
            naive.push(Towers(now, True), batch)
        naive_loss = naive.loss if name in KINDS else naive
        np.testing.assert_allclose(loss, naive_loss(Towers(now, True), batch), rtol=1e-5)
        wanted = central_differences(lambda *tables: naive_loss(Towers(tables, True), batch), now)
        for gradient, expected in zip(gradients, wanted):
            np.testing.assert_allclose(gradient, expected, atol=2e-5)
        largest = np.maximum(largest, [np.abs(expected).max() for expected in wanted])
    assert largest.min() > .01  # every table is trained, the features' by the histories


def test_the_query_tower_reads_features_all_the_same():
    """With attention, times and positions too: users equal those of a model with features, candidates are id rows."""
    schema = Schema(ITEMS, ITEMS + 1, FEATURES, 0, "int", True, 9, 9, {}, {})
    batch = wide(batch_with_padding())
    batch["time_gap"] = tf.constant(np.random.default_rng(0).integers(-1, 10**5, (5, HISTORY)))
    settings = dict(embedding_dim=8, max_history=HISTORY, attention_heads=2)
    plain, full = (build_model(ModelConfig(**settings, candidate_features=on), schema) for on in (False, True))
    for model in (plain, full):
        for number, variable in enumerate(model.trainable_variables):
            variable.assign(np.random.default_rng(number).normal(size=variable.shape))
    encoded, other = (model.encode(batch, WIDE_ROWS[3:6]) for model in (plain, full))
    np.testing.assert_allclose(encoded.users, other.users, atol=1e-5)
    np.testing.assert_allclose(encoded.users, plain.call(batch), atol=1e-6)
    ids = plain.item_encoder.ids.table.numpy()
    targets = batch["target"].numpy()[:4, 0]
    np.testing.assert_allclose(encoded.positives[:4], [l2(ids[item]) for item in targets], atol=1e-6)
    np.testing.assert_array_equal(encoded.positives[4], np.zeros(8))  # padding
    np.testing.assert_allclose(encoded.distinct, [l2(ids[item]) for item in (3, 4, 5)], atol=1e-6)
    np.testing.assert_allclose(plain.item_vectors(WIDE_ROWS[:4]), np.append(np.zeros((1, 8)), ids[1:4], axis=0))
    np.testing.assert_allclose(plain.history_vectors(WIDE_ROWS), full.item_vectors(WIDE_ROWS), atol=1e-6)
    assert np.abs(encoded.positives - other.positives).max() > .1


def test_encoded_candidates_are_distinct_counted_and_placed():
    model = tiny_model()
    candidates = [7, 2, 7, 7, 1, 2]
    encoded = model.encode(make_batch([7, 9]), tf.constant(candidates, tf.int64)[:, None])
    assert encoded.distinct_ids.numpy().tolist() == [7, 2, 1] and encoded.counts.numpy().tolist() == [3, 2, 1]
    assert encoded.queued.numpy().tolist() == [0, 1, 0, 0, 2, 1]
    ids = model.item_encoder.ids.table.numpy()
    np.testing.assert_allclose(encoded.distinct, [l2(ids[item]) for item in (7, 2, 1)], atol=1e-6)
