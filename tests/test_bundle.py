"""Publication is atomic and proves itself; loading refuses what is damaged or does not belong together."""
import dataclasses
import json
import os
import pathlib
import shutil
import signal
import sys

import numpy as np
import pytest
import tensorflow as tf

from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.models.encode import Encoder
from clrec_tf.publishing import bundle_checks
from clrec_tf.publishing.candidates import encode_candidates
from clrec_tf.retrieval.bundle import load_bundle
from clrec_tf.retrieval import manifest as manifest_lib
from clrec_tf.system import json_files
from tests import exported
from tests import forked


@pytest.fixture
def copy(tmp_path):
    """A version that a test may spoil."""
    return pathlib.Path(shutil.copytree(exported.bundle_folder("int"), tmp_path / "copies" / "3"))


def rewrite_manifest(folder, **changes):
    """Makes the manifest agree with the files again, as someone who repairs a bundle by hand would."""
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").unlink()
    manifest_lib.write_manifest(str(folder), manifest | changes)


@pytest.mark.parametrize("kind", exported.KINDS)
def test_a_published_version_says_what_it_is(kind):
    bundle, world = exported.loaded(kind), exported.world(kind)
    folder = pathlib.Path(bundle.path)
    assert folder.name == "1" and sorted(os.listdir(folder.parent)) == ["1", "batching.config", "models.config"]
    expected = {"saved_model.pb", "variables", "assets", "assets.extra", "index", "item_ids.npy", "manifest.json",
                "fingerprint.pb"}
    assert set(os.listdir(folder)) == expected | ({"titles.json", "item_encoder"} if kind == "string" else set())
    facts = dict(version=1, checkpoint_hash="c" * 64, step=7, schema_hash=world.schema.hash(), id_type=kind,
                 items=exported.ITEMS, dimension=8, max_history=exported.HISTORY, uses_time=kind == "string",
                 similarity="cosine" if kind == "string" else "dot", run_config={"note": "untrained"})
    assert facts.items() <= bundle.manifest.items()
    assert bundle.manifest["measured"]["recall"] == 1 and bundle.manifest["measured"]["recall_k"] == 5
    assert bundle.manifest["measured"]["parity_difference"] <= 1e-6
    assert 30 < bundle.manifest["measured"]["users"] <= 50
    assert bundle.manifest["versions"]["tensorflow"] == tf.__version__
    order = np.argsort(-world.catalogue.counts, kind="stable")
    assert bundle.item_ids.tolist() == world.catalogue.original_ids[order].tolist()
    assert bundle.titles is None or bundle.titles.tolist() == world.catalogue.titles[order].tolist()
    assert bundle.positions(bundle.item_ids).tolist() == list(range(exported.ITEMS))
    items = world.model.score_vectors(world.model.item_vectors(world.catalogue.item_rows[order])).numpy()
    np.testing.assert_allclose(bundle.item_vectors()[:, :8], items, atol=1e-6)


def test_a_moved_bundle_answers_alike(copy):
    moved, here = load_bundle(str(copy.parent)), exported.loaded("int")
    assert moved.path == str(copy)
    vectors = np.random.default_rng(0).standard_normal((3, 9)).astype(np.float32)
    np.testing.assert_array_equal(moved.index.search(vectors, 9)[0], here.index.search(vectors, 9)[0])
    ids = [[exported.original_id("int", 4), exported.original_id("int", 9)]]
    np.testing.assert_array_equal(moved.user_intents(ids).vectors, here.user_intents(ids).vectors)


def test_a_bundle_of_before_there_were_several_intents_has_one(copy):
    manifest = json.loads((copy / "manifest.json").read_text())
    manifest = json_files.unsealed(manifest)
    assert manifest.pop("intents") == 1 and manifest.pop("uses_dwell") is False
    (copy / "manifest.json").write_text(json.dumps(manifest))
    older, ids = load_bundle(str(copy)), [[exported.original_id("int", 4)]]
    assert older.manifest["intents"] == 1 and older.manifest["uses_dwell"] is False
    found = older.user_intents(ids)
    np.testing.assert_array_equal(found.vectors, exported.loaded("int").user_intents(ids).vectors)
    assert found.vectors.shape == (1, 1, 9) and found.weights.tolist() == [[1]] and found.numbers.tolist() == [[0]]


