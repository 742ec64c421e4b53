"""The exported query tower: equal to the live model, indifferent to padding, and free of anything but stock ops."""
import os
import pathlib
import re
import shutil
import subprocess

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import numpy as np
import pytest
import tensorflow as tf

from clrec_tf.config import Config
from clrec_tf.data.evaluation_set import EvaluationSet
from clrec_tf.models.build import build_model
from clrec_tf.models.encode import Encoder
from clrec_tf.publishing.candidates import encode_candidates
from clrec_tf.publishing.graph_checks import foreign_ops
from clrec_tf.publishing.saved_model import MAX_RETRIEVED
from clrec_tf.publishing.saved_model import UserTower
from clrec_tf.publishing.tower_parts import TowerParts
from tests import exported

PAD = {"int": -1, "string": ""}
UNKNOWN = {"int": 5, "string": "no such item"}


def inputs(kind, histories, times=None, width=None):
    """Signature inputs from lists of item numbers; 0 is padding, −1 an unknown item."""
    width = max([0, *map(len, histories)]) if width is None else width
    names = {0: PAD[kind], -1: UNKNOWN[kind]}
    rows = [[names[number] if number < 1 else exported.original_id(kind, number)
             for number in history + [0] * (width - len(history))] for history in histories]
    arguments = {"history": tf.constant(rows, tf.int64 if kind == "int" else tf.string, (len(rows), width)),
                 "popularity": tf.zeros([len(rows)])}
    if kind == "string":
        padded = [[exported.NOW - gap for gap in gaps] + [0] * (width - len(gaps))
                  for gaps in times or [[10**6 + 60 * i for i in range(len(history))] for history in histories]]
        arguments["timestamps"] = tf.constant(padded, tf.int64, (len(rows), width))
        arguments["request_time"] = tf.fill([len(rows)], tf.constant(exported.NOW, tf.int64))
    return arguments


def predict(kind, *arguments, **options):
    result = exported.loaded(kind).tower.signatures["serving_default"](**inputs(kind, *arguments, **options))
    assert result["user_vectors"].shape[1:] == (1, 9) and not np.any(result["user_vectors"][:, :, 8]) and np.array_equal(result["weights"], np.ones(
        (result["user_vectors"].shape[0], 1)))
    return result["user_vectors"].numpy()[:, 0, :8]


def excluded(kind, exclude):
    """The input `exclude` from lists of item numbers."""
    width = max(map(len, exclude), default=0)
    ids = [[exported.original_id(kind, item) if item else PAD[kind] for item in list(row) + [0] * (width - len(row))]
           for row in exclude]
    return tf.constant(ids, tf.int64 if kind == "int" else tf.string, (len(ids), width))


def retrieve(kind, histories, k, exclude=None, **options):
    """(ids, scores) of the `retrieve` signature; k of all users or of each, exclude as item numbers."""
    users = len(histories)
    result = exported.loaded(kind).tower.signatures["retrieve"](
        k=tf.constant(np.broadcast_to(k, users), tf.int32), exclude=excluded(kind, exclude or [[]] * users),
        **inputs(kind, histories, **options))
    names = result["ids"].numpy()
    return (np.char.decode(names.astype(bytes), "utf-8") if kind == "string" else names), result["scores"].numpy()


def live_vectors(kind, histories, gaps=None):
    """The live model's vectors of lists of item numbers, with times as in `inputs`."""
    world = exported.world(kind)
    ids = np.array(sum(histories, []), np.int64)
    splits, count = np.append(0, np.cumsum([len(history) for history in histories])), len(histories)
    gaps = gaps or [[10**6 + 60 * i for i in range(len(history))] for history in histories]
    times = dict(history_features=world.catalogue.item_rows[ids - 1, 1:], request_times=np.full(count, exported.NOW),
                 history_times=exported.NOW - np.array(sum(gaps, []))) if kind == "string" else {}
    users = EvaluationSet(np.arange(count), ids, splits, np.ones(count, int), np.arange(count + 1), **times)
    return Encoder(world.model, exported.HISTORY).user_vectors(users)


@pytest.mark.parametrize("kind", exported.KINDS)
def test_vectors_equal_the_live_model(kind):
    histories = [[3], [1, 2, 3, 4, 5, 6, 7], [9, 9, 8, 60], [60, 1]]
    np.testing.assert_allclose(predict(kind, histories), live_vectors(kind, histories), atol=1e-6)


