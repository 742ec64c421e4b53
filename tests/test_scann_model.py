"""The SavedModel that searches by ScaNN's operations: its answers, its needs, and what it refuses."""
import json
import os
import shutil
import sys

import numpy as np
import pytest
import tensorflow as tf

from clrec_tf.config import ExportConfig
from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.models.encode import Encoder
from clrec_tf.publishing.candidates import encode_candidates
from clrec_tf.publishing.graph_checks import foreign_ops
from clrec_tf.publishing import scann_model
from clrec_tf.publishing import scann_ops_index
from clrec_tf.publishing.scann_ops_index import OpsIndex
from clrec_tf.publishing.tower_parts import TowerParts
from clrec_tf.publishing import tuning
from clrec_tf.retrieval import efforts
from tests import exported
from tests import forked

KINDS, RANGE = ("string", exported.MULTI), (-0.25, 1.25)
OPS = ["Scann>ScannSearchBatched", "Scann>TensorsToScann"]


def request(kind, users=6, width=4, **changes):
    """Inputs of `retrieve`, of users with random histories, the first without any."""
    rng, bundle = np.random.default_rng(3), exported.loaded(kind)
    pad = "" if kind == "string" else -1
    ids = rng.choice(bundle.item_ids.astype(object if kind == "string" else np.int64), (users, width))
    ids[0] = pad
    given = dict(history=ids, timestamps=np.full(ids.shape, exported.NOW - 60), dwell=np.full(ids.shape, 9),
                 request_time=np.full(users, exported.NOW), intents=np.arange(1, users + 1, dtype=np.int32),
                 k=np.full(users, 7, np.int32), exclude=ids[:, :2],
                 popularity=np.array([0, 0.3, 1, -0.25, 1.25, 0.75][:users], np.float32)) | changes
    names = bundle.tower.signatures["retrieve"].structured_input_signature[1]
    return {name: tf.constant(given[name]) for name in names}


def answers(signature, inputs):
    return {name: value.numpy() for name, value in signature(**inputs).items()}


def save_exhaustive(world, folder):
    """A version that searches all leaves and scores all that it finds, so that it misses nothing, by construction."""
    candidates = encode_candidates(Encoder(world.model, exported.HISTORY), world.catalogue, world.catalogue.counts,
                                   world.model.temperature)
    parts = TowerParts(world.model, candidates, world.schema.id_type, exported.HISTORY, "c" * 64, RANGE)
    index = OpsIndex.build(candidates.searched, world.model.similarity == "cosine", 5)
    with parts.ids_file() as ids_file:
        scann_model.ScannTower(parts, ids_file, index.tuned(efforts.uniform(index.parameters["leaves"], 32))).save(str(folder))


@pytest.fixture(scope="module", params=KINDS)
def scann(request, tmp_path_factory):
    """(kind, loaded SavedModel) of a folder that has been moved."""
    kind, folder = request.param, tmp_path_factory.mktemp("scann")
    save_exhaustive(exported.world(kind), folder / "here")
    shutil.move(folder / "here", folder / "there")
    return kind, tf.saved_model.load(str(folder / "there"))


def test_every_answer_is_that_of_exact_search(scann):
    kind, model = scann
    exact = exported.loaded(kind).tower
    for changes in ({}, dict(k=np.array([1, 60, 3, 70, 5, 6], np.int32)),
                    dict(exclude=np.zeros((6, 0), object if kind == "string" else np.int64))):
        inputs = request(kind, **changes)
        found, expected = (answers(tower.signatures["retrieve"], inputs) for tower in (model, exact))
        assert set(found) == set(expected)
        np.testing.assert_array_equal(found["ids"], expected["ids"])
        np.testing.assert_allclose(found["scores"], expected["scores"], atol=1e-5)
        if kind == exported.MULTI:
            np.testing.assert_array_equal(found["intents"], expected["intents"])
    users = {name: value for name, value in inputs.items() if name not in ("k", "exclude")}
    for name, value in answers(exact.signatures["serving_default"], users).items():
        np.testing.assert_allclose(model.signatures["serving_default"](**users)[name], value, atol=1e-6)


def test_inputs_are_checked_as_in_the_other_model(scann):
    kind, model = scann
    for changes, words in ((dict(k=np.zeros(6, np.int32)), "k must be at least 1"),
                           (dict(k=np.ones(1, np.int32)), "k must have one entry per user")):
        with pytest.raises(tf.errors.InvalidArgumentError, match=words):
            model.signatures["retrieve"](**request(kind, **changes))


