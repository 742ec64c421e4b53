"""Query towers of the literature: each against a NumPy loop of its equation, all in what every encoder must keep."""
import dataclasses
import math

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from clrec_tf.config import Config
from clrec_tf.encoders.base import Clicks
from clrec_tf.encoders.base import Sizes
from clrec_tf.errors import UserError
from clrec_tf.evaluate import evaluate
from clrec_tf.models.build import build_model
from clrec_tf.retrieval.bundle import load_bundle
from clrec_tf.settings.registry import ENCODERS
from tests import exported
from tests import small_run
from tests.cases import in_ci

DIM, LENGTH, LENGTHS = 6, 7, [7, 4, 1, 2, 0]
SMALL = dict(gru4rec=dict(rnn_units=5, rnn_layers=2, dropout=0.0), lstm=dict(rnn_units=5, rnn_layers=2, dropout=0.0),
             dnn=dict(mlp_units=("5", "4")), shan=dict(short_term_clicks=2),
             caser=dict(caser_clicks=3, horizontal_filters=3, vertical_filters=2, dropout=0.0),
             svdpp={}, dien={}, bert4rec=dict(transformer_layer="post_norm", transformer_heads=2, dropout=0.0))
NAMES = tuple(SMALL)
CAUSAL = [name for name in NAMES if ENCODERS.get(name).every_position and not ENCODERS.get(name).hides_targets]


def encoder_of(name, **settings):
    """`random_encoder` of small settings."""
    return random_encoder(name, **{**SMALL[name], **settings})


def random_encoder(name, **settings):
    """One whose weights are all random: biases that begin at 0 would hide whether they are used."""
    cls = ENCODERS.get(name)
    encoder = cls(cls.Settings(**settings), Sizes(DIM, seed=3))
    for number, weight in enumerate(encoder.weights):
        weight.assign_add(np.random.default_rng(number).normal(0, .3, weight.shape))
    return encoder


def clicks_of(lengths, width=LENGTH, noise=0.0, seed=None) -> Clicks:
    """Random clicks, the same for each user whatever the width; padding holds `noise`."""
    vectors = np.random.default_rng(0).normal(0, .5, (len(lengths), LENGTH + 3, DIM))[:, :width]
    mask = np.arange(width) < np.array(lengths)[:, None]
    vectors = tf.constant(np.where(mask[:, :, None], vectors, noise), tf.float32)
    return Clicks(vectors, vectors, tf.constant(mask), seed=seed)


# ---- the equations, click by click


def sigmoid(values):
    return 1 / (1 + np.exp(-values))


def relu(values):
    return np.maximum(values, 0)


def softmax(scores):
    weights = np.exp(np.array(scores) - max(scores))
    return weights / weights.sum()


def weights_of(layer):
    return [weight.numpy() for weight in layer.weights]


def gru(layer, rows):
    """States after each of the rows."""
    kernel, recurrent, (bias, inner_bias) = weights_of(layer)
    state, states = np.zeros(len(recurrent)), []
    for row in rows:
        update, reset, new = np.split(row @ kernel + bias, 3)
        of_update, of_reset, of_new = np.split(state @ recurrent + inner_bias, 3)
        update = sigmoid(update + of_update)
        state = update * state + (1 - update) * np.tanh(new + sigmoid(reset + of_reset) * of_new)
        states.append(state)
    return states


def lstm(layer, rows):
    kernel, recurrent, bias = weights_of(layer)
    state = cell = np.zeros(len(recurrent))
    states = []
    for row in rows:
        enters, forgets, new, leaves = np.split(row @ kernel + state @ recurrent + bias, 4)
        cell = sigmoid(forgets) * cell + sigmoid(enters) * np.tanh(new)
        state = sigmoid(leaves) * np.tanh(cell)
        states.append(state)
    return states


