"""What windows train is what is served, position by position; and the times that the Transformer reads."""
import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from clrec_tf.config import Config
from clrec_tf.data.evaluation_set import EvaluationSet
from clrec_tf.data.histories import gaps_to_next
from clrec_tf.encoders.base import Clicks
from clrec_tf.models.build import build_model
from clrec_tf.models.encode import Encoder
from clrec_tf.retrieval.bundle import load_bundle
from tests import exported


@pytest.fixture(scope="module", ids=" ".join, params=[
    ("sasrec", "string"), ("mean", "string"), pytest.param(("multi_att", "string"), marks=pytest.mark.long),
    pytest.param(("sasrec", "int"), marks=pytest.mark.long)])
def served(request, tmp_path_factory):
    """(kind, world, bundle) of an untrained model that --target_mode=all can train, exported."""
    encoder, kind = request.param
    world, more = exported.world(kind), dict(dropout=.5) if encoder == "sasrec" else dict(time_embedding="none")
    model = build_model(Config.of(embedding_dim=8, max_history=exported.HISTORY, user_encoder=encoder, **more),
                        world.schema)
    for number, weight in enumerate(model.user_encoder.weights):
        weight.assign_add(np.random.default_rng(number).normal(0, .2, weight.shape))
    world = dataclasses.replace(world, model=model)
    return kind, world, load_bundle(world.export(str(tmp_path_factory.mktemp("served"))))


def served_vector(kind, bundle, items, times, request):
    """The SavedModel's vector of a history of item numbers."""
    ids = [[exported.original_id(kind, int(item)) for item in items]]
    arguments = dict(history=tf.constant(ids, tf.string if kind == "string" else tf.int64), popularity=tf.zeros([1]))
    if bundle.tower.signatures["serving_default"].structured_input_signature[1].keys() > arguments.keys():
        arguments |= dict(timestamps=tf.constant([times], tf.int64), request_time=tf.constant([request], tf.int64))
    return bundle.tower.signatures["serving_default"](**arguments)["user_vectors"].numpy()[0, 0, :-1]


def test_a_window_trains_the_vectors_that_are_served(served):
    """At each position of a window stands what the exported model gives, asked with those clicks when the next came."""
    kind, world, bundle = served
    items = np.array([7, 9, 7, 60])
    times = exported.NOW - np.array([500_000, 30_000, 29_000, 900, 0])  # of the clicks, and of the last target
    rows = world.catalogue.item_rows[items - 1][:, :world.model.item_encoder.item_width]
    batch = dict(history=rows[None], length=[4], row=[0, 1, 2, 3], target=rows[[1, 2, 3, 0]],
                 time_gap=np.diff(times)[None], seed=[1, 2])
    trained = world.model.encode({name: tf.constant(part, tf.int64) for name, part in batch.items()}).users.numpy()
    for t in range(4):
        found = served_vector(kind, bundle, items[:t + 1], times[:t + 1], times[t + 1])
        np.testing.assert_allclose(found, trained[t], atol=1e-5)
    if world.model.uses_time:
        later = served_vector(kind, bundle, items, times[:-1], times[-1] + 100_000)
        assert np.abs(later - trained[3]).max() > 1e-3  # the time since the last click matters


def test_of_longer_histories_the_last_clicks_count(served):
    kind, world, bundle = served
    items, times = np.array([3, 1, 4, 1, 5, 9]), exported.NOW - np.array([10**6, 9**6, 8000, 500, 40, 3])
    last = slice(-exported.HISTORY, None)
    expected = served_vector(kind, bundle, items[last], times[last], exported.NOW)
    np.testing.assert_allclose(served_vector(kind, bundle, items, times, exported.NOW), expected, atol=1e-6)
    timed = dict(history_features=world.catalogue.item_rows[items - 1, 1:], history_times=times,
                 request_times=np.array([exported.NOW])) if kind == "string" else {}
    users = EvaluationSet(np.arange(1), items, np.array([0, 6]), np.ones(1, int), np.arange(2), **timed)
    live = Encoder(world.model, exported.HISTORY).user_vectors(users)[0]
    np.testing.assert_allclose(live, expected, atol=1e-5)
    assert not served_vector(kind, bundle, [], [], exported.NOW).any()  # no history


