"""The gRPC server, over a real channel to a real bundle's signatures."""
import asyncio
import contextlib
import pathlib
import subprocess
import sys
import threading
import types

import grpc
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import get_model_metadata_pb2, get_model_status_pb2, model_service_pb2_grpc
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc
import uvloop

from clrec_tf.config import ServeConfig
from clrec_tf.errors import UserError
from clrec_tf.retrieval.signatures import read_signatures
from clrec_tf.server.aside import Aside
from clrec_tf.server.counted_line import CountedLine
from clrec_tf.server import grpc_messages
from clrec_tf.server import grpc_server
from clrec_tf.server.held_bytes import HeldBytes
from clrec_tf.server.instances import INSTANCES
from tests import exported

CLIENT = pathlib.Path(__file__).parents[1] / "launch" / "clients" / "predict_grpc.py"
LARGEST, READ_S = 20_000, 1.0
Code = grpc.StatusCode


class SavedModelPredictor:
    """Answers by the SavedModel itself; raises the next of `errors`; `seen` are (version, client) of the calls."""

    def __init__(self):
        self.errors, self.seen, self.aside, self.held, self._client = [], [], Aside(), HeldBytes(10 * LARGEST), ""

    @contextlib.contextmanager
    def counted(self, client):
        self._client = client
        yield

    async def arrays(self, read, size, request_id):
        signature, inputs, version = await self.aside(size, lambda: read(INSTANCES))
        self.seen.append((version, self._client))
        await asyncio.sleep(0)
        if self.errors:
            raise self.errors.pop()
        function = exported.loaded(exported.MULTI).tower.signatures.get(signature)
        if function is None:
            raise UserError(f"there is no signature {signature}")
        try:
            outputs = function(**{name: tf.constant(value) for name, value in inputs.items()})
        except tf.errors.InvalidArgumentError as error:
            raise UserError(error.message) from error
        return {name: value.numpy() for name, value in outputs.items()}, 3