def test_every_file_is_guarded(copy):
    files = json.loads((copy / "manifest.json").read_text())["files"]
    present = {str(path.relative_to(copy)) for path in copy.rglob("*") if path.is_file()}
    assert set(files) == present - {"manifest.json"}
    for name in files:
        path = copy / name
        content = path.read_bytes()
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        with pytest.raises(DataError, match=f"{path} differs from the manifest"):
            load_bundle(str(copy))
        path.write_bytes(content)
    load_bundle(str(copy))
    path.unlink()
    with pytest.raises(DataError, match=f"{path} is missing"):
        load_bundle(str(copy))


@pytest.mark.parametrize("content, problem", [
    ("{", "damaged"), ("[]", "damaged"), ('{"format_version": 9}', "format_version=9"),
    ('{"format_version": 2}', "damaged"), (None, "outside")])
def test_a_damaged_manifest_is_refused(copy, content, problem):
    manifest = json.loads((copy / "manifest.json").read_text())
    manifest["files"]["../../secret"] = dict(bytes=1, sha256="0")
    manifest = json_files.sealed(manifest)
    (copy / "manifest.json").write_text(json.dumps(manifest) if content is None else content)
    with pytest.raises(DataError, match=problem):
        load_bundle(str(copy))


def test_tower_and_index_of_different_checkpoints_are_refused(copy, tmp_path):
    other = pathlib.Path(exported.world("int").export(tmp_path / "other", checkpoint_hash="d" * 64))
    for part in ("index", "item_ids.npy"):  # alone, the checksums tell
        spoiled = tmp_path / part
        shutil.copytree(copy, spoiled)
        (shutil.copytree if part == "index" else shutil.copy)(
            other / part, spoiled / part, **({"dirs_exist_ok": True} if part == "index" else {}))
    with pytest.raises(DataError, match="index.json differs from the manifest"):
        load_bundle(str(tmp_path / "index"))
    rewrite_manifest(tmp_path / "index")
    with pytest.raises(DataError, match="different checkpoints .manifest c{12}, tower c{12}, index d{12}"):
        load_bundle(str(tmp_path / "index"))
    rewrite_manifest(copy, checkpoint_hash="d" * 64)
    with pytest.raises(DataError, match="different checkpoints .manifest d{12}, tower c{12}, index c{12}"):
        load_bundle(str(copy))
    rewrite_manifest(copy, checkpoint_hash="c" * 64)
    np.save(copy / "item_ids.npy", np.arange(3))
    rewrite_manifest(copy)
    with pytest.raises(DataError, match="different catalogues .*'ids': 3"):
        load_bundle(str(copy))


def test_the_newest_complete_version_is_loaded(copy):
    shutil.copytree(copy, copy.parent / "10")
    os.mkdir(copy.parent / "11")
    shutil.copy(copy / "saved_model.pb", copy.parent / "11")
    shutil.copytree(copy, copy.parent / "99.incomplete-host-1")
    assert load_bundle(str(copy.parent)).path == str(copy.parent / "10")
    assert load_bundle(str(copy)).path == str(copy)
    (copy.parent / "10" / "item_ids.npy").write_bytes(b"")
    with pytest.raises(DataError, match="10/item_ids.npy differs"):  # not silently the older one
        load_bundle(str(copy.parent))
    for empty in (copy.parent / "11", copy.parent / "nowhere"):
        with pytest.raises(DataError, match="no complete bundle: run python -m clrec_tf.export"):
            load_bundle(str(empty))


