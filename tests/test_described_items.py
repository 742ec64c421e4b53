"""Items inserted by their features: what export would have made of them, in index, histories and server."""
import atexit
import dataclasses
import functools
import json
import pathlib
import re
import shutil
import signal
import sys
import tarfile
import tempfile

import grpc
import numpy as np
import polars as pl
import pytest
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from clrec_tf.config import Config
from clrec_tf.data.catalogue import Catalogue
from clrec_tf.data.frequencies import counts_by_feature
from clrec_tf.data.schema import Feature
from clrec_tf.encoders.items import ItemEncoder
from clrec_tf.errors import DataError
from clrec_tf.models.build import build_model
from clrec_tf.preparation.vocabulary import bucket
from clrec_tf.publishing import item_encoder
from clrec_tf.publishing import update_bundle
from clrec_tf.retrieval.bundle import load_bundle
from clrec_tf.retrieval import manifest as manifest_lib
from clrec_tf.retrieval.retriever import Retriever
from clrec_tf.retrieval.search_options import SearchOptions
from clrec_tf.retrieval.user_requests import UserRequest
from clrec_tf.server.engine import Engine
from tests import exported
from tests import forked
from tests.cases import in_ci
from tests.exported import HISTORY, INTENTS, ITEMS
from tests.service_process import serving, wait_for

COLD = 4  # items that nobody clicked: the last numbers of the catalogue
BRAND, TAGS, WIDTH = Feature("brand", 10, 1, 8), Feature("tags", 7, 2, 6), 3  # brand has a hash bucket, tags has none
CONFIGS = dict(
    attention=dict(feature_projection=True, feature_dims=("3", "4"), content_hidden=5),
    dot=dict(similarity="dot", user_encoder="mean", position="none"),
    gated=dict(model="multi_clrec", num_intents=INTENTS, category_feature="tags"),
    paper=dict(model="multi_clrec", num_intents=INTENTS, multi_objective="paper", intent_margin=0.0))
RAW = ("attention", "gated")  # with dense vectors


@functools.cache
def world(name: str, id_dropout: float = 0.2, **settings) -> exported.World:
    """A data set of integer ids with features, dense vectors and items that nobody has clicked."""
    base, rng = exported.world(exported.MULTI), np.random.default_rng(3)
    width = WIDTH if name in RAW else 0
    schema = dataclasses.replace(base.schema, features=(BRAND, TAGS), content_width=width, has_dwell=False,
                                 has_timestamps=False)
    drawn = [rng.integers(low, high, schema.item_rows) for low, high in ((1, 9), (1, 7), (0, 7))]
    rows = np.stack([np.arange(schema.item_rows), *drawn], axis=1)
    counts, cold = base.catalogue.counts.copy(), np.arange(ITEMS) >= ITEMS - COLD
    counts[cold] = 0
    content = rng.standard_normal((schema.item_rows, width)).astype(np.float32) if width else None
    config = Config.of(**dict(dict(embedding_dim=8, max_history=HISTORY, id_dropout=id_dropout), **CONFIGS[name],
                              **settings))
    users = dataclasses.replace(base.users, history_features=rows[base.users.history_ids, 1:], history_times=None,
                                request_times=None, history_dwell=None)
    catalogue = Catalogue(rows[1:ITEMS + 1], counts, base.catalogue.original_ids, None, None, cold)
    return exported.World(schema, build_model(config, schema, content, seed=1), catalogue, users)


def described(name: str, number: int) -> dict:
    """What a file says of a catalogue item: the names of its features' values, and its dense vector."""
    _, brand, *tags = world(name).catalogue.item_rows[number - 1]
    item = {"features": {"brand": f"brand{brand}", "tags": [f"tags{tag}" for tag in tags if tag]}}
    if name in RAW:
        item["content"] = world(name).model.item_encoder.content[number].numpy().tolist()
    return item


GOOD = {"brand": "brand1"}
NUMBERS = list(range(ITEMS - COLD + 1, ITEMS + 1))
IDS = [exported.original_id(exported.MULTI, number) for number in NUMBERS]


@functools.cache
def exported_folder(name: str, **settings) -> str:
    """Folder of versions with version 1 of a world; read only."""
    scratch = tempfile.TemporaryDirectory()
    atexit.register(scratch.cleanup)
    world(name, settings.pop("id_dropout", 0.2)).export(scratch.name, **settings)
    return scratch.name


