"""Every way to ask gives, at every popularity, the ranking of φ + α·log p̂: tower, index, retrieval, updates, commands."""
import io
import json
import os
import sys
import tarfile

import numpy as np
import pytest
import tensorflow as tf

from clrec_tf.config import Config
from clrec_tf.config import DialConfig
from clrec_tf.config import ExportConfig
from clrec_tf.config import Paths
from clrec_tf.config import RetrieveConfig
from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.models.dial import Dial
from clrec_tf.publishing.export_bundle import export_bundle
from clrec_tf.publishing.export_bundle import TrainingFacts
from clrec_tf.retrieval.bundle import load_bundle
from clrec_tf.retrieval.retriever import Retriever
from clrec_tf.retrieval.search_options import SearchOptions
from clrec_tf.retrieval.user_requests import UserRequest
from clrec_tf import retrieve as retrieve_command
from clrec_tf import update_index
from tests import exported
from tests.test_saved_model import excluded
from tests.test_saved_model import inputs
from tests.test_saved_model import live_vectors

HISTORIES, ALPHAS = [[3, 14, 15], [9, 2, 6, 5, 35], [58, 59]], [0.0, 0.5, 1.25]


def ranked(kind, users, alphas, exclude):
    """Item numbers by falling φ·ρ + α·ρ·(log p̂ − mean log p̂), and these scores; a loop over users and items."""
    world = exported.world(kind)
    items = world.model.item_vectors(tf.constant(world.catalogue.item_rows)).numpy()
    log_p = np.log(np.maximum(world.catalogue.counts, 1))
    found = []
    for user, alpha, out in zip(users, alphas, exclude):
        scores = {}
        for number, (item, one) in enumerate(zip(items, log_p), 1):
            norm = np.linalg.norm(item) if kind == "string" else 1.0
            scores[number] = user @ item / norm + alpha * world.model.temperature * (one - log_p.mean())
        found.append(sorted(((score, number) for number, score in scores.items() if number not in out), reverse=True))
    return found


@pytest.mark.parametrize("kind", exported.KINDS)
def test_the_saved_model_and_retrieval_rank_by_the_formula(kind):
    exclude = [[3, 14], [], [1, 1, 59]]
    expected = ranked(kind, live_vectors(kind, HISTORIES), ALPHAS, exclude)
    result = exported.loaded(kind).tower.signatures["retrieve"](
        **inputs(kind, HISTORIES) | dict(popularity=tf.constant(ALPHAS)), k=tf.constant([7] * 3),
        exclude=excluded(kind, exclude))
    names = result["ids"].numpy()
    names = np.char.decode(names.astype(bytes), "utf-8") if kind == "string" else names
    requests = [UserRequest(None, [exported.original_id(kind, number) for number in history], *(
        ([exported.NOW - 10**6 - 60 * i for i in range(len(history))], exported.NOW) if kind == "string" else ()))
        for history in HISTORIES]
    options = [SearchOptions(7, exclude=[exported.original_id(kind, number) for number in out], popularity=alpha)
               for out, alpha in zip(exclude, ALPHAS)]
    retrieved, _ = Retriever(exported.loaded(kind))(requests, options)
    for row, best in enumerate(expected):
        ids = [exported.original_id(kind, number) for _, number in best[:7]]
        assert names[row].tolist() == ids == retrieved[row].ids
        np.testing.assert_allclose(result["scores"][row], [score for score, _ in best[:7]], atol=1e-5)
        assert retrieved[row].scores == pytest.approx([score for score, _ in best[:7]], abs=1e-5)
    plain = ranked(kind, live_vectors(kind, HISTORIES), [0.0] * 3, exclude)
    assert [number for _, number in expected[2][:7]] != [number for _, number in plain[2][:7]]