def test_versions_are_never_overwritten(copy, tmp_path, caplog):
    world = exported.world("int")
    with pytest.raises(UserError, match="--export_version=3: .*exists"):
        world.export(copy.parent, export_version=3)
    with pytest.raises(UserError, match="is itself a version"):
        world.export(copy)
    assert world.export(copy.parent) == str(copy.parent / "4")
    assert "--export_version" not in caplog.text
    world.export(copy.parent, export_version=2)
    assert "--export_version=2 is lower than version 4 of" in caplog.text
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written .Not a directory"):
        world.export(tmp_path / "file" / "models")


def spoiled(world, **changes):
    return dataclasses.replace(world, catalogue=dataclasses.replace(world.catalogue, **changes))


def test_an_export_that_fails_its_checks_leaves_nothing(tmp_path, monkeypatch):
    world = exported.world("int")
    twice = world.catalogue.original_ids.copy()
    twice[5] = twice[3]
    with pytest.raises(DataError, match=f"1 repeated item ids, such as {twice[3]}"):
        spoiled(world, original_ids=twice).export(tmp_path)
    for bad in ("", "a\nb", "a\rb", "\0", "x" * 513):
        ids = np.array([bad] + [f"{i}" for i in range(1, exported.ITEMS)], object)
        with pytest.raises(DataError, match="cannot be exported"):
            spoiled(world, original_ids=ids).export(tmp_path)
    strangers = dataclasses.replace(world.users, history_ids=np.full_like(world.users.history_ids, exported.ITEMS + 1))
    with pytest.raises(DataError, match="no held-out user"):
        dataclasses.replace(world, users=strangers).export(tmp_path)
    monkeypatch.setattr(bundle_checks, "PARITY", -1.0)
    with pytest.raises(DataError, match="loaded and live user vectors of .* differ"):
        world.export(tmp_path)
    monkeypatch.undo()
    monkeypatch.setattr(bundle_checks, "measured", lambda *_: {"recalls": {"0": {"1": 1.0, "5": 1.0}, "1": {"1": .9, "5": .5}}})
    with pytest.raises(DataError, match=r"recall@5 = 0.5000 at popularity 1, --target_recall=0.9 is asked"):
        world.export(tmp_path, target_recall=0.9)
    assert os.listdir(tmp_path) == []


def test_vectors_that_are_not_finite_are_refused():
    world = exported.world("int", seed=1)
    table = world.model.item_encoder.ids.table
    sound = table.numpy()
    table.assign(np.where(np.arange(len(sound))[:, None] == 8, np.nan, sound))
    try:
        with pytest.raises(DataError, match=f"1 items are not finite, .* of item {exported.original_id('int', 8)}:"):
            encode_candidates(Encoder(world.model, exported.HISTORY), world.catalogue, world.catalogue.counts, 1.0)
    finally:
        table.assign(sound)  # others use this model too


KILLED = """
import os, signal, sys
from clrec_tf.publishing import export_bundle
from tests import exported
export_bundle.write_manifest = lambda folder, facts: os.kill(os.getpid(), signal.SIGKILL)
exported.world("int").export(sys.argv[1])
"""


def test_a_killed_export_leaves_no_version_and_the_next_one_tidies_up(tmp_path):
    killed = forked.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False, capture_output=True, text=True,
                        cwd=pathlib.Path(__file__).parents[1])
    assert killed.returncode == -signal.SIGKILL, killed.stderr[-2000:]
    left, lock, held = sorted(os.listdir(tmp_path))
    assert lock == f"{left}.lock" and held == "publishing.lock"
    assert left.startswith("1.incomplete-") and os.path.exists(tmp_path / left / "saved_model.pb")
    with pytest.raises(DataError, match="no complete bundle"):
        load_bundle(str(tmp_path))
    assert exported.world("int").export(tmp_path) == str(tmp_path / "1")
    assert sorted(os.listdir(tmp_path)) == ["1", "batching.config", "models.config"]
