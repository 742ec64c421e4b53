"""The signatures of a SavedModel, and what servers and exports agree on: the padding of ids, and names of models."""
import os
import re

from tensorflow.core.protobuf import saved_model_pb2

from clrec_tf.errors import UserError
from clrec_tf.retrieval.bundle_files import MODEL_FILE

PADDING = {"int": -1, "string": ""}  # of outputs `ids`, by the type of ids, where a row has fewer items than another


def read_signatures(folder: str) -> dict[str, bytes]:
    """SignatureDef by name, serialized, of a version's folder; without what TensorFlow keeps for itself."""
    with open(os.path.join(folder, MODEL_FILE), "rb") as file:
        model = saved_model_pb2.SavedModel.FromString(file.read())
    return {name: signature.SerializeToString() for name, signature in model.meta_graphs[0].signature_def.items()
            if not name.startswith("__")}


def check_model_name(model_name: str) -> None:
    """`UserError` where a name cannot be part of a server's addresses, /v1/models/NAME."""
    if not re.fullmatch(r"[\w.-]+", model_name, re.ASCII):
        raise UserError(f"--model_name={model_name}: it is part of an address, so use letters, digits, and . _ - only")
