"""The loop end to end on a small log: learning, resuming bit for bit, early stopping, and every way to be stopped."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf

from clrec_tf.data import schema as schema_lib
from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.evaluation.encode import Encoder
from clrec_tf.evaluation.examples import read_catalogue
from clrec_tf.training.checkpoints import Progress
from clrec_tf.training.checkpoints import find_checkpoint
from clrec_tf.training.loop import check_finite
from clrec_tf.training.restore import load_trained
from clrec_tf.training.setup import set_up
from clrec_tf.training.runtime import LocalRuntime
from clrec_tf.training.validation import note_validation
from clrec_tf.training.validation import validation_steps
from tests import small_run


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    return small_run.prepared(tmp_path_factory.mktemp("training"))


@pytest.mark.parametrize("queue", ["in_batch", "raw", "cached"])
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
        user = encoder._users(tf.constant(history), tf.constant([[True, True, False]]), tf.constant([[400, 400, -1]], tf.int64))
        best = catalogue.original_ids[np.argsort(-(items @ user.numpy()[0]))[:3]]
        hits.append(last % 30 + 1 in best)
    assert np.mean(hits) > 0.8  # 3 of 30 by chance: 0.1


@pytest.mark.parametrize("queue", ["in_batch", "raw", "cached"])
def test_stopped_and_resumed_equals_uninterrupted_bit_for_bit(data_dir, tmp_path, queue):
    whole = small_run.config(data_dir, tmp_path / "whole", model=dict(queue=queue), time_dropout=0.2, schedule="cosine",
                              keep_checkpoints=100)
    assert small_run.run(whole) == 0
    losses = small_run.losses(tmp_path / "whole")
    # Killed after step 17: what is left is the checkpoint of step 10, in the middle of an epoch and of a pool.
    shutil.copytree(tmp_path / "whole", tmp_path / "killed")
    folder = tmp_path / "killed" / "checkpoints"
    for path in folder.iterdir():
        if not path.name.startswith("step-10."):
            path.unlink()
    (folder / "checkpoint").write_text('model_checkpoint_path: "step-10"\nall_model_checkpoint_paths: "step-10"\n')
    rows = (tmp_path / "killed" / "metrics.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "killed" / "metrics.jsonl").write_text("".join(rows[:17]) + rows[17][:9])
    killed = small_run.config(data_dir, tmp_path / "killed", model=dict(queue=queue), time_dropout=0.2, schedule="cosine",
                              steps_per_call=7, keep_checkpoints=100)
    assert small_run.run(killed) == 0
    assert len(losses) > 30 and small_run.losses(tmp_path / "killed") == losses
    before, after = (tf.train.load_checkpoint(str(find_checkpoint(str(tmp_path / name), "latest")))
                     for name in ("whole", "killed"))
    for name in before.get_variable_to_shape_map():
        if "_CHECKPOINTABLE_OBJECT_GRAPH" not in name and "save_counter" not in name:
            a, b = before.get_tensor(name), after.get_tensor(name)
            assert a == b if isinstance(a, bytes) else np.array_equal(a, b), name


def test_every_training_item_of_an_epoch_enters_the_queue_once(data_dir, tmp_path):
    settings = small_run.config(data_dir, tmp_path, model=dict(queue="raw", queue_size=2000), epochs=1)
    run = set_up(settings, LocalRuntime())
    run.call(iter(run.dataset()), tf.constant(run.total_steps, tf.int64))
    small_run.run(settings)
    with np.load(_queue_archive(tmp_path), allow_pickle=False) as archive:
        count, items = int(archive["count/0"]), archive["item/0"]
    from tests.test_input_pipeline import expected_rows  # pylint: disable=import-outside-toplevel
    targets = sorted(row[2][0] for row in expected_rows(data_dir, "sliding"))
    assert count == len(targets) and sorted(items[:count, 0].tolist()) == targets


def _queue_archive(workdir):
    import io  # pylint: disable=import-outside-toplevel
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
    assert run.call.experimental_get_tracing_count() == 1


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
    check_finite(progress, dict(skipped=2.0, trailing_skipped=2.0), 4, 5)
    check_finite(progress, dict(skipped=3.0, trailing_skipped=3.0), 3, 5)
    assert progress.trailing_skipped == 5 and progress.skipped_steps == 5
    with pytest.raises(UserError, match="max_nonfinite_steps=5"):
        check_finite(progress, dict(skipped=1.0, trailing_skipped=1.0), 1, 5)
    check_finite(progress, dict(skipped=1.0, trailing_skipped=0.0), 2, 5)
    assert progress.trailing_skipped == 0


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


@pytest.mark.parametrize("change, message", [
    (dict(train=dict(batch_size=8)), "--batch_size=8 differs from 16"),
    (dict(model=dict(embedding_dim=16)), "--embedding_dim=16 differs from 8"),
    (dict(train=dict(target_mode="last")), "--target_mode=last differs from sliding"),
    (dict(seed=3), "--seed=3 differs from 0"),
])
def test_a_run_does_not_go_on_with_other_settings(data_dir, tmp_path, change, message):
    small_run.run(small_run.config(data_dir, tmp_path, epochs=1))
    with pytest.raises(UserError, match=message):
        small_run.run(small_run.config(data_dir, tmp_path, seed=change.get("seed", 0), model=change.get("model"),
                                       **{"epochs": 1, **change.get("train", {})}))


def test_a_run_does_not_go_on_with_other_data(data_dir, tmp_path):
    small_run.run(small_run.config(data_dir, tmp_path / "run", epochs=1))
    other = small_run.prepared(tmp_path, min_item_count=2)
    with pytest.raises(UserError, match="is not the data set that --workdir"):
        small_run.run(small_run.config(other, tmp_path / "run", epochs=1))
    with pytest.raises(UserError, match="is not the data set that --workdir"):
        load_trained(small_run.config(other, tmp_path / "run"), "latest")


def test_more_epochs_may_be_asked_for(data_dir, tmp_path):
    small_run.run(small_run.config(data_dir, tmp_path, epochs=1))
    one = max(small_run.losses(tmp_path))
    small_run.run(small_run.config(data_dir, tmp_path, epochs=2))
    assert max(small_run.losses(tmp_path)) > one


@pytest.mark.parametrize("settings, message", [
    (dict(train=dict(validation_metric="hr@10")), "--validation_metric=hr@10: must be"),
    (dict(model=dict(feature_dims=("3",))), "--feature_dims=3 sums to 3, not to --embedding_dim=8"),
    (dict(model=dict(feature_dims=("x",))), "--feature_dims=x: widths must be integers"),
    (dict(model=dict(queue_size=15)), "--queue_size=15 is smaller than --batch_size=16"),
])
def test_wrong_settings_name_flag_value_and_remedy(data_dir, tmp_path, settings, message):
    with pytest.raises(UserError, match=message):
        small_run.run(small_run.config(data_dir, tmp_path, model=settings.get("model"),
                                       **{"validate_every": 1.0, **settings.get("train", {})}))


def test_time_embedding_without_time_stamps_is_an_error(tmp_path):
    folder = small_run.prepared(tmp_path, timestamp_column="")
    with pytest.raises(UserError, match="--time_embedding=minutes: this data set has no time stamps"):
        small_run.run(small_run.config(folder, tmp_path / "run", model=dict(time_embedding="minutes")))
    assert small_run.run(small_run.config(folder, tmp_path / "run", epochs=1)) == 0


@pytest.mark.parametrize("damage, message", [
    (lambda path: path.unlink(), "is missing though the manifest lists it"),
    (lambda path: path.write_bytes(path.read_bytes()[:-9]), "bytes, the manifest says"),
    (lambda path: path.write_bytes(path.read_bytes()[:50] + b"\xff" + path.read_bytes()[51:]), "sha256"),
])
def test_damaged_data_names_the_shard(tmp_path, damage, message):
    folder = small_run.prepared(tmp_path)
    name = schema_lib.load_manifest(folder).shards["train"][1].name
    damage(pathlib.Path(folder) / name)
    with pytest.raises(DataError, match=f"{name} .*{message}"):
        small_run.run(small_run.config(folder, tmp_path / "run"))


def command(data_dir, workdir, *flags):
    """The train command in a process of its own."""
    arguments = [sys.executable, "-m", "clrec_tf.train", f"--data_dir={data_dir}", f"--workdir={workdir}",
                 "--embedding_dim=8", "--max_history=6", "--attention_heads=2", "--queue_size=40", "--batch_size=16",
                 "--target_mode=sliding", "--shuffle_shards=2", "--log_every_steps=10", "--validate_every=0",
                 "--checkpoint_every_steps=50", "--epochs=2000", *flags]
    return subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True, cwd=pathlib.Path(__file__).parents[1])


def wait_for_step(workdir, step, process, seconds=120):
    """Until metrics.jsonl shows a step."""
    end = time.time() + seconds
    while time.time() < end and process.poll() is None:
        if (pathlib.Path(workdir) / "metrics.jsonl").exists() and max(small_run.losses(workdir), default=0) >= step:
            return
        time.sleep(0.1)
    process.kill()
    raise AssertionError(f"step {step} was not reached: {process.communicate()[1][-2000:]}")


def last_saved(workdir):
    return int(find_checkpoint(str(workdir), "latest").rsplit("-", 1)[1])


def test_sigterm_saves_and_kill_loses_no_more_than_since_the_checkpoint(data_dir, tmp_path):
    process = command(data_dir, tmp_path)
    wait_for_step(tmp_path, 60, process)
    process.send_signal(signal.SIGTERM)
    _, text = process.communicate(timeout=60)
    assert process.returncode == 75 and "run the same command to go on" in text
    stopped = last_saved(tmp_path)
    assert stopped >= 60 and not any(".tempstate" in name for name in os.listdir(tmp_path / "checkpoints"))

    process = command(data_dir, tmp_path)
    wait_for_step(tmp_path, stopped + 110, process)
    process.kill()
    _, text = process.communicate(timeout=60)
    assert f"going on from {tmp_path}/checkpoints/step-{stopped}" in text
    killed = last_saved(tmp_path)
    assert killed >= stopped + 50
    process = command(data_dir, tmp_path, "--epochs=1")
    _, text = process.communicate(timeout=60)
    assert process.returncode == 0 and max(small_run.losses(tmp_path)) <= killed


def test_a_full_disk_is_an_error_and_the_checkpoint_before_stands(data_dir, tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", small], capture_output=True).returncode:
        pytest.skip("needs the right to mount a small file system (root)")
    try:
        process = command(data_dir, small, "--keep_checkpoints=100", "--checkpoint_every_steps=20")
        _, text = process.communicate(timeout=120)
        assert process.returncode == 2, text
        assert "error:" in text and "Traceback" not in text
        last = last_saved(small)
        assert last >= 20
        tf.train.load_checkpoint(find_checkpoint(str(small), "latest"))
    finally:
        subprocess.run(["umount", small], check=True)


def test_an_unwritable_workdir_is_an_error(data_dir, tmp_path):
    (tmp_path / "file").write_text("in the way")
    process = command(data_dir, tmp_path / "file" / "run")
    _, text = process.communicate(timeout=60)
    assert process.returncode == 2 and "error:" in text and "Traceback" not in text
