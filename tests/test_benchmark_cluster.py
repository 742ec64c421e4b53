"""The benchmark of a cluster in small: real processes, counted bytes, and what is counted."""
import dataclasses
import os
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf

from clrec_tf.config import BenchmarkConfig
from clrec_tf.config import Config
from clrec_tf.config import TrainConfig
from clrec_tf.errors import ClusterError
from clrec_tf.errors import UserError
from clrec_tf.lab.benchmarks import cluster_traffic
from clrec_tf.lab.benchmarks.counts import distinct_ids
from clrec_tf.lab.benchmarks.drawn_feed import CountedFeed
from clrec_tf.lab.benchmarks.drawn_feed import DrawnFeed
from clrec_tf.lab.benchmarks import measured_cluster
from clrec_tf.lab.benchmarks import traffic
from clrec_tf.lab.benchmarks.workload import draw_batches
from clrec_tf.lab.benchmarks.workload import GeneratedItems
from clrec_tf.lab.benchmarks.workload import HISTORY_ONLY
from clrec_tf.lab.benchmarks.workload import SAMPLED_SOFTMAX
from clrec_tf.lab.benchmarks.workload import Trainer
from clrec_tf.training.cluster import own_network
from tests import forked

SMALL = Config(train=TrainConfig(batch_size=32, steps_per_call=2),
               benchmark=BenchmarkConfig(rounds=1, benchmark_items=2000, benchmark_histories=("3",))).but(
                   embedding_dim=16, max_history=3, queue_size=64, user_encoder="mean")


@pytest.mark.parametrize("draw", ["uniform", "zipf"])
def test_drawn_batches_are_those_of_the_workload(draw):
    items = GeneratedItems(1000, features=True, draw=draw)
    feed = DrawnFeed(items, SMALL)
    batch_of, steps = tf.function(lambda work: feed.open(work)[0](1))(tf.constant([4, 2], tf.int64)), 2
    batches = [{name: value.numpy() for name, value in feed.batch(step).items()} for step in range(40)]
    for name, value in batch_of.items():  # the second of two steps from the fourth on
        np.testing.assert_array_equal(value, batches[4 + steps - 1][name])
    for batch in batches:
        for rows in (batch["history"], batch["target"]):
            np.testing.assert_array_equal(rows, items.rows(rows[..., 0]))
    ids = np.concatenate([np.append(batch["history"][..., 0], batch["target"][:, 0]) for batch in batches])
    assert ids.min() == 1 and 950 < ids.max() <= 1000 and len(ids) == 40 * 32 * 4
    expected = items.chances()[:31].sum()  # .031, or .5
    assert np.mean(ids <= 31) == pytest.approx(expected, abs=4 * np.sqrt(expected / len(ids)))
    assert (batches[0]["history"] != batches[1]["history"]).any()


def test_steps_are_handed_out_once_and_up_to_the_limit():
    feed = CountedFeed()
    feed.limit = 5
    taken = [feed.next(worker, 2) for worker in (0, 1, 0, 1)]
    assert [steps for steps, _ in taken] == [2, 2, 1, 0]
    assert [work.numpy().tolist() for _, (work,) in taken] == [[0, 2], [2, 2], [4, 1], [5, 0]]


@pytest.mark.parametrize("user_encoder", ["mean", "multi_att"])
def test_the_loss_of_histories_reads_no_target(user_encoder):
    items = GeneratedItems(50, features=True)
    config = SMALL.but(user_encoder=user_encoder, **(dict(attention_heads=2) if user_encoder == "multi_att" else {}))
    feed = DrawnFeed(items, config)
    batch = feed.batch(tf.constant(0, tf.int64))
    clicked = np.unique(batch["history"][..., 0])
    trainer = Trainer(items, config, (HISTORY_ONLY, "cached"), open_feed=feed.open)
    table, unread = trainer.model.item_encoder.ids.table, np.setdiff1d(np.arange(51), clicked)
    for kind, moved in ((HISTORY_ONLY, False), ("cached", True)):
        before = table.numpy()
        trainer.calls[kind](tf.constant([0, 1], tf.int64))
        change = np.abs(table.numpy() - before).max(axis=1)
        assert (change[clicked] > 0).all() and (change[unread] > 0).any() == moved


def test_what_has_to_move_by_hand():
    """12 clicks and 4 targets, all distinct: 16 numbers of 4 bytes each, and 4 for the row's own number, both ways."""
    items, featured = GeneratedItems(50, draw="distinct"), GeneratedItems(50, features=True, draw="distinct")
    config = dataclasses.replace(SMALL, train=dataclasses.replace(SMALL.train, batch_size=4))
    model = Trainer(featured, config).model
    counted = {kind: traffic.row_bytes(Trainer(items, config).model, items, config, kind)
               for kind in ("cached", HISTORY_ONLY)}
    assert counted == {"cached": dict(rows=2 * 4 * 16 * 16, row_numbers=2 * 4 * 16),
                       HISTORY_ONLY: dict(rows=2 * 4 * 16 * 12, row_numbers=2 * 4 * 12)}
    one_table = config.but(candidate_features=False)
    more = {kind: traffic.row_bytes(model, featured, changed, "cached")["row_numbers"]
            for kind, changed in (("all", config), ("clicks", one_table))}
    clicked = [featured.rows(step["clicked"]) for step in distinct_ids(featured, draw_batches(featured, config, 10),
                                                                       "cached", config.loss.queue_size)]
    features = sum(len(np.unique(rows[:, column])) for rows in clicked for column in range(1, 7)) / 10
    assert more["clicks"] == round(2 * 4 * (16 + features)) < more["all"]
    assert traffic.dense_bytes(model) == 2 * 4 * 3 * 16  # the positions are all that the mean tower has


