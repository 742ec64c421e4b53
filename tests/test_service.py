"""The service's answers, against the SavedModel's own signatures with padded inputs and against the catalogue."""
import contextlib
import json

import numpy as np
import pytest
import tensorflow as tf

from tests import exported
from tests.exported import INTENTS, MULTI, NOW
from tests import promql
from tests import scraped
from tests.service_process import Service, ask

KINDS = ("int", "string", MULTI)
HISTORIES = [[3, 14, 15], [9, 2, 6, 5, 35], [58], [], [7, 500, 8], [500]]  # item numbers; 500 is unknown
GAPS = [[900, 60, 5], [10**6, 10**5, 10**4, 10**3, 100], [50], [], [9, 8, 7], [1]]
DWELL = [[3, -1, 300], [9, 2, 60, 5, 35], [0], [], [100, 2, 3], [4]]
WIDTH = 5
COUNTS = [1, 3, 6, 2, 4, 5]  # intents
KS = [4, 1, 7, 3, 60, 2]
POPULARITIES = [0.0, 1.0, 0.5, 1.0, -0.25, 1.25]
EXCLUDED = [[], [2, 500], [1, 2, 3, 4], [], [7], []]


@pytest.fixture(scope="module")
def services():
    """By kind; they start at the same time."""
    with contextlib.ExitStack() as stack:
        found = {}
        for kind in KINDS:
            folder = exported.bundle_folder(kind).rpartition("/")[0]
            found[kind] = Service(folder, *(["--max_k=50", "--max_listed=20", "--max_instances=8", "--k=3",
                                             "--exclude_seen", "--intents=2", "--merge=quota"] if kind == MULTI else
                                            ["--max_k=60", "--max_per_client=9"]))
            stack.callback(found[kind].kill)
        yield found


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def service(services, kind):
    return services[kind]


def ids(kind, numbers):
    return [exported.original_id(kind, number) for number in numbers]


def user(kind, row, **others):
    """A user as an instance."""
    found = {"history": ids(kind, HISTORIES[row])}
    if kind != "int":
        found |= {"timestamps": [NOW - gap for gap in GAPS[row]], "request_time": NOW}
    if kind == MULTI:
        found |= {"dwell": [second if second >= 0 else None for second in DWELL[row]], "intents": COUNTS[row]}
    return found | {"popularity": POPULARITIES[row]} | others


def padded_ids(kind, lists, width):
    padding = "" if kind == "string" else -1
    rows = [ids(kind, numbers) + [padding] * (width - len(numbers)) for numbers in lists]
    return tf.constant(rows, tf.string if kind == "string" else tf.int64, (len(lists), width))


def signature(kind, name, **others):
    """What the SavedModel itself gives for all users, padded."""
    inputs = {"history": padded_ids(kind, HISTORIES, WIDTH), "popularity": tf.constant(POPULARITIES)}
    pad = lambda lists, value: tf.constant([row + [value] * (WIDTH - len(row)) for row in lists], tf.int64)
    if kind != "int":
        inputs |= {"timestamps": pad([[NOW - gap for gap in row] for row in GAPS], 0),
                   "request_time": tf.fill([len(HISTORIES)], tf.constant(NOW, tf.int64))}
    if kind == MULTI:
        inputs |= {"dwell": pad(DWELL, -1), "intents": tf.constant(COUNTS, tf.int32)}
    found = exported.loaded(kind).tower.signatures[name](**inputs, **others)
    return {key: value.numpy() for key, value in found.items()}


def both_forms(service, name, rows):
    """Predictions by instances; the same by inputs, turned into rows."""
    service.port  # pylint: disable=pointless-statement
    by_row = service.users(*rows, signature=name)
    columns = {key: [row[key] for row in rows] for key in rows[0]}
    answer = service.predict({"signature_name": name, "inputs": columns})
    assert answer.status == 200, answer
    outputs = answer.json["outputs"]
    by_column = [{key: values[row] for key, values in outputs.items() if values[row] is not None}
                 for row in range(len(rows))]
    assert by_column == by_row
    return by_row


def test_user_vectors_are_those_of_the_saved_model(service, kind):
    expected = signature(kind, "serving_default")
    rows = both_forms(service, "serving_default", [user(kind, row) for row in range(len(HISTORIES))])
    for row, found in enumerate(rows):
        count = COUNTS[row] if kind == MULTI else 1
        np.testing.assert_allclose(found["user_vectors"], expected["user_vectors"][row, :count], atol=1e-6)
        np.testing.assert_allclose(found["weights"], expected["weights"][row, :count], atol=1e-6)
        assert found.get("intents") == (expected["intents"][row, :count].tolist() if kind == MULTI else None)
    assert np.abs(rows[0]["user_vectors"]).max() > 0.1 and np.abs(rows[3]["user_vectors"]).max() == 0


