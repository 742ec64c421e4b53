"""The loop end to end on a small log: learning, resuming bit for bit, early stopping, and every way to be stopped."""
import gc
import io
import json

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework.func_graph import FuncGraph

from clrec_tf.data.catalogue import read_catalogue
from clrec_tf.errors import UserError
from clrec_tf.models.encode import Encoder
from clrec_tf.training.checkpoint_list import checkpoint_hash
from clrec_tf.training.checkpoints import find_checkpoint
from clrec_tf.training.loop import check_finite
from clrec_tf.training.progress import Progress
from clrec_tf.training.restore import load_trained
from clrec_tf.training.runtime import LocalRuntime
from clrec_tf.training.setup import set_up
from clrec_tf.training.validation import note_validation
from clrec_tf.training.validation import Validator
from clrec_tf.training.validation import validation_steps
from tests import small_run
from tests.cases import in_ci
from tests.test_input_pipeline import expected_rows


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    return small_run.prepared(tmp_path_factory.mktemp("training"))


@pytest.mark.parametrize("queue", in_ci(["in_batch", "raw", "cached"], "raw", "cached"))
def test_a_planted_successor_is_retrieved(data_dir, tmp_path, queue):
    settings = small_run.config(data_dir, tmp_path, model=dict(queue=queue, position="forward", max_history=3),
                                epochs=30, learning_rate=0.03, log_every_steps=1000)
    assert small_run.run(settings) == 0
    trained = load_trained(settings, "latest")
    catalogue = read_catalogue(data_dir, trained.schema, trained.manifest)
    encoder = Encoder(trained.model, 3)
    items = encoder.compared_items(catalogue.item_rows)
    rows = {original: row for original, row in zip(catalogue.original_ids, catalogue.item_rows)}
    hits = []
    for last in range(1, 31):
        history = np.zeros((1, 3, 2), np.int64)
        history[0, :2] = [rows[(last - 2) % 30 + 1], rows[last]]
        mask, gaps = tf.constant([[True, True, False]]), tf.constant([[800, 400, -1]], tf.int64)
        user = encoder._users(tf.constant(history), mask, gaps, -tf.ones_like(gaps), tf.zeros_like(gaps),
                              tf.zeros([1, 0], tf.int64)).numpy()[0]
        best = catalogue.original_ids[np.argsort(-(items @ user))[:3]]
        hits.append(last % 30 + 1 in best)
    assert np.mean(hits) > 0.8  # 3 of 30 by chance: 0.1


@pytest.mark.parametrize("queue,listed", [
    ("raw", True), ("cached", False),
    *(pytest.param(queue, True, marks=pytest.mark.long) for queue in ("in_batch", "cached"))])
def test_stopped_and_resumed_equals_uninterrupted_bit_for_bit(data_dir, tmp_path, queue, listed):
    whole = small_run.config(data_dir, tmp_path / "whole", model=dict(queue=queue), time_dropout=0.2, schedule="cosine",
                              keep_checkpoints=100)
    assert small_run.run(whole) == 0
    losses = small_run.losses(tmp_path / "whole")
    # Killed after step 17: what is left is the checkpoint of step 10, in the middle of an epoch and of a pool.
    rows = small_run.killed(tmp_path / "whole", tmp_path / "killed")
    if not listed:  # the list is lost, and the files must do
        (tmp_path / "killed" / "checkpoints" / "checkpoint").unlink()
    assert json.loads(rows[2])["step"] == 3
    rows[2] = json.dumps({**json.loads(rows[2]), "loss": 123.0}) + "\n"  # a training from the start would replace it
    losses[3] = 123.0
    (tmp_path / "killed" / "metrics.jsonl").write_text("".join(rows[:17]) + rows[17][:9])
    killed = small_run.config(data_dir, tmp_path / "killed", model=dict(queue=queue), time_dropout=0.2, schedule="cosine",
                              steps_per_call=7, keep_checkpoints=100)
    assert small_run.run(killed) == 0
    assert len(losses) > 30 and small_run.losses(tmp_path / "killed") == losses
    before, after = (tf.train.load_checkpoint(str(find_checkpoint(str(tmp_path / name), "latest")))
                     for name in ("whole", "killed"))
    for name in before.get_variable_to_shape_map():
        a, b = before.get_tensor(name), after.get_tensor(name)
        assert a == b if isinstance(a, bytes) else np.array_equal(a, b), name
    hashes = {checkpoint_hash(find_checkpoint(str(tmp_path / name), "latest")) for name in ("whole", "killed")}
    assert len(hashes) == 1


