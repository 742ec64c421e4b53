"""Items by what a person types: against a loop over all of them."""
import dataclasses
import gc
import time
import weakref

import numpy as np
import pytest

from clrec_tf.retrieval.history_rows import HistoryRows
from clrec_tf.server import item_finder
from clrec_tf.server.item_finder import ItemFinder, known_items
from tests.exported import ITEMS, loaded

WORDS = ("star", "wars", "Star Trek", "starting", "éclair", "ECLAIR", "war", "mustard", "10", "t")


def with_titles(kind, titles):
    """The bundle with other titles."""
    return dataclasses.replace(loaded(kind), titles=np.array(titles, object))


def looped(bundle, query, limit):
    """Ids by rank, then by popularity: the very id, then what begins a part, then what holds it."""
    ranked = []
    for item, title in zip(bundle.item_ids.tolist(), bundle.titles):
        item, title = item_finder.folded(str(item)), item_finder.folded(title)
        words = [" ".join(title.split()[at:]) for at in range(len(title.split()))]
        words += [" ".join(item.split()[at:]) for at in range(len(item.split()))]
        if item == query or any(word.startswith(query) for word in words):
            ranked.append(item != query)
        else:
            ranked.append(2 if query in item or query in title else 3)
    order = [place for place in np.argsort(ranked, kind="stable") if ranked[place] < 3]
    return [str(bundle.item_ids[place]) for place in order[:limit]]


@pytest.mark.parametrize("chunk", [1, 7, 2000])
def test_agrees_with_a_loop(monkeypatch, chunk):
    monkeypatch.setattr(item_finder, "_CHUNK", chunk)
    rng = np.random.default_rng(0)
    bundle = with_titles("int", [" ".join(rng.choice(WORDS, 3)) for _ in range(ITEMS)])
    finder = ItemFinder(seconds=60)
    for query in ("star", "tar", "eclair", "t", "s w", "wars star", "1007", "10", "7", "nothing"):
        for limit in (1, 4, 20, ITEMS):
            found = finder.find(bundle, query, limit)
            assert [item["id"] for item in found["items"]] == looped(bundle, query, limit), (query, limit)
            assert found["complete"]


def test_case_accents_and_white_space_do_not_count():
    bundle = with_titles("int", ["Amélie  Poulain", "amelie\tpoulain\nx", "AMÉLIE POULAINE"] + [""] * (ITEMS - 3))
    found = ItemFinder().find(bundle, "  amÉlie poulain", 10)["items"]
    assert [item["title"] for item in found] == ["Amélie  Poulain", "amelie\tpoulain\nx", "AMÉLIE POULAINE"]


def test_no_text_finds_the_most_popular():
    bundle = loaded("string")
    found = ItemFinder().find(bundle, " ", 5)["items"]
    assert [(item["id"], item["title"]) for item in found] == list(zip(bundle.item_ids[:5], bundle.titles[:5]))


def test_fresh_items_are_found_after_the_others_and_marked():
    bundle = loaded("string")
    bundle = dataclasses.replace(bundle, manifest=bundle.manifest | {"tower_items": ITEMS - 2},
                                 history_rows=HistoryRows(ITEMS - 2))
    last, second, before = (str(item) for item in bundle.item_ids[:-4:-1])
    marked = dict(id=last, title=bundle.titles[-1], known=False, fresh=True)
    found = ItemFinder().find(bundle, "title", ITEMS)["items"]
    assert found[-1] == marked and len(found) == ITEMS and sum("fresh" in item for item in found) == 2
    assert ItemFinder().find(bundle, last, ITEMS)["items"][0] == marked
    assert last not in [item["id"] for item in ItemFinder().find(bundle, "", ITEMS)["items"]]  # no popularity is known
    assert known_items(bundle, [last, before, "nope"])["items"] == [
        marked, dict(id=before, title=bundle.titles[-3], known=True), dict(id="nope", title=None, known=False)]
    bundle.__dict__["live"] = ~np.isin(bundle.item_ids, [last, before])  # withdrawn: `before` counts in histories still
    found = [item["id"] for item in ItemFinder().find(bundle, "title", ITEMS)["items"]]
    assert last not in found and before in found and second in found
    assert last not in [item["id"] for item in ItemFinder().find(bundle, last, ITEMS)["items"]]
    assert known_items(bundle, [last])["items"] == [dict(id=last, title=bundle.titles[-1], known=False)]


@pytest.mark.parametrize("text", ["", "x", "1e3", "٣", "1" * 30, str(2**63), "--7", "0"])
def test_what_is_no_integer_is_unknown_to_a_model_of_integers(text):
    assert known_items(loaded("int"), [text])["items"] == [dict(id=text, title=None, known=False)]


def test_a_search_ends_in_time_and_the_next_one_goes_further():
    bundle = loaded("string")
    assert ItemFinder(seconds=-1).find(bundle, "title", 5) == {"items": [], "complete": False}
    many = dataclasses.replace(bundle, item_ids=np.tile(bundle.item_ids, 5000), titles=np.tile(bundle.titles, 5000),
                               manifest=bundle.manifest | {"tower_items": 5000 * ITEMS},
                               history_rows=HistoryRows(5000 * ITEMS))
    finder, started = ItemFinder(seconds=0.05), time.monotonic()
    assert not finder.find(many, "nothing", 5)["complete"]
    assert time.monotonic() - started < 2  # seconds, on a busy machine; all texts at once take as long or longer
    assert any(finder.find(many, "nothing", 5)["complete"] for _ in range(200))


def test_a_version_that_is_not_served_any_more_is_not_kept():
    finder, bundle = ItemFinder(), with_titles("string", ["old"] * ITEMS)
    assert len(finder.find(bundle, "old", 3)["items"]) == 3
    gone = weakref.ref(bundle)
    del bundle
    gc.collect()
    assert gone() is None
    assert finder.find(with_titles("string", ["new"] * ITEMS), "old", 3)["items"] == []
