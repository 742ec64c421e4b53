"""The suite of quality per minute: its arithmetic, our curves in small, and another interpreter's errors."""
import sys

import pytest

from clrec_tf.config import BenchmarkConfig
from clrec_tf.config import Config
from clrec_tf.config import Paths
from clrec_tf.errors import UserError
from clrec_tf.lab.benchmarks import quality
from tests import small_run


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return Config(paths=Paths(data_dir=small_run.prepared(tmp_path_factory.mktemp("quality"))))


def test_seconds_are_those_in_which_ours_comes_to_their_best():
    theirs = dict(positions_per_s=1000, points=[[100, .20, .1], [200, .25, .12], [300, .24, .13]])
    ours = dict(positions_per_s=8000, points=[[10, .1, 0], [50, .25, 0], [90, .3, 0]])
    assert quality.compared(ours, theirs) == dict(seconds_to_rectools_quality=50 / 200,
                                                  sasrec_vs_rectools_positions_per_s=8.0)
    slower = dict(positions_per_s=500, points=[[10, .1, 0]])
    assert quality.compared(slower, theirs) == dict(sasrec_vs_rectools_positions_per_s=.5)


@pytest.mark.parametrize("name", list(quality.RECIPES))
def test_our_curves_rise_with_the_seconds(config, monkeypatch, name):
    few = dict(quality.RECIPES[name], batch_size=16, epochs=6, learning_rate=0.02, max_history=6)
    monkeypatch.setitem(quality.RECIPES, name, few)
    found = quality.our_curve(config, name)
    seconds, rates, _ = zip(*found["points"])
    assert len(seconds) == quality.POINTS and list(seconds) == sorted(seconds) and found["positions_per_s"] > 0
    assert 0 < found["tower_ms_one_user"] < 1000
    assert rates[-1] > max(rates[0], 12 / small_run.ITEMS)  # by chance 10 of 30 items


def test_tfrs_learns_from_our_batches(config):
    found = quality.tfrs_curve(config.but(embedding_dim=8))
    assert len(found["points"]) == quality.TFRS_EPOCHS and found["positions_per_s"] > 0


def test_an_interpreter_without_rectools_is_an_error(config):
    for python, words in ((sys.executable, "No module named"), ("/nowhere/python", "No such file")):
        with pytest.raises(UserError, match=f"--rectools_python=.* does not run RecTools: .*{words}"):
            quality.rectools_curve(config.paths.data_dir, Config(benchmark=BenchmarkConfig(rectools_python=python)))
