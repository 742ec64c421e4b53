"""The candidate tower g(y) against NumPy loops over single items."""
import numpy as np
import pytest

from clrec_tf.config import Config
from clrec_tf.data.schema import Feature
from clrec_tf.data.schema import Schema
from clrec_tf.encoders import items as item_lib
from clrec_tf.errors import UserError
from clrec_tf.models.build import build_model
import tensorflow as tf
import tf_keras

ROWS = 9
TAGS_AND_CATEGORY = (Feature("tags", 7, 2, 6), Feature("category", 6, 1, 5))


def make_encoder(features=(), dim=6, **options):
    return item_lib.ItemEncoder(ROWS, dim, features, seed=11, **options)


def item_rows(*rows):
    return tf.constant(rows, tf.int64)


def encode_one(encoder, row, content=None):
    """g of one item, by the formula."""
    table = lambda layer, index: layer.table.numpy()[index] if index else np.zeros(layer.table.shape[1])
    vector, column, slots = table(encoder.ids, row[0]), 1, []
    for feature, layer in zip(encoder.features, encoder.feature_tables):
        present = [table(layer, value) for value in row[column:column + feature.width] if value]
        slots.append(np.mean(present, axis=0) if present else np.zeros(layer.table.shape[1]))
        column += feature.width
    if slots:
        joined = np.concatenate(slots)
        vector = vector + (joined @ encoder.projection.kernel.numpy() if encoder.projection else joined)
    if content is not None and row[0]:
        hidden, weights = content[row[0]], [weight.numpy() for weight in encoder.content_encoder.weights]
        if len(weights) == 4:
            hidden = np.maximum(hidden @ weights[0] + weights[1], 0)
        vector = vector + hidden @ weights[-2] + weights[-1]
    return vector


# Items with repeats, one tag and no category, no tag, a missing tag before a present one, and padding.
SOME_ROWS = ([1, 2, 3, 4], [3, 5, 0, 0], [1, 2, 3, 4], [8, 0, 0, 5], [4, 0, 6, 1], [0, 0, 0, 0])


@pytest.mark.parametrize("options", [
    {}, {"feature_dims": [1, 5]}, {"feature_dims": [3, 2], "projection": True}, {"projection": True}])
def test_features_against_a_loop(options):
    encoder = make_encoder(TAGS_AND_CATEGORY, **options)
    assert encoder.item_width == 4
    expected = [encode_one(encoder, row) for row in SOME_ROWS]
    np.testing.assert_allclose(encoder(item_rows(*SOME_ROWS)), expected, rtol=1e-5, atol=1e-6)
    assert (encoder(item_rows(SOME_ROWS[-1])).numpy() == 0).all()


def test_without_features_it_is_the_id_table():
    encoder = make_encoder()
    np.testing.assert_array_equal(encoder(item_rows([7], [2], [7])), encoder.ids.table.numpy()[[7, 2, 7]])


@pytest.mark.parametrize("hidden", [0, 5])
@pytest.mark.parametrize("features", [(), TAGS_AND_CATEGORY])
def test_content_against_a_loop(features, hidden):
    content = np.random.default_rng(0).normal(size=(ROWS, 3)).astype(np.float32)
    encoder = make_encoder(features, content=content, content_hidden=hidden)
    for weight in encoder.content_encoder.weights:
        weight.assign(np.random.default_rng(1).normal(size=weight.shape))
    rows = [row[:encoder.item_width] for row in SOME_ROWS]
    np.testing.assert_allclose(
        encoder(item_rows(*rows)), [encode_one(encoder, row, content) for row in rows], rtol=1e-5, atol=1e-5)
    assert (encoder(item_rows(rows[-1])).numpy() == 0).all()
    assert not any(weight is encoder.content for weight in encoder.trainable_weights)


def test_index_zero_is_never_trained():
    encoder = make_encoder(TAGS_AND_CATEGORY)
    tables = [encoder.ids] + encoder.feature_tables
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(encoder(item_rows(*SOME_ROWS)) * tf.range(1.0, 7.0))
    gradients = [tf.convert_to_tensor(part).numpy() for part in tape.gradient(total, [layer.table for layer in tables])]
    for gradient, trained in zip(gradients, ({1, 3, 4, 8}, {2, 3, 5, 6}, {1, 4, 5})):
        assert set(np.flatnonzero(np.abs(gradient).max(axis=1))) == trained
    # Item 1 stands in two rows: its gradient is the sum of both.
    np.testing.assert_allclose(gradients[0][1], 2 * np.arange(1.0, 7.0))


