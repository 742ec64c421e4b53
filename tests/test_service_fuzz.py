"""The service against its own description, by generated requests; and the reader of bodies by generated values."""
import collections
import json

import hypothesis
from hypothesis import strategies
import msgspec
import polars as pl
import pytest
import schemathesis
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS

from clrec_tf.errors import UserError
from clrec_tf.retrieval.attributes import Attributes
from clrec_tf.retrieval.search_options import SearchOptions
from clrec_tf.server import bodies
from clrec_tf.server import instances
from tests import exported
from tests.service_process import serving

LIMITS = bodies.Limits(k=20, listed=5, users=4, intents=3, attributes=Attributes(pl.DataFrame(
    {"kind": [["a"], ["b", "c"]], "price": [1.0, None]})))
DEFAULTS = SearchOptions(intents=2)
EXAMPLES = dict(deadline=None, suppress_health_check=list(hypothesis.HealthCheck), database=None, derandomize=True)
# What is right by the description may be refused for what a schema cannot say. Its integers may be written 1.0, too.
BEYOND = ("timestamps but no request_time", "give one per click", "must be the same", "no time in seconds",
          "got `float`", "Input data was truncated", "out of range", "is not known", "ask to explain")
CHECKED = [check for check in CHECKS.get_all() if check.__name__ != "positive_data_acceptance"]

@pytest.fixture(scope="module")
def service():
    with serving(exported.bundle_folder("string").rpartition("/")[0], "--read_timeout_s=2") as found:
        found.port  # pylint: disable=pointless-statement
        yield found
        assert "Traceback" not in found.log


@pytest.mark.parametrize("mode", list(GenerationMode))
def test_answers_are_as_the_description_says(service, mode):
    """By requests that are as the description says, and by such that are not."""
    described = schemathesis.openapi.from_url(f"http://127.0.0.1:{service.port}/openapi.json")
    operations = [found.ok() for found in described.get_all_operations()]
    assert len(operations) == 7
    statuses = collections.Counter()
    for operation in operations:
        if mode is GenerationMode.NEGATIVE and operation.method != "post":
            continue

        @hypothesis.settings(max_examples=60 if operation.method == "post" else 4, **EXAMPLES)
        @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
        def ask(case):
            if "version" in case.path_parameters and mode is GenerationMode.POSITIVE:
                case.path_parameters["version"] = "1"
            answer = case.call()
            case.validate_response(answer, checks=CHECKED)
            assert answer.status_code < 500
            statuses[answer.status_code] += 1
            if answer.status_code == 400 and mode is GenerationMode.POSITIVE:
                assert any(text in answer.json()["error"] for text in BEYOND), (answer.json(), case.body)
            if answer.status_code >= 400:
                assert answer.headers["content-type"] == ["application/json"] and set(answer.json()) == {"error"}
        ask()  # pylint: disable=no-value-for-parameter
    assert statuses[400] > 5 and (statuses[200] > 20 or mode is GenerationMode.NEGATIVE), statuses


def test_the_description_names_what_there_is(service):
    found = service.request("/openapi.json").json
    assert set(found["paths"]) == {
        "/v1/models/{name}:predict", "/v1/models/{name}/versions/{version}:predict", "/v1/models/{name}",
        "/v1/models/{name}/metadata", "/healthz", "/readyz", "/metrics"}
    parts = found["components"]["schemas"]
    assert set(parts["RetrieveUser"]["properties"]) == set(instances.RetrieveUser.__struct_fields__)
    assert parts["User"]["properties"]["history"]["maxItems"] == 10_000


IDS = strategies.one_of(strategies.integers(), strategies.text(max_size=5), strategies.integers(0, 9).map(str))
ANY = strategies.recursive(
    strategies.one_of(strategies.none(), strategies.booleans(), strategies.integers(), strategies.floats(),
                      strategies.text(max_size=9), strategies.integers(-2**70, 2**70)),
    lambda inner: strategies.one_of(strategies.lists(inner, max_size=6),
                                    strategies.dictionaries(strategies.text(max_size=5), inner, max_size=5)),
    max_leaves=12)
NAMES = list(instances.RetrieveUser.__struct_fields__)
MEANT = {"history": strategies.lists(IDS, max_size=6), "exclude": strategies.lists(IDS, max_size=3),
         "allow": strategies.lists(IDS, max_size=3), "timestamps": strategies.lists(strategies.integers(), max_size=6),
         "request_time": strategies.integers(), "dwell": strategies.lists(strategies.none(), max_size=6),
         "events": strategies.lists(strategies.one_of(strategies.none(), strategies.text(max_size=4)), max_size=6),
         "k": strategies.integers(1, 30), "intents": strategies.integers(1, 4), "exclude_seen": strategies.booleans(),
         "merge": strategies.sampled_from(["maximum", "quota", "x"]), "titles": strategies.booleans(),
         "filter": strategies.dictionaries(strategies.sampled_from(["kind", "price", "x"]), ANY, max_size=2),
         "explain": strategies.booleans(), "user_id": IDS,
         "popularity": strategies.one_of(strategies.floats(-1, 2), strategies.just(0))}
