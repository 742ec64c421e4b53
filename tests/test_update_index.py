"""The update_index command: what it publishes is found or not found, and every way its input can be wrong."""
import json
import os
import pathlib
import shutil
import signal
import sys
import tempfile

import numpy as np
import polars as pl
import pytest

from clrec_tf.config import Config
from clrec_tf.config import ExportConfig
from clrec_tf.config import Paths
from clrec_tf.config import RetrieveConfig
from clrec_tf.config import UpdateConfig
from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.publishing.item_updates import read_upserts
from clrec_tf.publishing.update_files import read_deletions
from clrec_tf.retrieval.bundle import load_bundle
from clrec_tf.retrieval.saved_index import load_queries
from clrec_tf.retrieval.updated_index import UpdatedIndex
from clrec_tf import retrieve
from clrec_tf.system import json_files
from clrec_tf import update_index
from tests import exported
from tests import forked

A, B, C = (exported.original_id("string", number) for number in (3, 14, 15))
ITEMS = exported.ITEMS
X = np.eye(8)[0].tolist()


@pytest.fixture
def export_dir(tmp_path):
    """A folder with version 1 of strings and titles."""
    shutil.copytree(exported.bundle_folder("string"), tmp_path / "export" / "1")
    return tmp_path / "export"


def lines(path, *values):
    path.write_text("".join((value if isinstance(value, str) else json.dumps(value)) + "\n" for value in values))
    return str(path)


def update(export_dir, upsert=(), withdraw=(), target_recall=0.95):
    """Runs the command on the newest version; returns the new one, loaded."""
    folder = export_dir.parent
    settings = UpdateConfig(lines(folder / "items.jsonl", *upsert) if upsert else "",
                            lines(folder / "gone.txt", *withdraw) if withdraw else "")
    update_index.main(Config(paths=Paths(export_dir=str(export_dir)), update=settings,
                             export=ExportConfig(target_recall=target_recall)))
    return load_bundle(str(export_dir))


def versions(export_dir):
    """Numbers of the version folders, complete or not."""
    return sorted(int(name) for name in os.listdir(export_dir) if name.isdigit())


def found(bundle, vector, k=ITEMS + 9):
    """Ids and scores of the k nearest, as trained: at popularity 0."""
    positions, scores = bundle.index.search(np.array([[*vector[:8], 0.0]], np.float32), k)
    return bundle.item_ids[positions[0][positions[0] >= 0]].tolist(), scores[0].tolist()


def test_inserted_items_are_found_and_deleted_ones_are_not(export_dir, capsys):
    old = exported.loaded("string")
    vector = old.item_vectors(old.positions(np.array([C])))[0, :8]
    bundle = update(export_dir, [{"id": "new", "vector": (2 * vector).tolist(), "title": "New one"},
                                 {"id": "also new", "like": [A, B]}, {"id": B, "vector": X}], [A])
    assert capsys.readouterr().out == f"{export_dir}/2\n" and bundle.path == str(export_dir / "2")
    assert versions(export_dir) == [1, 2]
    ids, scores = found(bundle, vector)
    assert set(ids[:2]) == {C, "new"} and scores[:2] == pytest.approx([1, 1], abs=1e-5)  # normalized
    assert len(ids) == ITEMS + 1 and A not in ids and len(set(ids)) == len(ids)
    assert found(bundle, X)[0][0] == B and found(bundle, X)[1][0] == pytest.approx(1)
    mean = old.item_vectors(old.positions(np.array([A, B])))[:, :8].mean(axis=0)
    ids, scores = found(bundle, mean)
    assert ids[0] == "also new" and scores[0] == pytest.approx(np.linalg.norm(mean), abs=1e-5)
    assert bundle.titles[-2:].tolist() == ["New one", ""] and bundle.titles[:-2].tolist() == old.titles.tolist()
    assert bundle.item_ids.tolist() == old.item_ids.tolist() + ["new", "also new"]


