"""Candidates encoded without features: the towers and the losses against plain NumPy loops that read both ways."""
import numpy as np
import pytest

from clrec_tf.config import Config
from clrec_tf.data.schema import Schema
from clrec_tf.encoders.base import NoSettings
from clrec_tf.encoders.base import Sizes
from clrec_tf.encoders.clicks import ClickEncoder
from clrec_tf.encoders.items import ItemEncoder
from clrec_tf.encoders.mean import MeanUserEncoder
from clrec_tf.models.build import build_model
from clrec_tf.models.clrec import CLRec
from clrec_tf.objectives.contrastive import build_variant
from clrec_tf.objectives.sampled_softmax import SampledSoftmax
from tests.loops import central_differences
from tests.loops import FEATURES
from tests.loops import l2
from tests.loops import local_variable
from tests.loops import LOG_Q
from tests.loops import Loops
from tests.loops import step
from tests.loops import Towers
from tests.loops import WIDE_ROWS
from tests.naive_queue import DIM
from tests.naive_queue import HISTORY
from tests.naive_queue import ITEMS
from tests.naive_queue import make_batch
from tests.naive_queue import random_batch
from tests.naive_queue import TEMPERATURE
from tests.naive_queue import tiny_model
from tests.test_sampled_variants import alias_sampler
from tests.test_sampled_variants import batch_with_padding
from tests.test_sampled_variants import NEGATIVES
from tests.test_sampled_variants import sampled_softmax
from tests.test_sampled_variants import twin_draws
import tensorflow as tf


def featured_model():
    return CLRec(ItemEncoder(ITEMS + 1, DIM, FEATURES, seed=3), ClickEncoder(DIM, HISTORY, "none", (), 0),
                 MeanUserEncoder(NoSettings(), Sizes(DIM)), "cosine", TEMPERATURE, candidate_features=False)


def wide(batch):
    return {**batch, **{name: tf.gather(WIDE_ROWS, batch[name][..., 0]) for name in ("history", "target")}}


@pytest.mark.parametrize("kind,balanced", [("in_batch", False), ("raw", False), ("cached", False), ("cached", True)])
def test_queues_of_candidates_without_features_equal_loops(kind, balanced):
    rng, model = np.random.default_rng(3), featured_model()
    variant = build_variant(kind, model, 10, False, local_variable, balanced=balanced)
    naive = Loops(kind, 10, np.zeros(ITEMS + 1), balanced=balanced)
    variables = [table.table for table in (model.item_encoder.ids, *model.item_encoder.feature_tables)]
    largest = np.zeros(3)
    for _ in range(3):
        batch = random_batch(rng, 4)
        loss, gradients = step(variant, wide(batch), variables)
        now = [variable.numpy().astype(float) for variable in variables]
        naive.push(Towers(now, True), batch)
        np.testing.assert_allclose(loss, naive.loss(Towers(now, True), batch), rtol=1e-5)
        wanted = naive.gradients(now, batch, True)
        for gradient, expected in zip(gradients, wanted):
            np.testing.assert_allclose(gradient, expected, atol=2e-5)
        largest = np.maximum(largest, [np.abs(expected).max() for expected in wanted])
    assert largest.min() > .01  # every table is trained, the features' by the histories


def test_sampled_softmax_over_candidates_without_features_equals_loops():
    model, batch = featured_model(), batch_with_padding()
    objective = SampledSoftmax(model, WIDE_ROWS, alias_sampler(), NEGATIVES,
                                                tf.constant(LOG_Q, tf.float32))
    variables = [table.table for table in (model.item_encoder.ids, *model.item_encoder.feature_tables)]
    now = [variable.numpy().astype(float) for variable in variables]
    naive = lambda *tables: sampled_softmax(Towers(tables, True), batch, twin_draws([NEGATIVES]))
    loss, gradients = step(objective, wide(batch), variables)
    np.testing.assert_allclose(loss, naive(*now), rtol=1e-5)
    for gradient, expected in zip(gradients, central_differences(naive, now)):
        np.testing.assert_allclose(gradient, expected, atol=2e-5)
        assert np.abs(expected).max() > .001


def test_each_table_is_looked_up_once():
    """Of histories and candidates together, so that no row travels twice."""
    model, batch = featured_model(), wide(make_batch([7, 9]))

    @tf.function
    def users(candidates):
        return model.encode(batch, tf.gather(WIDE_ROWS, candidates)).users

    reads = [op.type for op in users.get_concrete_function(tf.constant([7, 2])).graph.get_operations()]
    assert reads.count("ResourceGather") == 1 + len(FEATURES)


def test_the_query_tower_reads_features_all_the_same():
    """With attention, times and positions too: users equal those of a model with features, candidates are id rows."""
    schema = Schema(ITEMS, ITEMS + 1, FEATURES, 0, "int", True, 9, 9, {}, {})
    batch = wide(batch_with_padding())
    batch["time_gap"] = tf.constant(np.random.default_rng(0).integers(-1, 10**5, (5, HISTORY)))
    settings = dict(embedding_dim=8, max_history=HISTORY, attention_heads=2)
    plain, full = (build_model(Config.of(**settings, candidate_features=on), schema) for on in (False, True))
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
