"""Training on self-selected ratings, evaluation under randomised exposure: files, examples, metrics, planted taste."""
import dataclasses
import math
import re

import numpy as np
import pytest

from clrec_tf import config as config_lib
from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.lab.randomised import compared_losses
from clrec_tf.lab.randomised.comparison import compare
from clrec_tf.lab.randomised.comparison import EvaluatedPairs
from clrec_tf.lab.randomised import rating_training
from clrec_tf.lab.randomised.ratings import read_ratings
from clrec_tf.lab.randomised import user_metrics
import tensorflow as tf

# Three users, four items; clicks from 4 on: user 0 has items 1, 2, 4 (ids from 1), user 1 item 3, user 2 items 1, 4.
SELECTED = "5 4 0 4\n0 1 5 0\n4 0 2 5\n"
RANDOM = "0 4 5 0\n5 0 1 0\n0 3 0 4\n"  # pairs (0,1) and (2,3) are in both parts, and so is none of user 1 but (1,2)
FLAGS = ("selected_ratings", "random_ratings", "propensity_matrix", "item_vectors")


def settings(folder, selected=SELECTED, random=RANDOM, form="auto", extension="ascii", **others):
    """Settings whose files hold the given texts."""
    paths = {}
    for name, text in (("selected_ratings", selected), ("random_ratings", random), *others.items()):
        matrix = name not in FLAGS[:2]
        path = folder / f"{name}.{'ascii' if matrix else extension}"
        path.write_text(text, encoding="utf-8")
        paths[name] = str(path)
    return config_lib.RandomisedConfig(ratings_form=form, **paths)


def listed(part):
    """{(user, item, rating)}."""
    return set(zip(part.users.tolist(), part.items.tolist(), part.ratings.tolist()))


def test_matrices_are_read_and_repeated_pairs_dropped_from_the_random_part(tmp_path):
    data = read_ratings(settings(tmp_path))
    assert (data.num_users, data.num_items, data.dropped) == (3, 4, 3)
    assert listed(data.selected) == {(0, 0, 5), (0, 1, 4), (0, 3, 4), (1, 1, 1), (1, 2, 5), (2, 0, 4), (2, 2, 2),
                                     (2, 3, 5)}
    assert listed(data.random) == {(0, 2, 5), (1, 0, 5), (2, 1, 3)}


@pytest.mark.parametrize("mark, extension, header", [
    (",", "csv", "user,item,rating\n"), ("\t", "tsv", ""), (";", "csv", "")])
def test_triples_of_any_ids_are_read(tmp_path, mark, extension, header):
    lines = lambda *rows: header.replace(",", mark) + "".join(mark.join(map(str, row)) + "\n" for row in rows)
    data = read_ratings(settings(tmp_path, lines(("bo", "x9", 5), ("al", "x1", 2.5)),
                                 lines(("al", "x9", 4), ("bo", "x9", 5)), extension=extension))
    # al, bo are users 0, 1 and x1, x9 items 0, 1.
    assert listed(data.selected) == {(1, 1, 5), (0, 0, 2.5)}
    assert listed(data.random) == {(0, 1, 4)} and data.dropped == 1


def test_ids_of_triples_are_rows_of_the_matrices_beside_them(tmp_path):
    propensities = "\n".join(" ".join(f"0.{user}{item + 1:02d}" for item in range(11)) for user in range(3))
    vectors = "\n".join(f"{item} 1" for item in range(11))
    data = read_ratings(settings(tmp_path, "0,10,5\n2,0,4\n", "2,2,1\n", extension="csv",
                                 propensity_matrix=propensities, item_vectors=vectors))
    np.testing.assert_array_equal(data.vectors, [[0, 1], [2, 1], [10, 1]])  # as numbers: as text 10 stands before 2
    np.testing.assert_allclose(data.propensities, [[.001, .003, .011], [.201, .203, .211]])
    assert listed(data.selected) == {(0, 2, 5), (1, 0, 4)}


