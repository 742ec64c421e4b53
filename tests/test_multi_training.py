"""Multi-CLRec on a small log: it learns, resumes bit for bit, and its queues and their figures are what was trained."""
import contextlib
import dataclasses
import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from clrec_tf.data.catalogue import read_catalogue
from clrec_tf.data.evaluation_set import EvaluationSet
from clrec_tf.models.encode import Encoder
from clrec_tf.training import loop
from clrec_tf.training.restore import load_trained
from clrec_tf.training.runtime import LocalRuntime
from clrec_tf.training.setup import set_up
from tests.local_cluster import queue_of
from tests.local_cluster import values
from tests import small_run
from tests.cases import in_ci
from tests.test_loss_training import assert_equal_checkpoints
from tests.test_loss_training import assert_falling

CAPACITY = small_run.SMALL_MODEL["queue_size"] // 2  # of each queue
# What learns the successor in a short time. It is of another category than the last click, so which vector to choose is
# learned first where the losses of routing weigh little, and after a click on its own category.
LEARNING = dict(st_mode="soft", position="forward", max_history=3, embedding_dim=16, residual=True, balance_weight=0.1,
                vector_weight=0.1)
LONG_TRAINING = dict(epochs=30, learning_rate=0.005, steps_per_call=70, log_every_steps=1000,
                     checkpoint_every_steps=1000)
INTENTS = small_run.SMALL_MULTI["num_intents"]


@pytest.fixture(scope="module", name="data_dir")
def fixture_data_dir(tmp_path_factory):
    return small_run.prepared(tmp_path_factory.mktemp("multi"), dwell_column="stayed")


def config(data_dir, workdir, model=None, **train_settings):
    return small_run.config(data_dir, workdir, model={**small_run.SMALL_MULTI, **(model or {})}, **train_settings)


@pytest.fixture(scope="module", name="whole", params=["raw", "cached"])
def fixture_whole(request, data_dir, tmp_path_factory):
    """Settings of a training of two epochs that was not interrupted, traced once, and kept all its checkpoints."""
    workdir, made = tmp_path_factory.mktemp(request.param) / "run", []
    settings = config(data_dir, workdir, dict(queue=request.param), time_dropout=0.2, keep_checkpoints=100)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "set_up", lambda *arguments: made.append(set_up(*arguments)) or made[0])
        assert small_run.run(settings) == 0
    assert made[0].call.function.experimental_get_tracing_count() == 1
    return settings


@contextlib.contextmanager
def eagerly():
    """Functions run as Python."""
    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(False)


def hit_rate(settings, length=3, k=3):
    """Share of items whose successor is among the k best after the `length` clicks that lead to them."""
    trained = load_trained(settings, "latest")
    catalogue = read_catalogue(settings.paths.data_dir, trained.schema, trained.manifest)
    rows = dict(zip(catalogue.original_ids, catalogue.item_rows))
    count = small_run.ITEMS
    histories = [[(last - back) % count + 1 for back in range(length, 0, -1)] for last in range(count)]
    clicks = np.array([rows[item] for history in histories for item in history])
    encoder = Encoder(trained.model, settings.model.max_history)
    users = encoder.user_vectors(EvaluationSet(
        np.arange(count), clicks[:, 0], np.arange(count + 1) * length, np.ones(count, int), np.arange(count + 1),
        history_features=clicks[:, 1:], history_times=np.tile(np.arange(length) * 400, count),
        request_times=np.full(count, length * 400)))
    best = np.argsort(-(users @ encoder.compared_items(catalogue.item_rows).T), axis=1)[:, :k]
    return np.mean([history[-1] % count + 1 in catalogue.original_ids[found]
                    for history, found in zip(histories, best)])


@pytest.mark.parametrize("queue", in_ci(["raw", "cached"], "cached"))
def test_a_planted_successor_is_retrieved(data_dir, tmp_path, queue):
    settings = config(data_dir, tmp_path, dict(queue=queue, **LEARNING), **LONG_TRAINING)
    assert small_run.run(settings) == 0
    assert hit_rate(settings) > 0.6  # by chance 0.1, with the next category known 0.3


