"""Versions that come in pieces, that are tried again, and that are tried on held-out users before they take over."""
import json
import os
import shutil
import time

import numpy as np
import pytest

from clrec_tf.config import ExportConfig
from clrec_tf.errors import DataError
from clrec_tf.models.dial import Dial
from clrec_tf.publishing.export_bundle import export_bundle
from clrec_tf.publishing.export_bundle import TrainingFacts
from clrec_tf.retrieval.bundle import load_bundle
from clrec_tf.retrieval.export_folder import complete_versions
from clrec_tf.retrieval.export_folder import is_number
from clrec_tf.retrieval.search_options import SearchOptions
from clrec_tf import retrieve
from clrec_tf import serve
from clrec_tf.server.model_status import version_states
from clrec_tf.server.engine import Engine
from clrec_tf.server.refusals import Refusals
from clrec_tf.server import trial
from clrec_tf.server.version_folder import Seen
from clrec_tf.server.version_folder import seen
from clrec_tf.server.versions import Versions
from clrec_tf.server.without_paths import without_paths
from clrec_tf.system import json_files
from tests import exported
from tests.service_process import wait_for
from tests.test_versions import engine_of
from tests.test_versions import publish
from tests.test_versions import rewritten
from tests.test_versions import started
from tests.test_versions import models  # pylint: disable=unused-import  # noqa: F401

pytestmark = pytest.mark.usefixtures("unfrozen_afterwards")


def test_a_copy_whose_manifest_comes_first_is_served_when_it_is_complete(models, tmp_path):
    """As tools copy that go by names; manifest.json comes before saved_model.pb and the rest, and never changes."""
    publish(models[0], tmp_path, 1)
    versions, told = started(tmp_path), []
    source, target = models[1], tmp_path / "2"
    target.mkdir()
    files = sorted(os.path.relpath(os.path.join(parent, name), source)
                   for parent, _, names in os.walk(source) for name in names)
    files.sort(key=lambda name: name != "manifest.json")
    for name in files:
        assert versions.engine.version == 1
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(os.path.join(source, name), target / name)
        versions.look()
        told.append(versions.refusals.get(2, ""))
    assert versions.engine.version == 2 and not versions.refusals and not versions.complaint
    assert all("is missing though the manifest lists it" in text for text in told[:-1]) and len(told) > 5


def test_a_file_that_grows_is_looked_at_again_without_reading_what_has_come(models, tmp_path, monkeypatch):
    publish(models[0], tmp_path, 1)
    versions = started(tmp_path)
    publish(models[1], tmp_path, 2)
    path = tmp_path / "2" / "variables" / "variables.data-00000-of-00001"
    whole = path.read_bytes()
    path.write_bytes(whole[:100])
    monkeypatch.setattr("clrec_tf.retrieval.manifest._sha256", lambda path: pytest.fail("read for nothing"))
    versions.look()
    assert f"100 bytes, {len(whole)} expected" in versions.refusals[2]
    monkeypatch.undo()
    path.write_bytes(whole)
    versions.look()
    assert versions.engine.version == 2


def test_what_fails_for_a_passing_reason_is_tried_again_also_at_a_hangup(models, tmp_path, monkeypatch):
    publish(models[0], tmp_path, 1)
    short, refused = [True], []

    def make(bundle):
        if short and bundle.path.endswith("/2"):
            raise MemoryError("no memory")
        return engine_of(bundle)
    versions = Versions(str(tmp_path), 0, make, refused=lambda: refused.append(1))
    versions.start()
    publish(models[1], tmp_path, 2)
    versions.look()
    assert "MemoryError: no memory" in versions.refusals[2] and refused == [1]
    short.clear()
    versions.look()
    assert versions.engine.version == 1  # not yet
    versions.look_now()
    versions.look()
    assert versions.engine.version == 2 and not versions.refusals
    clock = [0.0]
    versions._refusals = Refusals(lambda: clock[0])
    short.append(True)
    shutil.rmtree(tmp_path / "2")
    versions.look()
    publish(models[1], tmp_path, 2)
    tries = []
    for clock[0] in range(0, 200):
        before = versions._refusals._refusals.get(2)
        versions.look()
        if versions._refusals._refusals[2] is not before:
            tries.append(clock[0])
    assert tries == [0, 5, 15, 35, 75, 155] and refused == [1, 1]  # the same fault counts once
    short.clear()
    clock[0] = 400
    versions.look()
    assert versions.engine.version == 2


