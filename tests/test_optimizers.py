"""Sparse optimizers against NumPy loops and against the dense originals."""
import math
import types

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from tensorflow.python.distribute.sharded_variable import ShardedVariable

from clrec_tf.config import TrainConfig
from clrec_tf.encoders.embeddings import lookup, lookup_distinct, rows_at
from clrec_tf.training.optimizers import build_optimizer
from clrec_tf.training.optimizers import summed_rows
from clrec_tf.training.optimizers import WarmupSchedule
from clrec_tf.training.step import global_norm
from clrec_tf.training.step import scale_gradients

V, D = 7, 3


def gradients(seed, steps, rows=None):
    """Sparse gradients with repeated rows."""
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        indices = rng.integers(0, V, 5) if rows is None else np.concatenate([rows, rng.integers(0, V, 2)])
        yield indices, rng.normal(size=(len(indices), D)).astype(np.float32)


def applied(optimizer, variable, indices, values):
    gradient = tf.IndexedSlices(tf.constant(values), tf.constant(indices, tf.int64), (V, D))
    optimizer.apply_gradients([(summed_rows(gradient), variable)])


def test_lazy_adam_moves_rows_in_use_only_as_a_numpy_loop_says():
    start = np.random.default_rng(1).normal(size=(V, D)).astype(np.float32)
    variable = tf.Variable(start)
    optimizer = build_optimizer(TrainConfig(learning_rate=0.1, weight_decay=0.01), 100)
    expected, m, v = start.astype(float), np.zeros((V, D)), np.zeros((V, D))
    for step, (indices, values) in enumerate(gradients(0, 6), start=1):
        applied(optimizer, variable, indices, values)
        for row in set(indices):
            g = sum(value.astype(float) for index, value in zip(indices, values) if index == row)
            expected[row] -= 0.1 * 0.01 * expected[row]
            m[row] = 0.9 * m[row] + 0.1 * g
            v[row] = 0.999 * v[row] + 0.001 * g * g
            rate = 0.1 * math.sqrt(1 - 0.999 ** step) / (1 - 0.9 ** step)
            expected[row] -= rate * m[row] / (np.sqrt(v[row]) + 1e-7)
    np.testing.assert_allclose(variable.numpy(), expected, rtol=2e-5, atol=2e-6)


def test_lazy_adam_equals_adam_when_every_row_has_a_gradient():
    lazy, dense = tf.Variable(tf.ones((V, D))), tf.Variable(tf.ones((V, D)))
    ours, keras = build_optimizer(TrainConfig(learning_rate=0.05), 100), tf_keras.optimizers.Adam(0.05, jit_compile=False)
    for indices, values in gradients(2, 5, rows=np.arange(V)):
        applied(ours, lazy, indices, values)
        whole = np.zeros((V, D), np.float32)
        np.add.at(whole, indices, values)
        keras.apply_gradients([(tf.constant(whole), dense)])
    np.testing.assert_allclose(lazy.numpy(), dense.numpy(), rtol=1e-6)


@pytest.mark.parametrize("kind", ["lazy_adam", "adagrad"])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_rows_without_gradient_stay_as_they_are(kind, decay):
    variable = tf.Variable(tf.ones((V, D)))
    optimizer = build_optimizer(TrainConfig(optimizer=kind, learning_rate=0.1, weight_decay=decay), 10)
    for _ in range(3):
        applied(optimizer, variable, np.array([1, 4, 4]), np.ones((3, D), np.float32))
    moved = (variable.numpy() != 1).any(axis=1)
    assert moved.tolist() == [row in (1, 4) for row in range(V)]


def test_weight_decay_of_dense_variables():
    variable = tf.Variable([2.0])
    optimizer = build_optimizer(TrainConfig(learning_rate=0.5, weight_decay=0.2), 10)
    optimizer.apply_gradients([(tf.constant([0.0]), variable)])
    np.testing.assert_allclose(variable.numpy(), [2.0 - 0.5 * 0.2 * 2.0], rtol=1e-6)  # a zero gradient: decay alone