@pytest.mark.parametrize("flag", FLAGS)
@pytest.mark.parametrize("text", ["1 2\n3\n", "1 a\n2 3\n", "1 nan\n2 3\n", "1 inf\n2 3\n", "", "\n", "1 2 3\n4 5 6\n"],
                         ids=["ragged", "letters", "nan", "inf", "empty", "blank", "shape"])
def test_malformed_matrices_are_errors_that_name_the_flag(tmp_path, flag, text):
    texts = dict(selected_ratings="5 4\n0 5\n", random_ratings="0 0\n4 0\n", propensity_matrix=".1 .1\n.2 .2\n",
                 item_vectors="1 0\n0 1\n")
    if (flag, text) == ("item_vectors", "1 2 3\n4 5 6\n"):
        text += "7 8 9\n"  # vectors may have any width, but there is one per item
    given = settings(tmp_path, texts.pop("selected_ratings"), texts.pop("random_ratings"), **texts)
    read_ratings(given)
    with open(getattr(given, flag), "w", encoding="utf-8") as file:
        file.write(text)
    with pytest.raises(DataError, match=f"--{flag}"):
        read_ratings(given)


@pytest.mark.parametrize("text", ["1,2\n", "1,2,x\n", "1,2,nan\n", "1,2,3,4\n", "", "1 2 3\n", "1,2,5\n1,2,4\n"],
                         ids=["short", "letters", "nan", "long", "empty", "spaces", "twice"])
@pytest.mark.parametrize("flag", FLAGS[:2])
def test_malformed_triples_are_errors_that_name_the_flag(tmp_path, flag, text):
    texts = {"selected": "3,2,5\n4,2,4\n", "random": "3,1,4\n", flag.removesuffix("_ratings"): text}
    with pytest.raises(DataError, match=f"--{flag}"):
        read_ratings(settings(tmp_path, **texts, extension="csv"))


@pytest.mark.parametrize("others, error", [
    (dict(selected="1 -2 3 4\n" * 3), "--selected_ratings.*row 1, column 2 is -2"),
    (dict(propensity_matrix="0 1 1 1\n1 1 1 1\n1 1 1 1\n"), "--propensity_matrix.*> 0 for every pair"),
    (dict(propensity_matrix="1 1 -1 1\n1 1 1 1\n1 1 1 1\n"), "--propensity_matrix.*≥ 0"),
    (dict(random=SELECTED), "--random_ratings holds no rating that --selected_ratings does not hold"),
    (dict(selected="0 0 0 0\n" * 3), "--selected_ratings holds no rating"),
    (dict(selected="a,b,5\n", random="c,b,4\n", form="triples", item_vectors="1 2\n"), "user 'a' is no row"),
    (dict(selected="0,1,5\n", random="1,0,4\n", form="triples", item_vectors="1 2\n"), "--item_vectors has 1 items"),
])
def test_parts_that_do_not_fit_are_errors(tmp_path, others, error):
    with pytest.raises(DataError, match=error):
        read_ratings(settings(tmp_path, **others))


def test_flags_that_are_missing_are_named(tmp_path):
    given = settings(tmp_path)
    for flag in FLAGS[:2]:
        with pytest.raises(UserError, match=f"--{flag} is not set"):
            read_ratings(dataclasses.replace(given, **{flag: ""}))
        with pytest.raises(DataError, match=f"--{flag}.*no such file|--{flag}.*No such file"):
            read_ratings(dataclasses.replace(given, **{flag: str(tmp_path / "none")}))


