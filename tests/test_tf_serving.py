"""What an export leaves for TensorFlow Serving: requests that run as the server runs them, and files it can read."""
import importlib.util
import os
import pathlib
import re
import types

from google.protobuf import descriptor_pb2
from google.protobuf import descriptor_pool
from google.protobuf import json_format
from google.protobuf import message_factory
from google.protobuf import text_format
from google.protobuf import wrappers_pb2
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_serving.apis import prediction_log_pb2
from tensorflow_serving.config import model_server_config_pb2

from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.publishing import tf_serving
from clrec_tf.retrieval.bundle import load_bundle
from clrec_tf.retrieval.bundle_files import WARMUP_FILE
from clrec_tf.system.versions import versions
from tests import exported

FIELD = descriptor_pb2.FieldDescriptorProto


def records(folder):
    return [prediction_log_pb2.PredictionLog.FromString(record).predict_log.request for record in
            tf.data.TFRecordDataset(os.path.join(folder, WARMUP_FILE)).as_numpy_iterator()]


def batching_parameters():
    """BatchingParameters, declared anew: no package holds it.

    Names, types and numbers are those of TensorFlow Serving's session_bundle_config.proto, and text_format parses by
    the rules of the server's parser: so it refuses the fields and values that the server would.
    """
    file = descriptor_pb2.FileDescriptorProto(name="batching.proto", package="tensorflow.serving", syntax="proto3",
                                              dependency=["google/protobuf/wrappers.proto"])
    message = file.message_type.add(name="BatchingParameters")
    for number, (name, kind) in enumerate([
            ("max_batch_size", "Int64Value"), ("batch_timeout_micros", "Int64Value"),
            ("max_enqueued_batches", "Int64Value"), ("num_batch_threads", "Int64Value"),
            ("thread_pool_name", "StringValue"), ("allowed_batch_sizes", None),
            ("pad_variable_length_inputs", bool)], 1):
        field = message.field.add(name=name, number=number, label=FIELD.LABEL_OPTIONAL)
        if isinstance(kind, str):
            field.type, field.type_name = FIELD.TYPE_MESSAGE, f".google.protobuf.{kind}"
        else:
            field.type = FIELD.TYPE_BOOL if kind is bool else FIELD.TYPE_INT64
            field.label = FIELD.LABEL_OPTIONAL if kind is bool else FIELD.LABEL_REPEATED
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tensorflow.serving.BatchingParameters"))()


@pytest.mark.parametrize("kind", [*exported.KINDS, exported.MULTI])
def test_every_signature_is_warmed_up_with_held_out_users(kind):
    folder, bundle = exported.bundle_folder(kind), exported.loaded(kind)
    found = records(folder)
    assert [(request.model_spec.signature_name, next(iter(request.inputs.values())).tensor_shape.dim[0].size)
            for request in found] == [(name, size) for size in (1, 8, 32)
                                      for name in ("serving_default", "retrieve", "encode_items")]
    known = set(bundle.item_ids.tolist())
    for request in found:
        inputs = {name: tf.make_ndarray(value) for name, value in request.inputs.items()}
        assert request.model_spec.name == "clrec"
        signature = bundle.tower.signatures[request.model_spec.signature_name]
        assert set(inputs) == set(signature.structured_input_signature[1])
        ids = inputs["history" if "history" in inputs else "ids"].reshape(len(next(iter(inputs.values()))), -1)
        ids = np.char.decode(ids.astype(bytes), "utf-8") if kind == "string" else ids
        assert all(known & set(row) for row in ids.tolist())  # each of the users has a click that the model knows
    assert bundle.manifest["measured"]["warmup_requests"] == tf_serving.replay_warmup(folder) == 9
    assert os.path.join("assets.extra", "tf_serving_warmup_requests") in bundle.manifest["files"]
    assert bundle.manifest["versions"]["tensorflow-serving-api"] == versions()["tensorflow-serving-api"] != ""


class Broken(tf.Module):
    """A model whose signature fails, or answers wrongly, as `value` says: x -> user_vectors."""

    def __init__(self, answer):
        super().__init__()
        self.answer = answer

    def save(self, folder):
        function = tf.function(lambda x: {"user_vectors": self.answer(x)}, input_signature=[tf.TensorSpec([None])])
        tf.saved_model.save(self, str(folder), {"serving_default": function})