def test_the_mean_tower_by_hand():
    """Mean of the last T = 4 vectors: item 1 of the five drops out."""
    table = exported.world("int").model.item_encoder.ids.table.numpy()
    np.testing.assert_allclose(predict("int", [[1, 2, 3, 4, 5]])[0], table[2:6].sum(axis=0) / 4, atol=1e-6)


@pytest.mark.parametrize("kind", exported.KINDS)
def test_padding_and_unknown_items_change_nothing_wherever_they_stand(kind):
    plain, gaps = [[7, 8, 9, 10, 11]], [[500, 400, 300, 200, 100]]
    strewn = [[0, 7, -1, 8, 0, 9, 10, -1, 11, 0, 0]]
    strewn_gaps = [[1, 500, 1, 400, 1, 300, 200, 1, 100, 1, 1]]
    expected = predict(kind, plain, gaps)
    np.testing.assert_array_equal(predict(kind, strewn, strewn_gaps), expected)
    np.testing.assert_array_equal(predict(kind, [history + [-1] * 40 for history in plain],
                                          [row + [1] * 40 for row in gaps], width=90), expected)
    # Removal comes before truncation: an older known click takes the place of a recent unknown one.
    np.testing.assert_array_equal(predict(kind, [[8, 9, 10, 11]], [[400, 300, 200, 100]]), expected)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(-1, exported.ITEMS), max_size=12), st.integers(0, 5), st.data())
def test_result_depends_on_the_known_items_alone(history, extra, data):
    kind = data.draw(st.sampled_from(exported.KINDS))
    known = [item for item in history if item > 0]
    gaps = [10 * (item + 2) for item in history]
    known_gaps = [10 * (item + 2) for item in known]
    expected = predict(kind, [known], [known_gaps])
    np.testing.assert_array_equal(predict(kind, [history], [gaps], width=len(history) + extra), expected)


def test_times_matter_and_unknown_times_are_one_bucket_of_their_own():
    near, far = predict("string", [[5, 6]], [[10, 10]]), predict("string", [[5, 6]], [[10**6, 10**6]])
    assert np.abs(near - far).max() > 1e-3
    np.testing.assert_allclose(near, live_vectors("string", [[5, 6]], [[10, 10]]), atol=1e-6)
    signature = exported.loaded("string").tower.signatures["serving_default"]
    arguments = inputs("string", [[5, 6]], [[10, 10]])
    unknown = [signature(**arguments | change)["user_vectors"].numpy() for change in (
        {"timestamps": tf.constant([[0, -3]], tf.int64)}, {"request_time": tf.constant([0], tf.int64)})]
    np.testing.assert_array_equal(*unknown)
    unknown = unknown[0][:, 0, :8]
    assert np.abs(unknown - near).max() > 1e-3 and np.abs(unknown - far).max() > 1e-3
    # A click after the request counts as one at the request.
    np.testing.assert_array_equal(predict("string", [[5]], [[-100]]), predict("string", [[5]], [[0]]))
    # Also one second after it, a gap that must not be taken for the mark of unknown times, −1.
    np.testing.assert_array_equal(predict("string", [[5, 6]], [[-1, -1]]), predict("string", [[5, 6]], [[0, 0]]))
    assert np.abs(predict("string", [[5, 6]], [[-1, -1]]) - unknown).max() > 1e-3


@pytest.mark.parametrize("kind", exported.KINDS)
def test_a_history_without_known_items_is_the_zero_vector_and_retrieves_the_most_popular(kind):
    empty = [[], [0, 0], [-1, -1, -1]]
    np.testing.assert_array_equal(predict(kind, empty), np.zeros((3, 8)))
    np.testing.assert_array_equal(predict(kind, [[]]), np.zeros((1, 8)))  # width 0
    counts = exported.world(kind).catalogue.counts
    popular = sorted(range(1, exported.ITEMS + 1), key=lambda item: (-counts[item - 1], item))
    ids, scores = retrieve(kind, empty, 4, exclude=[[], [popular[0], popular[2]], []])
    assert ids[0].tolist() == ids[2].tolist() == [exported.original_id(kind, item) for item in popular[:4]]
    assert ids[1].tolist() == [exported.original_id(kind, popular[rank]) for rank in (1, 3, 4, 5)]
    np.testing.assert_array_equal(scores, np.zeros((3, 4)))


