"""Several intents per user from the tower to the results, against the live model and walks through the catalogue."""
import dataclasses
import io
import json
import sys

import numpy as np
import polars as pl
import pytest
import tensorflow as tf

from clrec_tf.config import Config
from clrec_tf.config import Paths
from clrec_tf.config import RetrieveConfig
from clrec_tf.data.evaluation_set import EvaluationSet
from clrec_tf.errors import UserError
from clrec_tf.models.encode import Encoder
from clrec_tf.retrieval.retriever import Retriever
from clrec_tf.retrieval.search_options import SearchOptions
from clrec_tf.retrieval.user_requests import parse_request
from clrec_tf.retrieval.user_requests import UserRequest
from clrec_tf import retrieve as retrieve_command
from tests import exported
from tests.test_merge import loop_quota
from tests.test_merge import padded

INTENTS, NOW = exported.INTENTS, exported.NOW
HISTORIES = [[3, 14, 15], [9, 2, 6, 5, 35], [58, 59], [7]]
GAPS = [[900, 60, 5], [10**6, 10**5, 10**4, 10**3, 100], [50, 40], [7]]
DWELL = [[3, -1, 300], [9, 2, 60, 5, 35], [0, -1], [100]]


def item(number):
    return exported.original_id(exported.MULTI, number)


def inputs(histories=None, gaps=None, dwell=None, width=6):
    """Signature inputs from lists of item numbers, 0 for padding, of seconds before the request, and of seconds."""
    histories, gaps, dwell = histories or HISTORIES, gaps or GAPS, dwell or DWELL
    pad = lambda row, value: list(row) + [value] * (width - len(row))
    return dict(history=tf.constant([pad([item(n) if n else -1 for n in row], -1) for row in histories], tf.int64),
                popularity=tf.zeros([len(histories)]),
                timestamps=tf.constant([pad([NOW - gap for gap in row], 0) for row in gaps], tf.int64),
                request_time=tf.fill([len(histories)], tf.constant(NOW, tf.int64)),
                dwell=tf.constant([pad(row, -1) for row in dwell], tf.int64))


def counts(count, histories=HISTORIES, **others):
    """A number of all users, or of each, as an input."""
    return tf.constant(np.broadcast_to(count, len(histories)), tf.int32)


def predict(count, **arguments):
    """user_vectors, weights and intents of `serving_default`."""
    result = exported.loaded(exported.MULTI).tower.signatures["serving_default"](
        intents=counts(count, **arguments), **inputs(**arguments))
    return [result[name].numpy() for name in ("user_vectors", "weights", "intents")]


def retrieve(count, k, exclude=((),) * 4, **arguments):
    """ids, scores and intents of `retrieve`; exclude as item numbers."""
    width = max(map(len, exclude))
    ids = [[item(number) for number in row] + [-1] * (width - len(row)) for row in exclude]
    result = exported.loaded(exported.MULTI).tower.signatures["retrieve"](
        intents=counts(count, **arguments), k=counts(k, **arguments),
        exclude=tf.constant(ids, tf.int64, (len(ids), width)), **inputs(**arguments))
    return [result[name].numpy() for name in ("ids", "scores", "intents")]


def live():
    """The live model's vectors, weights and numbers of `HISTORIES`."""
    world, ids = exported.world(exported.MULTI), np.array(sum(HISTORIES, []))
    users = EvaluationSet(
        np.arange(4), ids, np.append(0, np.cumsum([len(row) for row in HISTORIES])), np.ones(4, int), np.arange(5),
        history_features=world.catalogue.item_rows[ids - 1, 1:], history_times=NOW - np.array(sum(GAPS, [])),
        request_times=np.full(4, NOW), history_dwell=np.array(sum(DWELL, [])))
    return Encoder(world.model, exported.HISTORY).user_intents(users)


