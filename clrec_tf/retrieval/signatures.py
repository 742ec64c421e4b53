"""The signatures of a SavedModel, as servers tell them."""
import os

from tensorflow.core.protobuf import saved_model_pb2

from clrec_tf.retrieval.manifest import MODEL_FILE


def read_signatures(folder: str) -> dict[str, bytes]:
    """SignatureDef by name, serialized, of a version's folder; without what TensorFlow keeps for itself."""
    with open(os.path.join(folder, MODEL_FILE), "rb") as file:
        model = saved_model_pb2.SavedModel.FromString(file.read())
    return {name: signature.SerializeToString() for name, signature in model.meta_graphs[0].signature_def.items()
            if not name.startswith("__")}
