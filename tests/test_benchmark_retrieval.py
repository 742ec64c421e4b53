"""The suite retrieval in small: that what it compares finds what it should, and all of it once."""
import builtins
import dataclasses
import json

import numpy as np
import pytest

from clrec_tf import benchmark
from clrec_tf.lab.benchmarks.clustered_vectors import draw_clustered
from clrec_tf.lab.benchmarks.index_contenders import with_fewest_leaves
from clrec_tf.lab.benchmarks import retrieval_speed
from clrec_tf.config import Config, ExportConfig
from clrec_tf.retrieval import efforts
from clrec_tf.retrieval.faiss_index import FaissIndex
from tests.test_benchmarks import SMALL


def test_clusters_are_uneven_and_users_are_near_them():
    drawn = draw_clustered(4000, 10, 50, 64)
    assert (drawn.items.shape, drawn.inserted.shape, drawn.queries.shape) == ((4000, 64), (10, 64), (50, 64))
    for vectors in vars(drawn).values():
        assert vectors.dtype == np.float32
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    alike = drawn.items @ drawn.items.T > 0.5
    assert np.median(alike.sum(axis=1)) < 60 < alike.sum(axis=1).max()  # the largest clusters hold many
    scores = drawn.queries @ drawn.items.T
    assert np.median(scores.max(axis=1)) > 0.6  # of 4000 random vectors the nearest has about .45


def test_faiss_is_tuned_and_finds():
    pytest.importorskip("faiss")
    drawn = draw_clustered(3000, 1, 200, 16)
    truth = np.argsort(-(drawn.queries @ drawn.items.T), axis=1)[:, :10]
    recall = lambda index: np.mean([len(set(near) & set(best)) / 10
                                    for near, best in zip(index.search(drawn.queries, 10)[0], truth)])
    index = with_fewest_leaves(FaissIndex.build(drawn.items, 55, spherical=True), lambda tried: recall(tried) >= 0.9)
    fewest = index.parameters["leaves_to_search"]
    assert 1 < fewest < 55 and recall(index) >= 0.9
    assert recall(index.tuned(efforts.uniform(fewest - 1, 1))) < 0.9 and recall(index.tuned(efforts.uniform(55, 1))) == 1


@pytest.mark.slow
@pytest.mark.long
def test_all_of_it(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(retrieval_speed, "BATCHES", {1: 3, 256: 1})
    settings = dataclasses.replace(SMALL.benchmark, suite=("retrieval",), rounds=2, benchmark_items=20_000,
                                   json=str(tmp_path / "found.json"))
    benchmark.main(dataclasses.replace(SMALL, benchmark=settings, export=ExportConfig(target_recall=0.9)))
    found = json.loads((tmp_path / "found.json").read_text())
    of = found["retrieval"]["20k"]
    assert found["retrieval"]["2k"].keys() == of.keys() >= {"exact", "scann", "updated"}
    assert of["exact"]["recall_at_200"] == 1 and 0.88 < of["scann"]["recall_at_200"] <= 1
    assert of["updated"]["recall_at_200"] > of["scann"]["recall_at_200"] - 0.01
    assert of["updated"]["settings"]["fresh"] == of["updated"]["settings"]["withdrawn"] == 200
    assert {name for name in of if name.startswith("dial_at")} == {f"dial_at_{a}" for a in ("-0.25", "0", "0.5", "1", "1.25")}
    for alpha in ("-0.25", "0", "0.5", "1", "1.25"):  # whose index is tuned for all of them
        assert min(of[f"dial_at_{alpha}"]["recalls"].values()) > 0.85
    for name in of:
        assert of[name]["batch_1"]["calls"] == 6 and 0 < of[name]["batch_1"]["p50_ms"] <= of[name]["batch_1"]["p99_ms"]
        assert of[name]["batch_256"]["p50_ms"] > of[name]["batch_1"]["p50_ms"] and of[name]["build_s"] >= 0
    for name in ("filtered", "filtered_by_vectors"):
        assert set(of["scann"][name]) == {"50%", "10%", "1%", "0.1%"}
        assert of["scann"][name]["0.1%"]["recall"] == 1 and of["scann"][name]["50%"]["recall"] > 0.8
    assert found["ratios"]["exact_vs_scann_p50_20k_batch1"] > 0
    assert "recall_at_200_1M" not in found.get("figures", {})


def test_figures_are_of_a_million_items(monkeypatch):
    one = dict(recall_at_200=.96, batch_1=dict(p50_ms=.2))
    monkeypatch.setattr(retrieval_speed, "compare", lambda size, rounds, target: dict(
        scann=one, exact=dict(one, batch_1=dict(p50_ms=size / 1e6))))
    found = retrieval_speed.run(Config())
    assert found["figures"] == dict(recall_at_200_1M=.96, ann_p50_ms_1M_batch1=.2)
    assert found["ratios"] == dict(exact_vs_scann_p50_1M_batch1=5.0, exact_vs_scann_p50_100k_batch1=.5)


def test_without_faiss_the_rest_is_measured(monkeypatch, caplog):
    imported = builtins.__import__

    def without(name, *arguments, **keywords):
        if name == "faiss":
            raise ImportError("No module named 'faiss'")
        return imported(name, *arguments, **keywords)
    monkeypatch.setattr(builtins, "__import__", without)
    monkeypatch.setattr(retrieval_speed, "BATCHES", {1: 1})
    with caplog.at_level("INFO", logger="absl"):
        found = retrieval_speed.compare(1000, 1, 0.5)
    assert {name for name in found if not name.startswith("dial_at")} == {"exact", "scann", "updated"}
    assert "faiss is left out: this index needs the package faiss-cpu, which does not load (No module" in caplog.text