@pytest.mark.parametrize("encoder", ["sasrec", "mean", "multi_att", "svdpp"])
@pytest.mark.parametrize("settings", [{}, dict(candidate_features=False), dict(similarity="dot"), dict(max_history=1),
                                      dict(position="none"), dict(use_features=False)], ids=str)
@pytest.mark.parametrize("content", [False, True])
def test_windows_encode_what_single_examples_encode(encoder, settings, content):
    """Each target with its prefix, as --target_mode=sliding trains it: both towers, with hash buckets among the items."""
    world, rng = exported.world("string"), np.random.default_rng(4)
    schema = dataclasses.replace(world.schema, has_timestamps=False, content_width=3 * content)
    vectors = rng.normal(size=(schema.item_rows, 3)).astype(np.float32) if content else None
    settings = {**dict(embedding_dim=8, max_history=4, user_encoder=encoder), **settings}
    model = build_model(Config.of(**settings), schema, vectors)
    length = min(4, settings["max_history"])
    rows = np.concatenate([np.arange(schema.item_rows)[:, None], rng.integers(0, 7, (schema.item_rows, 3))], axis=1)
    clicks = rows[[[5, 62, 5, 61], [7, 7, 60, 0]]][:, :length, :model.item_encoder.item_width]
    counts, lengths = [min(4, length), min(3, length)], np.arange(length)
    mask = lengths < np.array(counts)[:, None]
    clicks[~mask] = 0
    targets = rows[rng.integers(1, schema.item_rows, sum(counts))][:, :model.item_encoder.item_width]
    batch = dict(history=clicks, length=counts, target=targets, row=np.flatnonzero(mask))
    single = np.concatenate([np.where((lengths <= t)[:, None], clicks[w], 0)[None] for w in (0, 1)
                             for t in range(counts[w])])
    one_by_one = dict(history=single, target=targets, length=np.concatenate([np.arange(n) + 1 for n in counts]))
    candidates = tf.constant(rows[[3, 62, 3]][:, :model.item_encoder.item_width])
    found, expected = (model.encode({name: tf.constant(part, tf.int64) for name, part in given.items()}, candidates)
                       for given in (batch, one_by_one))
    for name in ("users", "positives", "distinct", "counts", "queued"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), atol=1e-5, err_msg=name)


# ---- times


@pytest.mark.parametrize("gaps,length,expected", [
    ([90, 60, 10], 3, [30, 50, 10]),  # clicks at 0, 30, 80, request at 90
    ([90, 60, 10, -1, -1], 3, [30, 50, 10, -1, -1]), ([7], 1, [7]), ([0, 0], 2, [0, 0]),
    ([90, -1, 10], 3, [-1, -1, 10]),  # neither the unknown click's time is known, nor that until it
    ([-1, 60, -1], 3, [-1, -1, -1]), ([-1, -1], 2, [-1, -1]),
    ([10, 60, 20], 3, [0, 40, 20]),  # the second click came before the first: no time between them
    ([5, 5, 5, 5], 2, [0, 5, -1, -1]), ([3, 4], 0, [-1, -1])])  # padding holds anything
def test_time_to_the_next_click(gaps, length, expected):
    mask = tf.sequence_mask([length], len(gaps))
    np.testing.assert_array_equal(gaps_to_next(tf.constant([gaps], tf.int64), mask), [expected])


def test_only_the_transformer_reads_the_time_to_the_next_click():
    mask, gaps = tf.ones([1, 3], tf.bool), tf.constant([[9000, 700, 20]], tf.int64)
    for encoder, given in (("sasrec", [8300, 680, 20]), ("mean", [9000, 700, 20]), ("multi_att", [9000, 700, 20])):
        more = dict(dropout=0.0) if encoder == "sasrec" else {}
        model = build_model(Config.of(embedding_dim=8, max_history=4, user_encoder=encoder, time_embedding="minutes",
                                      **more), exported.world("string").schema)
        items = tf.constant(np.random.default_rng(0).normal(size=(1, 3, 8)), tf.float32)
        expected = model.click_encoder(items, mask, tf.constant([given], tf.int64))
        vectors = model.score_vectors(model.user_encoder(Clicks(expected, items, mask)))
        np.testing.assert_allclose(model.user_vectors(items, mask, gaps), vectors, atol=1e-6)
