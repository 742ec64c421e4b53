"""Answers to batches of unlike jobs, and as arrays against the SavedModel's own, all in one process."""
import numpy as np
import pytest
import tensorflow as tf

from clrec_tf.server import bodies
from clrec_tf.server import predictor
from clrec_tf.server.bodies import Job
from clrec_tf.server.instances import ITEMS, RETRIEVE, USERS
from clrec_tf.retrieval.bundle_dial import BundleDial
from clrec_tf.retrieval.search_options import SearchOptions
from clrec_tf.retrieval.user_requests import UserRequest
from clrec_tf.server.engine import Engine
from tests import exported
from tests.exported import INTENTS, ITEMS as SIZE, MULTI, NOW
from tests.test_merge import loop_quota, padded

LIMITS = bodies.Limits(k=SIZE + 40, listed=50, users=9, intents=INTENTS,
                       dial=BundleDial(0.0, -0.25, 1.25, there=True))


def engine(kind):
    return Engine(exported.loaded(kind), SearchOptions(k=5), lambda stage, seconds: None)


def ids(kind, *numbers):
    return [exported.original_id(kind, number) for number in numbers]


@pytest.mark.parametrize("kind", ["int", "string", MULTI])
def test_unlike_jobs_of_one_batch_are_answered_as_if_alone(kind):
    several, user = kind == MULTI, lambda *numbers: UserRequest(None, ids(kind, *numbers))
    jobs = [Job(USERS, user(9), SearchOptions(intents=1)), Job(RETRIEVE, user(3, 14), SearchOptions(k=4, intents=1)),
            Job(ITEMS, item=ids(kind, 8)[0]), Job(RETRIEVE, user(), SearchOptions(k=2, intents=1)),
            Job(USERS, user(2, 6), SearchOptions(intents=3 if several else 1)),
            Job(RETRIEVE, user(5), SearchOptions(k=9, intents=2 if several else 1, merge="quota", exclude_seen=True)),
            Job(RETRIEVE, user(7, 7), SearchOptions(k=9, intents=1, allow=ids(kind, 1, 2, 3, 1, 500))),
            Job(RETRIEVE, user(58), SearchOptions(k=9, intents=3 if several else 1, merge="quota")),
            Job(ITEMS, item=exported.loaded(kind).item_ids[0].item())]
    mine = engine(kind)
    # Not mine(jobs), which would answer one by one if the batch failed.
    answers, alone = mine._run(jobs), [mine([job])[0] for job in jobs]
    for found, expected in zip(answers, alone, strict=True):
        assert list(found) == list(expected)
        for name, value in expected.items():
            if name in ("scores", "vectors", "user_vectors", "weights") and not isinstance(value, dict):
                np.testing.assert_allclose(found[name], value, atol=2e-6)
            elif name == "weights":
                assert found[name] == pytest.approx(value, abs=2e-6)
            else:
                assert found[name] == value
    assert answers[8]["known"] and np.abs(answers[8]["vectors"]).max() > 0  # the item at position 0
    assert sorted(answers[6]["ids"]) == sorted(ids(kind, 1, 2, 3)) and answers[3]["fallback"]


def test_of_two_versions_in_a_batch_each_answers_its_own_jobs():
    class Named:
        def __init__(self, name):
            self.name, self.seen = name, []

        def __call__(self, jobs):
            self.seen.append(list(jobs))
            return [(self.name, job) for job in jobs]
    old, new = Named("old"), Named("new")
    pairs = [(old, 1), (new, 2), (old, 3), (new, 4), (new, 5)]
    assert predictor._run(pairs) == [(one.name, job) for one, job in pairs]
    assert old.seen == [[1, 3]] and new.seen == [[2, 4, 5]]


def test_of_equal_scores_the_more_popular_comes_first_also_among_allowed_items():
    bundle = exported.loaded("int")
    allowed = bundle.item_ids[:40][::-1].tolist()
    answer, = engine("int")([Job(RETRIEVE, UserRequest(None, []), SearchOptions(k=7, intents=1, allow=allowed))])
    assert answer["ids"] == bundle.item_ids[:7].tolist() and answer["scores"] == [0] * 7
    allowed = ids("int", 500, 5)  # the first, which is unknown, must not take the only place
    answer, = engine("int")([Job(RETRIEVE, UserRequest(None, []), SearchOptions(k=1, intents=1, allow=allowed))])
    assert answer["ids"] == allowed[1:]