def test_pauses_grow_to_ten_minutes_and_begin_anew_with_other_files():
    clock = [0.0]
    refusals, one, other = Refusals(lambda: clock[0]), Seen(3, (1,), ("a",)), Seen(3, (1,), ("a", "b"))
    pauses = [refusals.add(one, "x") for _ in range(10)]
    assert pauses == [(True, 5), *[(False, pause) for pause in (10, 20, 40, 80, 160, 320, 600, 600, 600)]]
    assert not refusals.due(one) and refusals.due(other) and refusals.due(Seen(4))
    assert refusals.add(other, "x") == (True, 5) and refusals.texts == {3: "x"}
    clock[0] = 5.0
    assert refusals.due(other)
    refusals.add(other, "x")
    refusals.retry()
    assert refusals.due(other) and refusals.add(other, "y") == (True, 5)  # another fault of the same files
    refusals.drop(3)
    assert not refusals.texts


def test_a_version_that_is_tried_again_and_again_does_not_keep_an_older_sound_one_away(models, tmp_path):
    publish(models[0], tmp_path, 1)
    versions = started(tmp_path)
    publish(models[1], tmp_path, 5, "half")
    publish(models[1], tmp_path, 3)
    versions.look_now()
    versions.look()
    assert versions.engine.version == 3 and "is damaged" in versions.refusals[5]
    assert "is damaged" in versions.complaint


def nan(path):
    np.save(path, np.full_like(np.load(path), np.nan))


def alike(path):
    np.save(path, np.repeat(np.load(path)[:1], exported.ITEMS, axis=0))


@pytest.mark.parametrize("write, text", [
    (nan, "scores that are not finite"), (alike, "equal scores to the 5 best items of each of")])
def test_a_version_of_bad_vectors_does_not_take_over(models, tmp_path, write, text):
    """Every file is what its manifest says; the model is worth nothing."""
    publish(models[0], tmp_path, 1)
    versions = started(tmp_path)
    publish(models[1], tmp_path, 2)
    os.chmod(tmp_path / "2" / "index" / "vectors.npy", 0o644)
    rewritten(tmp_path / "2", "index/vectors.npy", write)
    versions.look()
    assert versions.engine.version == 1 and text in versions.refusals[2]
    with pytest.raises(DataError, match=text):
        started(tmp_path, wanted=2)


def test_a_version_that_finds_less_than_its_manifest_says_does_not_take_over(tmp_path):
    sound = exported.world("int").export(tmp_path / "sound", index="faiss", target_recall=0.5)
    trial.try_out(engine_of(load_bundle(sound)))

    def narrow(path):
        with open(path, encoding="utf-8") as file:
            facts = json.load(file)
        facts["parameters"]["effort"] = [[1000, 1, 5]]
        with open(path, "w", encoding="utf-8") as file:
            json.dump(facts, file)
    rewritten(sound, "index/index.json", narrow)
    rewritten(sound, "index/head.npy", lambda path: np.save(path, np.zeros(0, np.int64)))  # else it scores all 60 items
    with pytest.raises(DataError, match=r"recall@5 = 0\.\d+, its manifest says [01]\.\d+"):
        trial.try_out(engine_of(load_bundle(sound)))


@pytest.mark.parametrize("kind", ["string", "int", exported.MULTI])
def test_sound_versions_pass_with_few_queries_too(kind, monkeypatch):
    engine, asked = Engine(exported.loaded(kind), SearchOptions(k=5), lambda stage, seconds: None), []
    recall_at_k = trial.recall_at_k

    def counted(index, vectors, queries, *rest):
        asked.append(len(queries))
        return recall_at_k(index, vectors, queries, *rest)

    monkeypatch.setattr(trial, "recall_at_k", counted)
    trial.try_out(engine)
    monkeypatch.setattr(trial, "_MOST_SCORES", 1)
    monkeypatch.setattr(trial, "_LEAST_QUERIES", 7)
    monkeypatch.setattr(trial, "_BLOCK", 7)  # items, of 60
    trial.try_out(engine)
    assert asked[0] > 7 and asked[1:] == [7]


def test_the_exact_search_of_the_trial_is_exact(monkeypatch):
    monkeypatch.setattr(trial, "_BLOCK", 7)
    bundle, rng = exported.loaded("int"), np.random.default_rng(3)
    items, queries = np.arange(3, 55, 2), rng.normal(size=(6, 9)).astype(np.float32)
    expected = np.sort(queries @ bundle.item_vectors(items).T, axis=1)[:, :-6:-1]
    np.testing.assert_allclose(trial._best_scores(bundle, items, queries, 5), expected, rtol=1e-6)