def test_a_bundle_knows_what_is_live_and_what_counts_in_histories(export_dir):
    old, bundle = exported.loaded("string"), update(export_dir, [{"id": "new", "vector": X}], [A])
    ids = np.array([A, B, "new", "nowhere"])
    place = old.positions(ids)
    assert bundle.positions(ids).tolist() == [-1, place[1], ITEMS, -1]
    assert bundle.both_positions(ids)[1].tolist() == [place[0], place[1], -1, -1]
    assert bundle.all_positions(ids).tolist() == [place[0], place[1], ITEMS, -1]
    assert bundle.live.sum() == ITEMS and not bundle.live[place[0]]
    assert bundle.counts == dict(items=ITEMS, fresh=1, withdrawn=1)
    assert old.counts == dict(items=ITEMS, fresh=0, withdrawn=0)
    assert bundle.manifest["items"] == ITEMS + 1 and bundle.manifest["tower_items"] == ITEMS
    assert bundle.item_vectors() is bundle.item_vectors()
    inserted = [*X, bundle.dial.coordinate(0)]
    np.testing.assert_allclose(bundle.item_vectors(), np.append(old.item_vectors(), [inserted], axis=0), rtol=1e-6)
    np.testing.assert_allclose(bundle.item_vectors(np.array([ITEMS, 2])), [inserted, old.item_vectors()[2]], rtol=1e-6)
    assert np.shares_memory(old.item_vectors(), old.item_vectors()[1:])


def test_updates_of_updates(export_dir):
    update(export_dir, [{"id": "n1", "vector": X}], [A, B])
    bundle = update(export_dir, [{"id": A}, {"id": "n2", "like": ["n1", "n1"]}, {"id": C, "title": "T"}], ["n1"])
    assert bundle.path.endswith("3") and bundle.manifest["updated"] == dict(
        version=2, fresh=1, moved=0, returned=1, withdrawn=1, live=ITEMS)
    ids, _ = found(bundle, X)
    assert ids[0] == "n2" and "n1" not in ids and A in ids and B not in ids
    assert bundle.counts == dict(items=ITEMS, fresh=1, withdrawn=2)  # n2; B and n1
    assert bundle.titles[bundle.positions(np.array([C]))[0]] == "T"
    old = exported.loaded("string")
    np.testing.assert_array_equal(bundle.item_vectors()[:ITEMS], old.item_vectors())
    with pytest.raises(DataError, match="change nothing"):
        update(export_dir, [{"id": "n2", "like": ["n1"]}, {"id": C}], [B, "nowhere"])
    assert versions(export_dir) == [1, 2, 3]
    # The tower and the base's files are those of version 1, not copies.
    for name in ("saved_model.pb", "index/queries.npy"):
        assert os.path.samefile(export_dir / "1" / name, export_dir / "3" / name)
    assert os.path.samefile(export_dir / "1" / "index" / "vectors.npy", export_dir / "3" / "index/base/vectors.npy")
    # An older version can be the one that is changed.
    update_index.update_bundle(str(export_dir / "1"), "", lines(export_dir.parent / "g.txt", C), 0.9)
    assert load_bundle(str(export_dir)).manifest["updated"]["version"] == 1


def test_recall_is_measured_before_and_after_and_may_forbid(export_dir, monkeypatch, caplog):
    with caplog.at_level("INFO", logger="absl"):
        bundle = update(export_dir, [{"id": "n", "vector": X}], [A])
    assert "1.0000 before, 1.0000 after" in caplog.text
    measured = bundle.manifest["measured"]
    assert measured["recall"] == measured["recall_before"] == 1 and measured["users"] > 30
    queries = load_queries(os.path.join(bundle.path, "index"))
    assert queries.shape == (measured["users"], 9) and np.linalg.norm(queries, axis=1) == pytest.approx(1)
    assert not queries[:, 8].any()
    search = UpdatedIndex.search
    monkeypatch.setattr(UpdatedIndex, "search", lambda index, vectors, k: search(index, -vectors, k))
    with pytest.raises(DataError, match=r"has recall@\d+ = 0.\d+, before 0.\d+, at popularity .*, --target_recall=0.95 is"):
        update(export_dir, withdraw=[B])
    monkeypatch.setattr(UpdatedIndex, "search", lambda index, vectors, k: index.base.search(vectors, k))
    with pytest.raises(DataError, match="gives items that were deleted"):
        update(export_dir, withdraw=[B])
    assert versions(export_dir) == [1, 2]


def test_the_index_of_scann_is_updated(tmp_path):
    exported.world("int").export(tmp_path / "export", index="scann")
    gone = [exported.original_id("int", number) for number in range(1, 31)]
    bundle = update(tmp_path / "export", [{"id": 7, "vector": [3.0] * 8}], gone)
    assert bundle.manifest["index"]["base"]["kind"] == "scann" and not bundle.index.is_exact
    ids, scores = found(bundle, [1] * 8)
    assert ids[0] == 7 and scores[0] == 24 and len(ids) == 31 and not set(ids) & set(gone)
    assert bundle.item_ids.dtype == np.int64 and bundle.titles is None
    moved = shutil.move(tmp_path / "export", tmp_path / "elsewhere")
    assert found(load_bundle(moved), [1] * 8) == (ids, scores)


