"""Masked training of the bidirectional Transformer: no target is seen, later clicks are, and a step trains its own."""
import numpy as np
import pytest
import tensorflow as tf

from clrec_tf.config import Config
from clrec_tf.encoders.base import Clicks
from clrec_tf.encoders.base import Sizes
from clrec_tf.encoders.bert4rec import Bert4RecSettings
from clrec_tf.encoders.bert4rec import Bert4RecUserEncoder
from clrec_tf.models.build import build_model
from clrec_tf.models.step_targets import with_step_targets
from clrec_tf.objectives.in_batch_negatives import InBatchNegatives
from clrec_tf.training.optimizers import build_optimizer
from clrec_tf.training.runtime import LocalRuntime
from clrec_tf.training.step import make_train_call
from tests import exported
from tests.naive_windows import windows
from tests.test_published_encoders import bert4rec_states
from tests.test_published_encoders import clicks_of
from tests.test_published_encoders import encoder_of
from tests.test_published_encoders import LENGTH
from tests.test_published_encoders import SMALL

ASKED = np.zeros((2, LENGTH), bool)
ASKED[0, [0, 3, 6]] = ASKED[1, 1] = True  # after clicks 0, 3 and the last of seven; after 1 of four
SEED = tf.constant([3, 4], tf.int64)


def test_positions_are_those_of_the_clicks_with_what_is_asked_for_masked():
    encoder, clicks = encoder_of("bert4rec"), clicks_of([7, 4], noise=9.0)
    rows = clicks.items.numpy().astype(float)
    found = encoder.positions(clicks._replace(asked=tf.constant(ASKED))).numpy()
    for user, length, masked in ((0, 7, {1, 4}), (1, 4, {2})):
        expected = bert4rec_states(encoder, rows[user, :length], masked)
        np.testing.assert_allclose(found[user, :length], expected[1:], atol=2e-5)
    everything = encoder.positions(clicks).numpy()  # nothing said: all are asked for, and only the first click is seen
    np.testing.assert_allclose(everything[0], bert4rec_states(encoder, rows[0], set(range(1, 7)))[1:], atol=2e-5)


def test_a_masked_click_is_seen_nowhere_and_an_open_one_on_both_sides():
    """Neither its item nor its time nor its behaviour."""
    encoder = Bert4RecUserEncoder(Bert4RecSettings(**SMALL["bert4rec"]), Sizes(6, 7, boundaries=(10, 100), event_kinds=3))
    clicks = clicks_of([7, 4])
    base = clicks._replace(gaps=tf.fill([2, 7], tf.constant(5, tf.int64)), events=tf.ones([2, 7], tf.int64),
                           asked=tf.constant(ASKED))
    place = lambda click: tf.constant(np.arange(LENGTH) == click)[None] & [[True], [False]]

    def moved(click, **parts):
        changed = {name: tf.where(place(click)[..., None] if name == "items" else place(click), value,
                                  getattr(base, name)) for name, value in parts.items()}
        return np.abs(encoder.positions(base._replace(**changed)) - encoder.positions(base)).max(axis=2)

    five = tf.constant(50, tf.int64)
    for part in (dict(items=2.0), dict(gaps=five), dict(events=tf.constant(2, tf.int64))):
        assert not moved(4, **part).any() and not moved(1, **part).any()
        assert (moved(5, **part)[0] > 1e-4).all() and not moved(5, **part)[1].any()  # before it and behind it


