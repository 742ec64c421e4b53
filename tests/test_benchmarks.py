"""The benchmarks' arithmetic, and every suite once in small. How fast anything is, no test says."""
import dataclasses
import json
import os
import signal

import numpy as np
import pytest
import tensorflow as tf

from clrec_tf import benchmark
from clrec_tf.config import BenchmarkConfig
from clrec_tf.config import Config
from clrec_tf.config import Paths
from clrec_tf.config import TrainConfig
from clrec_tf.errors import UserError
from clrec_tf.lab.benchmarks import bare_ops
from clrec_tf.lab.benchmarks import counts
from clrec_tf.lab.benchmarks import encoder_steps
from clrec_tf.lab.benchmarks import queue_steps
from clrec_tf.lab.benchmarks import suites
from clrec_tf.lab.benchmarks import timing
from clrec_tf.lab.benchmarks import training_memory
from clrec_tf.lab.benchmarks.workload import draw_batches
from clrec_tf.lab.benchmarks.workload import FEATURE_ROWS
from clrec_tf.lab.benchmarks.workload import GeneratedItems
from clrec_tf.lab.benchmarks.workload import SAMPLED_SOFTMAX
from clrec_tf.lab.benchmarks.workload import Trainer
from clrec_tf.lab import children
from clrec_tf.settings.registry import ENCODERS
from tests import small_run

WITHOUT_HEADS = Config(train=TrainConfig(batch_size=4),
                       benchmark=BenchmarkConfig(rounds=1, benchmark_items=2000, benchmark_histories=("2",))).but(
                           embedding_dim=8, max_history=3, queue_size=10, content_hidden=16)
SMALL = WITHOUT_HEADS.but(attention_heads=2)


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    return small_run.prepared(tmp_path_factory.mktemp("benchmark"))


def with_suites(*suites, **paths):
    settings = dataclasses.replace(SMALL.benchmark, suite=suites)
    return dataclasses.replace(SMALL, paths=Paths(**paths), benchmark=settings)


def test_sides_take_turns_and_ratios_are_of_the_same_round():
    called = []
    calls = {name: lambda name=name: called.append(name) or tf.constant(0) for name in "ab"}
    seconds = timing.take_turns(calls, 3)
    assert called == ["a", "b", "b", "a", "a", "b", "b", "a"] and [len(seconds[name]) for name in "ab"] == [3, 3]
    # Round by round 2, 4 and 8; the ratio of the medians would be 40/6.
    assert timing.ratio({"slow": [20.0, 40.0, 80.0], "fast": [10.0, 10.0, 10.0]}, "slow", "fast") == 4.0
    assert timing.ratio({"slow": [2.0, 40.0, 48.0], "fast": [1.0, 10.0, 6.0]}, "slow", "fast") == 4.0


def test_distinct_ids_of_each_variant():
    """Two rows, one click each, three steps that come round; a queue of three entries."""
    history, target = [[5, 5], [6, 1], [7, 8]], [[1, 2], [3, 3], [4, 1]]
    batches = dict(history=np.array(history).reshape(3, 2, 1, 1), target=np.array(target).reshape(3, 2, 1))
    cached, raw, sampled = (counts.distinct_ids(GeneratedItems(9), batches, kind, 3)
                            for kind in ("cached", "raw", SAMPLED_SOFTMAX))
    assert [step["encoded"].tolist() for step in cached] == [[1, 2, 5], [1, 3, 6], [1, 4, 7, 8]]
    # After step 0 the queue holds step 2's last target and both of step 0; and so on.
    assert [step["queued"].tolist() for step in raw] == [[1, 2], [2, 3], [1, 3, 4]]
    assert [step["encoded"].tolist() for step in raw] == [[1, 2, 5], [1, 2, 3, 6], [1, 3, 4, 7, 8]]
    for steps in (cached, raw):
        for step, targets, clicks in zip(steps, target, history):
            assert step["encoded"][step["places"]].tolist() == targets + clicks
    assert counts.encoded_items(GeneratedItems(9), batches, "raw", 3) == 4.0
    assert counts.encoded_items(GeneratedItems(9), batches, "cached", 3) == 10 / 3
    for step, targets, clicks in zip(sampled, target, history):
        assert set(step["encoded"]) == {*targets, *clicks, *step["queued"]} and 1 <= len(step["queued"]) <= 3
        assert set(step["candidates"]) == {*targets, *step["queued"]} and set(step["clicked"]) == set(clicks)


