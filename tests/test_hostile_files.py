"""Files that somebody made to do harm: refused by an error that names them, whatever numbers, names and depths they hold."""
import dataclasses
import hashlib
import json
import os
import pathlib
import shutil
import struct

from hypothesis import given
from hypothesis import HealthCheck
from hypothesis import settings
from hypothesis import strategies as st
import pytest

from clrec_tf.config import Config
from clrec_tf.data.catalogue import read_catalogue
from clrec_tf.data import schema as schema_lib
from clrec_tf.data.features import Feature
from clrec_tf.data.record_lengths import check_lengths
from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.retrieval import manifest as bundle_manifest
from clrec_tf.system import json_files
from clrec_tf.system.declared import check_declared
from clrec_tf.system.inner_path import check_name
from clrec_tf.system.inner_path import inner_path
from clrec_tf.training import checkpoint_list
from clrec_tf.training import run_config
from tests import exported
from tests import small_run

QUIET = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
SCALARS = (st.none() | st.booleans() | st.integers(-2**70, 2**70) | st.floats() | st.text(max_size=20)
           | st.sampled_from(["../../etc/passwd", "/etc/passwd", "a/../../b", "", "\0", "x" * 5000, 10**400]))
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
    st.text(max_size=8), inner, max_size=3), max_leaves=6)


@pytest.fixture(name="data", scope="module")
def fixture_data(tmp_path_factory):
    return small_run.prepared(tmp_path_factory.mktemp("hostile"))


@pytest.fixture(name="copy")
def fixture_copy(data, tmp_path):
    shutil.copytree(data, tmp_path / "data")
    return tmp_path / "data"


@pytest.mark.parametrize("name", ["../a", "/etc/passwd", "a/../../b", "a//b", "./a", "a/", "", ".", "..", "a\0b", "a\\b",
                                  7, None, ["a"], "x" * 1001])
def test_names_that_lead_out_are_none(tmp_path, name):
    with pytest.raises(ValueError):
        check_name(name)
    with pytest.raises(ValueError):
        inner_path(str(tmp_path), name)


def test_links_that_lead_out_are_refused_and_others_followed(tmp_path):
    (tmp_path / "root" / "in").mkdir(parents=True)
    (tmp_path / "out").write_text("secret")
    os.symlink(tmp_path / "out", tmp_path / "root" / "file")
    os.symlink(tmp_path, tmp_path / "root" / "folder")
    os.symlink("in", tmp_path / "root" / "fine")
    os.symlink(tmp_path / "root", tmp_path / "also")  # the root may be a link itself
    for name in ("file", "folder/out"):
        with pytest.raises(ValueError, match="link that leads out"):
            inner_path(str(tmp_path / "root"), name)
    assert inner_path(str(tmp_path / "root"), "fine/x") == str(tmp_path / "root" / "fine" / "x")
    assert inner_path(str(tmp_path / "also"), "in/x") == str(tmp_path / "also" / "in" / "x")


@given(st.text(alphabet="ab./\\\0", max_size=12))
@QUIET
def test_a_name_that_passes_stays_inside(name):
    try:
        path = inner_path("/nowhere/root", name)
    except ValueError:
        return
    assert os.path.normpath(path) == path and path.startswith("/nowhere/root/")


def rewritten(folder, name, change):
    """A sealed JSON file, changed and sealed again, as a forger would."""
    path = folder / name
    values = json_files.unsealed(json.loads(path.read_text()))
    sealed = json_files.SEAL in json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(json_files.sealed(values) if sealed else values))


@pytest.mark.parametrize("change, words", [
    (lambda m: m["shards"]["train"][0].update(name="../../x"), "leads out of its folder"),
    (lambda m: m["shards"]["train"][0].update(name="/etc/passwd"), "leads out of its folder"),
    (lambda m: m["shards"]["train"][0].update(records=-1), "a number from 0 to 2"),
    (lambda m: m["shards"]["train"][0].update(records=2**40), "records and"),
    (lambda m: m["shards"]["train"][0].update(events=10**9), "clicks in"),
    (lambda m: m["shards"]["train"][0].update(records=3.5), "a number from 0"),
    (lambda m: m["shards"]["train"][0].update(records=True), "a number from 0"),
    (lambda m: m["shards"]["train"][0].update(sha256=None), "a text is expected"),
    (lambda m: m["shards"].update(train=7), "missing or unknown entries"),
    (lambda m: m["shards"]["catalogue"].pop(), "the catalogue has"),
    (lambda m: m.update(shards=[]), "missing or unknown entries")])
def test_hostile_manifests_of_data_are_refused(copy, change, words):
    rewritten(copy, "manifest.json", change)
    with pytest.raises(DataError, match=words):
        schema_lib.load_manifest(str(copy))


