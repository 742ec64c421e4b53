"""The encoders of Multi-CLRec against NumPy, and what they must not depend on."""
import numpy as np
import pytest

from clrec_tf.data.schema import Feature
from clrec_tf.data.schema import Schema
from clrec_tf.encoders.base import Clicks
from clrec_tf.encoders.base import Sizes
from clrec_tf.encoders.intent_items import IntentItemEncoder
from clrec_tf.encoders.intents import importance
from clrec_tf.encoders.intents import IntentSettings
from clrec_tf.encoders.intents import IntentUserEncoder
from clrec_tf.encoders.intents import routing_logits
from clrec_tf.errors import UserError
import tensorflow as tf

DIM, INTENTS, HISTORY, TEMPERATURE = 4, 3, 5, 0.2
FEATURES = (Feature("seller", 6, 1, 5), Feature("genres", 7, 3, 6))


def items_of(**options):
    return IntentItemEncoder(20, DIM, FEATURES, "genres", seed=1, **options)


def users_of(boundaries=(60, 600), uses_dwell=True, residual=False, intent_context="none"):
    schema = Schema(19, 20, FEATURES, 0, "int", True, 0, 0, {}, {}, has_dwell=uses_dwell)
    settings = IntentSettings(num_intents=INTENTS, residual=residual, intent_context=intent_context)
    encoder = IntentUserEncoder(settings, Sizes(DIM, HISTORY, TEMPERATURE, "backward", boundaries, schema, 7))
    # Biases that are not zero, so that forgetting one shows.
    rng = np.random.default_rng(0)
    for layer in (encoder.importance_mlp, encoder.intent_mlp, encoder.interest_mlp, encoder.context_mlp):
        for bias in () if layer is None else (layer.first_bias, layer.last_bias):
            bias.assign(rng.normal(size=bias.shape))
    return encoder


def l2(x):
    return x / np.sqrt(np.maximum((x ** 2).sum(axis=-1, keepdims=True), 1e-12))


def softmax(x, axis=-1):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def mlp(layer, *parts):
    hidden = np.tanh(np.concatenate(parts, axis=-1) @ layer.first_kernel.numpy() + layer.first_bias.numpy())
    return hidden @ layer.last_kernel.numpy() + layer.last_bias.numpy()


def batch(seed=0, lengths=(5, 2, 1)):
    rng = np.random.default_rng(seed)
    mask = np.arange(HISTORY)[None, :] < np.array(lengths)[:, None]
    clicks = rng.normal(size=(*mask.shape, 2 * DIM)).astype(np.float32)
    gaps = np.where(mask, rng.choice([-1, 5, 60, 1000], mask.shape), -1)
    dwell = np.where(mask, rng.choice([-1, 0, 3, 90], mask.shape), -1)
    return clicks, mask, gaps, dwell


def encode(encoder, clicks, mask, gaps, dwell):
    return encoder(Clicks(None, *(tf.constant(part) for part in (clicks, mask, gaps, dwell))))