def test_products_of_a_step_by_hand():
    """B=4, T=3, d=8, H=2, attention width 32, Q=10; 11 items encoded, content 512 → 16 → 8."""
    def found(kind, candidates, **model):
        config = SMALL.but(**model)
        products = bare_ops.products(config, kind, 11, candidates, 512)
        return {p.name: (p.batch, p.m, p.k, p.n, p.backward) for p in products}

    content = {"content, first layer": (1, 11, 512, 16, 1), "content, last layer": (1, 11, 16, 8, 2)}
    tower = {"attention, first layer": (1, 12, 8, 32, 2), "attention, last layer": (1, 12, 32, 2, 2),
             "weighted sum of clicks": (4, 2, 3, 8, 2), "head aggregation, matrix": (1, 4, 8, 8, 2),
             "head aggregation, scores": (4, 2, 8, 1, 2)}
    batch = {"logits of the batch": (1, 4, 8, 4, 2)}
    assert found("cached", 10) == content | tower | batch | {"logits of the negatives": (1, 4, 8, 10, 1)}
    assert found("raw", 7) == content | tower | {"logits of the negatives": (1, 4, 8, 7, 2)}
    assert found("in_batch", 0, user_encoder="mean") == content | batch
    heads = {name: product for name, product in tower.items() if "head" not in name}
    assert found("in_batch", 0, head_aggregation="mean") == content | heads | batch
    for aggregation, joined in (("mean_mlp", 8), ("concat_mlp", 16)):
        assert found("in_batch", 0, head_aggregation=aggregation) == content | heads | batch | {
            "head aggregation, first layer": (1, 4, joined, 16, 2), "head aggregation, last layer": (1, 4, 16, 8, 2)}


def test_bare_operations_touch_what_they_list():
    items, tables = GeneratedItems(50, features=True), {}
    batches = draw_batches(items, SMALL, 3)
    bare = counts.bare_step(items, Trainer(items, SMALL), "cached", batches, tables)
    listed = bare.listed()
    assert [part["of"] for part in listed if part["operation"] == "scatter"] == [
        "item ids", *(f"feature_{i}" for i in range(6)), "queue"]
    assert {tuple(part["table"]) for part in listed if part["of"].startswith("feature")} == set(
        zip(FEATURE_ROWS, (2, 2, 1, 1, 1, 1)))
    for table in tables["item ids"]:
        table.assign(tf.ones_like(table))
    bare.call(1)()
    used = np.unique(np.concatenate([batches["history"][0, ..., 0].ravel(), batches["target"][0, :, 0]]))
    # Rows take their own values away from themselves; slots get what they had.
    assert np.flatnonzero(tables["item ids"][0].numpy()[:, 0] == 0).tolist() == used.tolist()
    assert listed[0]["rows"] == int(np.mean([len(np.unique(np.concatenate(
        [batches["history"][step, ..., 0].ravel(), batches["target"][step, :, 0]]))) for step in range(3)]))


@pytest.mark.parametrize("optimizer,tables", [("lazy_adam", 3), ("adagrad", 2)])
@pytest.mark.parametrize("user_encoder,operation", [("mean", "sum"), ("multi_att", "hand out")])
def test_bare_operations_are_those_of_the_settings(optimizer, tables, user_encoder, operation):
    items = GeneratedItems(2000, content=True)
    heads = dict(attention_heads=2) if user_encoder == "multi_att" else {}
    settings = WITHOUT_HEADS.but(user_encoder=user_encoder, optimizer=optimizer, **heads)
    batches = draw_batches(items, settings, 3)
    bare = counts.bare_step(items, Trainer(items, settings), "in_batch", batches, {})
    moved = [(part["operation"], part["of"], part["times"]) for part in bare.listed() if part["operation"] != "product"]
    assert moved == [("gather", "item ids", tables), (operation, "item ids", 1), ("scatter", "item ids", tables),
                     ("gather", "content", 1)]
    assert np.isfinite(bare.call(2)())


