"""The auxiliary loss of evolving interests: by pencil, by a loop, and in what a training step differentiates."""
import numpy as np
import pytest
import tensorflow as tf

from clrec_tf.config import Config
from clrec_tf.encoders.dien import OTHERS
from clrec_tf.encoders.dien import other_clicks
from clrec_tf.losses.auxiliary import next_click_loss
from clrec_tf.models.build import build_model
from clrec_tf.objectives.in_batch_negatives import InBatchNegatives
from tests import exported
from tests.test_published_encoders import clicks_of
from tests.test_published_encoders import encoder_of

SEED = tf.constant([3, 4], tf.int64)


def test_the_loss_by_pencil():
    """States tell e^0 : 1 from nothing: log 2 each. A logit of log 3 for the next: log 4/3; for the other: log 4."""
    three = float(np.log(3))
    states = tf.constant([[[0.0], [1.0], [7.0]], [[1.0], [9.0], [9.0]], [[1.0], [1.0], [1.0]]])
    items = tf.constant([[[9.0], [5.0], [three]], [[9.0], [three], [9.0]], [[9.0], [9.0], [9.0]]])
    others = tf.constant([[[9.0], [5.0], [0.0]], [[9.0], [three], [9.0]], [[9.0], [9.0], [9.0]]])
    mask = tf.constant([[True, True, True], [True, True, False], [True, False, False]])
    found = next_click_loss(states, items, others, mask)
    first = np.mean([2 * np.log(2), np.log(4 / 3) + np.log(2)])
    np.testing.assert_allclose(found, [first, np.log(4 / 3) + np.log(4), 0.0], rtol=1e-6)


def test_others_are_all_other_clicks_alike():
    mask = np.array([[True, True, False], [False, False, False], [True, True, True]])
    clicks, counts = np.flatnonzero(mask), np.zeros((9, 9))
    for step in range(3_000):
        drawn = other_clicks(tf.constant(mask), tf.constant([step, 0], tf.int64)).numpy().ravel()
        counts[clicks, drawn[clicks]] += 1
    others = np.ones((9, 9)) - np.eye(9)
    expected = 750.0 * others * mask.ravel() * mask.ravel()[:, None]
    assert np.abs(counts - expected).max() < 120 and not counts[expected == 0].any()  # 5 σ = 119
    for lonely in ([[False, False]], [[True, False]]):
        assert other_clicks(tf.constant(lonely), SEED).numpy().max() <= 1


def test_what_is_added_by_a_loop():
    encoder, clicks = encoder_of("dien", dien_auxiliary=.5), clicks_of([7, 4, 1, 0], noise=9.0, seed=SEED)
    users, found = encoder.with_auxiliary(clicks, training=True)
    np.testing.assert_array_equal(users, encoder(clicks))
    others = other_clicks(clicks.mask, SEED + tf.constant([OTHERS, 0], tf.int64)).numpy()
    scaled = clicks.items.numpy().reshape(-1, 6) * 6 ** .5
    states = encoder.extractor(clicks.vectors * 6 ** .5).numpy()
    sigmoid = lambda value: 1 / (1 + np.exp(-value))
    for user, length in enumerate([7, 4, 1, 0]):
        terms = [-np.log(sigmoid(states[user, t] @ scaled[7 * user + t + 1]))
                 - np.log(1 - sigmoid(states[user, t] @ scaled[others[user, t + 1]])) for t in range(length - 1)]
        np.testing.assert_allclose(found[user], .5 * np.mean(terms) if terms else 0.0, rtol=1e-4)
    assert encoder.with_auxiliary(clicks)[1] is None
    assert encoder.with_auxiliary(clicks._replace(seed=None), True)[1] is None
    assert encoder_of("dien", dien_auxiliary=0.0).with_auxiliary(clicks, True)[1] is None


@pytest.mark.parametrize("candidate_features", [True, False])
def test_each_row_s_share_is_in_the_loss_of_training_alone(candidate_features):
    made = [build_model(Config.of(embedding_dim=8, max_history=3, user_encoder="dien", dien_auxiliary=weight,
                                  candidate_features=candidate_features), exported.world("int").schema)
            for weight in (1.0, 0.0)]
    rows = tf.constant(exported.world("int").catalogue.item_rows[:8])
    batch = dict(history=tf.stack([rows[:3], rows[3:6]]), length=tf.constant([3, 2], tf.int64), target=rows[6:8],
                 weight=tf.constant([1.0, 3.0]), user_id=tf.constant([1, 2], tf.int64), seed=SEED)
    added = made[0].encode(batch, training=True).beside.numpy()
    assert added.shape == (2,) and (added > .1).all() and made[1].encode(batch, training=True).beside is None
    with_it, without = (float(InBatchNegatives(model, None, False).loss(batch)) for model in made)
    np.testing.assert_allclose(with_it - without, added @ [.25, .75], rtol=1e-4)
    assert made[0].encode(batch).beside is None