def test_stopped_and_resumed_equals_uninterrupted_bit_for_bit(whole, tmp_path):
    # Killed after step 17: what is left is the checkpoint of step 10, in the middle of an epoch.
    losses = small_run.losses(whole.paths.workdir)
    rows = small_run.killed(whole.paths.workdir, tmp_path / "killed")
    marked = json.dumps({**json.loads(rows[2]), "loss": 123.0}) + "\n"  # a training from the start would replace it
    (tmp_path / "killed" / "metrics.jsonl").write_text("".join([*rows[:2], marked, *rows[3:17]]))
    before = values(tmp_path / "killed")
    assert queue_of(before, "intent_counts", 0).max() > 0 and queue_of(before, "intent_pushes", 0) == 10
    killed = config(whole.paths.data_dir, tmp_path / "killed", dict(queue=whole.objective.queue), time_dropout=0.2,
                    keep_checkpoints=100, steps_per_call=7)
    assert small_run.run(killed) == 0
    assert len(losses) > 50 and small_run.losses(tmp_path / "killed") == {**losses, 3: 123.0}
    assert_equal_checkpoints(whole.paths.workdir, tmp_path / "killed")


def test_queues_hold_each_click_once(whole, tmp_path):
    """Rows of weight 0, as in an epoch's last batch, are in none; the main queue has the latest, intents the others."""
    found, order, weights = values(whole.paths.workdir), [], []
    run = set_up(config(whole.paths.data_dir, tmp_path, time_dropout=0.2), LocalRuntime())
    for batch in run.dataset().as_numpy_iterator():
        weights.append(batch["weight"])
        order += batch["target"][batch["weight"] > 0].tolist()
    assert np.any(np.concatenate(weights) == 0) and len(weights) == queue_of(found, "intent_pushes", 0)
    main, counts = queue_of(found, "main_item", 0), queue_of(found, "intent_counts", 0)
    assert queue_of(found, "main_count", 0) == len(order)
    for place in range(len(order) - CAPACITY, len(order)):
        assert main[place % CAPACITY].tolist() == order[place]
    assert counts.sum() == len(order) - CAPACITY and counts.max() > CAPACITY
    own, left = queue_of(found, "intent_item", 0).reshape(INTENTS, CAPACITY, 2), set(map(tuple, order[:-CAPACITY]))
    for items, count in zip(own, counts):
        assert set(map(tuple, items[:count].tolist())) <= left and not items[count:].any()
    if whole.objective.queue == "cached":
        for name, fills in (("main_vector", np.array([CAPACITY])), ("intent_vector", counts)):
            vectors = queue_of(found, name, 0)
            norms = np.linalg.norm(vectors[:, :8], axis=1).reshape(-1, CAPACITY)
            directions = np.linalg.norm(vectors[:, 8:], axis=1).reshape(-1, CAPACITY)
            np.testing.assert_allclose(directions, norms * np.sqrt(.07 * 7), atol=1e-6)
            np.testing.assert_allclose(norms, np.arange(CAPACITY) < fills[:, None], atol=1e-6)


def test_figures_of_the_queues(whole):
    """Those of the last step from what the checkpoint holds, those before by what they cannot be."""
    found, workdir = values(whole.paths.workdir), pathlib.Path(whole.paths.workdir)
    rows = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    series = {name: np.array([row[f"queue_{name}"] for row in rows]) for name in (
        "fill", "duplicate_rate", "age", "intent_fill_min", "intent_fill_mean", "intent_age_max", "intent_share_min",
        "intent_share_max")}
    main, counts, pushes = (queue_of(found, name, 0) for name in ("main_item", "intent_counts", "intent_pushes"))
    fills = np.minimum(counts, CAPACITY)
    held = np.arange(CAPACITY) < fills[:, None]
    ages = pushes - queue_of(found, "intent_entered", 0).reshape(INTENTS, CAPACITY)
    model = load_trained(whole, "latest").model
    shares = np.bincount(model.route(tf.constant(main)).numpy(), minlength=INTENTS) / CAPACITY
    expected = dict(
        fill=CAPACITY, duplicate_rate=1 - len(set(main[:, 0])) / CAPACITY,
        age=pushes - queue_of(found, "main_entered", 0).min(), intent_fill_min=fills.min(),
        intent_fill_mean=fills.mean(), intent_age_max=ages[held].max(), intent_share_min=shares.min(),
        intent_share_max=shares.max())
    assert {name: values[-1] for name, values in series.items()} == pytest.approx(expected, abs=1e-6)
    assert series["fill"][:3].tolist() == [small_run.SMALL_TRAIN["batch_size"], CAPACITY, CAPACITY]
    assert series["age"].tolist() == [1] + [2] * (len(rows) - 1)  # a batch and a bit more
    assert series["intent_fill_mean"][0] == 0 and (np.diff(series["intent_fill_mean"]) >= 0).all()
    assert (np.diff(series["intent_fill_min"]) >= 0).all() and series["intent_age_max"][0] == 0
    assert (np.diff(series["intent_age_max"][1:]) <= 1).all() and series["intent_age_max"].max() > 10
    assert (series["intent_share_min"] <= 1 / INTENTS).all() and (series["intent_share_max"] >= 1 / INTENTS).all()


