"""A training that has collapsed is noticed, whichever way it did, and a sound one is left in peace."""
import dataclasses
import json
import math
import os

import numpy as np
import pytest
import tensorflow as tf

from clrec_tf.config import TrainConfig
from clrec_tf.errors import UserError
from clrec_tf.evaluate import evaluate
from clrec_tf.export import export
from clrec_tf.objectives.contrastive import build_variant
from clrec_tf.training.collapse import check_variables
from clrec_tf.training.collapse import CollapseWatch
from clrec_tf.training import loop
from clrec_tf.training.progress import Progress
from clrec_tf.training.runtime import LocalRuntime
from clrec_tf.training.setup import set_up
from tests.naive_queue import make_batch
from tests.naive_queue import tiny_model
from tests import small_run
from tests.test_step import Trainer

FAR = 1e30  # a learning rate whose first step throws all vectors away


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    return small_run.prepared(tmp_path_factory.mktemp("collapse"))


@pytest.mark.parametrize("model, loss", [
    (dict(queue="cached"), {}), (dict(queue="raw"), {}), (dict(queue="in_batch"), {}),
    ({}, dict(loss="sampled_softmax")), ({}, dict(loss="bce"))])
def test_training_stops_where_nothing_is_learned_any_more(data_dir, tmp_path, model, loss):
    settings = small_run.config(data_dir, tmp_path, model=model, learning_rate=FAR, checkpoint_every_steps=1000)
    settings = settings.but(**loss)
    with pytest.raises(UserError, match="training has collapsed: the gradient was exactly 0 in the last 2. steps"):
        small_run.run(settings)
    assert max(small_run.losses(tmp_path)) < 40  # of over 60, and none was kept
    assert not os.path.exists(tmp_path / "checkpoints")


def test_a_training_shorter_than_the_limit_does_not_end_well_either(data_dir, tmp_path):
    settings = small_run.config(data_dir, tmp_path, learning_rate=FAR, epochs=1, batch_size=40, validate_every=0.5,
                                checkpoint_every_steps=1000)
    with pytest.raises(UserError, match=r"exactly 0 in the last (\d|1\d) steps .*lower --learning_rate"):
        small_run.run(settings)
    assert not os.path.exists(tmp_path / "checkpoints")


def test_dense_vectors_whose_squares_overflow_are_noticed(tmp_path):
    vectors = np.random.default_rng(0).normal(size=(small_run.ITEMS, 4)) * 1e30
    np.savez(tmp_path / "dense.npz", ids=np.arange(1, small_run.ITEMS + 1).astype(str), vectors=vectors)
    folder = small_run.prepared(tmp_path, dense_features=str(tmp_path / "dense.npz"))
    with pytest.raises(UserError, match="training has collapsed.*extreme values in features and dense vectors"):
        small_run.run(small_run.config(folder, tmp_path / "run"))


def test_a_collapse_that_was_allowed_is_told_by_training_evaluation_and_export(data_dir, tmp_path, caplog, capsys):
    settings = small_run.config(data_dir, tmp_path, learning_rate=FAR, max_zero_gradient_steps=0)
    with caplog.at_level("WARNING"):
        assert small_run.run(settings) == 0
    last = max(small_run.losses(tmp_path))
    flat = f"{math.log(40):.4f}, is that of equal scores for all candidates"  # a full queue of 40
    assert f"at step {last} the loss, {flat}" in caplog.text and caplog.text.count(flat) == 2

    warnings = evaluate(settings)["warnings"]
    assert "the same list for everybody: all 60 users tried have the same vector" in warnings[0]
    assert f"warning: {warnings[0]}" in capsys.readouterr().out
    assert json.loads((tmp_path / "metrics.json").read_text())["warnings"] == warnings

    with pytest.raises(UserError, match="gives the same list to everybody: all 60 users.*--allow_constant_lists"):
        export(settings)
    assert not os.path.exists(tmp_path / "export")
    allowed = dataclasses.replace(settings, export=dataclasses.replace(settings.export, allow_constant_lists=True))
    with caplog.at_level("WARNING"):
        assert export(allowed) == str(tmp_path / "export" / "1")
    assert "which --allow_constant_lists allows" in caplog.text


@pytest.mark.parametrize("train", [dict(epochs=6), dict(epochs=1, warmup_steps=1000, learning_rate=1e-9)])
def test_a_sound_training_meets_no_warning(data_dir, tmp_path, caplog, train):
    settings = small_run.config(data_dir, tmp_path, **train)
    with caplog.at_level("WARNING"):
        assert small_run.run(settings) == 0
    assert "equal scores" not in caplog.text
    if train["epochs"] > 1:
        assert evaluate(settings)["warnings"] == []
        assert export(settings)


