"""Attributes of items: conditions against plain loops, where they come from, and what is refused."""
import dataclasses
import re

import numpy as np
import polars as pl
import pytest

from clrec_tf.config import ExportConfig
from clrec_tf.errors import DataError, UserError
from clrec_tf.publishing.item_attributes import attributes_of
from clrec_tf.publishing.updated_attributes import given_attributes, updated_attributes
from clrec_tf.retrieval.attributes import among, Attributes, TEXTS
from clrec_tf.retrieval.exact_index import ExactIndex
from clrec_tf.retrieval import filtered_search
from clrec_tf.retrieval.filtered_search import best_among, search_passing
from tests import exported

FRAME = pl.DataFrame({"kind": [["a"], ["b", "a"], [], ["c", "c"], None, ["12"]],
                      "price": [3.0, None, 20.0, 20.5, -1.0, 3.0]}, {"kind": TEXTS, "price": pl.Float64})


@pytest.mark.parametrize("given, expected", [
    ({}, [0, 1, 2, 3, 4, 5]), ({"kind": "a"}, [0, 1]), ({"kind": ["c", "b"]}, [1, 3]), ({"kind": []}, []),
    ({"kind": ["nobody has it"]}, []), ({"kind": 12}, [5]), ({"price": {"max": 20}}, [0, 2, 4, 5]),
    ({"price": {"min": 3, "max": 20}}, [0, 2, 5]), ({"price": {"min": 21}}, []), ({"price": [3, 20.5]}, [0, 3, 5]),
    ({"price": 3}, [0, 5]), ({"kind": ["a", "c"], "price": {"min": 0}}, [0, 3])])
def test_conditions_by_pencil(given, expected):
    attributes = Attributes(FRAME)
    assert attributes.passing(attributes.checked(given, "x")).tolist() == expected


def test_random_conditions_are_those_of_a_loop():
    rng = np.random.default_rng(3)
    rows = [dict(kind=[f"k{k}" for k in rng.choice(6, rng.integers(0, 3), False)],
                 price=None if rng.random() < .2 else float(rng.integers(0, 9))) for _ in range(300)]
    attributes = Attributes(pl.DataFrame(rows, {"kind": TEXTS, "price": pl.Float64}))
    for _ in range(30):
        kinds, (least, most) = [f"k{k}" for k in rng.choice(6, 2)], sorted(rng.integers(0, 9, 2).tolist())
        found = attributes.passing(attributes.checked({"kind": kinds, "price": {"min": least, "max": most}}, "x"))
        assert found.tolist() == [place for place, row in enumerate(rows) if set(kinds) & set(row["kind"])
                                  and row["price"] is not None and least <= row["price"] <= most]


@pytest.mark.parametrize("given, text", [
    ({"brand": ["x"]}, "x: filter has 'brand', which is no attribute of these items; attributes are kind (values), "
                       "price (a number)"),
    ({"price": "3"}, "filter of price is '3': give a number"), ({"price": {"most": 3}}, "give `min`, `max` or both"),
    ({"price": {}}, "give `min`, `max` or both"), ({"price": {"max": True}}, "give `min`, `max` or both"),
    ({"price": [10**400]}, "give a number"), ({"kind": {"min": 3}}, "filter of kind is {'min': 3}: give one of its "
                                                                   "values"),
    ({"kind": [["a"]]}, "filter of kind is ['a']: give texts"), ({"kind": None}, "is None: give texts"),
    ({"kind": ["a"] * 1001}, "a list of 1001 values: give texts, at most 1000"), ("kind", "must be an object")])
def test_what_is_no_condition_is_refused(given, text):
    with pytest.raises(DataError) as error:
        Attributes(FRAME).checked(given, "x")
    assert text in str(error.value)
    with pytest.raises(DataError, match="this bundle has none: export with --attributes"):
        Attributes().checked({"kind": "a"}, "x")


