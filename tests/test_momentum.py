"""Keys of a momentum encoder: against dense moving averages in NumPy, without gradient, and through checkpoints."""
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from clrec_tf.config import Config
from clrec_tf.config import TrainConfig
from clrec_tf.errors import UserError
from clrec_tf.losses import momentum
from clrec_tf.models.batches import as_histories
from clrec_tf.models.build import build_model
from clrec_tf.models.key_encoder import KeyEncoder
from clrec_tf.objectives.contrastive import build_variant
from clrec_tf.objectives.impression_stream import ImpressionStream
from clrec_tf.training.optimizers import build_optimizer
from clrec_tf.training.runtime import LocalRuntime
from clrec_tf.training.setup import set_up
from clrec_tf.training.step import make_train_call
from tests import exported
from tests.local_cluster import values
from tests.naive_queue import DIM
from tests.naive_queue import ITEMS
from tests.naive_queue import make_batch
from tests.naive_queue import random_batch
from tests.naive_queue import TEMPERATURE
from tests.naive_queue import tiny_model
from tests import small_run


def test_one_step_and_many_at_once():
    keys, queries = tf.constant([[1.0], [2.0]]), tf.constant([[3.0], [4.0]])
    np.testing.assert_allclose(momentum.averaged(keys, queries, 0.9), [[1.2], [2.2]], rtol=1e-6)
    stamps = tf.constant([[5], [momentum.EQUAL]], tf.int64)
    for now, expected in ((4, 1.0), (5, 1.0), (6, 1.2), (7, 1.38)):  # .9·1.2 + .1·3
        found = momentum.caught_up(keys, queries, stamps, tf.constant(now, tf.int64), 0.9)
        np.testing.assert_allclose(found, [[expected], [4.0]], rtol=1e-6)
    late = momentum.caught_up(keys[:1], queries[:1], stamps[:1], tf.constant(20_005, tf.int64), 0.9999)
    np.testing.assert_allclose(late, [[3 - 2 * 0.9999 ** 20_000]], rtol=1e-6)  # m itself is rounded by 3e-8


def test_sparse_keys_are_those_of_dense_averages_over_fifty_steps():
    m, rng, model = 0.9, np.random.default_rng(0), tiny_model()
    keys = KeyEncoder(model, tiny_model(seed=8), m)
    keys.begin()
    table = model.item_encoder.ids.table
    optimizer = build_optimizer(TrainConfig(learning_rate=0.1, weight_decay=0.01), 100)
    optimizer.build(model.trainable_variables)
    expected, everything = table.numpy().astype(float), tf.range(1, ITEMS + 1, dtype=tf.int64)[:, None]
    written = np.zeros(ITEMS + 1, int)
    for step in range(50):
        rows = np.unique(rng.integers(1, ITEMS - 1, rng.integers(1, 4)))  # the last two are never in use
        values_of_rows = tf.constant(rng.normal(size=(len(rows), DIM)), tf.float32)
        gradient = tf.IndexedSlices(values_of_rows, tf.constant(rows), table.shape)
        before = keys.towers.item_encoder.ids.table.numpy()
        keys.update([(gradient, table)], lambda: optimizer.apply_gradients([(gradient, table)]))
        written += (keys.towers.item_encoder.ids.table.numpy() != before).any(axis=1)
        expected = m * expected + (1 - m) * table.numpy().astype(float)
        normalized = expected / np.linalg.norm(expected, axis=1, keepdims=True)
        np.testing.assert_allclose(keys.candidates(everything), normalized[1:], atol=1e-6, err_msg=f"step {step}")
    assert int(keys.steps) == 50 and not written[[0, ITEMS - 1, ITEMS]].any() and written.sum() < 150