def lines(path, *values):
    path.write_text("".join((value if isinstance(value, str) else json.dumps(value)) + "\n" for value in values))
    return str(path)


def update(export_dir, *items, withdraw=()):
    """The newest version after an update."""
    folder = export_dir.parent
    return load_bundle(update_bundle.update_bundle(
        str(export_dir), lines(folder / "items.jsonl", *items) if items else "",
        lines(folder / "gone.txt", *map(str, withdraw)) if withdraw else "", 0.9))


def versions(export_dir):
    return sorted(int(path.name) for path in export_dir.iterdir() if path.name.isdigit())


@pytest.fixture(name="export_dir")
def fixture_export_dir(tmp_path):
    """The attention model without its cold items, version 1."""
    return pathlib.Path(shutil.copytree(exported_folder("attention", cold_items=False), tmp_path / "export"))


@pytest.fixture(params=in_ci(CONFIGS, "dot", "gated"))
def name(request):
    return request.param


def user(bundle, *history):
    """All vectors of a user, by the retriever as the server uses it."""
    found = Retriever(bundle).encode([UserRequest(None, list(history))])
    return found.by_number().vectors[0]


def test_an_item_by_features_is_the_one_that_export_would_have_made(name, tmp_path, caplog):
    whole = load_bundle(exported_folder(name))
    shutil.copytree(exported_folder(name, cold_items=False), tmp_path / "export")
    assert "nothing was learned" not in caplog.text
    before = load_bundle(str(tmp_path / "export"))
    assert not (before.all_positions(np.array(IDS)) >= 0).any() and "history_rows.npz" not in before.manifest["files"]
    bundle = update(tmp_path / "export",
                    *({"id": item, **described(name, number)} for item, number in zip(IDS, NUMBERS)))
    assert "without --id_dropout" not in caplog.text and "do not count in histories" not in caplog.text
    assert "have no `clicks`" not in caplog.text  # features let expect how often
    mine, theirs = (each.item_vectors(each.positions(np.array(IDS))) for each in (bundle, whole))
    catalogue, features = world(name).catalogue, world(name).schema.features
    expected = np.rint(counts_by_feature(catalogue.counts, catalogue.item_rows, features))[-COLD:]
    np.testing.assert_allclose(mine[:, -1], [bundle.dial.coordinate(count) for count in expected], atol=1e-6)
    assert len(set(expected)) > 1
    mine, theirs = mine[:, :-1], theirs[:, :-1]  # these catalogues count clicks alone
    np.testing.assert_allclose(mine, theirs, rtol=0, atol=2e-7)
    if name not in RAW and "multi" not in CONFIGS[name].get("model", ""):  # sums of rows, the same bit by bit
        np.testing.assert_array_equal(mine, theirs)
    assert np.abs(mine[0] - mine[1]).max() > 0.01
    warm = exported.original_id(exported.MULTI, 5)
    for history in ([IDS[0]], [IDS[1], IDS[1]], [warm, IDS[2], IDS[3]], [IDS[0], warm, warm, IDS[1], IDS[0]], [warm]):
        np.testing.assert_allclose(user(bundle, *history), user(whole, *history), rtol=0, atol=1e-6)
    assert np.abs(user(bundle, IDS[0]) - user(bundle, IDS[1])).max() > 1e-3 < np.abs(user(bundle, IDS[0])).max()
    np.testing.assert_array_equal(user(before, IDS[0]), 0)
    result, = Retriever(bundle)([UserRequest(None, [IDS[0]])])[0]
    assert not result.fallback and not result.unknown


def test_histories_without_inserted_items_take_the_old_way(export_dir):
    bundle = update(export_dir, {"id": IDS[0], **described("attention", NUMBERS[0])})
    warm = exported.original_id(exported.MULTI, 5)
    expected = user(bundle, warm)
    bundle.__dict__["_recent_inserted"] = None  # cannot be called
    np.testing.assert_array_equal(user(bundle, warm), expected)
    with pytest.raises(TypeError):
        user(bundle, warm, IDS[0])


