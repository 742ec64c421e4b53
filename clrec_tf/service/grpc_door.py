"""The gRPC door: TensorFlow Serving's PredictionService and ModelService over the same predictor as HTTP.

Predict, GetModelMetadata and GetModelStatus are answered as TensorFlow Serving answers them, so that its clients fit.
There is no encryption and no authentication, as there is none behind HTTP: keep the port inside, or put a proxy before.
"""
import contextlib
import dataclasses
import functools
import math
import os
from typing import Awaitable, Callable

from absl import logging
import grpc
import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_serving.apis import get_model_metadata_pb2, get_model_status_pb2, model_service_pb2_grpc
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from clrec_tf.errors import UserError
from clrec_tf.serving.manifest import MODEL_FILE

DEFAULT_SIGNATURE = "serving_default"
_ENDING_S = 30  # for calls under way when accepting has ended
_LONGEST_DETAIL = 2000  # characters: what gRPC puts into headers, whose size clients bound
_CODES = {  # of the HTTP status that an error has
    400: grpc.StatusCode.INVALID_ARGUMENT, 404: grpc.StatusCode.NOT_FOUND, 408: grpc.StatusCode.DEADLINE_EXCEEDED,
    413: grpc.StatusCode.INVALID_ARGUMENT, 429: grpc.StatusCode.RESOURCE_EXHAUSTED, 499: grpc.StatusCode.CANCELLED,
    503: grpc.StatusCode.UNAVAILABLE, 504: grpc.StatusCode.DEADLINE_EXCEEDED}


@dataclasses.dataclass(frozen=True)
class Served:
    """The version that answers: its number and its folder."""
    version: int
    folder: str


@dataclasses.dataclass(frozen=True)
class Door:
    """What the services share.

    Attributes:
      model_name: the only one that is served.
      served: gives the version that answers now.
      predict: (signature, arrays by input, version="" or a number as text, client's address) -> arrays by output;
        strings come as objects of bytes. Raises `UserError`, whose `status`, if it has one, is that of HTTP and
        becomes the code (400 without one), and whose `retry_s` tells clients when to try again.
      largest: of a message, bytes.
    """
    model_name: str
    served: Callable[[], Served]
    predict: Callable[..., Awaitable[dict[str, np.ndarray]]]
    largest: int

    def server(self, most_calls: int) -> grpc.aio.Server:
        """A server without a port, not started; calls beyond `most_calls` at once get RESOURCE_EXHAUSTED."""
        server = grpc.aio.server(maximum_concurrent_rpcs=most_calls, options=[
            ("grpc.max_receive_message_length", self.largest), ("grpc.max_send_message_length", -1),
            ("grpc.so_reuseport", 0)])  # or two services would share a port without a word
        prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(_Predictions(self), server)
        model_service_pb2_grpc.add_ModelServiceServicer_to_server(_Models(self), server)
        return server

    def checked(self, spec) -> Served:
        """The version that a ModelSpec asks for; an error with status 404 if it is not the one served."""
        served = self.served()
        if spec.name != self.model_name:
            raise _error(f"model {spec.name!r} is not served, {self.model_name!r} is", 404)
        if spec.version_label:
            raise _error(f"version_label {spec.version_label!r}: there are no labels; give a version, or none", 404)
        if spec.HasField("version") and spec.version.value != served.version:
            raise _error(f"version {spec.version.value} is not served, version {served.version} is", 404)
        return served


@contextlib.asynccontextmanager
async def listening(settings, predictor, versions):
    """Serves gRPC while the block runs, and yields the port; calls under way at its end are finished.

    Args:
      settings: `ServeConfig`.
      predictor: with `arrays`, see `Door.predict`.
      versions: with `engine`, whose `version` and `bundle` are served.

    Raises:
      UserError: the port cannot be had.
    """
    door = Door(settings.model_name, lambda: Served(versions.engine.version, versions.engine.bundle.path),
                predictor.arrays, settings.max_request_bytes)
    server = door.server(settings.max_connections)
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    try:
        port = server.add_insecure_port(f"{host}:{settings.grpc_port}")
    except RuntimeError as error:
        raise UserError(f"--grpc_port={settings.grpc_port}: nobody can listen there at --host={settings.host} "
                        f"({error}); choose another port, or 0 for any free one") from error
    await server.start()
    try:
        yield port
    finally:
        await server.stop(_ENDING_S)


