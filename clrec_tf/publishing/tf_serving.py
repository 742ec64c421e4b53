"""What TensorFlow Serving reads beside the SavedModel: warm-up requests, which models to load, and how to batch.

A version folder has `assets.extra/tf_serving_warmup_requests`, a TFRecord file of PredictionLog, which the server runs
before it lets a version answer. The folder of versions has two files in protobuf's text format: `models.config`
(--model_config_file, a ModelServerConfig) and `batching.config` (--batching_parameters_file, a BatchingParameters).
Each export writes both anew; changes belong in copies of them.
"""
import contextlib
import logging
import os

from google.protobuf import text_format
import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2
from tensorflow_serving.config import model_server_config_pb2

from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.publishing.candidates import Candidates
from clrec_tf.publishing.held_out import HeldOutUsers
from clrec_tf.retrieval.bundle_files import CONFIG_FILES
from clrec_tf.retrieval.bundle_files import WARMUP_FILE
from clrec_tf.retrieval.signatures import check_model_name
from clrec_tf.stores import names
from clrec_tf.system.atomic import new_file
from clrec_tf.system.pattern_names import readable_name

MODELS_FILE, BATCHING_FILE = CONFIG_FILES
BATCH_SIZES = (1, 8, 32)  # of warm-up requests; the last is the largest batch that the server forms
MOST_RECORDS = 1000  # the server refuses a version with more
_WARMUP_K = 10
_BATCHING = f"""# Written by each export: put changes in a copy. BatchingParameters of TensorFlow Serving, text format.
max_batch_size {{ value: {BATCH_SIZES[-1]} }}
batch_timeout_micros {{ value: 1000 }}  # longest wait for more requests
max_enqueued_batches {{ value: 100 }}  # beyond, requests are refused
num_batch_threads {{ value: 4 }}  # as many as the server has cores
# No allowed_batch_sizes: nothing is compiled per size, so filling batches up would only cost.
# Must stay false. The server would pad a shorter history with its own first element, which repeats a click and changes
# the result without a word. With false, requests of other widths that meet in a batch fail (FAILED_PRECONDITION):
# clients pad `history` and `exclude` to one fixed width with "" (strings) or -1 (integers), which the model ignores.
pad_variable_length_inputs: false
"""


def write_warmup(folder: str, model_name: str, candidates: Candidates, held_out: HeldOutUsers,
                 popularity: float = 0.0) -> None:
    """Writes the warm-up requests of a version: each of its signatures with each of `BATCH_SIZES`.

    Args:
      folder: of the version.
      model_name: as in models.config.
      candidates: whose ids are asked of `encode_items`.
      held_out: whose requests are repeated where there are fewer users than a batch has.
      popularity: α of the requests.
    """
    path, count = os.path.join(folder, WARMUP_FILE), held_out.intents.vectors.shape[1]
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with tf.io.TFRecordWriter(path) as writer:
        for size in BATCH_SIZES:
            history = {name: _first(values, size) for name, values in held_out.requests[0].items()}
            history["popularity"] = np.full(size, popularity, np.float32)
            if count > 1:
                history["intents"] = np.full(size, held_out.served, np.int32)
            search = dict(k=np.full(size, _WARMUP_K, np.int32), exclude=history["history"])
            requests = {"serving_default": history, "retrieve": history | search,
                        "encode_items": {"ids": _first(candidates.original_ids, size)}}
            for signature, inputs in requests.items():
                log = prediction_log_pb2.PredictionLog()
                request = log.predict_log.request
                request.model_spec.name, request.model_spec.signature_name = model_name, signature
                for name, values in inputs.items():
                    request.inputs[name].CopyFrom(tf.make_tensor_proto(values))
                writer.write(log.SerializeToString())


def _first(values, size):
    """The first `size` entries, from the start again where there are fewer."""
    return values[np.arange(size) % len(values)]