def test_a_server_is_warm_for_inserted_items_too(export_dir):
    bundle = update(export_dir, {"id": IDS[0], **described("attention", NUMBERS[0])})
    function, called = bundle._recent_inserted, []
    bundle.__dict__["_recent_inserted"] = lambda *inputs: (called.append(1), function(*inputs))[1]
    Engine(bundle, SearchOptions(), lambda stage, seconds: None).warm_up()
    assert called


def test_values_have_the_numbers_of_training(export_dir, caplog):
    one = described("attention", NUMBERS[0])["content"]
    bundle = update(
        export_dir, {"id": 1, "features": {"brand": " brand3 ", "tags": "tags2"}, "content": one},
        {"id": 2, "features": {"brand": "new brand", "tags": ["tags1", None, "new tag", "tags2"]}, "content": one},
        {"id": 3, "features": {"brand": None, "tags": ["", "NULL", "tags4"]}}, {"id": 4, "content": one, "title": "x"})
    assert "2 feature values of" in caplog.text and "brand='new brand' (line 2), tags='new tag' (line 2)" in caplog.text
    model, buckets = world("attention").model, BRAND.rows - 1 - BRAND.vocabulary_size
    # Of a list what comes first counts, the unknown too, as in prepare.
    rows = [[-1, 3, 2, 0], [-1, 9 + bucket("new brand", buckets), 1, 0], [-1, 0, 4, 0], [-1, 0, 0, 0]]
    content = [one, one, [0] * WIDTH, one]
    expected = model.score_vectors(model.item_encoder.encode_described(tf.constant(rows, tf.int64),
                                                                       tf.constant(content, tf.float32)))
    found = bundle.item_vectors(bundle.positions(np.array([1, 2, 3, 4])))
    np.testing.assert_allclose(found[:, :8], expected, atol=1e-6)
    counts = item_encoder.ItemEncoder(bundle.path).counts.expected(np.array([[-1, 3, 2, 0]]), (BRAND, TAGS))
    assert found[0, 8] == pytest.approx(bundle.dial.coordinate(round(float(counts[0]))))


def test_numbers_are_read_as_prepare_reads_columns_of_numbers(tmp_path):
    known = world("dot")
    values = exported.values_of((BRAND, TAGS)) | {"brand": ["7", "8.0", "2.5", "true", "a", "b", "c", "d"]}
    known.export(tmp_path / "export", cold_items=False, feature_values=values)
    forms = [7, 7.0, "7", 8, 8.0, 2.5, "2.5"]
    bundle = update(tmp_path / "export", *({"id": place, "features": {"brand": form}, "clicks": 9}
                                           for place, form in enumerate(forms)))
    table = known.model.item_encoder.feature_tables[0].table.numpy()
    found = bundle.item_vectors(bundle.positions(np.arange(7)))[:, :4]
    np.testing.assert_array_equal(found, table[[1, 1, 1, 2, 2, 3, 3]])


def test_parquet_has_a_struct_of_features(export_dir):
    items = [{"id": IDS[0], **described("attention", NUMBERS[0])}, {"id": IDS[1], "like": [IDS[0]]}]
    path = export_dir.parent / "items.parquet"
    first, rest = items[0], {"features": None, "content": None}
    pl.DataFrame([first | {"like": None}, rest | items[1] | {"like": [exported.original_id(exported.MULTI, 5)]}],
                 infer_schema_length=None).write_parquet(path)
    table = load_bundle(update_bundle.update_bundle(str(export_dir), str(path), "", 0.9))
    objects = update(export_dir, {"id": 77, **described("attention", NUMBERS[0])})
    np.testing.assert_array_equal(table.item_vectors(table.positions(np.array(IDS[:1]))),
                                  objects.item_vectors(objects.positions(np.array([77]))))
    assert (table.both_positions(np.array(IDS[:2]))[1] >= 0).all()


