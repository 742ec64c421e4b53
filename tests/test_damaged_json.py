"""JSON, lists and headers that no program of ours wrote: an error that names file and remedy, never a traceback."""
import json
import pathlib

import pytest

from clrec_tf.config import Config
from clrec_tf.config import Paths
from clrec_tf.config import PrepareConfig
from clrec_tf.data import schema as schema_lib
from clrec_tf.errors import DataError
from clrec_tf.preparation.item_features import read_item_file
from clrec_tf.prepare import prepare
from clrec_tf.retrieval import bundle_files
from clrec_tf.retrieval import manifest as manifest_lib
from clrec_tf.retrieval import saved_index
from clrec_tf.system import json_files
from clrec_tf.training import evaluations
from clrec_tf.training import reporter
from clrec_tf.training import run_config
from tests import small_run

DEEP = "[" * 100_000 + "]" * 100_000
NO_OBJECTS = ["[]", "null", "3", '"text"', "", "{", '{"a": ' * 50_000 + "1" + "}" * 50_000, DEEP, "1" * 5000,
              b"\xff\xfe{}", "NaN"]


def written(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize("content", NO_OBJECTS)
def test_every_reader_names_the_file(tmp_path, content):
    readers = {
        schema_lib.SCHEMA_FILE: schema_lib.load_schema, schema_lib.MANIFEST_FILE: schema_lib.load_manifest,
        run_config.CONFIG_FILE: run_config.load, bundle_files.INDEX_FILE: lambda folder: saved_index.load_index(folder)}
    for name, read in readers.items():
        written(tmp_path / name, content)
        with pytest.raises(DataError, match=str(tmp_path)):
            read(str(tmp_path))
    with pytest.raises(DataError, match="manifest.json is damaged"):
        manifest_lib.read_manifest(str(tmp_path))


@pytest.mark.parametrize("content", NO_OBJECTS + ["{}"])
def test_a_run_without_the_entries_of_one(tmp_path, content):
    written(tmp_path / run_config.CONFIG_FILE, content)
    with pytest.raises(DataError, match="config.json .*: restore it from a copy, or use another --workdir"):
        run_config.load(str(tmp_path))


def test_a_seal_guards_every_value(tmp_path):
    values = dict(a=[1, 0.1, None], b={"2": "ä", "10": True})
    path = str(tmp_path / "sealed.json")
    json_files.save_json(path, json_files.sealed(values | {"b": {10: True, 2: "ä"}}))
    read = json_files.load_json(path, "", "")
    assert json_files.unsealed(read) == values and json_files.unsealed(values) == values  # none is old, not damaged
    for name, other in (("a", [1, 0.2, None]), ("b", {}), ("c", 1), (json_files.SEAL, "0"), (json_files.SEALED, False)):
        with pytest.raises(ValueError, match="does not match its own checksum"):
            json_files.unsealed(read | {name: other})
    with pytest.raises(ValueError, match="does not match its own checksum"):
        json_files.unsealed({name: value for name, value in read.items() if name != json_files.SEAL})


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    return small_run.prepared(tmp_path_factory.mktemp("data"))


def test_a_changed_manifest_of_data_is_refused(data_dir, tmp_path):
    path = pathlib.Path(data_dir) / schema_lib.MANIFEST_FILE
    text = path.read_text()
    values = json.loads(text)
    values["shards"]["train"].reverse()  # another order of the data, and nothing else
    try:
        path.write_text(json.dumps(values))
        with pytest.raises(DataError, match="manifest.json is damaged .*its own checksum"):
            schema_lib.load_manifest(data_dir)
        values["chucksum"] = values.pop("checksum")
        path.write_text(json.dumps(values))
        with pytest.raises(DataError, match="manifest.json is damaged .*its own checksum"):
            schema_lib.load_manifest(data_dir)
    finally:
        path.write_text(text)


def test_lines_that_are_no_rows_are_left_out(tmp_path):
    rows = [b'{"step": 1, "metric": "m", "value": 1}\n', b"[]\n", b"3\n", b"\xff\n", DEEP.encode() + b"\n", b'{"a": 1}\n',
            b'{"step": "x", "metric": "m"}\n'[:-4] + b"\n", b'{"step": 2, "metric": "m", "value": 2}\n', b'{"step": 3']
    (tmp_path / evaluations.FILE).write_bytes(b"".join(rows))
    assert [row["value"] for row in evaluations.read(str(tmp_path), "m")] == [1, 2]
    path = tmp_path / reporter.METRICS_LOG
    path.write_bytes(b"".join(rows))
    reporter._drop_rows_after(str(path), 2)
    assert path.read_bytes() == rows[0] + rows[7]


@pytest.mark.parametrize("content", [DEEP, "[1]", "{", b"\xff{}"])
def test_item_features_that_are_no_object(tmp_path, content):
    path = written(tmp_path / "items.json", content)
    with pytest.raises(DataError, match=str(path)):
        read_item_file(PrepareConfig(item_features=str(path)))


@pytest.mark.parametrize("line", ["a," * 2**20, "x" * 200_000, "\0" * 200_000])
def test_a_header_without_end(tmp_path, line):
    path = written(tmp_path / "log.csv", line)
    with pytest.raises(DataError, match=f"{path}(: column 'a' stands twice in the header|, line 1 is no header .field "
                                        "larger| is no text)"):
        prepare(Config(paths=Paths(data_dir=str(tmp_path / "data")), prepare=PrepareConfig(input=str(path))))


def test_a_name_that_is_no_utf_8_is_written_and_read_again(tmp_path):
    json_files.save_json(str(tmp_path / "x.json"), {"path": "ä/\udcff"})  # as Python has the bytes of old file names
    assert json.loads((tmp_path / "x.json").read_text(encoding="utf-8")) == {"path": "ä/\udcff"}