def test_examples_are_each_click_after_the_users_other_clicks(tmp_path):
    clicks = rating_training.clicks_of(read_ratings(settings(tmp_path)), 4.0)
    assert list(zip(clicks.users, clicks.items)) == [(0, 1), (0, 2), (0, 4), (1, 3), (2, 1), (2, 4)]
    examples = rating_training.make_examples(clicks, clicks.longest())
    # User 1 has one click and gives no example.
    np.testing.assert_array_equal(examples["user_id"], [0, 0, 0, 2, 2])
    np.testing.assert_array_equal(examples["target"][:, 0], [1, 2, 4, 1, 4])
    np.testing.assert_array_equal(examples["history"][:, :, 0], [[2, 4, 0], [1, 4, 0], [1, 2, 0], [4, 0, 0], [1, 0, 0]])
    np.testing.assert_array_equal(examples["length"], [2, 2, 2, 1, 1])
    ids, lengths = clicks.histories(4, 3)
    np.testing.assert_array_equal(ids, [[1, 2, 4], [3, 0, 0], [1, 4, 0], [0, 0, 0]])
    np.testing.assert_array_equal(lengths, [3, 1, 2, 0])


def test_a_user_of_one_click_alone_is_an_error(tmp_path):
    clicks = rating_training.clicks_of(read_ratings(settings(tmp_path)), 4.0)
    with pytest.raises(DataError, match="--selected_ratings.*two clicks.*--click_rating"):
        rating_training.make_examples(clicks.select(clicks.users == 1), 1)


def test_each_example_comes_once_an_epoch_and_the_last_batch_is_filled_with_weight_0(tmp_path):
    clicks = rating_training.clicks_of(read_ratings(settings(tmp_path)), 4.0)
    examples = rating_training.make_examples(clicks, clicks.longest())
    seen = list(rating_training.batches(examples, 2, 2, seed=3))
    assert len(seen) == 6 and all(batch["history"].shape == (2, 3, 1) for batch in seen)
    orders = []
    for epoch in (seen[:3], seen[3:]):
        joined = {name: np.concatenate([batch[name] for batch in epoch]) for name in examples}
        assert joined["weight"].tolist() == [1] * 5 + [0] and joined["target"][5, 0] == joined["length"][5] == 0
        pairs = list(zip(joined["user_id"][:5].tolist(), joined["target"][:5, 0].tolist()))
        assert sorted(pairs) == [(0, 1), (0, 2), (0, 4), (2, 1), (2, 4)]
        orders.append(pairs)
    again = [tuple(batch["target"].numpy().ravel()) for batch in rating_training.batches(examples, 2, 2, seed=3)]
    assert again == [tuple(batch["target"].numpy().ravel()) for batch in seen] and orders[0] != orders[1]


def test_held_out_clicks_leave_two(tmp_path):
    clicks = rating_training.clicks_of(read_ratings(settings(tmp_path)), 4.0)
    drawn = set()
    for seed in range(20):
        kept, held = rating_training.hold_out(clicks, seed)
        assert held.users.tolist() == [0] and len(kept.users) == 5  # the other users have fewer than three
        assert sorted(kept.items[kept.users == 0].tolist() + held.items.tolist()) == [1, 2, 4]
        drawn |= set(held.items.tolist())
    assert drawn == {1, 2, 4}


def test_reciprocal_rank_of_held_out_clicks_leaves_the_history_out():
    class Trained:
        """One user along the first axis; scores of items 1..4: 1, −.5, .9, −.5."""
        def vectors(self):
            return np.array([[1., 0.]]), np.array([[9., 0], [1, 0], [-.5, 0], [.9, 0], [-.5, 1]])

    kept = rating_training.SelectedClicks(np.array([0, 0]), np.array([1, 3]))
    held = rating_training.SelectedClicks(np.array([0]), np.array([2]))
    # Left are items 2 and 4, which tie: (1 + 1/2)/2.
    assert rating_training.mean_reciprocal_rank(Trained(), kept, held) == pytest.approx(0.75)


def test_propensities_become_chances_of_each_users_items():
    found = compared_losses.chances(np.array([[.1, .3, .0], [.2, .2, .4], [.0, .0, .0]]))
    np.testing.assert_allclose(found, [[0, .25, .75, 0], [0, .25, .25, .5], [0, 0, 0, 0]])