def warm_up(folder, name="serving_default", signature_input="x", count=1):
    log = prediction_log_pb2.PredictionLog()
    log.predict_log.request.model_spec.signature_name = name
    log.predict_log.request.inputs[signature_input].CopyFrom(tf.make_tensor_proto(np.ones(2, np.float32)))
    os.makedirs(folder / "assets.extra", exist_ok=True)
    with tf.io.TFRecordWriter(str(folder / WARMUP_FILE)) as writer:
        for _ in range(count):
            writer.write(log.SerializeToString())


@pytest.mark.parametrize("answer, message", [
    (lambda x: x / 0 - x / 0, "warm-up request 1 of .*, for serving_default, gives user_vectors that are not finite"),
    (lambda x: x / 0, "gives user_vectors that are not finite"),
    (lambda x: tf.concat([x, x], 0), "gives 4 rows of user_vectors for 2 users"),
    (lambda x: tf.reshape(x, [3]), "does not run as TensorFlow Serving would run it"),
    (lambda x: tf.numpy_function(lambda v: v, [x], tf.float32)[:1], "gives 1 rows of user_vectors for 2 users")])
def test_a_model_that_the_server_could_not_use_is_found_out(answer, message, tmp_path):
    Broken(answer).save(tmp_path)
    warm_up(tmp_path)
    with pytest.raises(DataError, match=message):
        tf_serving.replay_warmup(str(tmp_path))


def test_requests_that_do_not_fit_the_model_are_found_out(tmp_path):
    Broken(tf.identity).save(tmp_path)
    with pytest.raises(DataError, match="does not run"):  # there is no file
        tf_serving.replay_warmup(str(tmp_path))
    for arguments, message in ((dict(name="other"), "does not run.*other"), (dict(signature_input="y"), r"\['y'\]"),
                               (dict(count=1001), "holds 1001 requests"), (dict(count=0), "holds 0 requests")):
        warm_up(tmp_path, **arguments)
        with pytest.raises(DataError, match=message):
            tf_serving.replay_warmup(str(tmp_path))
    warm_up(tmp_path)
    assert tf_serving.replay_warmup(str(tmp_path)) == 1


def test_a_failed_replay_publishes_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(tf_serving, "_WARMUP_K", 0)  # which the model refuses
    with pytest.raises(DataError, match="k must be at least 1"):
        exported.world("int").export(tmp_path)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("base_path", ["", "/models/clrec", "s3://bücket/clrec"])
