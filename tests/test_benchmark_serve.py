"""The suite serve: its simulator, its arithmetic, and all of it once in small, with a real service."""
import dataclasses
import json
import pathlib

import numpy as np
import prometheus_client
import pytest
from prometheus_client import parser

from clrec_tf import benchmark
from clrec_tf.config import BenchmarkConfig
from clrec_tf.config import Config
from clrec_tf.config import Paths
from clrec_tf.config import ServeConfig
from clrec_tf.errors import UserError
from clrec_tf.lab.benchmarks.served_bundles import FACTS_FILE
from clrec_tf.lab.benchmarks.served_catalogue import CatalogueSimulator
from clrec_tf.lab.benchmarks.served_catalogue import SHARES
from clrec_tf.lab.benchmarks import logged_load
from clrec_tf.lab.benchmarks import served_load
from clrec_tf.lab.benchmarks import served_process

SIMULATOR = CatalogueSimulator(3000, 16)
CONFIG = Config(benchmark=BenchmarkConfig(suite=("serve",), rounds=1, benchmark_items=2000, serve_seconds=1.0))


def test_items_lie_in_clusters():
    vectors, sizes = SIMULATOR.vectors(), np.bincount(SIMULATOR.cluster)
    assert vectors.shape == (3001, 16) and not vectors[0].any()
    np.testing.assert_allclose(np.linalg.norm(vectors[1:], axis=1), 1, atol=1e-5)
    assert len(sizes) == 150 and sizes[:15].sum() > 3 * sizes[-15:].sum()
    cosines = vectors[1:] @ vectors[1:].T
    same = SIMULATOR.cluster[:, None] == SIMULATOR.cluster
    assert cosines[same].mean() > .7 > .2 > cosines[~same].mean()
    np.testing.assert_array_equal(vectors, CatalogueSimulator(3000, 16).vectors())


def test_users_click_in_their_clusters():
    users = SIMULATOR.users(4000, 20, 1)
    clicked = SIMULATOR.cluster[users.history - 1]
    assert (clicked[:, :, None] == users.clusters[:, None, :]).any(axis=2).all()
    # Of the first cluster: its share, and what comes by chance to a cluster that was drawn twice.
    distinct = np.array([len(set(row)) == len(SHARES) for row in users.clusters])
    shares = [np.mean(clicked[distinct] == users.clusters[distinct, place, None]) for place in range(len(SHARES))]
    np.testing.assert_allclose(shares, SHARES, atol=.015)
    following = SIMULATOR.cluster[users.target - 1][distinct] == users.clusters[distinct, 0]
    assert np.mean(following) == pytest.approx(SHARES[0], abs=.04)
    assert users.history.min() == 1 and users.history.max() == 3000
    assert (SIMULATOR.users(10, 20, 1).history != SIMULATOR.users(10, 20, 2).history).any()
    held_out, rows = SIMULATOR.evaluation_set(users), SIMULATOR.rows(np.arange(1, 3001))
    np.testing.assert_array_equal(held_out.next_clicks, users.target)
    np.testing.assert_array_equal(held_out.history_features[:, 0], rows[users.history.ravel() - 1, 1])
    assert rows[:, 1].min() == 1 and rows[:, 1].max() < SIMULATOR.schema().features[0].rows


def answering(most, hiccups=()):
    """What `offer` finds of a server that answers at most so many per second, and fails at a rate's first try."""
    pending = list(hiccups)

    def offer(rate, seed):
        del seed
        if rate in pending:
            pending.remove(rate)
            return dict(offered=100, statuses={"200": 10, "503": 90}, accepted_ms=dict(p99=5.0), valid=True,
                        accepted_per_s=rate / 10)
        served = min(rate, most)
        return dict(offered=1000, statuses={"200": round(1000 * served / rate)}, accepted_ms=dict(p99=8.0), valid=True,
                    accepted_per_s=served)
    return offer


def test_capacity_by_hand():
    # 100, 150, 225 and 337.5 are served, 506.2 is not; √(337.5 · 506.25) = 413.3 is not, √(337.5 · 413.3) = 373.5 is.
    found = served_load.capacity(answering(380.0))
    assert (found["rate"], found["accepted_per_s"]) == (pytest.approx(373.5, abs=.1), pytest.approx(373.5, abs=.1))
    assert [rate for rate, run in found["tried"].items() if run["served"]] == ["100.0", "150.0", "225.0", "337.5",
                                                                                "373.5"]
    assert served_load.capacity(answering(380.0, hiccups=[150.0])) == found  # once may be the machine's
    assert served_load.capacity(answering(380.0, hiccups=[150.0, 150.0]))["rate"] < 150
    assert 40 < served_load.capacity(answering(50.0))["rate"] <= 50 / .95  # found below, too
    assert served_load.capacity(answering(0.0))["accepted_per_s"] == 0.0
    slow = lambda rate, seed: answering(1e9)(rate, seed) | dict(accepted_ms=dict(p99=rate))
    assert 80 < served_load.capacity(slow)["rate"] <= 100  # ms