@pytest.mark.parametrize("context", ["none", "sum", "attention", "sasrec"])
@pytest.mark.parametrize("residual", [False, True])
def test_user_encoder_is_the_formula(residual, context):
    encoder, (clicks, mask, gaps, dwell) = users_of(residual=residual, intent_context=context), batch()
    found = encode(encoder, clicks, mask, gaps, dwell)
    bucket = {-1: 3, 5: 0, 60: 1, 1000: 2}
    log2 = {-1: 32, 0: 0, 3: 2, 90: 7}  # 1 + floor(log2 Δ); the last of 33 is unknown
    table = lambda layer: layer.table.numpy()
    for row in range(len(mask)):
        n = mask[row].sum()
        g, c = clicks[row, :n, :DIM], clicks[row, :n, DIM:]
        signals = [table(encoder.position_table)[np.arange(n)],
                   table(encoder.time_table)[[bucket[gap] for gap in gaps[row, :n]]],
                   table(encoder.dwell_table)[[log2[stay] for stay in dwell[row, :n]]]]
        p = softmax(mlp(encoder.importance_mlp, g, c, *signals)[:, 0])
        routing = softmax(l2(c) @ l2(encoder.prototypes.numpy()).T / TEMPERATURE)
        items = l2(g) if residual else g
        sums, total = np.einsum("th,t,td->hd", routing, p, items), p @ items
        parts = [sums, encoder.biases.numpy()]
        added = context_of(encoder, items, gaps[row, :n], total)
        if context != "none":
            parts.append(np.tile(added, (INTENTS, 1)))
        z = mlp(encoder.intent_mlp, *parts) + (sums if residual else 0) + added
        m = mlp(encoder.interest_mlp, total + added) + (total + added if residual else 0)
        np.testing.assert_allclose(found.vectors[row], l2(z), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(found.logits[row], l2(z) @ l2(m) / TEMPERATURE, rtol=1e-4, atol=1e-4)


def context_of(encoder, items, gaps, total):
    """c [d] of one user's n clicks: g [n,d], seconds before the target [n], Σ_t p_t g_t [d]; 0 where there is none."""
    if encoder.context_mlp is not None:
        return l2(mlp(encoder.context_mlp, total) + total)
    if encoder.context_encoder is None:
        return np.zeros(DIM)
    if encoder.context_encoder.gaps_to_next:
        gaps = np.append(np.where((gaps[:-1] < 0) | (gaps[1:] < 0), -1, gaps[:-1] - gaps[1:]), gaps[-1])
    items, mask, gaps = tf.constant(items[None], tf.float32), tf.ones([1, len(items)], tf.bool), tf.constant(gaps[None])
    vectors = encoder.context_clicks(items, mask, gaps)
    return l2(encoder.context_encoder(Clicks(vectors, items, mask, gaps)).numpy()[0])


@pytest.mark.parametrize("context", ["none", "sum", "attention", "sasrec"])
def test_padding_is_irrelevant(context):
    encoder, (clicks, mask, gaps, dwell) = users_of(intent_context=context), batch()
    expected = encode(encoder, clicks, mask, gaps, dwell)
    clicks = np.where(mask[:, :, None], clicks, 1e3).astype(np.float32)
    found = encode(encoder, clicks, mask, np.where(mask, gaps, 60), np.where(mask, dwell, 3))
    np.testing.assert_allclose(found.vectors, expected.vectors, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.logits, expected.logits, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("context", ["none", "sum", "attention", "sasrec"])
def test_an_empty_history_is_finite(context):
    encoder, (clicks, mask, gaps, dwell) = users_of(intent_context=context), batch(lengths=(0, 3, 1))
    with tf.GradientTape() as tape:
        found = encode(encoder, clicks, mask, gaps, dwell)
        loss = tf.reduce_sum(found.vectors * tf.range(1.0, 1 + DIM)) + tf.reduce_sum(found.logits)
    assert np.isfinite(found.vectors).all() and np.isfinite(found.logits).all()
    assert all(np.isfinite(tf.convert_to_tensor(gradient)).all()
               for gradient in tape.gradient(loss, encoder.trainable_variables))


def test_an_empty_route_has_the_vector_of_its_bias():
    """Where no click is routed to an intent, its z' ≈ 0 and z = MLP3([0; β]), the same for all users."""
    encoder, (clicks, mask, gaps, dwell) = users_of(), batch()
    encoder.prototypes.assign(20 * np.eye(INTENTS, DIM))
    clicks[:, :, DIM:] = [30.0, 0, 0, 0]  # cosine 1 with intent 0; e^(−1/ρ) of the rest with the others
    vectors = encode(encoder, clicks, mask, gaps, dwell).vectors.numpy()
    alone = l2(mlp(encoder.intent_mlp, np.zeros(DIM), encoder.biases.numpy()[2]))
    np.testing.assert_allclose(vectors[:, 2], np.tile(alone, (3, 1)), atol=0.02)
    assert np.abs(vectors[0, 0] - vectors[1, 0]).max() > 0.05


def test_routing_depends_on_the_category_only():
    encoder, (clicks, mask, gaps, dwell) = users_of(), batch()
    expected = encode(encoder, clicks, mask, gaps, dwell).routing
    others = clicks.copy()
    others[:, :, :DIM] = np.random.default_rng(5).normal(size=others[:, :, :DIM].shape)
    np.testing.assert_array_equal(encode(encoder, others, mask, gaps * 0, dwell * 0).routing, expected)
    others[:, :, DIM:] *= -1
    assert np.abs(encode(encoder, others, mask, gaps, dwell).routing - expected).max() > 0.1


def test_the_length_of_prototypes_and_categories_is_irrelevant():
    rng = np.random.default_rng(0)
    categories, prototypes = (tf.constant(rng.normal(size=(n, DIM)), tf.float32) for n in (6, INTENTS))
    expected = routing_logits(categories, prototypes, TEMPERATURE)
    np.testing.assert_allclose(routing_logits(3 * categories, 10 * prototypes, TEMPERATURE), expected, rtol=1e-5)
    assert np.abs(expected).max() <= 1 / TEMPERATURE


def test_importance_sums_to_one_over_the_clicks():
    found = importance(tf.constant([[0.0, np.log(3.0), 9.0], [5.0, 5.0, 5.0]]),
                       tf.constant([[True, True, False], [False] * 3]))
    np.testing.assert_allclose(found, [[0.25, 0.75, 0.0], [0, 0, 0]], rtol=1e-6)


@pytest.mark.parametrize("residual", [False, True])
def test_item_encoder_is_the_formula(residual):
    content = np.random.default_rng(3).normal(size=(20, 5)).astype(np.float32)
    encoder = items_of(feature_dims=[3], content=content, residual=residual)
    rows = np.array([[4, 2, 1, 6, 0], [9, 0, 3, 0, 0], [0, 0, 0, 0, 0], [7, 5, 0, 0, 0]])
    found = encoder(tf.constant(rows, tf.int64)).numpy()
    ids, sellers, genres = (encoder.ids.table.numpy(), *(t.table.numpy() for t in encoder.feature_tables))
    assert (sellers.shape[1], genres.shape[1]) == (3, DIM)
    category = np.stack([(genres[1] + genres[6]) / 2, genres[3], np.zeros(DIM), np.zeros(DIM)])
    seller = np.where(rows[:, 1:2] > 0, sellers[rows[:, 1]], 0)
    known = rows[:, :1] > 0
    base = np.where(known, ids[rows[:, 0]], 0)
    expected = known * (mlp(encoder.mlp, base, seller, category, content[rows[:, 0]]) + (base if residual else 0))
    np.testing.assert_allclose(found[:, :DIM], expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found[:, DIM:], category, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(encoder.categories(tf.constant(rows, tf.int64)), category, rtol=1e-5, atol=1e-6)


def test_widths_of_features():
    assert items_of().feature_tables[0].table.shape[1] == 8  # d/4, at least 8
    with pytest.raises(UserError, match="gives 2 widths for the 1 features beside the category"):
        items_of(feature_dims=[3, 4])
    with pytest.raises(UserError, match="at least 1"):
        items_of(feature_dims=[0])
