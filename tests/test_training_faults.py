"""Training is refused with a clear error, or stopped without loss: settings, data, signals, kills, full disks."""
import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest
import tensorflow as tf

from clrec_tf.data import schema as schema_lib
from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.evaluate import evaluate
from clrec_tf.export import export
from clrec_tf.training.checkpoints import find_checkpoint
from clrec_tf.training.restore import load_trained
from tests import forked
from tests import prepared_data
from tests import small_run


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    return small_run.prepared(tmp_path_factory.mktemp("training"))


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


def test_a_start_that_trained_nothing_binds_no_settings(data_dir, tmp_path):
    workdir = tmp_path / "run"
    with pytest.raises(UserError, match="NaN or infinite"):  # before the first checkpoint
        small_run.run(small_run.config(data_dir, workdir, learning_rate=1e38, clip_norm=0.0, max_nonfinite_steps=0))
    assert (workdir / "config.json").exists() and not (workdir / "checkpoints").exists()
    assert small_run.run(small_run.config(data_dir, workdir, model=dict(embedding_dim=16), epochs=1)) == 0
    assert json.loads((workdir / "config.json").read_text())["model"]["embedding_dim"] == 16
    with pytest.raises(UserError, match="--embedding_dim=8 differs from 16"):
        small_run.run(small_run.config(data_dir, workdir, epochs=1))


@pytest.mark.parametrize("flag", ["eval_checkpoint", "export_checkpoint"])
def test_a_checkpoint_that_is_none_names_the_flag_and_those_there_are(data_dir, tmp_path, flag):
    settings = small_run.config(data_dir, tmp_path / "run", epochs=1, validate_every=1.0)
    small_run.run(settings)
    changed = {section: dataclasses.replace(getattr(settings, section), **{flag: "step-7"})
               for section in ("evaluate", "export") if hasattr(getattr(settings, section), flag)}
    stage = evaluate if flag == "eval_checkpoint" else export
    with pytest.raises(UserError, match=f"--{flag}=step-7 is no checkpoint: choose from best, latest, ") as caught:
        stage(dataclasses.replace(settings, **changed))
    named = str(caught.value).split(": choose from best, latest, ")[1].split(", ")
    assert sorted(named) == sorted(str(path)[:-len(".index")] for path in (tmp_path / "run").glob("*/*.index"))
    assert len(named) >= 2 and all(find_checkpoint("", prefix) == prefix for prefix in named)


@pytest.mark.parametrize("name, message", [
    ("data", "is equal to --data_dir="), ("data/run", "is inside --data_dir="), ("link/run", "is inside --data_dir="),
    ("log.csv", "log.csv is a file, not a folder: choose another --workdir")])
def test_a_run_is_not_kept_in_a_data_set_nor_in_a_file(tmp_path, name, message):
    folder = small_run.prepared(tmp_path)
    (tmp_path / "link").symlink_to(folder)
    before = sorted(os.listdir(folder))
    with pytest.raises(UserError, match=f"--workdir={tmp_path}/.*{message}"):
        small_run.run(small_run.config(folder, tmp_path / name, epochs=1))
    assert sorted(os.listdir(folder)) == before


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
    (dict(model=dict(time_boundaries=("5", "5"))), "--time_boundaries=5,5: must ascend"),
    (dict(model=dict(time_boundaries=("5", "1e300"))), "--time_boundaries=5,1e300: 1e300 minutes are no time"),
    (dict(model=dict(time_boundaries=("5", "soon"))), "--time_boundaries=5,soon: must be numbers of minutes"),
])
def test_wrong_settings_name_flag_value_and_remedy(data_dir, tmp_path, settings, message):
    with pytest.raises(UserError, match=message):
        small_run.run(small_run.config(data_dir, tmp_path, model=settings.get("model"),
                                       **{"validate_every": 1.0, **settings.get("train", {})}))
    assert os.listdir(tmp_path) == []  # nothing was trained, and no run is begun


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


def wrong_type(record):
    example = tf.train.Example.FromString(record)
    example.features.feature["item_id"].Clear()
    example.features.feature["item_id"].float_list.value.append(1.0)
    return example.SerializeToString()


@pytest.mark.parametrize("change, message", [
    (lambda record: b"&*\xdb", "TensorFlow cannot parse a record"),  # its text quotes what is no UTF-8
    (lambda record: b"abc", "Could not parse example input, value: 'abc'"),
    (wrong_type, "Key: item_id, Index: 0.  Data types don't match"),
])
def test_a_record_that_is_none_names_its_shard(tmp_path, change, message):
    folder = small_run.prepared(tmp_path)
    name = schema_lib.load_manifest(folder).shards["train"][1].name
    prepared_data.rewritten(folder, name, change)
    with pytest.raises(DataError, match=f"shard .*{name} is damaged: .*{message}.*: restore it, or prepare"):
        small_run.run(small_run.config(folder, tmp_path / "run"))