def test_parquet_equals_json(tmp_path):
    bundle = exported.loaded("string")
    rows = [{"id": "n", "vector": X, "like": None, "title": "T"},
            {"id": "m", "vector": None, "like": [A], "title": None}]
    pl.DataFrame(rows).with_columns(other=1).write_parquet(tmp_path / "items.parquet")
    table, objects = (read_upserts(path, bundle) for path in (str(tmp_path / "items.parquet"),
                                                              lines(tmp_path / "items.jsonl", *rows)))
    np.testing.assert_array_equal(table.vectors, objects.vectors)
    assert table.ids.tolist() == objects.ids.tolist() == ["n", "m"]
    assert table.titles == objects.titles == ["T", None]
    pl.DataFrame({"id": ["n"], "vector": pl.Series([X], dtype=pl.Array(pl.Float32, 8))}).write_parquet(
        tmp_path / "array.parquet")
    np.testing.assert_allclose(read_upserts(str(tmp_path / "array.parquet"), bundle).vectors,
                               [[*X, bundle.dial.coordinate(0)]])
    with pytest.raises(DataError, match="items.parquet, row 2: like names 'ä 3'"):
        read_upserts(str(tmp_path / "items.parquet"), type("Without", (), dict(
            manifest=bundle.manifest, attributes=bundle.attributes, dial=bundle.dial, width=bundle.width,
            id_array=lambda self, ids: ids,
            all_positions=lambda self, ids: np.full(len(ids), -1)))())


def item_updates_of(bundle, *values):
    """What is read of a file of such lines."""
    with tempfile.TemporaryDirectory() as folder:
        return read_upserts(lines(pathlib.Path(folder) / "items.jsonl", *values), bundle)


@pytest.mark.parametrize("bad, words", [
    ({"id": "n", "like": [A, "zz"]}, "line 2: like names 'zz', which the bundle does not have: name items"),
    ({"id": "n", "like": []}, "line 2: like must be a list of at least one"),
    ({"id": "n", "vector": X[:5]}, "line 2: vector has 5 numbers, those of this bundle have 8"),
    ({"id": "n", "vector": X[:7] + [float("nan")]}, r"line 2: vector\[7\] = nan is not finite"),
    ({"id": "n", "vector": X[:7] + [1e39]}, r"line 2: vector\[7\] = 1e\+39 is not finite"),
    ({"id": "n", "vector": X[:7] + [10**400]}, r"line 2: vector\[7\] = 1000.* is not finite"),
    ({"id": "n", "vector": [0.0] * 8}, "line 2: vector has a norm of 0.0e.00, too small"),
    ({"id": "n", "vector": ["1"] * 8}, "line 2: vector must be a list of 8 numbers"),
    ({"id": "n", "vector": X, "like": [A]}, "line 2 has both"),
    ({"id": "n"}, "line 2: item 'n' is new and has neither"),
    ({"id": A, "vector": X}, "line 2: item 'ä 3' stands at .*items.jsonl, line 1 already: leave one"),
    ({"id": 7, "vector": X}, "line 2: item ids of this bundle are strings, got 7"),
    ({"id": "a\nb", "vector": X}, "line 2: item id .* must have 1 to 512 characters"),
    ({"id": "n", "vector": X, "title": 3}, "line 2: title 3 must be a string"),
    ({"id": "n", "vektor": X}, "line 2 has the unknown entry 'vektor'"), ({"vector": X}, "line 2 has no id"),
    ("{", "line 2 is not JSON")])
def test_bad_items_are_named(export_dir, bad, words):
    with pytest.raises(DataError, match=words):
        update(export_dir, [{"id": A, "like": [B]}, bad])
    assert versions(export_dir) == [1]


def test_an_id_like_padding_cannot_be_added():
    bundle = exported.loaded("int")
    for bad in (-1, -7):
        with pytest.raises(DataError, match=f"line 1: item id {bad} must not be negative, since -1 is padding"):
            item_updates_of(bundle, {"id": bad, "vector": X})
    assert item_updates_of(bundle, {"id": 0, "vector": X}).ids.tolist() == [0]


