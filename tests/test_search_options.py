"""Options of single users in one batch: equal to a walk through the catalogue for each alone, whatever the index."""
import dataclasses

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import numpy as np
import pytest

from clrec_tf.retrieval import efforts
from clrec_tf.retrieval.retriever import Retriever
from clrec_tf.retrieval.scann_index import ScannIndex
from clrec_tf.retrieval.search_options import SearchOptions
from clrec_tf.retrieval.user_requests import UserRequest
from tests import exported
from tests.test_merge import loop_quota

INTENTS, ITEMS, NOW = exported.INTENTS, exported.ITEMS, exported.NOW


def item(number):
    return exported.original_id(exported.MULTI, number)


def walk(bundle, users, row, request, options):
    """(ids, scores) of one user: every candidate that may come, scored for every intent."""
    vectors = bundle.item_vectors()
    scores = users.vectors[row, :options.intents] @ vectors.T
    left_out = set(options.exclude) | (set(request.history) if options.exclude_seen else set())
    places = [place for place in range(ITEMS) if bundle.item_ids[place] not in left_out
              and (options.allow is None or bundle.item_ids[place] in set(options.allow))]
    if options.merge == "maximum":
        best = sorted((-scores[:, place].max(), place) for place in places)[:options.k]
        return [place for _, place in best], [-score for score, _ in best]
    order = np.argsort(-scores, axis=1, kind="stable")
    lists = np.array([[place for place in one if place in places] for one in order.tolist()], np.int64)
    entries = loop_quota(lists, np.take_along_axis(scores, lists, 1), users.weights[row, :options.intents],
                         options.k, .1) if places else []
    best = sorted((-score, place) for score, place, _ in entries)[:options.k]
    return [place for _, place in best], [-score for score, _ in best]


ids = st.lists(st.integers(1, ITEMS).map(item), max_size=40)
some_options = st.builds(
    SearchOptions, k=st.integers(1, ITEMS + 9), exclude_seen=st.booleans(), intents=st.integers(1, INTENTS),
    merge=st.sampled_from(["maximum", "quota"]), exclude=ids | st.just([5, -1]), allow=st.none() | ids | st.just([5]))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.lists(st.integers(1, ITEMS).map(item), max_size=9), some_options), min_size=1, max_size=5))
def test_each_user_gets_what_its_own_options_say(users):
    bundle = exported.loaded(exported.MULTI)
    requests = [UserRequest(None, history, [NOW - 60] * len(history), NOW, [30] * len(history)) for history, _ in users]
    results, vectors = Retriever(bundle)(requests, [options for _, options in users])
    for row, (result, request, (_, options)) in enumerate(zip(results, requests, users, strict=True)):
        places, scores = walk(bundle, vectors, row, request, options)
        np.testing.assert_allclose(result.scores, scores, atol=1e-5)
        if request.history:  # all scores are 0 otherwise, which a quota hands out in another order
            assert result.ids == bundle.item_ids[places].tolist()
        assert len(set(result.ids)) == len(result.ids) and result.fallback == (not request.history)


class Counting:
    """An index that tells how much it was asked for."""

    def __init__(self, index):
        self.asked, self._index = [], index

    def __getattr__(self, name):
        return getattr(self._index, name)

    def search(self, vectors, k):
        self.asked.append((len(vectors), k))
        return self._index.search(vectors, k)


def test_more_is_fetched_only_for_whom_too_much_was_taken_away():
    bundle = exported.loaded(exported.MULTI)
    counting = Counting(bundle.index)
    retriever = Retriever(dataclasses.replace(bundle, index=counting), SearchOptions(5, intents=1))
    request = UserRequest(None, [item(3), item(8)])
    (plain,), _ = retriever([request], [SearchOptions(20, intents=1)])
    worst = [one for one in bundle.item_ids.tolist() if one not in plain.ids]
    counting.asked.clear()
    near_by, far = SearchOptions(5, intents=1, exclude=plain.ids), SearchOptions(5, intents=1, exclude=worst[:20])
    results, _ = retriever([request, request, request], [near_by, far, SearchOptions(5, intents=1)])
    assert counting.asked == [(3, 10), (1, 25)]
    assert not set(results[0].ids) & set(plain.ids) and len(results[0].ids) == 5
    assert results[1].ids == results[2].ids == plain.ids[:5]


def test_allowed_items_are_scored_exactly_where_the_index_is_not_exact():
    bundle = exported.loaded("string")
    poor = ScannIndex.build(bundle.item_vectors(), leaves=8, spherical=True).tuned(efforts.uniform(1, 1))
    retriever = Retriever(dataclasses.replace(bundle, index=poor))
    request = UserRequest(None, [exported.original_id("string", 4)], [NOW - 5], NOW)
    stock = bundle.item_ids[1::2].tolist()
    (result,), users = retriever([request], [SearchOptions(10, allow=stock)])
    scores = bundle.item_vectors() @ users.vectors[0, 0]
    expected = sorted(range(1, ITEMS, 2), key=lambda place: -scores[place])[:10]
    assert result.ids == bundle.item_ids[expected].tolist() and result.intents is None
    assert result.scores == pytest.approx(scores[expected], abs=1e-5)
    assert retriever([request], [SearchOptions(10, allow=[])])[0][0].ids == []