def test_models_config_names_the_folder_of_versions(base_path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkdir("out")
    for name in ("other", "clrec.v1"):  # the second replaces the first
        tf_serving.write_configs("out", name, base_path, "export_dir=out")
    with open("out/models.config", encoding="utf-8") as file:
        config = text_format.Parse(file.read(), model_server_config_pb2.ModelServerConfig())
    model, = config.model_config_list.config
    assert (model.name, model.model_platform) == ("clrec.v1", "tensorflow")
    assert model.base_path == (base_path or str(tmp_path / "out"))
    assert model.model_version_policy.latest.num_versions == 1
    assert sorted(os.listdir("out")) == ["batching.config", "models.config"]


def test_an_export_writes_what_it_was_told(tmp_path):
    folder = exported.world("int").export(tmp_path, export_users=3, serving_base_path="/models/clrec")
    histories = [tf.make_ndarray(request.inputs["history"]) for request in records(folder)
                 if request.model_spec.signature_name == "retrieve"]
    assert [len(history) for history in histories] == [1, 8, 32]  # of the three users, again and again
    np.testing.assert_array_equal(histories[2][:29], histories[2][3:])
    assert len(np.unique(histories[2], axis=0)) == 3
    assert sorted(os.listdir(tmp_path)) == ["1", "batching.config", "models.config"]
    assert 'base_path: "/models/clrec"' in (tmp_path / "models.config").read_text()
    assert load_bundle(str(tmp_path)).path == folder  # the files beside the versions are no version


@pytest.mark.parametrize("names, message", [
    (("a/b", ""), "--model_name=a/b: it is part of an address"), (("", ""), "--model_name="),
    (("clrec:predict", ""), "--model_name=clrec:predict"),
    (("clrec", "models/clrec"), "--serving_base_path=models/clrec: TensorFlow Serving takes absolute paths")])
def test_names_that_the_server_would_refuse_are_errors(names, message):
    with pytest.raises(UserError, match=message):
        tf_serving.check_names(*names)


def test_batching_config_is_what_the_server_reads_and_pads_nothing():
    folder = os.path.dirname(exported.bundle_folder("int"))
    with open(os.path.join(folder, "batching.config"), encoding="utf-8") as file:
        text = file.read()
    parameters = text_format.Parse(text, batching_parameters())
    assert parameters.max_batch_size.value == tf_serving.BATCH_SIZES[-1] == 32
    assert parameters.batch_timeout_micros.value > 0 and parameters.num_batch_threads.value >= 1
    assert not parameters.allowed_batch_sizes and re.search("^pad_variable_length_inputs: false$", text, re.MULTILINE)
    for wrong in (text + "pad_variable_length: true", text.replace("{ value: 32 }", "32"), text.replace("false", "no")):
        with pytest.raises(text_format.ParseError):
            text_format.Parse(wrong, batching_parameters())


def rest_client():
    path = pathlib.Path(__file__).parents[1] / "launch" / "clients" / "predict_rest.py"
    spec = importlib.util.spec_from_file_location("predict_rest", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("kind", [*exported.KINDS, exported.MULTI])
def test_the_rest_client_gives_every_input_that_tensorflow_serving_demands(kind):
    """Its metadata are the signatures as protobuf writes them in JSON; a row of the body lacks the first dimension."""
    with open(os.path.join(exported.bundle_folder(kind), "saved_model.pb"), "rb") as file:
        graph = saved_model_pb2.SavedModel.FromString(file.read()).meta_graphs[0]
    definition = json_format.MessageToDict(graph.signature_def["retrieve"])
    items = [exported.original_id(kind, number) for number in (3, 14)]
    arguments = types.SimpleNamespace(history=",".join(map(str, items)), width=6, k=4, intents=2, exclude_seen=True, tell=[],
                                      popularity=None)
    metadata = {"signature_def": {"signature_def": {"retrieve": definition}}}
    row = rest_client().instance(metadata, arguments)
    signature = exported.loaded(kind).tower.signatures["retrieve"]
    specs = signature.structured_input_signature[1]
    assert set(row) == set(specs)
    found = signature(**{name: tf.constant([row[name]], spec.dtype) for name, spec in specs.items()})["ids"][0].numpy()
    found = [item.decode() if kind == "string" else item for item in found]
    assert len(found) == 4 and not set(items) & set(found)
    assert [len(row["history"]), row["history"][:2]] == [6, items]


@pytest.mark.parametrize("metadata", [
    {"bundle": {"id_type": "int", "intents": 1}},
    {"signature_def": {"signature_def": {"retrieve": {"inputs": {"history": {"dtype": "DT_INT64"}}}}}}])
def test_the_rest_client_names_ids_that_are_no_integers(metadata):
    arguments = types.SimpleNamespace(history="3,abc", width=6, k=4, intents=2, exclude_seen=True, tell=[],
                                      popularity=None)
    with pytest.raises(SystemExit, match="--history=3,abc: the item ids of this model are integers .*'abc'"):
        rest_client().instance(metadata, arguments)


def test_padding_with_the_first_element_would_change_what_is_retrieved():
    """Why batching.config says false: with true, the server fills a shorter history up with its first click."""
    signature = exported.loaded("int").tower.signatures["serving_default"]
    history = [exported.original_id("int", item) for item in (3, 14)]
    vectors = [signature(history=tf.constant([history + padding], tf.int64), popularity=tf.zeros([1]))["user_vectors"].numpy()
               for padding in ([], [-1, -1], [history[0]] * 2)]
    np.testing.assert_array_equal(vectors[0], vectors[1])
    assert np.abs(vectors[0] - vectors[2]).max() > 1e-3