def test_a_shard_that_is_a_link_out_is_refused(copy, tmp_path):
    name = schema_lib.load_manifest(str(copy)).shards["train"][0].name
    shutil.move(copy / name, tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", copy / name)
    with pytest.raises(DataError, match="link that leads out"):
        schema_lib.load_manifest(str(copy))


@pytest.mark.parametrize("change", [
    dict(num_items=-1), dict(num_items=10**30), dict(num_items="30"), dict(num_items=True), dict(features=[{"name": 3}]),
    dict(features=7), dict(event_weights=[["buy", float("nan")]]), dict(event_weights=[["buy", 10**400]]),
    dict(event_weights=[["buy"]]), dict(settings=3),
    dict(id_type=["int"]), dict(has_timestamps=1), dict(query_features=[{}]), dict(num_items=31)])
def test_hostile_schemas_are_refused(copy, change):
    def changed(values):
        values.update(change)
    rewritten(copy, "schema.json", changed)
    try:
        digest = schema_lib.load_schema(str(copy)).hash()
        rewritten(copy, "manifest.json", lambda m: m.update(schema_hash=digest))
    except DataError as error:
        assert "schema.json" in str(error)
        return
    assert change == dict(num_items=31)
    with pytest.raises(DataError, match="the catalogue has 30 items, schema.json says 31"):
        schema_lib.load_manifest(str(copy))


@given(draws=st.data())
@QUIET
def test_any_entry_of_schema_and_manifest_may_be_anything(data, draws):
    folder = pathlib.Path(data)  # each example leaves it as it was
    name = draws.draw(st.sampled_from(["schema.json", "manifest.json"]))
    text = (folder / name).read_text()
    whole = json.loads(text)
    try:
        values = json_files.unsealed(whole)
        place = values
        while True:
            key = draws.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
            if not (isinstance(place[key], (dict, list)) and place[key] and draws.draw(st.booleans())):
                break
            place = place[key]
        place[key] = draws.draw(VALUES)
        (folder / name).write_text(json.dumps(json_files.sealed(values) if json_files.SEAL in whole else values))
        try:
            check_declared(schema_lib.load_manifest(str(folder)))
        except DataError as error:
            assert str(folder) in str(error)
    finally:
        (folder / name).write_text(text)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "9" * 10_000, '{"a": ' + "9" * 10_000 + "}", "\xff", "7"])
def test_json_too_deep_or_too_long_is_refused(tmp_path, text):
    (tmp_path / "a.json").write_text(text, encoding="latin-1")
    with pytest.raises(DataError, match="a.json"):
        json_files.load_json(str(tmp_path / "a.json"), "missing", "damaged")


def test_what_is_no_file_is_no_json(tmp_path):
    """Reading a pipe would wait for ever, and a sparse file of terabytes would take all memory."""
    os.mkfifo(tmp_path / "pipe.json")
    with open(tmp_path / "large.json", "wb") as file:
        file.truncate(2**33)
    for name in ("pipe.json", "large.json"):
        with pytest.raises(DataError, match=name):
            json_files.load_json(str(tmp_path / name), "missing", "damaged")


def masked_crc(content: bytes) -> bytes:
    """As TFRecord files have it: CRC-32C, turned and added to."""
    crc = 0xFFFFFFFF
    for byte in content:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


@pytest.mark.parametrize("length", [2**33, 2**40, 2**62, 2**64 - 1, 101])
def test_a_record_longer_than_its_file_is_refused_before_tensorflow_dies_of_it(copy, length):
    head = struct.pack("<Q", length)
    content = head + masked_crc(head) + b"x" * 100 + b"0000"
    name = schema_lib.load_manifest(str(copy)).shards["catalogue"][0].name
    (copy / name).write_bytes(content)

    def forged(manifest):
        entry = next(e for e in manifest["shards"]["catalogue"] if e["name"] == name)
        entry.update(bytes=len(content), sha256=hashlib.sha256(content).hexdigest(), events=0)
    rewritten(copy, "manifest.json", forged)
    schema, manifest = schema_lib.load_schema(str(copy)), schema_lib.load_manifest(str(copy))
    with pytest.raises(DataError, match="byte 0 says that it has"):
        read_catalogue(str(copy), schema, manifest)
    with pytest.raises(DataError, match="byte 0 says that it has"):
        schema_lib.load_manifest(str(copy), "sha256")


def test_a_record_that_is_none_names_its_shard(copy):
    """TensorFlow's text about it quotes bytes that are no text, and so is none itself (found by fuzzing)."""
    manifest = schema_lib.load_manifest(str(copy))
    head, record = struct.pack("<Q", 3), b"&*\xdb"
    (copy / manifest.shards["catalogue"][0].name).write_bytes(head + masked_crc(head) + record + masked_crc(record))
    with pytest.raises(DataError, match="is damaged after 1 records"):
        read_catalogue(str(copy), schema_lib.load_schema(str(copy)), manifest)