def item_scores(vectors):
    """[B,K,V] ρ·(s + margin + log w) of the live model by position, the most popular item first; without the dial."""
    world = exported.world(exported.MULTI)
    rows = world.catalogue.item_rows[np.argsort(-world.catalogue.counts, kind="stable")]
    items = world.model.item_vectors(tf.constant(rows)).numpy()
    own = vectors[..., 8:14].argmax(axis=-1)[..., None] == world.model.route(rows).numpy()
    cosines = vectors[..., :8] @ (items / np.linalg.norm(items, axis=1, keepdims=True)).T
    return cosines + np.float32(.07 * 7) * own + vectors[..., 14:15]


def test_the_heaviest_intents_equal_the_live_model():
    vectors, weights, numbers = live()
    for count in range(1, INTENTS + 1):
        found = predict(count)
        np.testing.assert_allclose(found[0][..., :15], vectors[:, :count], atol=1e-6)
        np.testing.assert_allclose(found[0][..., 14], .07 * np.log(found[1]), atol=1e-6)
        np.testing.assert_allclose(found[1], weights[:, :count], atol=1e-6)
        np.testing.assert_array_equal(found[2], numbers[:, :count])
    assert found[2].dtype == np.int32 and np.array_equal(np.sort(found[2]), np.tile(np.arange(INTENTS), (4, 1)))
    np.testing.assert_allclose(found[1].sum(axis=1), 1, atol=1e-6)
    assert (np.diff(found[1], axis=1) <= 0).all() and len(set(found[2][:, 0])) > 1  # not one order for all users


def test_the_number_of_intents_is_bounded():
    for call in (predict, lambda count: retrieve(count, 3)):
        for count in (0, -1, INTENTS + 1):
            with pytest.raises(tf.errors.InvalidArgumentError, match="intents must be at"):
                call(count)


def test_each_user_has_as_many_intents_as_are_asked_for_it():
    own = [2, 5, 1, 3]
    vectors, weights, numbers = predict(own)
    assert vectors.shape == (4, 5, 16)
    every = predict(5)
    for user, count in enumerate(own):
        for mine, other, padding in zip((vectors, weights, numbers), every, (0, 0, -1)):
            np.testing.assert_allclose(mine[user, :count], other[user, :count], atol=1e-6)
            assert (mine[user, count:] == padding).all()
    most = exported.ITEMS  # then scores below 0 are there, which the vectors that pad a user would lift to 0
    ids, scores, intents = retrieve(own, [4, 2, most, most])
    assert scores[2].min() < -1e-3
    for user, (count, k) in enumerate(zip(own, [4, 2, most, most])):
        alone = retrieve(count, k)
        assert ids[user].tolist() == alone[0][user].tolist() + [-1] * (most - k)
        assert intents[user].tolist() == alone[2][user].tolist() + [-1] * (most - k)
        np.testing.assert_allclose(scores[user], alone[1][user].tolist() + [-np.inf] * (most - k), atol=1e-6)
    with pytest.raises(tf.errors.InvalidArgumentError, match="intents must have one entry per user"):
        exported.loaded(exported.MULTI).tower.signatures["serving_default"](intents=tf.constant([2]), **inputs())


def test_dwell_times_matter_and_follow_their_clicks():
    plain = predict(2)
    assert np.abs(predict(2, dwell=[[300, 3, 3], *DWELL[1:]])[0][0] - plain[0][0]).max() > 1e-3
    for mine, other in zip(plain, predict(2, dwell=[[3, -7, 300], *DWELL[1:]])):  # every negative one is unknown
        np.testing.assert_array_equal(mine, other)
    strewn = dict(histories=[[0, 3, 0, 14, 15], *HISTORIES[1:]], gaps=[[1, 900, 1, 60, 5], *GAPS[1:]],
                  dwell=[[9, 3, 9, -1, 300], *DWELL[1:]])
    for mine, other in zip(plain, predict(2, **strewn)):
        np.testing.assert_array_equal(mine, other)
    with pytest.raises(tf.errors.InvalidArgumentError, match="dwell and history differ in shape"):
        exported.loaded(exported.MULTI).tower.signatures["serving_default"](
            intents=counts(1), **inputs() | {"dwell": tf.zeros([4, 5], tf.int64)})


