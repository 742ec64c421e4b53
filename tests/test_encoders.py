"""The two towers against pencil arithmetic and NumPy loops over single clicks and heads."""
import math

import numpy as np
import pytest

from clrec_tf.encoders.base import Clicks
from clrec_tf.encoders.base import NoSettings
from clrec_tf.encoders.base import Sizes
from clrec_tf.encoders import clicks
from clrec_tf.encoders.embeddings import embedding_initializer
from clrec_tf.encoders.embeddings import EmbeddingTable
from clrec_tf.encoders.mean import MeanUserEncoder
from clrec_tf.encoders.multi_att import AttentionUserEncoder
from clrec_tf.encoders.multi_att import MultiAttSettings
from clrec_tf.encoders.multi_att import weighted_head_aggregation
from clrec_tf.losses.contrastive import l2_normalize
from clrec_tf.models.clrec import CLRec
from tests.test_item_encoder import TAGS_AND_CATEGORY, make_encoder
import tensorflow as tf
import tf_keras

DIM, HEADS, HISTORY = 4, 3, 5
MINUTE_BOUNDARIES = (5, 10, 15, 30, 60, 120, 240, 480, 960, 1920, 3840)


def mean_encoder():
    return MeanUserEncoder(NoSettings(), Sizes(DIM))


def attention_encoder(aggregation, values="all"):
    return AttentionUserEncoder(MultiAttSettings(HEADS, 4 * DIM, values, aggregation), Sizes(DIM))


def unit(vector):
    return vector / np.linalg.norm(vector)


def softmax(scores):
    weights = np.exp(scores - np.max(scores))
    return weights / weights.sum()


def dense(layers, vector):
    """Dense(tanh) -> Dense, by the layers' weights."""
    first, first_bias, second, second_bias = (weight.numpy() for weight in layers.weights)
    return np.tanh(vector @ first + first_bias) @ second + second_bias


def give_biases(layers):
    """Biases start at 0, which would hide whether they are used."""
    for number, weight in enumerate(layers.weights):
        if weight.shape.rank == 1:
            weight.assign(np.random.default_rng(number).normal(size=weight.shape))


# ---- time and position


@pytest.mark.parametrize("index,minutes", list(enumerate(MINUTE_BOUNDARIES)))
def test_minute_buckets_at_every_boundary(index, minutes):
    gaps = tf.constant([60 * minutes - 1, 60 * minutes, 60 * minutes + 1], tf.int64)
    np.testing.assert_array_equal(clicks.time_bucket(gaps, clicks.BOUNDARIES["minutes"]), [index, index + 1, index + 1])


def test_time_buckets_of_other_gaps():
    bucket = lambda kind, *gaps: clicks.time_bucket(
        tf.constant([gaps], tf.int64), clicks.BOUNDARIES[kind]).numpy()[0].tolist()
    # A gap below 0 is clipped, except the mark of a missing time stamp, which has the last row for itself.
    assert bucket("minutes", 0, -60, 10 ** 12, clicks.UNKNOWN_GAP) == [0, 0, 11, 12]
    assert bucket("log2", 0, -60, 10 ** 12, clicks.UNKNOWN_GAP) == [0, 0, 31, 32]
    seconds = [1, 2, 3, 4, 7, 8, 86_399, 86_400, 2 ** 29 - 1, 2 ** 29, 2 ** 30, 2 ** 31]
    assert bucket("log2", *seconds) == [min(31, 1 + math.floor(math.log2(gap))) for gap in seconds]
    for kind in ("minutes", "log2"):
        table = clicks.ClickEncoder(DIM, HISTORY, "none", clicks.BOUNDARIES[kind], 0).time_table.table
        assert table.shape[0] == bucket(kind, clicks.UNKNOWN_GAP)[0] + 1


def test_boundaries_are_a_setting():
    np.testing.assert_array_equal(  # 0 below 5 s, 1 below 60 s, 2 from there on, 3 unknown
        clicks.time_bucket(tf.constant([0, 4, 5, 59, 60, -1], tf.int64), (5, 60)), [0, 0, 1, 1, 2, 3])