def test_lengths_of_sound_files_pass(data):
    for split, shards in schema_lib.load_manifest(data, "sha256").shards.items():
        assert shards or split == "none"
        for shard in shards:
            check_lengths(os.path.join(data, shard.name))


@pytest.mark.parametrize("change, words", [
    (lambda m: m["files"].update({"../x": dict(bytes=1, sha256="")}), "leads out of its folder"),
    (lambda m: m["files"].update({"/etc/passwd": dict(bytes=1, sha256="")}), "leads out of its folder"),
    (lambda m: m.update(max_history=10**12), "max_history is '1000000000000'"),
    (lambda m: m.update(items=-1), "items is '-1'"), (lambda m: m.update(items="60"), "items is '60'"),
    (lambda m: m.update(intents=float("inf")), "intents is 'inf'"), (lambda m: m.update(files=[]), "damaged"),
    (lambda m: m["files"].update({"item_ids.npy": 7}), "damaged"),
    (lambda m: m["files"]["item_ids.npy"].update(bytes="7"), "is not a size"), (lambda m: m.update(versions=3), "damaged")])
def test_hostile_manifests_of_bundles_are_refused(tmp_path, change, words):
    folder = tmp_path / "1"
    shutil.copytree(exported.bundle_folder("int"), folder)
    rewritten(folder, "manifest.json", change)
    with pytest.raises(DataError, match=words):
        bundle_manifest.check_sizes(str(folder), bundle_manifest.read_manifest(str(folder))["files"])


def test_a_file_of_a_bundle_that_is_a_link_out_is_refused(tmp_path):
    folder = tmp_path / "1"
    shutil.copytree(exported.bundle_folder("int"), folder)
    shutil.move(folder / "item_ids.npy", tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", folder / "item_ids.npy")
    with pytest.raises(DataError, match="link that leads out"):
        bundle_manifest.check_sizes(str(folder), bundle_manifest.read_manifest(str(folder))["files"])


@given(st.lists(st.sampled_from([
    'model_checkpoint_path: "step-%s"', 'all_model_checkpoint_paths: "step-%s"', 'model_checkpoint_path: "../step-%s"',
    'model_checkpoint_path: "/etc/step-%s"', "all_model_checkpoint_timestamps: %s", "%s"]), max_size=4),
       st.sampled_from(["7", "9" * 30, "9" * 5000, "-1", "", "\0", "7\"\nx"]))
@QUIET
def test_a_list_of_checkpoints_names_none_outside_its_folder(tmp_path, lines, number):
    folder = tmp_path
    (folder / "checkpoint").write_text("\n".join(line.replace("%s", number) for line in lines))
    (folder / "step-7.index").write_text("")
    (folder / "step-7.data-00000-of-00001").write_text("")
    assert set(checkpoint_list.kept(str(folder))) <= {str(folder / "step-7")}


@given(draws=st.data())
@QUIET
def test_any_setting_of_config_json_may_be_anything(tmp_path, draws):
    run_config.save(str(tmp_path), Config(), "0" * 64)
    values = run_config.load(str(tmp_path))
    section = draws.draw(st.sampled_from(["model", "loss", "paths", "train"]))
    name = draws.draw(st.sampled_from(sorted(values[section])))
    if draws.draw(st.integers(0, 9)):
        values[section][name] = draws.draw(VALUES)
    else:
        values[section] = draws.draw(VALUES)
    (tmp_path / "config.json").write_text(json.dumps(json_files.sealed(values)))
    try:
        saved = run_config.load(str(tmp_path))
    except DataError as error:
        assert str(error).startswith(str(tmp_path / "config.json"))
        return
    try:
        assert isinstance(run_config.saved_settings(saved), Config)
    except UserError as error:  # a value of the right type that is none of the setting's
        assert f"--{name}" in str(error) or "unknown settings" in str(error)


@dataclasses.dataclass(frozen=True)
class _Declared:
    number: int
    share: float
    feature: Feature


@pytest.mark.parametrize("value, words", [
    (_Declared(-1, 0.5, Feature("a", 1, 1, 1)), "_Declared.number is '-1'"),
    (_Declared(1, float("inf"), Feature("a", 1, 1, 1)), "_Declared.share is 'inf' where a finite number"),
    (_Declared(1, 1, Feature("a", 1, 1, 1.5)), "Feature.vocabulary_size is '1.5'"),
    (_Declared(1, 10**400, Feature("a", 1, 1, 1)), "_Declared.share is '1000.*' where a finite number"),
    (_Declared(1, 1, {"name": "a"}), "where an object is expected")])
def test_values_are_of_the_types_that_are_declared(value, words):
    check_declared(_Declared(1, 1, Feature("a", 1, 1, 1)))
    with pytest.raises(ValueError, match=words):
        check_declared(value)