def test_the_last_number_of_a_vector_is_the_popularity_and_nothing_else_changes():
    signature = exported.loaded("string").tower.signatures["serving_default"]
    given = inputs("string", HISTORIES)
    plain, turned = (signature(**given | dict(popularity=tf.constant(alphas)))["user_vectors"].numpy()[:, 0]
                     for alphas in ([0.0] * 3, ALPHAS))
    np.testing.assert_array_equal(plain[:, :8], turned[:, :8])
    assert turned[:, 8].tolist() == ALPHAS and not plain[:, 8].any()


def test_several_intents_are_merged_at_the_same_popularity():
    bundle = exported.loaded(exported.MULTI)
    requests = [UserRequest(None, [exported.original_id(exported.MULTI, number) for number in history])
                for history in HISTORIES]
    plain, vectors = Retriever(bundle, SearchOptions(10, intents=3, popularity=0.0))(requests)
    options = [SearchOptions(10, intents=3, popularity=alpha) for alpha in ALPHAS]
    found, _ = Retriever(bundle)(requests, options)
    coordinate = bundle.item_vectors()[:, -1]
    for row, alpha in enumerate(ALPHAS):
        scores = (vectors.vectors[row, :, :-1] @ bundle.item_vectors()[:, :-1].T).max(axis=0) + alpha * coordinate
        assert found[row].ids == bundle.item_ids[np.argsort(-scores, kind="stable")[:10]].tolist()
        assert set(found[row].weights) == set(plain[row].weights)
    assert found[2].ids != plain[2].ids and found[0].ids == plain[0].ids


@pytest.mark.parametrize("kind", ["string", exported.MULTI])
def test_an_empty_history_gets_the_most_popular_items_at_any_popularity(kind):
    bundle = exported.loaded(kind)
    options = [SearchOptions(5, popularity=alpha) for alpha in (-0.25, 0.0, 1.0)]
    found, _ = Retriever(bundle)([UserRequest(None, [])] * 3, options)
    for result in found:
        assert result.ids == bundle.item_ids[:5].tolist() and result.scores == [0] * 5 and result.fallback