@pytest.mark.parametrize("dim,parts,widths", [(64, 6, [11, 11, 11, 11, 10, 10]), (8, 3, [3, 3, 2]), (5, 1, [5])])
def test_widths_are_split_by_largest_remainder(dim, parts, widths):
    assert item_lib.split_width(dim, parts) == widths


@pytest.mark.parametrize("dims,message", [
    ([3, 4], "--feature_dims=3,4 sums to 7, not to --embedding_dim=6"),
    ([6], "gives 1 widths for 2 features"), ([0, 6], "at least 1")])
def test_widths_that_do_not_fit_are_refused(dims, message):
    with pytest.raises(UserError, match=message):
        make_encoder(TAGS_AND_CATEGORY, feature_dims=dims)


def test_distinct_rows():
    rows = np.array([[5, 1], [2, 7], [5, 1], [0, 0], [2, 7]])
    distinct, inverse = item_lib.distinct_rows(tf.constant(rows))
    np.testing.assert_array_equal(distinct, [[5, 1], [2, 7], [0, 0]])
    np.testing.assert_array_equal(distinct.numpy()[inverse.numpy()], rows)
    np.testing.assert_array_equal(item_lib.distinct_rows(tf.constant(rows[:, :1]))[0], [[5], [2], [0]])


def test_one_trace_for_any_number_of_items():
    encoder = make_encoder(TAGS_AND_CATEGORY)
    compiled = tf.function(encoder.call, input_signature=[tf.TensorSpec([None, 4], tf.int64)])
    for size in (1, 3, 6):
        rows = item_rows(*SOME_ROWS[:size])
        np.testing.assert_allclose(compiled(rows), encoder(rows), rtol=1e-6)
    assert compiled.experimental_get_tracing_count() == 1


def test_every_table_has_the_std_of_the_models_width():
    features = (Feature("tags", 4000, 2, 3999), Feature("category", 3000, 1, 2999))
    encoder = item_lib.ItemEncoder(2000, 16, features, feature_dims=[4, 12], seed=1)
    tables = [layer.table.numpy() for layer in [encoder.ids] + encoder.feature_tables]
    assert [table.shape for table in tables] == [(2000, 16), (4000, 4), (3000, 12)]
    for table in tables:  # d^−½ = ¼, also in slots of width 4 (½) and 12 (0.29); std of an std here is below 1 %
        assert abs(table.std() * 4 - 1) < 0.03 and abs(table.mean()) < 0.01
        assert 2.8 < np.mean((table / table.std()) ** 4) < 3.2  # a normal's kurtosis; 1.8 of a uniform
    assert np.abs(tables[1][:2000] - tables[0][:, :4]).max() > 0.1  # and their own seeds


def assert_glorot_normal(kernel):
    """Normal cut at two standard deviations, of std √(2 / (in + out)) after the cut."""
    kernel = np.asarray(kernel)
    std, bound = np.sqrt(2 / sum(kernel.shape)), 2 / 0.87962566 * np.sqrt(2 / sum(kernel.shape))
    assert abs(kernel.std() / std - 1) < 0.05 and 0.9 * bound < np.abs(kernel).max() <= bound * 1.0001
    # Glorot's uniform has the same std, but its bound is √3 std and its kurtosis 1.8; this normal's is 2.37.
    assert 2.2 < np.mean((kernel / kernel.std()) ** 4) < 2.55


def test_kernels_are_glorot_normal():
    tf_keras.utils.set_random_seed(1)
    width = 120
    encoder = item_lib.ItemEncoder(5, width, (Feature("category", 6, 1, 5),), feature_dims=[90], projection=True,
                                   content=np.zeros((5, 80), np.float32), content_hidden=100)
    hidden, output = encoder.content_encoder.layers
    for kernel, shape in ((encoder.projection.kernel, (90, width)), (hidden.kernel, (80, 100)),
                          (output.kernel, (100, width))):
        assert tuple(kernel.shape) == shape
        assert_glorot_normal(kernel)


def test_the_attention_mlp_is_glorot_normal_and_four_times_as_wide_as_the_model():
    schema = Schema(num_items=4, item_rows=5, features=(), content_width=0, id_type="int", has_timestamps=False,
                    num_users=1, total_clicks=9, split={}, settings={})
    for settings, hidden in ((dict(), 4 * 64), (dict(attention_hidden=40), 40)):
        user_encoder = build_model(Config.of(embedding_dim=64, attention_heads=24, **settings), schema).user_encoder
        first, _, second, _ = user_encoder.attention.weights
        assert (first.shape, second.shape) == ((64, hidden), (hidden, 24))
        if not settings:
            for kernel in (first, second, user_encoder.aggregation.matrix):
                assert_glorot_normal(kernel)
