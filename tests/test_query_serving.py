"""Features of users and requests from a checkpoint to its answers: tower, bundle, retrieve, HTTP, gRPC and page."""
import json
import socket
import subprocess
import sys

import grpc
import numpy as np
import polars as pl
import pytest
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2

from clrec_tf.config import Config
from clrec_tf.config import ExportConfig
from clrec_tf.data.catalogue import read_catalogue
from clrec_tf.data.held_out_examples import read_evaluation_set
from clrec_tf.data.query_features import QueryFeature
from clrec_tf.data import schema as schema_lib
from clrec_tf.errors import DataError
from clrec_tf.models.build import build_model
from clrec_tf.models.encode import Encoder
from clrec_tf.publishing.export_bundle import export_bundle
from clrec_tf.publishing.export_bundle import TrainingFacts
from clrec_tf.publishing.export_run import query_values
from clrec_tf.publishing.query_inputs import QueryInputs
from clrec_tf.retrieval.bundle import load_bundle
from clrec_tf.retrieval.query_values import QueryValues
from clrec_tf.retrieval.retriever import Retriever
from clrec_tf.retrieval.search_options import SearchOptions
from clrec_tf.retrieval.show import show
from clrec_tf.retrieval.user_requests import parse_request
from clrec_tf.retrieval.user_requests import read_parquet
from clrec_tf.retrieval.user_requests import UserRequest
from tests import chromium
from tests import query_world
from tests.service_process import ROOT
from tests.service_process import serving
from tests.service_process import wait_for

CONFIGS = {
    "clrec": dict(history_dropout=0.2), "mean": dict(user_encoder="mean"),
    "multi": dict(model="multi_clrec", num_intents=3, history_dropout=0.2),
    "multi_alone": dict(model="multi_clrec", num_intents=3, intent_context="none")}
BESIDE = dict(user_gender="f", user_age=31.5, context_country="FR", context_hour=7, context_tags=["a", "c"])


@pytest.fixture(scope="module", name="data_dir")
def _data_dir(tmp_path_factory):
    return query_world.prepared(tmp_path_factory.mktemp("query"))


@pytest.fixture(scope="module", name="bundles")
def _bundles(data_dir, tmp_path_factory):
    """By name of a configuration: (model, data set's users, bundle)."""
    schema, manifest = schema_lib.load_schema(data_dir), schema_lib.load_manifest(data_dir)
    catalogue, made = read_catalogue(data_dir, schema, manifest), {}
    users = read_evaluation_set(data_dir, "test", schema, manifest)
    for name, settings in CONFIGS.items():
        model = build_model(Config.of(embedding_dim=8, max_history=5, **settings), schema, seed=3)
        folder = tmp_path_factory.mktemp(name)
        export_bundle(model, schema, catalogue, users, str(folder), ExportConfig(recall_k=5),
                      TrainingFacts("c" * 64, 7, 5, {}), query=query_values(data_dir, schema, model))
        made[name] = model, users, load_bundle(str(folder)), folder
    return made


def plain(value):
    """A value, or a row of them, as JSON has it; None for NaN."""
    value = value.tolist() if hasattr(value, "tolist") else value
    return None if value != value else value


def first_vector(bundle, history, **beside):
    """Of one user by the retriever."""
    events = beside.pop("events", None)
    request = UserRequest(None, history, events=events, query=beside)
    return Retriever(bundle)([request])[1].vectors[0, 0]


@pytest.mark.parametrize("name", CONFIGS)
def test_tower_retriever_and_model_agree(bundles, data_dir, name):
    model, users, bundle, _ = bundles[name]
    expected = Encoder(model, 5).user_intents(users)
    catalogue = read_catalogue(data_dir, schema_lib.load_schema(data_dir), schema_lib.load_manifest(data_dir))
    known = bundle.query.example_of(users.query)
    original = [None, *catalogue.original_ids.tolist()]
    requests = []
    for row in range(users.num_users):
        part = slice(users.history_splits[row], users.history_splits[row + 1])
        values = {key: plain(value[row]) for key, value in known.items()}
        requests.append(UserRequest(
            None, [original[number] for number in users.history_ids[part]],
            timestamps=users.history_times[part].tolist(), request_time=int(users.request_times[row]),
            events=[("buy", "pv")[event - 1] for event in users.history_events[part]],
            query=values))
    found = Retriever(bundle)(requests)[1]
    order = np.argsort(found.numbers, axis=1)
    width = expected[0].shape[2]
    for mine, theirs, cut in ((found.vectors, expected[0], width), (found.weights, expected[1], None)):
        theirs = theirs[:, :mine.shape[1]]
        by_number = np.argsort(expected[2][:, :mine.shape[1]], axis=1)
        for row in range(len(mine)):
            np.testing.assert_allclose(mine[row][order[row]][..., :cut] if cut else mine[row][order[row]],
                                       theirs[row][by_number[row]], atol=2e-5)