def test_every_training_item_of_an_epoch_enters_the_queue_once(data_dir, tmp_path):
    settings = small_run.config(data_dir, tmp_path, model=dict(queue="raw", queue_size=2000), epochs=1)
    run = set_up(settings, LocalRuntime())
    run.call(iter(run.dataset()), tf.constant(run.total_steps, tf.int64))
    small_run.run(settings)
    with np.load(_queue_archive(tmp_path), allow_pickle=False) as archive:
        count, items = int(archive["count/0"]), archive["item/0"]
    targets = sorted(row[2][0] for row in expected_rows(data_dir, "sliding"))
    assert count == len(targets) and sorted(items[:count, 0].tolist()) == targets


def _queue_archive(workdir):
    reader = tf.train.load_checkpoint(find_checkpoint(str(workdir), "latest"))
    name = next(n for n in reader.get_variable_to_shape_map() if n.startswith("queue/"))
    return io.BytesIO(reader.get_tensor(name))


def test_prefill_fills_the_queue_before_the_first_step(data_dir, tmp_path):
    for queue in ("raw", "cached"):
        settings = small_run.config(data_dir, tmp_path / queue, model=dict(queue=queue, prefill_queue=True), epochs=1)
        small_run.run(settings)
        first = json.loads((tmp_path / queue / "metrics.jsonl").read_text().splitlines()[0])
        assert first["step"] == 1 and first["queue_fill"] == 40


def test_one_trace_over_an_epoch(data_dir, tmp_path):
    run = set_up(small_run.config(data_dir, tmp_path), LocalRuntime())
    iterator = iter(run.dataset())
    for steps in (1, 2, 5, 3):
        run.call(iterator, tf.constant(steps, tf.int64))
    assert run.call.function.experimental_get_tracing_count() == 1


def test_validation_keeps_the_best_and_early_stopping_ends_the_training(data_dir, tmp_path):
    settings = small_run.config(data_dir, tmp_path, epochs=200, validate_every=1.0, early_stopping_patience=3,
                                learning_rate=0.1, log_every_steps=500, checkpoint_every_steps=500)
    assert small_run.run(settings) == 0
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    values = [(row["step"], row["valid/hr@10/full"]) for row in rows if "valid/hr@10/full" in row]
    best = max(value for _, value in values)
    best_step = next(step for step, value in values if value == best)
    assert len(values) < 200 and [s for s, _ in values].index(best_step) == len(values) - 4
    trained = load_trained(settings, "best")
    assert trained.step == best_step
    assert small_run.run(settings) == 0  # complete: nothing is trained again
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == len(rows)


def test_a_metric_that_was_always_0_is_told(data_dir, tmp_path, monkeypatch, caplog):
    for value in (0.25, 0.0):
        monkeypatch.setattr(Validator, "metrics", lambda self: {"hr@10/full": value})  # pylint: disable=cell-var-from-loop
        assert small_run.run(small_run.config(data_dir, tmp_path / str(value), validate_every=1.0)) == 0
        assert ("--validation_metric=hr@10/full was 0 in every validation" in caplog.text) == (value == 0.0)


def test_validation_steps_and_progress():
    assert validation_steps([10, 21], 1.0) == [10, 21]
    assert validation_steps([10, 21], 0.5) == [5, 10, 16, 21]
    assert validation_steps([10, 21], 1.5) == [16, 21]  # the end is always validated
    assert validation_steps([10], 0.0) == []
    progress = Progress(step=5)
    assert note_validation(progress, 0.5, 2) == (True, False)
    assert note_validation(progress, 0.5, 2) == (False, False)
    assert note_validation(progress, 0.4, 2) == (False, True)
    assert note_validation(progress, 0.6, 2) == (True, False) and progress.validations_since_best == 0