@pytest.mark.parametrize("alpha", [1.3, -0.3, float("nan"), float("inf")])
def test_a_popularity_that_is_not_offered_is_refused(alpha):
    with pytest.raises(DataError, match=f"popularity is {alpha:g}, this bundle offers -0.25 to 1.25"):
        Retriever(exported.loaded("int"), SearchOptions(popularity=alpha))
    with pytest.raises(tf.errors.InvalidArgumentError, match="popularity must be a number from -0.25 to 1.25"):
        exported.loaded("int").tower.signatures["serving_default"](
            history=tf.constant([[3], [4]], tf.int64), popularity=tf.constant([0.0, alpha]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="popularity must have one entry per user"):
        exported.loaded("int").tower.signatures["serving_default"](
            history=tf.constant([[3], [4]], tf.int64), popularity=tf.constant([0.0]))


@pytest.fixture(scope="module")
def chosen(tmp_path_factory):
    """A bundle whose default is not 0, of items counted otherwise than they were clicked."""
    world = exported.world("int")
    dial = Dial(world.catalogue.counts[::-1], 0.8, -0.1, 1.1, "impressions", dict(metric="ndcg@10/full"))
    folder = export_bundle(world.model, world.schema, world.catalogue, world.users, str(tmp_path_factory.mktemp("export")),
                           ExportConfig(recall_k=5), TrainingFacts("c" * 64, 7, exported.HISTORY, {}), dial=dial)
    return load_bundle(folder)


def test_a_bundle_has_a_default_and_says_how_it_was_chosen(chosen):
    manifest = chosen.manifest
    assert manifest["popularity"] == 0.8 and manifest["dial"]["source"] == "impressions"
    assert (manifest["dial"]["lowest"], manifest["dial"]["highest"]) == (-0.1, 1.1)
    assert manifest["dial"]["metric"] == "ndcg@10/full"
    assert set(manifest["measured"]["recalls"]) == {"-0.1", "0", "0.5", "1", "1.1"}
    assert manifest["measured"]["recalls_exclude_seen"]["1.1"]["10"] == 1
    retriever = Retriever(chosen)
    request = UserRequest(None, [exported.original_id("int", 3)])
    assert retriever.defaults.popularity == 0.8
    by_default, given = (retriever([request], [SearchOptions(9, popularity=alpha)])[0][0].ids for alpha in (None, 0.8))
    assert by_default == given != retriever([request], [SearchOptions(9, popularity=0.0)])[0][0].ids
    order = np.argsort(-exported.world("int").catalogue.counts, kind="stable")  # positions are by clicks all the same
    shown = exported.world("int").catalogue.counts[::-1][order]
    assert np.array_equal(np.argsort(chosen.item_vectors()[:, -1], kind="stable"), np.argsort(shown, kind="stable"))


def run(capsys, monkeypatch, folder, popularity=("auto",)):
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    retrieve_command.main(Config(paths=Paths(export_dir=folder), dial=DialConfig(popularity=popularity),
                                 retrieve=RetrieveConfig(history=str(exported.original_id("int", 3)), k=9)))
    return json.loads(capsys.readouterr().out)["ids"]


def test_the_command_takes_the_default_or_a_value(chosen, capsys, monkeypatch):
    expected = {alpha: Retriever(chosen, SearchOptions(9, popularity=alpha))(
        [UserRequest(None, [exported.original_id("int", 3)])])[0][0].ids for alpha in (0.0, 0.8)}
    assert run(capsys, monkeypatch, chosen.path) == expected[0.8] != expected[0.0]
    assert run(capsys, monkeypatch, chosen.path, ("0",)) == expected[0.0]
    with pytest.raises(UserError, match="--popularity for .*: popularity is 1.2, this bundle offers -0.1 to 1.1"):
        run(capsys, monkeypatch, chosen.path, ("1.2",))
    with pytest.raises(UserError, match="--popularity=0,1: requests are answered at one value"):
        run(capsys, monkeypatch, chosen.path, ("0", "1"))


def test_lines_of_users_may_name_one_each(chosen, capsys, monkeypatch):
    history = [exported.original_id("int", 3)]
    lines = [{"history": history, "popularity": 0}, {"history": history}, {"history": history, "popularity": None}]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\n".join(map(json.dumps, lines)).encode())))
    retrieve_command.main(Config(paths=Paths(export_dir=chosen.path), retrieve=RetrieveConfig(k=9)))
    first, *others = [json.loads(line)["ids"] for line in capsys.readouterr().out.splitlines()]
    assert others[0] == others[1] != first == run(capsys, monkeypatch, chosen.path, ("0",))
    for bad, words in (("1", "popularity '1' must be a number"), (True, "popularity True must"),
                       (10**400, "popularity 1000.* must be a number"), (9, "offers -0.1 to 1.1")):
        text = json.dumps({"history": history, "popularity": bad}).encode()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
        with pytest.raises(DataError, match=words):
            retrieve_command.main(Config(paths=Paths(export_dir=chosen.path), retrieve=RetrieveConfig(k=9)))
    with pytest.raises(DataError, match="a request: popularity is nan"):
        Retriever(chosen)([UserRequest(None, history)], [SearchOptions(3, intents=1, popularity=float("nan"))])


def update(chosen, tmp_path, *items):
    """The bundle, copied, with items upserted."""
    path = tmp_path / "items.jsonl"
    path.write_text("".join(json.dumps(item) + "\n" for item in items))
    return load_bundle(update_index.update_bundle(os.path.dirname(chosen.path), str(path), "", 0.9))


def test_inserted_items_have_the_popularity_of_what_is_known_of_them(chosen, tmp_path, caplog):
    like = exported.original_id("int", 3)
    wide = chosen.item_vectors()[4].tolist()
    bundle = update(chosen, tmp_path, {"id": 1, "like": [like], "impressions": 500}, {"id": 2, "like": [like]},
                    {"id": 5, "vector": wide}, {"id": exported.original_id("int", 9), "impressions": 500})
    assert "1 inserted items of" in caplog.text and "have no `impressions`: the dial counts none" in caplog.text
    vectors, place = bundle.item_vectors(), lambda item: bundle.all_positions(np.array([item]))[0]
    most, none = bundle.dial.coordinate(500), bundle.dial.coordinate(0)
    assert vectors[place(1), -1] == pytest.approx(most) and vectors[place(2), -1] == pytest.approx(none)
    assert vectors[place(5)].tolist() == pytest.approx(wide)
    moved = place(exported.original_id("int", 9))
    assert vectors[moved, -1] == pytest.approx(most)
    np.testing.assert_array_equal(vectors[moved, :-1], chosen.item_vectors()[moved, :-1])
    request = UserRequest(None, [like])
    ids = {alpha: Retriever(bundle, SearchOptions(40, popularity=alpha))([request])[0][0].ids for alpha in (0.0, 1.0)}
    assert abs(ids[0.0].index(1) - ids[0.0].index(2)) == 1  # of one vector; as trained they are alike
    assert ids[1.0].index(1) < ids[1.0].index(2) if 2 in ids[1.0] else 1 in ids[1.0]
    with pytest.raises(DataError, match="line 1: impressions -1 must be a number of at least 0"):
        update(chosen, tmp_path, {"id": 8, "like": [like], "impressions": -1})
    with pytest.raises(DataError, match="line 1 has both impressions and a vector of 9 numbers"):
        update(chosen, tmp_path, {"id": 8, "vector": wide, "impressions": 3})
    with pytest.raises(DataError, match="line 1 has clicks, but the popularity of this bundle counts impressions"):
        update(chosen, tmp_path, {"id": 8, "like": [like], "clicks": 3})
    for last in (1e30, -99.0):
        with pytest.raises(DataError, match="the last number of the vector, its popularity, is .*: give vectors of the"):
            update(chosen, tmp_path, {"id": 8, "vector": [*wide[:-1], last]})


@pytest.fixture(scope="module")
def older(tmp_path_factory):
    """Versions 1 (exact) and 2 (ScaNN) of integer ids, exported before there was a dial."""
    folder = tmp_path_factory.mktemp("older")
    with tarfile.open(os.path.join(os.path.dirname(__file__), "bundles", "before_the_dial.tar.xz")) as archive:
        archive.extractall(folder, filter="data")
    return str(folder)


@pytest.mark.parametrize("version", ["1", "2"])
def test_a_bundle_of_before_the_dial_is_served_as_trained_and_says_so(older, version, caplog):
    bundle = load_bundle(os.path.join(older, version))
    assert "was exported before there was a dial: it is served at popularity 0, as trained" in caplog.text
    requests = [UserRequest(None, [exported.original_id("int", number) for number in history]) for history in HISTORIES]
    found = Retriever(bundle)(requests)[0]
    now = Retriever(exported.loaded("int"), SearchOptions(popularity=0.0))(requests)[0]
    assert [result.ids for result in found] == [result.ids for result in now]
    assert [result.ids for result in Retriever(bundle, SearchOptions(popularity=0.0))(requests)[0]] == [
        result.ids for result in found]
    with pytest.raises(DataError, match="popularity is 0.5, but this bundle was exported before there was a dial"):
        Retriever(bundle, SearchOptions(popularity=0.5))


def test_a_bundle_of_before_the_dial_can_be_updated(older, tmp_path):
    (tmp_path / "gone.txt").write_text(str(exported.original_id("int", 3)))
    (tmp_path / "new.jsonl").write_text(json.dumps({"id": 7, "vector": [0.5] * 8}))
    folder = update_index.update_bundle(older, str(tmp_path / "new.jsonl"), str(tmp_path / "gone.txt"), 0.4)
    bundle = load_bundle(folder)
    assert bundle.width == 8 and bundle.counts == dict(items=exported.ITEMS, fresh=1, withdrawn=1)
    (tmp_path / "new.jsonl").write_text(json.dumps({"id": 8, "vector": [0.5] * 8, "clicks": 3}))
    with pytest.raises(DataError, match="has clicks, but this bundle was exported before there was a dial"):
        update_index.update_bundle(older, str(tmp_path / "new.jsonl"), "", 0.4)
