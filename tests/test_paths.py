"""Paths that a person gives: addresses are refused, `~` is expanded, and folders may be called what they like."""
import dataclasses
import os
import shutil
import sys
import types

import numpy as np
import polars as pl
import pytest

from clrec_tf.command_line import all_sections
from clrec_tf.config import Config
from clrec_tf.config import Paths
from clrec_tf.config import PrepareConfig
from clrec_tf.data.catalogue import read_catalogue
from clrec_tf.data import schema as schema_lib
from clrec_tf.errors import UserError
from clrec_tf.evaluate import evaluate
from clrec_tf.export import export
from clrec_tf.prepare import prepare
from clrec_tf.publishing import export_bundle
from clrec_tf.retrieval.bundle import load_bundle
from clrec_tf.retrieval.saved_index import load_index
from clrec_tf.retrieval.saved_index import save_index
from clrec_tf.retrieval.scann_index import ScannIndex
from clrec_tf.retrieval.user_requests import read_parquet
from clrec_tf.settings.serving import ExportConfig
from clrec_tf.settings.setting import help_of
from clrec_tf.training.checkpoints import find_checkpoint
from clrec_tf.training.cluster.cluster_runtime import ClusterRuntime
from tests import exported
from tests import forked
from tests import small_run

FIELDS = [(section, field) for section in all_sections().values() for field in dataclasses.fields(section)]
PATHS = [(section, field.name) for section, field in FIELDS if field.metadata["path"]]
ELSEWHERE = {"serving_base_path"}  # of another machine, which may read object stores
NAME = "runs [1]*?"  # TensorFlow and Polars would take it for a pattern


def test_every_setting_that_is_a_file_or_a_folder_is_known_to_be_one():
    named = {field.name for _, field in FIELDS if field.type is str and any(
        help_of(field).startswith(word) for word in ("File", "Folder", "Text file", "Matrix file", "Path of"))}
    assert named - ELSEWHERE - {name for _, name in PATHS} == set() and len(named) > 15
    assert {"input", "impressions", "dense_features", "eval_checkpoint", "export_checkpoint"} <= {n for _, n in PATHS}


@pytest.mark.parametrize("section, name", PATHS)
def test_addresses_are_refused_and_home_folders_found(section, name, monkeypatch):
    monkeypatch.setenv("HOME", "/home/somebody")
    for address in ("gs://bucket/data", "s3a://b/x", "hdfs://namenode:8020/logs", "dbfs:/logs", "https://host/x.csv"):
        scheme = address.split("/")[0] + "/"
        with pytest.raises(UserError, match=f"--{name}={address}: .* file systems of this machine only, and {scheme}"):
            section(**{name: address})
    with pytest.raises(UserError, match=f"--{name}=file:///data/x: give the path alone, /data/x"):
        section(**{name: "file:///data/x"})
    with pytest.raises(UserError, match=f"--{name}=~nobody-here/x: no user of this machine is called 'nobody-here'"):
        section(**{name: "~nobody-here/x"})
    for given, found in (("~/x", "/home/somebody/x"), ("~", "/home/somebody"), ("./~/x", "./~/x"), ("c:/x", "c:/x"),
                         ("a b[1]/x", "a b[1]/x"), ("", ""), ("best", "best"), ("x/gs://y", "x/gs://y")):
        assert getattr(section(**{name: given}), name) == found