def test_schedule():
    constant = WarmupSchedule(0.4, 4, "constant", 100, 0.0)
    np.testing.assert_allclose([constant(step) for step in (0, 1, 3, 50)], [0.1, 0.2, 0.4, 0.4], rtol=1e-6)
    cosine = WarmupSchedule(0.4, 0, "cosine", 100, 0.1)
    # at the middle of the cosine: the mean of peak and end
    np.testing.assert_allclose([cosine(step) for step in (0, 50, 100, 120)], [0.4, 0.22, 0.04, 0.04], rtol=1e-5)
    both = WarmupSchedule(1.0, 10, "cosine", 110, 0.0)
    np.testing.assert_allclose([both(step) for step in (4, 10, 60)], [0.5, 1.0, 0.5], rtol=1e-5)


def test_a_warm_up_that_does_not_end_is_told(caplog):
    for warmup, total, told in ((99, 100, False), (100, 100, True), (5, 0, False), (0, 0, False)):
        caplog.clear()
        build_optimizer(TrainConfig(warmup_steps=warmup), total)
        assert (f"--warmup_steps={warmup} of {total} steps in all" in caplog.text) == told


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_dense_variables_move_as_a_numpy_loop_of_adam_says(decay):
    rng, start = np.random.default_rng(3), np.random.default_rng(1).normal(size=(V, D))
    variable = tf.Variable(start, dtype=tf.float32)
    optimizer = build_optimizer(TrainConfig(learning_rate=0.1, weight_decay=decay, warmup_steps=3), 100)
    expected, m, v = start.copy(), np.zeros((V, D)), np.zeros((V, D))
    for step in range(1, 7):
        gradient = (rng.normal(size=(V, D)) * 10.0 ** rng.integers(-7, 1, (V, D))).astype(np.float32)
        optimizer.apply_gradients([(tf.constant(gradient), variable)])
        rate = 0.1 * min(1, step / 3)
        expected -= rate * decay * expected
        m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient.astype(float) ** 2
        expected -= rate * math.sqrt(1 - 0.999 ** step) / (1 - 0.9 ** step) * m / (np.sqrt(v) + 1e-7)
    np.testing.assert_allclose(variable.numpy(), expected, rtol=2e-5, atol=2e-6)
    assert int(optimizer.iterations) == 6


def test_rows_that_lookups_share_are_summed():
    table = tf.Variable(tf.ones((V, D)))

    @tf.function
    def gradient(*lookups):
        with tf.GradientTape() as tape:
            loss = tf.add_n([tf.reduce_sum((i + 1.0) * lookup(table, ids)) for i, ids in enumerate(lookups)])
        return summed_rows(tape.gradient(loss, table))

    once, twice = gradient(tf.constant([2, 5, 2])), gradient(tf.constant([2, 5, 2]), tf.constant([5, 0]))
    assert once.indices.numpy().tolist() == [2, 5] and once.values.numpy()[:, 0].tolist() == [2, 1]
    assert dict(zip(twice.indices.numpy().tolist(), twice.values.numpy()[:, 0].tolist())) == {2: 2, 5: 3, 0: 2}
    assert len(twice.indices) == 3
    dense = tf.constant([1.0])
    assert summed_rows(dense) is dense and summed_rows(None) is None


@pytest.mark.parametrize("rows,sent", [(V, tf.int32), (2 ** 31 - 1, tf.int32), (2 ** 31, tf.int64)])
def test_rows_are_asked_for_and_updated_by_the_shortest_numbers(rows, sent, monkeypatch):
    """A table of 2³¹ rows is described by its shape alone: what a lookup is given decides."""
    asked = []
    monkeypatch.setattr(tf.nn, "embedding_lookup", lambda table, ids: asked.append(ids) or tf.zeros((len(ids), D)))
    table, ids = types.SimpleNamespace(shape=tf.TensorShape((rows, D))), [rows - 1, 0]
    lookup_distinct(table, tf.constant(ids, tf.int64))
    rows_at(table, tf.constant(ids, tf.int64))
    assert [numbers.dtype for numbers in asked] == [sent] * 2
    assert [numbers.numpy().tolist() for numbers in asked] == [ids] * 2