def replay_warmup(folder: str) -> int:
    """Runs a version's warm-up requests as the server does: in a session, by the tensor names of the signatures.

    Returns:
      Their number.

    Raises:
      DataError: one fails, gives vectors or weights that are not finite, or not one row of each output per user.
    """
    path = os.path.join(folder, WARMUP_FILE)
    try:
        records = list(tf.data.TFRecordDataset(path).as_numpy_iterator())
        with tf.compat.v1.Session(graph=tf.Graph()) as session, _silent(), readable_name(folder) as readable:
            signatures = tf.compat.v1.saved_model.load(session, ["serve"], readable).signature_def
            for number, record in enumerate(records, 1):
                request = prediction_log_pb2.PredictionLog.FromString(record).predict_log.request
                name = request.model_spec.signature_name
                if name not in signatures:  # asked for by [], it would be made
                    raise KeyError(f"no signature {name}")
                _check(_run(session, signatures[name], request.inputs), request.inputs,
                       f"warm-up request {number} of {path}, for {name},")
    except (tf.errors.OpError, KeyError, ValueError, TypeError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path} does not run as TensorFlow Serving would run it ({error}): the model cannot be "
                        "exported as it is") from error
    if not 0 < len(records) <= MOST_RECORDS:
        raise DataError(f"{path} holds {len(records)} requests, TensorFlow Serving takes 1 to {MOST_RECORDS}")
    return len(records)


@contextlib.contextmanager
def _silent():
    """Without TensorFlow's advice to load in another way: it is the server's way that is tried."""
    logger = tf.get_logger()
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _run(session, signature, inputs) -> dict:
    """Outputs by name."""
    if set(inputs) != set(signature.inputs):
        raise ValueError(f"inputs {sorted(inputs)}, the signature has {sorted(signature.inputs)}")
    feed = {signature.inputs[name].name: tf.make_ndarray(value) for name, value in inputs.items()}
    return session.run({name: output.name for name, output in signature.outputs.items()}, feed)


def _check(outputs, inputs, where):
    users = next(iter(inputs.values())).tensor_shape.dim[0].size
    for name, values in outputs.items():
        if len(values) != users:
            raise DataError(f"{where} gives {len(values)} rows of {name} for {users} users: the server could not part "
                            "a batch")
        none = values == -np.inf if name == "scores" else False  # the padding of scores
        if values.dtype.kind == "f" and not np.all(np.isfinite(values) | none):
            raise DataError(f"{where} gives {name} that are not finite: the model cannot be exported as it is")


def check_names(model_name: str, base_path: str) -> None:
    """`UserError` where the server would refuse a name or a path; "" is a path too, see `write_configs`."""
    check_model_name(model_name)
    if base_path and not (os.path.isabs(base_path) or "://" in base_path):
        raise UserError(f"--serving_base_path={base_path}: TensorFlow Serving takes absolute paths and URLs only; give "
                        "the folder of versions as the server sees it, such as /models/clrec")


def write_configs(export_dir: str, model_name: str, base_path: str, flag: str) -> None:
    """Writes models.config and batching.config into a folder of versions, each whole or not at all.

    Args:
      export_dir: the folder.
      model_name: NAME in /v1/models/NAME.
      base_path: of the same folder as the server sees it; "" for its path here.
      flag: named in errors, such as "export_dir=DIR".
    """
    config = model_server_config_pb2.ModelServerConfig()
    model = config.model_config_list.config.add(
        name=model_name, base_path=base_path or names.address_of(os.path.abspath(export_dir)),
        model_platform="tensorflow")
    model.model_version_policy.latest.num_versions = 1
    models = ("# Written by each export: put changes in a copy. ModelServerConfig of TensorFlow Serving, text format.\n"
              "# To hold on to version 3: model_version_policy { specific { versions: 3 } }\n"
              + text_format.MessageToString(config))
    for name, text in ((MODELS_FILE, models), (BATCHING_FILE, _BATCHING)):
        with new_file(os.path.join(export_dir, name), flag) as temporary:
            with open(temporary, "w", encoding="utf-8") as file:
                file.write(text)