def spoil(prefix, change):
    path = pathlib.Path(prefix + ".data-00000-of-00001")
    path.write_bytes(change(path.read_bytes()))


@pytest.mark.parametrize("change", [
    lambda data: data[:1000],
    lambda data: bytes(byte ^ (i % 64 == 0) for i, byte in enumerate(data)),  # a bit in every tensor
])
def test_a_damaged_checkpoint_is_named_and_training_goes_back_to_the_one_before(data_dir, tmp_path, caplog, change):
    settings = small_run.config(data_dir, tmp_path, epochs=1)
    small_run.run(settings)
    whole, last = small_run.losses(tmp_path), find_checkpoint(str(tmp_path), "latest")
    spoil(last, change)
    with pytest.raises(DataError, match=f"{last} is damaged"):
        load_trained(settings, "latest")
    with caplog.at_level("WARNING"):
        assert small_run.run(settings) == 0
    assert f"{last} is damaged" in caplog.text and small_run.losses(tmp_path) == whole
    for prefix in (tmp_path / "checkpoints").glob("*.index"):
        spoil(str(prefix)[:-len(".index")], lambda data: data[:100])
    with pytest.raises(DataError, match="no checkpoint in .* can be read"):
        small_run.run(settings)


def command(data_dir, workdir, *flags):
    """The train command in a process of its own."""
    arguments = [sys.executable, "-m", "clrec_tf.train", f"--data_dir={data_dir}", f"--workdir={workdir}",
                 "--embedding_dim=8", "--max_history=6", "--attention_heads=2", "--queue_size=40", "--batch_size=16",
                 "--target_mode=sliding", "--shuffle_shards=2", "--log_every_steps=10", "--validate_every=0",
                 "--checkpoint_every_steps=50", "--epochs=2000", *flags]
    return forked.Popen(arguments, stderr=subprocess.PIPE, text=True, cwd=pathlib.Path(__file__).parents[1])


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
    assert process.returncode == 0 and f"step-{killed}" in text and "is complete" in text


def test_a_training_leaves_no_files_behind(data_dir, tmp_path):
    (tmp_path / "temporary").mkdir()
    (tmp_path / "translated.py").write_text("def one():\n    return 1\n")
    code = ("import sys, tensorflow as tf, clrec_tf.train as train, translated\nfrom clrec_tf import command_line\n"
            "from clrec_tf.system import process_exit\n"
            "def count():\n    print(sum(name.startswith(process_exit.GENERATED_CODE) for name in sys.modules))\n"
            "def main(config):\n    code = train.main(config)\n    count()\n"
            "    tf.function(translated.one)()\n    count()\n    return code\n"
            "command_line.run(main, uses=('paths', 'model', 'train'), usage='')")
    for epochs, expected in (("1", 0), ("x", 2)):
        done = subprocess.run(  # a real end of an interpreter
            [sys.executable, "-c", code, f"--data_dir={data_dir}", f"--workdir={tmp_path}/run", "--embedding_dim=8",
             f"--epochs={epochs}", "--validate_every=0"], capture_output=True, text=True, check=False,
            cwd=pathlib.Path(__file__).parents[1], env={
                **os.environ, "TMPDIR": str(tmp_path / "temporary"), "PYTHONPATH": f"{tmp_path}:{os.getcwd()}"})
        assert done.returncode == expected, done.stderr
        # Of a training nothing is translated, which would take seconds.
        assert done.stdout.split() == ([] if expected else ["0", "1"])
    assert os.listdir(tmp_path / "temporary") == []


def test_a_full_disk_is_an_error_and_the_checkpoint_before_stands(data_dir, tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", small], capture_output=True).returncode:
        pytest.skip("needs the right to mount a small file system (root)")
    try:
        process = command(data_dir, small, "--keep_checkpoints=100", "--checkpoint_every_steps=20")
        _, text = process.communicate(timeout=120)
        assert process.returncode == 74, text
        assert "error:" in text and "Traceback" not in text
        last = last_saved(small)
        assert last >= 20
        tf.train.load_checkpoint(find_checkpoint(str(small), "latest"))
    finally:
        subprocess.run(["umount", small], check=True)


def test_memory_that_cannot_be_had_is_an_error_and_the_same_folder_can_be_used(data_dir, tmp_path):
    with pytest.raises(UserError, match=r"memory ran out: OOM when .*shape\[3100000000000\].*: lower --batch_size"):
        small_run.run(small_run.config(data_dir, tmp_path, epochs=1, model=dict(embedding_dim=10**11)))
    assert small_run.run(small_run.config(data_dir, tmp_path, epochs=1)) == 0


def test_an_unwritable_workdir_is_an_error(data_dir, tmp_path):
    (tmp_path / "file").write_text("in the way")
    process = command(data_dir, tmp_path / "file" / "run")
    _, text = process.communicate(timeout=60)
    assert process.returncode == 2 and "Traceback" not in text
    assert f"error: --workdir={tmp_path}/file/run cannot be made or written to: {tmp_path}/file is not a " in text
