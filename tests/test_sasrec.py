"""Encoders that give a user at every position, and the Transformer against NumPy loops over heads and positions."""
import math

import numpy as np
import pytest
import tensorflow as tf

from clrec_tf.config import Config
from clrec_tf.encoders.base import Clicks
from clrec_tf.encoders.base import NoSettings
from clrec_tf.encoders.base import Sizes
from clrec_tf.encoders.mean import MeanUserEncoder
from clrec_tf.encoders.multi_att import AttentionUserEncoder
from clrec_tf.encoders.multi_att import MultiAttSettings
from clrec_tf.encoders.random_draws import Dropout
from clrec_tf.encoders import sasrec
from clrec_tf.encoders.sasrec import TransformerSettings
from clrec_tf.encoders.sasrec import TransformerUserEncoder
from clrec_tf.encoders.transformer import silu
from clrec_tf.errors import UserError
from clrec_tf.models.build import build_model
from tests import exported

DIM, LENGTH, SIZES = 8, 5, Sizes(8)


def transformer(dropout=0.0, heads=2, blocks=2, width=12, layer="pre_norm"):
    """An encoder all of whose weights are random: those that begin at 0 or 1 would hide whether they are used."""
    encoder = TransformerUserEncoder(TransformerSettings(layer, blocks, heads, width, dropout), SIZES)
    for number, weight in enumerate(encoder.weights):
        if weight.shape.rank == 1:
            weight.assign_add(np.random.default_rng(number).normal(0, .3, weight.shape))
    return encoder


def attention(values):
    return AttentionUserEncoder(MultiAttSettings(3, 4 * DIM, values, "wha"), SIZES)


ENCODERS = {
    "mean": lambda: MeanUserEncoder(NoSettings(), SIZES), "multi_att": lambda: attention("all"),
    "multi_att of items": lambda: attention("item"), "sasrec": lambda: transformer(layer="sasrec"),
    "pre_norm": transformer, "gated": lambda: transformer(layer="gated"),
    "sasrec of one block": lambda: transformer(blocks=1, heads=1), "sasrec of wide heads": lambda: transformer(heads=8)}


def clicks_of(lengths, noise=0.0, width=LENGTH, seed=None) -> Clicks:
    """Random clicks; padding holds `noise`."""
    vectors, items = np.random.default_rng(0).normal(0, .4, (2, len(lengths), LENGTH, DIM))[:, :, :width]
    mask = np.arange(width) < np.array(lengths)[:, None]
    vectors, items = (tf.constant(np.where(mask[:, :, None], part, noise), tf.float32) for part in (vectors, items))
    return Clicks(vectors, items, tf.constant(mask), seed=seed)


@pytest.mark.parametrize("kind", ENCODERS)
def test_a_position_is_the_user_after_that_click(kind):
    encoder, lengths = ENCODERS[kind](), [5, 3, 1, 4]
    found = encoder.positions(clicks_of(lengths)).numpy()
    assert found.shape == (4, LENGTH, DIM)
    for t in range(LENGTH):
        rows = [row for row, length in enumerate(lengths) if length > t]
        after = encoder(clicks_of([min(length, t + 1) for length in lengths])).numpy()
        np.testing.assert_allclose(found[rows, t], after[rows], atol=1e-5)
        narrow = encoder(clicks_of([min(length, t + 1) for length in lengths], width=t + 1)).numpy()
        np.testing.assert_allclose(found[rows, t], narrow[rows], atol=1e-5)  # however wide the padding


@pytest.mark.parametrize("kind", ENCODERS)
def test_padding_has_no_influence_and_no_later_click_has(kind):
    encoder, lengths = ENCODERS[kind](), [5, 3, 0, 1]
    mask = np.arange(LENGTH) < np.array(lengths)[:, None]
    quiet, loud = (clicks_of(lengths, noise) for noise in (0.0, 40.0))
    np.testing.assert_allclose(encoder(loud), encoder(quiet), atol=1e-6)
    np.testing.assert_array_equal(encoder(loud)[2], np.zeros(DIM))  # no history
    np.testing.assert_allclose(encoder.positions(loud).numpy()[mask], encoder.positions(quiet).numpy()[mask], atol=1e-6)
    assert np.isfinite(encoder.positions(loud)).all()
    for t in range(LENGTH):
        with tf.GradientTape() as tape:
            tape.watch([loud.vectors, loud.items])
            users = tf.reduce_sum(tf.boolean_mask(encoder.positions(loud)[:, t, :3], mask[:, t]))
        parts = [part for part in tape.gradient(users, [loud.vectors, loud.items]) if part is not None]
        gradient = sum(np.abs(part).sum(axis=2) for part in parts)
        assert np.isfinite(gradient).all()
        assert (gradient[:, t + 1:] == 0).all() and (gradient[~mask[:, t]] == 0).all()
        assert (gradient[mask[:, t], :t + 1] > 0).all()  # all earlier clicks have one