def test_a_version_without_what_it_could_be_tried_on_is_served(models, tmp_path, caplog):
    publish(models[0], tmp_path, 1)
    manifest = tmp_path / "1" / "manifest.json"
    facts = json_files.unsealed(json.loads(manifest.read_text()))
    for name in ("index/queries.npy", "assets.extra/tf_serving_warmup_requests"):
        (tmp_path / "1" / name).unlink()
        del facts["files"][name]
    manifest.write_text(json.dumps(json_files.sealed(facts)))
    assert started(tmp_path).engine.version == 1
    assert caplog.text.count("is served without that try") == 2


@pytest.mark.parametrize("number", [2**31, 20261129013000, 2**63 - 1])
def test_large_numbers_can_be_asked_for(models, tmp_path, number):
    publish(models[0], tmp_path, 1)
    publish(models[1], tmp_path, number)
    assert started(tmp_path, wanted=number).engine.version == number
    versions = started(tmp_path, wanted=1)
    (tmp_path / "serve_version").write_text(f"{number}\n")
    versions.look()
    assert versions.engine.version == number and not versions.complaint
    (tmp_path / "serve_version").write_text(str(2**63))
    versions.look()
    assert "write the number of a version" in versions.complaint


def test_names_that_no_server_counts_are_no_versions(tmp_path):
    for name in ("1", "007", str(2**63), "9" * 200, "²", "-1", "1.0"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.json").touch()
    assert complete_versions(str(tmp_path)) == [1] and is_number("0") and is_number(str(2**63 - 1))


def test_the_status_names_no_path_of_the_server(models, tmp_path):
    folder = tmp_path / "a b" / "export"
    folder.mkdir(parents=True)
    publish(models[0], folder, 1)
    for number, how in enumerate(("corrupt", "mixed", "format", "half", "missing", "unlike"), 2):
        publish(models[1], folder, number, how)
    publish(models[1], folder, 8)
    os.remove(folder / "8" / "saved_model.pb")
    os.mkdir(folder / "8" / "saved_model.pb")
    versions = started(folder)
    (folder / "serve_version").write_text("99")
    versions.look()
    told = json.dumps(version_states(versions))
    assert "99 is asked for" in told and "variables/variables.data-00000-of-00001 differs" in told
    assert "tmp" not in told and "a b" not in told and str(folder) not in told and "/export" not in told


@pytest.mark.parametrize("text, expected", [
    ("/srv/x/5/manifest.json is damaged", "5/manifest.json is damaged"),
    ("/srv/x holds none, /srv/xy/a/b does", "--export_dir holds none, b does"),
    ("cannot load '/usr/lib/python3/a.so': history/exclude, k/n and http://x/y/z",
     "cannot load 'a.so': history/exclude, k/n and http://x/y/z"), ("nothing", "nothing")])
def test_texts_without_paths(text, expected):
    assert without_paths(text, "/srv/x/") == expected


def test_a_version_is_seen_by_its_files(models, tmp_path):
    publish(models[0], tmp_path, 1)
    before = seen(str(tmp_path), 1)
    assert seen(str(tmp_path), 1) == before and seen(str(tmp_path), 2) == Seen(2)
    (tmp_path / "1" / "assets.extra" / "more").touch()
    after = seen(str(tmp_path), 1)
    assert after != before and after.manifest == before.manifest


def test_without_looks_only_a_hangup_brings_another_version(models, tmp_path):
    publish(models[0], tmp_path, 1)
    versions = started(tmp_path)
    versions.follow(0)
    publish(models[1], tmp_path, 2)
    time.sleep(0.5)
    assert versions.engine.version == 1
    versions.look_now()
    wait_for(lambda: versions.engine.version == 2, 20)
    versions.stop()


@pytest.mark.parametrize("usage", [serve.USAGE, retrieve.USAGE])
def test_it_is_said_that_a_bundle_is_code(usage):
    assert "A bundle is code" in usage


@pytest.mark.parametrize("popularity", [0.8, -0.1])
def test_a_version_whose_default_is_not_as_trained_takes_over(tmp_path, popularity):
    """Its warm-up requests name the default."""
    world = exported.world("int")
    dial = Dial(world.catalogue.counts, popularity, -0.1, 1.1)
    export_bundle(world.model, world.schema, world.catalogue, world.users, str(tmp_path), ExportConfig(recall_k=5),
                  TrainingFacts("c" * 64, 7, exported.HISTORY, {}), dial=dial)
    engine = started(tmp_path).engine
    assert engine.version == 1 and engine.defaults.popularity == popularity
