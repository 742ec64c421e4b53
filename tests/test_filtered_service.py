"""Filters, similar items, explanations and vector files of a served bundle with updates, against plain loops."""
import json
import pathlib
import re
import shutil

import grpc
import numpy as np
import polars as pl
import pytest
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2
from tensorflow_serving.apis import prediction_service_pb2_grpc

import clrec_tf as clrec
from clrec_tf.config import Config, Paths
from clrec_tf.errors import DataError, UserError
from clrec_tf import retrieve
from clrec_tf.publishing.update_bundle import update_bundle
from clrec_tf.retrieval.bundle import load_bundle
from clrec_tf.retrieval.explanations import effects, explanations
from clrec_tf.retrieval.retriever import Retriever
from clrec_tf.retrieval.search_options import SearchOptions
from clrec_tf.retrieval.similar_items import similar_items
from clrec_tf.retrieval.user_requests import UserRequest
from tests import exported
from tests.exported import MULTI, NOW
from tests.service_process import serving

NEW, DELETED, REPRICED = 5000, exported.original_id(MULTI, 7), exported.original_id(MULTI, 9)
HISTORY = [exported.original_id(MULTI, number) for number in (3, 14, 15, 9)]
USER = {"history": HISTORY, "timestamps": [NOW - 900, NOW - 60, NOW - 50, NOW - 9], "request_time": NOW,
        "dwell": [3, None, 20, 9], "intents": 3}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    """`exported.attributes`; then one item deleted, one repriced, one inserted."""
    folder = tmp_path_factory.mktemp("filtered")
    shutil.copytree(pathlib.Path(exported.bundle_folder(MULTI)).parent, folder / "bundles")
    (folder / "upsert.jsonl").write_text("\n".join(map(json.dumps, (
        {"id": NEW, "like": HISTORY[:1], "attributes": {"category": "c9", "price": 7.5}},
        {"id": REPRICED, "attributes": {"price": 1000}}))))
    (folder / "delete.txt").write_text(str(DELETED))
    return load_bundle(update_bundle(str(folder / "bundles"), str(folder / "upsert.jsonl"), str(folder / "delete.txt"),
                                     .9))


@pytest.fixture(scope="module")
def service(bundle):
    with serving(pathlib.Path(bundle.path).parent, "--grpc_port=0") as found:
        found.port  # pylint: disable=pointless-statement
        yield found


def facts(bundle, item):
    """(category, price) of an item by its definition."""
    if item == NEW:
        return "c9", 7.5
    number = (item - 1000) // 7
    return f"c{number % 3}", 1000.0 if item == REPRICED else float(number)


FILTERS = [({"category": ["c1", "c9"]}, lambda kind, price: kind in ("c1", "c9")),
           ({"category": "c2", "price": {"max": 20}}, lambda kind, price: kind == "c2" and price <= 20),
           ({"price": {"min": 7, "max": 9}}, lambda kind, price: 7 <= price <= 9),
           ({"price": {"min": 100}}, lambda kind, price: price >= 100), ({"category": ["none"]}, lambda *_: False)]


@pytest.mark.parametrize("given, passes", FILTERS)
@pytest.mark.parametrize("more", [{}, {"exclude_seen": True, "popularity": 1.0}, {"merge": "quota"},
                                  {"allow": [*HISTORY, NEW, DELETED]}])
def test_a_filter_leaves_what_a_search_of_everything_finds(service, bundle, given, passes, more):
    [everything] = service.users(USER | {"k": 61} | more | {"merge": "maximum"})
    [found] = service.users(USER | {"k": 61, "filter": given} | more)
    expected = [item for item in everything["ids"] if passes(*facts(bundle, item))]
    assert sorted(found["ids"]) == sorted(expected) and DELETED not in found["ids"]
    if "merge" not in more:
        assert found["ids"] == expected
        few = service.users(USER | {"k": 2, "filter": given} | more)[0]["ids"]
        assert few == expected[:2]


@pytest.mark.parametrize("signature, entry", [("retrieve", USER), ("similar_items", {"ids": HISTORY[0]})])
def test_what_is_no_filter_is_refused_and_the_attributes_are_named(service, signature, entry):
    for given, text in (({"brand": ["x"]}, "instance 0: filter has 'brand', which is no attribute of these items; "
                                           "attributes are category (values), price (a number)"),
                        ({"price": "cheap"}, "filter of price is 'cheap': give a number"),
                        (["category"], "filter")):
        answer = service.predict({"signature_name": signature, "instances": [entry | {"filter": given}]})
        assert answer.status == 400 and text in answer.error


