"""MIND, the query tower of several interests: routing by loops, what is trained, and what is searched and served."""
import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from clrec_tf.config import Config
from clrec_tf.data.query_features import QueryFeature
from clrec_tf.encoders import mind
from clrec_tf.encoders.base import Sizes
from clrec_tf.encoders.base import UserVectors
from clrec_tf.encoders.query import QueryEncoder
from clrec_tf.errors import UserError
from clrec_tf.evaluate import evaluate
from clrec_tf.losses.contrastive import MASKED
from clrec_tf.losses.contrastive import pairwise_logits
from clrec_tf.models.build import build_model
from clrec_tf.models.encode import Encoder
from clrec_tf.retrieval.bundle import load_bundle
from clrec_tf.retrieval.retriever import Retriever
from clrec_tf.retrieval.search_options import SearchOptions
from clrec_tf.retrieval.user_requests import UserRequest
from tests import exported
from tests import small_run
from tests.test_published_encoders import clicks_of
from tests.test_published_encoders import DIM
from tests.test_published_encoders import LENGTH
from tests.test_published_encoders import relu
from tests.test_published_encoders import softmax
from tests.test_published_encoders import weights_of

LENGTHS = [10, 5, 1, 3, 0]
K = 3


def encoder_of(**settings):
    """One whose biases are random too."""
    encoder = mind.MindUserEncoder(mind.MindSettings(**{**dict(interests=K), **settings}), Sizes(DIM, seed=3))
    for number, weight in enumerate(encoder.trainable_weights):
        weight.assign_add(np.random.default_rng(number).normal(0, .3, weight.shape))
    return encoder


def clicks(**options):
    return clicks_of(LENGTHS, width=LENGTH + 3, **options)


def squashed(vector):
    length = np.linalg.norm(vector)
    return length ** 2 / (1 + length ** 2) * vector / length


def by_loops(encoder, rows, iterations):
    """The vectors of one user's clicks, and how many clicks are routed to each."""
    used = max(1, min(K, int(np.floor(np.log2(len(rows))))))
    mapped = [row * DIM ** .5 @ encoder.bilinear.numpy() for row in rows]
    logits = encoder.initial_logits.numpy()[:len(rows), :used].astype(float)
    for _ in range(iterations):
        shares = [softmax(row) for row in logits]
        capsules = [squashed(sum(share[k] * row for share, row in zip(shares, mapped))) for k in range(used)]
        for t, row in enumerate(mapped):
            logits[t] += [row @ capsule for capsule in capsules]
    kernel, bias, last_kernel, last_bias = weights_of(encoder.layers)
    return ([relu(DIM ** .5 * capsule @ kernel + bias) @ last_kernel + last_bias for capsule in capsules],
            np.sum(shares, axis=0))


@pytest.mark.parametrize("iterations", [1, 3])
def test_routing_by_a_loop_over_clicks(iterations):
    encoder, given = encoder_of(routing_iterations=iterations), clicks(noise=9.0)
    found = encoder(given)
    for user, length in enumerate(LENGTHS[:4]):
        expected, routed = by_loops(encoder, given.vectors.numpy()[user, :length].astype(float), iterations)
        np.testing.assert_allclose(found.vectors[user, :len(expected)], expected, atol=2e-5)
        np.testing.assert_allclose(tf.nn.softmax(found.logits[user])[:len(routed)], routed / length, atol=1e-5)
        np.testing.assert_array_equal(found.in_use[user], np.arange(K) < len(routed))
    assert not found.vectors[4].numpy().any() and np.isfinite(found.logits).all()
    assert np.ptp(found.vectors[0, :, 0]) > .01  # capsules are different


def test_interests_grow_with_the_logarithm_of_the_clicks():
    counts = tf.constant([0, 1, 3, 4, 7, 8, 15, 16, 999])
    assert mind.interests_in_use(counts, 4).numpy().sum(axis=1).tolist() == [1, 1, 1, 2, 2, 3, 3, 4, 4]
    assert mind.interests_in_use(counts, 1).numpy().sum(axis=1).tolist() == [1] * 9