def test_an_empty_history_is_zero_even_where_the_encoder_has_biases():
    world = exported.world("int")
    model = build_model(Config.of(embedding_dim=8, max_history=exported.HISTORY, head_aggregation="mean_mlp"),
                        world.schema)
    for variable in model.user_encoder.variables:
        variable.assign(variable + 0.1)
    candidates = encode_candidates(Encoder(model, exported.HISTORY), world.catalogue, world.catalogue.counts, 1.0)
    parts = TowerParts(model, candidates, "int", exported.HISTORY, "c" * 64, (0.0, 1.0))
    with parts.ids_file() as ids_file:
        tower = UserTower(parts, ids_file)
    users = tower.encode_users(tf.constant([[-1, 5], [exported.original_id("int", 3), -1]], tf.int64),
                               tf.constant([1.0, 0.0]))[0].numpy()[:, 0]
    assert not users[0].any() and np.linalg.norm(users[1]) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("k", [1, 7, exported.ITEMS + 5])
@pytest.mark.parametrize("kind", exported.KINDS)
def test_retrieve_equals_a_walk_through_the_catalogue(kind, k):
    world = exported.world(kind)
    histories, exclude = [[3, 14, 15], [9, 2, 6, 5, 35], [58, 59]], [[3, 14, 15], [], [1, 1, 2, 59]]
    users = live_vectors(kind, histories)
    items = world.model.item_vectors(tf.constant(world.catalogue.item_rows)).numpy()
    ids, scores = retrieve(kind, histories, k, exclude)
    for row, user in enumerate(users):
        ranked = []
        for number, item in enumerate(items, 1):
            norm = np.sqrt((item ** 2).sum()) if kind == "string" else 1.0  # the cosine; the dot product
            if number not in exclude[row]:
                ranked.append((float(user @ item / norm), number))
        ranked.sort(reverse=True)
        missing = max(0, k - len(ranked))
        best = [exported.original_id(kind, number) for _, number in ranked[:k]]
        assert ids[row].tolist() == best + [PAD[kind]] * missing
        np.testing.assert_allclose(scores[row], [score for score, _ in ranked[:k]] + [-np.inf] * missing, atol=1e-5)


@pytest.mark.parametrize("kind", exported.KINDS)
def test_each_user_has_a_k_of_its_own_and_the_rest_of_a_row_is_padding(kind):
    histories, exclude, k = [[3, 14], [9, 2, 6], [0], [58]], [[3], [], [1], [58, 59]], [2, exported.ITEMS + 3, 1, 7]
    ids, scores = retrieve(kind, histories, k, exclude, width=3)
    assert ids.shape == scores.shape == (4, exported.ITEMS + 3)
    for user, own in enumerate(k):
        alone, alone_scores = retrieve(kind, [histories[user]], own, [exclude[user]], width=3)
        missing = exported.ITEMS + 3 - own
        assert ids[user].tolist() == alone[0].tolist() + [PAD[kind]] * missing
        np.testing.assert_allclose(scores[user], alone_scores[0].tolist() + [-np.inf] * missing, atol=1e-6)


def test_k_is_bounded_for_every_user():
    for k, message in ((0, "at least 1"), (-1, "at least 1"), (MAX_RETRIEVED + 1, f"at most {MAX_RETRIEVED}")):
        with pytest.raises(tf.errors.InvalidArgumentError, match=f"k must be {message}") as error:
            retrieve("int", [[1], [2]], [3, k])
        assert str(k) in error.value.message.split("[3 ")[1]  # the value that is wrong


@pytest.mark.parametrize("name, value", [
    ("k", tf.constant([3])), ("k", tf.constant([3] * 3)), ("request_time", tf.constant([9], tf.int64)),
    ("exclude", tf.constant([[""]])), ("exclude", tf.fill([3, 2], ""))])
def test_one_entry_does_not_stand_for_two_users(name, value):
    arguments = inputs("string", [[1], [2]]) | dict(k=tf.constant([3, 3]), exclude=tf.fill([2, 1], ""))
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"{name} must have one entry per user"):
        exported.loaded("string").tower.signatures["retrieve"](**arguments | {name: value})


def test_no_user_has_no_result():
    ids, scores = retrieve("int", [], 3, [])
    assert ids.shape == scores.shape == (0, 1) and predict("int", []).shape == (0, 8)