def test_the_user_shown_is_told_of_like_a_request(bundles, data_dir, monkeypatch):
    """The stage show: behaviours, context and profile of the held-out user reach the tower."""
    model, users, _, folder = bundles["clrec"]
    asked = []
    retrieve = Retriever.__call__
    monkeypatch.setattr(Retriever, "__call__", lambda self, requests: asked.append(
        retrieve(self, requests)) or asked[-1])
    text = show(Config.of(data_dir=data_dir, export_dir=str(folder)))
    (row,) = [row for row in range(users.num_users) if f"history of user {users.user_ids[row]}," in text]
    expected = Encoder(model, 5).user_vectors(users.take(np.array([row])))
    np.testing.assert_allclose(asked[0][1].vectors[0, 0][:8], expected[0], atol=2e-5)


@pytest.mark.parametrize("name", CONFIGS)
def test_every_feature_counts_and_unknown_is_missing(bundles, name):
    bundle = bundles[name][2]
    history = bundle.item_ids[:3].tolist()
    whole = first_vector(bundle, history, **BESIDE)
    for feature, other in (("user_gender", "m"), ("user_age", 55), ("context_country", "DE"), ("context_hour", 23),
                           ("context_tags", ["b"])):
        assert np.abs(first_vector(bundle, history, **BESIDE | {feature: other}) - whole).max() > 1e-3
        missing = first_vector(bundle, history, **{key: value for key, value in BESIDE.items() if key != feature})
        assert np.abs(missing - whole).max() > 1e-3
        unknown = dict(user_age=None, context_hour=float("nan"), context_tags=["zz"]).get(feature, "zz")
        np.testing.assert_array_equal(first_vector(bundle, history, **BESIDE | {feature: unknown}), missing)
    kinds = [first_vector(bundle, history, events=events, **BESIDE)
             for events in (None, ["buy", "pv", None], ["stolen", "pv", "gift"], [None, "pv", None])]
    assert np.abs(kinds[0] - kinds[1]).max() > 1e-3 and np.abs(kinds[1] - kinds[2]).max() > 1e-4
    np.testing.assert_array_equal(kinds[2], kinds[3])
    # Numbers as the log has them, whatever JSON makes of them.
    tagged = bundle.query.row(dict(user_gender=" f ", user_age=31, context_hour=7.0))
    assert tagged == bundle.query.row(dict(user_gender="f", user_age=31.0, context_hour=7))


def test_values_count_however_they_are_written():
    """A log's true or True, 25 or 25.0; and of lists the known values, however many unknown ones stand before them."""
    features = [QueryFeature("a", "context", "category", 7, 1), QueryFeature("t", "context", "list", 4, 2)]
    names = {"c:a": ["True", "false", "25", "6.0", "6.75", "-3.0"], "c:t": ["x", "y", "1.0"]}
    values = QueryValues(tuple(features), names)
    for given, number in ((True, 1), ("true", 1), ("TRUE", 1), (False, 2), ("False", 2), (25, 3), (25.0, 3),
                          ("25.0", 3), ("25.", 3), (" 25 ", 3), (6, 4), (6.0, 4), ("6", 4), (6.75, 5), (-3, 6),
                          (1, 0), (None, 0), ("", 0), ("x", 0), (2.5, 0), (0, 0), ("0x19", 0)):
        assert values.row(dict(context_a=given)) == [number, 0, 0], given
    for given, numbers in ((["no", "none", "y"], [2, 0]), (["x", 1, "y"], [1, 3]), ([None, "no", "x"], [1, 0]),
                           ([], [0, 0])):
        assert values.row(dict(context_t=given))[1:] == numbers
    inputs = dict(context_a=tf.constant(["6.75", ""]), context_t=tf.constant([["no", "none", "y"], ["y", "x", "1.0"]]))
    assert QueryInputs(values).rows(tf.zeros([2, 1]), inputs).numpy().tolist() == [[5, 2, 0], [0, 2, 1]]