def test_it_says_what_it_needs():
    folder = exported.scann_folder("int")
    with open(os.path.join(folder, "needs.json"), encoding="utf-8") as file:
        needs = json.load(file)
    assert needs["operations"] == foreign_ops(os.path.join(folder, "saved_model.pb")) == OPS
    assert tf.__version__ in needs["needs"] and needs["versions"]["scann"] in needs["needs"]
    assert needs["measured"] == {"recall": 1, "recall_k": 5} and needs["checkpoint_hash"] == "c" * 64
    assert sorted(os.listdir(os.path.dirname(folder))) == ["1", "batching.config", "models.config"]
    assert os.path.exists(os.path.join(folder, "assets.extra", "tf_serving_warmup_requests"))
    with open(os.path.join(folder, "saved_model.pb"), "rb") as file:
        assert os.path.dirname(folder).encode() not in file.read()


def test_without_its_operations_python_does_not_load_it():
    """In a process of its own: here they are registered. For the C++ loader see test_saved_model.py."""
    code = "import sys, tensorflow as tf; tf.saved_model.load(sys.argv[1])"
    ran = forked.run([sys.executable, "-c", code, exported.scann_folder("int")], capture_output=True, text=True,
                     check=False, timeout=120)
    assert ran.returncode != 0 and "Op type not registered 'Scann>" in ran.stderr


def test_two_versions_in_one_process_keep_to_themselves(tmp_path):
    """ScaNN keeps an index as a resource of the process: its name must not be shared."""
    worlds = [exported.world("int"), exported.world("int", seed=1)]
    for number, world in enumerate(worlds):
        save_exhaustive(world, tmp_path / str(number))
    worlds[1].export(tmp_path / "a")
    inputs = request("int")
    models = [tf.saved_model.load(str(tmp_path / str(number))) for number in range(2)]
    exact = [exported.loaded("int").tower, tf.saved_model.load(str(tmp_path / "a" / "1"))]
    expected = [answers(tower.signatures["retrieve"], inputs)["ids"] for tower in exact]
    assert (expected[0] != expected[1]).any()
    for _ in range(2):
        for model, ids in zip(models, expected):
            np.testing.assert_array_equal(answers(model.signatures["retrieve"], inputs)["ids"], ids)


def test_the_best_of_each_item():
    """By hand: item 4 comes with three scores, item 7 and 2 tie, item 9 does not count."""
    scores = tf.constant([[.3, .9, .5, .5, float("-inf"), .7, .1]])
    rows, columns = tf.constant([[4, 4, 7, 2, 9, 4, 3]]), tf.constant([[0, 1, 0, 1, 0, 2, 2]])
    found = [part.numpy()[0].tolist() for part in scann_ops_index.best_of_each(scores, rows, columns, 4)]
    assert found == [pytest.approx([.9, .5, .5, .1]), [4, 2, 7, 3], [1, 1, 0, 2]]


def test_recall_counts_what_is_missing(tmp_path, monkeypatch):
    """A search that never finds the best item of each user loses one in five."""
    honest = scann_model.best_of_each

    def worse(scores, rows, columns, found):
        return tuple(tf.concat([part[:, 1:], part[:, -1:]], 1) for part in honest(scores, rows, columns, found))
    monkeypatch.setattr(scann_model, "best_of_each", worse)
    monkeypatch.setattr(tuning, "_EFFORTS", ((1, 32),))  # the index itself misses nothing
    with pytest.raises(DataError, match=r"--scann_export_dir has recall@5 = 0\.(79|80)\d\d, --target_recall=0.9"):
        exported.world("int").export(tmp_path / "a", scann_export_dir=str(tmp_path / "s"), target_recall=.9)
    assert os.listdir(tmp_path / "a") == os.listdir(tmp_path / "s") == []


@pytest.mark.parametrize("place, items, words", [
    ("{}/other", 15, "ScaNN needs at least 16 items, the catalogue has 15; leave the flag out"),
    ("{}/a", 60, "is --export_dir: stock servers would take"),
    ("{}/taken", 60, "2 exists there, and versions are never overwritten")])
def test_places_and_catalogues_that_will_not_do(place, items, words, tmp_path):
    os.makedirs(tmp_path / "taken" / "2")
    config = ExportConfig(scann_export_dir=place.format(tmp_path))
    with pytest.raises(UserError, match=f"--scann_export_dir=.*{words}"):
        scann_model.check_place(config, str(tmp_path / "a"), 2, items)
