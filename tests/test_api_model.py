"""A loaded model: every form of histories, scores as products of vectors, similar items, and refusals."""
import numpy as np
import pandas as pd
import polars as pl
import pytest

import clrec_tf as clrec
from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.retrieval.retriever import Retriever
from clrec_tf.retrieval.search_options import SearchOptions
from clrec_tf.retrieval.user_requests import UserRequest
from tests import exported

USERS = {7: [4, 9, 12, 30, 41, 2], 3: [20, 1, 9], 5: [33]}  # numbers of items
HISTORIES = {user: [exported.original_id("string", number) for number in numbers] for user, numbers in USERS.items()}
CLICKS = pl.DataFrame([(user, item, exported.NOW - 100 + place) for user, items in HISTORIES.items()
                       for place, item in enumerate(items)], ["user_id", "item_id", "timestamp"], orient="row")


@pytest.fixture(scope="module")
def model():
    return clrec.load(exported.bundle_folder("string"))


def test_recommendations_are_what_the_retriever_finds(model):
    found = model.recommend(HISTORIES, k=4, popularity=0.5, exclude_seen=True)
    retriever = Retriever(model.bundle, SearchOptions(4, True, popularity=0.5))
    expected = retriever([UserRequest(user, items) for user, items in HISTORIES.items()])[0]
    rows = [(user.user_id, item, score, rank, None, title) for user in expected
            for rank, (item, score, title) in enumerate(zip(user.ids, user.scores, user.titles), 1)]
    assert found.columns == ["user", "item", "score", "rank", "intent", "title"] and found.rows() == rows
    assert len(rows) == 12 and all(item not in HISTORIES[user] for user, item in found.select("user", "item").rows())


@pytest.mark.parametrize("form", [
    lambda: pl.DataFrame(dict(user_id=list(HISTORIES), history=list(HISTORIES.values()))),
    lambda: CLICKS, lambda: CLICKS.reverse().sort("user_id", descending=True, maintain_order=True),
    lambda: CLICKS.with_columns(pl.from_epoch("timestamp")), lambda: CLICKS.drop("timestamp").lazy(),
    lambda: CLICKS.reverse().with_columns(pl.col("timestamp") + 0.5),
    lambda: pd.DataFrame(CLICKS.to_dict(as_series=False)),
    lambda: pd.DataFrame(CLICKS.to_dict(as_series=False)).astype({"user_id": float}),
    lambda: pd.DataFrame(CLICKS.to_dict(as_series=False)).groupby("user_id")["item_id"].agg(list),
    lambda: pd.DataFrame(CLICKS.to_dict(as_series=False)).groupby("user_id")["item_id"].unique(),
    lambda: pd.DataFrame(CLICKS.to_dict(as_series=False)).groupby("user_id")["item_id"].unique().rename(
        "history").reset_index(),
    lambda: CLICKS.with_columns(pl.col("user_id").cast(pl.Decimal(10, 2))),
    lambda: {user: pd.Series(items) for user, items in HISTORIES.items()},
    lambda: {user: pytest.importorskip("pyarrow").array(items) for user, items in HISTORIES.items()},
    lambda: {np.int64(user): tuple(items) for user, items in HISTORIES.items()}])
def test_every_form_of_histories_is_read_alike(model, form):
    found, expected = model.recommend(form(), k=3), model.recommend(HISTORIES, k=3)
    assert isinstance(found, pd.DataFrame) == isinstance(form(), (pd.DataFrame, pd.Series))
    rows = lambda frame: sorted(zip(*(list(frame[name]) for name in ("user", "rank", "item", "score"))))
    assert rows(found) == rows(expected)


@pytest.mark.parametrize("form", [list, np.array, lambda users: np.array([*users, None], object)[:-1], pl.Series])
def test_users_without_a_name_are_numbered(model, form):
    users = [items[:1] for items in HISTORIES.values()]
    assert model.recommend(form(users), k=3).equals(model.recommend(dict(enumerate(users)), k=3))


def test_times_are_read_where_the_time_of_the_request_is_given(model):
    of_times = model.recommend(CLICKS, request_time=np.int64(exported.NOW))
    assert not of_times.equals(model.recommend(CLICKS)) and of_times.equals(model.recommend(
        CLICKS.group_by("user_id", maintain_order=True).agg(history="item_id", timestamps="timestamp").with_columns(
            request_time=exported.NOW)))


def test_scores_are_products_of_the_vectors(model):
    found = model.recommend(HISTORIES, k=60, popularity=1)
    scores = model.user_vectors(HISTORIES, popularity=1) @ model.item_vectors.T
    users, places = list(HISTORIES), {item: place for place, item in enumerate(model.item_ids.tolist())}
    expected = [scores[users.index(user), places[item]] for user, item in found.select("user", "item").rows()]
    assert len(found) == 180 and found["score"].to_numpy() == pytest.approx(expected, abs=2e-6)