def test_a_loss_that_ends_above_chance_is_told(data_dir, tmp_path, caplog):
    with caplog.at_level("WARNING"):
        small_run.run(small_run.config(data_dir, tmp_path, learning_rate=1e-9, epochs=1))
    assert f"above the {math.log(40):.4f} of equal scores for all candidates" in caplog.text


@pytest.mark.parametrize("kind, expected", [
    ("in_batch", (4, 3, 4)), ("raw", (4, 7, 8)), ("cached", (4, 7, 8))])  # a queue of 8 that fills
def test_chance_is_the_log_of_the_candidates_that_there_are(kind, expected):
    variant = build_variant(kind, tiny_model(), 8, False, LocalRuntime().local_variable)
    for candidates, weights in zip(expected, ([1.0] * 4, [1.0, 0.0, 2.0, 1.0], [1.0] * 4)):
        batch, opened = make_batch([6, 7, 8, 9], weights=weights), variant.open()
        opened.loss(batch)
        assert float(opened.chance_loss(batch)) == pytest.approx(math.log(candidates))
    model = tiny_model()
    model.item_encoder.ids.table.assign(tf.ones_like(model.item_encoder.ids.table))  # all scores of a row are equal
    masked, batch = build_variant(kind, model, 8, True, LocalRuntime().local_variable).open(), make_batch([6, 7, 8, 9])
    for _ in range(3):
        loss = float(masked.loss(batch))
        assert float(masked.chance_loss(batch)) == pytest.approx(loss, abs=1e-5)  # rows differ in their candidates


def test_zero_gradients_of_steps_are_counted():
    """Equal targets have equal scores, whoever is asked: then nothing is learned. Nor is from empty histories."""
    learns = make_batch([6, 7, 8, 9], histories=[[2, 3], [4, 0], [5, 2], [3, 0]])
    flat, empty = make_batch([6] * 4), make_batch([6, 7, 8, 9], histories=[[0, 0]] * 4)
    for batches, judged, trailing in (((learns, flat, flat), 3, 2), ((flat, learns), 2, 0), ((flat, empty, flat), 2, 2),
                                      ((empty, empty), 0, 0)):
        found = Trainer(kind="in_batch").run(*batches)
        assert (found["judged"], found["trailing_zero_gradients"]) == (judged, trailing)
        assert found["trained"] == len(batches)


def result(judged, trailing):
    return dict(judged=judged, trailing_zero_gradients=trailing, trained=10, loss=10.0, chance_loss=20.0)


def watched(calls, limit=20, items=9, steps=1000, first_step=0):
    """Calls of 10 steps each, as (steps judged, trailing zero gradients)."""
    progress = Progress(step=first_step)
    watch = CollapseWatch(TrainConfig(max_zero_gradient_steps=limit), items, first_step, [steps])
    for judged, trailing in calls:
        progress.step += 10
        watch.add(progress, result(judged, trailing))
    return progress.zero_gradients


def test_zero_gradients_are_counted_across_calls():
    assert watched([(10, 10), (10, 7)]) == 7  # the run was broken in the second
    assert watched([(10, 4), (10, 10), (0, 0)]) == 14  # steps that were left out say nothing
    assert watched([(10, 10), (10, 10)]) == 20
    with pytest.raises(UserError, match="in the last 21 steps before step 40 "):
        watched([(10, 0), (10, 1), (10, 10), (10, 10)])
    assert watched([(10, 10)] * 5, limit=0) == 50
    assert watched([(10, 10)] * 5, items=1) == 50  # nothing to tell apart, and nothing to learn
    assert watched([(10, 4)], steps=10) == 4
    with pytest.raises(UserError, match="in the last 5 steps before step 10 "):
        watched([(10, 5)], steps=10)


def test_values_that_are_not_finite_are_not_saved():
    model = tiny_model()
    check_variables(model)
    table = model.item_encoder.ids.table
    table.assign(tf.tensor_scatter_nd_update(table, [[1, 0], [2, 0]], [math.inf, math.nan]))
    with pytest.raises(UserError, match=f"collapsed: 2 values of {table.name} are NaN or infinite"):
        check_variables(model)


def test_a_model_spoiled_where_no_batch_looks_is_not_saved(tmp_path, monkeypatch):
    folder = small_run.prepared(tmp_path, oov_buckets=1)  # whose row no click falls on

    def spoiled(config, runtime):
        run = set_up(config, runtime)
        table = run.model.item_encoder.ids.table
        table.assign(tf.tensor_scatter_nd_update(table, [[table.shape[0] - 1, 0]], [math.inf]))
        return run
    monkeypatch.setattr(loop, "set_up", spoiled)
    with pytest.raises(UserError, match="training has collapsed: 1 values of .* are NaN or infinite"):
        small_run.run(small_run.config(folder, tmp_path / "run", epochs=1))
    assert not os.path.exists(tmp_path / "run" / "checkpoints")