def test_membership():
    assert among(np.array([[3, 9], [0, 4]]), np.array([0, 3, 5])).tolist() == [[True, False], [True, False]]
    assert not among(np.array([1, 2]), np.zeros(0, np.int64)).any()


@pytest.fixture(scope="module")
def random():
    rng = np.random.default_rng(8)
    return rng.normal(size=(500, 6)).astype(np.float32), rng.normal(size=(7, 6)).astype(np.float32), rng


@pytest.mark.parametrize("few", [0, 10**6])  # by the index alone where that is enough, and exactly
@pytest.mark.parametrize("count", [400, 40, 3, 0])
def test_searches_among_some_are_those_of_a_loop(random, monkeypatch, few, count):
    items, users, rng = random
    monkeypatch.setattr(filtered_search, "FEW", few)
    monkeypatch.setattr(filtered_search, "_BLOCK", 64)
    passing = np.sort(rng.choice(500, count, False))
    banned = np.sort(rng.choice(500, 30, False))
    index = ExactIndex(items)
    near, scores = search_passing(index, users, passing, banned, 10)
    left = [place for place in passing if place not in set(banned)]
    for user, mine, of_mine in zip(users, near, scores):
        best = sorted(left, key=lambda place: -float(user @ items[place]))[:10]
        assert mine.tolist() == best + [-1] * (10 - len(best))
        np.testing.assert_allclose(of_mine[:len(best)], [user @ items[place] for place in best], rtol=1e-5)
        assert np.isneginf(of_mine[len(best):]).all()


def test_a_taste_against_the_filter_gets_all_the_same(monkeypatch):
    """The items that pass are the last of this user's, so that more and more results are fetched."""
    monkeypatch.setattr(filtered_search, "FEW", 5)
    items = np.linspace(1, -1, 1000, dtype=np.float32)[:, None]
    searched, index = [], ExactIndex(items)
    search = index.search
    monkeypatch.setattr(index, "search", lambda vectors, k: (searched.append(k), search(vectors, k))[1])
    near, _ = search_passing(index, np.ones((1, 1), np.float32), np.arange(900, 1000), np.array([901]), 3)
    assert near.tolist() == [[900, 902, 903]] and searched == [50, 200, 800]
    equal, scores = best_among(index, np.zeros((1, 1), np.float32), np.array([5, 7, 9]), 2)
    assert equal.tolist() == [[5, 7]] and scores.tolist() == [[0, 0]]


def world():
    return exported.world("string")