@pytest.fixture(scope="module", params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def served(request):
    """(channel, predictor, port) of a server that listens in a thread of its own."""
    predictor, ready = SavedModelPredictor(), threading.Event()
    engine = types.SimpleNamespace(version=3, signatures=read_signatures(exported.bundle_folder(exported.MULTI)))
    state = types.SimpleNamespace(port=None, stop=None)

    async def listen():
        state.loop, state.stop = asyncio.get_running_loop(), asyncio.Event()
        settings = ServeConfig(grpc_port=0, max_request_bytes=LARGEST, read_timeout_s=READ_S)
        async with grpc_server.listening(settings, predictor, types.SimpleNamespace(engine=engine)) as state.port:
            ready.set()
            await state.stop.wait()

    def run():
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(listen())
    thread = threading.Thread(target=run)
    thread.start()
    assert ready.wait(20)
    with grpc.insecure_channel(f"127.0.0.1:{state.port}") as channel:
        yield channel, predictor, state.port
    state.loop.call_soon_threadsafe(state.stop.set)
    thread.join(20)
    assert not thread.is_alive()


def arguments(users=2):
    ids = np.array([[exported.original_id(exported.MULTI, number) for number in (3, 14, 15)]] * users)
    return dict(history=ids, popularity=np.linspace(0, 1, users, dtype=np.float32), timestamps=np.full(ids.shape, exported.NOW - 60), dwell=np.full(ids.shape, 9),
                request_time=np.full(users, exported.NOW), intents=np.arange(1, users + 1, dtype=np.int32),
                k=np.full(users, 5, np.int32), exclude=ids[:, :1])


def request(inputs, signature="", name="clrec", version=None, outputs=()):
    message = predict_pb2.PredictRequest(output_filter=outputs)
    message.model_spec.name, message.model_spec.signature_name = name, signature
    if version is not None:
        message.model_spec.version.value = version
    for key, value in inputs.items():
        message.inputs[key].CopyFrom(tf.make_tensor_proto(value))
    return message


def predict(served, *args, **options):
    return prediction_service_pb2_grpc.PredictionServiceStub(served[0]).Predict(request(*args, **options), timeout=20)


def refused(served, code, words, *args, **options):
    with pytest.raises(grpc.RpcError, match=words) as error:
        predict(served, *args, **options)
    assert error.value.code() is code
    return error.value


def test_answers_are_those_of_the_saved_model(served):
    tower, inputs = exported.loaded(exported.MULTI).tower, arguments()
    searching = ("k", "exclude")
    for signature, given in (("retrieve", inputs), ("encode_items", {"ids": inputs["history"][0]}),
                             ("", {name: value for name, value in inputs.items() if name not in searching})):
        response = predict(served, given, signature, version=3)
        name = signature or "serving_default"
        expected = tower.signatures[name](**{name: tf.constant(value) for name, value in given.items()})
        assert set(response.outputs) == set(expected)
        for output, value in expected.items():
            np.testing.assert_array_equal(tf.make_ndarray(response.outputs[output]), value)
        spec = response.model_spec
        assert (spec.name, spec.version.value, spec.signature_name) == ("clrec", 3, name)
    assert served[1].seen[-1] == ("3", "127.0.0.1")
    predict(served, inputs, "retrieve")
    assert served[1].seen[-1] == ("", "127.0.0.1")  # any version
    assert list(predict(served, inputs, "retrieve", outputs=["ids"]).outputs) == ["ids"]


def test_what_is_not_there_is_not_found(served):
    refused(served, Code.NOT_FOUND, "model 'other' is not served, 'clrec' is", {}, name="other")
    refused(served, Code.NOT_FOUND, "version 2 is not served, version 3 is", {}, version=2)
    refused(served, Code.NOT_FOUND, "version 0 is not served", {}, version=0)
    refused(served, Code.INVALID_ARGUMENT, "there is no signature other", {}, "other")
    refused(served, Code.INVALID_ARGUMENT, "output_filter names score; retrieve gives", arguments(), "retrieve",
            outputs=["score", "ids"])
    labelled = request({})
    labelled.model_spec.version_label = "stable"
    with pytest.raises(grpc.RpcError, match="there are no labels"):
        prediction_service_pb2_grpc.PredictionServiceStub(served[0]).Predict(labelled)


def client(port, *flags):
    return subprocess.run([sys.executable, str(CLIENT), f"--server=127.0.0.1:{port}", "--width=6", *flags],
                          capture_output=True, text=True, check=False, timeout=60)


def test_the_client_retrieves_what_the_signature_does_and_names_what_is_wrong(served):
    ids = [exported.original_id(exported.MULTI, number) for number in (3, 14)]
    history = "--history=" + ",".join(map(str, ids))
    finished = client(served[2], history, "--k=4", "--intents=3", "--exclude_seen", "--popularity=0.5")
    assert finished.returncode == 0, finished.stderr[-2000:]
    rows = [line.split("\t") for line in finished.stdout.splitlines()]
    pad = lambda values, padding: np.array([values + [padding] * (6 - len(values))])
    expected = exported.loaded(exported.MULTI).tower.signatures["retrieve"](**{
        name: tf.constant(value) for name, value in dict(
            history=pad(ids, -1), popularity=np.full(1, 0.5, np.float32), exclude=pad(ids, -1), timestamps=pad([], 0), request_time=np.zeros(1, np.int64),
            dwell=pad([], -1), k=np.full(1, 4, np.int32), intents=np.full(1, 3, np.int32)).items()})
    assert [int(row[0]) for row in rows] == expected["ids"].numpy()[0].tolist()
    np.testing.assert_allclose([float(row[1]) for row in rows], expected["scores"][0], atol=1e-6)
    assert [int(row[2]) for row in rows] == expected["intents"].numpy()[0].tolist()
    assert not set(ids) & {int(row[0]) for row in rows} and len(rows) == 4
    wrong = client(served[2], "--k=0")
    assert wrong.returncode == 1 and "k must be at least 1" in wrong.stderr and "Traceback" not in wrong.stderr
    wrong = client(served[2], "--history=3,abc")
    assert wrong.returncode == 1 and "--history=3,abc: the item ids of this model are integers" in wrong.stderr
    assert "Traceback" not in wrong.stderr


def test_every_call_bears_a_request_id(served):
    def answered(sent, inputs):
        metadata = () if sent is None else (("x-request-id", sent),)
        stub = prediction_service_pb2_grpc.PredictionServiceStub(served[0])
        _, call = stub.Predict.with_call(request(inputs, "retrieve"), timeout=20, metadata=metadata)
        return dict(call.trailing_metadata())["x-request-id"]
    assert answered("mine", arguments()) == "mine"
    made = answered("x" * 129, arguments())
    assert len(made) == 32 and made != answered(None, arguments())
    with pytest.raises(grpc.RpcError) as error:
        answered("mine", {"nothing": [1]})
    assert dict(error.value.trailing_metadata())["x-request-id"] == "mine"


@pytest.mark.parametrize("status, code", [
    (None, Code.INVALID_ARGUMENT), (400, Code.INVALID_ARGUMENT), (404, Code.NOT_FOUND), (413, Code.INVALID_ARGUMENT),
    (429, Code.RESOURCE_EXHAUSTED), (500, Code.INTERNAL), (503, Code.UNAVAILABLE), (504, Code.DEADLINE_EXCEEDED)])
def test_errors_keep_their_words_and_get_a_code(served, status, code):
    error = UserError("--k=0: ätwas is wröng")
    if status:
        error.status = status
    if status == 503:
        error.retry_s = 1.5
    served[1].errors.append(error)
    found = refused(served, code, "--k=0: ätwas is wröng", arguments(), "retrieve")
    assert dict(found.trailing_metadata()).get("grpc-retry-pushback-ms") == ("1500" if status == 503 else None)


def test_a_defect_is_not_shown_and_a_long_error_is_cut(served):
    served[1].errors.append(RuntimeError("secret path"))
    found = refused(served, Code.INTERNAL, "the service failed; its log says more", arguments(), "retrieve")
    assert "secret" not in found.details()
    served[1].errors.append(UserError("long " * 10_000))
    assert len(refused(served, Code.INVALID_ARGUMENT, "long", arguments(), "retrieve").details()) == 2000
    assert predict(served, arguments(), "retrieve").outputs  # and it goes on


def test_messages_and_shapes_have_a_limit(served):
    refused(served, Code.RESOURCE_EXHAUSTED, "larger than max", {"history": np.zeros(LARGEST, np.int64)})
    for sizes, words in (([1000, 1000, 1000], "product is at most 20000"), ([-1], "give sizes"), ([5], "is no tensor")):
        message = request({"history": np.zeros((1, 2), np.int64)})  # few bytes, that stand for many
        del message.inputs["history"].tensor_shape.dim[:]
        for size in sizes:
            message.inputs["history"].tensor_shape.dim.add(size=size)
        with pytest.raises(grpc.RpcError, match=words) as error:
            prediction_service_pb2_grpc.PredictionServiceStub(served[0]).Predict(message)
        assert error.value.code() is Code.INVALID_ARGUMENT


def test_metadata_and_status(served):
    message = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
    message.model_spec.name = "clrec"
    stub = prediction_service_pb2_grpc.PredictionServiceStub(served[0])
    response = stub.GetModelMetadata(message)
    signatures = get_model_metadata_pb2.SignatureDefMap()
    response.metadata["signature_def"].Unpack(signatures)
    assert sorted(signatures.signature_def) == ["encode_items", "retrieve", "serving_default"]
    assert set(signatures.signature_def["retrieve"].inputs) == set(arguments())
    assert response.model_spec.version.value == 3
    message.metadata_field.append("other")
    with pytest.raises(grpc.RpcError, match="there is only signature_def"):
        stub.GetModelMetadata(message)
    asked = get_model_status_pb2.GetModelStatusRequest()
    asked.model_spec.name = "clrec"
    state, = model_service_pb2_grpc.ModelServiceStub(served[0]).GetModelStatus(asked).model_version_status
    assert (state.version, state.state, state.status.error_code) == (3, state.AVAILABLE, 0)
    asked.model_spec.name = "other"
    with pytest.raises(grpc.RpcError, match="is not served"):
        model_service_pb2_grpc.ModelServiceStub(served[0]).GetModelStatus(asked)


def test_a_taken_port_is_an_error(served):
    async def listen():
        async with grpc_server.listening(ServeConfig(grpc_port=served[2]), served[1], None):
            pass
    with pytest.raises(UserError, match=f"--grpc_port={served[2]}: nobody can listen there"):
        asyncio.run(listen())


def sent(served, message, method="Predict", service="PredictionService"):
    """A message as bytes."""
    return served[0].unary_unary(f"/tensorflow.serving.{service}/{method}")(message, timeout=20)


def refusal(served, message, **options):
    with pytest.raises(grpc.RpcError) as error:
        sent(served, message if isinstance(message, bytes) else message.SerializeToString(), **options)
    return error.value


def tensor(kind, sizes, field, values):
    made = tf.make_tensor_proto(np.zeros(0, np.int64))
    made.Clear()
    made.dtype = kind.as_datatype_enum
    getattr(made, field).extend(values)
    for size in sizes:
        made.tensor_shape.dim.add(size=size)
    return made


@pytest.mark.parametrize("sizes, values, text", [
    ([20_000], 1, "holds 1 values and is no tensor of the shape"), ([2], 1, "send every value"),
    ([20_001], 1, "product is at most 20000"), ([0, 10**9], 0, "product is at most 65536"), ([10**9, 0], 0, "at most"),
    ([2**62, 2**62], 1, "at most 20000"), ([1] * 5, 1, "has 5 dimensions"), ([1], 2, "holds 2 values"),
    ([], 0, "holds 0 values"), ([-1], 1, "give sizes")])
def test_nothing_is_made_of_a_shape_that_says_more_than_the_message_holds(served, monkeypatch, sizes, values, text):
    monkeypatch.setattr(tf, "make_ndarray", lambda tensor: pytest.fail("made"))
    message = request({}, "retrieve")
    message.inputs["history"].CopyFrom(tensor(tf.int64, sizes, "int64_val", [1] * values))
    error = refusal(served, message)
    assert error.code() is Code.INVALID_ARGUMENT and text in error.details(), error.details()


def test_nothing_is_made_of_inputs_of_other_names_or_types(served, monkeypatch):
    monkeypatch.setattr(tf, "make_ndarray", lambda tensor: pytest.fail("made"))
    message = request(arguments(), "retrieve")
    message.inputs["histories"].CopyFrom(message.inputs["history"])
    assert "there is no input 'histories': inputs of retrieve are history," in refusal(served, message).details()
    message = request(arguments(), "serving_default")
    assert "inputs of serving_default are" in refusal(served, message).details()  # k and exclude are not
    for kind, field in ((tf.complex64, "scomplex_val"), (tf.uint64, "uint64_val"), (tf.half, "half_val")):
        message = request({}, "retrieve")
        message.inputs["history"].CopyFrom(tensor(kind, [0], field, []))
        assert "is of type" in refusal(served, message).details()


def test_all_values_of_a_message_are_bounded_together(monkeypatch):
    inputs = {name: tensor(tf.int64, [3, 4], "int64_val", range(12)) for name in ("history", "exclude", "dwell")}
    made = grpc_messages.arrays("retrieve", inputs, 36)
    assert {name: values.shape for name, values in made.items()} == dict.fromkeys(inputs, (3, 4))
    monkeypatch.setattr(tf, "make_ndarray", lambda tensor: pytest.fail("made"))
    with pytest.raises(UserError, match="36 values together, at most 35 are accepted"):
        grpc_messages.arrays("retrieve", inputs, 35)


def test_garbage_is_refused_and_logged_as_one_line_that_counts(served, caplog):
    rng = np.random.default_rng(0)
    for size in range(1, 101):
        assert refusal(served, b"\xff" + rng.bytes(size)).code() is Code.INVALID_ARGUMENT
    for service, method in (("PredictionService", "GetModelMetadata"), ("ModelService", "GetModelStatus")):
        assert refusal(served, b"\xff", method=method, service=service).code() is Code.INVALID_ARGUMENT
    for method in ("Classify", "Regress", "MultiInference"):
        assert refusal(served, b"\xff", method=method).code() is Code.UNIMPLEMENTED
    assert predict(served, arguments(), "retrieve").outputs
    assert not [record for record in caplog.records if record.exc_info] and "Traceback" not in caplog.text


def test_a_line_counts_what_came_within_its_time(caplog):
    async def count():
        line = CountedLine("{count} of {latest}", 0.05)
        line.flush()
        for number in range(434):
            line.count(str(number))
        await asyncio.sleep(0.1)
        line.count("last")
        line.flush()
        line.flush()
    asyncio.run(count())
    assert [record.getMessage() for record in caplog.records] == ["434 of 433", "1 of last"]


def test_a_call_that_never_sends_ends_and_one_without_a_message_too(served):
    stub, open_end = served[0].stream_unary("/tensorflow.serving.PredictionService/Predict"), threading.Event()

    def never():
        open_end.wait(20)
        yield from ()
    calls = [stub.future(never(), timeout=20) for _ in range(20)]
    assert predict(served, arguments(), "retrieve").outputs  # meanwhile
    for call in calls:
        assert call.code() is Code.DEADLINE_EXCEEDED
        assert "did not arrive within 1 s (--read_timeout_s)" in call.details()
    open_end.set()
    with pytest.raises(grpc.RpcError, match="ended without a message"):
        stub(iter(()), timeout=20)
    assert predict(served, arguments(), "retrieve").outputs


@pytest.mark.parametrize("peer, address", [
    ("ipv4:10.0.0.1:4321", "10.0.0.1"), ("ipv6:%5B2001:db8::1%5D:4321", "2001:db8::1"),
    ("ipv6:[::1]:4321", "::1"), ("unix:", "unix:")])
def test_a_client_is_known_by_its_address(peer, address):
    assert grpc_server._address(peer) == address