def test_what_histories_read_of_other_insertions(export_dir, caplog):
    known = [exported.original_id(exported.MULTI, number) for number in (5, 6)]
    first = update(export_dir, {"id": 1, "vector": [1.0] * 8}, {"id": 2, "like": known[:1]}, {"id": 3, "like": known},
                   {"id": 4, **described("attention", NUMBERS[0])})
    assert "1 of the inserted items do not count in histories: they were inserted by a bare vector" in caplog.text
    assert (first.both_positions(np.array([1, 2, 3, 4]))[1] >= 0).tolist() == [False, True, True, True]
    np.testing.assert_allclose(user(first, 2), user(first, known[0]), atol=1e-6)
    rows = [first.tower.items.numpy()[first.positions(np.array([item]))[0]] for item in known]
    mean = world("attention").model.user_intents(
        tf.constant(np.stack([np.mean(rows, axis=0)] + [np.zeros(8)] * (HISTORY - 1))[None], tf.float32),
        tf.constant([[True] + [False] * (HISTORY - 1)]))[0][0]
    np.testing.assert_allclose(user(first, 3)[:, :8], mean, atol=1e-6)
    # Later updates: a vector leaves alone what histories read, `like` and features say it anew, deletion keeps it.
    second = update(export_dir, {"id": 2, "vector": [1.0] * 8}, {"id": 3, "like": [2]},
                    {"id": 1, **described("attention", NUMBERS[0])}, {"id": known[1], "like": [1, known[0]]},
                    withdraw=[4])
    with pytest.raises(DataError, match="change nothing"):
        update(export_dir, {"id": 1, **described("attention", NUMBERS[0])}, {"id": 2})
    for mine, like in ((2, known[0]), (3, known[0]), (4, 4), (1, 4)):
        np.testing.assert_allclose(user(second, mine), user(first, like), atol=1e-6)
    assert second.positions(np.array([4]))[0] == -1 and np.abs(user(second, 4)).max() > 0.1
    assert np.abs(user(second, known[1]) - user(first, known[1])).max() > 1e-3
    np.testing.assert_array_equal(user(second, known[0]), user(first, known[0]))
    third = update(export_dir, withdraw=[1])
    np.testing.assert_array_equal(third.history_rows.vectors, second.history_rows.vectors)


def test_an_update_may_change_histories_alone(tmp_path):
    shutil.copytree(exported_folder("dot"), tmp_path / "export")
    warm = exported.original_id(exported.MULTI, 5)
    first = load_bundle(str(tmp_path / "export"))
    vector = first.item_vectors(first.positions(np.array([warm])))[0, :8].tolist()
    second = update(tmp_path / "export", {"id": 1, "vector": vector})
    third = update(tmp_path / "export", {"id": 1, "like": [warm]})
    np.testing.assert_array_equal(third.item_vectors(), second.item_vectors())
    assert third.manifest["updated"] | dict(version=2, fresh=0, moved=0) == third.manifest["updated"]
    assert not user(second, 1).any()
    np.testing.assert_allclose(user(third, 1), user(third, warm), atol=1e-6)


def test_an_old_bundle_works_as_before(tmp_path, caplog):
    with tarfile.open(pathlib.Path(__file__).parent / "bundles" / "before_the_dial.tar.xz") as archive:
        archive.extractall(tmp_path / "export", filter="data")
    like = exported.original_id("int", 3)
    with pytest.raises(DataError, match="line 1 has features, but the model of .* cannot encode an item by them: it "
                                        "was exported before .*: export again. Until then give `vector` or `like`"):
        update(tmp_path / "export", {"id": 1, "features": GOOD})
    assert versions(tmp_path / "export") == [1, 2]
    path = lines(tmp_path / "items.jsonl", {"id": 7, "like": [like]})
    bundle = load_bundle(update_bundle.update_bundle(str(tmp_path / "export"), path, "", 0.4))
    assert "1 of the inserted items do not count in histories: the bundle was exported before they could" in caplog.text
    assert bundle.positions(np.array([7]))[0] >= 0 > bundle.both_positions(np.array([7]))[1][0]
    assert user(bundle, like).any() and not user(bundle, 7).any()


KILLED = """
import os, signal, sys
from clrec_tf.publishing import update_bundle
update_bundle.write_manifest = lambda folder, facts: os.kill(os.getpid(), signal.SIGKILL)
update_bundle.update_bundle(sys.argv[1], sys.argv[2], "", 0.9)
"""


