"""Every comparison loss against plain NumPy loops over the very negatives that were drawn, with gradients."""
import math

import numpy as np
import pytest

from clrec_tf.losses.contrastive import weighted_mean
from clrec_tf.objectives.alias_sampler import AliasSampler
from clrec_tf.objectives.full_softmax import FullSoftmax
from clrec_tf.objectives.ipw import PropensityWeighted
from clrec_tf.objectives.negative_sampling import NegativeSampling
from clrec_tf.objectives.negative_sampling import SharedNegativeSampling
from clrec_tf.objectives.sampled_softmax import SampledSoftmax
from clrec_tf.objectives.sampled_softmax import TfDefaultSampledSoftmax
from tests.loops import central_differences
from tests.loops import local_variable
from tests.loops import LOG_Q
from tests.loops import log_sum_exp
from tests.loops import mean_of_rows
from tests.loops import ROWS
from tests.loops import SHARE
from tests.loops import step
from tests.loops import Towers
from tests.naive_queue import ITEMS
from tests.naive_queue import make_batch
from tests.naive_queue import random_batch
from tests.naive_queue import TEMPERATURE
from tests.naive_queue import tiny_model
import tensorflow as tf

NEGATIVES = 9


def alias_sampler(seed=4):
    return AliasSampler(SHARE, seed, local_variable)


def twin_draws(shape):
    """Ids that a new sampler's first call draws."""
    twin = alias_sampler()
    return (1 + twin.open().sample(shape)).numpy()


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
    sampled = lambda: SampledSoftmax(
        model, ROWS, alias_sampler(), NEGATIVES, tf.constant(LOG_Q, tf.float32))
    if name == "full_softmax":
        return FullSoftmax(model, ROWS), full_softmax
    if name == "sampled_softmax":
        return sampled(), lambda towers, batch: sampled_softmax(towers, batch, twin_draws([NEGATIVES]))
    if name == "ipw":
        propensity = lambda batch, constants: tf.gather(tf.constant(PROPENSITY, tf.float32), batch["target"][:, 0])
        cap = 1 / np.sort(PROPENSITY)[5]
        return (PropensityWeighted(sampled(), propensity, cap),
                lambda towers, batch: inverse_propensity(towers, batch, PROPENSITY, cap, twin_draws([NEGATIVES])))
    shared, count = name == "shared_negative_sampling", 1 if name == "bce" else NEGATIVES
    ids = np.tile(twin_draws([NEGATIVES]), (5, 1)) if shared else twin_draws([5 * count]).reshape(5, count)
    kind = SharedNegativeSampling if shared else NegativeSampling
    return (kind(model, ROWS, alias_sampler(), count),
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
    assert objective.open().metrics() == {}
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
        assert len(set(np.round(objective.open().rows(batch).numpy(), 5))) == distinct


@pytest.mark.parametrize("negatives,drawn_items", [(6, 6), (50, ITEMS)])  # never more than there are
def test_tf_default_is_tensorflows_own_loss(monkeypatch, negatives, drawn_items):
    drawn, sample = [], tf.random.log_uniform_candidate_sampler

    def recorded(*arguments):
        drawn.append((arguments, sample(*arguments)))
        return drawn[-1][1]

    monkeypatch.setattr(tf.random, "log_uniform_candidate_sampler", recorded)
    model, batch = tiny_model(), batch_with_padding()
    objective = TfDefaultSampledSoftmax(model, ROWS, None, negatives)
    table = model.item_encoder.ids.table
    with tf.GradientTape(persistent=True) as tape:
        losses = objective.open().rows(batch)
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
    softmax = FullSoftmax(model, ROWS)
    weighted = PropensityWeighted(
        softmax, lambda batch, constants: tf.gather(tf.constant(PROPENSITY, tf.float32), batch["target"][:, 0]), math.inf)
    loss, [gradient] = step(weighted, batch, [model.item_encoder.ids.table])
    assert np.isfinite(loss) and np.isfinite(gradient).all() and np.abs(gradient).max() > .01