@pytest.mark.parametrize("item", ["ä 3\0", "ä 3" + "x" * 100, "ä", "ä  3", "a\u0308 3", " ä 3", "Ä 3"])
def test_an_id_that_only_resembles_one_is_unknown(item):
    mine = engine("string")
    plain, other, vector = mine([
        Job(RETRIEVE, UserRequest(None, ["ä 3"]), SearchOptions(intents=1)),
        Job(RETRIEVE, UserRequest(None, [item, "ä 3"]), SearchOptions(intents=1, exclude=[item], exclude_seen=False)),
        Job(ITEMS, item=item)])
    assert other.pop("unknown") == [item] and other["ids"] == plain["ids"] and not vector["known"]
    known = exported.loaded("string").tower.signatures["encode_items"](ids=tf.constant([item]))["known"]
    assert not known.numpy().any()
    assert mine([Job(RETRIEVE, UserRequest(None, ["ä 4"]), SearchOptions(k=SIZE, intents=1, allow=[item]))])[0][
        "ids"] == []


def test_a_long_id_does_not_widen_the_others():
    found = exported.loaded("string").id_array(["ä 3", "x" * 10**6, "ä 14"])
    assert found.tolist() == ["ä 3", "", "ä 14"] and found.nbytes < 100


@pytest.mark.parametrize("kind", ["int", "string", MULTI])
@pytest.mark.parametrize("histories, k", [
    ([[3, 14], [9, 0], [0, 0]], [2, SIZE + 9, 4]),  # 0 is padding; of one user without clicks, and of all
    ([[0, 0]], [3]), ([[0, 500], [500, 0]], [3, 2])])
def test_arrays_are_those_of_the_saved_model(kind, histories, k):
    padding, dtype = ("", object) if kind == "string" else (-1, np.int64)
    listed = lambda rows: np.array([[ids(kind, n)[0] if n else padding for n in row] for row in rows], dtype)
    users = dict(history=listed(histories), popularity=np.array([0.0, 0.75, 1.0][:len(k)], np.float32))
    if kind != "int":
        users |= dict(timestamps=np.full(users["history"].shape, NOW - 60), request_time=np.full(len(k), NOW))
    if kind == MULTI:
        users |= dict(dwell=np.full(users["history"].shape, -1), intents=np.array([1, 3, 2][-len(k):], np.int32))
    search = dict(k=np.array(k, np.int32), exclude=listed([[14, 0]] * len(k)))
    mine, tower = engine(kind), exported.loaded(kind).tower
    for signature, inputs in ((USERS, users), (RETRIEVE, users | search), (ITEMS, dict(ids=listed(histories)[:, 1]))):
        columns = {name: predictor._plain(values) for name, values in inputs.items()}
        jobs = bodies.by_columns(signature, columns, mine.id_type, mine.defaults, LIMITS).jobs
        found = predictor.padded(mine(jobs), jobs, mine.id_type, kind == MULTI)
        expected = tower.signatures[signature](**{name: tf.constant(value) for name, value in inputs.items()})
        assert set(found) == set(expected)
        for name, value in expected.items():
            value = value.numpy()
            if name == "ids" and kind == "string":
                value = np.vectorize(bytes.decode, otypes=[object])(value)
            assert found[name].shape == value.shape and found[name].dtype == value.dtype, name
            if value.dtype == np.float32:
                np.testing.assert_allclose(found[name], value, atol=2e-6)
            else:
                np.testing.assert_array_equal(found[name], value)


@pytest.mark.parametrize("kind", ["int", MULTI])
@pytest.mark.parametrize("banned, k", [(20, 5), (30, 15), (1, 1), (7, 7), (SIZE - 3, 5)])
def test_leaving_out_the_very_best_costs_nobody_an_item(kind, banned, k):
    """All that is left out comes first in the list of one intent, so that no margin but the whole suffices."""
    bundle, mine, count = exported.loaded(kind), engine(kind), INTENTS if kind == MULTI else 1
    histories = [ids(kind, *numbers) for numbers in ((3, 14), (9, 2, 6), (58,))]
    users = [mine([Job(USERS, UserRequest(None, history), SearchOptions(intents=count))])[0] for history in histories]
    jobs, expected = [], []
    for place, (history, user) in enumerate(zip(histories, users)):
        scores = np.array(user["user_vectors"]) @ bundle.item_vectors().T
        out = np.argsort(-scores[-1])[:banned] if place else []  # of the lightest intent; of the first user none
        jobs.append(Job(RETRIEVE, UserRequest(None, history), SearchOptions(
            k=k, intents=count, merge="quota", exclude=bundle.item_ids[out].tolist() if place else [])))
        near = np.array([[item for item in np.argsort(-row) if item not in out] for row in scores])
        entries = loop_quota(near, np.take_along_axis(scores, near, 1), np.array(user["weights"]), k, .1)
        best = [item for item in padded(entries, k)[0] if item >= 0]
        expected.append(bundle.item_ids[best].tolist())
    for order in ([0, 1, 2], [2, 0, 1]):
        assert [answer["ids"] for answer in mine._run([jobs[row] for row in order])] == [expected[row] for row in order]