def exposures():
    """Targets 1, 2, 2 of users 0, 1, 1, under q̂ ½, ½, ¼ for user 0 and ⅛, ⅛, ¾ for user 1 of three items."""
    return compared_losses.Exposures(np.array([1, 2, 2]), np.array([0, 1, 1]), np.array([1, 1, 1, 2, 3]), 3,
                                       np.array([[0, .5, .25, .25], [0, .125, .125, .75]], np.float32))


def test_weights_are_of_the_examples_own_user_and_clipped_relative_to_uniform():
    config = config_lib.Config().but(ipw_cap=0.0)
    # 1/q̂ = 2, 8, 8: (18)²/(4 + 64 + 64)/3.
    assert compared_losses.weight_report(config, exposures())["ipw"] == pytest.approx(
        dict(effective_share=324 / 132 / 3, clipped_share=0))
    config = config_lib.Config().but(ipw_cap=1.0)  # 1/q̂ ≤ 3: weights 2, 3, 3
    assert compared_losses.weight_report(config, exposures())["ipw"] == pytest.approx(
        dict(effective_share=64 / 22 / 3, clipped_share=2 / 3))
    # Popularity of all rated pairs, with one added to each item: 4/8, 2/8, 2/8; 1/q̂ = 2, 4, 4 of which 3 is left.
    assert compared_losses.weight_report(config, exposures())["ipw_popularity"] == pytest.approx(
        dict(effective_share=64 / 22 / 3, clipped_share=2 / 3))


def test_weighted_loss_multiplies_the_full_softmax(tmp_path):
    clicks = rating_training.clicks_of(read_ratings(settings(tmp_path, "5 5 0\n4 4 5\n", "0 0 4\n0 0 0\n")), 4.0)
    data = read_ratings(settings(tmp_path, "5 5 0\n4 4 5\n", "0 0 4\n0 0 0\n"))
    config = config_lib.Config(train=config_lib.TrainConfig(batch_size=6)).but(ipw_cap=0.0, embedding_dim=4, queue="raw", queue_size=8)
    model = rating_training.Training(config, data, clicks, "mle", 0, 1).model
    table = np.array([[0, .5, .25, .25], [0, .125, .125, .75]], np.float32)
    examples = rating_training.make_examples(clicks, clicks.longest())
    known = dataclasses.replace(rating_training.exposures_of(data, examples), propensities=table)
    local = lambda make, shape, dtype: tf.Variable(make(0), trainable=False)
    batch = next(iter(rating_training.batches(examples, 6, 1, 0)))
    losses = {}
    for name in ("mle", "ipw", "ipw_popularity"):
        objective = compared_losses.build(name, config, known, model, 0, local)
        losses[name] = objective.open().rows(batch).numpy()[:5]
    users, targets = batch["user_id"].numpy()[:5], batch["target"].numpy()[:5, 0]
    popularity = np.array([0, 3, 3, 2]) / 8  # pairs rated 2, 2, 1 and one added to each
    for name, q in (("ipw", table[users, targets]), ("ipw_popularity", popularity[targets])):
        np.testing.assert_allclose(losses[name], losses["mle"] * (1 / q) / np.mean(1 / q), rtol=1e-5)


def test_queues_hold_as_many_as_are_sampled_and_know_what_feeds_them(tmp_path):
    data = read_ratings(settings(tmp_path, "5 5 0\n4 4 5\n", "0 0 4\n0 0 0\n"))
    config = config_lib.Config(train=config_lib.TrainConfig(batch_size=6)).but(embedding_dim=4, queue="raw", queue_size=8)
    clicks = rating_training.clicks_of(data, 4.0)
    model = rating_training.Training(config, data, clicks, "mle", 0, 1).model
    local = lambda make, shape, dtype: tf.Variable(make(0), trainable=False)
    build = lambda name: compared_losses.build(name, config, exposures(), model, 0, local)
    assert build("clrec").queue.capacity == build("sampled_softmax").num_negatives == 8
    assert build("clrec").corrections is None and build("clrec").impressions is None
    # Clicks 1, 2 and (as if once) 0 of the items: log 1, log 2, log 1 and a constant.
    for name, beta in (("clrec_beta_.75", 0.75), ("clrec_beta_.5", 0.5)):
        steps = (1 - beta) * math.log(2) * np.array([1, -1])
        np.testing.assert_allclose(np.diff(build(name).open().corrections["log_q"][1:]), steps, rtol=1e-5)
    stream = build("clrec_impressions").impressions
    shown = stream.open().next(5).numpy()[:, 0]
    assert sorted(shown.tolist()) == [1, 1, 1, 2, 3]  # every pair rated, once