def test_the_loss_compares_with_keys_and_only_histories_learn():
    """In loops: candidates are rows of the keys' table as they were when they entered, the row's own in one slot."""
    m, rng, model = 0.5, np.random.default_rng(1), tiny_model()
    keys = KeyEncoder(model, tiny_model(seed=8), m)
    keys.begin()
    variant = build_variant("cached", model, 8, True, LocalRuntime().local_variable, keys=keys)
    optimizer = tf_keras.optimizers.SGD(0.5, jit_compile=False)
    optimizer.build(model.trainable_variables)
    call = make_train_call(model, variant, optimizer, 0.0, LocalRuntime(), keys=keys)
    norm = lambda vector: vector / np.linalg.norm(vector)
    table, queue = model.item_encoder.ids.table, []
    averages = table.numpy().astype(float)
    for _ in range(4):
        batch, before = random_batch(rng, 5), table.numpy().astype(float)
        targets, users, weights = batch["target"].numpy()[:, 0], batch["user_id"].numpy(), batch["weight"].numpy()
        queue = [(owner, vector, -1) for owner, vector, _ in queue]
        queue += [(users[row], norm(averages[targets[row]]), row) for row in np.flatnonzero(weights)]
        queue, losses, clicked = queue[-8:], np.zeros(5), set()
        for row in np.flatnonzero(weights):
            history = [item for item in batch["history"].numpy()[row, :, 0] if item]
            user = norm(np.mean([before[item] for item in history], axis=0)) / TEMPERATURE
            scores = [user @ vector for owner, vector, place in queue if place == row or owner != users[row]]
            losses[row] = np.log(np.sum(np.exp(scores))) - user @ norm(averages[targets[row]])
            clicked |= set(history)
        result = call(iter(tf.data.Dataset.from_tensors(batch)), tf.constant(1, tf.int64))
        np.testing.assert_allclose(result["loss"], weights @ losses / weights.sum(), rtol=1e-5)
        moved = set(np.flatnonzero((table.numpy() != before).any(axis=1)))
        assert moved and moved <= clicked
        averages = m * averages + (1 - m) * table.numpy()


def lagging():
    """(model, its keys after a step of m = .5 that moved every item, the keys' items [ITEMS+1,DIM])."""
    model = tiny_model()
    keys, table = KeyEncoder(model, tiny_model(seed=8), 0.5), model.item_encoder.ids.table
    keys.begin()
    before, after = table.numpy(), np.random.default_rng(5).normal(size=table.shape).astype(np.float32)
    everything = tf.IndexedSlices(tf.zeros_like(table), tf.range(ITEMS + 1), table.shape)
    keys.update([(everything, table)], lambda: table.assign(after))
    return model, keys, 0.5 * (before + after)


def test_impressions_are_keys_too():
    """The positives, what was shown, and what was shown before, compared with users as they are."""
    model, keys, averages = lagging()
    shown, rows = np.array([5, 7, 7, 2, 9, 11, 3]), tf.range(ITEMS + 1, dtype=tf.int64)[:, None]
    stream = ImpressionStream(shown, rows, 0, LocalRuntime().local_variable)
    variant = build_variant("cached", model, 8, False, LocalRuntime().local_variable, impressions=stream,
                            keys=keys).open()
    units = averages / np.linalg.norm(averages, axis=1, keepdims=True)
    order = shown[np.arange(6) * stream.stride % len(shown)]
    first, batch = make_batch([4, 5, 6]), make_batch([2, 8, 8], histories=[[1, 2], [3, 0], [4, 5]])
    variant.logits(first)
    positives, own, live, older = variant.logits(batch)
    users = model.encode(batch).users.numpy() / TEMPERATURE
    np.testing.assert_allclose(positives, np.sum(users * units[[2, 8, 8]], axis=1), rtol=1e-5)
    np.testing.assert_array_equal(own[:, 0], positives)
    np.testing.assert_allclose(live, users @ units[order[3:]].T, rtol=1e-5)
    np.testing.assert_allclose(older[:, :3], users @ units[order[:3]].T, rtol=1e-5)