def test_items_are_those_of_the_saved_model_for_ragged_histories_and_own_k(service, kind):
    ks = np.minimum(KS, 50).tolist()
    expected = signature(kind, "retrieve", k=tf.constant(ks, tf.int32), exclude=padded_ids(kind, EXCLUDED, 4))
    rows = [user(kind, row, k=ks[row], exclude=ids(kind, EXCLUDED[row]), exclude_seen=False) | (
        {"merge": "maximum"} if kind == MULTI else {}) for row in range(len(HISTORIES))]
    found = both_forms(service, "retrieve", rows)
    for row, answer in enumerate(found):
        mine = expected["ids"][row, :ks[row]]
        mine = [item.decode() if isinstance(item, bytes) else int(item) for item in mine]
        mine = [item for item in mine if item not in ("", -1)]
        assert answer["ids"] == mine and len(mine) == min(ks[row], exported.ITEMS - sum(n < 99 for n in EXCLUDED[row]))
        np.testing.assert_allclose(answer["scores"], expected["scores"][row, :len(mine)], atol=2e-6)
        assert answer.get("unknown", []) == ids(kind, [number for number in HISTORIES[row] if number == 500])
        assert ("fallback" in answer) == (row in (3, 5)) and answer.get("fallback", True) is True
        if kind == MULTI and "fallback" not in answer:
            assert answer["intents"] == expected["intents"][row, :len(mine)].tolist()
            weights = signature(kind, "serving_default")
            assert list(answer["weights"]) == [str(n) for n in weights["intents"][row, :COUNTS[row]]]
            np.testing.assert_allclose(list(answer["weights"].values()), weights["weights"][row, :COUNTS[row]],
                                       atol=1e-6)
        else:
            assert "weights" not in answer
    world = exported.world(kind)
    popular = np.argsort(-world.catalogue.counts, kind="stable")
    assert found[3]["ids"] == [world.catalogue.original_ids[place] for place in popular[:3]]


def test_vectors_of_items_are_those_of_the_saved_model(service, kind):
    numbers = [5, 60, 500, 1]
    items = ids(kind, numbers)
    expected = exported.loaded(kind).tower.signatures["encode_items"](ids=tf.constant(
        items, tf.string if kind == "string" else tf.int64))
    rows = both_forms(service, "encode_items", [{"ids": item} for item in items])
    np.testing.assert_allclose([row["vectors"] for row in rows], expected["vectors"].numpy(), atol=1e-6)
    assert [row["known"] for row in rows] == [True, True, False, True]


def test_a_single_value_counts_for_all_users(services):
    history = [ids("int", HISTORIES[row]) for row in (0, 1)]
    for k in (4, [4, 4]):
        answer = services["int"].predict({"signature_name": "retrieve", "inputs": {"history": history, "k": k}})
        assert answer.json["outputs"]["ids"] == [
            found["ids"] for found in services["int"].users(*({"history": row, "k": 4} for row in history))]
    assert set(answer.json["outputs"]) == {"ids", "scores"}


def test_long_histories_count_by_their_latest_known_clicks(services):
    latest = ids("int", [9, 2, 6, 5])
    long = ids("int", range(1, 50)) + latest[:2] + ids("int", [500] * 30) + latest[2:]
    found = services["int"].users({"history": long}, {"history": latest})
    assert found[0]["ids"] == found[1]["ids"] and found[0]["unknown"] == ids("int", [500])


def test_what_a_request_leaves_out_is_as_the_flags_say(services):
    mine, told = (services[MULTI].users(dict(
        history=ids(MULTI, HISTORIES[1]), timestamps=user(MULTI, 1)["timestamps"], request_time=NOW, **others))[0]
        for others in ({}, dict(k=3, exclude_seen=True, intents=2, merge="quota")))
    assert mine == told and len(mine["ids"]) == 3 and len(mine["weights"]) == 2
    assert not set(mine["ids"]) & set(ids(MULTI, HISTORIES[1]))
    plain = services["int"].users({"history": ids("int", HISTORIES[0])})[0]
    assert len(plain["ids"]) == 10 and set(ids("int", HISTORIES[0])) & set(plain["ids"])  # --k and --exclude_seen