def _answering(method):
    """Turns errors into gRPC's."""
    @functools.wraps(method)
    async def answer(self, request, context):
        try:
            return await method(self, request, context)
        except UserError as error:
            retry_s = getattr(error, "retry_s", None)
            trailers = (("grpc-retry-pushback-ms", str(round(1000 * retry_s))),) if retry_s else ()
            code = _CODES.get(getattr(error, "status", 400), grpc.StatusCode.INTERNAL)
            await context.abort(code, str(error)[:_LONGEST_DETAIL], trailers)
        except Exception as error:  # pylint: disable=broad-exception-caught
            if isinstance(error, grpc.aio.AbortError):
                raise
            logging.exception("gRPC call failed")
            await context.abort(grpc.StatusCode.INTERNAL, "the service failed; its log says more")
    return answer


class _Predictions(prediction_service_pb2_grpc.PredictionServiceServicer):
    """PredictionService. Classify, Regress and MultiInference stay unimplemented, as these models have none."""

    def __init__(self, door: Door):
        self._door = door

    @_answering
    async def Predict(self, request, context):
        spec = request.model_spec
        served, signature = self._door.checked(spec), spec.signature_name or DEFAULT_SIGNATURE
        inputs = {name: _array(name, tensor, self._door.largest) for name, tensor in request.inputs.items()}
        outputs = await self._door.predict(signature, inputs, str(spec.version.value) * spec.HasField("version"),
                                           _address(context.peer()))
        response = predict_pb2.PredictResponse()
        response.model_spec.name, response.model_spec.signature_name = spec.name, signature
        response.model_spec.version.value = served.version
        unknown = sorted(set(request.output_filter) - set(outputs))
        if unknown:
            raise _error(f"output_filter names {', '.join(unknown)}; {signature} gives {', '.join(outputs)}", 400)
        for name in request.output_filter or outputs:
            response.outputs[name].CopyFrom(tf.make_tensor_proto(outputs[name]))
        return response

    @_answering
    async def GetModelMetadata(self, request, context):
        served = self._door.checked(request.model_spec)
        if list(request.metadata_field) != ["signature_def"]:
            raise _error(f"metadata_field is {list(request.metadata_field)}: there is only signature_def", 400)
        response = get_model_metadata_pb2.GetModelMetadataResponse()
        response.model_spec.name, response.model_spec.version.value = self._door.model_name, served.version
        response.metadata["signature_def"].Pack(_signatures(served.folder))
        return response


class _Models(model_service_pb2_grpc.ModelServiceServicer):
    """ModelService. What is loaded follows the folder of versions, so HandleReloadConfigRequest is unimplemented."""

    def __init__(self, door: Door):
        self._door = door

    @_answering
    async def GetModelStatus(self, request, context):
        served = self._door.checked(request.model_spec)
        response = get_model_status_pb2.GetModelStatusResponse()
        status = response.model_version_status.add(
            version=served.version, state=get_model_status_pb2.ModelVersionStatus.AVAILABLE)
        status.status.SetInParent()  # OK, which is 0
        return response


@functools.lru_cache(maxsize=4)
def _signatures(folder) -> get_model_metadata_pb2.SignatureDefMap:
    """Signatures of a version's SavedModel, without what TensorFlow keeps for itself."""
    with open(os.path.join(folder, MODEL_FILE), "rb") as file:
        model = saved_model_pb2.SavedModel.FromString(file.read())
    found = get_model_metadata_pb2.SignatureDefMap()
    for name, signature in model.meta_graphs[0].signature_def.items():
        if not name.startswith("__"):
            found.signature_def[name].CopyFrom(signature)
    return found


def _array(name, tensor, largest):
    """A TensorProto as an array. Its shape may ask for more than it holds, since one value may stand for all."""
    sizes = [dim.size for dim in tensor.tensor_shape.dim]
    if tensor.tensor_shape.unknown_rank or min(sizes, default=0) < 0 or math.prod(sizes) > largest:
        raise _error(f"input {name} has the shape {sizes}: give sizes, whose product is at most {largest}", 400)
    try:
        return tf.make_ndarray(tensor)
    except (TypeError, ValueError) as error:
        raise _error(f"input {name} is no tensor of the shape {sizes} ({error}): fill it in with make_tensor_proto",
                     400) from error


def _address(peer):
    """The client's address without its port: "ipv4:10.0.0.1:4321" -> "10.0.0.1"."""
    return peer.partition(":")[2].rpartition(":")[0].strip("[]") or peer


def _error(text, status):
    error = UserError(text)
    error.status = status
    return error
