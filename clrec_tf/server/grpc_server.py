"""The gRPC server: TensorFlow Serving's PredictionService and ModelService over the same predictor as HTTP.

Predict, GetModelMetadata and GetModelStatus are answered as TensorFlow Serving answers them, so its clients work here.
There is no encryption, as with HTTP, and no authentication but by --token_file: keep the port internal, or put a proxy
in front (SECURITY.md).

Messages arrive as bytes and are parsed here: gRPC would parse them on the event loop before anything is admitted, and
logs a traceback for each that it cannot parse. They arrive as streams of one message, since only the reading of a
stream can have a time limit: a unary call that never sends its message would hold its place for ever.
"""
import asyncio
import contextlib
import dataclasses
import functools
from typing import Any
from typing import Callable
from typing import Optional
import urllib.parse

from absl import logging
import grpc
from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow_serving.apis import get_model_metadata_pb2
from tensorflow_serving.apis import get_model_status_pb2
from tensorflow_serving.apis import predict_pb2

from clrec_tf.errors import UserError
from clrec_tf.server.counted_line import CountedLine
from clrec_tf.server.faults import ServiceError
from clrec_tf.server.faults import TooSlow
from clrec_tf.server import grpc_messages
from clrec_tf.server.private_grpc import unsent_answers
from clrec_tf.server import request_ids
from clrec_tf.server.token_gate import Gate
from clrec_tf.server.token_gate import HEADER

DEFAULT_SIGNATURE = "serving_default"
_ENDING_S = 30  # for calls under way when accepting has ended
_LONGEST_DETAIL = 2000  # characters: what gRPC puts into headers, whose size clients bound
_CODES = {  # of the HTTP status that an error has
    400: grpc.StatusCode.INVALID_ARGUMENT, 401: grpc.StatusCode.UNAUTHENTICATED, 404: grpc.StatusCode.NOT_FOUND,
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    413: grpc.StatusCode.INVALID_ARGUMENT, 429: grpc.StatusCode.RESOURCE_EXHAUSTED, 499: grpc.StatusCode.CANCELLED,
    503: grpc.StatusCode.UNAVAILABLE, 504: grpc.StatusCode.DEADLINE_EXCEEDED}


@dataclasses.dataclass(frozen=True)
class Served:
    """The version that answers: its number, and its signatures as `signatures.read_signatures` gives them."""
    version: int
    signatures: dict[str, bytes]


@dataclasses.dataclass(frozen=True)
class Caller:
    """Who calls: the client's address without its port, and the id of the request."""
    address: str
    request_id: str