def test_losses_are_chosen_by_name_and_by_what_is_known():
    config = lambda *names: config_lib.Config(randomised=config_lib.RandomisedConfig(randomised_losses=names))
    unknown = dataclasses.replace(exposures(), propensities=None)
    assert compared_losses.chosen(config(), exposures()) == list(compared_losses.LOSSES)
    assert "ipw" not in compared_losses.chosen(config(), unknown)
    assert compared_losses.chosen(config("clrec"), unknown) == ["mle", "clrec"]
    with pytest.raises(UserError, match="--randomised_losses=clrek.*choose from mle"):
        compared_losses.chosen(config("clrek"), unknown)
    with pytest.raises(UserError, match="ipw needs --propensity_matrix"):
        compared_losses.chosen(config("ipw"), unknown)


def test_ndcg_recall_and_auc_by_hand():
    # Six items; scores 6 5 4 3 2 1, positives in ranks 1, 4 and 6.
    scores, liked = np.array([6., 5, 4, 3, 2, 1]), np.array([1, 0, 0, 1, 0, 1], bool)
    gain = lambda rank: 1 / math.log2(rank + 1)
    assert user_metrics.ndcg(scores, liked, 5) == pytest.approx(
        (gain(1) + gain(4)) / (gain(1) + gain(2) + gain(3)))
    assert user_metrics.recall(scores, liked, 5) == pytest.approx(2 / 3)
    assert user_metrics.auc(scores, liked) == pytest.approx((3 + 1 + 0) / 9)
    # More positives than places: the best list has k of them.
    assert user_metrics.ndcg(scores, np.ones(6, bool), 5) == pytest.approx(1)
    assert user_metrics.recall(scores, np.ones(6, bool), 5) == pytest.approx(5 / 6)


def test_ties_are_in_expectation_over_all_their_orders():
    scores, liked = np.array([2., 1, 1, 1, 1, 0]), np.array([0, 1, 0, 1, 0, 1], bool)
    found = []
    for shuffle in range(20_000):
        order = np.lexsort((np.random.default_rng(shuffle).random(6), -scores))
        gains = liked[order][:5] / np.log2(np.arange(2, 7))
        found.append((gains.sum() / (1 / np.log2([2, 3, 4])).sum(), liked[order][:5].sum() / 3))
    np.testing.assert_allclose(np.mean(found, axis=0), [user_metrics.ndcg(scores, liked, 5),
                                                        user_metrics.recall(scores, liked, 5)], atol=0.005)
    # Positives (1, 1, 0) against negatives (2, 1, 1): 0 + ½ + ½, twice, and nothing.
    assert user_metrics.auc(scores, liked) == pytest.approx(2 / 9)
    assert user_metrics.auc(np.zeros(6), liked) == pytest.approx(0.5)
    assert user_metrics.recall(np.zeros(6), liked, 5) == pytest.approx(5 / 6)


def test_pooled_auc_of_weights_is_that_of_repeated_pairs():
    random = np.random.default_rng(0)
    scores, liked = random.integers(0, 5, 30).astype(float), random.random(30) < 0.4
    weights = random.integers(0, 4, (3, 30))
    for found, weight in zip(user_metrics.pooled_auc(scores, liked, weights.astype(float)), weights):
        own, other = np.repeat(scores[liked], weight[liked]), np.repeat(scores[~liked], weight[~liked])
        wins = (own[:, None] > other).sum() + (own[:, None] == other).sum() / 2
        assert found == pytest.approx(wins / (len(own) * len(other)))