def test_options_of_one_user_do_not_touch_the_others_of_its_batch(services):
    service, history = services["int"], ids("int", HISTORIES[1])
    full = service.users({"history": history, "k": 60})[0]["ids"]
    assert sorted(full) == sorted(ids("int", range(1, 61)))
    allowed = ids("int", [11, 12, 13, 500])
    without = [item for item in full if item not in history]
    found = service.users({"history": history, "exclude_seen": True, "k": 5}, {"history": history, "k": 5},
                          {"history": history, "exclude": full[:3], "k": 5}, {"history": history, "allow": allowed},
                          {"history": history, "allow": []}, {"history": history, "allow": full[:9], "k": 4,
                                                              "exclude": full[1:2]})
    assert [row["ids"] for row in found] == [
        without[:5], full[:5], full[3:8], [item for item in full if item in allowed], [], full[:1] + full[2:5]]


def test_titles_come_only_if_asked_for(services):
    plain, titled = services["string"].users({"history": ["ä 3"]}, {"history": ["ä 3"], "titles": True})
    assert "titles" not in plain and titled["ids"] == plain["ids"]
    assert titled["titles"] == [f"Title {item.split()[1]}" for item in titled["ids"]]
    assert "titles" not in services["int"].users({"history": [], "titles": True})[0]  # the catalogue has none


def test_a_quota_gives_every_intent_its_share(services):
    one = user(MULTI, 1, k=12, exclude_seen=False, intents=4)
    top, shared = (services[MULTI].users(one | {"merge": merge})[0] for merge in ("maximum", "quota"))
    assert top["ids"] != shared["ids"] and set(shared["intents"]) == {int(n) for n in shared["weights"]}


@pytest.mark.parametrize("instance, texts", [
    ({"k": 51}, ["instance 0", "k is 51", "at most 50 items (--max_k): ask for fewer"]),
    ({"history": [1] * 21}, ["instance 0", "history has 21 ids", "at most 20", "--max_listed", "send the latest"]),
    ({"exclude": [1] * 21}, ["exclude has 21 ids", "--max_listed"]),
    ({"allow": [1] * 21}, ["allow has 21 ids", "--max_listed"]),
    ({"intents": INTENTS + 1}, ["intents is 7", "the model has 6", "give at most that many"]),
    ({"k": 0}, ["`int` >= 1", "instances[0].k"]),
    ({"merge": "best"}, ["best", "instances[0].merge", "merge (maximum or quota), titles"]),
    ({"kk": 3}, ["unknown field `kk`", "entries are history, timestamps"]),
    ({"timestamps": [1]}, ["timestamps has 1 entries, history has 2: give one per click"]),
    ({"timestamps": [1, 2]}, ["timestamps but no request_time", "add it"]),
    ({"dwell": [1, 2, 3]}, ["dwell has 3 entries, history has 2"]),
    ({"history": ["x"]}, ["instance 0, history", "integers below 2^63, got 'x'"]),
    ({"popularity": 1.3}, ["instance 0: popularity is 1.3, this bundle offers -0.25 to 1.25", "give a number in this"]),
    ({"popularity": -1}, ["popularity is -1"]), ({"popularity": "1"}, ["popularity", "Expected `float | null`"]),
    ({"popularity": True}, ["popularity", "Expected `float | null`"]),
    ({"request_time": 2**62}, [str(2**62), "no time in seconds"]),
    ({"request_time": -2**62}, [str(-2**62), "no time in seconds"]),
    ({"request_time": NOW, "timestamps": [NOW, NOW * 1000]}, [str(NOW * 1000), "divide times in milliseconds by 1000"]),
])
def test_limits_name_the_entry_the_value_and_the_remedy(services, instance, texts):
    answer = services[MULTI].predict({"signature_name": "retrieve", "instances": [{"history": [1, 2]} | instance]})
    assert answer.status == 400 and all(text in answer.error for text in texts), answer
    first = services[MULTI].predict({"signature_name": "retrieve", "instances": [
        {"history": []}, {"history": [1, 2]} | instance]})
    assert "instance 1" in first.error or "instances[1]" in first.error or "kk" in instance or "merge" in instance