def test_positions_with_padding_on_either_side():
    mask = tf.constant([[0, 0, 1, 1, 1], [1, 1, 1, 0, 0], [1, 1, 1, 1, 1], [0, 0, 0, 0, 0]]) > 0
    backward, forward = (clicks.positions(mask, kind).numpy() for kind in ("backward", "forward"))
    np.testing.assert_array_equal(backward, [[0, 0, 0, 1, 2], [0, 1, 2, 0, 0], [0, 1, 2, 3, 4], [0] * 5])
    np.testing.assert_array_equal(forward, [[0, 0, 2, 1, 0], [2, 1, 0, 0, 0], [4, 3, 2, 1, 0], [0] * 5])


@pytest.mark.parametrize("position,time", [("backward", "minutes"), ("forward", "log2"), ("none", "minutes"),
                                           ("backward", "none"), ("none", "none")])
def test_click_is_item_plus_time_plus_position(position, time):
    rng = np.random.default_rng(0)
    encoder = clicks.ClickEncoder(DIM, HISTORY, position, clicks.BOUNDARIES.get(time, ()), 5)
    items, gaps = rng.normal(size=(2, HISTORY, DIM)), np.array([[9000, 700, 299, 0, 0], [400, -1, 0, 0, 0]])
    lengths = [4, 2]
    encoded = encoder(tf.constant(items, tf.float32), tf.sequence_mask(lengths, HISTORY), tf.constant(gaps))
    for row, length in enumerate(lengths):
        for t in range(length):
            expected = items[row, t].copy()
            if position != "none":
                expected += encoder.position_table.table.numpy()[t if position == "backward" else length - 1 - t]
            if time != "none":
                gap = gaps[row, t]
                known = sum(60 * m <= gap for m in MINUTE_BOUNDARIES) if time == "minutes" else int(gap).bit_length()
                expected += encoder.time_table.table.numpy()[-1 if gap == -1 else known]
            np.testing.assert_allclose(encoded[row, t], expected, rtol=1e-5, atol=1e-6)
    if time != "none":  # without gaps every click's time is unknown
        mask = tf.sequence_mask(lengths, HISTORY)
        np.testing.assert_array_equal(
            encoder(tf.zeros([2, HISTORY, DIM]), mask),
            encoder(tf.zeros([2, HISTORY, DIM]), mask, tf.fill([2, HISTORY], tf.constant(-1, tf.int64))))


def test_behaviours_add_their_vector_and_none_adds_nothing():
    rng, lengths = np.random.default_rng(3), np.array([5, 2])
    encoder = clicks.ClickEncoder(DIM, HISTORY, "backward", clicks.BOUNDARIES["minutes"], 5, event_kinds=3)
    items = rng.normal(size=(2, HISTORY, DIM)).astype(np.float32)
    mask = np.arange(HISTORY) < lengths[:, None]
    items[~mask] = 0
    gaps, events = rng.integers(0, 10**5, (2, HISTORY)), rng.integers(0, 4, (2, HISTORY)) * mask
    plain, found = encoder(items, mask, gaps), encoder(items, mask, gaps, events)
    table = encoder.event_table.table.numpy()
    for row, length in enumerate(lengths):
        for t in range(length):
            added = table[events[row, t]] if events[row, t] else 0
            np.testing.assert_allclose(found[row, t] - plain[row, t], np.zeros(DIM) + added, atol=1e-5)
    sums = encoder.sums(tf.constant(items.sum(axis=1)), mask, gaps, events).numpy()
    for row, length in enumerate(lengths):
        np.testing.assert_allclose(sums[row], found.numpy()[row, :length].sum(axis=0), atol=1e-5)
    np.testing.assert_array_equal(encoder(items, mask, gaps, np.zeros_like(events)), plain)


# ---- attention and heads


