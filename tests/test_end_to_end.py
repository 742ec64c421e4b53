"""The end-to-end proof: its judge by hand, its verdicts on made-up figures, and the whole way in small."""
import dataclasses
import os

import numpy as np
import pytest

from clrec_tf.config import Config
from clrec_tf.config import EvaluateConfig
from clrec_tf.config import ExposureWorldConfig
from clrec_tf.config import Paths
from clrec_tf.config import ProofConfig
from clrec_tf.config import TrainConfig
from clrec_tf.data.evaluation_set import EvaluationSet
from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.lab.simulator import end_to_end
from clrec_tf.lab.simulator.oracle_metrics import Judge
from clrec_tf.lab.simulator.simulated_logs import Truth

RELEVANCE = np.array([[.1, .2, .1], [.6, .1, .3]])


def made_up_truth():
    """Users 3 and 7 click twice each, in contexts 0, 1 and 1, 0."""
    return Truth(
        item_ids=np.array(["a", "b", "c"]), item_intent=np.zeros(3, int), relevance=RELEVANCE,
        exposure=np.full((2, 3), 1 / 3), context_intent=np.arange(2), context_type=np.zeros(2, int),
        user_type=np.zeros(7, int), click_user=np.array([3, 3, 7, 7]), click_timestamp=np.array([10, 20, 10, 30]),
        click_context=np.array([0, 1, 1, 0]))


def users(times):
    """Both users, one click of history and one target each."""
    return EvaluationSet(user_ids=np.arange(2), history_ids=np.array([1, 1]), history_splits=np.arange(3),
                         target_ids=np.array([1, 2]), target_splits=np.arange(3), request_times=np.array(times))


def test_judge_by_hand():
    """Next clicks at 20 and 30, so contexts 1 and 0; the data set numbers c and a as 1 and 2, and lacks b."""
    judge = Judge(made_up_truth(), users([20, 30]), np.array(["c", "a"], object))
    assert judge.contexts.tolist() == [1, 0]
    np.testing.assert_allclose(judge.oracle_scorer()(0, 2), [[.3, .6], [.1, .1]])
    found = judge.of_lists(np.array([[2], [1]]))  # a for the first user, c for the second
    assert found == pytest.approx({"oracle_recall@1": (.6 + .25) / 2, "ctr@1": (.6 + .1) / 2})
    both = judge.of_lists(np.array([[2, 1], [1, 2]]))
    assert both == pytest.approx({"oracle_recall@2": (.9 + .5) / 2, "ctr@2": (.45 + .1) / 2})
    # The oracle over what can be recommended is (1/3, 2/3) and (1/2, 1/2); a uniform model's distance from it:
    uniform = judge.divergence(lambda start, stop: np.full((stop - start, 2), 7.0))
    assert uniform == pytest.approx((np.log(2 / 3) / 3 + np.log(4 / 3) * 2 / 3) / 2)
    assert judge.divergence(lambda start, stop: np.log([[1, 2], [5, 5]][start:stop])) == pytest.approx(0, abs=1e-12)


def test_judge_knows_its_world():
    with pytest.raises(DataError, match="user 3 has no click at timestamp 21"):
        Judge(made_up_truth(), users([21, 30]), np.array(["a"], object))


def rows(biased, unbiased):
    """Figures of CLRec; softmax has 100 items, index .8, recall .1 in both simulations."""
    def row(simulation, model, diversity, index, recall):
        return {"world": simulation, "seed": 4, "model": model, "aggregate_diversity@10/full": diversity,
                "popularity_index@10/full": index, "oracle_recall@10": recall}
    return [row(simulation, *figures) for simulation, clrec in (("biased", biased), ("unbiased", unbiased))
            for figures in (("clrec", *clrec), ("sampled_softmax", 100, .8, .1))]


@pytest.mark.parametrize("biased,unbiased,failed", [
    ((300, .2, .2), (110, .75, .1), []),
    ((140, .2, .2), (101, .79, .1), ["aggregate diversity, CLRec over sampled softmax"]),
    ((300, .5, .2), (110, .79, .1), ["popularity index, CLRec over sampled softmax"]),
    ((300, .2, .09), (110, .79, .1), ["oracle recall, CLRec over sampled softmax"]),
    ((300, .2, .2), (160, .79, .1), ["gap in aggregate_diversity@10/full without bias, over that with bias"]),
    ((300, .2, .2), (110, .6, .1), ["gap in popularity_index@10/full without bias, over that with bias"])])
def test_verdicts(biased, unbiased, failed):
    checks = end_to_end.checks(rows(biased, unbiased), 10)
    assert [check.name for check in checks if not check.passed] == [f"end to end, seed 4: {name}" for name in failed]
    assert len(checks) == 5


def test_in_batch_has_no_queue_to_compare(tmp_path):
    with pytest.raises(UserError, match="--queue=in_batch"):
        end_to_end.run(Config(paths=Paths(workdir=str(tmp_path))).but(queue="in_batch"))


@pytest.mark.slow
@pytest.mark.usefixtures("quick_children")
def test_the_whole_way_in_small(tmp_path, monkeypatch):
    monkeypatch.setattr(end_to_end, "FURTHER", {"ipw": end_to_end.FURTHER["ipw"]})
    config = Config(
        paths=Paths(workdir=str(tmp_path)), proof=ProofConfig(repetitions=1),
        exposure_world=ExposureWorldConfig(exposure_users=150, exposure_items=100, exposure_visits=15),
        train=TrainConfig(batch_size=32, target_mode="sliding", validate_every=0.0),
        evaluate=EvaluateConfig(list_length=5)).but(embedding_dim=8, max_history=6, queue_size=64)
    found, checks = end_to_end.run(config)
    assert [(row["world"], row["model"]) for row in found] == [
        *(("biased", name) for name in ("oracle", "most_popular", "clrec", "sampled_softmax", "ipw")),
        *(("unbiased", name) for name in ("oracle", "most_popular", "clrec", "sampled_softmax"))]
    assert len(checks) == 5 and os.path.getsize(tmp_path / "degree_histogram_0.png") > 10_000
    for simulation in ("biased", "unbiased"):
        of = {row["model"]: row for row in found if row["world"] == simulation}
        # Nobody recommends better than who knows the truth, or more popular items than most-popular.
        assert of["oracle"]["ctr@5"] == max(row["ctr@5"] for row in of.values())
        assert of["most_popular"]["popularity_index@5/full"] == 1 == max(
            row["popularity_index@5/full"] for row in of.values())
    # What is done is not done again, and comes out the same.
    monkeypatch.setattr(end_to_end, "in_child", None)
    assert end_to_end.run(dataclasses.replace(config))[0] == found