def test_a_step_masks_the_last_target_and_a_share_by_its_seed():
    is_last = tf.constant(np.arange(6_000) % 10 == 9)
    encoder = Bert4RecUserEncoder(Bert4RecSettings(mask_share=.3), Sizes(6))
    first, again, other = (encoder.step_targets(is_last, SEED + i).numpy() for i in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert first[is_last].all() and other[is_last].all()
    first, other = first[~is_last.numpy()], other[~is_last.numpy()]
    assert abs(first.mean() - .3) < .03 and abs((first & other).mean() - .09) < .02
    for share, expected in ((0.0, 0), (1.0, 1)):
        chosen = Bert4RecUserEncoder(Bert4RecSettings(mask_share=share), Sizes(6)).step_targets(is_last, SEED)
        assert chosen.numpy()[~is_last.numpy()].mean() == expected and chosen.numpy()[is_last].all()


@pytest.fixture(scope="module", name="model")
def fixture_model():
    config = Config.of(embedding_dim=8, max_history=5, user_encoder="bert4rec", mask_share=.4, use_features=False,
                       dropout=0.0)
    return build_model(config, exported.world("int").schema)


def batch_of(seed=1):
    return windows([[1, 2, 3, 4, 5, 6], [7, 8, 9], [1, 3]], [1, 2, 3], [1.0, 2.0, 0.5], seed)


def test_what_is_not_masked_is_no_target_of_the_step(model):
    batch = dict(batch_of(), query=tf.range(8)[:, None])
    found = with_step_targets(batch, model)
    kept = model.user_encoder.step_targets(tf.constant([False] * 4 + [True, False, True, True]), batch["seed"]).numpy()
    assert 3 < kept.sum() < 8
    for name, part in batch.items():
        expected = part if name in ("history", "length", "seed") else part.numpy()[kept]
        np.testing.assert_array_equal(found[name], expected)
    single = {name: part for name, part in batch.items() if name != "row"}
    assert with_step_targets(single, model) is single
    other = build_model(Config.of(embedding_dim=8, user_encoder="sasrec"), exported.world("int").schema)
    assert with_step_targets(batch, other) is batch


def test_no_user_of_the_step_knows_its_target(model):
    """In whatever place it stands among the window's clicks."""
    batch = with_step_targets(batch_of(), model)
    users, places = model.encode(batch, training=True).users.numpy(), batch["row"].numpy() + 1

    def moved(place):
        history = batch["history"].numpy().ravel()
        history[place] = 9
        return np.abs(model.encode(dict(batch, history=history.reshape(3, 5, 1)), training=True).users - users).max(axis=1)

    inside = [place for place, item in zip(places, batch["target"].numpy()[:, 0])
              if place < 15 and batch["history"].numpy().ravel()[place] == item]
    assert inside and not any(moved(place).any() for place in inside)
    still_open = [0, *set(range(1, 5)) - set(places)]  # the first click is no target
    assert len(still_open) > 1 and all(((moved(place) > 1e-3) == (places <= 5)).all() for place in still_open)


def test_a_training_step_counts_and_learns_from_masked_targets_alone(model):
    optimizer = build_optimizer(Config.of(learning_rate=0.0).train, 10)
    optimizer.build(model.trainable_variables)
    call = make_train_call(model, InBatchNegatives(model, None, False), optimizer, 0.0, LocalRuntime())
    for seed in (1, 2):
        batches = iter(tf.data.Dataset.from_tensors(batch_of(seed)))
        expected = with_step_targets(batch_of(seed), model)
        found = call(batches, tf.constant(1, tf.int64))
        assert int(found["examples"]) == len(expected["row"]) < 8
        loss = InBatchNegatives(model, None, False).loss(expected)
        np.testing.assert_allclose(found["loss"], loss, rtol=1e-5)


def test_the_other_modes_ask_for_the_last_alone(model):
    """A single target's user is `call`'s, in training too, and the mask has the place after the last click."""
    batch = dict(history=tf.constant([[[1], [2], [3], [4], [5]], [[6], [7], [0], [0], [0]]], tf.int64),
                 length=tf.constant([5, 2], tf.int64), target=tf.constant([[8], [9]], tf.int64), seed=SEED)
    users = model.encode(batch, training=True).users
    full = dict(batch, row=tf.constant([4, 6], tf.int64))
    np.testing.assert_allclose(users, model.encode(full, training=True).users, atol=1e-6)
    table = model.user_encoder.click_encoder.position_table.table
    before = table.numpy()
    table.assign_add(np.eye(6, 8) * (np.arange(6) == 5)[:, None])
    moved = np.abs(model.encode(batch, training=True).users - users).max(axis=1)
    table.assign(before)
    assert table.shape == (6, 8) and moved[0] > .01 and moved[1] == 0
    assert Clicks(None, None, None).asked is None and model.click_encoder is None
