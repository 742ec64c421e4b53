"""The doctor on data sets, runs and bundles: what is sound, what is damaged, and that nothing is changed."""
import dataclasses
import json
import pathlib
import shutil

import numpy as np
import pytest
import tensorflow as tf

from clrec_tf.data import schema as schema_lib
from clrec_tf.diagnosis import checkup
from clrec_tf.diagnosis import needs
from clrec_tf.errors import UserError
from clrec_tf.models.build import build_model
from clrec_tf.retrieval.export_folder import complete_versions
from clrec_tf.system import json_files
from clrec_tf.training import run_config
from clrec_tf.training.checkpoint_names import shapes_of
from clrec_tf.training.checkpoints import find_checkpoint
from clrec_tf.training.workdir_lock import WorkdirLock
from tests import exported
from tests import prepared_data
from tests import small_run
from tests.test_doctor import run
from tests.test_doctor import states
from tests.test_doctor import told


@pytest.fixture(name="world", scope="module")
def fixture_world(tmp_path_factory):
    """A folder with data/, run/ and export/; read only."""
    folder = tmp_path_factory.mktemp("doctor")
    vectors = np.random.default_rng(0).standard_normal((small_run.ITEMS, 6)).astype(np.float32)
    np.savez(folder / "v.npz", ids=np.arange(1, small_run.ITEMS + 1), vectors=vectors)
    data = small_run.prepared(folder, dense_features=str(folder / "v.npz"))
    assert small_run.run(small_run.config(data, folder / "run", epochs=1, validate_every=1.0)) == 0
    shutil.copytree(pathlib.Path(exported.bundle_folder("int")).parent, folder / "export")
    return folder


@pytest.fixture(name="copy")
def fixture_copy(world, tmp_path):
    """The same, to be damaged."""
    shutil.copytree(world, tmp_path / "world")
    return tmp_path / "world"


def settings(folder, **changes):
    return small_run.config(str(folder / "data"), folder / "run", validate_every=1.0).but(
        **{"export_dir": str(folder / "export")} | changes)


def found(folder, name, given=(), **changes):
    """Findings of the checks of one kind."""
    checks = checkup.checks(settings(folder, **changes), frozenset(given))
    return run([check for check in checks if check.name == name], 60)


def faults(findings) -> list[str]:
    return [finding.text for finding in findings if finding.state == "fault"]


def snapshot(folder) -> dict:
    return {str(path): (path.stat().st_mtime_ns, path.is_file() and path.read_bytes())
            for path in pathlib.Path(folder).rglob("*")}


@pytest.mark.parametrize("mode", ["quick", "full"])
def test_what_is_sound_is_called_so_and_nothing_is_changed(world, mode):
    before = snapshot(world)
    every = run(checkup.checks(settings(world, doctor_mode=mode), frozenset({"embedding_dim"})), 60)
    assert not faults(every), told(every)
    words = told(every)
    assert words.count("has the shapes of the run's model") == 4
    assert (words.count("and finite numbers") == 4) == (mode == "full")
    assert ("records agree with the schema" in words) == (mode == "full")
    assert "version 1: " in words and "training (variables and optimizer) needs at least" in words
    after = snapshot(world)
    assert {path: facts for path, facts in after.items() if facts[1]} == {
        path: facts for path, facts in before.items() if facts[1]}
    assert set(after) == set(before)


def test_every_damaged_shard_is_named(copy):
    shards = sorted((copy / "data").glob("train*"))
    shards[0].write_bytes(shards[0].read_bytes()[:-5])
    changed = bytearray(shards[1].read_bytes())
    changed[40] ^= 1
    shards[1].write_bytes(changed)
    shards[2].unlink()
    quick, full = (faults(found(copy, "data", doctor_mode=mode)) for mode in ("quick", "full"))
    assert len(quick) == 2 and shards[0].name in quick[0] and f"{shards[2].name} is missing" in quick[1]
    assert len(full) == 3 and f"{shards[1].name} has sha256" in full[1]


@pytest.mark.parametrize("split, words", [("train", "an item_id is outside 1..30"), ("test", "item_id")])
def test_records_that_contradict_the_schema_are_found_in_full(copy, split, words):
    def beyond(record):
        example = tf.train.Example.FromString(record)
        example.features.feature["item_id"].int64_list.value[0] = small_run.ITEMS + 1
        return example.SerializeToString()
    prepared_data.rewritten(copy / "data", schema_lib.load_manifest(str(copy / "data")).shards[split][0].name, beyond)
    assert not faults(found(copy, "data"))
    full = faults(found(copy, "data", doctor_mode="full"))
    assert len(full) == 1 and words in full[0]


def test_another_schema_and_no_data_are_faults(copy):
    schema = json.loads((copy / "data" / "schema.json").read_text())
    (copy / "data" / "schema.json").write_text(json.dumps(schema | dict(num_users=3)))
    assert "was changed after the data was written" in faults(found(copy, "data"))[0]
    shutil.rmtree(copy / "data")
    assert "holds no complete data set" in faults(found(copy, "data"))[0]
    assert not found(copy, "data", input=str(copy / "log.csv"))  # it is still to be prepared