def test_a_killed_insertion_leaves_the_old_version(export_dir):
    items = lines(export_dir.parent / "items.jsonl", {"id": 1, "features": GOOD})
    killed = forked.run([sys.executable, "-c", KILLED, str(export_dir), items], check=False, capture_output=True,
                        text=True, cwd=pathlib.Path(__file__).parents[1])
    assert killed.returncode == -signal.SIGKILL, killed.stderr[-2000:]
    assert versions(export_dir) == [1] and list(export_dir.glob("2.incomplete-*/history_rows.npz"))
    assert load_bundle(str(export_dir)).path == str(export_dir / "1")
    assert update(export_dir, {"id": 1, "features": GOOD}).path == str(export_dir / "2")
    assert not list(export_dir.glob("2.incomplete-*"))


@pytest.mark.parametrize("settings, words", [
    (dict(candidate_features=False), "its candidate tower reads ids alone: train with --candidate_features"),
    (dict(use_features=False), "it reads neither features nor dense vectors of items: prepare them")])
def test_models_that_read_ids_alone_refuse(settings, words, tmp_path):
    world("dot", 0.0, **settings).export(tmp_path / "export")
    assert not (tmp_path / "export" / "1" / "item_encoder").exists()
    for item in ({"features": {"brand": "brand1"}}, {"content": [1.0]}):
        with pytest.raises(DataError, match=f"has {next(iter(item))}, but the model of .*: {words}"):
            update(tmp_path / "export", {"id": 1} | item)


def test_values_without_numbers_are_refused(tmp_path):
    world("dot").export(tmp_path / "export", feature_values={"brand": ["a"] * 8})
    with pytest.raises(DataError, match="the data set does not say which value of tags has which number"):
        update(tmp_path / "export", {"id": 1, "features": {"brand": "a"}})


def test_an_encoder_that_differs_from_the_model_is_left_out(tmp_path, caplog, monkeypatch):
    """As of a tower from outside the package that encodes items without an id otherwise."""
    encode = ItemEncoder.encode_described
    monkeypatch.setattr(ItemEncoder, "encode_described", lambda *args: 1.001 * encode(*args))
    folder = pathlib.Path(world("dot").export(tmp_path / "export"))
    assert "will not insert items into this bundle by their features: the model's history_vectors" in caplog.text
    assert not (folder / "item_encoder").exists()
    with pytest.raises(DataError, match="encode_described and candidate_vectors .*: make them agree and export again"):
        update(tmp_path / "export", {"id": 1, "features": GOOD})


def test_what_the_vectors_are_worth_is_said(tmp_path, caplog):
    world("dot", 0.0).export(tmp_path / "export", cold_items=False)
    warm = exported.original_id(exported.MULTI, 5)
    update(tmp_path / "export", {"id": 1, "features": {"brand": "brand1"}},
           {"id": warm, "features": {"brand": "brand2"}})
    assert "2 items of " in caplog.text and "without --id_dropout nothing was learned of such vectors" in caplog.text
    assert "1 items of " in caplog.text and "are in the bundle already: what was learned of them by" in caplog.text


@pytest.mark.parametrize("bad, words", [
    ({"features": {"brnd": "x"}}, r"features has 'brnd', which this model does not read \(its features are brand, "
                                  r"tags; its content 3 numbers\): leave it out, or correct"),
    ({"features": ["brand1"]}, r"features \['brand1'\] must be an object"),
    ({"features": {"brand": True}}, "feature brand has the value True: give text, a finite number, or a list"),
    ({"features": {"brand": {"a": 1}}}, "feature brand has the value {'a': 1}: give text"),
    ({"features": {"tags": [["tags1"]]}}, r"feature tags has the value \['tags1'\]: give text"),
    ({"features": {"brand": float("nan")}}, "feature brand has the value nan: give text"),
    ({"features": {"brand": ["brand1", "brand2"]}}, "feature brand has 2 values, and one per item in training"),
    ({"features": {"tags": ["never", "seen"]}}, r"nothing that the model knows describes the item \(its features"),
    ({"features": {}}, "item 9 is new and has neither a vector nor `like` nor `features`"),
    ({"features": GOOD, "content": [1.0, 2.0]}, "content has 2 entries: give a list of 3 numbers"),
    ({"features": GOOD, "content": "1 2 3"}, "content is '1 2 3': give a list of 3"),
    ({"features": GOOD, "content": [1.0, "2", 3.0]}, r"content\[1\] = '2' is no number: correct it"),
    ({"features": GOOD, "content": [1.0, 2.0, True]}, r"content\[2\] = True is no number: correct it"),
    ({"features": GOOD, "content": [1.0, 2.0, None]}, r"content\[2\] = None is no number: correct it"),
    ({"content": [1.0, float("nan"), 3.0]}, r"content\[1\] = nan is not finite in 32 bits: correct it"),
    ({"content": [1.0, 1e39, 3.0]}, r"content\[1\] = 1e\+39 is not finite in 32 bits"),
    ({"content": [1.0, 3.0, -10**400]}, r"content\[2\] = -1000.* is not finite in 32 bits"),
    ({"content": [3e38, 3e38, -3e38]}, "the model's vector of this item has no direction or is not finite: check"),
    ({"features": GOOD, "vector": [1.0] * 8}, "has both `vector` and `features` or `content`: give one of them"),
    ({"content": [1.0] * 3, "like": [1007]}, "has both `like` and `features`"),
    ({"id": 1, "features": GOOD}, "item 1 stands at .*items.jsonl, line 1 already"),
    ({"features": GOOD, "clicks": -1}, "clicks -1 must be a number of at least 0")])