def test_squash_keeps_the_direction_and_bounds_the_length():
    z = tf.constant([[3.0, 4.0], [0.6, 0.8], [0.0, 0.0]])  # lengths 5, 1, 0
    np.testing.assert_allclose(mind.squash(z), [[25 / 26 * .6, 25 / 26 * .8], [.3, .4], [0, 0]], rtol=1e-6)
    with tf.GradientTape() as tape:
        tape.watch(z)
        total = tf.reduce_sum(mind.squash(z))
    assert np.isfinite(tape.gradient(total, z)).all()


def test_shares_are_constants_of_the_gradient():
    rng, in_use, mask = np.random.default_rng(0), tf.constant([[True, True, False]]), tf.sequence_mask([4], 5)
    mapped, initial = tf.constant(rng.normal(size=(1, 5, DIM))), tf.constant(rng.normal(size=(5, K)))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(mapped)
        capsules, shares = mind.route(mapped, initial, in_use, mask, 3)
        given = mind.squash(tf.matmul(tf.constant(shares.numpy()), mapped, transpose_a=True))
        totals = [tf.reduce_sum(each[:, 0]) for each in (capsules, given)]
    of_route, of_constants = (tape.gradient(total, mapped).numpy() for total in totals)
    np.testing.assert_allclose(of_route, of_constants, atol=1e-12)
    assert np.abs(of_route[0, :4]).max() > .01 and not of_route[0, 4].any() and not capsules[0, 2].numpy().any()


def test_padding_has_no_influence_and_all_but_the_initial_logits_learns():
    encoder, plain = encoder_of(), clicks()
    expected = encoder(plain)
    given = clicks(noise=40.0)
    with tf.GradientTape() as tape:
        tape.watch(given.vectors)
        found = encoder(given)
        total = tf.reduce_sum(found.vectors[:, :, :3])
    np.testing.assert_allclose(found.vectors, expected.vectors, atol=1e-6)
    np.testing.assert_allclose(found.logits, expected.logits, atol=1e-5)
    of_clicks, *of_weights = tape.gradient(total, [given.vectors, *encoder.trainable_weights])
    assert not of_clicks.numpy()[~given.mask.numpy()].any() and of_clicks.numpy()[0, -1].any()
    assert len(of_weights) == 5 and all(np.isfinite(part).all() and np.any(part) for part in of_weights)
    assert [tuple(weight.shape) for weight in encoder.non_trainable_weights] == [(50, K)]


def test_initial_logits_are_of_the_seed_and_others_for_each_place_and_capsule():
    made = [mind.MindUserEncoder(mind.MindSettings(), Sizes(DIM, seed=seed)).get_weights() for seed in (4, 4, 5)]
    for one, again, other in zip(*made):
        np.testing.assert_array_equal(one, again)
        assert one.ndim == 1 or np.abs(one - other).max() > .01
    logits = made[0][-1]
    assert logits.shape == (50, 4) and len(np.unique(logits)) == logits.size and .8 < logits.std() < 1.2


# ---- what is trained, and what is searched


def test_a_target_mixes_the_interests_by_how_near_they_are():
    """Of (1,0) and (0,1) for a target at 3 : 4, ρ = .5; the third is not the user's."""
    users = UserVectors(tf.constant([[[1.0, 0.0], [0.0, 1.0], [5.0, 5.0]]]), tf.constant([[0.0, -1.0, MASKED]]))
    for sharpness, shares in ((0.0, [.5, .5]), (1.0, softmax([1.2, 1.6])), (1e6, [0, 1])):
        encoder = mind.MindUserEncoder(
            mind.MindSettings(interests=K, interest_reading="target", label_attention=sharpness), Sizes(2, temperature=.5))
        np.testing.assert_allclose(encoder.for_targets(users, tf.constant([[.6, .8]]))[0], shares, rtol=1e-5)


def test_heaviest_first_and_what_a_user_does_not_have_finds_nothing_more():
    users = UserVectors(tf.constant([[[1.0], [2.0], [3.0]]]), tf.math.log([[0.25, 0.75, 1.0]]) + [[0, 0, MASKED]])
    ordered, numbers = users.heaviest_first()
    vectors, weights = ordered.vectors, tf.nn.softmax(ordered.logits)
    assert vectors.numpy().ravel().tolist() == [2, 1, 2] and numbers.numpy().tolist() == [[1, 0, 2]]
    np.testing.assert_allclose(weights, [[.75, .25, 0]], rtol=1e-6)


