"""The doctor on addresses in stores: what is sound, absent, damaged, refused or silent; against a server of S3."""
import importlib
import json
import pathlib
import re
import socket
import sys
import time

import pytest

from clrec_tf.diagnosis import checkup
from clrec_tf.diagnosis import store_checks
from clrec_tf.diagnosis.stored_places import StoredPlaces
from clrec_tf.stores.folder import TRIAL
from clrec_tf.training import stored_list
from clrec_tf.training import stored_run
from tests import exported
from tests import s3_server
from tests import small_run
from tests.test_doctor import command
from tests.test_doctor import run
from tests.test_doctor import told

pytest.importorskip("moto.server")
pytest.importorskip("obstore")


@pytest.fixture(scope="module", name="world")
def fixture_world(endpoint, tmp_path_factory):
    """Name -> content of data/, prepared, of run/, trained on it in the store, and of export/."""
    place, bucket = tmp_path_factory.mktemp("world"), "made-once"
    data = small_run.prepared(place)
    with pytest.MonkeyPatch.context() as patch:
        s3_server.point_at(endpoint, patch)
        s3_server.make_bucket(endpoint, bucket)
        with s3_server.opened(place / "cache", dict(workdir=stored_run.keeps_run),
                              workdir=f"s3://{bucket}/run") as local:
            assert small_run.run(small_run.config(data, local["workdir"], epochs=1, validate_every=1.0)) == 0
        remote = s3_server.Bucket(bucket)("run")
        objects = {f"run/{name}": remote.read(name) for name in remote.names()}
    bundle = pathlib.Path(exported.bundle_folder("int"))
    objects |= {f"export/1/{path.relative_to(bundle)}": path.read_bytes() for path in bundle.rglob("*") if path.is_file()}
    return objects | {f"data/{name.name}": name.read_bytes() for name in (place / "data").iterdir()}


@pytest.fixture(name="filled")
def fixture_filled(store, world):
    """The same with the world's objects."""
    for name, content in world.items():
        store(name.partition("/")[0]).write(name.partition("/")[2], content)
    store.faults.seen.clear()
    return store


def found(tmp_path, values, given=(), seconds=30.0, **settings):
    """The findings about addresses, flag -> address."""
    stored = StoredPlaces()
    with s3_server.opened(tmp_path / "cache", stored.openers(store_checks.ADDRESSED), **values) as local:
        config = small_run.config("", "", epochs=1, validate_every=1.0).but(
            **{"doctor_deadline_s": seconds, **{flag: local[flag] for flag in values}, **settings})
        checks = checkup.checks(config, frozenset(given), stored)
        return run([check for check in checks if check.name != "machine"], seconds)


def faults(findings) -> list[str]:
    return [finding.text for finding in findings if finding.state == "fault"]


def both(store):
    return dict(data_dir=store.at("data"), workdir=store.at("run"))


def objects(store):
    return {(name, key): store(name).read(key) for name in ("data", "run", "export", "page")
            for key in store(name).names(trials=True)}


@pytest.mark.parametrize("mode", ["quick", pytest.param("full", marks=pytest.mark.long)])
def test_what_is_sound_is_called_so_and_nothing_is_changed(filled, tmp_path, world, mode):
    before = objects(filled)
    every = found(tmp_path, {**both(filled), "html": filled.at("page/x.html"), "vocabulary_from": filled.at("data"),
                             "init_from": filled.at("run"), "input": filled.at("data/train-*"),
                             "export_dir": filled.at("export")}, doctor_mode=mode)
    assert not faults(every), told(every)
    words, by = told(every), "sha256" if mode == "full" else "size"
    assert words.count(f"agree with the manifest by {by}") == 3 and words.count(f"agree with the list by {by}") >= 4
    assert words.count("can be written, read, listed, replaced and deleted") == 2  # the data set is there
    assert "written, read and deleted" in words and "4 object(s)" in words and "has no conditional" not in words
    assert len(before) == len(world) and objects(filled) == before
    written = [path for method, path in filled.faults.seen if method not in ("GET", "HEAD") and not path.endswith("?delete")]
    assert len({re.search(f"{TRIAL}[0-9a-f]{{16}}", path)[0] for path in written}) == 3


def test_what_is_only_read_is_not_written_to(filled, tmp_path):
    every = found(tmp_path, both(filled), doctor_read_only=("workdir",))
    assert not faults(every) and not [method for method, _ in filled.faults.seen if method not in ("GET", "HEAD")]