def recurrent_by_loops(cell):
    def user(encoder, rows):
        states = [row * DIM ** .5 for row in rows]
        for layer in encoder.layers:
            states = cell(layer, states)
        kernel, bias = weights_of(encoder.output_map)
        return states[-1] @ kernel + bias
    return user


def dnn_by_loops(encoder, rows):
    values, layers = np.mean(rows, axis=0) * DIM ** .5, encoder.mlp.layers
    for number, layer in enumerate(layers):
        kernel, bias = weights_of(layer)
        values = values @ kernel + bias
        values = relu(values) if number < len(layers) - 1 else values
    return values


def caser_by_loops(encoder, rows):
    count = encoder.settings.caser_clicks
    picture = np.zeros((count, DIM))
    for place, row in enumerate(rows[::-1][:count]):
        picture[count - 1 - place] = row * DIM ** .5
    found = []
    for height, layer in enumerate(encoder.horizontal, 1):
        filters, biases = weights_of(layer)
        for number in range(filters.shape[2]):
            found.append(max(relu(np.sum(picture[i:i + height] * filters[:, :, number]) + biases[number])
                             for i in range(count - height + 1)))
    (columns,) = weights_of(encoder.vertical)
    for coordinate in range(DIM):
        found.extend(sum(columns[i, number] * picture[i, coordinate] for i in range(count))
                     for number in range(columns.shape[1]))
    kernel, bias = weights_of(encoder.joined)
    last_kernel, last_bias = weights_of(encoder.output_map)
    return relu(np.array(found) @ kernel + bias) @ last_kernel + last_bias


def shan_by_loops(encoder, rows):
    query, short = np.mean(rows, axis=0) * DIM ** .5, encoder.settings.short_term_clicks

    def attend(layer, among):
        kernel, bias = weights_of(layer)
        shares = softmax([query @ relu(DIM ** .5 * row @ kernel + bias) for row in among])
        return sum(share * row for share, row in zip(shares, among))

    earlier, last = rows[:-short], rows[-short:]
    return attend(encoder.short_term, ([attend(encoder.long_term, earlier)] if len(earlier) else []) + list(last))


def dien_by_loops(encoder, rows):
    interests = gru(encoder.extractor, [row * DIM ** .5 for row in rows])
    scores = [interest @ encoder.attention.numpy() @ interests[-1] for interest in interests]
    (kernel, bias), recurrent, state = weights_of(encoder.input_map), encoder.evolution.cell.recurrent, np.zeros(DIM)
    for interest, share in zip(interests, softmax(scores)):
        update, reset, new = np.split(interest @ kernel + bias, 3)
        of_update, of_reset, of_new = np.split(state @ recurrent.numpy(), 3)
        update = share * sigmoid(update + of_update)
        state = (1 - update) * state + update * np.tanh(new + sigmoid(reset + of_reset) * of_new)
    kernel, bias = weights_of(encoder.output_map)
    return state @ kernel + bias


def normalized(vector, scale, shift):
    return (vector - vector.mean()) / np.sqrt(vector.var() + 1e-6) * scale.numpy() + shift.numpy()


def gelu(values):
    return np.array([value * (1 + math.erf(value / 2 ** .5)) / 2 for value in values])


def bert4rec_states(encoder, rows, masked=()):
    """Users at each place of the clicks, some of them masked, and at the mask behind."""
    mask, table, heads = encoder.mask_vector.numpy()[0], encoder.click_encoder.position_table.table.numpy(), 2
    states = [(mask if place in masked or place == len(rows) else rows[place]) + table[place]
              for place in range(len(rows) + 1)]
    states = [state * DIM ** .5 for state in states]
    for block in encoder.blocks:
        queries, keys, values = ([state @ part.numpy() for state in states] for part in (
            block.query, block.key, block.value))
        after = []
        for place, state in enumerate(states):
            seen = []
            for head in np.split(np.arange(DIM), heads):
                shares = softmax([queries[place][head] @ key[head] / (DIM / heads) ** .5 for key in keys])
                seen.extend(sum(share * value[head] for share, value in zip(shares, values)))
            hidden = normalized(state + seen @ block.output_kernel.numpy(), block.scales[0], block.shifts[0])
            inner = gelu(hidden @ block.hidden_kernel.numpy() + block.hidden_bias.numpy())
            after.append(normalized(hidden + inner @ block.last_kernel.numpy() + block.last_bias.numpy(),
                                    block.scales[1], block.shifts[1]))
        states = after
    kernel, bias = weights_of(encoder.output_map)
    return [normalized(gelu(state @ kernel + bias), encoder.scale, encoder.shift) for state in states]