def test_strangers_are_served_by_what_is_known_of_them(bundles):
    """Only where training has hidden histories; and not where nothing is known."""
    for name, taught in (("clrec", True), ("multi", True), ("mean", False)):
        bundle = bundles[name][2]
        popular = bundle.item_ids[:4].tolist()
        ask = lambda history, **beside: Retriever(bundle, SearchOptions(4))(
            [UserRequest(None, history, query=beside)])[0][0]
        assert ask([]).fallback and ask([]).ids == popular and ask([999_999]).fallback
        french, german = ask([], context_country="FR"), ask([], context_country="DE")
        assert french.fallback == (not taught) and (french.scores != german.scores) == taught
        assert ask([999_999], context_country="FR").scores == french.scores
        assert ask([], context_country="elsewhere").fallback


def test_a_hidden_history_is_none(bundles):
    model, users, _, _ = bundles["clrec"]
    whole = users.histories(0, 6, 5)
    rows, mask = tf.constant(whole.item_rows), tf.constant(whole.mask)
    items = tf.reshape(model.history_vectors(tf.reshape(rows, [-1, rows.shape[2]])), [6, 5, 8])
    query = tf.constant(whole.query)
    nothing = model.user_vectors(items, tf.zeros_like(mask), query=query)
    expected = model.score_vectors(model.query_encoder(tf.zeros([6, 8]), query))
    np.testing.assert_allclose(nothing, expected, atol=1e-6)
    batch = dict(seed=tf.constant([4, 5], tf.int64))
    hidden = model.hidden_histories(5000, batch, True).numpy()
    assert 0.17 < hidden.mean() < 0.23 and not model.hidden_histories(5, batch, False).numpy().any()


def test_the_saved_model_answers_alike(bundles):
    _, _, bundle, _ = bundles["clrec"]
    history = bundle.item_ids[:3].tolist()
    inputs = dict(history=np.array([history, history]), popularity=np.zeros(2, np.float32), k=np.full(2, 4, np.int32),
                  exclude=np.zeros((2, 0), np.int64), timestamps=np.zeros((2, 3), np.int64),
                  request_time=np.zeros(2, np.int64), events=[["buy", "pv", ""], ["", "", ""]],
                  user_gender=["f", ""], user_age=np.array([31.5, np.nan], np.float32),
                  context_country=["FR", "elsewhere"], context_hour=np.array([7, np.inf], np.float32),
                  context_tags=[["a", "c", "b"], ["", "", ""]])
    found = bundle.tower.signatures["retrieve"](**{name: tf.constant(value) for name, value in inputs.items()})
    requests = [UserRequest(None, history, events=["buy", "pv", None], query=BESIDE), UserRequest(None, history)]
    for row, expected in enumerate(Retriever(bundle, SearchOptions(4))(requests)[0]):
        assert found["ids"][row].numpy().tolist() == expected.ids
        np.testing.assert_allclose(found["scores"][row], expected.scores, atol=2e-6)
    with pytest.raises(tf.errors.InvalidArgumentError, match="user_gender must have one entry per user"):
        bundle.tower.signatures["retrieve"](**{name: tf.constant(value) for name, value in (
            inputs | dict(user_gender=["f"])).items()})


@pytest.mark.parametrize("value,message", [
    (dict(context_hour="x"), "context_hour is 'x': give a number, or null"),
    (dict(context_hour=True), "context_hour is True: give a number"),
    (dict(context_hour=-10**400), "context_hour has 401 digits, which no float holds: give a smaller number"),
    (dict(context_tags="a"), r"context_tags is 'a': give a list of values"),
    (dict(context_tags=[["a"]]), "context_tags is .*give a list of values"),
    (dict(user_gender=["f"]), "user_gender is .*give one value"),
    (dict(user_sex="f"), "unknown entry 'user_sex': there are .*, user_gender, user_age, context_country"),
    (dict(events=["buy"]), "events must be a list of texts or null, as long as the history, 2"),
    (dict(events=["buy", 3]), "events must be a list of texts or null"),
])
def test_requests_that_are_refused(bundles, value, message):
    with pytest.raises(DataError, match=message):
        parse_request(dict(history=[1, 2], **value), "int", "line 1", bundles["clrec"][2].query)