def test_who_names_no_popularity_gets_the_default(services):
    """Of --popularity where it is given, else of the bundle; users of one request may differ."""
    users = [{"history": ids("int", [3, 14])} | extra for extra in ({}, {"popularity": 0.0}, {"popularity": 1.0},
                                                                    {"popularity": None})]
    default, zero, one, null = services["int"].users(*users)
    assert default == zero == null != one
    facts = services["int"].request("/v1/models/clrec/metadata").json["metadata"]["bundle"]
    assert facts["popularity"] == 0 and (facts["dial"]["lowest"], facts["dial"]["highest"]) == (-0.25, 1.25)
    vectors = services["int"].users(*({"history": ids("int", [3]), "popularity": alpha} for alpha in (0.5, 0)),
                                    signature="serving_default")
    assert [answer["user_vectors"][0][-1] for answer in vectors] == [0.5, 0]
    assert services["int"].request("/openapi.json").json["components"]["schemas"]["RetrieveUser"]["properties"][
        "popularity"]["anyOf"][0] == {"type": "number", "minimum": -0.25, "maximum": 1.25}


@pytest.mark.parametrize("body, text", [
    ({}, "give either instances"),
    ({"instances": [{"history": []}], "inputs": {"history": [[]]}}, "give either instances"),
    ({"instances": []}, "the request has 0 instances, 1 to 8 are accepted (--max_instances): send several requests"),
    ({"instances": [{"history": []}] * 9}, "the request has 9 instances"),
    ({"inputs": {"history": [[]] * 9}}, "the request has 9 instances"),
    ({"inputs": {"history": [[], []], "intents": [1]}}, "inputs: intents has 1 entries, the first dimension of all "
                                                        "must be the same, 2"),
    ({"inputs": {"intents": [1]}}, "inputs of serving_default need the list `history`, of a list per user"),
    ({"inputs": {"history": [[], [1.5]]}}, "inputs, row 1"),
    ({"inputs": [[1]]}, "inputs cannot be read"),
    ({"signature_name": "other", "instances": []}, "'other' is none of retrieve, serving_default, encode_items"),
    ({"signature_name": "encode_items", "inputs": {"history": [[]]}}, "need the list `ids` per item"),
    ({"instances": [{"history": []}], "signature_name": "serving_default", "k": 1}, "unknown field `k`"),
])
def test_bodies_that_ask_for_nothing_possible_say_why(services, body, text):
    answer = services[MULTI].predict(body)
    assert answer.status == 400 and text in answer.error, answer


def test_versions_status_metadata_and_health(services):
    service, body = services[MULTI], {"instances": [{"history": []}]}
    assert service.predict(body, "1").status == 200
    for version in ("2", "01", "x", "1 "):
        answer = service.predict(body, version.replace(" ", "%20"))
        assert answer.status == 404 and answer.error == f"version {version} is not served, version 1 is"
    assert service.request("/v1/models/clrec").json == {"model_version_status": [
        {"version": "1", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}]}
    facts = service.request("/v1/models/clrec/metadata").json
    assert facts["model_spec"] == {"name": "clrec", "version": "1"}
    bundle = facts["metadata"]["bundle"]
    assert (bundle["items"], bundle["dimension"], bundle["intents"], bundle["id_type"]) == (60, 8, INTENTS, "int")
    assert facts["metadata"]["signatures"]["retrieve"][:2] == ["history", "timestamps"]
    assert service.request("/healthz").json == {"status": "alive"}
    assert service.request("/readyz").json == {"status": "ready", "version": 1}


def test_every_answer_names_the_request_and_predictions_the_version(services):
    service = services["int"]
    body = {"instances": [{"history": []}]}
    for sent, kept in (("order-17/ä".encode("latin-1"), False), (b"order-17/a", True), (b"x" * 128, True),
                       (b"x" * 129, False), (b"a b", False), (b"", False)):
        answer = service.predict(body, headers={"X-Request-Id": sent})
        name = answer.json["request_id"]
        assert answer.status == 200 and answer.headers["x-request-id"] == name and answer.json["model_version"] == "1"
        assert (answer.headers["x-model-name"], answer.headers["x-model-version"]) == ("clrec", "1")
        assert name == sent.decode() if kept else len(name) == 32 and int(name, 16) >= 0
    first, second = (service.predict(body).json["request_id"] for _ in range(2))
    assert first != second
    outputs = service.predict({"inputs": {"history": [[]]}}, headers={"X-Request-Id": "r"}).json
    assert (outputs["request_id"], outputs["model_version"], set(outputs["outputs"])) == (
        "r", "1", {"user_vectors", "weights"})
    for path, sent, status in (("/nowhere", None, 404), ("/v1/models/clrec:predict", b"{", 400),
                               ("/healthz", None, 200)):
        answer = service.request(path, sent, headers={"X-Request-Id": "mine"})
        assert (answer.status, answer.headers["x-request-id"]) == (status, "mine")


