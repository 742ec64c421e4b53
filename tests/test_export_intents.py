"""Export of a model of several intents: what it proves, and what it leaves behind."""
import dataclasses
import json
import os
import re

import numpy as np
import pytest
import tensorflow as tf

from clrec_tf.errors import DataError
from clrec_tf.export import export
from clrec_tf.publishing import bundle_checks
from clrec_tf.publishing.candidates import scales_between
from clrec_tf.publishing import export_bundle
from clrec_tf.publishing.item_updates import read_upserts
from clrec_tf.retrieval.bundle import load_bundle
from clrec_tf.retrieval.bundle_files import IDS_FILE
from clrec_tf.retrieval.bundle_files import MODEL_FILE
from clrec_tf.retrieval.manifest import read_manifest
from clrec_tf.retrieval.manifest import write_manifest
from clrec_tf.retrieval.show import show
from tests import exported
from tests import small_run

USERS = 50


def test_a_published_version_says_how_many_intents_it_has():
    bundle, world = exported.loaded(exported.MULTI), exported.world(exported.MULTI)
    facts = dict(format_version=4, intents=exported.INTENTS, served_intents=exported.INTENTS, intent_coordinates=7, uses_dwell=True, uses_time=True, dimension=8, similarity="cosine")
    assert facts.items() <= bundle.manifest.items()
    assert bundle.manifest["measured"]["recall"] == 1 and bundle.manifest["measured"]["parity_difference"] <= 2e-6
    order = np.argsort(-world.catalogue.counts, kind="stable")
    items = world.model.score_vectors(world.model.item_vectors(world.catalogue.item_rows[order])).numpy()
    np.testing.assert_allclose(bundle.item_vectors()[:, :8], items, atol=1e-6)
    assert bundle.item_vectors().shape[1] == bundle.width == 16 and (bundle.item_vectors()[:, 14] == 1).all()
    routes = world.model.route(world.catalogue.item_rows[order]).numpy()
    np.testing.assert_allclose(bundle.item_vectors()[:, 8:14], np.sqrt(.07 * 7) * np.eye(6)[routes], rtol=1e-6)


def test_an_older_manifest_searches_four_intents_of_vectors_without_coordinates(tmp_path):
    """As bundles of before all vectors were searched."""
    for intents, served in ((6, 4), (3, 3), (1, 1)):
        facts = dict(checkpoint_hash="0", id_type="int", items=1, max_history=2, uses_time=False, titles=False,
                     intents=intents)
        for name in (MODEL_FILE, IDS_FILE):
            (tmp_path / name).write_bytes(b"")
        write_manifest(str(tmp_path), facts)
        found = read_manifest(str(tmp_path))
        assert (found["served_intents"], found["intent_coordinates"], found["format_version"]) == (served, 0, 3)


def test_histories_and_candidates_have_matrices_of_their_own_and_item_tables_stay_behind():
    folder = exported.bundle_folder(exported.MULTI)
    shapes = [shape for _, shape in tf.train.list_variables(os.path.join(folder, "variables", "variables"))]
    assert [exported.ITEMS, 16] in shapes and [exported.ITEMS, 15] in shapes
    assert not [shape for shape in shapes if shape[:1] in ([9], [1 + exported.ITEMS + exported.BUCKETS])]


def test_one_matrix_serves_both_where_one_is_the_other_scaled():
    rng = np.random.default_rng(0)
    items = rng.standard_normal((9, 4)).astype(np.float32)
    items[3] = 0
    norms = np.linalg.norm(items, axis=1)
    unit = items / np.maximum(norms, 1e-9)[:, None]
    scales = scales_between(items, unit)
    assert scales[3] == 0 and scales[:3] == pytest.approx(1 / norms[:3])
    assert scales_between(items, items) == pytest.approx(np.where(norms > 0, 1, 0))
    assert scales_between(items, -unit) is None and scales_between(items, unit[:, :3]) is None
    assert scales_between(items, unit + 1e-4) is None
    assert scales_between(np.zeros_like(items), items) is None


def changed(name, change):
    """`held_out_users` as if the live model gave something else."""
    honest = export_bundle.held_out_users

    def held_out_users(*arguments):
        users = honest(*arguments)
        values = getattr(users.intents, name).copy()
        change(values)
        return dataclasses.replace(users, intents=dataclasses.replace(users.intents, **{name: values}))
    return held_out_users


@pytest.mark.parametrize("name", ["vectors", "weights", "numbers"])
def test_parity_covers_every_intent(name, tmp_path, monkeypatch):
    def last_of_one_user(values):
        values[7, -1] += 1 if name == "numbers" else 1e-3
    monkeypatch.setattr(export_bundle, "held_out_users", changed(name, last_of_one_user))
    with pytest.raises(DataError, match="loaded and live user vectors of .* users differ by up to"):
        exported.world(exported.MULTI).export(tmp_path)
    assert os.listdir(tmp_path) == []