ROW = strategies.fixed_dictionaries({"history": MEANT["history"]},
                                    optional={name: strategies.one_of(MEANT[name], ANY) for name in NAMES[1:]})
COLUMNS = strategies.dictionaries(strategies.sampled_from([*NAMES, "ids"]), strategies.one_of(
    strategies.lists(strategies.one_of(strategies.lists(IDS, max_size=3), IDS, ANY), max_size=5), ANY), max_size=5)
BODIES = strategies.one_of(ANY, strategies.fixed_dictionaries({}, optional={
    "signature_name": strategies.one_of(strategies.sampled_from(list(instances.INSTANCES)), ANY),
    "instances": strategies.one_of(strategies.lists(ROW, max_size=5), ANY), "inputs": COLUMNS, "more": ANY}),
    strategies.fixed_dictionaries({"instances": strategies.lists(ROW, min_size=1, max_size=3)},
                                  optional={"signature_name": strategies.just(instances.RETRIEVE)}))


def check(read, id_type):
    """What is read is work within the limits, or an error that says something."""
    try:
        work = read()
    except UserError as error:
        assert len(str(error)) > 10 and "Traceback" not in str(error)
        return
    assert isinstance(work, bodies.Work) and 1 <= len(work.jobs) <= LIMITS.users
    for job in work.jobs:
        items = [*job.options.exclude, *(job.options.allow or ()),
                 *(job.request.history if job.request else [job.item])]
        assert all(isinstance(item, int if id_type == "int" else str) for item in items)
        assert 1 <= job.options.k <= LIMITS.k
        if job.request:
            assert 1 <= job.options.intents <= LIMITS.intents
            assert len(job.request.history) <= LIMITS.listed
            for times in (job.request.timestamps, job.request.dwell):
                assert times is None or (len(times) == len(job.request.history)
                                         and all(isinstance(second, int) and abs(second) < 2**63 for second in times))


@pytest.mark.parametrize("id_type", ["int", "string"])
@hypothesis.settings(max_examples=400, **EXAMPLES)
@hypothesis.given(value=BODIES)
def test_any_json_is_work_or_an_error_with_a_text(id_type, value):
    text = json.dumps(value).encode()  # with NaN, Infinity and lone surrogates where they come
    check(lambda: bodies.parse(text, id_type, DEFAULTS, LIMITS), id_type)


@pytest.mark.parametrize("id_type", ["int", "string"])
@hypothesis.settings(max_examples=200, **EXAMPLES)
@hypothesis.given(signature=strategies.one_of(strategies.sampled_from(list(instances.INSTANCES)), strategies.text()),
                  columns=COLUMNS)
def test_any_columns_are_work_or_an_error_with_a_text(id_type, signature, columns):
    """As they come from arrays, without JSON before them: NaN and huge numbers arrive."""
    check(lambda: bodies.by_columns(signature, columns, id_type, DEFAULTS, LIMITS), id_type)


@hypothesis.settings(max_examples=200, **EXAMPLES)
@hypothesis.given(text=strategies.one_of(strategies.binary(max_size=50), BODIES.map(
    lambda value: json.dumps(value).encode()[:-1])))
def test_any_bytes_are_work_or_an_error_with_a_text(text):
    check(lambda: bodies.parse(text, "int", DEFAULTS, LIMITS), "int")


@hypothesis.settings(max_examples=100, **EXAMPLES)
@hypothesis.given(rows=strategies.lists(strategies.lists(strategies.integers(-2**62, 2**62), max_size=5), min_size=1,
                                        max_size=4), k=strategies.integers(1, 20))
def test_instances_and_inputs_ask_for_the_same(rows, k):
    one = bodies.parse(msgspec.json.encode({"signature_name": "retrieve", "instances": [
        {"history": row, "k": k} for row in rows]}), "int", DEFAULTS, LIMITS)
    other = bodies.parse(msgspec.json.encode({"signature_name": "retrieve", "inputs": {
        "history": rows, "k": k}}), "int", DEFAULTS, LIMITS)
    assert one.jobs == other.jobs and [job.request.history for job in one.jobs] == rows