def test_consecutive_non_finite_steps_are_counted_across_calls():
    progress = Progress(step=8)
    check_finite(progress, dict(skipped=2.0, leading_skipped=0.0, trailing_skipped=2.0, longest_skipped=2.0), 4, 5)
    check_finite(progress, dict(skipped=3.0, leading_skipped=3.0, trailing_skipped=3.0, longest_skipped=3.0), 3, 5)
    assert progress.trailing_skipped == 5 and progress.skipped_steps == 5
    with pytest.raises(UserError, match="max_nonfinite_steps=5"):
        check_finite(progress, dict(skipped=1.0, leading_skipped=1.0, trailing_skipped=1.0, longest_skipped=1.0), 1, 5)
    check_finite(progress, dict(skipped=1.0, leading_skipped=0.0, trailing_skipped=0.0, longest_skipped=1.0), 2, 5)
    assert progress.trailing_skipped == 0
    with pytest.raises(UserError, match="in 6 steps in a row"):
        check_finite(progress, dict(skipped=6.0, leading_skipped=0.0, trailing_skipped=0.0, longest_skipped=6.0), 9, 5)
    progress.trailing_skipped = 3  # a run over the border of two calls
    check_finite(progress, dict(skipped=2.0, leading_skipped=2.0, trailing_skipped=0.0, longest_skipped=2.0), 9, 5)
    progress.trailing_skipped = 3
    with pytest.raises(UserError, match="in 6 steps in a row"):
        check_finite(progress, dict(skipped=3.0, leading_skipped=3.0, trailing_skipped=0.0, longest_skipped=3.0), 9, 5)


def test_nan_gradients_change_nothing_and_end_the_training(data_dir, tmp_path):
    settings = small_run.config(data_dir, tmp_path, max_nonfinite_steps=3)
    run = set_up(settings, LocalRuntime())
    table = run.model.item_encoder.ids.table
    table.assign(tf.concat([table[:1], tf.fill([table.shape[0] - 1, table.shape[1]], float("nan"))], 0))
    before = [v.numpy() for v in run.model.trainable_variables]
    result = run.call(iter(run.dataset()), tf.constant(4, tf.int64))
    assert float(result["skipped"]) == float(result["trailing_skipped"]) == 4 and float(result["queue_fill"]) == 0
    for old, variable in zip(before, run.model.trainable_variables):
        np.testing.assert_array_equal(old, variable.numpy())
    assert int(run.optimizer.iterations) == 0


def test_a_complete_training_keeps_the_settings_that_trained_it(tmp_path):
    data_dir = small_run.prepared(tmp_path)
    settings = small_run.config(data_dir, tmp_path / "run", epochs=1)
    assert small_run.run(settings) == 0
    record = (tmp_path / "run" / "config.json").read_text()
    assert small_run.run(small_run.config(data_dir, tmp_path / "run", epochs=1, learning_rate=0.5)) == 0
    assert (tmp_path / "run" / "config.json").read_text() == record
    assert small_run.run(small_run.config(data_dir, tmp_path / "run", epochs=2, learning_rate=0.005)) == 0
    assert "0.005" in (tmp_path / "run" / "config.json").read_text()


@pytest.mark.parametrize("model", [dict(queue="raw"), dict(user_encoder="sasrec"),
                                   dict(model="multi_clrec", queue="raw", num_intents=2)], ids=str)
def test_no_graph_is_left_in_memory(data_dir, tmp_path, model):
    def graphs():
        gc.collect()
        found = [thing for thing in gc.get_objects() if isinstance(thing, FuncGraph)]
        return sum(graph.name != "keras_graph" for graph in found)  # Keras has one of its own

    settings, left = small_run.config(data_dir, tmp_path / "run", model=model, epochs=1), graphs()
    assert small_run.run(settings) == 0
    assert graphs() <= left
