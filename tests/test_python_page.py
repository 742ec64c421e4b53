"""The recipe of docs/python.md for Optuna, with three trials: each trains, and the best of them is found."""
import contextlib
import io
import pathlib
import re

import optuna
import polars as pl
import pytest

import clrec_tf as clrec
from tests import small_run

PAGE = (pathlib.Path(__file__).parents[1] / "docs" / "python.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_recipe_for_optuna_finds_the_best_of_its_trials(tmp_path, monkeypatch):
    (recipe,) = re.findall(r"^```python\n(# with `data`.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert recipe.count("n_trials=20") == 1 and len(recipe.splitlines()) <= 30
    monkeypatch.chdir(tmp_path)
    names = dict(data=clrec.prepare(pl.read_csv(io.StringIO(small_run.click_log())), shard_records=16))
    with contextlib.redirect_stderr(io.StringIO()):
        exec(recipe.replace("n_trials=20", "n_trials=3"), names)  # pylint: disable=exec-used
    study, best = names["study"], names["best"]
    values = [trial.value for trial in study.trials]
    assert len(set(values)) == 3 and study.best_value == max(values) > 0
    assert all(trial.state == optuna.trial.TrialState.COMPLETE for trial in study.trials)
    assert best.config.train.learning_rate == study.best_params["learning_rate"] and (tmp_path / "runs/best").is_dir()
