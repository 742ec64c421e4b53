"""Which folder is meant by --export_dir, and what counts as a version in it."""
import os
import pathlib
import shutil

import pytest

from clrec_tf.config import Config
from clrec_tf.config import Paths
from clrec_tf.config import RetrieveConfig
from clrec_tf.config import ServeConfig
from clrec_tf.config import UpdateConfig
from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.retrieval.bundle import load_bundle
from clrec_tf.retrieval.export_folder import checked_export_dir
from clrec_tf.retrieval.export_folder import complete_versions
from clrec_tf import retrieve
from clrec_tf import serve
from clrec_tf import update_index
from tests import exported

COMMANDS = [serve, retrieve, update_index]


def start(module, export_dir, **serving):
    module.main(Config(paths=Paths(export_dir=str(export_dir)), retrieve=RetrieveConfig(history="1021"),
                       update=UpdateConfig(upsert="nowhere.jsonl"), serve=ServeConfig(**serving)))


@pytest.fixture
def run(tmp_path):
    """The folder of a run with versions 1 and 2."""
    for number in (1, 2):
        shutil.copytree(exported.bundle_folder("int"), tmp_path / "run" / "export" / str(number))
    return tmp_path / "run"


def test_a_version_itself_is_not_what_is_served(run, monkeypatch):
    for export_dir in (run / "export" / "2", f"{run}/export/2/"):
        with pytest.raises(UserError) as told:
            start(serve, export_dir)
        assert str(told.value) == (f"--export_dir={export_dir} is version 2 itself: give the folder that holds it, "
                                   f"--export_dir={run}/export, and --serve_version=2")
    monkeypatch.chdir(run / "export" / "2")
    with pytest.raises(UserError, match=r"--export_dir=\.\., and --serve_version=2"):
        start(serve, ".")
    os.rename(run / "export" / "2", run / "export" / "copy")
    with pytest.raises(UserError, match="is itself a version: give a folder that holds it under a number"):
        start(serve, run / "export" / "copy")


def test_a_version_itself_can_be_searched_and_changed(run, capsys):
    start(retrieve, run / "export" / "1")
    assert '"ids"' in capsys.readouterr().out
    assert checked_export_dir(str(run / "export" / "1"), may_be_version=True) == str(run / "export" / "1")


@pytest.mark.parametrize("module", COMMANDS)
def test_the_folder_of_a_run_is_told_from_that_of_its_bundles(run, module):
    with pytest.raises(UserError, match=f"--export_dir={run} is the folder of a run: give --export_dir={run}/export$"):
        start(module, run)


@pytest.mark.parametrize("module", COMMANDS)
def test_what_searches_by_operations_of_scann_is_no_bundle(module):
    folder = pathlib.Path(exported.scann_folder("int"))
    for export_dir in (folder, folder.parent):
        with pytest.raises(UserError, match=f"--export_dir={export_dir} holds what --scann_export_dir wrote"):
            start(module, export_dir)


@pytest.mark.parametrize("module", [retrieve, update_index])  # serve: see test_versions
def test_a_folder_without_anything_is_named(tmp_path, module):
    for export_dir in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(DataError, match=f"--export_dir={export_dir} holds no complete"):
            start(module, export_dir)


def test_a_name_like_a_number_is_no_version(run):
    export_dir = run / "export"
    for name in ("²", "٣"):
        shutil.copytree(export_dir / "1", export_dir / name)
    assert complete_versions(str(export_dir)) == [1, 2]
    assert load_bundle(str(export_dir)).path == str(export_dir / "2")
    (run / "gone.txt").write_text("1021\n")
    update_index.update_bundle(str(export_dir), "", str(run / "gone.txt"), 0.9)
    assert complete_versions(str(export_dir)) == [1, 2, 3]
    assert exported.world("int").export(export_dir) == str(export_dir / "4")


@pytest.mark.parametrize("name", ["a/b", "a:b", ""])
def test_a_name_that_does_not_fit_into_an_address_is_refused(run, name):
    with pytest.raises(UserError, match=f"--model_name={name}: it is part of an address"):
        start(serve, run / "export", model_name=name)
