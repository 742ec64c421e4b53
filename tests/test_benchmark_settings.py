"""What a benchmark refuses, warns of, and calls its ratios; nothing is measured."""
import dataclasses
import pathlib
import re

import pytest

from clrec_tf.config import Config
from clrec_tf.config import TrainConfig
from clrec_tf.errors import UserError
from clrec_tf.lab.benchmarks import queue_steps
from clrec_tf.lab.benchmarks import suites
from tests.test_benchmarks import SMALL


def growth(ratio, small, large):
    return dict(ms_per_step={small: 1.0, large: ratio}, ratio=ratio)


@pytest.mark.parametrize("items, queue, names", [
    (("V=10000", "V=1000000"), ("Q=2560", "Q=65536"), ("step_time_V1e6_vs_V1e4", "step_time_Q65536_vs_Q2560")),
    (("V=10000", "V=100000"), ("Q=512", "Q=65536"), ("step_time_V100000_vs_V10000", "step_time_Q65536_vs_Q512")),
    (("V=1000", "V=1000000"), ("Q=2560", "Q=65536"), ("step_time_V1000000_vs_V1000", "step_time_Q65536_vs_Q2560"))])
def test_a_growth_is_named_after_the_sizes_measured(items, queue, names):
    cases = [dict(name=f"{encoder}_T{length}_{tower}_uniform", cached_vs_raw=1.5, of_bound=.9,
                  variants=dict(cached=dict(vs_bare_ops=2.0)))
             for encoder in queue_steps.ENCODERS for length in (10, 50) for tower in queue_steps.TOWERS]
    ratios = queue_steps.headlines(cases, dict(items=growth(1.1, *items), queue=growth(5.5, *queue)), [10, 50])
    assert [ratios[name] for name in names] == [1.1, 5.5]
    assert sum(name.startswith("step_time_V") for name in ratios) == 1
    page = pathlib.Path(__file__).parents[1].joinpath("docs", "performance.md").read_text(encoding="utf-8")
    if "step_time_V1e6_vs_V1e4" in ratios:  # the default sizes: every key is explained
        for name in ratios:
            assert f"`{name.replace('T50', 'T10').removesuffix('_of_bound')}`" in page


@pytest.mark.parametrize("rounds, warned", [(1, True), (2, True), (3, False)])
def test_few_rounds_are_noise_and_it_is_said(monkeypatch, caplog, rounds, warned):
    monkeypatch.setitem(suites.SUITES, "memory", lambda config: dict(ratios={}))
    few = dataclasses.replace(SMALL.benchmark, suite=("memory",), rounds=rounds)
    with caplog.at_level("WARNING"):
        suites.run_suites(dataclasses.replace(SMALL, benchmark=few))
    assert (f"--rounds={rounds}: medians of so few rounds are noise" in caplog.text) == warned


@pytest.mark.parametrize("changes,words", [
    (dict(suite=("speed",)), "--suite=speed: choose from training"), (dict(suite=()), "--suite=: choose"),
    (dict(benchmark_histories=("ten",)), "--benchmark_histories=ten"),
    (dict(suite=("tfrs",)), "--data_dir is not set"),
    (dict(json="nowhere/speed.json"), "--json=nowhere/speed.json: its folder does not exist; make it"),
    (dict(json="/"), "--json=/ is a folder")])
def test_settings_that_measure_nothing(changes, words):
    with pytest.raises(UserError, match=words):
        suites.run_suites(dataclasses.replace(SMALL, benchmark=dataclasses.replace(SMALL.benchmark, **changes)))


def test_sizes_between_which_nothing_grows():
    with pytest.raises(UserError, match="--queue_size=70000"):
        suites.run_suites(SMALL.but(queue_size=70_000))
    few = dataclasses.replace(SMALL.benchmark, benchmark_items=1000)
    with pytest.raises(UserError, match="--benchmark_items=1000: .* 500 items"):
        suites.run_suites(Config(benchmark=few))


def test_a_number_of_items_that_works_is_named(monkeypatch):
    def found(items, batch_size):
        settings = dataclasses.replace(SMALL.benchmark, benchmark_items=items, benchmark_histories=("10",))
        monkeypatch.setattr(queue_steps, "in_child", lambda *arguments: pytest.fail("measured"))
        with pytest.raises((UserError, pytest.fail.Exception)) as caught:
            queue_steps.run(Config(benchmark=settings, train=TrainConfig(batch_size=batch_size)).but(queue_size=4000))
        return str(caught.value)

    named = int(re.search(r"give --benchmark_items=(\d+) or more", found(1000, 256))[1])
    assert found(named, 256) == "measured" != found(named - 1, 256)
    # 1,000 · 11 distinct clicks are more than the smaller catalogue ever has.
    assert "a step needs; lower --batch_size" in found(1_000_000, 1000)