def test_means_leave_out_users_without_the_classes_and_resamples_are_of_users():
    users = np.array([0, 0, 1, 1, 2, 2, 3, 3])
    liked = np.array([1, 0, 0, 1, 1, 1, 0, 0], bool)
    scores = np.array([2., 1, 2, 1, 0, 0, 5, 5])
    values = user_metrics.per_user(scores, users, liked, 4)
    second = 1 / math.log2(3)
    np.testing.assert_allclose(values, [[1, 1, 1], [second, 1, 0], [1, 1, np.nan], [np.nan] * 3])
    multiplicities = np.array([[1, 1, 1, 1], [2, 0, 1, 1], [0, 3, 0, 1]])
    means, resampled = user_metrics.measure([scores, -scores], users, liked, multiplicities)
    np.testing.assert_allclose(means["auc/user"], [0.5, 0.5])  # the second training: 0 and 1
    np.testing.assert_allclose(means["ndcg@5"], [(2 + second) / 3] * 2)
    middle = (1 + second) / 2  # of both trainings, for users 0 and 1
    np.testing.assert_allclose(resampled["ndcg@5"], [(2 * middle + 1) / 3, (2 * middle + 1) / 3, middle])
    np.testing.assert_allclose(resampled["auc/user"], [0.5] * 3)
    np.testing.assert_allclose(means["auc/all"], [2 / 16, 14 / 16])  # positives 2 1 0 0 against negatives 1 2 5 5
    pooled = user_metrics.measure([scores], users, liked, multiplicities)[1]["auc/all"]
    # All users once; 2 2 0 0 against 1 1 5 5; 1 1 1 against 2 2 2 5 5.
    np.testing.assert_allclose(pooled, [2 / 16, 4 / 16, 0])
    assert set(user_metrics.resampled_users(7, 0).sum(axis=1)) == {7}


def planted(folder):
    """40 users of two tastes over 12 items; each chose 4 of its 6 and 1 other, which it disliked; a random part."""
    random = np.random.default_rng(0)
    parts = np.zeros((2, 40, 12))
    for user in range(40):
        own, other = (np.arange(6) + 6 * side for side in (user % 2, 1 - user % 2))
        random.shuffle(own)
        random.shuffle(other)
        parts[0, user, own[:4]], parts[0, user, other[0]] = 5, 1
        parts[1, user, own[3:]], parts[1, user, other[:3]] = 5, 2
    texts = ["\n".join(" ".join(f"{rating:g}" for rating in row) for row in part) for part in parts]
    return config_lib.Config(
        randomised=dataclasses.replace(
            settings(folder, *texts, propensity_matrix="\n".join([" ".join(["0.4"] * 12)] * 40)),
            randomised_seeds=1, epochs_tried=()),
        train=config_lib.TrainConfig(batch_size=32, epochs=20, learning_rate=1e-2)).but(embedding_dim=8, attention_hidden=8, queue="raw", queue_size=64)


@pytest.mark.slow
def test_every_loss_finds_a_planted_taste_which_popularity_cannot(tmp_path):
    found = compare(planted(tmp_path))
    # Of each user's three and three, one pair on either side was rated before; two and two are left.
    expected = dict(test_pairs=160, test_positives=80, training_clicks=160, dropped_pairs=80)
    assert found["counts"] | expected == found["counts"]
    models = found["models"]
    assert set(models) == {*compared_losses.LOSSES, "most_popular", "most_rated", "random"}
    for name in compared_losses.LOSSES:
        assert models[name]["auc/user"]["mean"] > 0.9, name
        assert models[name]["auc/user"]["interval"][0] <= models[name]["auc/user"]["mean"] <= 1
    assert models["most_popular"]["auc/user"]["mean"] < 0.7
    assert models["random"]["auc/all"]["mean"] == models["random"]["auc/user"]["interval"][1] == 0.5
    for metric, of in models["random"].items():
        assert of["difference"] == pytest.approx(of["mean"] - models["mle"][metric]["mean"])
    assert models["random"]["auc/user"]["difference_interval"][1] < -0.3
    # Equal propensities weigh nothing.
    assert models["ipw"]["auc/all"]["by_seed"] == pytest.approx(models["mle"]["auc/all"]["by_seed"], abs=1e-3)
    assert found["propensity_weights"]["ipw"] == pytest.approx(dict(effective_share=1, clipped_share=0))


