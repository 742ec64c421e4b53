"""What a cluster of processes trains: the same as one process, every record once, and checkpoints for any cluster."""
import dataclasses
import json
import pathlib
import shutil

import numpy as np
import pytest

from clrec_tf.evaluate import evaluate
from clrec_tf.export import export
from clrec_tf.training.checkpoints import find_checkpoint
from clrec_tf.training.restore import load_trained
from clrec_tf.training.runtime import LocalRuntime
from clrec_tf.training.setup import set_up
from tests.local_cluster import LocalCluster
from tests.local_cluster import progress_of
from tests.local_cluster import queue_of
from tests.local_cluster import SAVING_AGAIN
from tests.local_cluster import TELLING
from tests.local_cluster import values
from tests.prepared_data import prepare_text
from tests import query_world
from tests import small_run
from tests.test_input_pipeline import expected_rows

pytestmark = pytest.mark.cluster

WIDE = dict(embedding_dim=64, user_encoder="mean")  # tables of several shards of a kilobyte


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    return small_run.prepared(tmp_path_factory.mktemp("training"))


def started(data_dir, tmp_path_factory, **counts):
    """Workers and parameter servers that stay, for one chief after the other."""
    with LocalCluster(tmp_path_factory.mktemp("logs"), dict(data_dir=data_dir, chief_gone_s=0), **counts) as cluster:
        yield cluster.start_servers()


@pytest.fixture(scope="module")
def one_worker(data_dir, tmp_path_factory):
    yield from started(data_dir, tmp_path_factory, workers=1, servers=2)


@pytest.fixture(scope="module")
def two_workers(data_dir, tmp_path_factory):
    yield from started(data_dir, tmp_path_factory, workers=2, servers=2)


def assert_same(one: dict, other: dict):
    """All values are equal; save counters count savings."""
    assert one.keys() == other.keys()
    for name, value in one.items():
        if "save_counter" not in name:
            np.testing.assert_equal(other[name], value, err_msg=name)


@pytest.mark.parametrize("settings", [
    dict(model=dict(queue="cached", pretext="u2u", u2u_queue_size=40, momentum_encoder=.99)),
    dict(model=dict(queue="raw", gradient_dtype="bfloat16")), dict(model=dict(queue="in_batch", user_encoder="svdpp")),
    dict(loss=dict(loss="sampled_softmax", num_negatives=20)),
], ids=["cached, keys and u2u", "raw, rounded gradients", "in_batch of two tables", "sampled_softmax"])
def test_one_worker_trains_what_one_process_trains(data_dir, one_worker, tmp_path, settings):
    assert_agrees_with_one_process(data_dir, one_worker, tmp_path, {**WIDE, **settings.get("model", {})},
                                   settings.get("loss", {}), {})
    told = one_worker.told()
    assert told["traces"] == 1
    assert all("/job:ps/" in device for devices in told["devices"].values() for device in devices)
    servers = [{device.split("/task:")[1][0] for device in devices} for devices in told["devices"].values()]
    assert {"0", "1"} in servers  # a table is in shards


def test_features_of_users_and_requests_train_as_in_one_process(one_worker, tmp_path):
    """With negatives of the row's own context, and hidden histories; dense layers are not in shards, whose initial values would be
    others."""
    settings = dict(WIDE, queue="cached", debias_context="country", history_dropout=.2)
    folder = query_world.prepared(tmp_path)
    assert_agrees_with_one_process(folder, one_worker, tmp_path, settings, {}, dict(data_dir=folder, shard_rows=10_000))


