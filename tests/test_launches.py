"""Items without clicks against a known truth: the simulation of launches, its oracles, its verdicts, the whole way."""
import dataclasses

import numpy as np
import polars as pl
import pytest

from clrec_tf.config import Config
from clrec_tf.config import ExposureWorldConfig
from clrec_tf.config import Paths
from clrec_tf.config import ProofConfig
from clrec_tf.config import TrainConfig
from clrec_tf.lab.simulator import launches
from clrec_tf.lab.simulator import launches_end_to_end
from clrec_tf.lab.simulator.launches_end_to_end import AMONG_COLD
from clrec_tf.lab.simulator.launches_end_to_end import COLD
from clrec_tf.lab.simulator.launches_end_to_end import COLD_SHARE
from clrec_tf.lab.simulator.launches_end_to_end import WARM
from clrec_tf.preparation.splits import DAY
from clrec_tf.preparation.synthetic_log import FIRST_SECOND

BORDER = FIRST_SECOND + 28 * DAY
SIGMAS = 4.5


def test_clicks_follow_exposure_and_relevance(tmp_path):
    """One user's clicks: 5 coordinates of chi², before and after the launch, within SIGMAS of the mean."""
    world = launches.generate(1, 6, 0)
    many = dataclasses.replace(world, user_taste=np.repeat(world.user_taste, 3000, axis=0))
    launches.write(many, 7, str(tmp_path))
    log = pl.read_csv(tmp_path / "clicks.csv")
    taste = many.user_taste[0] @ (world.feature_taste + world.own_taste).T
    weight = np.exp(taste + world.feature_quality + world.own_quality + world.log_exposure)
    assert world.launched.sum() == 2  # a fifth of 6, rounded up
    for before in (True, False):
        part = log.filter((pl.col("timestamp") < BORDER) == before)
        found = np.array([(part["item_id"] == f"i{number:06d}").sum() for number in range(1, 7)])
        there = weight * (~world.launched if before else 1)
        expected = found.sum() * there / there.sum()
        assert found[expected == 0].sum() == 0
        chi = ((found - expected)[expected > 0]**2 / expected[expected > 0]).sum()
        degrees = (expected > 0).sum() - 1
        assert chi < degrees + SIGMAS * np.sqrt(2 * degrees)
        per_user = len(part) / 3000
        assert abs(per_user - (25 if before else 6.25)) < SIGMAS * np.sqrt(25 / 3000)
    assert log["user_id"].is_sorted() and log["timestamp"].max() < FIRST_SECOND + 35 * DAY
    table = pl.read_csv(tmp_path / "items.tsv", separator="\t")
    assert table["brand"].to_list() == [f"brand{value + 1}" for value in world.values[:, 1]]


def test_what_features_tell_is_the_expectation_over_everything_else():
    """An item's own taste, quality and exposure drawn anew 200,000 times, and its clicks' weight averaged."""
    world = launches.generate(2, 50, 3)
    item, rng, draws = int(np.flatnonzero(world.launched)[0]), np.random.default_rng(0), 200_000
    own = rng.normal(size=(draws, 6)) * 1.6 * np.sqrt(0.2 / 6)
    rest = rng.normal(size=draws) * np.sqrt(0.2) * 0.6 + rng.normal(size=draws)
    for user in range(2):
        weights = np.exp((world.feature_taste[item] + own) @ world.user_taste[user]
                         + world.feature_quality[item] + rest)
        error = weights.std() / np.sqrt(draws)
        assert abs(np.exp(world.described(np.array([user]))[0, item]) - weights.mean()) < SIGMAS * error
    warm = ~world.launched
    np.testing.assert_array_equal(world.described(np.arange(2))[:, warm], world.next_click(np.arange(2))[:, warm])
    parts = [world.user_taste @ world.feature_taste.T, world.user_taste @ world.own_taste.T]
    assert np.var(parts[1]) < np.var(parts[0])