LOOPS = dict(gru4rec=recurrent_by_loops(gru), lstm=recurrent_by_loops(lstm), dnn=dnn_by_loops, caser=caser_by_loops,
             shan=shan_by_loops, svdpp=lambda encoder, rows: sum(rows) / len(rows) ** .5, dien=dien_by_loops,
             bert4rec=lambda encoder, rows: bert4rec_states(encoder, rows)[-1])


@pytest.mark.parametrize("name", NAMES)
def test_by_a_loop_over_clicks(name):
    encoder, clicks = encoder_of(name), clicks_of(LENGTHS, noise=9.0)
    users = encoder(clicks).numpy()
    for user, length in enumerate(LENGTHS):
        rows = clicks.vectors.numpy()[user, :length].astype(float)
        expected = LOOPS[name](encoder, rows) if length else np.zeros(DIM)
        np.testing.assert_allclose(users[user], expected, atol=2e-5)
    assert np.abs(users[:4]).max(axis=1).min() > .05


# ---- what every encoder keeps


@pytest.mark.parametrize("name", NAMES)
def test_padding_has_no_influence_and_no_history_is_finite(name):
    encoder = encoder_of(name)
    expected = encoder(clicks_of(LENGTHS)).numpy()
    for given in (clicks_of(LENGTHS, noise=40.0), clicks_of(LENGTHS, LENGTH + 3)):
        np.testing.assert_allclose(encoder(given), expected, atol=1e-6)
    clicks = clicks_of(LENGTHS, noise=40.0)
    with tf.GradientTape() as tape:
        tape.watch(clicks.vectors)
        users = tf.reduce_sum(encoder(clicks)[:, :3])
    of_clicks, *of_weights = map(tf.convert_to_tensor, tape.gradient(
        users, [clicks.vectors, *encoder.trainable_weights]))
    assert not of_clicks.numpy()[~clicks.mask.numpy()].any()
    assert of_clicks.numpy()[0, -1].any() and all(np.isfinite(part).all() and np.any(part) for part in of_weights)


@pytest.mark.parametrize("name", CAUSAL)
def test_a_position_is_the_user_after_that_click(name):
    encoder = encoder_of(name)
    found = encoder.positions(clicks_of(LENGTHS, noise=9.0)).numpy()
    assert found.shape == (len(LENGTHS), LENGTH, DIM) and np.isfinite(found).all()
    for t in range(LENGTH):
        rows = [row for row, length in enumerate(LENGTHS) if length > t]
        after = encoder(clicks_of([min(length, t + 1) for length in LENGTHS], width=t + 1)).numpy()
        np.testing.assert_allclose(found[rows, t], after[rows], atol=1e-5)


def test_which_encoders_give_every_position():
    assert CAUSAL == ["gru4rec", "lstm", "dnn", "caser", "svdpp"]


@pytest.mark.parametrize("name", NAMES)
def test_equal_seeds_give_equal_models(name):
    cls = ENCODERS.get(name)
    made = []
    for seed in (4, 4, 5):
        tf_keras.utils.set_random_seed(len(made))  # Keras' own random numbers play no part
        made.append([weight.numpy() for weight in cls(cls.Settings(**SMALL[name]), Sizes(DIM, seed=seed)).weights])
    for first, again, other in zip(*made):
        np.testing.assert_array_equal(first, again)
        assert first.ndim == 1 or not first.any() or np.abs(first - other).max() > .01
    kernels = [weight for weight in made[0] if weight.ndim > 1 and weight.any()]
    assert all(one.shape != two.shape or np.abs(one - two).max() > .01 for i, one in enumerate(kernels)
               for two in kernels[:i])