def test_keys_are_encoded_without_dropout():
    """As the model encodes outside of training, whose step does drop."""
    config = Config.of(embedding_dim=8, max_history=5, user_encoder="sasrec", dropout=0.5, use_features=False)
    model, towers = (build_model(config, exported.world("int").schema) for _ in range(2))
    keys, clicks = KeyEncoder(model, towers, 0.9), tf.constant([[[2], [4], [3]], [[3], [6], [0]]], tf.int64)
    batch = {**make_batch([2, 3]), "after": clicks, "after_length": tf.constant([3, 2], tf.int64),
             "seed": tf.constant([1, 2], tf.int64)}
    expected = model.encode(as_histories(batch)).users
    np.testing.assert_allclose(keys.clicks_after(batch), expected, atol=1e-6)
    assert np.abs(model.encode(as_histories(batch), training=True).users - expected).max() > 0.1


def test_keys_have_no_gradient_and_begin_as_the_model():
    model = tiny_model()
    keys, rows = KeyEncoder(model, tiny_model(seed=8), 0.9), tf.constant([[2], [3], [2]], tf.int64)
    keys.begin()
    with tf.GradientTape() as tape:
        found = keys.candidates(rows)
    assert tape.gradient(found, [*model.variables, *keys.towers.trainable_variables]) == [None, None]
    np.testing.assert_array_equal(found, model.score_vectors(model.item_vectors(rows)))
    batch = {**make_batch([2, 3]), "after": tf.constant([[[2], [4]], [[3], [0]]], tf.int64),
             "after_length": tf.constant([2, 1], tf.int64)}
    np.testing.assert_allclose(keys.clicks_after(batch), model.encode(batch).after, rtol=1e-6)


@pytest.mark.parametrize("settings, words", [
    (dict(momentum_encoder=1.0), "momentum_encoder=1.0: must be below 1"),
    (dict(momentum_encoder=-0.1), "momentum_encoder=-0.1: must be ≥ 0"),
    (dict(momentum_encoder=0.9, queue="raw"), "--queue=raw: it encodes its entries anew"),
    (dict(momentum_encoder=0.9, queue="in_batch"), "--queue=in_batch: it keeps nothing"),
    (dict(momentum_encoder=0.9, queue="all_clicks"), "--queue=all_clicks: it scores the items as they are"),
    (dict(momentum_encoder=0.9, user_encoder="svdpp"), "would never learn"),
    (dict(momentum_encoder=0.9, user_encoder="mind"), "--user_encoder=mind: what a user is compared by depends"),
    (dict(momentum_encoder=0.9, user_encoder="rum"), "--user_encoder=rum: what a user is compared by depends"),
    (dict(momentum_encoder=0.9, loss="bce"), "--momentum_encoder=0.9 belongs to --loss=contrastive, not to bce"),
    (dict(momentum_encoder=0.9, model="multi_clrec"), "--momentum_encoder=0.9 belongs to --model=clrec")])
def test_where_there_are_no_keys_to_keep_is_refused(settings, words):
    with pytest.raises(UserError, match=words):
        Config.of(**settings).refuse_unread()


def test_a_run_that_starts_from_another_has_its_weights_for_keys(tmp_path):
    data_dir = small_run.prepared(tmp_path)
    model = dict(momentum_encoder=0.9)
    assert small_run.run(small_run.config(data_dir, tmp_path / "first", model=model, epochs=1)) == 0
    second = small_run.config(data_dir, tmp_path / "second", model=model, init_from=str(tmp_path / "first"))
    set_up(second, LocalRuntime()).checkpoints.save()
    found, before = values(tmp_path / "second"), values(tmp_path / "first")
    here = "momentum_encoder/towers/"
    tables = {name.rpartition("/stamps/")[0] for name in found if "/stamps/" in name}
    assert len(tables) == 4  # ids, categories, positions, times
    dense = [name for name in found if name.startswith(here) and name.rpartition("/table/")[0] not in tables
             and "/stamps/" not in name]
    assert len(dense) > 4
    for name in dense:
        of_model = name.replace(here, "model/")
        np.testing.assert_array_equal(found[name], found[of_model], err_msg=name)
        np.testing.assert_array_equal(found[name], before[of_model], err_msg=name)
        assert not np.array_equal(before[name], before[of_model]) or "bias" in name, name
    stamps = "/stamps/.ATTRIBUTES/VARIABLE_VALUE"
    for table in tables:
        assert (found[table + stamps] == momentum.EQUAL).all() and (before[table + stamps] > 0).any()
