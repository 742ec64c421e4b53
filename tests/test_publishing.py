"""Several processes publish in one folder of versions: nothing is lost, and what was deleted stays deleted."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from clrec_tf.errors import BusyError
from clrec_tf.errors import DataError
from clrec_tf.publishing import export_bundle
from clrec_tf.publishing import one_publisher
from clrec_tf.publishing import update_bundle
from clrec_tf.retrieval.bundle import load_bundle
from clrec_tf.retrieval.bundle_files import DELETED_IDS_FILE
from clrec_tf.system import json_files
from clrec_tf import update_index
from tests import exported
from tests import forked

A, B, C = (exported.original_id("string", number) for number in (3, 14, 15))
X = np.eye(8)[0].tolist()


@pytest.fixture(name="export_dir")
def fixture_export_dir(tmp_path):
    shutil.copytree(exported.bundle_folder("string"), tmp_path / "export" / "1")
    return tmp_path / "export"


def update(export_dir, upsert=(), withdraw=()):
    """A new version of the newest; its folder."""
    names = {}
    for flag, values in (("upsert", upsert), ("withdraw", withdraw)):
        names[flag] = str(export_dir.parent / f"{flag}{time.monotonic_ns()}.jsonl") if values else ""
        if values:
            lines = [value if isinstance(value, str) else json.dumps(value) for value in values]
            pathlib.Path(names[flag]).write_text("\n".join(lines))
    return update_index.update_bundle(str(export_dir), target_recall=0.9, **names)


def versions(export_dir):
    return sorted(int(path.name) for path in export_dir.iterdir() if path.is_dir())


def withheld(folder):
    """Ids that a version does not find, and those it keeps as deleted."""
    bundle = load_bundle(str(folder))
    return set(bundle.item_ids[~bundle.live].tolist()), set(np.load(pathlib.Path(folder) / DELETED_IDS_FILE).tolist())


def test_two_updates_at_once_both_count(export_dir):
    (export_dir.parent / "a.txt").write_text(A)
    (export_dir.parent / "b.txt").write_text(B)
    command = [sys.executable, "-m", "clrec_tf.update_index", f"--export_dir={export_dir}", "--target_recall=0.9"]
    both = [forked.Popen([*command, f"--withdraw={export_dir.parent}/{name}.txt"], stderr=subprocess.PIPE,
                         text=True, cwd=pathlib.Path(__file__).parents[1]) for name in "ab"]
    texts = [process.communicate(timeout=200)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], texts
    assert sorted(os.listdir(export_dir)) == ["1", "2", "3"]
    assert withheld(export_dir / "3") == ({A, B}, {A, B})


def test_an_update_waits_for_whoever_publishes(export_dir, caplog):
    done = []
    with one_publisher.publishing(str(export_dir)):
        thread = threading.Thread(target=lambda: done.append(update(export_dir, withdraw=[A])))
        thread.start()
        while "waiting for process" not in caplog.text:
            assert thread.is_alive()
            time.sleep(0.02)
        assert not done and f"process {os.getpid()} on host" in caplog.text
        shutil.copytree(export_dir / "1", export_dir / "2")  # the other's
    thread.join(60)
    assert done == [str(export_dir / "3")] and load_bundle(done[0]).manifest["updated"]["version"] == 1
    assert not (export_dir / one_publisher.LOCK_FILE).exists()


@pytest.mark.parametrize("module, name, make", [
    (update_bundle, "measure_update", lambda folder: update(folder, withdraw=[A])),
    (export_bundle, "check_tower_and_index", lambda folder: exported.world("string").export(folder))])
def test_what_was_made_from_an_older_version_is_not_published(export_dir, monkeypatch, module, name, make):
    """As without locks: somebody else publishes in the middle."""
    measure = getattr(module, name)

    def disturbed(*arguments):
        shutil.copytree(export_dir / "1", export_dir / "7")
        return measure(*arguments)

    monkeypatch.setattr(module, name, disturbed)
    with pytest.raises(BusyError, match="version 7 is the newest now, it was 1 when this one was begun.*run again"):
        make(export_dir)
    assert versions(export_dir) == [1, 7]


def test_what_is_deleted_outlives_exports(export_dir, caplog):
    update(export_dir, [{"id": "added", "vector": X}], [A, B, "not yet known"])
    assert withheld(export_dir / "2") == ({A, B}, {A, B, "not yet known"})
    folder = exported.world("string").export(export_dir)
    assert folder == str(export_dir / "3") and withheld(folder) == ({A, B}, {A, B, "not yet known"})
    assert "3 items deleted from" in caplog.text and "stay deleted, 2 of them in this catalogue" in caplog.text
    assert "1 items that were inserted into" in caplog.text
    bundle = load_bundle(folder)
    found, _ = bundle.index.search(bundle.item_vectors()[:5], exported.ITEMS)
    assert not {A, B} & set(bundle.item_ids[found[found >= 0]].tolist())
    assert bundle.manifest["measured"]["recall"] >= 0.95
    # An update may bring one back, and the next export knows of it.
    update(export_dir, [{"id": B}, {"id": "not yet known", "vector": X}])
    assert withheld(export_dir / "4") == ({A}, {A}) and withheld(export_dir / "3")[1] == {A, B, "not yet known"}
    assert withheld(exported.world("string").export(export_dir))[0] == {A}
    forgotten = load_bundle(exported.world("string").export(export_dir, forget_updates=True))
    assert forgotten.live.all() and not os.path.exists(os.path.join(forgotten.path, DELETED_IDS_FILE))
    assert load_bundle(exported.world("string").export(export_dir)).live.all()


def test_versions_updated_before_ids_were_kept(export_dir):
    folder = pathlib.Path(update(export_dir, withdraw=[A]))
    manifest = json_files.unsealed(json.loads((folder / "manifest.json").read_text()))  # older ones have no seal
    del manifest["files"][DELETED_IDS_FILE]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / DELETED_IDS_FILE).unlink()
    assert withheld(exported.world("string").export(export_dir)) == ({A}, {A})


def test_deletions_that_cannot_be_carried_over(export_dir, tmp_path):
    folder = update(export_dir, withdraw=[A])
    with pytest.raises(DataError, match="by ids of another type.*--forget_updates"):
        exported.world("int").export(export_dir)
    assert exported.world("int").export(export_dir, forget_updates=True) == str(export_dir / "3")
    shutil.rmtree(export_dir / "3")
    pathlib.Path(folder, DELETED_IDS_FILE).write_bytes(b"spoiled")
    with pytest.raises(DataError, match=f"{DELETED_IDS_FILE} differs from the manifest"):
        exported.world("string").export(export_dir)
    assert versions(export_dir) == [1, 2]


def test_a_version_made_from_an_older_one_on_purpose_says_what_it_replaces(export_dir, caplog):
    update(export_dir, withdraw=[A])
    assert "takes the place" not in caplog.text
    (export_dir.parent / "gone.txt").write_text(B)
    update_index.update_bundle(str(export_dir / "1"), "", str(export_dir.parent / "gone.txt"), 0.9)
    assert f"{export_dir}/3 was made from version 1, and takes the place of version 2" in caplog.text
    assert withheld(export_dir / "3") == ({B}, {B})


@pytest.mark.usefixtures("without_locks")
def test_without_locks_it_says_so(export_dir, caplog):
    with one_publisher.publishing(str(export_dir)):
        pass
    assert "has no locks: publish there from one process at a time" in caplog.text