@pytest.mark.parametrize("kind", exported.KINDS)
def test_encode_items(kind):
    world = exported.world(kind)
    ids = [exported.original_id(kind, 4), UNKNOWN[kind], PAD[kind], exported.original_id(kind, 60)]
    result = exported.loaded(kind).tower.signatures["encode_items"](
        ids=tf.constant(ids, tf.int64 if kind == "int" else tf.string))
    items = world.model.item_vectors(tf.constant(world.catalogue.item_rows[[3, 59]])).numpy()
    if kind == "string":
        items /= np.linalg.norm(items, axis=1, keepdims=True)
    assert result["known"].numpy().tolist() == [True, False, False, True]
    np.testing.assert_allclose(result["vectors"][:, :8], [items[0], np.zeros(8), np.zeros(8), items[1]], atol=1e-6)


@pytest.mark.parametrize("kind", exported.KINDS)
def test_only_the_item_matrix_and_the_query_tower_are_saved(kind):
    folder = exported.bundle_folder(kind)
    shapes = [shape for _, shape in tf.train.list_variables(os.path.join(folder, "variables", "variables"))]
    assert [exported.ITEMS, 8] in shapes
    assert not [shape for shape in shapes if shape[:1] in ([9], [7], [1 + exported.ITEMS + exported.BUCKETS])]
    assert sorted(exported.loaded(kind).tower.signatures) == ["encode_items", "retrieve", "serving_default"]


def test_foreign_ops_are_found(tmp_path):
    class Foreign(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([], tf.float32)])
        def double(self, x):
            return tf.map_fn(lambda y: tf.numpy_function(lambda v: v, [y], tf.float32), x[None])
    tf.saved_model.save(Foreign(), str(tmp_path))
    assert [op for op in foreign_ops(str(tmp_path / "saved_model.pb")) if "PyFunc" in op]
    assert foreign_ops(os.path.join(exported.bundle_folder("string"), "saved_model.pb")) == []


@pytest.fixture(scope="module")
def runner(tmp_path_factory):
    """run_saved_model.cc compiled against the installed TensorFlow."""
    assert shutil.which("g++"), "g++ is missing: install a C++ compiler (Debian: apt-get install g++)"
    program = str(tmp_path_factory.mktemp("runner") / "run_saved_model")
    library = tf.sysconfig.get_lib()
    source = str(pathlib.Path(__file__).with_name("run_saved_model.cc"))
    subprocess.run(["g++", "-O0", *tf.sysconfig.get_compile_flags(), source, "-o", program, f"-L{library}",
                    "-Wl,--no-as-needed", "-l:libtensorflow_cc.so.2", "-l:libtensorflow_framework.so.2",
                    f"-Wl,-rpath,{library}"], check=True)
    return program


@pytest.mark.slow
def test_every_signature_runs_in_the_cpp_loader_with_the_same_result(runner):
    """The loader that TensorFlow Serving uses, in a process without Python."""
    for kind in (*exported.KINDS, exported.MULTI):  # in one test, so that parallel workers compile once
        item = exported.original_id(kind, 3)
        command = [runner, exported.bundle_folder(kind), str(item)]
        finished = subprocess.run(command, capture_output=True, text=True, check=False)
        assert finished.returncode == 0, finished.stderr[-2000:]
        lines = dict(line.split("\t", 1) for line in finished.stdout.splitlines())
        numbers = ["retrieve.intents", "serving_default.intents"] if kind == exported.MULTI else []
        assert sorted(lines) == sorted(["encode_items.known", "encode_items.vectors", "retrieve.ids", "retrieve.scores",
                                        "serving_default.user_vectors", "serving_default.weights", *numbers])
        predict_signature = exported.loaded(kind).tower.signatures["serving_default"]
        given = {"history": item, "intents": 2}
        arguments = {name: tf.fill([1, 3][:spec.shape.rank], tf.constant(given.get(name, 1), spec.dtype))
                     for name, spec in predict_signature.structured_input_signature[1].items()}
        for name, value in predict_signature(**arguments).items():
            served = np.array(lines[f"serving_default.{name}"].split("\t"), float)
            np.testing.assert_allclose(served, np.tile(value.numpy().ravel(), 2), atol=1e-6)  # two users, alike
        assert lines["encode_items.known"] == "\t".join(["1"] * 2)
        assert str(item) not in lines["retrieve.ids"].split("\t")  # it is excluded
    command = [runner, exported.scann_folder("int"), "1007"]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    # A stock runtime loads the model that needs ScaNN, and fails to run it: so what only loads proves nothing.
    assert finished.returncode == 3 and re.search("cannot run retrieve: .*Op type not registered 'Scann>",
                                                  finished.stderr)