@pytest.mark.parametrize("queue", ["raw", "cached"])
def test_workers_begin_with_the_queue_that_the_chief_has_filled(data_dir, one_worker, tmp_path, queue):
    settings = dict(model=dict(queue=queue, prefill_queue=True, user_encoder="mean"), epochs=1, time_dropout=0.2)
    assert small_run.run(small_run.config(data_dir, tmp_path / "local", **settings)) == 0
    assert one_worker.chief(workdir=tmp_path / "cluster", epochs=1, time_dropout=0.2, **settings["model"]) == 0
    first = json.loads((tmp_path / "cluster/metrics.jsonl").read_text().splitlines()[0])
    assert first["step"] == 1 and first["queue_fill"] == small_run.SMALL_MODEL["queue_size"]
    expected, found = small_run.losses(tmp_path / "local"), small_run.losses(tmp_path / "cluster")
    np.testing.assert_allclose(list(found.values()), list(expected.values()), rtol=2e-5)


def test_one_worker_trains_the_attention_that_one_process_trains(data_dir, one_worker, tmp_path):
    assert_agrees_with_one_process(data_dir, one_worker, tmp_path, {}, {}, dict(shard_rows=10_000))


def assert_agrees_with_one_process(data_dir, cluster, folder, model, loss, settings):
    """Checks that all losses are equal but for the order of sums."""
    config = small_run.config(data_dir, folder / "local", model=model, time_dropout=0.2)
    assert small_run.run(config.but(**loss)) == 0
    assert cluster.chief(workdir=folder / "cluster", code=TELLING, time_dropout=0.2, **model, **loss, **settings) == 0
    expected, found = small_run.losses(folder / "local"), small_run.losses(folder / "cluster")
    assert len(expected) > 30 and found.keys() == expected.keys()
    np.testing.assert_allclose(list(found.values()), list(expected.values()), rtol=2e-5)


def test_two_workers_train_every_record_of_an_epoch_once(data_dir, two_workers, tmp_path):
    # Queues that hold everything a worker trains: together they tell what was trained.
    assert two_workers.chief(workdir=tmp_path, epochs=1, queue="raw", queue_size=2000, steps_per_call=2) == 0
    found = values(tmp_path)
    counts = [int(queue_of(found, "count", worker)) for worker in (0, 1)]
    items = [queue_of(found, "item", worker)[:count, 0] for worker, count in zip((0, 1), counts)]
    assert sorted(np.concatenate(items).tolist()) == sorted(row[2][0] for row in expected_rows(data_dir, "sliding"))
    assert min(counts) > 0
    progress = progress_of(found)
    assert progress["step"] == max(small_run.losses(tmp_path)) and progress["repeated_steps"] == 0


def test_two_asynchronous_workers_learn_as_well_as_one_process(data_dir, two_workers, tmp_path):
    settings = dict(epochs=15, learning_rate=0.03, validate_every=15.0, validation_metric="ndcg@5/full",
                    log_every_steps=100, checkpoint_every_steps=1000, steps_per_call=2)
    model = dict(user_encoder="mean", max_history=2)

    def metric(workdir):
        rows = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
        return rows[-1]["valid/ndcg@5/full"]

    local = []
    for seed in range(3):
        config = small_run.config(data_dir, tmp_path / str(seed), seed=seed, model=model, **settings)
        assert small_run.run(config) == 0
        local.append(metric(tmp_path / str(seed)))
    assert two_workers.chief(workdir=tmp_path / "cluster", **model, **settings) == 0
    found = metric(tmp_path / "cluster")
    spread = max(max(local) - min(local), 0.05)
    assert min(local) > 0.4  # learned: by chance 0.1
    assert min(local) - spread <= found <= max(local) + spread
    # The chief validates with variables on parameter servers; the same checkpoint without a cluster gives the same.
    config = small_run.config(data_dir, tmp_path / "cluster")
    config = dataclasses.replace(config, evaluate=dataclasses.replace(
        config.evaluate, eval_split="valid", ks=("5",), candidate_sets=("full",), eval_checkpoint="latest"))
    assert evaluate(config)["ndcg@5/full"] == pytest.approx(found, abs=1e-6)


MULTI = small_run.SMALL_MULTI


@pytest.mark.parametrize("model, shard_rows", [
    pytest.param(dict(queue="raw", time_embedding="none", attention_hidden=16), 30, marks=pytest.mark.long),
    (dict(queue="cached"), 10_000)], ids=["raw", "cached"])
