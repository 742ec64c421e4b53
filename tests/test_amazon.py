"""Amazon's review files in their published form, and their faults."""
import gzip
import json

import pytest

from clrec_tf.config import PrepareConfig
from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.preparation import amazon
from clrec_tf.preparation import logs
from tests import log_files
from tests import prepared_data

REVIEWS = [
    {"reviewerID": "A2", "asin": "0528881469", "reviewerName": 'Jo "B"', "helpful": [0, 1], "overall": 5.0,
     "reviewText": 'It has {"asin": "X"} in it, a \ttab and\nlines', "unixReviewTime": 1370131200,
     "reviewTime": "06 2, 2013"},
    {"reviewerID": "A1", "asin": "B00005N9D3", "overall": 1.0, "unixReviewTime": 1290643200},
    {"reviewerID": "A2", "asin": "B00005N9D3", "unixReviewTime": 1290643201}]
PRODUCTS = [
    {"asin": "0528881469", "title": "Rand McNally's \"GPS\"", "price": 299.99, "brand": "McNally",
     "related": {"also_viewed": ["B006ZOI9OY"]}, "categories": [["Electronics"], ["Electronics", "GPS", "Trucking"]]},
    {"asin": "B00005N9D3", "categories": [["Electronics", "Café"]], "imUrl": None},
    {"asin": "B00005N9D3", "categories": [["again"]]}, {"asin": "unused", "categories": [], "brand": ""}]


def written(folder, reviews=None, products=None, name="reviews_Electronics_5.json"):
    """The two files; products as Python literals, which the published ones are."""
    (folder / name).write_text("".join(line + "\n" for line in reviews or map(json.dumps, REVIEWS)), encoding="utf-8")
    if products != []:
        (folder / "meta_Electronics.json").write_text(
            "".join(line + "\n" for line in products or map(repr, PRODUCTS)), encoding="utf-8")
    return folder / name


def read(path, **settings):
    settings = PrepareConfig(input=str(path), format="amazon", **settings)
    return log_files.in_memory(logs.read_log(logs.open_log(settings), settings))


def test_reviews_and_products(tmp_path):
    log = read(written(tmp_path))
    assert log.clicks.columns == ["user", "item", "timestamp"]
    assert log.clicks.rows() == [("A2", "0528881469", 1370131200), ("A1", "B00005N9D3", 1290643200),
                                 ("A2", "B00005N9D3", 1290643201)]
    assert log.items.frame.columns == ["item", "title", "f:category"] and log.items.features == {"category": False}
    assert log.items.frame.rows() == [("0528881469", "Rand McNally's \"GPS\"", "Trucking"),
                                      ("B00005N9D3", None, "Café"), ("unused", None, None)]


def test_compressed_in_a_folder_under_other_names_and_later_editions(tmp_path):
    later = {"asin": "0528881469", "title": "T", "brand": "B", "category": ["Electronics", "GPS"], "also": True}
    written(tmp_path, products=[json.dumps(later)], name="Electronics_5.json")
    log = read(tmp_path, feature_columns=("brand", "category"))
    assert log.items.frame.rows() == [("0528881469", "T", "B", "GPS")]
    for name in ("Electronics_5.json", "meta_Electronics.json"):
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress((tmp_path / name).read_bytes()))
        (tmp_path / name).unlink()
    again = read(tmp_path, feature_columns=("brand", "category"))
    assert again.clicks.equals(log.clicks) and again.items.frame.equals(log.items.frame)
    (tmp_path / "meta_Electronics.json.gz").unlink()
    assert read(tmp_path / "Electronics_5.json.gz").items is None
    with pytest.raises(UserError, match="_5.json"):
        (tmp_path / "Electronics_5.json.gz").unlink()
        read(tmp_path)


@pytest.mark.parametrize("line, reason", [
    ('{"reviewerID": "A1", "asin": "B0', "missing user id"), ("not JSON", "missing user id"), ("[1]", "missing user id"),
    ('{"reviewerID": "A1", "unixReviewTime": 1}', "missing item id"),
    ('{"reviewerID": "A1", "asin": "B", "unixReviewTime": "noon"}', "time stamp")])
def test_damaged_review_is_counted_and_limited(tmp_path, line, reason):
    path = written(tmp_path, [json.dumps(REVIEWS[0]), line, "", json.dumps(REVIEWS[1])])
    with pytest.raises(DataError, match=rf"(?s)has 1 bad of 3 rows.*line 2: .*{reason}.*--max_bad_rows=1"):
        read(path)
    assert read(path, max_bad_rows=1).clicks["user"].to_list() == ["A2", "A1"]


@pytest.mark.parametrize("line, reason", [
    ("{'asin': 'B1', 'title': 'cut of", "no product"), ("{'title': 'x'}", "no product.*KeyError"), ("[]", "no product"),
    ("{'asin': 'B1', 'categories': 3}", "no product"), ("{'asin': 'B1', 'categories': [[]]}", "no product"),
    ("{'asin': 5}", "asin 5.* must be texts"), ("{'asin': 'B1', 'categories': [[1]]}", "must be texts"),
    ("__import__('os').abort()", "no product"), ("(" * 5000, "no product"),
    ("{'asin': 'B1', 'title': '" + "x" * amazon.MAX_LINE + "'}", "longer than 1,048,576 characters")])
def test_damaged_product_is_named(tmp_path, line, reason):
    with pytest.raises(DataError, match=rf"meta_Electronics.json, line 2: .*{reason}"):
        read(written(tmp_path, products=[repr(PRODUCTS[0]), line]))


def test_files_without_content_or_not_in_utf_8(tmp_path):
    path = written(tmp_path, products=["\n"])
    with pytest.raises(DataError, match="meta_Electronics.json holds no product"):
        read(path)
    (tmp_path / "meta_Electronics.json").write_bytes(b"{'asin': '0528881469', 'title': 'Caf\xe9'}\n")
    assert read(path).items.frame["title"].to_list() == ["Café"]  # as Windows writes it
    with pytest.raises(DataError, match="meta_Electronics.json is not UTF-8"):
        read(path, encoding="utf-8")
    (tmp_path / "meta_Electronics.json.gz").write_bytes(gzip.compress(repr(PRODUCTS[0]).encode())[:-9])
    (tmp_path / "meta_Electronics.json").unlink()
    with pytest.raises(DataError, match="meta_Electronics.json.gz is damaged"):
        read(path)


def test_prepared_as_the_protocol_wants_it(tmp_path):
    reviews = [json.dumps({"reviewerID": f"A{user}", "asin": f"B{(user + n) % 5}", "unixReviewTime": 10**9 + user + n})
               for user in range(20) for n in range(6)]
    products = [repr({"asin": f"B{n}", "categories": [["Electronics", f"c{n % 2}"]]}) for n in range(5)]
    text = "\n".join(reviews) + "\n"
    (tmp_path / "meta_log.csv.json").write_text("\n".join(products), encoding="utf-8")
    data_dir = prepared_data.prepare_text(tmp_path, text, format="amazon", split="by_user", min_train_length=2)
    tested = prepared_data.read_split(data_dir, "test")
    assert sorted(record["user_id"][0] for record in tested) == [15, 16, 17, 18, 19]  # later than user 14, at place 14
    names = {record["item_id"][0]: record for record in prepared_data.read_split(data_dir, "catalogue")}
    assert len({record["f:category"][0] for record in names.values()}) == 2