def test_an_absent_bucket_is_named_by_every_flag(store, tmp_path):
    every = found(tmp_path, dict(data_dir="s3://no-such-bucket/data", workdir="s3://no-such-bucket/run",
                                 input="s3://no-such-bucket/log.csv", html="s3://no-such-bucket/x.html"))
    told_of = {finding.subject.partition("=")[0] for finding in every if "there is no such bucket" in finding.text}
    assert told_of == {"--data_dir", "--workdir", "--input", "--html"} and {f.state for f in every} == {"fault"}


def test_wrong_prefixes(filled, tmp_path):
    every = found(tmp_path, dict(data_dir=filled.at("dat"), workdir=filled.at("ru"), init_from=filled.at("r")))
    assert len(faults(every)) == 2 and "s3://" in faults(every)[0] and "it holds no run yet" in told(every)
    assert "holds no complete data set" in faults(every)[0] and "no run is there" in faults(every)[1]
    every = found(tmp_path, dict(input=filled.at("logs"), workdir=filled.at("data")))
    assert len(faults(every)) == 2 and "nothing is there" in faults(every)[0] and "files but no run" in faults(every)[1]
    assert "no run is there" in faults(found(tmp_path, dict(workdir=filled.at("ru")), doctor_read_only=("workdir",)))[0]


def test_a_run_inside_a_data_set(filled, tmp_path):
    every = found(tmp_path, dict(data_dir=filled.at("data"), workdir=filled.at("data/run")))
    assert len(faults(every)) == 1 and "/data/run is inside --data_dir=s3://" in faults(every)[0]


def test_a_place_of_a_data_set_that_is_to_be_made(filled, tmp_path):
    values = dict(input=filled.at("data/train-*"), data_dir=filled.at("new"))
    assert not faults(found(tmp_path, values))
    filled("new").write(TRIAL + "left", b"by a doctor that was killed")
    assert not faults(found(tmp_path, values))
    filled("new").write("notes.txt", b"")
    assert "holds files that prepare did not write (notes.txt is one of 1)" in faults(found(tmp_path, values))[0]


def test_objects_that_are_missing_cut_or_changed_are_named(filled, tmp_path):
    shards = [name for name in filled("data").names() if name.startswith("train")]
    filled("data").delete(shards[0])
    filled("data").write(shards[1], filled("data").read(shards[1])[:-5])
    filled("data").write(shards[2], bytes(len(filled("data").read(shards[2]))))
    last = stored_list.read(filled("run"))[0].of("checkpoints")[-1]
    index = next(entry.name for name, entry in last.files.items() if name.endswith(".index"))
    filled("run").delete(index)
    quick, full = (faults(found(tmp_path, both(filled), doctor_mode=mode)) for mode in ("quick", "full"))
    assert len(quick) == 3 and f"{shards[0]} in --data_dir=" in quick[0] and "is missing though its list" in quick[0]
    assert shards[1] in quick[1] and "its list says" in quick[1] and f"checkpoint {last.prefix}: {index}" in quick[2]
    assert len(full) == 4 and shards[2] in full[2] and "sha256" in full[2]
    filled("run").delete("config.json")
    assert any("config.json is missing beside" in text for text in faults(found(tmp_path, both(filled))))
    filled("run").write(stored_list.LIST, b"{}")
    assert any("the list of checkpoints, is damaged" in text for text in faults(found(tmp_path, both(filled))))


def test_settings_and_data_that_differ_from_the_run(filled, tmp_path):
    assert faults(found(tmp_path, both(filled), given={"embedding_dim"}, embedding_dim=16)) == [
        "--embedding_dim=16 differs from 8, with which the run was started"]
    schema = json.loads(filled("data").read("schema.json"))
    filled("data").write("schema.json", json.dumps(schema | dict(num_users=3)).encode())
    texts = faults(found(tmp_path, both(filled)))
    assert len(texts) == 2 and f"{filled.at('data')}/schema.json was changed" in texts[0]
    assert f"--data_dir={filled.at('data')} (schema" in texts[1] and f"--workdir={filled.at('run')} was trained" in texts[1]