def test_multi_clrec_trains_as_in_one_process(data_dir, one_worker, tmp_path, model, shard_rows):
    """Where item ids are in shards, and all that dense layers read is not, since its initial values would be others."""
    assert_agrees_with_one_process(data_dir, one_worker, tmp_path, {**MULTI, **model}, {}, dict(shard_rows=shard_rows))
    told = one_worker.told()
    assert told["traces"] == 1
    shards = [device.split("/task:")[1][0] for device in told["devices"].get("table", [])]  # others are "table:0"
    assert shards == (["0", "1"] if shard_rows == 30 else [])
    one, other = values(tmp_path / "local"), values(tmp_path / "cluster")
    for part in ("main_item", "main_count", "intent_pushes", "intent_counts", "intent_item", "intent_entered"):
        np.testing.assert_array_equal(queue_of(other, part, 0), queue_of(one, part, 0), err_msg=part)


def test_multi_clrec_has_queues_for_each_worker_that_go_on_with_the_next_chief(data_dir, two_workers, tmp_path):
    settings = dict(workdir=tmp_path, steps_per_call=2, **MULTI)
    assert two_workers.chief(epochs=1, **settings) == 0
    examples = len(list(expected_rows(data_dir, "sliding")))
    first, losses = values(tmp_path), small_run.losses(tmp_path)
    counts, pushes, left = ([queue_of(first, part, worker) for worker in (0, 1)]
                            for part in ("main_count", "intent_pushes", "intent_counts"))
    assert sum(counts) == examples and min(counts) > 20 and sum(pushes) == max(losses)
    assert [own.sum() for own in left] == [count - 20 for count in counts]  # the main queue holds half of 40
    assert not np.array_equal(*(queue_of(first, "main_item", worker) for worker in (0, 1)))
    assert two_workers.chief(epochs=4, **settings) == 0
    last, losses = values(tmp_path), small_run.losses(tmp_path)
    goes_on(tmp_path, max(losses) // 4, 4)
    assert sum(queue_of(last, "main_count", worker) for worker in (0, 1)) == 4 * examples
    for worker in (0, 1):
        assert queue_of(last, "main_count", worker) > counts[worker]
        assert queue_of(last, "intent_pushes", worker) > pushes[worker]
    assert np.mean([losses[step] for step in sorted(losses)[-8:]]) < losses[1] - 1


@pytest.fixture(scope="module")
def trained(data_dir, two_workers, tmp_path_factory):
    """The workdir of an epoch on two workers and two parameter servers."""
    workdir = tmp_path_factory.mktemp("trained") / "run"
    assert two_workers.chief(workdir=workdir, epochs=1, queue="raw", queue_size=100, **WIDE) == 0
    return workdir


def goes_on(workdir, epoch: int, epochs: int):
    """Checks that the training went on where it was, to its end."""
    steps = sorted(small_run.losses(workdir))
    assert steps == list(range(1, epoch * epochs + 1))
    assert find_checkpoint(str(workdir), "latest").endswith(f"step-{epoch * epochs}")


RESTORED = dict(epochs=1, queue="raw", queue_size=100, **WIDE)


def test_a_checkpoint_of_two_parameter_servers_serves_three_and_three_workers(data_dir, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "run")
    before, epoch = values(trained), max(small_run.losses(trained))
    with LocalCluster(tmp_path / "logs", dict(data_dir=data_dir), workers=3, servers=3) as cluster:
        cluster.start_servers()
        assert cluster.chief(workdir=tmp_path / "run", code=SAVING_AGAIN, **RESTORED) == 0
        assert len(list((tmp_path / "run" / "checkpoints").glob(f"step-{epoch}.data-*-of-00004"))) > 2
        after = values(tmp_path / "run")
        third = {name: value for name, value in after.items() if name.endswith("/2")}
        assert queue_of(third, "count", 2) == 0  # a worker more begins with an empty queue
        assert_same(before, {name: value for name, value in after.items() if name not in third})
        cluster.start("chief", workdir=tmp_path / "run", **{**RESTORED, "epochs": 2})
        assert cluster.ended("chief") == 0
    goes_on(tmp_path / "run", epoch, 2)
    counts = [int(queue_of(values(tmp_path / "run"), "count", worker)) for worker in range(3)]
    assert sum(counts) == 2 * len(list(expected_rows(data_dir, "sliding")))
    assert all(counts[worker] >= queue_of(before, "count", worker) for worker in (0, 1))


def test_a_run_on_grown_data_begins_alike_on_any_cluster(data_dir, trained, tmp_path):
    """What a run of two parameter servers has learned, by --init_from in one process and on three servers."""
    text = small_run.click_log(1, items=small_run.ITEMS + 9).replace("6000", "6001")  # days later
    grown = prepare_text(tmp_path, text, shard_records=16, feature_columns=("category",), vocabulary_from=data_dir)
    model = {name: value for name, value in RESTORED.items() if name != "epochs"}
    run = set_up(small_run.config(grown, tmp_path / "local", model=model, init_from=str(trained)), LocalRuntime())
    run.checkpoints.save()
    with LocalCluster(tmp_path / "logs", dict(data_dir=grown), workers=2, servers=3) as cluster:
        cluster.start_servers()
        assert cluster.chief(workdir=tmp_path / "cluster", code=SAVING_AGAIN, init_from=trained, **RESTORED) == 0
    found, before = values(tmp_path / "cluster"), values(trained)
    table = "model/item_encoder/ids/table/.ATTRIBUTES/VARIABLE_VALUE"
    assert len(found[table]) == len(before[table]) + 9
    np.testing.assert_array_equal(found[table][:len(before[table])], before[table])
    assert_same(values(tmp_path / "local"), found)


def test_a_checkpoint_of_two_workers_serves_one(data_dir, one_worker, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "run")
    before, epoch = values(trained), max(small_run.losses(trained))
    assert one_worker.chief(workdir=tmp_path / "run", **{**RESTORED, "epochs": 2}) == 0
    goes_on(tmp_path / "run", epoch, 2)
    after, examples = values(tmp_path / "run"), len(list(expected_rows(data_dir, "sliding")))
    assert queue_of(after, "count", 0) == queue_of(before, "count", 0) + examples
    assert queue_of(after, "count", 1) == queue_of(before, "count", 1)  # kept for when the worker is back


def test_a_checkpoint_of_a_cluster_serves_one_process(data_dir, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "run")
    before, epoch = values(trained), max(small_run.losses(trained))
    model = {name: value for name, value in RESTORED.items() if name != "epochs"}
    run = set_up(small_run.config(data_dir, tmp_path / "run", model=model, epochs=1), LocalRuntime())
    run.checkpoints.save()
    assert_same(before, values(tmp_path / "run"))
    assert any("iter" in name and value == epoch for name, value in before.items())
    assert small_run.run(small_run.config(data_dir, tmp_path / "run", model=model, epochs=2)) == 0
    goes_on(tmp_path / "run", epoch, 2)


def test_a_model_of_a_cluster_is_evaluated_and_exported_without_one(data_dir, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "run")
    config = small_run.config(data_dir, tmp_path / "run")
    restored = load_trained(config, "latest").model
    before, table = values(trained), restored.item_encoder.ids.table.numpy()
    assert any(value.shape == table.shape and np.array_equal(value, table) for name, value in before.items()
               if name.startswith("model/") and ".OPTIMIZER_SLOT" not in name)
    metrics = evaluate(dataclasses.replace(config, evaluate=dataclasses.replace(config.evaluate, ks=("5",))))
    assert 0 < metrics["ndcg@5/full"] <= 1 and (tmp_path / "run" / "metrics.json").exists()
    config = dataclasses.replace(config, export=dataclasses.replace(config.export, index="exact", recall_k=5))
    folder = pathlib.Path(export(config))  # which compares the saved model with the live one
    assert list(folder.rglob("saved_model.pb"))