def small(**settings):
    """The world of exported bundles with an untrained model of two interests, the most that 4 clicks have."""
    world = exported.world("string")
    config = Config.of(embedding_dim=8, max_history=exported.HISTORY, user_encoder="mind", interests=2, **settings)
    return dataclasses.replace(world, model=build_model(config, world.schema))


@pytest.mark.parametrize("candidate_features", [True, False])
@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_the_trained_vector_is_that_of_the_target(candidate_features, similarity):
    model = small(candidate_features=candidate_features, similarity=similarity, interest_reading="target",
                  label_attention=1.0).model
    rows = tf.constant(exported.world("string").catalogue.item_rows[:12])
    batch = dict(history=tf.reshape(rows[:8], [2, 4, -1]), length=tf.constant([4, 2], tf.int64), target=rows[8:10])
    encoded = model.encode(batch, rows[10:])
    mask = tf.sequence_mask([4, 2], 4)
    histories = tf.reshape(model.history_vectors(rows[:8]), [2, 4, 8]) * tf.cast(mask, tf.float32)[:, :, None]
    vectors, _, numbers = model.user_intents(histories, mask)
    assert vectors.shape == (2, 2, 8) and encoded.users.shape == (2, 8)
    np.testing.assert_allclose(encoded.positives, model.score_vectors(model.item_vectors(rows[8:10])), atol=1e-6)
    shares = tf.nn.softmax(tf.linalg.matvec(vectors[:1], encoded.positives[:1] / .07))[0].numpy()
    mixed = shares @ vectors[0].numpy()
    mixed = mixed / np.linalg.norm(mixed) if similarity == "cosine" else mixed
    np.testing.assert_allclose(encoded.users[0], mixed, atol=1e-5)
    np.testing.assert_allclose(encoded.users[1], vectors[1, 0], atol=1e-5)  # two clicks, one interest
    np.testing.assert_allclose(vectors[1, 0], vectors[1, 1])
    assert sorted(numbers[0].numpy().tolist()) == [0, 1] and np.abs(vectors[0, 0] - vectors[0, 1]).max() > .01


def test_candidates_read_the_vectors_that_are_served():
    model, rows = small().model, tf.constant(exported.world("string").catalogue.item_rows[:10])
    batch = dict(history=tf.reshape(rows[:8], [2, 4, -1]), length=tf.constant([4, 2], tf.int64), target=rows[8:])
    mask = tf.sequence_mask([4, 2], 4)
    histories = tf.reshape(model.history_vectors(rows[:8]), [2, 4, 8]) * tf.cast(mask, tf.float32)[:, :, None]
    encoded = model.encode(batch)
    np.testing.assert_allclose(encoded.users, model.user_intents(histories, mask)[0], atol=1e-5)
    products = np.einsum("bkd,nd->bkn", encoded.users, encoded.positives) / .07
    shares = np.exp(products) / np.exp(products).sum(axis=1, keepdims=True)
    read = (shares * products).sum(axis=1)
    np.testing.assert_allclose(pairwise_logits(encoded.users, encoded.positives, .07), read, atol=1e-4)


def test_what_is_known_of_a_user_enters_each_vector():
    """And does so as for a single vector."""
    encoder = QueryEncoder((QueryFeature("country", "context", "category", 4, 1),), DIM, seed=0)
    vectors, query = tf.random.stateless_normal([3, K, DIM], [0, 1]), tf.constant([[1], [3], [0]], tf.int64)
    together = encoder(vectors, query)
    for number in range(K):
        np.testing.assert_allclose(together[:, number], encoder(vectors[:, number], query), atol=1e-6)
    assert np.abs(encoder(vectors, 0 * query)[0] - together[0]).max(axis=1).min() > .01