def over_grpc(service, signature, inputs):
    message = predict_pb2.PredictRequest()
    message.model_spec.name, message.model_spec.signature_name = "clrec", signature
    for name, value in inputs.items():
        message.inputs[name].CopyFrom(tf.make_tensor_proto(value))
    port = re.search(r"gRPC at \S+:(\d+)", service.log)[1]
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        found = prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict(message, timeout=20)
    return {name: tf.make_ndarray(value) for name, value in found.outputs.items()}


def test_filters_and_similar_items_over_grpc(service, bundle):
    users = {name: np.array([[-1 if value is None else value for value in values]] * 2) for name, values in
             USER.items() if isinstance(values, list)} | {"request_time": np.array([NOW, NOW])}
    given = FILTERS[1][0]
    found = over_grpc(service, "retrieve", users | {"k": np.array([4, 4], np.int32), "intents": np.array([3, 3]),
                                                    "filter": np.array(["", json.dumps(given)], object)})
    plain, filtered = (service.users(USER | {"k": 4} | more)[0]["ids"] for more in ({}, {"filter": given}))
    assert found["ids"].tolist() == [plain, filtered] and plain != filtered
    similar = over_grpc(service, "similar_items", {"ids": np.array([HISTORY[0]]), "k": np.array([3], np.int32)})
    assert similar["ids"].tolist() == [service.users({"ids": HISTORY[0], "k": 3}, signature="similar_items")[0]["ids"]]
    with pytest.raises(grpc.RpcError, match="explain is answered over HTTP alone"):
        over_grpc(service, "retrieve", users | {"explain": np.array([True, False])})


@pytest.mark.parametrize("popularity", [None, 1.0])
def test_similar_items_have_the_highest_inner_products(service, bundle, popularity):
    vectors, dimension = bundle.item_vectors(), bundle.manifest["dimension"]
    for item in (HISTORY[0], NEW, DELETED):
        [place] = bundle.all_positions(np.array([item]))
        scores = vectors[:, :dimension] @ vectors[place, :dimension] + (popularity or 0) * vectors[:, -1]
        order = [spot for spot in np.argsort(-scores, kind="stable") if spot != place and bundle.live[spot]]
        more = {} if popularity is None else {"popularity": popularity}
        [found] = service.users({"ids": item, "k": 5} | more, signature="similar_items")
        np.testing.assert_allclose(found["scores"], scores[order[:5]], atol=2e-6)
        assert set(found) == {"ids", "scores"} and set(found["ids"][:4]) <= set(bundle.item_ids[order[:6]].tolist())
        [cheap] = service.users({"ids": item, "k": 3, "filter": {"price": {"max": 20}}} | more,
                                signature="similar_items")
        expected = [i for i in bundle.item_ids[order].tolist() if facts(bundle, i)[1] <= 20][:3]
        assert cheap["ids"] == expected
    assert service.users({"ids": HISTORY[0], "k": 1}, signature="similar_items")[0]["ids"] == [NEW]  # its own vector
    answer = service.predict({"signature_name": "similar_items", "instances": [{"ids": 4}, {"ids": HISTORY[0]}]})
    assert answer.status == 400 and answer.error == "item 4 is not known: give an id of this bundle"


def test_effects_by_pencil():
    """One item (1, 0). With both clicks its score is 3, by the first intent; without the first 2, by the second."""
    vectors = np.array([[[3, 9], [1, 9]], [[1, 9], [2, 9]], [[3, 0], [0, 0]]], np.float32)
    assert effects(vectors, np.array([[1, 0]], np.float32)).tolist() == [[1], [0]]


@pytest.mark.parametrize("intents", [1, 3])
def test_explanations_are_what_is_lost_without_a_click(service, bundle, intents):
    """Of a history longer than the tower reads, with an unknown item in it."""
    history = [exported.original_id(MULTI, 20), HISTORY[0], 500, *HISTORY[1:]]
    user = {"history": history, "timestamps": [NOW - 9000, NOW - 900, NOW - 90, NOW - 60, NOW - 50, NOW - 9],
            "request_time": NOW, "dwell": [1, 3, 2, None, 20, 9], "intents": intents, "k": 5, "popularity": 0.5}
    [found] = service.users(user | {"explain": True})
    [plain] = service.users(user)
    assert {name: found[name] for name in plain} == plain and len(found["explanations"]) == 5
    retriever = Retriever(bundle, SearchOptions(k=61, intents=intents))
    requests = [UserRequest(None, *([each for place, each in enumerate(values) if place != left_out]
                                    for values in (history[-5:], user["timestamps"][-5:])), NOW,
                            [-1 if each is None else each for place, each in enumerate(user["dwell"][-5:])
                             if place != left_out], .5) for left_out in (None, 0, 2, 3, 4)]  # place 1 is unknown
    full, *others = [dict(zip(result.ids, result.scores)) for result in retriever(requests)[0]]
    clicks = [HISTORY[0], *HISTORY[1:]]
    for item, explained in zip(found["ids"], found["explanations"]):
        lost = sorted(((full[item] - other[item], click) for other, click in zip(others, clicks)), reverse=True)
        expected = [(click, effect) for effect, click in lost[:3] if effect > 0]
        assert [each["id"] for each in explained] == [click for click, _ in expected]
        np.testing.assert_allclose([each["effect"] for each in explained], [effect for _, effect in expected], atol=3e-6)
    assert any(found["explanations"])
    [stranger] = service.users({"history": [500], "timestamps": [NOW], "request_time": NOW, "explain": True})
    assert stranger["explanations"] == [[]] * len(stranger["ids"])
    answer = service.predict({"signature_name": "retrieve", "instances": [user | {"explain": True}] * 17})
    assert answer.status == 400 and "more than 16 instances ask to explain" in answer.error