def test_bundles(filled, tmp_path):
    values = dict(export_dir=filled.at("export"))
    assert "version 2 is asked for" in faults(found(tmp_path, values, serve_version=2))[0]
    filled("export").write("serve_version", b"3")
    assert "version 3 is asked for" in faults(found(tmp_path, values))[0]
    filled("export").delete("serve_version")
    filled("export").delete("1/item_ids.npy")
    assert [text.partition(" in ")[0] for text in faults(found(tmp_path, values))] == ["item_ids.npy"]
    filled("export").write("1/manifest.json", b"{}")
    assert "manifest.json" in faults(found(tmp_path, dict(export_dir=filled.at("export/1"))))[0]
    every = found(tmp_path, dict(export_dir=filled.at("new")))
    assert not faults(every) and "it holds no bundle yet" in told(every)


def test_every_flag_that_takes_addresses_is_looked_at():
    commands = ("prepare", "train", "evaluate", "export", "retrieve", "update_index", "daily", "serve")
    taken = {flag for name in commands for flag in importlib.import_module(f"clrec_tf.{name}").STORES}
    assert {*store_checks.ADDRESSED} == taken | {"html"}


def test_a_lease_is_told_of_and_not_taken(filled, tmp_path):
    held = b'{"process": 7, "host": "there", "since": "noon", "seconds": 60, "token": "x"}'
    filled("run").write("in_use.json", held)
    notes = [finding.text for finding in found(tmp_path, both(filled)) if finding.state == "note"]
    assert len(notes) == 1 and notes[0].startswith("process 7 on host there since noon writes there")
    assert filled("run").read("in_use.json") == held


@pytest.mark.parametrize("method, fault, words", [
    ("PUT", s3_server.DENIED, "no permission"), ("PUT", s3_server.WRONG_KEY, "does not know these credentials"),
    ("POST", s3_server.DENIED, "was written and cannot be deleted again"),
    ("GET", (200, b"of a cache", {"ETag": '"1"'}), "that differ were read"),
    ("GET", (200, b"of a proxy"), "the answer has no ETag")])
def test_what_the_store_refuses(store, tmp_path, method, fault, words):
    store.faults.add(method, "?delete" if method == "POST" else TRIAL, fault)
    texts = faults(found(tmp_path, dict(workdir=store.at("run"))))
    assert len(texts) == 1 and words in texts[0]


def test_a_store_without_conditions_or_with_old_listings_is_noted(store, tmp_path, monkeypatch):
    from clrec_tf.stores import object_store  # pylint: disable=import-outside-toplevel
    monkeypatch.setattr(object_store.ObjectStore, "put", lambda self, key, content, mode=None: self._put(key, content, None))
    store.faults.add("GET", "list-type=2", s3_server.STALE)
    every = found(tmp_path, dict(workdir=store.at("run")))
    notes = [finding.text for finding in every if finding.check == "storage" and finding.state == "note"]
    assert not faults(every) and "not in the listing" in notes[0] and "no conditional writes" in notes[1]


def test_a_package_that_is_absent_is_a_fault(tmp_path, monkeypatch):
    monkeypatch.delattr("clrec_tf.stores.object_store", raising=False)
    monkeypatch.delitem(sys.modules, "clrec_tf.stores.object_store", raising=False)
    monkeypatch.setitem(sys.modules, "obstore", None)
    texts = faults(found(tmp_path, dict(input="gs://bucket/log.csv")))
    assert len(texts) == 1 and "needs the package obstore" in texts[0] and "'clrec_tf[stores]'" in texts[0]


@pytest.mark.long
def test_the_command_on_a_store_that_answers_and_on_a_silent_one(filled, tmp_path):
    flags = [f"--data_dir={filled.at('data')}", f"--workdir={filled.at('run')}", f"--cache_dir={tmp_path}/cache",
             f"--json={tmp_path}/found.json"]
    result = command(*flags)
    findings = json.loads((tmp_path / "found.json").read_text())
    assert result.returncode == 0 and findings["counts"]["fault"] == 0, result.stdout + result.stderr
    assert {"data", "run", "storage", "machine"} <= {finding["check"] for finding in findings["findings"]}
    assert "needs at least" in result.stdout  # memory, by the schema in the store
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(50)
        begun = time.monotonic()
        result = command(*flags, "--doctor_deadline_s=12", AWS_ENDPOINT_URL=f"http://127.0.0.1:{silent.getsockname()[1]}")
    assert result.returncode == 1 and time.monotonic() - begun < 60, result.stderr
    assert "did not answer" in result.stdout and "(doctor gave each request 4 s)" in result.stdout