def test_wha_pencil():
    heads = tf.constant([[[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]])
    result = weighted_head_aggregation(heads, tf.eye(2))
    # m = (2/3, 1/3), scores 2/3, 2/3, 1/3.
    weights = softmax(np.array([2, 2, 1]) / 3)
    np.testing.assert_allclose(result, [[weights[0] + weights[1], weights[2]]], rtol=1e-6)
    np.testing.assert_allclose(l2_normalize(result), [[.941407, .337274]], atol=1e-6)  # by pencil


def test_wha_limits():
    rng = np.random.default_rng(1)
    heads, matrix = rng.normal(size=(2, HEADS, DIM)).astype(np.float32), rng.normal(size=(DIM, DIM)).astype(np.float32)
    mean = np.array([np.mean([unit(head) for head in row], axis=0) for row in heads])
    np.testing.assert_allclose(weighted_head_aggregation(heads, tf.zeros([DIM, DIM])), mean, rtol=1e-5)
    scaled = heads * np.array([10.0, 1.0, .1], np.float32)[None, :, None]
    np.testing.assert_allclose(weighted_head_aggregation(scaled, matrix),
                               weighted_head_aggregation(heads, matrix), rtol=1e-5)


def aggregate(layer, kind, heads):
    """One user's heads [H,D] to one vector, by loops."""
    if kind == "wha":
        normalized = np.array([unit(head) for head in heads])
        scores = [head @ layer.matrix.numpy() @ normalized.mean(axis=0) for head in normalized]
        return softmax(scores) @ normalized
    if kind == "concat_mlp":
        return dense(layer.mlp, np.concatenate(list(heads)))
    return dense(layer.mlp, heads.mean(axis=0)) if kind == "mean_mlp" else heads.mean(axis=0)


@pytest.mark.parametrize("aggregation", ["wha", "mean", "mean_mlp", "concat_mlp"])
@pytest.mark.parametrize("values", ["all", "item"])
def test_user_encoder_against_loops(aggregation, values):
    rng = np.random.default_rng(2)
    encoder = attention_encoder(aggregation, values)
    give_biases(encoder.attention)
    if hasattr(encoder.aggregation, "mlp"):
        give_biases(encoder.aggregation.mlp)
    encoded, items = rng.normal(size=(2, 3, HISTORY, DIM))
    mask = np.array([[1, 1, 1, 0, 0], [0, 0, 0, 1, 1], [1, 1, 1, 1, 1]], bool)
    found = encoder(Clicks(tf.constant(encoded, tf.float32), tf.constant(items, tf.float32), tf.constant(mask)))
    for row in range(3):
        kept = encoded[row][mask[row]]
        scores = np.array([dense(encoder.attention, click) for click in kept])
        summed = (encoded if values == "all" else items)[row][mask[row]]
        heads = np.array([softmax(scores[:, head]) @ summed for head in range(HEADS)])
        np.testing.assert_allclose(found[row], aggregate(encoder.aggregation, aggregation, heads), rtol=1e-4, atol=1e-5)
    assert encoder.attention.layers[0].units == 4 * DIM


def test_mean_of_the_history():
    values = tf.constant([[[2.0, 4.0], [4.0, 0.0], [90.0, 90.0]], [[7.0, 7.0]] * 3])
    mask = tf.sequence_mask([2, 0], 3)
    np.testing.assert_array_equal(mean_encoder()(Clicks(values, values * 0, mask)), [[3, 2], [0, 0]])


def make_tower(user_encoder, similarity="cosine"):
    return CLRec(make_encoder(TAGS_AND_CATEGORY, dim=DIM), clicks.ClickEncoder(DIM, HISTORY, "backward", clicks.BOUNDARIES["minutes"], 9),
                 user_encoder, similarity, .07)


USER_ENCODERS = {
    kind: lambda kind=kind: attention_encoder(kind)
    for kind in ("wha", "mean", "mean_mlp", "concat_mlp")} | {"history_mean": mean_encoder}


@pytest.mark.parametrize("kind", list(USER_ENCODERS))
def test_padding_has_no_influence_and_no_history_is_finite(kind):
    rng = np.random.default_rng(3)
    tower = make_tower(USER_ENCODERS[kind]())
    history, gaps = rng.normal(size=(1, 3, DIM)), np.array([[4000, 500, 20]])

    def encode(noise):
        padding = ((0, 0), (0, HISTORY - 3))
        items = np.pad(history, padding + ((0, 0),), constant_values=noise)
        mask = np.pad(np.ones((1, 3), bool), padding)
        return tower.user_vectors(tf.constant(items, tf.float32), tf.constant(mask),
                                  tf.constant(np.pad(gaps, padding, constant_values=int(noise))))

    for noise in (50.0, -7.0):
        np.testing.assert_allclose(encode(noise), encode(0.0), rtol=1e-5, atol=1e-6)
    items = tf.constant(rng.normal(size=(2, HISTORY, DIM)), tf.float32)
    with tf.GradientTape() as tape:
        tape.watch(items)
        vectors = tower.user_vectors(items, tf.sequence_mask([0, 3], HISTORY))
    assert np.isfinite(vectors).all()
    if "mlp" not in kind:  # an MLP's biases may point anywhere
        np.testing.assert_array_equal(vectors[0], np.zeros(DIM))
    gradient = tape.gradient(vectors, [items] + tower.user_encoder.trainable_variables)
    assert all(np.isfinite(part).all() for part in gradient)
    assert (gradient[0][0].numpy() == 0).all() and (gradient[0][1, 3:].numpy() == 0).all()


@pytest.mark.parametrize("position", ["backward", "forward"])
@pytest.mark.parametrize("user_encoder", ["wha", "history_mean"])
def test_positions_and_times_that_no_click_has_get_no_gradient(position, user_encoder):
    encoder = clicks.ClickEncoder(DIM, HISTORY, position, clicks.BOUNDARIES["minutes"], 5)
    tower = CLRec(make_encoder(dim=DIM), encoder, USER_ENCODERS[user_encoder](), "dot", .07)
    batch = dict(history=tf.constant([[[1], [2], [0], [0], [0]], [[3], [0], [0], [0], [0]]], tf.int64),
                 length=tf.constant([2, 1], tf.int64), target=tf.constant([[4], [5]], tf.int64),
                 time_gap=tf.constant([[400, 20, -1, -1, -1], [20, -1, -1, -1, -1]], tf.int64))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tower.encode(batch).users[:, :1])
    positions, times = tape.gradient(loss, [encoder.position_table.table, encoder.time_table.table])
    assert set(positions.indices.numpy()) == {0, 1}
    assert set(times.indices.numpy()) - {len(encoder.boundaries) + 1} == {0, 1}  # padding has unknown gaps
    assert user_encoder == "wha" or set(times.indices.numpy()) == {0, 1}