def test_the_command_filters_finds_similar_items_and_writes_vectors(bundle, tmp_path, capsys, service):
    def call(**settings):
        capsys.readouterr()
        retrieve.main(Config(paths=Paths(export_dir=bundle.path)).but(**settings))
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    given = {"category": "c2", "price": {"max": 20}}
    for wrong, text in ((dict(vectors="v.parquet", filter="{}"), "--filter does not count with --vectors"),
                        (dict(similar_to="1", history="2"), "--history and --similar_to exclude each other"),
                        (dict(history="1", filter="{"), "--filter={: this is no JSON"),
                        (dict(similar_to="4"), "item 4 is not known")):
        with pytest.raises(UserError, match=text):
            call(**wrong)
    [found] = call(history=",".join(map(str, HISTORY)), filter=json.dumps(given), k=60)
    assert set(found["ids"]) == {1000 + 7 * n for n in range(1, 21) if n % 3 == 2}
    both = call(similar_to=f"{HISTORY[0]},{NEW}", k=2)
    assert [row["item"] for row in both] == [HISTORY[0], NEW]
    assert both[0]["ids"] == service.users({"ids": HISTORY[0], "k": 2}, signature="similar_items")[0]["ids"]
    for name in ("v.parquet", "v.jsonl"):
        call(vectors=str(tmp_path / name))
    frame = pl.read_parquet(tmp_path / "v.parquet")
    lines = [json.loads(line) for line in (tmp_path / "v.jsonl").read_text().splitlines()]
    live = bundle.item_ids[bundle.live].tolist()
    assert frame["id"].to_list() == [line["id"] for line in lines] == live and DELETED not in live and NEW in live
    for vectors in (frame["vector"].to_list(), [line["vector"] for line in lines]):
        np.testing.assert_array_equal(np.array(vectors, np.float32), bundle.item_vectors()[bundle.live])
    for row, line in zip(frame.to_dicts(), lines):
        category, price = facts(bundle, line["id"])
        assert line["attributes"] == row["attributes"] == {"category": [category], "price": price}


def test_explanations_and_similar_items_of_the_library(bundle):
    """The functions below the server, as others call them."""
    retriever = Retriever(bundle)
    first, second = similar_items(retriever, [HISTORY[0], HISTORY[1]])
    assert len(first.ids) == 10 and HISTORY[0] not in first.ids and first.ids != second.ids
    requests = [UserRequest(None, HISTORY, USER["timestamps"], NOW, [3, -1, 20, 9])]
    plans = retriever.plans(requests)
    [result] = retriever.retrieve(requests, plans, retriever.encode(requests, plans))
    assert len(explanations(retriever, requests[0], plans[0], result.ids)) == 10


def test_the_library_filters_as_the_service_does_and_says_what_is_deleted(service, bundle, tmp_path):
    model, given = clrec.load(bundle.path), {"category": "c2", "price": {"max": 20}}
    [expected] = service.users({"history": HISTORY, "k": 61, "filter": given})
    found = model.recommend([HISTORY], k=61, filter=given)
    assert found["item"].to_list() == expected["ids"] and 0 < len(found) < 10
    item = model.item_ids[model.item_ids.tolist().index(HISTORY[0])]  # of NumPy, as it stands there
    similar = model.similar_items(item, k=61, filter=given)["item"].to_list()
    assert sorted(similar) == sorted(found["item"].to_list()) and model.recommend([HISTORY], k=3, filter={}).equals(
        model.recommend([HISTORY], k=3))
    for call in (lambda: model.recommend([HISTORY], filter={"size": 1}), lambda: model.similar_items(item, filter="x")):
        with pytest.raises(DataError, match="filter .*attributes are category"):
            call()
    assert model.item_ids[~model.live].tolist() == [DELETED]
    retrieve.main(Config(Paths(export_dir=bundle.path)).but(embeddings=str(tmp_path / "vectors.npz")))
    with np.load(tmp_path / "vectors.npz", allow_pickle=False) as arrays:
        assert arrays["item_ids"][~arrays["item_live"]].tolist() == [DELETED]