def test_epochs_are_chosen_on_held_out_training_clicks(tmp_path):
    config = planted(tmp_path)
    config = dataclasses.replace(config, randomised=dataclasses.replace(config.randomised, epochs_tried=("12", "1")))
    data = read_ratings(config.randomised)
    epochs, tried = rating_training.choose_epochs(config, data, rating_training.clicks_of(data, 4.0), [0, 1])
    assert epochs == 12 and list(tried) == [1, 12] and tried[12] > tried[1]
    # Three items of its own are left to each held-out click: at best chance among them, (1 + ½ + ⅓)/3.
    assert tried[12] > 0.45
    for numbers, error in ((("x",), "whole numbers"), (("0",), "1 or more")):
        bad = dataclasses.replace(config, randomised=dataclasses.replace(config.randomised, epochs_tried=numbers))
        with pytest.raises(UserError, match=f"--epochs_tried={numbers[0]}: must be {error}"):
            rating_training.choose_epochs(bad, data, None, [0])
    with pytest.raises(UserError, match="--schedule=cosine"):
        rating_training.choose_epochs(dataclasses.replace(config, train=dataclasses.replace(
            config.train, schedule="cosine")), data, None, [0])


def test_a_random_part_of_one_class_is_an_error(tmp_path):
    data = read_ratings(settings(tmp_path))
    with pytest.raises(DataError, match="--random_ratings: no ratings are clicks.*--click_rating=6"):
        EvaluatedPairs(data, 6.0)
    with pytest.raises(DataError, match="--random_ratings: all ratings are clicks.*--click_rating=3"):
        EvaluatedPairs(data, 3.0)


def test_baselines_count_training_clicks_and_ratings(tmp_path):
    data = read_ratings(settings(tmp_path))
    pairs = EvaluatedPairs(data, 4.0)
    assert list(zip(pairs.users, pairs.items, pairs.positive)) == [(0, 3, True), (1, 1, True), (2, 2, False)]
    found = pairs.baselines(data, rating_training.clicks_of(data, 4.0))
    assert found["most_popular"][0].tolist() == [1, 2, 1] and found["most_rated"][0].tolist() == [2, 2, 2]


def test_coat(shared_data):
    folder = shared_data / "coat"
    if not folder.is_dir():
        pytest.skip(f"{folder} does not exist")
    data = read_ratings(config_lib.RandomisedConfig(
        selected_ratings=str(folder / "train.ascii"), random_ratings=str(folder / "test.ascii"),
        propensity_matrix=str(folder / "propensities.ascii"),
        item_vectors=str(folder / "user_item_features" / "item_features.ascii")))
    clicks, pairs = rating_training.clicks_of(data, 4.0), EvaluatedPairs(data, 4.0)
    assert (data.num_users, data.num_items, len(data.selected.users), data.dropped) == (290, 300, 6960, 366)
    assert len(clicks.users) == 1905
    assert pairs.counts() == dict(test_pairs=4274, test_positives=769, test_users_with_positives=225)
    assert set(data.vectors.sum(axis=1)) == {4} and data.vectors.shape == (300, 33)
    singles = int((np.bincount(clicks.users) == 1).sum())
    assert len(rating_training.make_examples(clicks, clicks.longest())["weight"]) == 1905 - singles
    text = (folder / "PROVENANCE.txt").read_text(encoding="utf-8")
    mean = float(re.search(r"mean (0\.\d+), sum", text)[1])
    assert data.propensities.mean() == pytest.approx(mean, abs=5e-5)