def test_oracles_are_in_the_order_of_the_data_set():
    world = launches.generate(30, 40, 1)
    numbers = np.random.default_rng(0).permutation(40)
    original_ids = np.array([f"i{number + 1:06d}" for number in numbers], object)
    user_ids = np.array([4, 2, 9])
    found = {name: scorer(1, 3) for name, scorer in
             launches_end_to_end.oracles(world, user_ids, original_ids).items()}
    np.testing.assert_allclose(found["next_click"], world.next_click(np.array([2, 9]))[:, numbers])
    np.testing.assert_allclose(found["relevance"] + world.log_exposure[numbers], found["next_click"])
    clicks = np.exp(world.next_click(np.arange(30)))
    clicks /= clicks.sum(axis=1, keepdims=True)
    lift, warm = np.log(clicks[[2, 9]] / clicks.mean(axis=0))[:, numbers], ~world.launched[numbers]
    apart = (found["optimum"] - lift)[:, warm]  # a constant of each user, which changes no ranking
    np.testing.assert_allclose(apart, np.broadcast_to(apart[:, :1], apart.shape), atol=1e-9)


def rows(**changed):
    """Figures with which every check holds, some of them changed."""
    figures = {"id_dropout_0.2": {COLD: .08, AMONG_COLD: .2, WARM: .18}, "id_dropout_0": {AMONG_COLD: .1, WARM: .18},
               "id_dropout_0.2/popularity=1": {COLD: .05}, "random_cold": {COLD: .02, AMONG_COLD: .02},
               "by_feature": {COLD: .02}, "optimum": {COLD: .1}}
    for path, value in changed.items():
        model, figure = path.split(" ")
        figures[model] = {**figures[model], figure: value}
    return [dict(world="launches", seed=0, model=model, **values) for model, values in figures.items()]


@pytest.mark.parametrize("changed, failed", [
    ({}, 0), ({f"random_cold {COLD}": .09}, 1), ({f"random_cold {AMONG_COLD}": .07}, 1),
    ({f"by_feature {COLD}": .03}, 1), ({f"id_dropout_0.2/popularity=1 {COLD}": .03}, 1), ({f"optimum {COLD}": .15}, 1),
    ({f"id_dropout_0 {AMONG_COLD}": .15}, 1), ({f"id_dropout_0 {WARM}": .21}, 1)])
def test_verdicts(changed, failed):
    checks = launches_end_to_end.checks(rows(**changed))
    assert len(checks) == 7 and sum(not check.passed for check in checks) == failed


@pytest.mark.slow
def test_the_whole_way_in_small(tmp_path, monkeypatch):
    monkeypatch.setattr(launches_end_to_end, "FURTHER", ())
    config = Config(
        paths=Paths(workdir=str(tmp_path)), proof=ProofConfig(repetitions=1),
        exposure_world=ExposureWorldConfig(exposure_users=1500, exposure_items=400),
        train=TrainConfig(target_mode="sliding", validate_every=0.0, epochs=6, learning_rate=5e-3)).but(
            embedding_dim=16, max_history=20, queue_size=1280)
    found, checks = launches_end_to_end.run(config)
    of = {row["model"]: row for row in found}
    assert len(of) == len(found) == 2 * 7 + 4 + 3 and len(checks) == 7
    # Who knows more finds more; who knows nothing finds what is drawn at random.
    assert of["next_click"][COLD] > of["described"][COLD] > of["by_feature"][COLD]
    assert of["random_cold"][COLD] == pytest.approx(10 / 80, rel=0.05) and of["random_cold"][WARM] < .001
    assert of["random"][COLD] == pytest.approx(10 / 400, rel=0.1)
    hidden, seen = of["id_dropout_0.2"], of["id_dropout_0"]
    assert hidden[AMONG_COLD] > 1.5 * 10 / 80 and hidden[AMONG_COLD] > 1.2 * seen[AMONG_COLD]
    assert of["id_dropout_0.2/popularity=1"][COLD] > 1.2 * of["random"][COLD]
    assert of["id_dropout_0.2_counted_once/popularity=1"][COLD] < .2 * of["id_dropout_0.2/popularity=1"][COLD]
    assert hidden[WARM] > .85 * seen[WARM]
    assert 0 < hidden[COLD_SHARE] < 2 * of["optimum"][COLD_SHARE]