@pytest.mark.parametrize("number", [V, -1, 2 ** 32 + 1, -2 ** 32 + 1])
def test_rows_outside_of_a_table_are_refused_however_far(number):
    """Cast to int32 the last two would be row 1."""
    with pytest.raises(tf.errors.InvalidArgumentError, match="is not in"):
        lookup(tf.Variable(tf.ones((V, D))), tf.constant([number, 0], tf.int64))


def test_gradients_have_the_short_numbers_too():
    shards = [tf.Variable(tf.ones((4, D))), tf.Variable(tf.ones((3, D)))]
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(lookup(ShardedVariable(shards), tf.constant([6, 1, 6], tf.int64)))
    assert [gradient.indices.dtype for gradient in tape.gradient(loss, shards)] == [tf.int32] * 2


@pytest.mark.parametrize("kind", ["lazy_adam", "adagrad"])
def test_rounded_gradients_update_as_those_that_were_rounded_before(kind):
    """Sparse and dense. 1 + 2⁻⁹ is half of bfloat16's step at 1, and becomes 1; 3 + 2⁻⁴ has few enough digits."""
    values, ends = np.float32([[1 + 2 ** -9, 3 + 2 ** -4, -1 / 3]]), {}
    assert tf.cast(values, tf.bfloat16).numpy().astype(float)[0, :2].tolist() == [1, 3 + 2 ** -4]
    rounded = tf.cast(tf.cast(values, tf.bfloat16), tf.float32).numpy()
    for name, (dtype, given) in dict(by_setting=("bfloat16", values), before=("float32", rounded),
                                     not_at_all=("float32", values)).items():
        optimizer = build_optimizer(TrainConfig(optimizer=kind, learning_rate=.1, gradient_dtype=dtype), 10)
        table, dense = tf.Variable(tf.ones((V, D))), tf.Variable(tf.ones((1, D)))
        optimizer.build([table, dense])
        for gradient in (tf.constant(given), tf.constant(given[:, ::-1].copy())):
            sparse = tf.IndexedSlices(gradient, tf.constant([4]), (V, D))
            optimizer.apply_gradients([(sparse, table), (gradient, dense)])
        ends[name] = np.concatenate([table.numpy(), dense.numpy()])
    np.testing.assert_array_equal(ends["by_setting"], ends["before"])
    assert (ends["by_setting"] != ends["not_at_all"]).any(axis=1).tolist() == [row in (4, V) for row in range(V + 1)]


def test_global_norm_and_scaling_of_mixed_gradients():
    sparse = tf.IndexedSlices(tf.constant([[3.0], [4.0]]), tf.constant([0, 5]), (9, 1))
    dense = tf.constant([12.0])
    assert float(global_norm([sparse, dense])) == pytest.approx(13.0)  # 3² + 4² + 12² = 13²
    scaled = scale_gradients([sparse, dense], 0.5)
    assert isinstance(scaled[0], tf.IndexedSlices)
    np.testing.assert_allclose(tf.convert_to_tensor(scaled[0]).numpy().sum(), 3.5)
    np.testing.assert_allclose(scaled[1].numpy(), [6.0])


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_adagrad_against_a_numpy_loop(decay):
    start = np.random.default_rng(1).normal(size=(V, D)).astype(np.float32)
    sparse, dense = tf.Variable(start), tf.Variable(start[0])
    optimizer = build_optimizer(TrainConfig(optimizer="adagrad", learning_rate=0.2, weight_decay=decay), 100)
    expected, total = start.astype(float), np.full((V, D), 0.1)  # Keras starts the sums at 0.1
    expected_dense, total_dense = start[0].astype(float), np.full(D, 0.1)
    for step, (indices, values) in enumerate(gradients(0, 6)):
        slices = tf.IndexedSlices(tf.constant(values), tf.constant(indices, tf.int64), (V, D))
        optimizer.apply_gradients([(summed_rows(slices), sparse), (tf.constant(values[0]), dense)])
        for row in set(indices):
            g = sum(value.astype(float) for index, value in zip(indices, values) if index == row)
            expected[row] -= 0.2 * decay * expected[row]
            total[row] += g * g
            expected[row] -= 0.2 * g / np.sqrt(total[row] + 1e-7)
        g = values[0].astype(float)
        expected_dense -= 0.2 * decay * expected_dense
        total_dense += g * g
        expected_dense -= 0.2 * g / np.sqrt(total_dense + 1e-7)
        assert int(optimizer.iterations) == step + 1
    np.testing.assert_allclose(sparse.numpy(), expected, rtol=2e-5, atol=2e-6)
    np.testing.assert_allclose(dense.numpy(), expected_dense, rtol=2e-5, atol=2e-6)