def test_settings_that_differ_from_the_run_are_named(world):
    assert faults(found(world, "run", given={"embedding_dim"}, embedding_dim=16)) == [
        "--embedding_dim=16 differs from 8, with which the run was started"]
    nobody = found(world, "run", embedding_dim=16)
    assert not faults(nobody) and "goes on here only with --embedding_dim=8" in nobody[0].text
    forgotten = faults(found(world, "run", given={"batch_size"}, embedding_dim=16))
    assert forgotten == ["training goes on here only with --embedding_dim=8"]


def test_a_run_inside_a_data_set_is_a_fault(copy):
    config = settings(copy).but(workdir=str(copy / "data" / "run"))
    every = run([check for check in checkup.checks(config, frozenset()) if check.name == "run"], 60)
    assert len(faults(every)) == 1 and "is inside --data_dir=" in faults(every)[0]


def test_a_run_on_other_data_is_a_fault(copy):
    small_run.prepared(copy, name="data2", min_train_length=6)
    config = settings(copy).but(data_dir=str(copy / "data2"))
    every = run([check for check in checkup.checks(config, frozenset()) if check.name == "run"], 60)
    assert "is not the data set that" in faults(every)[0]


def test_checkpoints_that_are_cut_of_other_shapes_or_not_finite_are_faults(copy):
    latest = pathlib.Path(find_checkpoint(str(copy / "run"), "latest"))
    content = latest.with_name(f"{latest.name}.index").read_bytes()
    latest.with_name(f"{latest.name}.index").write_bytes(content[:-20])
    texts = faults(found(copy, "run"))
    assert len(texts) == 1 and f"checkpoint {latest} cannot be read" in texts[0]
    latest.with_name(f"{latest.name}.index").write_bytes(content)
    path = copy / "run" / "config.json"
    saved = json_files.unsealed(json.loads(path.read_text()))
    saved["model"]["embedding_dim"] = 12
    path.write_text(json.dumps(json_files.sealed(saved)))
    texts = faults(found(copy, "run"))
    assert len(texts) == 4 and all("has shape [31, 8], the settings say [31, 12]" in text for text in texts)


def test_numbers_that_are_not_finite_are_found_in_full(copy):
    config = settings(copy)
    schema = schema_lib.load_schema(config.paths.data_dir)
    content = np.zeros((schema.item_rows, schema.content_width), np.float32)
    model = build_model(config, schema, content)
    model.item_encoder.ids.table[3, 2].assign(np.nan)
    best = find_checkpoint(str(copy / "run"), "best")
    tf.train.Checkpoint(model=model).write(best)
    assert not faults(found(copy, "run"))
    texts = faults(found(copy, "run", doctor_mode="full"))
    assert texts == [f"checkpoint {best} holds numbers that are not finite in model/item_encoder/ids/table"]


def test_a_training_that_runs_keeps_its_lock(copy):
    with WorkdirLock(str(copy / "run")) as lock:
        findings = found(copy, "run")
        assert not faults(findings) and "trains there, or was killed" in findings[0].text
        lock.check()


def test_no_run_and_no_bundle_yet_are_notes(world, tmp_path):
    config = settings(world, workdir=str(tmp_path / "run"), export_dir=str(tmp_path / "export"))
    every = run([check for check in checkup.checks(config, frozenset()) if check.name in ("run", "bundle")])
    assert states(every) == ["note", "note"] and not list(tmp_path.iterdir())


def test_a_damaged_bundle_is_a_fault(copy):
    version = complete_versions(str(copy / "export"))[-1]
    path = copy / "export" / str(version) / "item_ids.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert not faults(found(copy, "bundle"))
    assert "item_ids.npy differs from the manifest" in faults(found(copy, "bundle", doctor_mode="full"))[0]
    path.write_bytes(content[:-1])
    assert "item_ids.npy differs from the manifest" in faults(found(copy, "bundle"))[0]
    (copy / "export" / "serve_version").write_text("7")
    assert faults(found(copy, "bundle"))[0].startswith("version 7 is asked for")


def test_shapes_without_a_model_are_those_of_the_model(world):
    config = settings(world)
    schema = schema_lib.load_schema(config.paths.data_dir)
    content = np.zeros((schema.item_rows, schema.content_width), np.float32)
    shapes = needs.model_shapes(config, schema)
    assert shapes == shapes_of(build_model(config, schema, content)) and "model/item_encoder/content" in shapes
    saved = sum(path.stat().st_size for path in (world / "run" / "checkpoints").glob("step-10.data*"))
    queue = 40 * (8 + 4) * 4
    assert saved * 0.5 < needs.state_bytes(shapes, "lazy_adam") <= saved + queue
    huge = dataclasses.replace(schema, num_items=10**9, item_rows=10**9 + 1)
    table = 4 * 8 * 10**9  # bytes of ids; Adagrad keeps as many, and nothing was allocated
    assert needs.state_bytes(needs.model_shapes(config, huge), "adagrad") > 2 * table


def test_differences_are_those_that_training_refuses(world):
    config = settings(world).but(embedding_dim=16, queue_size=50)
    saved = run_config.load(str(world / "run"))
    assert run_config.differences(saved, config) == dict(embedding_dim=(8, 16), queue_size=(40, 50))
    schema = schema_lib.load_schema(config.paths.data_dir)
    with pytest.raises(UserError, match="--embedding_dim=16 differs from 8"):
        run_config.check_resumable(saved, config, schema.hash())
