"""Fuzzes readers of files with atheris, whose inputs are led by what they reach.

  python tests/attacks/fuzz_files.py [manifest|schema|config|bundle|checkpoints|example] -max_total_time=60
  python tests/attacks/fuzz_files.py manifest FILE   # an input that was found to be at fault, once more

It is a program of its own, since atheris instruments the package's Python and ends its process; ``test_files_fuzzed``
runs it. What it must find: any exception but a `UserError`, a hang, or a process that dies. `example` gives bytes to
TensorFlow's parser of records, as training does.
"""
import contextlib
import json
import pathlib
import sys
import tempfile

import atheris

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

import tensorflow as tf  # noqa: E402  pylint: disable=wrong-import-position

with atheris.instrument_imports(include=["clrec_tf"]):
    # pylint: disable=wrong-import-position
    from clrec_tf.config import Config
    from clrec_tf.data import pools
    from clrec_tf.data import schema as schema_lib
    from clrec_tf.errors import UserError
    from clrec_tf.retrieval import manifest as bundle_manifest
    from clrec_tf.system import json_files
    from clrec_tf.training import checkpoint_list
    from clrec_tf.training import run_config

SCHEMA = schema_lib.Schema(num_items=30, item_rows=31, features=(), content_width=0, id_type="int", has_timestamps=True,
                           num_users=3, total_clicks=9, split={}, settings={})
FACTS = dict(checkpoint_hash="c", id_type="int", items=30, max_history=4, uses_time=False, titles=False, intents=1,
             format_version=5, versions={}, dial={}, files={"saved_model.pb": dict(bytes=1, sha256="0" * 64),
                                                             "item_ids.npy": dict(bytes=1, sha256="0" * 64)})
PARSE = tf.function(lambda record: pools.parse_pool(record[None], tf.constant(1, tf.int64), tf.constant(["f"]), SCHEMA),
                    input_signature=[tf.TensorSpec([], tf.string)])


def value_of(data: atheris.FuzzedDataProvider, depth: int = 0):
    """Any value of JSON."""
    kind = data.ConsumeIntInRange(0, 7 if depth < 3 else 5)
    if kind == 6:
        return [value_of(data, depth + 1) for _ in range(data.ConsumeIntInRange(0, 3))]
    if kind == 7:
        return {data.ConsumeUnicodeNoSurrogates(6): value_of(data, depth + 1)
                for _ in range(data.ConsumeIntInRange(0, 3))}
    return (None, bool(kind), data.ConsumeInt(8), data.ConsumeFloat(), data.ConsumeUnicodeNoSurrogates(12),
            "../" + data.ConsumeUnicodeNoSurrogates(4))[kind]


def changed(data, values):
    """JSON with some entries exchanged, sealed as its writer would; or any bytes."""
    if not data.ConsumeIntInRange(0, 3):
        return data.ConsumeBytes(200)
    values = json.loads(json.dumps(values))
    for _ in range(data.ConsumeIntInRange(1, 3)):
        place = values
        while isinstance(place, (dict, list)) and place:
            keys = sorted(place) if isinstance(place, dict) else list(range(len(place)))
            key = keys[data.ConsumeIntInRange(0, len(keys) - 1)]
            if not isinstance(place[key], (dict, list)) or data.ConsumeBool():
                place[key] = value_of(data)
                break
            place = place[key]
    return json.dumps(json_files.sealed(values) if "format_version" not in values or "files" in values else values,
                      ensure_ascii=True).encode()


def of_manifest(data, folder):
    """A data folder whose manifest is anything."""
    shard = dict(name="train-0.tfrecord", records=0, events=0, bytes=0, sha256="")
    values = dict(schema_hash=SCHEMA.hash(), shards=dict(train=[shard], valid=[], test=[]), content=None,
                  impressions=None, others=[])
    (folder / "train-0.tfrecord").write_bytes(b"")
    schema_lib.save_schema(str(folder), SCHEMA)
    (folder / schema_lib.MANIFEST_FILE).write_bytes(changed(data, values))
    schema_lib.load_manifest(str(folder))


def of_schema(data, folder):
    """A schema that is anything."""
    schema_lib.save_schema(str(folder), SCHEMA)
    values = json.loads((folder / schema_lib.SCHEMA_FILE).read_text())
    (folder / schema_lib.SCHEMA_FILE).write_bytes(changed(data, values))
    schema_lib.load_schema(str(folder)).hash()


def of_config(data, folder):
    """The record of a run that is anything."""
    values = json.loads(json.dumps(run_config.record(Config()))) | dict(schema_hash="0", versions={})
    (folder / run_config.CONFIG_FILE).write_bytes(changed(data, values))
    run_config.saved_settings(run_config.load(str(folder)))


def of_bundle(data, folder):
    """A bundle's manifest that is anything."""
    (folder / bundle_manifest.MANIFEST_FILE).write_bytes(changed(data, FACTS))
    bundle_manifest.check_sizes(str(folder), bundle_manifest.read_manifest(str(folder))["files"])


def of_checkpoints(data, folder):
    """A list of checkpoints that is anything."""
    (folder / checkpoint_list.LIST_FILE).write_bytes(
        data.PickValueInList([b"", b'model_checkpoint_path: "step-', b'all_model_checkpoint_paths: "step-'])
        + data.ConsumeBytes(100))
    for prefix in checkpoint_list.kept(str(folder)):
        assert pathlib.Path(prefix).parent == folder


def of_example(data, folder):
    """A record that is anything, or nearly a sound one."""
    del folder
    record = bytearray(RECORD if data.ConsumeBool() else data.ConsumeBytes(300))
    for _ in range(data.ConsumeIntInRange(0, 4) if record else 0):
        record[data.ConsumeIntInRange(0, len(record) - 1)] = data.ConsumeIntInRange(0, 255)
    try:
        PARSE(tf.constant(bytes(record)))
    except (tf.errors.InvalidArgumentError, UnicodeDecodeError):  # of a text that quotes the record
        pass


def _record():
    ints = lambda *values: tf.train.Feature(int64_list=tf.train.Int64List(value=values))
    return tf.train.Example(features=tf.train.Features(feature=dict(
        user_id=ints(1), target_count=ints(1), item_id=ints(1, 2, 3), timestamp=ints(1, 2, 3),
        weight=tf.train.Feature(float_list=tf.train.FloatList(value=[1.0]))))).SerializeToString()


RECORD = _record()
TARGETS = dict(manifest=of_manifest, schema=of_schema, config=of_config, bundle=of_bundle, checkpoints=of_checkpoints,
               example=of_example)


def main():
    """Fuzzes one target, or all of them in turn by the input's first byte."""
    chosen = [TARGETS[word] for word in sys.argv[1:] if word in TARGETS] or list(TARGETS.values())

    def once(content):
        data = atheris.FuzzedDataProvider(content)
        target = data.PickValueInList(chosen)
        with tempfile.TemporaryDirectory(prefix="clrec-fuzz-") as folder, contextlib.suppress(UserError):
            target(data, pathlib.Path(folder))

    atheris.Setup([word for word in sys.argv if word not in TARGETS], once)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
