"""Attacks on the gRPC server: messages that stand for more than they hold, that are none, or that never come."""
import concurrent.futures
import threading
import time

import grpc
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2

from tests.attacks.watched_service import KNOWN, READ_S

PREDICT = "/tensorflow.serving.PredictionService/Predict"
REFUSED = {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND, grpc.StatusCode.RESOURCE_EXHAUSTED}
ENTRIES = ("history", "k", "exclude", "intents", "timestamps", "dwell", "request_time")


@pytest.fixture(scope="module")
def call(target):
    """Sends bytes: the code that comes back."""
    unbounded = [("grpc.max_send_message_length", -1)]
    with grpc.insecure_channel(f"127.0.0.1:{target.grpc_port}", options=unbounded) as channel:
        stub = channel.unary_unary(PREDICT)

        def send(message, **options):
            try:
                stub(message, timeout=30, **options)
                return grpc.StatusCode.OK
            except grpc.RpcError as error:
                return error.code()
        yield send


def valid(users=1, listed=1):
    message = predict_pb2.PredictRequest()
    message.model_spec.name, message.model_spec.signature_name = "clrec", "retrieve"
    message.inputs["history"].CopyFrom(tf.make_tensor_proto(np.full((users, listed), KNOWN)))
    message.inputs["k"].CopyFrom(tf.make_tensor_proto(np.full(users, 2, np.int32)))
    return message


def bomb(rng):
    """A message of few bytes that says it holds many: under names that are none, or in the inputs that there are."""
    message, known = valid(), rng.random() < .3
    for number in range(1 if known else int(rng.integers(1, 151))):
        tensor = message.inputs[str(rng.choice(ENTRIES)) if known else f"x{number}"]
        tensor.Clear()
        kind, field, value = [(tf.int64, "int64_val", 1), (tf.int32, "int_val", 1), (tf.string, "string_val", b"x"),
                              (tf.float32, "float_val", .5), (tf.half, "half_val", 1)][rng.integers(5)]
        tensor.dtype = kind.as_datatype_enum
        getattr(tensor, field).append(value)
        sizes = [[2 * 10**6 - 1], [1, 10**6], [10**6, 1], [1000, 1000], [0, 2**40], [2**62, 2**62], [5] * 5, [-1]]
        for size in sizes[rng.integers(len(sizes) if known else 4)]:
            tensor.tensor_shape.dim.add(size=size)
    return message.SerializeToString()


def test_messages_that_stand_for_more_than_they_hold(attacks, target, call):
    with attacks("gRPC: shapes, names, types") as group, target.unharmed(group):
        for seed in range(attacks.rounds(50, 2000)):
            code = call(bomb(np.random.default_rng(seed)))
            group.count(code in REFUSED, f"seed {seed}: {code}")


def test_messages_that_are_none(attacks, target, call):
    with attacks("gRPC: garbage, cut and flipped messages") as group, target.unharmed(group):
        sound = valid(4, 20).SerializeToString()
        for seed in range(attacks.rounds(100, 3000)):
            rng = np.random.default_rng(seed)
            text = bytearray(rng.bytes(int(rng.integers(1, 2000))) if seed % 3 == 0 else
                             sound[:rng.integers(len(sound))] if seed % 3 == 1 else sound)
            if seed % 3 == 2:
                for place in rng.integers(0, len(text), rng.integers(1, 9)):
                    text[place] ^= 1 << int(rng.integers(8))
            code = call(bytes(text))
            group.count(code in REFUSED | {grpc.StatusCode.OK}, f"seed {seed}: {code}")


def test_messages_as_large_as_is_allowed(attacks, target, call):
    """Millions of ids, of texts and of empty lists, several at a time."""
    with attacks("gRPC: largest messages") as group, target.unharmed(group, 600e6):
        ids, texts, rows = valid(), valid(), valid()
        for message, kind, field, values in ((ids, tf.int64, "int64_val", [1] * 1_900_000),
                                             (texts, tf.string, "string_val", [b""] * 900_000),
                                             (rows, tf.int64, "int64_val", [])):
            tensor = message.inputs["history"]
            tensor.Clear()
            tensor.dtype = kind.as_datatype_enum
            getattr(tensor, field).extend(values)
            for size in (len(values) // 9000 or 60_000, 9000 if values else 0):
                tensor.tensor_shape.dim.add(size=size)
        messages = [message.SerializeToString() for message in (ids, texts, rows)] * attacks.rounds(2, 20)
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            for code in pool.map(call, messages):
                group.count(code in REFUSED | {grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE}, str(code))


def test_messages_that_grow_when_they_are_unpacked(attacks, target, call):
    with attacks("gRPC: compressed messages") as group, target.unharmed(group):
        for size in [30_000_000] * attacks.rounds(2, 10):
            code = call(b"\0" * size, compression=grpc.Compression.Gzip)
            group.count(code is grpc.StatusCode.RESOURCE_EXHAUSTED, str(code))


def test_calls_that_never_send(attacks, target, call):
    """More than may be under way: for as long as a message may take nobody else is served, and then all are."""
    with attacks("gRPC: calls that never send") as group, target.unharmed(group):
        with grpc.insecure_channel(f"127.0.0.1:{target.grpc_port}") as channel:
            stub, over = channel.stream_unary(PREDICT), threading.Event()

            def never():
                over.wait(60)
                yield from ()
            begun = time.monotonic()
            calls = [stub.future(never(), timeout=60) for _ in range(attacks.rounds(30, 300))]
            for found in calls:
                group.count(found.code() in REFUSED | {grpc.StatusCode.DEADLINE_EXCEEDED}, str(found.code()))
            group.count(time.monotonic() - begun < 20 * READ_S, "they ended by their own deadline only")
            over.set()
        group.count(call(valid().SerializeToString()) is grpc.StatusCode.OK, f"not served after {READ_S} s")