@pytest.mark.parametrize("path, method, status, text", [
    ("/v1/models/other:predict", "POST", 404, "there is no model 'other', the service has 'clrec' (--model_name)"),
    ("/v1/models/other", "GET", 404, "there is no model 'other'"),
    ("/v1/models/other/metadata", "GET", 404, "there is no model 'other'"),
    ("/v1/models/a%2Fb%00:predict", "POST", 404, "Not Found; /openapi.json lists what there is"),
    ("/v1/models/%ed%a0%80:predict", "POST", 404, "there is no model"),
    ("/v1/models/clrec/", "GET", 404, "Not Found"),
    ("/", "GET", 404, "Not Found"),
    ("/v1/models/clrec:predict", "GET", 405, "Method Not Allowed"),
    ("/v1/models/clrec:predict", "DELETE", 405, "Method Not Allowed"),
    ("/v1/models/clrec:predict", "OPTIONS", 405, "Method Not Allowed"),
    ("/v1/models/clrec/versions/1:predict", "PUT", 405, "Method Not Allowed"),
    ("/healthz", "POST", 405, "Method Not Allowed"),
])
def test_what_there_is_not_is_told_in_json(services, path, method, status, text):
    answer = services["int"].request(path, b"{}", method)
    assert answer.status == status and text in answer.error, answer
    assert status != 405 or "POST" in answer.headers["allow"] or "GET" in answer.headers["allow"]


def test_percent_encoded_names_and_head_requests(services):
    service = services["int"]
    body = json.dumps({"instances": [{"history": []}]}).encode()
    assert service.request("/v1/models/%63lrec%3Apredict", body).status == 200
    for path in ("/healthz", "/readyz", "/metrics", "/v1/models/clrec", "/v1/models/clrec/metadata"):
        with contextlib.closing(service.client()) as client:
            named = {"x-request-id": "mine"}
            # On one connection.
            head, whole = (ask(client, path, method=method, headers=named) for method in ("HEAD", ""))
        assert head.status == whole.status == 200 and head.body == b"" and whole.body
        assert path == "/metrics" or head.headers == whole.headers


def test_metrics_count_what_was_asked(services):
    service = services["string"]
    service.port  # pylint: disable=pointless-statement
    before = service.metrics()
    service.users({"history": []}, {"history": ["x", "y", "x", "ä 3", ""]}, {"history": ["ä 3"]})
    service.users({"history": ["x"]}, signature="serving_default")
    service.users({"ids": "x"}, signature="encode_items")
    service.predict(b"{")
    service.predict({"signature_name": "retrieve", "instances": [{"history": [], "k": 1000}]})
    service.predict({"instances": [{"history": []}]}, "9")
    service.request("/v1/models/other:predict", b"{}")
    service.request("/v1/models/clrec:predict", b"x" * 2_000_001)
    after = service.metrics()
    grown = {name: after[name] - before.get(name, 0) for name in after
             if name.startswith("clrec_") and "created" not in name and after[name] != before.get(name, 0)}
    count = lambda signature, status: f'clrec_requests_total{{signature="{signature}",status="{status}"}}'
    requests = {name: value for name, value in grown.items() if name.startswith("clrec_requests_total")}
    assert requests == {count("retrieve", 200): 1, count("serving_default", 200): 1, count("encode_items", 200): 1,
                        count("", 400): 2, count("", 404): 2, count("", 413): 1}
    assert grown["clrec_batch_users_count"] == 3 and grown["clrec_batch_users_sum"] == 5
    assert grown["clrec_fallback_users_total"] == 1 and grown["clrec_unknown_clicks_total"] == 2
    assert grown['clrec_request_seconds_count{signature="retrieve"}'] == 1
    assert 0 < grown['clrec_request_seconds_sum{signature="retrieve"}'] < 30
    stages = {stage: grown[f'clrec_stage_seconds_count{{stage="{stage}"}}']
              for stage in ("wait", "batch", "tower", "search")}
    assert stages == {"wait": 3, "batch": 3, "tower": 2, "search": 1}
    assert after["clrec_model_items"] == 60 and after["clrec_model_version"] == 1 and after["clrec_index_recall"] == 1
    assert after["clrec_waiting_users"] == 0 and after["clrec_versions_refused_total"] == 0
    # Dashboard and alerts name nothing else.
    expressions = promql.dashboard("Serving") + promql.alerts("clrec-serving")
    assert len(expressions) > 15 and promql.missing(expressions, scraped.scrape(service.port).labels()) == set()