# ---- the Transformer


def normalized(vector, scale, shift):
    """Layer normalization of one vector."""
    spread = math.sqrt(sum((x - np.mean(vector)) ** 2 for x in vector) / len(vector) + 1e-6)
    return np.array([(x - np.mean(vector)) / spread * a + b for x, a, b in zip(vector, scale, shift)])


def block_of(block, rows, heads, layer):
    """One block over the clicks x [n,D] of one user, position by position and head by head."""
    weight = {name: getattr(block, name).numpy() for name in (
        "query", "key", "value", "output_kernel", "hidden_kernel", "last_kernel")}
    norm = lambda vector, which: normalized(vector, block.scales[which].numpy(), block.shifts[which].numpy())
    sigmoid = lambda vector: 1 / (1 + np.exp(-vector))
    asking, result, width = [norm(row, 0) for row in rows], [], DIM // heads
    known = rows if layer == "sasrec" else asking
    for t, row in enumerate(rows):
        seen = []
        for head in range(heads):
            part = slice(head * width, (head + 1) * width)
            query = (asking[t] @ weight["query"])[part]
            scores = [query @ (click @ weight["key"])[part] / math.sqrt(width) for click in known[:t + 1]]
            shares = np.exp(scores) / np.sum(np.exp(scores))
            seen.extend(sum(share * (click @ weight["value"])[part] for share, click in zip(shares, known)))
        seen = np.array(seen) @ weight["output_kernel"]
        if layer == "gated":
            hidden = row + sigmoid(asking[t] @ block.gates[0].numpy()) * seen
            inner, factor = (norm(hidden, 1) @ part for part in (weight["hidden_kernel"], block.factor_kernel.numpy()))
            added = (inner * sigmoid(inner) * factor) @ weight["last_kernel"]
            result.append(hidden + sigmoid(norm(hidden, 1) @ block.gates[1].numpy()) * added)
            continue
        hidden = (asking[t] if layer == "sasrec" else row) + seen
        inner = np.maximum(norm(hidden, 1) @ weight["hidden_kernel"] + block.hidden_bias.numpy(), 0)
        added = inner @ weight["last_kernel"] + block.last_bias.numpy()
        result.append((norm(hidden, 1) if layer == "sasrec" else hidden) + added)
    return result


@pytest.mark.parametrize("layer", ["sasrec", "pre_norm", "gated"])
@pytest.mark.parametrize("heads,blocks", [(1, 1), (2, 2), (4, 3)])
def test_the_transformer_equals_loops(heads, blocks, layer):
    encoder, lengths = transformer(heads=heads, blocks=blocks, layer=layer), [5, 2, 1]
    given = clicks_of(lengths, noise=9.0)
    positions, users = encoder.positions(given).numpy(), encoder(given).numpy()
    for row, length in enumerate(lengths):
        vectors = list(given.vectors.numpy()[row, :length].astype(float) * math.sqrt(DIM))
        for block in encoder.blocks:
            vectors = block_of(block, vectors, heads, layer)
        expected = [normalized(vector, encoder.scale.numpy(), encoder.shift.numpy()) for vector in vectors]
        np.testing.assert_allclose(positions[row, :length], expected, atol=1e-4)
        np.testing.assert_allclose(users[row], expected[-1], atol=1e-4)


def test_what_the_transformer_is_made_of():
    encoder = TransformerUserEncoder(TransformerSettings("sasrec", 3, 2, 0, .5), SIZES)
    # Four D×D kernels of attention, two of the feed-forward part with biases, two normalizations; one at the end.
    assert sum(int(tf.size(weight)) for weight in encoder.weights) == 3 * (6 * 64 + 2 * 8 + 2 * 16) + 16
    kernels = [weight.numpy() for weight in encoder.weights if weight.shape.rank == 2]
    assert all(np.abs(one - two).max() > .1 for i, one in enumerate(kernels) for two in kernels[:i])
    assert len(encoder.trainable_weights) == len(encoder.weights) == 3 * 12 + 2


# ---- dropout


SEED = tf.constant([3, 4], tf.int64)


def test_dropout_keeps_the_expectation_and_drops_by_seed_and_layer():
    drop, ones = Dropout(.2, SEED), tf.ones([200, 100])
    first, second = drop(ones).numpy(), drop(ones).numpy()
    for dropped in (first, second):
        assert set(np.unique(dropped)) == {0, np.float32(1.25)} and abs(np.mean(dropped == 0) - .2) < .015
    # Independent from each other: both drop in .04 of the places.
    assert abs(np.mean((first == 0) & (second == 0)) - .04) < .008
    again = Dropout(.2, SEED)
    np.testing.assert_array_equal(first, again(ones))
    np.testing.assert_array_equal(second, again(ones))
    for step in ([3, 5], [4, 4]):
        assert abs(np.mean((Dropout(.2, tf.constant(step, tf.int64))(ones) == 0) & (first == 0)) - .04) < .008
    for still in (Dropout(0.0, SEED), Dropout(.2, None)):
        np.testing.assert_array_equal(still(ones), ones)