@pytest.mark.parametrize("name", ["gru4rec", "lstm", "caser", "bert4rec"])
def test_only_training_drops_and_by_the_steps_seed(name):
    encoder, seed = encoder_of(name, dropout=.5), tf.constant([3, 4], tf.int64)
    encode = lambda seed, training: encoder(clicks_of([5, 3], seed=seed), training).numpy()
    still = encode(None, True)
    np.testing.assert_array_equal(encode(seed, False), still)
    np.testing.assert_array_equal(encode(seed, True), encode(seed, True))
    assert np.abs(encode(seed, True) - still).max() > .05 < np.abs(encode(seed, True) - encode(seed + 1, True)).max()


@pytest.mark.parametrize("settings,message", [
    (dict(user_encoder="gru4rec", dropout=1.0), "--dropout=1.0: must be below 1"),
    (dict(user_encoder="lstm", rnn_layers=0), "--rnn_layers=0: must be ≥ 1"),
    (dict(user_encoder="dnn", mlp_units=("64", "0")), "--mlp_units=64,0: must be widths of at least 1"),
    (dict(user_encoder="dnn", mlp_units=("wide",)), "--mlp_units=wide: must be widths"),
    (dict(user_encoder="dnn", mlp_units=()), "--mlp_units=: must be widths"),
    (dict(user_encoder="caser", caser_clicks=0), "--caser_clicks=0: must be ≥ 1"),
    (dict(user_encoder="dien", dien_auxiliary=-1.0), "--dien_auxiliary=-1.0: must be ≥ 0"),
    (dict(user_encoder="bert4rec", mask_share=1.5), "--mask_share=1.5: must be ≤ 1"),
    (dict(user_encoder="bert4rec", transformer_heads=3, embedding_dim=8), "--transformer_heads=3 does not divide"),
    (dict(user_encoder="shan", short_term_clicks=0), "--short_term_clicks=0: must be ≥ 1")])
def test_settings_are_refused(settings, message):
    with pytest.raises(UserError, match=message):
        Config.of(**settings)


def test_svdpp_reads_histories_by_a_table_of_their_own():
    """Its change moves users and no item; that of the items' vectors moves no user."""
    world = exported.world("string")
    model = build_model(Config.of(embedding_dim=8, max_history=4, user_encoder="svdpp"), world.schema)
    rows = tf.constant(world.catalogue.item_rows[:8])
    batch = dict(history=tf.stack([rows[:4], rows[4:]]), length=tf.constant([4, 2], tf.int64), target=rows[:2])
    assert model.item_vectors(rows).shape == (8, 8) and model.history_vectors(rows).shape == (8, 16)
    found = [model.encode(batch, rows)]
    for table in (model.item_encoder.factors.table, model.item_encoder.ids.table):
        table.assign_add(np.random.default_rng(0).normal(size=table.shape))
        found.append(model.encode(batch, rows))
    for name, moved in (("users", [True, False]), ("positives", [False, True]), ("distinct", [False, True])):
        steps = [np.abs(getattr(one, name) - getattr(two, name)).max(axis=1) for one, two in zip(found, found[1:])]
        assert [(step > .01).all() for step in steps] == moved == [(step > 0).any() for step in steps]


# ---- served, and learned