def test_a_history_without_known_items():
    empty = dict(histories=[[0, 0], [7]], gaps=[[9, 9], [7]], dwell=[[9, 9], [9]])
    vectors, weights, numbers = predict(3, **empty)
    assert not vectors[0].any() and vectors[1].any()
    assert numbers[0].tolist() == [0, 1, 2] and weights[0].tolist() == pytest.approx([1 / INTENTS] * 3)
    ids, scores, intents = retrieve(3, 5, exclude=[[], []], **empty)
    assert ids[0].tolist() == exported.loaded(exported.MULTI).item_ids[:5].tolist()
    assert scores[0].tolist() == [0] * 5 and intents[0].tolist() == [0] * 5
    for merge in ("maximum", "quota"):
        retriever = Retriever(exported.loaded(exported.MULTI), SearchOptions(5, False, 3, merge))
        (result,), _ = retriever([UserRequest(None, [])])
        assert result.ids == ids[0].tolist() and result.scores == [0] * 5
        assert result.fallback and result.intents is None and result.weights is None  # no intent brought them


@pytest.mark.parametrize("count", [1, 3, INTENTS])
@pytest.mark.parametrize("k", [1, 10, exported.ITEMS + 5])
def test_retrieve_equals_a_walk_through_the_catalogue(count, k):
    bundle, exclude = exported.loaded(exported.MULTI), [[3, 14, 15], [], [1, 1, 2, 59], []]
    vectors, _, numbers = live()
    scores = item_scores(vectors[:, :count])
    ids, found_scores, intents = retrieve(count, k, exclude)
    for user in range(4):
        left_out = {item(number) for number in exclude[user]}
        entries = [(scores[user, :, place].max(), place, scores[user, :, place].argmax())
                   for place in range(exported.ITEMS) if bundle.item_ids[place] not in left_out]
        places, values, columns = padded(entries, k)
        assert ids[user].tolist() == [bundle.item_ids[place] if place >= 0 else -1 for place in places]
        np.testing.assert_allclose(found_scores[user], values, atol=1e-5)
        assert intents[user].tolist() == [numbers[user, c] if c >= 0 else -1 for c in columns]
    assert count == 1 or k == 1 or len(set(intents[0])) > 1


REQUESTS = [UserRequest(number, [item(n) for n in history], [NOW - gap for gap in gaps], NOW, dwell)
            for number, (history, gaps, dwell) in enumerate(zip(HISTORIES, GAPS, DWELL))]


@pytest.mark.parametrize("exclude_seen", [False, True])
@pytest.mark.parametrize("count", [0, 1, INTENTS])
def test_retrieval_by_maximum_equals_the_signature(count, exclude_seen):
    results, users = Retriever(exported.loaded(exported.MULTI), SearchOptions(7, exclude_seen, count))(REQUESTS)
    count = count or INTENTS
    ids, scores, intents = retrieve(count, 7, HISTORIES if exclude_seen else ((),) * 4)
    vectors, weights, numbers = predict(count)
    np.testing.assert_allclose(users.vectors, vectors, atol=1e-6)
    for user, result in enumerate(results):
        assert result.ids == ids[user].tolist() and result.intents == intents[user].tolist()
        assert result.scores == pytest.approx(scores[user], abs=1e-5)
        assert list(result.weights) == numbers[user].tolist()
        assert list(result.weights.values()) == pytest.approx(weights[user], abs=1e-5)  # as the model has them


@pytest.mark.parametrize("exclude_seen", [False, True])
def test_retrieval_by_quota_equals_a_loop(exclude_seen):
    bundle = exported.loaded(exported.MULTI)
    results, users = Retriever(bundle, SearchOptions(10, exclude_seen, 3, "quota"))(REQUESTS)
    scores = item_scores(users.vectors)
    for user, result in enumerate(results):
        own = {item(number) for number in HISTORIES[user]} if exclude_seen else set()
        order = np.argsort(-scores[user], axis=1)
        lists = np.array([[place for place in row if bundle.item_ids[place] not in own] for row in order])
        entries = loop_quota(lists, np.take_along_axis(scores[user], lists, 1), users.weights[user], 10, .1)
        places, values, columns = padded(entries, 10)
        assert result.ids == bundle.item_ids[places].tolist()
        assert result.intents == users.numbers[user, columns].tolist()
        assert result.scores == pytest.approx(values, abs=1e-5)
        assert len(set(result.intents)) == 3  # at least a tenth each