@pytest.mark.parametrize("way", ["positions", "call"])
def test_only_training_drops(way):
    encoder = transformer(dropout=.3)
    encode = lambda seed, training: getattr(encoder, way)(clicks_of([5, 3], seed=seed), training).numpy()
    still = encode(None, True)
    np.testing.assert_array_equal(encode(SEED, False), still)
    np.testing.assert_array_equal(encode(SEED, True), encode(SEED, True))
    assert np.abs(encode(SEED, True) - still).max() > .1
    assert np.abs(encode(SEED, True) - encode(SEED + 1, True)).max() > .1


@pytest.mark.parametrize("way", ["positions", "call"])
def test_every_place_of_the_transformer_drops(monkeypatch, way):
    """At the input, after each attention, inside and after each feed-forward part: 1 + 3 a block, all others."""
    calls = []

    class Counting(Dropout):
        def __call__(self, values):
            dropped = super().__call__(values)
            calls.append((values.shape[-1], (dropped.numpy() == 0) & (values.numpy() != 0)))
            return dropped

    monkeypatch.setattr(sasrec, "Dropout", Counting)
    getattr(transformer(dropout=.3, blocks=2), way)(clicks_of([5] * 40, seed=SEED), True)
    assert [width for width, _ in calls] == [DIM] + [DIM, 12, DIM] * 2
    same = [dropped.ravel() for width, dropped in calls if width == DIM and dropped.shape[1] == LENGTH]
    assert len(same) == (5 if way == "positions" else 3)  # the last block of `call` is of one click
    assert all(abs(np.mean(one & two) - .09) < .03 for i, one in enumerate(same) for two in same[:i])


def test_the_step_s_dropout_reaches_the_transformer():
    """A model's `encode` drops in training by the batch's seed, windows and single targets alike, and else never."""
    model = build_model(config(dropout=.5), exported.world("int").schema)
    rows = tf.constant([[[1], [2], [3], [0]], [[4], [5], [0], [0]]], tf.int64)
    single = dict(history=rows, length=tf.constant([3, 2], tf.int64), target=rows[:, 0], seed=SEED)
    windows = dict(single, target=tf.reshape(rows, [8, 1])[:5], row=tf.constant([0, 1, 2, 4, 5], tf.int64))
    for batch in (single, windows):
        still = model.encode(batch).users.numpy()
        for other in (model.encode({**batch, "seed": SEED + 1}), model.encode({**batch, "seed": SEED})):
            np.testing.assert_array_equal(other.users, still)
        first, again, other = (
            model.encode({**batch, "seed": SEED + i}, training=True).users.numpy() for i in (0, 0, 1))
        np.testing.assert_array_equal(first, again)
        assert np.abs(first - still).max() > .01 and np.abs(first - other).max() > .01
        without = {name: part for name, part in batch.items() if name != "seed"}
        np.testing.assert_array_equal(model.encode(without, training=True).users, still)


# ---- refusals


def config(**settings):
    return Config.of(**{**dict(embedding_dim=8, max_history=exported.HISTORY, user_encoder="sasrec", dropout=.5),
                        **settings})


@pytest.mark.parametrize("settings,message", [
    (dict(dropout=1.0), "--dropout=1.0: must be below 1"), (dict(dropout=1.5), "--dropout=1.5: must be below 1"),
    (dict(dropout=-.1), "--dropout=-0.1: must be ≥ 0"),
    (dict(transformer_heads=3), "--transformer_heads=3 does not divide --embedding_dim=8: change one of them"),
    (dict(transformer_blocks=0), "--transformer_blocks=0: must be ≥ 1"),
    (dict(transformer_heads=0), "--transformer_heads=0: must be ≥ 1")])
def test_settings_are_refused(settings, message):
    with pytest.raises(UserError, match=message):
        config(**settings)
    config(dropout=0.0, transformer_heads=8)


def test_silu_and_its_gradient_are_tensorflows():
    values, got = tf.constant(np.random.default_rng(0).normal(0, 4, (50, 7)), tf.float32), []
    for function in (silu, tf.nn.silu):
        with tf.GradientTape() as tape:
            tape.watch(values)
            result = function(values)
            total = tf.reduce_sum(result ** 2)
        got.append((result.numpy(), tape.gradient(total, values).numpy()))
    np.testing.assert_array_equal(got[0][0], got[1][0])
    np.testing.assert_array_equal(got[0][1], got[1][1])