@pytest.mark.cluster
@pytest.mark.long
def test_suite_in_small(monkeypatch):
    monkeypatch.setattr(cluster_traffic, "ENCODERS", {name: cluster_traffic.ENCODERS[name] for name in ("with_features",)})
    monkeypatch.setattr(cluster_traffic, "COUNTED_WORKERS", (2,))
    monkeypatch.setattr(cluster_traffic, "CALLS", 30)
    monkeypatch.setattr(cluster_traffic, "SERVERS", 1)
    monkeypatch.setattr(cluster_traffic, "DRAWS", ("uniform",))
    found = cluster_traffic.run(SMALL)
    name = "sampled_softmax_vs_clrec_with_features_T3"
    assert set(found["ratios"]) == {f"bytes_{name}", f"negative_bytes_{name}", "bytes_cached_vs_in_batch",
                                    "coordinator_calls_per_second_2_workers", "two_workers_vs_one",
                                    "server_memory_vs_formula"}
    assert all(np.isfinite(value) and value > 0 for value in found["ratios"].values())
    assert .95 <= found["ratios"]["bytes_cached_vs_in_batch"] <= 1.05
    assert found["ratios"][f"negative_bytes_{name}"] > found["ratios"][f"bytes_{name}"] > 1
    kinds = found["cases"][0]["kinds"]
    for kind, of in kinds.items():
        # Headers and small messages are all that comes on top; whole tables, or slots, would be many times that.
        least = sum(of["has_to_move_per_step"].values())
        assert least < of["bytes_per_step"] < least + 60_000, kind
    assert kinds[HISTORY_ONLY]["bytes_per_step"] < kinds["cached"]["bytes_per_step"]
    assert kinds[SAMPLED_SOFTMAX]["bytes_per_step"] > kinds["cached"]["bytes_per_step"]


@pytest.mark.long
@pytest.mark.cluster
def test_errors_come_back_and_roles_end_with_the_context():
    with pytest.raises(KeyboardInterrupt), measured_cluster.MeasuredCluster(SMALL, 1, 1) as running:
        with pytest.raises(UserError, match="^for a person: 1$"):
            running.call(refuse)
        with pytest.raises(RuntimeError, match=r"(?s)in refuse_nothing\b.*ZeroDivisionError"):
            running.call(refuse_nothing)
        assert len(members(running.group)) == 3
        os.kill(running.group, signal.SIGKILL)  # the chief, without a word
        with pytest.raises(ClusterError, match="chief of a measured cluster is gone"):
            running.call(refuse)
        raise KeyboardInterrupt
    assert_gone(running.group)


@pytest.mark.long
@pytest.mark.cluster
def test_roles_end_with_a_process_that_is_killed():
    """Also while the chief is busy and does not listen."""
    code = ("from tests import test_benchmark_cluster as t\n"
            "with t.measured_cluster.MeasuredCluster(t.SMALL, 1, 1) as running:\n"
            "    print(running.group, flush=True)\n"
            "    running.call(t.stand)")
    with forked.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True,
                      cwd=pathlib.Path(__file__).parents[1]) as measuring:
        group = int(measuring.stdout.readline())
        assert len(members(group)) == 3
        time.sleep(1)
        measuring.kill()
    assert_gone(group)


def refuse(session):
    raise UserError(f"for a person: {session.runtime.num_workers}")


def stand(session):
    time.sleep(600 * session.runtime.num_workers)


def refuse_nothing(session):
    return session.runtime.num_workers / 0


def members(group):
    return subprocess.run(["pgrep", "-g", str(group)], capture_output=True, text=True, check=False).stdout.split()


def assert_gone(group):
    end = time.monotonic() + 10
    while members(group) and time.monotonic() < end:
        time.sleep(.1)
    assert not members(group)


def test_where_there_is_no_network_of_its_own_it_is_said(monkeypatch):
    own_network.own_network.cache_clear()
    monkeypatch.setattr(own_network.shutil, "which", lambda name: None if name == "unshare" else f"/bin/{name}")
    assert own_network.own_network()[0] == []
    assert measured_cluster.network() == ("this machine's loopback with whatever else uses it, since there is no "
                                          "command unshare")
    own_network.own_network.cache_clear()
    monkeypatch.setattr(measured_cluster, "COUNTERS", "/nowhere")
    with pytest.raises(UserError, match="read from /nowhere"):
        measured_cluster.loopback_bytes()