def test_bad_descriptions_are_named_and_publish_nothing(bad, words, tmp_path):
    folder = pathlib.Path(exported_folder("attention", cold_items=False))
    path = lines(tmp_path / "items.jsonl", {"id": 1, "features": GOOD}, {"id": 9} | bad)
    with pytest.raises(DataError, match="line 2.*" + words):
        update_bundle.update_bundle(str(folder), path, "", 0.9)
    assert versions(folder) == [1] and not list(folder.glob("*incomplete*"))


def test_content_is_refused_by_a_model_that_reads_none(tmp_path):
    shutil.copytree(exported_folder("dot"), tmp_path / "export")
    with pytest.raises(DataError, match="line 1 has content, but this model reads no dense vectors of items: leave"):
        update(tmp_path / "export", {"id": 1, "features": GOOD, "content": [1.0]})


def test_damaged_rows_of_histories_are_named(export_dir):
    bundle = update(export_dir, {"id": 1, "features": GOOD})
    folder = export_dir / "2"
    for rows in ((np.array([ITEMS + 5]), np.zeros((1, 8))), (np.array([-1]), np.zeros((1, 8))),
                 (np.array([1]), np.zeros((1, 7))), (np.array([1]), np.zeros(8))):
        np.savez(folder / "history_rows.npz", positions=rows[0], vectors=rows[1])
        facts = {key: value for key, value in bundle.manifest.items() if key != "files"}
        manifest_lib.write_manifest(str(folder), facts)
        with pytest.raises(DataError, match="history_rows.npz cannot be read .*: copy the version anew, or"):
            load_bundle(str(folder))


def test_the_running_server_takes_an_inserted_item_in(export_dir):
    whole = load_bundle(exported_folder("attention"))
    warm = exported.original_id(exported.MULTI, 5)
    with serving(export_dir, "--grpc_port=0") as service:
        body = {"history": [IDS[0], warm]}
        alone, = service.users({"history": [IDS[0]]})
        assert alone["unknown"] == [IDS[0]] and alone["fallback"]
        port = int(re.search(r"gRPC at [^:]+:(\d+)", service.log)[1])
        update(export_dir, {"id": IDS[0], **described("attention", NUMBERS[0])})
        wait_for(lambda: service.metrics()["clrec_model_version"] == 2, 60)
        expected = user(whole, IDS[0], warm)
        found, = service.users(body, signature="serving_default")
        popularity = found["user_vectors"][0][-1]
        np.testing.assert_allclose(np.array(found["user_vectors"])[:, :-1], expected[:, :-1], atol=1e-6)
        alone, = service.users({"history": [IDS[0]], "k": 3})
        assert "unknown" not in alone and "fallback" not in alone
        message = predict_pb2.PredictRequest()
        message.model_spec.name, message.model_spec.signature_name = "clrec", "serving_default"
        message.inputs["history"].CopyFrom(tf.make_tensor_proto(np.array([body["history"]])))
        message.inputs["popularity"].CopyFrom(tf.make_tensor_proto(np.array([popularity], np.float32)))
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            response = prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict(message, timeout=20)
        vectors = tf.make_ndarray(response.outputs["user_vectors"])[0]
        np.testing.assert_allclose(vectors[:, :-1], expected[:, :-1], atol=1e-6)