def test_a_misspelt_column_of_parquet_is_named(bundles, tmp_path, caplog):
    """Other columns of a table are its own; those called like entries of requests are not."""
    frame = pl.DataFrame(dict(user_id=[1], history=[[1, 2]], user_gendr=["f"], note=["x"], context_country=["FR"]))
    frame.write_parquet(tmp_path / "users.parquet")
    request, = read_parquet(str(tmp_path / "users.parquet"), "int", bundles["clrec"][2].query)
    assert request.query == dict(context_country="FR")
    warned, = (record.getMessage() for record in caplog.records)
    assert "user_gendr is no entry of this bundle and is not read; there are user_gender, user_age" in warned


def test_a_damaged_file_of_values_is_refused(bundles, tmp_path):
    with pytest.raises(DataError, match="query_values.json"):
        (tmp_path / "query_values.json").write_text('{"features": [{"name": 1}]}')
        type(bundles["clrec"][2].query).load(str(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["clrec", "multi"])
def test_http_and_grpc(bundles, name):
    bundle, folder = bundles[name][2:]
    history = bundle.item_ids[:3].tolist()
    asked = dict(history=history, k=4, events=["buy", None, "pv"], **BESIDE)
    expected = Retriever(bundle, SearchOptions(4))(
        [UserRequest(None, history, events=["buy", None, "pv"], query=BESIDE),
         UserRequest(None, history, query=dict(context_country="DE"))])[0]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with serving(folder, f"--grpc_port={port}", "--page") as service:
        found = service.users(asked, dict(history=history, k=4, context_country="DE"))
        assert [answer["ids"] for answer in found] == [result.ids for result in expected]
        columns = {key: [value] for key, value in asked.items()} | dict(k=[4])
        by_columns = service.predict(dict(signature_name="retrieve", inputs=columns))
        assert by_columns.json["outputs"]["ids"] == [expected[0].ids]
        for entry, text in (("context_hour", "Expected"), ("context_moon", "unknown field")):
            answer = service.predict(dict(signature_name="retrieve", instances=[dict(history=history) | {entry: "full"}]))
            assert answer.status == 400 and entry in answer.error and text in answer.error
        answer = service.predict(dict(instances=[dict(history=history, events=["buy"])]))
        assert answer.status == 400 and "events has 1 entries, history has 3" in answer.error
        facts = service.request("/v1/models/clrec/metadata").json["metadata"]
        assert facts["bundle"]["query"][2] == dict(name="context_country", kind="category", values=bundle.query.values[
            "c:country"]) and "context_hour" in facts["signatures"]["retrieve"]
        described = service.request("/openapi.json").json["components"]["schemas"]["RetrieveUser"]["properties"]
        assert "user_age" in described and "context_tags" in described
        request = predict_pb2.PredictRequest()
        request.model_spec.name, request.model_spec.signature_name = "clrec", "retrieve"
        tensors = dict(history=np.array([history]), k=np.array([4], np.int32), user_gender=["f"], context_hour=np.array(
            [7], np.float32), user_age=np.array([31.5], np.float32), context_country=["FR"], context_tags=[["a", "c"]],
            events=[["buy", "", "pv"]])
        for key, value in tensors.items():
            request.inputs[key].CopyFrom(tf.make_tensor_proto(value))
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            ask = channel.unary_unary("/tensorflow.serving.PredictionService/Predict",
                                      predict_pb2.PredictRequest.SerializeToString,
                                      predict_pb2.PredictResponse.FromString)
            assert tf.make_ndarray(ask(request).outputs["ids"]).tolist() == [expected[0].ids]
            request.inputs["context_moon"].CopyFrom(tf.make_tensor_proto(["full"]))
            with pytest.raises(grpc.RpcError, match="there is no input 'context_moon'"):
                ask(request)


@pytest.mark.slow
def test_retrieve_reads_them_from_lines(bundles, tmp_path):
    bundle, folder = bundles["clrec"][2:]
    history = bundle.item_ids[:3].tolist()
    path, output = tmp_path / "users.jsonl", tmp_path / "found.jsonl"
    path.write_text(json.dumps(dict(user_id=1, history=history, **BESIDE)) + "\n")
    subprocess.run([sys.executable, "-m", "clrec_tf.retrieve", f"--export_dir={folder}", f"--users={path}", "--k=4",
                    f"--output={output}"], check=True)
    expected = Retriever(bundle, SearchOptions(4))([UserRequest(None, history, query=BESIDE)])[0][0]
    assert json.loads(output.read_text())["ids"] == expected.ids


@pytest.mark.slow
@pytest.mark.skipif(chromium.PROGRAM is None, reason="there is no chromium, chromium-browser or google-chrome")
def test_the_page_has_a_field_for_each(bundles):
    bundle, folder = bundles["clrec"][2:]
    history = bundle.item_ids[:3].tolist()
    ids = lambda: page.attributes("#answer .item", "data-id")
    asked = lambda **beside: [str(item) for item in Retriever(bundle, SearchOptions(5))(
        [UserRequest(None, history, query=beside)])[0][0].ids]
    with serving(folder, "--page") as service, chromium.page() as page:
        address = f"http://127.0.0.1:{service.port}/?k=5&history={','.join(map(str, history))}"
        page.open(f"{address}&context_country=FR&context_tags=a%2Cc&context_hour=7&context_moon=full")
        wait_for(lambda: ids() == asked(context_country="FR", context_tags=["a", "c"], context_hour=7), 20)
        assert page.texts("#query label") == ["user: gender", "user: age", "context: country", "context: hour",
                                              "context: tags"]
        assert page.run("$('query-context_country').value") == "FR"
        assert page.attributes("#values-context_country option", "value") == bundle.query.values["c:country"]
        page.run("(field => { field.value = 'DE'; field.dispatchEvent(new Event('input')); })($('query-context_country'))")
        wait_for(lambda: ids() == asked(context_country="DE", context_tags=["a", "c"], context_hour=7), 20)
        assert "context_country=DE" in page.run("location.search")
        assert '"context_tags": ["a","c"]' in page.run("$('curl').textContent")
        page.run("$('forget').click()")
        wait_for(lambda: ids() == asked(), 20)
        page.open(f"http://127.0.0.1:{service.port}/?k=5&context_country=FR")
        wait_for(lambda: "these are for what is known of user and request" in " ".join(
            page.texts("#messages .message")), 20)


@pytest.mark.slow
def test_the_example_clients_tell_what_is_known(bundles):
    bundle, folder = bundles["clrec"][2:]
    history = bundle.item_ids[:3].tolist()
    expected = Retriever(bundle, SearchOptions(4, exclude_seen=True))(
        [UserRequest(None, history, query=dict(context_country="FR", context_tags=["a", "c"], context_hour=7))])[0][0].ids
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with serving(folder, f"--grpc_port={port}") as service:
        for client, server in (("rest", f"http://127.0.0.1:{service.port}"), ("grpc", f"127.0.0.1:{port}")):
            told = ["--tell=context_country=FR", "--tell=context_tags=a,c", "--tell=context_hour=7", "--popularity=0"]
            found = subprocess.run(
                [sys.executable, f"{ROOT}/launch/clients/predict_{client}.py", f"--server={server}", "--k=4",
                 "--exclude_seen", f"--history={','.join(map(str, history))}", *told, "--timeout=30"],
                check=True, capture_output=True, text=True).stdout
            assert [int(line.split()[0]) for line in found.splitlines()] == expected, client
            for told, error in (("context_hour=noon", "--tell=context_hour=noon: context_hour is a number"),
                                ("context_moon=full", "context_moon"), ("context_hour", "give NAME=VALUE")):
                refused = subprocess.run(
                    [sys.executable, f"{ROOT}/launch/clients/predict_{client}.py", f"--server={server}",
                     f"--tell={told}", "--timeout=30"], capture_output=True, text=True)
                assert refused.returncode == 1 and error in refused.stderr, (client, refused.stderr)
                assert "Traceback" not in refused.stderr