def test_live_saved_and_served_answers_agree(tmp_path):
    """Of users with two interests, with one and without a click; the list, exact of the tower and by ScaNN of the
    bundle, is that of the larger of both products."""
    world, histories = small(), [[7, 2, 9, 30], [12], []]
    bundle, model = load_bundle(world.export(tmp_path, index="scann", target_recall=1.0)), world.model
    assert {"intents": 2, "served_intents": 2, "intent_coordinates": 0}.items() <= bundle.manifest.items()
    mask = tf.sequence_mask([4, 1, 0], 4)
    rows = world.catalogue.item_rows[np.array([history + [1] * (4 - len(history)) for history in histories]) - 1]
    items = tf.reshape(model.history_vectors(tf.constant(rows.reshape(12, -1))), [3, 4, -1])
    live, weights, _ = model.user_intents(items, mask, tf.where(mask, tf.constant(300, tf.int64), -1))
    scores = np.max(live.numpy() @ model.compared_items(world.catalogue.item_rows).numpy().T, axis=1)

    ids = [[exported.original_id("string", item) for item in history] for history in histories]
    padded = np.array([history + [""] * (4 - len(history)) for history in ids], object)
    inputs = dict(history=padded, timestamps=np.full((3, 4), exported.NOW - 300), request_time=np.full(3, exported.NOW))
    found = bundle.user_intents(**inputs)
    np.testing.assert_allclose(found.vectors[:2, :, :-1], live[:2], atol=1e-5)
    np.testing.assert_allclose(found.weights, [*weights.numpy()[:2], [.5, .5]], atol=1e-5)
    assert not found.vectors[2].any() and weights.numpy()[1].tolist() == [1, 0]
    assert np.abs(found.vectors[0, 0] - found.vectors[0, 1]).max() > .01

    best = [[exported.original_id("string", item + 1) for item in np.argsort(-row)[:5]] for row in scores]
    signature = bundle.tower.signatures["retrieve"](
        k=tf.fill([3], 5), exclude=tf.constant([[""]] * 3), intents=tf.fill([3], 2), popularity=tf.zeros([3]),
        **{name: tf.constant(value) for name, value in inputs.items()})
    requests = [UserRequest(None, history, [exported.NOW - 300] * len(history), exported.NOW) for history in ids]
    results, _ = Retriever(bundle, SearchOptions(k=5, popularity=0.0))(requests)
    for user in range(2):
        assert [name.decode() for name in signature["ids"].numpy()[user]] == results[user].ids == best[user]
        np.testing.assert_allclose(signature["scores"][user], np.sort(scores[user])[:-6:-1], atol=1e-5)
    assert results[0].intents is not None and len(set(results[0].intents)) == 2
    encoder, users = Encoder(model, exported.HISTORY), world.users.take(np.arange(20))
    np.testing.assert_array_equal(encoder.searched(users, 1), encoder.searched(users)[:, 0])
    assert encoder.searched(users).shape == (20, 2, 8)


@pytest.mark.parametrize("settings,message", [
    (dict(interests=0), "--interests=0: must be ≥ 1"),
    (dict(label_attention=-1.0), "--label_attention=-1.0: must be ≥ 0"),
    (dict(label_attention=2.0), "--label_attention=2.0 is read with --interest_reading=target, not with candidates"),
    (dict(target_mode="all"), "--target_mode=all needs a user vector at every position, which --user_encoder=mind")])
def test_settings_are_refused(settings, message):
    with pytest.raises(UserError, match=message):
        Config.of(user_encoder="mind", **settings)


@pytest.mark.slow
def test_a_planted_successor_is_learned(tmp_path):
    """Of 30 items, of which one follows in nine of ten cases; beside most-popular and the untrained model."""
    data_dir = small_run.prepared(tmp_path)
    config = small_run.config(data_dir, tmp_path / "run", model=dict(user_encoder="mind", loss="full_softmax"),
                              epochs=12, steps_per_call=28, log_every_steps=1000, checkpoint_every_steps=1000)
    assert small_run.run(config) == 0
    settings = Config.of(data_dir=data_dir, workdir=str(tmp_path / "run"), candidate_sets=("full",), ks=("3",),
                         eval_checkpoint="latest", untrained=True)
    found = evaluate(settings)
    references = [found["most_popular/hr@3/full"], found["untrained/hr@3/full"]]
    assert found["hr@3/full"] > 2 * max(references) and found["intents_searched"] == 4
    alone = evaluate(settings.but(eval_intents=1, untrained=False))
    assert alone["intents_searched"] == 1 and alone["hr@3/full"] != found["hr@3/full"]
    with pytest.raises(UserError, match="--eval_intents=5: the model has 4 vectors per user .*--interests.*at most 4"):
        evaluate(settings.but(eval_intents=5))