@pytest.mark.parametrize("similarity,temperature,bound", [
    ("cosine", .07, 1 / .07), ("cosine", .01, 100), ("dot", .07, math.inf)])
def test_bound_of_the_logits(similarity, temperature, bound):
    assert CLRec(None, None, None, similarity, temperature).logit_bound == pytest.approx(bound)


@pytest.mark.parametrize("position", ["backward", "forward", "none"])
@pytest.mark.parametrize("gaps", ["known", "unknown", "no time"])
def test_the_mean_of_sums_is_the_mean_of_clicks(position, gaps):
    rng = np.random.default_rng(4)
    encoder = clicks.ClickEncoder(DIM, HISTORY, position, () if gaps == "no time" else clicks.BOUNDARIES["minutes"], 5)
    items = make_encoder(TAGS_AND_CATEGORY, dim=DIM)
    tower = CLRec(items, encoder, mean_encoder(), "dot", .07)
    item_rows = np.concatenate([np.arange(9)[:, None], rng.integers(1, 5, (9, 3))], axis=1)
    item_rows[0] = 0
    history = item_rows[rng.integers(1, 9, (3, HISTORY))]
    history[1, 2:] = history[2, :] = 0
    lengths = tf.constant([HISTORY, 2, 0], tf.int64)
    batch = dict(history=tf.constant(history, tf.int64), length=lengths, target=tf.constant(history[:, 0], tf.int64))
    if gaps == "known":
        batch["time_gap"] = tf.constant(rng.integers(-1, 9000, (3, HISTORY)), tf.int64)
    encoded = tower.encode(batch)
    vectors = tf.reshape(tower.item_vectors(tf.reshape(batch["history"], [-1, 4])), [3, HISTORY, DIM])
    dense = tower.user_vectors(vectors, tf.sequence_mask(lengths, HISTORY), batch.get("time_gap"))
    np.testing.assert_allclose(encoded.users, dense, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(encoded.positives, tower.item_vectors(batch["target"]), rtol=1e-6)


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_similarity(similarity):
    tower = make_tower(mean_encoder(), similarity)
    vectors = tf.constant([[3.0, 4.0, 0.0, 0.0]])
    expected = [.6, .8, 0, 0] if similarity == "cosine" else [3, 4, 0, 0]
    np.testing.assert_allclose(tower.score_vectors(vectors), [expected], rtol=1e-6)
    items, mask = tf.constant(np.random.default_rng(0).normal(size=(1, 2, DIM)), tf.float32), tf.ones([1, 2], tf.bool)
    user = tower.user_encoder(Clicks(tower.click_encoder(items, mask), items, mask)).numpy()[0]
    np.testing.assert_allclose(tower.user_vectors(items, mask)[0], unit(user) if similarity == "cosine" else user,
                               rtol=1e-5)


def test_time_and_position_never_enter_items():
    tower = make_tower(mean_encoder())
    rows = tf.constant([[1, 2, 1, 3], [5, 1, 2, 0]], tf.int64)
    batch = dict(history=rows[None], length=tf.constant([2], tf.int64), target=rows[:1],
                 time_gap=tf.constant([[900, 10]], tf.int64))
    before, items = tower.encode(batch, rows), tower.item_vectors(rows)
    for table in (tower.click_encoder.position_table.table, tower.click_encoder.time_table.table):
        table.assign_add(tf.random.stateless_normal(table.shape, [1, 2]))
    after = tower.encode(batch, rows)
    for name in ("positives", "distinct", "queued"):
        np.testing.assert_array_equal(getattr(before, name), getattr(after, name))
    np.testing.assert_array_equal(items, tower.item_vectors(rows))
    assert np.abs(before.users - after.users).max() > 1e-3


def test_initial_directions_are_uniform():
    """Of a uniform direction in d dimensions E[u_i⁴] = 3/(d(d+2)); corners of a cube would give .678 of the ratio."""
    dim = 16
    table = EmbeddingTable(100_000, dim, dim, True, 4, name="table").table.numpy()
    ratio = np.mean((table / np.linalg.norm(table, axis=1, keepdims=True)) ** 4) * dim * (dim + 2) / 3
    assert abs(ratio - 1) < .01
    assert abs(table.std() * dim ** .5 - 1) < .01 and np.abs(table).max() * dim ** .5 > 3  # normal, not truncated at 2σ
    assert abs(EmbeddingTable(9, 4096, 16, False, 4, name="few").table.numpy().std() * 4 - 1) < .02  # whatever the rows


@pytest.mark.parametrize("rows, dim", [(1001, 7), (64, 64), (3, 2)])
def test_initial_values_do_not_depend_on_the_shards(rows, dim):
    initial = embedding_initializer(16, 5)
    whole, ends = initial((rows, dim)), [0, rows // 3, rows // 2, rows]
    np.testing.assert_array_equal(whole, tf_keras.initializers.RandomNormal(0.0, 0.25, seed=5)((rows, dim)))
    parts = [initial((rows, dim), partition_shape=(end - begin, dim), partition_offset=(begin, 0))
             for begin, end in zip(ends, ends[1:])]
    np.testing.assert_array_equal(tf.concat(parts, axis=0), whole)
    assert len(np.unique(whole)) == rows * dim or rows * dim > 1000