def test_of_several_intents_each_item_names_the_one_that_brought_it():
    model = clrec.load(exported.bundle_folder(exported.MULTI))
    histories = [[exported.original_id(exported.MULTI, number) for number in numbers] for numbers in USERS.values()]
    found = model.recommend(histories, k=5, intents=2)
    assert found["intent"].null_count() == 0 and found["user"].unique().sort().to_list() == [0, 1, 2]
    assert all(intents <= 2 for intents in found.group_by("user").agg(pl.col("intent").n_unique())["intent"])
    assert model.user_vectors(histories).shape[:2] == (3, model.bundle.manifest["served_intents"])


@pytest.mark.parametrize("kind", ["string", "int"])
def test_similar_items_have_the_largest_products(kind):
    model = clrec.load(exported.bundle_folder(kind))  # of vectors of length 1, and of any
    asked, width = exported.original_id(kind, 9), model.bundle.manifest["dimension"]
    vectors = model.item_vectors[:, :width]
    lengths = np.linalg.norm(vectors, axis=1)
    assert (np.abs(lengths - 1) < 1e-5).all() == (kind == "string")
    products = dict(zip(model.item_ids.tolist(), (vectors @ vectors[model.item_ids.tolist().index(asked)]).tolist()))
    del products[asked]
    found = model.similar_items(asked, 5)
    assert found["item"].to_list() == sorted(products, key=products.get, reverse=True)[:5]
    assert found["score"].to_list() == pytest.approx([products[item] for item in found["item"]], abs=1e-5)
    assert found["rank"].to_list() == [1, 2, 3, 4, 5] and len(model.similar_items(asked, 1000)) == len(products)


def test_who_is_unknown_is_given_the_popular_items_and_a_warning(model):
    with pytest.warns(UserWarning, match="of 1 of 2 users, such as 0, no item of the history is known"):
        found = model.recommend([["nothing"], HISTORIES[3]], k=2)
    assert found["item"][:2].to_list() == model.item_ids[:2].tolist() and found["score"][0] == 0
    assert model.recommend([]).is_empty() and model.user_vectors([]).shape == (0, model.bundle.width)


@pytest.mark.parametrize("histories, settings, error, message", [
    (7, {}, UserError, "histories is of type int: give a list of histories, a dict"),
    (["ä 8"], {}, DataError, "histories, user 0: 'ä 8' is no list of item ids"),
    ([[8]], {}, DataError, "histories, user 0: item ids of this bundle are strings, got 8"),
    ({1: ["ä 8"], "b": ["ä 8"]}, {}, DataError, "histories has the users 1 and 'b'"),
    (pl.DataFrame(dict(user_id=[1, 1], history=[["ä 8"], ["ä 9"]])), {}, DataError, "user_id 1 stands twice"),
    (pl.DataFrame(dict(user_id=[None], history=[["ä 8"]])), {}, DataError, "user_id None is missing"),
    (CLICKS.rename(dict(item_id="item")), {}, DataError, "histories has the columns user_id, item, timestamp: give"),
    (CLICKS.with_columns(pl.col("timestamp").cast(str)), {}, DataError, "'timestamp' holds String: give seconds"),
    ([["ä 8"]], dict(k=0), UserError, "--k=0: must be ≥ 1"),
    ([["ä 8"]], dict(merge="least"), UserError, "--merge=least: must be one of maximum, quota"),
    (CLICKS.with_columns(user_id=pl.Series([np.nan, *CLICKS["user_id"][1:]])), {}, DataError,
     "user_id None is missing"),
    (CLICKS.with_columns(user_id=0.5), {}, DataError, "user_id 0.5 must be an integer or a string"),
    (CLICKS.with_columns(user_id=2.0**53 + 2), {}, DataError, "'user_id' holds ids from 2.53 on as floats of 64 bits"),
    (CLICKS.with_columns(timestamp=pl.Series([np.nan] + [1.0] * 9)), {}, DataError,
     "histories: column 'timestamp' is empty in 1 of 10 rows, whose place is unknown: leave these rows out"),
    (pd.DataFrame(CLICKS.to_dict(as_series=False)).groupby("user_id")["item_id"], {}, UserError,
     "histories is of type SeriesGroupBy: give a list"),
    ([["ä 8"]], dict(request_time=1.5), UserError, "request_time=1.5 is of type float: give an integer"),
    ([["ä 8"]], dict(k=2.5), UserError, "k=2.5 is of type float: give an integer"),
    ([["ä 8"]], dict(exclude_seen="no"), UserError, "exclude_seen='no' is of type str: give True or False"),
    ([["ä 8"]], dict(popularity="auto"), UserError, "popularity='auto' is of type str: give a number"),
    ([["ä 8"]], dict(popularity=9), DataError, "popularity is 9, this bundle offers"),
])
def test_what_cannot_be_answered_is_said(model, histories, settings, error, message):
    with pytest.raises(error, match=message):
        model.recommend(histories, **settings)


def test_what_is_not_there_is_said(model, tmp_path):
    with pytest.raises(DataError, match="item 'other' is not known: give an id of this bundle"):
        model.similar_items("other")
    with pytest.raises(DataError, match="holds no complete bundle"):
        clrec.load(tmp_path)
    with pytest.raises(UserError, match="export_dir is of type Model: give the folder that Run.export returned"):
        clrec.load(model)