@dataclasses.dataclass(frozen=True)
class GrpcServices:
    """Both services, and what they share.

    Attributes:
      model_name: the only one that is served.
      served: gives the version that answers now.
      predictor: with `counted`, `held`, `arrays` and `aside` as of `Predictor`. Raises `UserError`, whose `status`, if
        it has one, is that of HTTP and becomes the code (400 without one), and whose `retry_s` is sent to clients.
      largest: bytes of a message, and number of values in it.
      read_timeout_s: in which a message must have arrived.
      unread: counts messages that cannot be parsed.
      gate: that calls must pass; None: nobody is asked.
    """
    model_name: str
    served: Callable[[], Served]
    predictor: Any
    largest: int
    read_timeout_s: float
    unread: CountedLine
    gate: Optional[Gate] = None

    def server(self, most_calls: int) -> grpc.aio.Server:
        """A server without a port, not started; calls beyond `most_calls` at once get RESOURCE_EXHAUSTED."""
        server = grpc.aio.server(maximum_concurrent_rpcs=most_calls, options=[
            ("grpc.max_receive_message_length", self.largest), ("grpc.max_send_message_length", -1),
            ("grpc.so_reuseport", 0)])  # or two services would share a port without a word
        services = {"PredictionService": dict(Predict=self._predict, GetModelMetadata=self._metadata),
                    "ModelService": dict(GetModelStatus=self._status)}
        # Classify, Regress, MultiInference and HandleReloadConfigRequest are not implemented: these models have no
        # signatures for the first three, and the folder of versions decides what is loaded.
        server.add_generic_rpc_handlers([
            grpc.method_handlers_generic_handler(f"tensorflow.serving.{service}", {
                name: grpc.stream_unary_rpc_method_handler(self._answering(method))
                for name, method in methods.items()}) for service, methods in services.items()])
        return server

    def _answering(self, method):
        """The handler of a call, whose errors are gRPC's; `method` takes the message and a `Caller`."""
        @functools.wraps(method)
        async def answer(messages, context):
            client = _address(context.peer())
            sent = dict(context.invocation_metadata() or ()).get(request_ids.HEADER, "")
            caller = Caller(client, request_ids.request_id(sent))
            identified = ((request_ids.HEADER, caller.request_id),)
            context.set_trailing_metadata(identified)
            try:
                if self.gate is not None:
                    self.gate.check([value for name, value in context.invocation_metadata() or () if name == HEADER],
                                    client)
                with self.predictor.counted(client), self.predictor.held.request() as take:
                    message = await self._message(messages)
                    take(len(message))
                    return await method(message, caller)
            except UserError as error:
                retry_s = getattr(error, "retry_s", None)
                trailers = (("grpc-retry-pushback-ms", str(round(1000 * retry_s))),) if retry_s else ()
                code = _CODES.get(getattr(error, "status", 400), grpc.StatusCode.INTERNAL)
                await context.abort(code, str(error)[:_LONGEST_DETAIL], identified + trailers)
            except Exception as error:  # pylint: disable=broad-exception-caught
                if isinstance(error, grpc.aio.AbortError):
                    raise
                logging.exception("gRPC call failed")
                await context.abort(grpc.StatusCode.INTERNAL, "the service failed; its log says more", identified)
        return answer

    async def _message(self, messages) -> bytes:
        try:
            async with asyncio.timeout(self.read_timeout_s):
                async for message in messages:
                    return message
        except TimeoutError:
            raise TooSlow(f"the message did not arrive within {self.read_timeout_s:g} s (--read_timeout_s)") from None
        raise ServiceError("the call ended without a message, or with one that is too large")

    def _parsed(self, kind, message, caller):
        try:
            return grpc_messages.parsed(kind, message)
        except ServiceError:
            self.unread.count(caller.address)
            raise

    async def _predict(self, message, caller):
        request, served, signature = None, self.served(), ""

        def read(instances):
            nonlocal request, signature
            request = grpc_messages.parsed(predict_pb2.PredictRequest, message)
            spec = request.model_spec
            signature = spec.signature_name or DEFAULT_SIGNATURE
            grpc_messages.checked_spec(spec, self.model_name, served.version)
            version = str(spec.version.value) if spec.HasField("version") else ""
            return signature, grpc_messages.arrays(signature, request.inputs, self.largest, instances), version
        try:
            outputs, version = await self.predictor.arrays(read, len(message), caller.request_id)
        except ServiceError:
            if request is None:
                self.unread.count(caller.address)
            raise
        return await self.predictor.aside(
            sum(values.size for values in outputs.values()), lambda: grpc_messages.response(
                self.model_name, signature, version, request.output_filter, outputs))

    async def _metadata(self, message, caller):
        request, served = self._parsed(get_model_metadata_pb2.GetModelMetadataRequest, message, caller), self.served()
        grpc_messages.checked_spec(request.model_spec, self.model_name, served.version)
        if list(request.metadata_field) != ["signature_def"]:
            raise ServiceError(f"metadata_field is {list(request.metadata_field)[:5]}: there is only signature_def")
        response = get_model_metadata_pb2.GetModelMetadataResponse()
        response.model_spec.name, response.model_spec.version.value = self.model_name, served.version
        signatures = get_model_metadata_pb2.SignatureDefMap()
        for name, text in served.signatures.items():
            signatures.signature_def[name].CopyFrom(meta_graph_pb2.SignatureDef.FromString(text))
        response.metadata["signature_def"].Pack(signatures)
        return response.SerializeToString()

    async def _status(self, message, caller):
        request, served = self._parsed(get_model_status_pb2.GetModelStatusRequest, message, caller), self.served()
        grpc_messages.checked_spec(request.model_spec, self.model_name, served.version)
        response = get_model_status_pb2.GetModelStatusResponse()
        status = response.model_version_status.add(
            version=served.version, state=get_model_status_pb2.ModelVersionStatus.AVAILABLE)
        status.status.SetInParent()  # OK, which is 0
        return response.SerializeToString()


@contextlib.asynccontextmanager
async def listening(settings, predictor, versions, gate: Optional[Gate] = None):
    """Serves gRPC while the block runs, and yields the port; calls under way at its end are finished.

    Args:
      settings: `ServeConfig`.
      predictor: see `GrpcServices`.
      versions: with `engine`, whose `version` and `signatures` are served.
      gate: that calls must pass, or None.

    Raises:
      UserError: the port cannot be had.
    """
    unread = CountedLine("{count} gRPC messages were none of TensorFlow Serving's and got INVALID_ARGUMENT, the latest "
                         "from {latest}")
    services = GrpcServices(
        settings.model_name, lambda: Served(versions.engine.version, versions.engine.signatures), predictor,
        settings.max_request_bytes, settings.read_timeout_s, unread, gate)
    server = services.server(settings.max_connections)
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    try:
        port = server.add_insecure_port(f"{host}:{settings.grpc_port}")
    except RuntimeError as error:
        raise UserError(f"--grpc_port={settings.grpc_port}: nobody can listen there at --host={settings.host} "
                        f"({error}); choose another port, or 0 for any free one") from error
    unsent = CountedLine("{count} gRPC calls ended before their answer could be sent")
    with unsent_answers(lambda: unsent.count("")):
        await server.start()
        try:
            yield port
        finally:
            await server.stop(_ENDING_S)
            unread.flush()
            unsent.flush()


def _address(peer):
    """The client's address without its port: "ipv4:10.0.0.1:4321" -> "10.0.0.1", "ipv6:%5B::1%5D:4321" -> "::1"."""
    return urllib.parse.unquote(peer).partition(":")[2].rpartition(":")[0].strip("[]") or peer