def test_requests_ask_for_intents_that_there_are_and_may_leave_dwell_times_out():
    bundle = exported.loaded(exported.MULTI)
    with pytest.raises(UserError, match=f"--intents=7: the model of .* has {INTENTS}; give at most that many, or 0"):
        Retriever(bundle, SearchOptions(5, False, 7))
    value = {"history": [item(3), 5, item(14)], "timestamps": [1, None, 3], "request_time": 4, "dwell": [7, 8, None]}
    request = parse_request(value, "int", "here")
    assert request.dwell == [7, 8, -1] and request.timestamps == [1, 0, 3]
    known = UserRequest(None, [item(3), item(14)], [1, 3], 4, [7, -1])
    vectors = [Retriever(bundle, SearchOptions(5)).encode([one]).vectors for one in (
        request, known, dataclasses.replace(known, dwell=None), dataclasses.replace(known, dwell=[-1, -9]))]
    np.testing.assert_array_equal(vectors[0], vectors[1])
    np.testing.assert_array_equal(vectors[2], vectors[3])
    assert np.abs(vectors[0] - vectors[2]).max() > 1e-4


def run(capsys, monkeypatch, stdin="", **settings):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
    monkeypatch.setattr(retrieve_command, "load_bundle", lambda path: exported.loaded(exported.MULTI))
    retrieve_command.main(Config(paths=Paths(export_dir="any"), retrieve=RetrieveConfig(**settings)))
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_every_output_names_intents_and_weights(capsys, monkeypatch, tmp_path):
    lines = [dataclasses.asdict(request) for request in REQUESTS]  # features stand beside the others, not below a name
    text = "".join(json.dumps({name: line[name] for name in line if name != "query"}) + "\n" for line in lines)
    source, vectors = tmp_path / "users.jsonl", tmp_path / "vectors.npz"
    source.write_text(text)
    settings = dict(k=5, intents=2, merge="quota")
    expected = run(capsys, monkeypatch, text, **settings)
    numbers = predict(2)[2]
    assert [list(map(int, row["weights"])) for row in expected] == numbers.tolist()
    assert expected[1]["intents"] == Retriever(
        exported.loaded(exported.MULTI), SearchOptions(5, False, 2, "quota"))(REQUESTS)[0][1].intents
    for ending in ("jsonl", "parquet"):
        output = tmp_path / f"items.{ending}"
        run(capsys, monkeypatch, users=str(source), output=str(output), embeddings=str(vectors), retrieve_batch=3,
            **settings)
        if ending == "jsonl":
            found = [json.loads(line) for line in output.read_text().splitlines()]
        else:
            table = pl.read_parquet(output)
            assert table.columns == ["user_id", "ids", "scores", "intents", "weights", "unknown", "fallback"]
            found = [row | {"weights": {str(w["intent"]): w["weight"] for w in row["weights"]}} for row in
                     table.drop("unknown", "fallback").to_dicts()]
        for row, result in zip(found, expected, strict=True):
            assert {**row, "scores": 0, "weights": 0} == {**result, "scores": 0, "weights": 0}
            assert row["scores"] == pytest.approx(result["scores"], abs=1e-5)
            assert row["weights"] == pytest.approx(result["weights"], abs=1e-5)
    with np.load(vectors, allow_pickle=False) as arrays:
        for name, part in zip(("user_vectors", "user_weights", "user_intents"), predict(2)):
            np.testing.assert_allclose(arrays[name], part, atol=1e-6)
    run(capsys, monkeypatch, embeddings=str(vectors))
    with np.load(vectors, allow_pickle=False) as arrays:
        assert arrays["user_vectors"].shape == (0, 6, 16) and arrays["user_weights"].shape == (0, 6)