def test_the_peak_of_a_child_is_its_own():
    held = np.ones(100_000_000)  # 800 MB that the child does not have
    assert children.in_child(bytes_held, SMALL, 0) < children.in_child(bytes_held, SMALL, 400) - 300e6 < held.nbytes


def bytes_held(config, megabytes):
    del config
    held = np.ones(megabytes * 1_000_000 // 8)
    return children.peak_memory_bytes() + 0 * len(held)


def killed(config):
    del config
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_child_that_is_killed_is_named():
    with pytest.raises(UserError, match="was killed, .*--benchmark_items=2000"):
        children.in_child(killed, SMALL)


@pytest.mark.parametrize("draw", ["uniform", "zipf", "distinct"])
def test_drawn_batches(draw):
    items = GeneratedItems(1000, features=True, draw=draw)
    config = Config(train=TrainConfig(batch_size=32)).but(max_history=3)
    batches = draw_batches(items, config, 5)
    assert batches["history"].shape == (5, 32, 3, 7) and batches["target"].shape == (5, 32, 7)
    ids = np.concatenate([batches["history"][..., 0].reshape(5, -1), batches["target"][..., 0]], axis=1)
    assert ids.min() >= 1 and ids.max() <= 1000
    for column, rows in enumerate(FEATURE_ROWS, start=1):
        values = batches["history"][..., column]
        assert values.min() >= 1 and values.max() < rows
    rows = np.concatenate([batches[name].reshape(-1, 7) for name in ("history", "target")])
    by_id = {tuple(row) for row in rows}
    assert len(by_id) == len(np.unique(ids))  # a feature is a function of the id
    repeats = [len(row) - len(set(row)) for row in ids.tolist()]
    assert (max(repeats) == 0) == (draw == "distinct")
    assert (np.mean(ids <= 31) > .4) == (draw == "zipf")  # log 32 / log 1001 of the draws


@pytest.mark.slow
@pytest.mark.long
def test_training_suite_in_small(tmp_path, data_dir, monkeypatch):
    """In this process, where the code of a step is translated once; `test_losses_suite_in_small` has processes."""
    monkeypatch.setattr(queue_steps, "in_child", lambda function, config, *arguments: function(config, *arguments))
    settings = with_suites("training", data_dir=data_dir)
    path = tmp_path / "figures.json"
    benchmark.main(dataclasses.replace(settings, benchmark=dataclasses.replace(settings.benchmark, json=str(path))))
    found = json.loads(path.read_text())
    names = [f"cached_vs_raw_{name}_T{length}{of}" for name in ("costly", "costly_multi_att") for length in (2,)
             for of in ("", "_of_bound")]
    assert set(found["ratios"]) == set(names) | {
        "step_time_V2000_vs_V1000", "step_time_Q65536_vs_Q10", "step_time_vs_bare_ops", "input_vs_training",
        "training_from_files_vs_memory"}
    assert all(value > 0 for name, value in found["ratios"].items() if "of_bound" not in name)
    assert found["versions"]["tensorflow"] == tf.__version__ and found["device"]["cpus"] >= 1
    cases = {case["name"]: case for case in found["training"]["cases"]}
    assert len(cases) == 3 * 2 * 2
    case = cases["costly_T2_mean_uniform"]
    encoded = {kind: side["encoded_items"] for kind, side in case["variants"].items()}
    assert case["bound"] == pytest.approx(encoded["raw"] / encoded["cached"], rel=.01) and encoded["cached"] <= 12
    gained, possible = case["cached_vs_raw"] - 1, case["bound"] - 1
    # All three are rounded.
    assert case["of_bound"] * possible == pytest.approx(gained, abs=.002 * (2 + abs(case["of_bound"])))
    assert found["ratios"]["cached_vs_raw_costly_T2"] == case["cached_vs_raw"]
    assert {"gather", "sum", "product", "scatter"} == {
        part["operation"] for part in case["variants"]["cached"]["bare_operations"]}


def test_encoders_suite_in_small(monkeypatch):
    """Of two encoders, in this process. Beside the ids svdpp has as large a table, both have positions."""
    monkeypatch.setattr(encoder_steps, "in_child", lambda function, *arguments: function(*arguments))
    monkeypatch.setattr(ENCODERS, "names", lambda: ("mean", "svdpp"))
    found = suites.run_suites(dataclasses.replace(
        WITHOUT_HEADS, benchmark=dataclasses.replace(WITHOUT_HEADS.benchmark, suite=("encoders",))))
    cases = {case["user_encoder"]: case for case in found["encoders"]["cases"]}
    assert {name: case["parameters"] for name, case in cases.items()} == dict(mean=2 * 8, svdpp=2 * 8 + 2001 * 8)
    speed = [cases[name]["samples_per_s"] for name in ("svdpp", "mean")]
    assert list(found["ratios"]) == ["svdpp_vs_mean_T2"] and found["ratios"]["svdpp_vs_mean_T2"] == pytest.approx(
        speed[0] / speed[1], abs=1e-3)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.usefixtures("quick_children")
def test_losses_suite_in_small():
    found = suites.run_suites(with_suites("losses"))
    assert set(found["ratios"]) == {f"clrec_vs_sampled_softmax_{name}_T2{of}" for name in (
        "with_features", "without_features") for of in ("", "_of_bound")}
    cases = {case["name"]: case for case in found["losses"]["cases"]}
    assert len(cases) == 5
    sides = cases["with_features_T2_mean"]["sides"]
    more = sides["sampled_softmax"]["items_encoded"] / sides["clrec"]["items_encoded"]
    assert cases["with_features_T2_mean"]["bound"] == pytest.approx(more, rel=.01) and more > 1
    without = cases["without_features_T2_mean"]["sides"]
    # Without features on candidates both encode the same clicks, and differ in the ids they read.
    assert without["sampled_softmax"]["items_encoded"] == without["clrec"]["items_encoded"]
    assert without["sampled_softmax"]["id_rows_read"] > without["clrec"]["id_rows_read"]


def test_input_and_tfrs_suites_in_small(data_dir):
    found = suites.run_suites(with_suites("input", "tfrs", data_dir=data_dir))
    assert set(found["ratios"]) == {
        "input_vs_training", "training_from_files_vs_memory", "ours_vs_tfrs_mean50", "ours_vs_tfrs_mean50_lean",
        "ours_in_batch_vs_tfrs_mean50", "ours_in_batch_vs_tfrs_mean50_lean"}
    rates = found["tfrs"]["samples_per_s"]
    assert set(rates) == {"cached", "in_batch", "tfrs", "tfrs_lean"} and min(rates.values()) > 0
    for ours, side in (("ours", "cached"), ("ours_in_batch", "in_batch")):  # one round: its quotient is the median
        for name, theirs in (("mean50", "tfrs"), ("mean50_lean", "tfrs_lean")):
            assert found["ratios"][f"{ours}_vs_tfrs_{name}"] == pytest.approx(rates[side] / rates[theirs], abs=.01)


@pytest.mark.slow
@pytest.mark.long
def test_memory_suite_in_small(monkeypatch):
    monkeypatch.setattr(training_memory, "CATALOGUES", (1000, 200_000))
    found = training_memory.run(SMALL)
    assert found["table_and_slot_bytes"][200_000] == 3 * 4 * 200_001 * 8
    assert found["peak_memory_bytes"][1000] > 100e6 and set(found["ratios"]) == {"peak_memory_V2e5_vs_tables"}