def test_deletions_that_cannot_be_done(export_dir, caplog, tmp_path):
    bundle = update(export_dir, withdraw=["zz", B, B, "yy"])
    assert "names 2 of 3 items that the bundle does not have, such as ['zz', 'yy']" in caplog.text
    assert bundle.live.sum() == ITEMS - 1
    with pytest.raises(DataError, match="both name 1 items, such as 'ä 3': leave them in one"):
        update(export_dir, [{"id": A, "vector": X}], [A])
    with pytest.raises(DataError, match="leaves no item"):
        update(export_dir, withdraw=bundle.item_ids.tolist())
    assert update(export_dir, [{"id": "n", "vector": X}], bundle.item_ids.tolist()).live.sum() == 1
    for bad in ("x", "1_0"):  # to Python alone the latter is 10
        (tmp_path / "ids.txt").write_text(f"7\r\n\n8\n{bad}\n")
        with pytest.raises(DataError, match=f"ids.txt, line 4: item ids of this bundle are integers, got '{bad}'"):
            read_deletions(str(tmp_path / "ids.txt"), "int")
    (tmp_path / "ids.txt").write_bytes(b"7\n\xff\n")
    with pytest.raises(DataError, match="ids.txt, line 2 is not UTF-8"):
        read_deletions(str(tmp_path / "ids.txt"), "string")


def test_settings_that_do_nothing(export_dir):
    run = lambda **settings: update_index.main(Config(paths=Paths(export_dir=str(export_dir)),
                                                      update=UpdateConfig(**settings)))
    with pytest.raises(UserError, match="neither --upsert nor --withdraw"):
        run()
    with pytest.raises(UserError, match="--upsert=items.csv: the name must end in .jsonl or .parquet"):
        run(upsert="items.csv")
    with pytest.raises(UserError, match="nowhere.jsonl cannot be read"):
        run(upsert="nowhere.jsonl")
    os.remove(export_dir / "1" / "index" / "queries.npy")
    manifest = json.loads((export_dir / "1" / "manifest.json").read_text())
    del manifest["files"]["index/queries.npy"]
    manifest = json_files.sealed(manifest)
    (export_dir / "1" / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(DataError, match="held-out users on whom recall is measured, cannot be read .*: export again"):
        run(withdraw="x")


def test_a_large_update_is_warned_of(export_dir, caplog, monkeypatch):
    update(export_dir, withdraw=exported.loaded("string").item_ids[:ITEMS * 3 // 10].tolist())
    assert "train and export again" not in caplog.text
    update(export_dir, withdraw=exported.loaded("string").item_ids[-1:].tolist())
    assert f"and {ITEMS * 3 // 10 + 1} deleted items beside {ITEMS} of the export" in caplog.text


KILLED = """
import os, signal, sys
from clrec_tf.publishing import update_bundle
update_bundle.write_manifest = lambda folder, facts: os.kill(os.getpid(), signal.SIGKILL)
update_bundle.update_bundle(sys.argv[1], "", sys.argv[2], 0.9)
"""


def test_a_killed_update_leaves_no_version_and_the_next_one_tidies_up(export_dir):
    gone = lines(export_dir.parent / "gone.txt", A)
    killed = forked.run([sys.executable, "-c", KILLED, str(export_dir), gone], check=False, capture_output=True,
                        text=True, cwd=pathlib.Path(__file__).parents[1])
    assert killed.returncode == -signal.SIGKILL, killed.stderr[-2000:]
    assert versions(export_dir) == [1] and list(export_dir.glob("2.incomplete-*"))
    assert load_bundle(str(export_dir)).path == str(export_dir / "1")
    assert update(export_dir, withdraw=[A]).path == str(export_dir / "2")
    assert versions(export_dir) == [1, 2] and not list(export_dir.glob("2.incomplete-*"))


def test_the_command_itself_and_retrieval_after_it(export_dir, capsys):
    def retrieved(*more):
        settings = RetrieveConfig(history=",".join((C, B, *more)), k=5)
        retrieve.main(Config(paths=Paths(export_dir=str(export_dir)), retrieve=settings))
        return json.loads(capsys.readouterr().out)
    first = retrieved()["ids"]
    vector = exported.loaded("string").item_vectors(exported.loaded("string").positions(np.array(first[:1])))[0]
    items = lines(export_dir.parent / "items.jsonl", {"id": "new", "vector": vector.tolist(), "title": "Neu"})
    gone = lines(export_dir.parent / "gone.txt", first[1])
    updated = forked.run([sys.executable, "-m", "clrec_tf.update_index", f"--export_dir={export_dir}",
                          f"--upsert={items}", f"--withdraw={gone}"], check=False, capture_output=True, text=True,
                         cwd=pathlib.Path(__file__).parents[1])
    assert updated.returncode == 0 and updated.stdout == f"{export_dir}/2\n", updated.stderr[-2000:]
    after = retrieved()
    assert set(after["ids"][:2]) == {first[0], "new"} and after["ids"][2:] == first[2:]
    assert after["titles"][after["ids"].index("new")] == "Neu"
    assert retrieved("new") == after | {"unknown": ["new"]}  # the tower has no vector of it