def test_the_order_of_almost_equal_weights_is_no_difference(tmp_path, monkeypatch):
    for name in ("vectors", "weights", "numbers"):
        def swap(values):
            values[:, [2, 3]] = values[:, [3, 2]]
        monkeypatch.setattr(export_bundle, "held_out_users", changed(name, swap))
    exported.world(exported.MULTI).export(tmp_path)
    assert "1" in os.listdir(tmp_path)


def test_recall_is_measured_on_all_intents(tmp_path, monkeypatch):
    asked, held_out, honest = {}, [], export_bundle.held_out_users
    monkeypatch.setattr(export_bundle, "held_out_users", lambda *a: held_out.append(honest(*a)) or held_out[0])
    for module, name in ((export_bundle, "build_index"), (bundle_checks, "measured")):
        function = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *a, name=name, function=function: (
            asked.__setitem__(name, a[2]), function(*a))[1])
    exported.world(exported.MULTI).export(tmp_path)
    vectors = held_out[0].intents.vectors
    assert vectors.shape[1:] == (exported.INTENTS, 15) and 30 < len(vectors) <= USERS
    for queries in asked.values():
        np.testing.assert_allclose(queries[:, :15], vectors.reshape(-1, 15), atol=1e-5)
        assert not queries[:, 15].any() and queries[:, 14].max() < 0
    assert len(asked) == 2


def test_from_a_trained_run_with_dwell_times_to_what_a_person_sees(tmp_path, capsys):
    data_dir = small_run.prepared(tmp_path, dwell_column="stayed")
    settings = small_run.config(data_dir, tmp_path / "run", epochs=1,
                                model=dict(model="multi_clrec", num_intents=5, attention_heads=4))
    assert small_run.run(settings) == 0
    bundle = load_bundle(export(settings))
    assert bundle.manifest["uses_dwell"] and bundle.manifest["intents"] == 5
    assert bundle.manifest["measured"]["parity_difference"] <= bundle_checks.PARITY
    settings = dataclasses.replace(settings, retrieve=dataclasses.replace(
        settings.retrieve, k=12, intents=3, merge="quota"))
    text = show(settings)
    assert capsys.readouterr().out.endswith(text + "\n")
    searched = re.search(r"intents searched, with their weights: (.*)", text)[1]
    weights = {int(number): float(weight) for number, weight in re.findall(r"(\d+) \((0\.\d+)\)", searched)}
    brought = re.findall(r"^    -?\d\.\d{3}  intent (\d+) +\d+", text, re.MULTILINE)
    assert len(weights) == 3 and list(weights.values()) == sorted(weights.values(), reverse=True)
    assert len(brought) == 12 and set(map(int, brought)) == set(weights)  # a share is at least .1/1.2, one of twelve


def test_an_inserted_item_belongs_to_the_intent_of_the_nearest(tmp_path):
    """By d numbers; a vector as encode_items gives it keeps what it says, if that can be."""
    bundle = exported.loaded(exported.MULTI)
    items = bundle.item_vectors().astype(float)
    other = int(np.flatnonzero(items[:, 8:14].argmax(axis=1) != items[0, 8:14].argmax())[0])
    wide = np.concatenate([items[0, :8], items[other, 8:]])
    path = tmp_path / "items.jsonl"
    rows = [dict(id=9001, vector=(2 * items[0, :8]).tolist(), clicks=3), dict(id=9002, vector=wide.tolist()),
            dict(id=9003, like=bundle.item_ids[[other, other, 0]].tolist()),
            dict(id=int(bundle.item_ids[other]), vector=items[0, :8].tolist())]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = read_upserts(str(path), bundle).vectors
    np.testing.assert_allclose(found[[0, 1, 3], :8], items[[0, 0, 0], :8], atol=1e-6)
    np.testing.assert_allclose(found[:, 8:15], items[[0, other, other, other], 8:15], atol=1e-6)
    np.testing.assert_allclose(found[:2, 15], [bundle.dial.coordinate(3), items[other, 15]], atol=1e-6)
    for spoiled in (np.r_[wide[:14], 0.5, wide[15:]], np.r_[wide[:8], 100 * wide[8:14], wide[14:]]):
        path.write_text(json.dumps(dict(id=9002, vector=spoiled.tolist())))
        with pytest.raises(DataError, match=r"vector\[8:15\] is of no intent of this bundle"):
            read_upserts(str(path), bundle)