def test_the_headline_is_of_valid_runs_that_served():
    run = lambda p99, served, valid: dict(accepted_ms=dict(p99=p99), statuses={"200": served}, offered=100, valid=valid)
    runs = [run(9.0, 100, True), run(8.0, 99, True), run(3.0, 98, True), run(2.0, 100, False)]
    assert served_load.headline(runs) == 8.0
    assert served_load.headline([run(3.0, 98, True)]) is None
    assert [served_load.overload_rate(most) for most in (0.0, 333.0, 500.0, 2000.0)] == [1000.0, 1000.0, 1500.0, 4000.0]


def test_stages_by_hand():
    registry = prometheus_client.CollectorRegistry()
    seconds = prometheus_client.Histogram("stage_seconds", "Seconds.", ["stage"], buckets=(.001, .01, .1),
                                          registry=registry)
    read = lambda: {(sample.name, tuple(sorted(sample.labels.items()))): sample.value
                    for family in parser.text_string_to_metric_families(
                        prometheus_client.generate_latest(registry).decode()) for sample in family.samples}
    seconds.labels("wait").observe(5)  # before
    before = read()
    for value in (.001, .002, .006):
        seconds.labels("wait").observe(value)
    seconds.labels("tower").observe(.2)
    assert served_process.stages(before, read()) == {
        "stage_seconds{wait}": dict(count=3, mean_ms=3.0, p99_ms_at_most=10.0),
        "stage_seconds{tower}": dict(count=1, mean_ms=200.0, p99_ms_at_most=None)}


def test_a_service_that_does_not_start_is_an_error(tmp_path):
    with pytest.raises(UserError, match=r"(?s)the service ended with 2: .*no complete version"):
        with served_process.ServedBundle(str(tmp_path), ServeConfig()):
            pass


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.usefixtures("quick_children")
def test_suite_in_small(tmp_path, monkeypatch):
    monkeypatch.setattr(served_load, "MODELS", {1: served_load.MODELS[1]})
    monkeypatch.setattr(served_load, "STEPS", 10)
    path, workdir = tmp_path / "figures.json", tmp_path / "bundles"
    benchmark.main(dataclasses.replace(CONFIG, paths=Paths(workdir=str(workdir)), benchmark=dataclasses.replace(
        CONFIG.benchmark, json=str(path))))
    found = json.loads(path.read_text())
    figures, of = found["figures"], found["serve"]["K1"]
    assert set(figures) == {"serve_p99_ms_100qps_K1", "serve_capacity_per_s_K1", "served_vs_offered_10x_overload",
                            "served_vs_capacity_10x_overload"}
    assert set(of["loads"]) == {"50", "100", "200"} and len(of["loads"]["100"]) == 1
    over = of["overload"]
    assert 0 < figures["served_vs_offered_10x_overload"] == over["served_vs_offered"] < 1.01
    assert over["rate"] >= 1000 and sum(over["statuses"].values()) + over["not_answered"] == over["offered"]
    assert set(over["statuses"]) <= {"200", "503", "504"}  # refused in order, not broken
    assert 0 < over["memory"]["first_mib"] <= over["memory"]["max_mib"] < 3000
    served = of["loads"]["100"][0]
    assert served["statuses"]["200"] > 0 and {"clrec_stage_seconds{wait}", "clrec_stage_seconds{tower}",
                                              "clrec_stage_seconds{search}"} <= set(served["stages"])
    assert served["stages"]["clrec_stage_seconds{wait}"]["count"] == served["statuses"]["200"]
    parts = of["in_process"]["back_to_back_ms"]
    assert 0 < parts["tower"]["p50"] < parts["total"]["p50"] and of["in_process"]["open_loop_ms"]["p99"] > 0
    facts = json.loads(next(pathlib.Path(workdir).glob(f"*/{FACTS_FILE}")).read_text())
    assert facts["measured"]["recall"] == 1.0 and facts == of["published"]


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.usefixtures("quick_children")
def test_what_the_log_of_impressions_costs(monkeypatch):
    monkeypatch.setattr(logged_load, "STEPS", 10)
    found = logged_load.run(dataclasses.replace(CONFIG, benchmark=dataclasses.replace(
        CONFIG.benchmark, serve_seconds=6.0)))
    assert set(found["milliseconds"]) == {"with", "without"} and set(found["ratios"]) <= {"impression_log_p50",
                                                                                        "impression_log_p99"}
    assert found["rows_logged"] % served_load.K == 0 and found["rows_logged"] > 50 * served_load.K  # 200 a request