@pytest.mark.parametrize("name", in_ci(NAMES, "gru4rec", "caser", "dien", "bert4rec"))
def test_the_exported_model_gives_the_live_vectors(name, tmp_path):
    """With times where the data has them; a bundle of foreign operations is refused before it is published."""
    world = exported.world("string")
    config = Config.of(embedding_dim=8, max_history=exported.HISTORY, user_encoder=name, **SMALL[name])
    world = dataclasses.replace(world, model=build_model(config, world.schema))
    signature = load_bundle(world.export(str(tmp_path))).tower.signatures["serving_default"]
    for lengths in ([1, 4, 3], [2, 0, 1]):
        mask, times = np.arange(4) < np.array(lengths)[:, None], exported.NOW - np.array([90_000, 4_000, 300, 20])
        items = np.random.default_rng(1).integers(1, exported.ITEMS, (3, 4)) * mask
        ids = [[exported.original_id("string", item) if item else "" for item in row] for row in items]
        found = signature(
            history=tf.constant(ids), popularity=tf.zeros([3]),
            timestamps=tf.constant(np.tile(times, (3, 1)), tf.int64),
            request_time=tf.fill([3], tf.constant(exported.NOW, tf.int64)))["user_vectors"].numpy()[:, 0, :-1]
        rows = np.where(mask[:, :, None], world.catalogue.item_rows[items - 1], 0)
        vectors = world.model.history_vectors(tf.constant(rows.reshape(-1, rows.shape[2]), tf.int64))
        live = world.model.user_vectors(tf.reshape(vectors, [3, 4, -1]), tf.constant(mask), tf.constant(
            np.where(mask, exported.NOW - times, -1), tf.int64)).numpy()
        np.testing.assert_allclose(found, np.where(mask.any(axis=1)[:, None], live, 0), atol=1e-5)


@pytest.mark.parametrize("name", ["gru4rec", "bert4rec"])
def test_training_reads_times_as_serving_does(name):
    """Times to the next click, from those to the request."""
    world = exported.world("string")
    model = build_model(Config.of(embedding_dim=8, max_history=4, user_encoder=name, **SMALL[name]), world.schema)
    rows = tf.constant(world.catalogue.item_rows[:8], tf.int64)
    batch = dict(history=tf.stack([rows[:4], rows[4:]]), length=tf.constant([4, 2], tf.int64), target=rows[:2],
                 time_gap=tf.constant([[90_000, 4_000, 300, 20], [7_000, 400, -1, -1]], tf.int64))
    items = tf.reshape(model.history_vectors(rows), [2, 4, 8])
    served = lambda gaps: model.user_vectors(items, tf.sequence_mask(batch["length"], 4), gaps).numpy()
    np.testing.assert_allclose(model.encode(batch).users, served(batch["time_gap"]), atol=1e-6)
    # The third click's time to the next is 310 seconds in place of 280, across a boundary.
    assert np.abs(served(batch["time_gap"] - [[0, 0, -30, 0], [0] * 4]) - served(batch["time_gap"])).max() > 1e-3


@pytest.fixture(scope="module", name="data_dir")
def fixture_data_dir(tmp_path_factory):
    return small_run.prepared(tmp_path_factory.mktemp("published"))


LEARNING = dict(dnn=dict(mlp_units=("32", "16")), gru4rec=dict(rnn_units=16), lstm=dict(rnn_units=16),
                bert4rec=dict(dropout=0.0))


@pytest.mark.slow
@pytest.mark.parametrize("name", in_ci(NAMES, "gru4rec", "caser", "dien", "bert4rec"))
def test_a_planted_successor_is_learned(data_dir, tmp_path, name):
    """Of 30 items, of which one follows in nine of ten cases; beside most-popular and the untrained model."""
    model = dict(user_encoder=name, loss="full_softmax", **LEARNING.get(name, {}))
    config = small_run.config(data_dir, tmp_path, model=model, epochs=12, steps_per_call=28, log_every_steps=1000,
                              checkpoint_every_steps=1000)
    assert small_run.run(config) == 0
    found = evaluate(Config.of(data_dir=data_dir, workdir=str(tmp_path), candidate_sets=("full",), ks=("3",),
                               eval_checkpoint="latest", untrained=True))
    references = [found["most_popular/hr@3/full"], found["untrained/hr@3/full"]]
    assert found["hr@3/full"] > 2 * max(references)