def test_attributes_are_features_of_the_data_or_columns_of_a_file(tmp_path, caplog):
    """Brand has 8 known values and one hash bucket, which nobody knows the value of; tags are two an item."""
    schema, catalogue = world().schema, world().catalogue
    values = exported.values_of(schema.features)
    frame = attributes_of(ExportConfig(attributes=("tags", "brand")), schema, catalogue, values)
    brand, tags = catalogue.item_rows[:, 1], catalogue.item_rows[:, 2:4]
    assert frame["brand"].to_list() == [[f"brand{n}"] if n else [] for n in brand]
    assert frame["tags"].to_list() == [[f"tags{n}" for n in row if n] for row in tags]
    numbers = attributes_of(ExportConfig(attributes=("brand",)), schema, catalogue,
                            {"brand": [str(n / 2) for n in range(8)]})
    assert numbers["brand"].to_list() == [(n - 1) / 2 if n else None for n in brand]
    caplog.set_level("INFO", "absl")
    mixed = attributes_of(ExportConfig(attributes=("brand",)), schema, catalogue,
                          {"brand": ["unknown", *(str(n / 2) for n in range(1, 8))]})
    assert mixed["brand"].to_list() == [["unknown"] if n == 1 else [str((n - 1) / 2)] if n else [] for n in brand]
    assert caplog.messages == ["--attributes: brand is a category, since 'unknown' is no number"]
    caplog.clear()
    for least, is_number in ((2**53 - 6, True), (2**53 - 4, False)):  # of 6 ids the last is 2^53 - 1, or 2^53 + 1
        found = attributes_of(ExportConfig(attributes=("brand",)), schema, catalogue,
                              {"brand": [str(least + n) for n in range(8)]})
        assert (found.schema["brand"] == pl.Float64) == is_number
        expected = [least + n - 1 if n else None for n in brand]
        assert found["brand"].to_list() == (expected if is_number else [[str(n)] if n else [] for n in expected])
    assert re.fullmatch("--attributes: brand is a category, since '900719925474099[23]' is no number that a float tells "
                        "from its neighbours", *caplog.messages)
    path = tmp_path / "items.csv"
    path.write_text("item_id,price,kind\n" + "".join(f"ä {n},{n / 4},a{n % 2}|b\n" for n in range(1, 60)))
    frame = attributes_of(ExportConfig(attributes=("price", "kind:list"), attribute_items=str(path)), schema, catalogue,
                          {})
    assert frame["price"].to_list() == [n / 4 for n in range(1, 60)] + [None]
    assert frame["kind"].to_list() == [[f"a{n % 2}", "b"] for n in range(1, 60)] + [[]]
    assert attributes_of(ExportConfig(), schema, catalogue, {}) is None
    named = dataclasses.replace(schema, settings=schema.settings | {"item_column": "shelf"})
    (tmp_path / "named.csv").write_text("shelf,kind\nä 1,b\n")
    of_named = ExportConfig(attributes=("kind",), attribute_items=str(tmp_path / "named.csv"))
    assert attributes_of(of_named, named, catalogue, {})["kind"][:2].to_list() == [["b"], []]
    with pytest.raises(UserError, match="--attribute_items=.*: of its columns shelf, kind, none could be the item's "
                                        "id: call it item_id, or"):
        attributes_of(of_named, schema, catalogue, {})
    for settings, text in ((dict(attributes=("price",)), "price is no feature of the data set, whose features are brand"),
                           (dict(attributes=("x",), attribute_items=str(path)), "has no column 'x' of --attributes: its "
                                                                                "columns are price, kind"),
                           (dict(attributes=("brand", "brand")), "names one twice"),
                           (dict(attribute_items=str(path)), "needs --attributes")):
        with pytest.raises(UserError, match=text):
            attributes_of(ExportConfig(**settings), schema, catalogue, values)


def test_updates_say_attributes_of_new_and_old_items():
    attributes = Attributes(FRAME)
    line = {"features": {"kind": "z", "price": "4.5", "other": 1}, "attributes": {"kind": ["y", 3], "price": None}}
    given = given_attributes(line, attributes, "x")
    assert given == {"kind": ["y", "3"], "price": 4.5}
    # As prepare reads a log: "y " is the category that requests call y, and an empty text is none.
    assert given_attributes({"attributes": {"kind": [" y\u00a0", "", 3.5]}}, attributes, "x") == {"kind": ["y", "3.5"]}
    after = updated_attributes(attributes, [7, 1], [given, {"price": 1.0}], 8).frame
    assert after["kind"].to_list() == [["a"], ["b", "a"], [], ["c", "c"], [], ["12"], [], ["y", "3"]]
    assert after["price"].to_list() == [3.0, 1.0, 20.0, 20.5, -1.0, 3.0, None, 4.5]
    for entry, text in (({"price": "dear"}, "attribute price is 'dear': give a finite number"),
                        ({"price": 10**400}, "attribute price is 1000.*: give a finite number"),
                        ({"price": "1_000"}, "attribute price is '1_000': give a finite number"),
                        ({"price": 2**53 + 1}, "attribute price is 9007199254740993: .* below 2.53"),
                        ({"price": "9007199254740993"}, "attribute price is 9007199254740993: .* below 2.53"),
                        ({"x": 1}, "attributes has 'x', which the bundle lacks; attributes are kind"),
                        ({"kind": [{}]}, "attribute kind has the value {}")):
        with pytest.raises(DataError, match=text):
            given_attributes({"attributes": entry}, attributes, "x")