def test_a_folder_that_is_called_like_a_user_is_found(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkdir("~nobody-here")
    assert Paths(data_dir="~nobody-here/x").data_dir == "~nobody-here/x"


def test_a_server_may_read_an_object_store():
    assert ExportConfig(serving_base_path="gs://bucket/models").serving_base_path == "gs://bucket/models"


def test_the_command_makes_no_folder_of_an_address(tmp_path):
    (tmp_path / "log.csv").write_text(small_run.click_log())
    done = forked.run(
        [sys.executable, "-m", "clrec_tf.prepare", "--input=~/log.csv", "--data_dir=abfs://bucket/data"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": os.getcwd(), "HOME": str(tmp_path)})
    assert done.returncode == 2 and "error: --data_dir=abfs://bucket/data: no store of this" in done.stderr
    assert "Traceback" not in done.stderr and "s3:" not in os.listdir(tmp_path)


def test_a_folder_may_be_called_like_a_pattern_from_the_log_to_the_bundle(tmp_path):
    home = tmp_path / NAME
    home.mkdir()
    folder = small_run.prepared(home)
    settings = small_run.config(folder, home / "run", epochs=1, checkpoint_every_steps=3, keep_checkpoints=2,
                                validate_every=0.25)
    assert small_run.run(settings) == 0
    last = max(small_run.losses(home / "run"))
    assert find_checkpoint(str(home / "run"), "latest") == str(home / "run" / "checkpoints" / f"step-{last}")
    for part, kept in (("checkpoints", 2), ("best", 1)):  # the others are gone from the disk
        assert sum(name.endswith(".index") for name in os.listdir(home / "run" / part)) == kept
        assert sum(".data-" in name for name in os.listdir(home / "run" / part)) == kept

    longer = dataclasses.replace(settings, train=dataclasses.replace(settings.train, epochs=2))
    assert small_run.run(longer) == 0 and min(small_run.losses(home / "run")) == 1  # gone on, not begun anew
    elsewhere = small_run.config(folder, tmp_path / "plain", epochs=2, checkpoint_every_steps=3, keep_checkpoints=2,
                                 validate_every=0.25)
    small_run.run(elsewhere)
    assert small_run.losses(home / "run") == small_run.losses(tmp_path / "plain")

    found = evaluate(longer)
    assert found["hr@10/full"] == evaluate(elsewhere)["hr@10/full"]
    version = export(longer)
    assert version == str(home / "run" / "export" / "1")
    bundle = load_bundle(str(home / "run" / "export"))
    assert len(bundle.user_intents(np.array([[1, 2]]), np.zeros((1, 2)), np.zeros(1)).vectors) == 1


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_file_called_like_a_pattern_is_read_and_no_other(tmp_path, ending):
    right, decoy = tmp_path / f"log[12].{ending}", tmp_path / f"log1.{ending}"
    for path, item in ((right, 7), (decoy, 8)):
        frame = pl.DataFrame({"user_id": [1, 1, 1, 2, 2, 2], "item_id": [item] * 6, "timestamp": [1_600_000_000] * 6})
        frame.write_csv(path) if ending == "csv" else frame.write_parquet(path)
    prepare(Config(paths=Paths(data_dir=str(tmp_path / "data")),
                   prepare=PrepareConfig(input=str(right), min_train_length=1)))
    schema, manifest = schema_lib.load_schema(str(tmp_path / "data")), schema_lib.load_manifest(str(tmp_path / "data"))
    assert read_catalogue(str(tmp_path / "data"), schema, manifest).original_ids.tolist() == [7]


def test_users_in_a_file_called_like_a_pattern_are_read(tmp_path):
    for name, item in (("users[1].parquet", 7), ("users1.parquet", 8)):
        pl.DataFrame({"user_id": [1], "history": [[item]]}).write_parquet(tmp_path / name)
    assert [request.history for request in read_parquet(str(tmp_path / "users[1].parquet"), "int")] == [[7]]


def test_an_index_of_scann_is_read_from_such_a_folder(tmp_path):
    vectors = np.random.default_rng(0).normal(size=(200, 8)).astype(np.float32)
    (tmp_path / NAME).mkdir()
    index = ScannIndex.build(vectors, 10, spherical=False)
    save_index(str(tmp_path / NAME / "index"), index, "abc")
    again, _ = load_index(str(tmp_path / NAME / "index"))
    assert again.search(vectors[:5], 1)[0].ravel().tolist() == index.search(vectors[:5], 1)[0].ravel().tolist()


def test_a_cluster_refuses_a_folder_that_its_servers_could_not_read_from(tmp_path):
    settings = small_run.config(str(tmp_path / "data"), tmp_path / NAME)
    with pytest.raises(UserError, match="--workdir=.*parameter servers would take .* for a pattern"):
        ClusterRuntime(types.SimpleNamespace(addresses={}), settings)


def test_an_export_that_came_second_says_so(tmp_path, monkeypatch):
    world, place = exported.world("int"), tmp_path / "models"
    check, other = export_bundle.check_lists, exported.bundle_folder("int")

    def meanwhile(*arguments):  # another export into the same folder, begun later and done earlier
        shutil.copytree(other, place / "1")
        check(*arguments)
    monkeypatch.setattr(export_bundle, "check_lists", meanwhile)
    world.export(place)  # which takes the next number, and knows that it does
    assert load_bundle(str(place)).path == str(place / "2")
    monkeypatch.undo()
    write = export_bundle._write

    def beside(*arguments):  # one that has no lock, as on file systems without them
        shutil.copytree(other, place / "7")
        write(*arguments)
    monkeypatch.setattr(export_bundle, "_write", beside)
    with pytest.raises(UserError, match=f"--export_dir={place}: version 7 is the newest now, it was 2 when this one was"):
        world.export(place)
    monkeypatch.undo()
    assert load_bundle(str(place)).path == str(place / "7")
    assert world.export(place) == str(place / "8")