def test_eager_steps_have_the_losses_of_the_compiled_ones(whole, tmp_path):
    run = set_up(dataclasses.replace(whole, paths=dataclasses.replace(whole.paths, workdir=str(tmp_path))),
                 LocalRuntime())
    iterator = iter(run.dataset())
    with eagerly():
        found = [run.call(iterator, tf.constant(1, tf.int64))["loss"].numpy() for _ in range(4)]
    losses = small_run.losses(whole.paths.workdir)
    np.testing.assert_allclose(found, [losses[step] for step in range(1, 5)], rtol=1e-4)


def test_prefill_comes_before_the_first_step(data_dir, tmp_path):
    run = set_up(config(data_dir, tmp_path, dict(queue="cached", prefill_queue=True)), LocalRuntime())
    run.checkpoints.save()
    found = values(tmp_path)
    fills = np.minimum(queue_of(found, "intent_counts", 0), CAPACITY)
    categories = set(queue_of(found, "main_item", 0)[:, 1])
    # Each category of three goes to an intent; those that none is routed to stay empty.
    routed = set(run.model.route(tf.constant([[0, category] for category in categories], tf.int64)).numpy())
    assert queue_of(found, "main_count", 0) >= CAPACITY and len(categories) == 3
    assert [fill == CAPACITY for fill in fills] == [intent in routed for intent in range(INTENTS)]


def test_vectors_that_are_not_finite_never_enter(data_dir, tmp_path):
    """Items whose embedding is NaN: their steps are skipped, and neither they nor their vectors are kept."""
    run = set_up(config(data_dir, tmp_path, dict(queue="cached"), max_nonfinite_steps=10), LocalRuntime())
    table, spoilt = run.model.item_encoder.ids.table, list(range(1, 16))
    table.assign(tf.tensor_scatter_nd_update(table, [[item] for item in spoilt], tf.fill([15, 8], float("nan"))))
    with eagerly():
        result = run.call(iter(run.dataset()), tf.constant(6, tf.int64))
    run.checkpoints.save()
    found = values(tmp_path)
    items = np.concatenate([queue_of(found, name, 0)[:, 0] for name in ("main_item", "intent_item")])
    assert result["skipped"] == 6 and set(items) & set(range(16, 31)) and not set(items) & set(spoilt)
    for name in ("main_vector", "intent_vector"):
        assert np.isfinite(queue_of(found, name, 0)).all()
    assert 0 < queue_of(found, "main_count", 0) < 6 * 16


CASES = {
    "one_intent": (dict(num_intents=1, st_mode="literal", multi_objective="paper"), {}),
    "more_intents_than_categories": (dict(
        num_intents=9, queue="cached", product_dtype="bfloat16", residual=True, balance_items="unique",
        balance_hinge=True, routing_confidence=.95), {}),
    "sampled_softmax": ({}, dict(loss="sampled_softmax")),
    "bce": ({}, dict(loss="bce")),
    "ipw_over_full_softmax": ({}, dict(loss="ipw", propensity="category", propensity_data="clicks"))}


@pytest.mark.parametrize("case", CASES)
def test_learns(data_dir, tmp_path, case):
    model, loss = CASES[case]
    settings = config(data_dir, tmp_path, model, epochs=1, steps_per_call=28, checkpoint_every_steps=1000)
    assert small_run.run(settings.but(**loss)) == 0
    assert_falling(small_run.losses(tmp_path))
    with_queues = "queue_fill" in (tmp_path / "metrics.jsonl").read_text()
    assert with_queues == (not loss)
