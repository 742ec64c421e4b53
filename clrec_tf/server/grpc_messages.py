"""Messages of TensorFlow Serving's protocol -> arrays, and back.

No array is made of an input before its name and shape are checked. A few bytes may state a shape of billions, since a
single value may stand for all of a tensor, and a map of inputs takes any number of names. So a shape is accepted only
if all of its values were sent.
"""
import math

from google.protobuf.message import DecodeError
import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2

from clrec_tf.server.faults import NotFound
from clrec_tf.server.faults import ServiceError
from clrec_tf.server.instances import INSTANCES

_FIELDS = {  # where values lie that are not in tensor_content, by the types that an input may have
    tf.int64: "int64_val", tf.int32: "int_val", tf.string: "string_val", tf.float32: "float_val",
    tf.float64: "double_val", tf.bool: "bool_val"}
_FIELDS = {kind.as_datatype_enum: (kind, field) for kind, field in _FIELDS.items()}
_MOST_DIMENSIONS = 4
_MOST_EMPTY = 65_536  # rows without values, of which a shape may state any number in no bytes


def parsed(kind, message: bytes):
    """A message of a protocol buffer's class; `ServiceError` where the bytes are none."""
    try:
        return kind.FromString(message)
    except DecodeError as error:
        raise ServiceError(f"the message of {len(message)} bytes is no {kind.DESCRIPTOR.full_name}: send what its "
                           "stub makes") from error


def checked_spec(spec, model_name: str, version: int) -> None:
    """`NotFound` if a ModelSpec asks for another model or version than those served."""
    if spec.name != model_name:
        raise NotFound(f"model {spec.name!r} is not served, {model_name!r} is")
    if spec.version_label:
        raise NotFound(f"version_label {spec.version_label!r}: there are no labels; give a version, or none")
    if spec.HasField("version") and spec.version.value != version:
        raise NotFound(f"version {spec.version.value} is not served, version {version} is")


def arrays(signature: str, inputs, largest: int, instances: dict = INSTANCES) -> dict[str, np.ndarray]:
    """The inputs of a request.

    Args:
      signature: one of `instances`.
      inputs: TensorProto by name.
      largest: most values of all inputs together.
      instances: `instances.instances_of` the model.

    Raises:
      ServiceError: an unknown signature or name; an input that does not hold the values its shape says.
    """
    if signature not in instances:
        raise ServiceError(f"there is no signature {signature[:80]}: give one of {', '.join(instances)}")
    entries = instances[signature].__struct_fields__
    for name in inputs:
        if name not in entries:
            raise ServiceError(f"there is no input {name[:80]!r}: inputs of {signature} are {', '.join(entries)}")
    total = sum(_size(name, tensor, largest) for name, tensor in inputs.items())
    if total > largest:
        raise ServiceError(f"the inputs have {total} values together, at most {largest} are accepted "
                           "(--max_request_bytes): send fewer users")
    return {name: tf.make_ndarray(tensor) for name, tensor in inputs.items()}


def _size(name, tensor, largest) -> int:
    """The number of an input's values, all of which are there."""
    if len(tensor.tensor_shape.dim) > _MOST_DIMENSIONS:
        raise ServiceError(f"input {name} has {len(tensor.tensor_shape.dim)} dimensions, at most {_MOST_DIMENSIONS} "
                           "are accepted")
    sizes = [dim.size for dim in tensor.tensor_shape.dim]
    size = math.prod(sizes)
    rows = _MOST_EMPTY if size == 0 else largest
    if tensor.tensor_shape.unknown_rank or min(sizes, default=0) < 0 or math.prod(max(1, n) for n in sizes) > rows:
        raise ServiceError(f"input {name} has the shape {sizes}: give sizes, whose product is at most {rows}")
    if tensor.dtype not in _FIELDS:
        raise ServiceError(f"input {name} is of type {tensor.dtype}: ids are int64 or string, counts int32 or int64")
    kind, field = _FIELDS[tensor.dtype]
    if tensor.tensor_content and kind != tf.string:
        held = len(tensor.tensor_content) / kind.size
    else:
        held = len(getattr(tensor, field))
    if held != size:
        raise ServiceError(f"input {name} holds {held:g} values and is no tensor of the shape {sizes}: send every "
                           "value, as make_tensor_proto does with an array; one does not stand for others")
    return size


def response(name: str, signature: str, version: int, wanted, outputs: dict[str, np.ndarray]) -> bytes:
    """A PredictResponse of the outputs `wanted`, or of all if there is none; `ServiceError` names unknown ones."""
    unknown = sorted(set(wanted) - set(outputs))
    if unknown:
        raise ServiceError(f"output_filter names {', '.join(unknown)}; {signature} gives {', '.join(outputs)}")
    made = predict_pb2.PredictResponse()
    made.model_spec.name, made.model_spec.signature_name, made.model_spec.version.value = name, signature, version
    for output in wanted or outputs:
        made.outputs[output].CopyFrom(tf.make_tensor_proto(outputs[output]))
    return made.SerializeToString()