def graph_gradients(forward, *variables):
    """Types of the gradients' operations, and the gradients after `summed_rows` as dense arrays, computed in a graph."""
    kept = []

    @tf.function
    def run():
        with tf.GradientTape() as tape:
            loss = forward()
        found = tape.gradient(loss, variables)
        summed = [summed_rows(gradient) for gradient in found]
        kept.extend(mine is theirs for mine, theirs in zip(summed, found))
        return [(tf.size(tf.unique(g.indices)[0]), tf.size(g.indices), tf.convert_to_tensor(g)) for g in summed]
    return kept, [[part.numpy() for part in parts] for parts in run()]


def test_rows_that_repeat_in_a_plain_keras_embedding_are_summed():
    """Its gradient ends in the same operation as that of a lookup by distinct ids, and LazyAdam would keep one of them."""
    layer = tf_keras.layers.Embedding(V, D)
    layer.build(None)
    ids, weights = tf.constant([[1, 3, 1], [5, 1, 3]]), tf.constant(np.arange(1.0, 7, dtype=np.float32).reshape(2, 3, 1))
    table = layer.embeddings
    kept, [(distinct, rows, dense)] = graph_gradients(lambda: tf.reduce_sum(layer(ids) * weights), table)
    assert kept == [False] and distinct == rows == 3
    expected = np.zeros((V, D))
    np.add.at(expected, ids.numpy().ravel(), np.repeat(weights.numpy().reshape(-1, 1), D, axis=1))
    np.testing.assert_allclose(dense, expected)
    # The update itself, against that of the dense gradient.
    sparse, whole = tf.Variable(tf.ones((V, D))), tf.Variable(tf.ones((V, D)))
    ours, reference = (build_optimizer(TrainConfig(learning_rate=0.1), 10) for _ in range(2))
    ours.build([sparse]), reference.build([whole])

    @tf.function
    def update():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.gather(sparse, ids) * weights)
        ours.apply_gradients([(summed_rows(tape.gradient(loss, sparse)), sparse)])
    update()
    reference.apply_gradients([(tf.constant(expected, tf.float32), whole)])
    np.testing.assert_allclose(sparse.numpy(), whole.numpy(), rtol=1e-6)


def test_marked_lookups_are_left_alone_also_in_shards_and_joined_ones_are_not():
    whole = tf.Variable(tf.ones((V, D)))
    shards = [tf.Variable(tf.ones((4, D))), tf.Variable(tf.ones((3, D)))]
    ids = tf.constant([6, 1, 3, 0])
    assert graph_gradients(lambda: tf.reduce_sum(lookup_distinct(whole, ids)), whole)[0] == [True]
    assert graph_gradients(lambda: tf.reduce_sum(lookup(whole, tf.concat([ids, ids], 0))), whole)[0] == [True]

    kept, found = graph_gradients(lambda: tf.reduce_sum(lookup_distinct(ShardedVariable(shards), ids)), *shards)
    assert kept == [True, True] and [part[1] for part in found] == [3, 1]
    kept, [(distinct, rows, _)] = graph_gradients(
        lambda: tf.reduce_sum(lookup_distinct(whole, ids)) + tf.reduce_sum(lookup_distinct(whole, ids[:2])), whole)
    assert kept == [False] and distinct == rows == 4
