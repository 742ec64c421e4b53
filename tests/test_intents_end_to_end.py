"""Multi-CLRec's proofs with towers: what the week is cut into, its figures by hand, and the whole way in small."""
import datetime
import os

import numpy as np
import pytest

from clrec_tf.config import Config
from clrec_tf.config import EvaluateConfig
from clrec_tf.config import ExposureWorldConfig
from clrec_tf.config import Paths
from clrec_tf.config import ProofConfig
from clrec_tf.config import TrainConfig
from clrec_tf.errors import UserError
from clrec_tf.lab.simulator import end_to_end
from clrec_tf.lab.simulator import intents_end_to_end
from clrec_tf.lab.simulator import weekend
from clrec_tf.system.json_files import load_json
from tests.prepared_data import read_split

LENGTH = 5


def small(workdir) -> Config:
    return Config(
        paths=Paths(workdir=str(workdir)), proof=ProofConfig(repetitions=1),
        exposure_world=ExposureWorldConfig(exposure_policy="intent", exposure_users=150, exposure_items=100,
                                           exposure_visits=20, exposure_types=4),
        train=TrainConfig(batch_size=32, target_mode="sliding", validate_every=0.0),
        evaluate=EvaluateConfig(list_length=LENGTH)).but(embedding_dim=8, max_history=6, queue="raw", queue_size=64)


def weekday(second: int) -> int:
    """0 is Monday."""
    return datetime.datetime.fromtimestamp(second, datetime.timezone.utc).weekday()


@pytest.mark.parametrize("multi,failed", [
    ((.5, .03, 300, .2), []), ((1.6, .03, 300, .2), ["KL to the oracle"]), ((.5, .01, 300, .2), ["oracle recall"]),
    ((.5, .03, 90, .2), ["aggregate diversity"]), ((.5, .03, 300, .5), ["popularity index"])])
def test_verdicts(multi, failed):
    names = "kl_oracle", "oracle_recall@5", "aggregate_diversity@5/full", "popularity_index@5/full"
    rows = [dict(seed=4, model=model, **dict(zip(names, figures)))
            for model, figures in (("multi_clrec", multi), ("sampled_softmax", (1.5, .02, 100, .8)))]
    found = intents_end_to_end.checks(rows, LENGTH)
    assert [check.name for check in found if not check.passed] == [
        f"intents, seed 4: {name}, Multi-CLRec over sampled softmax" for name in failed]
    assert len(found) == 4


def test_figures_by_hand():
    """Users 1 to 4 come on the weekday and 3 to 5 at the weekend."""
    hits = dict(weekday=np.array([1., 1., 1., .5]), weekend=np.array([.25, 0., 1.]))
    found = weekend.figures(hits, dict(weekday=np.array([1, 2, 3, 4]), weekend=np.array([3, 4, 5])))
    assert found == pytest.approx({
        "hr@50/weekday": 3.5 / 4, "hr@50/weekend": 1.25 / 3, "lost": 1 - (1.25 / 3) / (3.5 / 4),
        "hr@50/weekday/both": .75, "hr@50/weekend/both": .125, "lost/both": 1 - .125 / .75,
        "users/weekday": 4, "users/weekend": 3, "users/both": 2})


def test_the_weekend_is_not_trained_on(tmp_path):
    """Trained on are Monday to Thursday; Friday's clicks are targets of one part and history of the other."""
    config = end_to_end.prepared(end_to_end.replaced(small(tmp_path), **weekend.WEEK), str(tmp_path / "week"))
    days = {name: [([weekday(second) for second in record["timestamp"]], record["target_count"][0])
                   for record in read_split(config.paths.data_dir, name)] for name in ("train", "valid", "test")}
    assert {day for sequence, _ in days["train"] for day in sequence} == {0, 1, 2, 3}
    for part, targets, histories in (("valid", {4}, {0, 1, 2, 3}), ("test", {5, 6}, {0, 1, 2, 3, 4})):
        assert {day for sequence, count in days[part] for day in sequence[-count:]} == targets
        assert {day for sequence, count in days[part] for day in sequence[:-count]} == histories
    assert config.train.validate_every == 0 and weekend.PARTS == dict(weekday="valid", weekend="test")


@pytest.mark.parametrize("proof", [intents_end_to_end, weekend], ids=["intents", "weekend"])
def test_a_workdir_is_needed(proof):
    with pytest.raises(UserError, match="--workdir"):
        proof.run(Config())


@pytest.fixture
def one_process(monkeypatch):
    """Models are trained in this process, where the code of a step is translated once; `test_end_to_end` has others."""
    monkeypatch.setattr(end_to_end, "in_child", lambda function, config: function(config))


@pytest.mark.slow
@pytest.mark.usefixtures("one_process")
def test_intents_in_small(tmp_path):
    rows, checks = intents_end_to_end.run(small(tmp_path))
    assert len(checks) == 4
    of = {row["model"]: row for row in rows}
    assert list(of) == ["oracle", "most_popular", "clrec", "sampled_softmax", "multi_clrec", "multi_clrec_by_category",
                        "multi_clrec_intent_beta_0"]
    assert of["oracle"][f"ctr@{LENGTH}"] == max(row[f"ctr@{LENGTH}"] for row in of.values())
    used = {name: load_json(os.path.join(tmp_path, "intent_0", name, "config.json"), "", "") for name in list(of)[2:]}
    assert [each["model"]["model"] for each in used.values()] == ["clrec"] * 2 + ["multi_clrec"] * 3
    assert [each["loss"]["loss"] for each in used.values()] == ["contrastive", "sampled_softmax"] + ["contrastive"] * 3
    assert [used[name]["model"]["num_intents"] for name in list(used)[2:]] == [8, 32, 8]
    assert [used[name]["loss"]["intent_beta"] for name in list(used)[2:]] == [1, 1, 0]
    # Beside what makes it Multi-CLRec, nothing is another.
    apart = {name for name, value in used["multi_clrec"]["model"].items() if value != used["clrec"]["model"][name]}
    assert apart <= {"model", "num_intents", "category_feature"}
    assert all(each["train"] == used["clrec"]["train"] for each in used.values())


@pytest.mark.slow
@pytest.mark.usefixtures("one_process")
def test_weekend_in_small(tmp_path, monkeypatch):
    config = small(tmp_path)
    rows, _ = weekend.run(config)
    assert [row["model"] for row in rows] == ["clrec", "multi_clrec", "multi_clrec_intent_beta_0"]
    kept = [load_json(os.path.join(tmp_path, "week_0", row["model"], "config.json"), "", "")["loss"]["intent_beta"]
            for row in rows[1:]]
    assert kept == [1.0, 0.0]
    for row in rows:
        assert 0 < row["hr@50/weekday"] <= 1
        assert 0 < row["users/both"] <= min(row["users/weekday"], row["users/weekend"])
        assert row["lost"] == pytest.approx(1 - row["hr@50/weekend"] / row["hr@50/weekday"])
    # What is done is not done again, and comes out the same.
    monkeypatch.setattr(end_to_end, "in_child", None)
    assert weekend.run(config)[0] == rows
