"""Values of logs and item files: white space, lists as text, ids at their limits, and files whose ids do not match."""
import json
import re

import polars as pl
import pytest

from clrec_tf.data import ids
from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.tabular_files import values
from tests import log_files
from tests.log_files import feature_values
from tests.log_files import read
from tests.log_files import ROWS
from tests.log_files import text
from tests.log_files import written


def items_with(folder, value, name="items.tsv", column="category"):
    """An item file in which every item has the value, after its number."""
    return str(written(folder, name, f"item\t{column}\n" + "".join(f"i{n}\t{value(n)}\n" for n in range(11))))


def joined(folder, value, **settings):
    """The values of item i1."""
    log = written(folder, "l.csv", text())
    return feature_values(log, item_features=items_with(folder, value), **settings)["i1"]


def test_white_space_around_ids_names_and_values(tmp_path):
    path = written(tmp_path, "l.csv", " user , item,time \n" + "".join(
        f" u{u}\t, i{i} ,{t} \n" if n % 2 else f"u{u},i{i}\u00a0, {t}\n" for n, (u, i, t) in enumerate(ROWS)))
    log = read(path)
    assert log_files.sequences(log) == log_files.expected() and log.bad_rows == 0
    sequence = written(tmp_path, "s.txt", "".join(f"  u{u}   i{i} \n" for u, i, _ in ROWS))
    for form in ("sequence", "sequence_per_user"):
        log = read(sequence, format=form, user_column="user_id", item_column="item_id", timestamp_column="timestamp")
        assert log_files.sequences(log) == log_files.expected()


@pytest.mark.parametrize("value, separator, expected", [
    ("Action, Sci-Fi", ",", ["Action", "Sci-Fi"]), (" Action | Sci-Fi ", "|", ["Action", "Sci-Fi"]),
    ("Action; ;Sci-Fi;", ";", ["Action", "Sci-Fi"]), ("['Action', 'Sci-Fi']", "|", ["Action", "Sci-Fi"]),
    ('["Action", "Sci-Fi"]', ",", ["Action", "Sci-Fi"]), ("['Action' 'Sci-Fi']", "|", ["Action", "Sci-Fi"]),
    ("('Action', 'Sci-Fi')", "|", ["Action", "Sci-Fi"]), ("{'Action'}", "|", ["Action"]),
    ("""["It's", 'a "b"']""", "|", ["It's", 'a "b"']), ("[ 1  20 3.]", "|", ["1", "20", "3"]), ("[4, 5]", "|", ["4", "5"]),
    ("[]", "|", []), ("['nan', None, ' x ']", "|", ["x"]), ("Action, Sci-Fi", "|", ["Action, Sci-Fi"]),
    ("[REC]", "|", ["[REC]"]), ("[REC], 2|Drama", "|", ["[REC], 2", "Drama"]), ("(500) Days|[1408]", "|",
                                                                              ["(500) Days", "[1408]"])])
def test_values_of_features_that_have_several(tmp_path, value, separator, expected):
    flags = dict(multi_feature_columns=("category",), multi_separator=separator)
    assert joined(tmp_path, lambda n: value, **flags) == expected
    column = pl.Series("x", [value, None])
    assert values.several(column, separator, ("nan",), "x").to_list() == [expected, None]
    lines = written(tmp_path, "i.jsonl", "".join(json.dumps(dict(item=f"i{n}", category=value)) + "\n" for n in range(11)))
    log = written(tmp_path, "l.csv", text())
    assert feature_values(log, item_features=str(lines), **flags)["i1"] == expected


def test_lists_of_json_and_parquet(tmp_path):
    log, lists = written(tmp_path, "l.csv", text()), [[" Action ", "Sci-Fi", None, "nan"] for _ in range(11)]
    names = [f"i{n}" for n in range(11)]
    pl.DataFrame({"item": names, "category": lists}).write_parquet(tmp_path / "i.parquet")
    written(tmp_path, "i.jsonl", "".join(json.dumps(dict(item=name, category=lists[0])) + "\n" for name in names))
    written(tmp_path, "i.json", json.dumps({name: {"category": lists[0]} for name in names}))
    for ending in ("parquet", "jsonl", "json"):
        flags = dict(item_features=str(tmp_path / f"i.{ending}"), multi_feature_columns=("category",))
        assert feature_values(log, **flags)["i3"] == ["Action", "Sci-Fi"], ending


def test_list_text_of_a_feature_of_one_value_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"column 'category' holds lists such as .\['a', 'b1'\].*--multi_feature_columns"):
        joined(tmp_path, lambda n: f"['a', 'b{n % 2}']" if n % 2 else "", feature_columns=("category",))
    with pytest.raises(DataError, match="holds list text such as .* and other text such as 'Drama': write one form"):
        joined(tmp_path, lambda n: "['a', 'b']" if n else "Drama", multi_feature_columns=("category",))


@pytest.mark.parametrize("value", ["[Sale] Shoes, Boots", "Action, Sci-Fi", "A|B", "(500) Days", "[1408]", "{x}", "[REC]",
                                   "Rock 'n' Roll", "['Allo 'Allo!]", "[1, 2]"])
def test_names_titles_and_categories_are_not_taken_apart(tmp_path, value):
    assert joined(tmp_path, lambda n: value, feature_columns=("category",)) == [value]
    path = items_with(tmp_path, lambda n: value, column="title")
    log = written(tmp_path, "l.csv", text())
    assert read(log, item_features=path).clicks.columns == ["user", "item", "timestamp"]
    ids_too = written(tmp_path, "n.tsv", text(item=value.replace("{x}", "{{x}}") + " {}", mark="\t"))
    assert read(ids_too).clicks["item"][1] == f"{value} 3"


def test_items_whose_names_have_spaces_are_no_lists_of_a_user(tmp_path):
    """In a log in time order the first thousand clicks may be of as many users."""
    rows = [(f"u{n % 1500}", f"Item {n % 7}, red", ROWS[0][2] + n) for n in range(3000)]
    path = written(tmp_path, "l.tsv", "user\titem\ttime\n" + "".join("\t".join(map(str, row)) + "\n" for row in rows))
    assert read(path).clicks["item"].to_list() == [row[1] for row in rows]
    default = dict(user_column="user_id", item_column="item_id", timestamp_column="timestamp")
    path = written(tmp_path, "s.tsv", "".join("\t".join(row[:2]) + "\n" for row in rows))
    assert read(path, format="sequence", **default).clicks["item"].to_list() == [row[1] for row in rows]
    path = written(tmp_path, "once.tsv", "".join(f"u{n}\ti1,i2,i{n}\n" for n in range(2000)))
    with pytest.raises(UserError, match="is a user and a list of items: give --format=lists .*--multi_separator=','"):
        read(path, format="sequence", **default)
    log = read(path, format="lists", columns=("user", "item"), timestamp_column="", multi_separator=",")
    assert log.clicks["item"].head(3).to_list() == ["i1", "i2", "i0"] and log.rows == 6000


def test_a_separator_that_separates_nothing_is_said(tmp_path, caplog):
    joined(tmp_path, lambda n: f"Action, Sci-Fi{n % 2}", multi_feature_columns=("category",))
    assert "no value holds --multi_separator='|', and most hold ',', such as 'Action, Sci-Fi" in caplog.text
    caplog.clear()
    joined(tmp_path, lambda n: f"Action, Sci-Fi{n % 2}", multi_feature_columns=("category",), multi_separator=",")
    assert not caplog.text


# Item files.


def test_items_that_match_nothing_or_little(tmp_path, caplog):
    log = written(tmp_path, "l.csv", text())
    for name, content in (("i.csv", "item,category\n7,a\n8,b\n"), ("i.json", '{"7": {"category": "a"}}')):
        path = str(written(tmp_path, name, content))
        with pytest.raises(DataError, match=f"{name} has none of the log's 11 items: the log has ids such as 'i0'.*"
                                            "the file such as '7'"):
            log_files.prepared(log, item_features=path, feature_columns=("category",))
    few = str(written(tmp_path, "few.csv", "item,category\ni0,a\nx,b\n"))
    log_files.prepared(log, item_features=few, feature_columns=("category",))
    assert "few.csv has 9 % of the log's 11 items; it lacks such as 'i3'" in caplog.text


@pytest.mark.parametrize("header, message", [
    (",category", "of its columns '', category, none could be the item's id: give --item_features_id"),
    ("Unnamed: 0,category", "none could be the item's id"), ("name,category", "none could be"),
    ("movie_id,asin,category", "several could be"), ("i0,7", "its first line looks like a row and no header")])
def test_the_column_of_ids_must_be_evident(tmp_path, header, message):
    log = written(tmp_path, "l.csv", text())
    rows = "".join(f"i{n}{',y' if header.count(',') > 1 else ''},c\n" for n in range(11))
    path = str(written(tmp_path, "i.csv", header + "\n" + rows))
    with pytest.raises(UserError, match=message):
        log_files.prepared(log, item_features=path, feature_columns=("category",))
    if "," in header and "category" in header and header[0] != ",":
        named = header.split(",", maxsplit=1)[0]
        assert feature_values(log, item_features=path, feature_columns=("category",), item_features_id=named)["i1"] == ["c"]
    with pytest.raises(UserError, match="no column 'absent': give --item_features_id as one of"):
        log_files.prepared(log, item_features=path, feature_columns=("category",), item_features_id="absent")


@pytest.mark.parametrize("name", ["item", "item_id", "ItemID", "movieId", "asin", "product_id", "id", "track_id"])
def test_columns_of_ids_that_are_known(tmp_path, name):
    log = written(tmp_path, "l.csv", text())
    path = written(tmp_path, "i.csv", f"category,{name},title\n" + "".join(f"c,i{n},T\n" for n in range(11)))
    assert feature_values(log, item_features=str(path), feature_columns=("category",))["i1"] == ["c"]


# Ids.


@pytest.mark.parametrize("mark", ["::", "|", ";", "\t"])
def test_item_files_have_delimiters_of_their_own(tmp_path, mark):
    log = written(tmp_path, "l.csv", text())
    items = written(tmp_path, "i.csv", f"item{mark}category\n" + "".join(f"i{n}{mark}c\n" for n in range(11)))
    assert feature_values(log, item_features=str(items), feature_columns=("category",), delimiter=",")["i1"] == ["c"]


@pytest.mark.parametrize("column, value", [("item", ["i0"]), ("title", ["a"]), ("category", {"a": 1})])
def test_records_and_lists_in_item_files(tmp_path, column, value):
    row = {"item": "i0", "title": "T", "category": "c", column: value}
    pl.DataFrame([row]).write_parquet(tmp_path / "i.parquet")
    with pytest.raises(UserError, match=f"column '{column}' holds .*name a column of single values"):
        log_files.prepared(written(tmp_path, "l.csv", text()), item_features=str(tmp_path / "i.parquet"),
                           feature_columns=("category",))
    with pytest.raises(DataError, match="holds no items"):
        log_files.prepared(tmp_path / "l.csv", feature_columns=("category",),
                           item_features=str(written(tmp_path, "i.csv", "item,category\n")))


def test_negative_ids_and_their_way_out(tmp_path, caplog):
    """Half of hashed ids are negative: nobody is told to drop half of a log."""
    hashed = {item: (item * 0x9E3779B97F4A7C15) % 2**64 - 2**63 for item in range(11)}
    path = written(tmp_path, "l.csv", "user,item,time\n" + "".join(f"{u},{hashed[i]},{t}\n" for u, i, t in ROWS))
    with pytest.raises(DataError, match="negative id(.|\n)*--id_type=string takes such ids as text") as caught:
        read(path)
    assert "--max_bad_rows=2" not in str(caught.value) and "too many to be left out" in str(caught.value)
    log = read(path, id_type="string")
    assert set(log.clicks["item"]) == set(map(str, hashed.values())) and log.bad_rows == 0
    assert log_files.prepared(path, id_type="string").id_type == "string"


@pytest.mark.parametrize("item, kind", [
    ("0", "int"), (str(10**18 - 1), "int"), (str(10**18), "string"), (str(2**63), "string"), ("007", "string"),
    ("1e5", "string")])
def test_the_range_of_integer_ids(tmp_path, item, kind, caplog):
    path = written(tmp_path, "l.csv", text("{}", "1{}").replace(",13,", f",{item},"))
    assert log_files.prepared(path).id_type == kind
    assert (f"{item!r} (line 3)" in caplog.text) == (kind == "string")
    if kind == "string":
        with pytest.raises(DataError, match="line 3: .*no integer from 0 to 999999999999999999"):
            read(path, id_type="int")


def test_ids_of_19_digits_are_said_to_be_text(tmp_path, caplog):
    path = written(tmp_path, "l.csv", text("{}", "17000000000000000{:02}"))
    with caplog.at_level("INFO", "absl"):
        assert log_files.prepared(path).id_type == "string"
    assert "are kept as text: integers are those from 0 to 10^18 - 1" in caplog.text


@pytest.mark.parametrize("item", ["x" * 513, "a\0b"])
def test_ids_that_export_would_refuse(tmp_path, item):
    rows = [(f"u{u}", item if i == 5 else f"i{i}", t) for u, i, t in ROWS]
    pl.DataFrame(rows, ["user", "item", "time"], orient="row").write_parquet(tmp_path / "l.parquet")
    written(tmp_path, "l.csv", text().replace(",i5,", f",{item},"))
    with pytest.raises(DataError):
        ids.check_id(item, "export")
    for name in ("l.parquet", "l.csv"):
        with pytest.raises(DataError, match="3 bad of 40 rows(.|\n)*over 512 characters or with a zero byte"):
            read(tmp_path / name)
        assert read(tmp_path / name, max_bad_rows=3).bad_rows == 3
    assert read(written(tmp_path, "m.csv", text().replace(",i5,", f",{'x' * 512},"))).bad_rows == 0


@pytest.mark.parametrize("text_of_id", ["x", "x" * 512, "x" * 513, "", "a\nb", "a\rb", "a\0b", "é b", "\u2028"])
def test_the_rule_of_ids_is_one(text_of_id):
    """The expression over a column and the check of one id agree."""
    column = pl.DataFrame({"id": [text_of_id]}).select(
        bad=ids.has_line_break(pl.col("id")) | ids.is_unfit(pl.col("id")) | (pl.col("id") == ""))["bad"][0]
    try:
        ids.check_id(text_of_id, "x")
        refused = False
    except DataError:
        refused = True
    assert column == refused


@pytest.mark.parametrize("column, kind, bits, text", [
    ("item", pl.Float64, 53, "'item' holds ids from 2^53 on as floats of 64 bits"),
    ("item", pl.Float32, 24, "'item' holds ids from 2^24 on as floats of 32 bits"),
    ("user", pl.Float32, 24, "'user' holds ids from 2^24 on as floats of 32 bits"),
    ("time", pl.Float32, 24, "'timestamp' holds times from 2^24 on as floats of 32 bits")])
def test_floats_too_large_to_be_ids_or_times(tmp_path, column, kind, bits, text):
    """As pandas makes them of integers with a missing one, and memory savers of those."""
    frame = pl.DataFrame(ROWS, ["user", "item", "time"], orient="row")
    number = frame[column].cast(pl.String).rank("dense").cast(pl.Int64)
    frame = frame.with_columns((number + 2**bits - number.max() - 1).cast(kind).alias(column))
    frame.write_parquet(tmp_path / "l.parquet")
    read(tmp_path / "l.parquet")  # the largest is one less than the least that is refused
    frame.with_columns(pl.col(column) + 1).write_parquet(tmp_path / "l.parquet")
    with pytest.raises(DataError, match=re.escape(text)):
        read(tmp_path / "l.parquet")


@pytest.mark.parametrize("given, expected", [
    (["1.0", "2", "3.00"], ["1", "2", "3"]), (["1.5", "2.0"], ["1.5", "2.0"]), (["a.0", "b"], ["a.0", "b"]),
    (["1.0", "v1.0", None], ["1", "v1.0", None]), (["5.", "-7.0"], ["5", "-7"]), (["x", "y"], ["x", "y"])])
def test_whole_numbers_by_hand(given, expected):
    assert values.whole_numbers(pl.Series("id", given), "item", "f").to_list() == expected


# Columns that flags name.


@pytest.mark.parametrize("form, flags, message", [
    ("columns", dict(order_column="x"), "give --order_column as one of user, item, time"),
    ("columns", dict(user_column=""), "--user_column is empty"),
    ("sequence", dict(timestamp_column="time"), "--timestamp_column=time: --format=sequence has no such column"),
    ("taobao", dict(item_column="category"), "--item_column=category: --format=taobao takes the column item"),
    ("movielens", dict(event_column="rating"), "--event_column=rating: --format=movielens has no such column"),
    ("amazon", dict(item_column="sku"), "takes the column asin"),
    ("amazon2023", dict(user_column="name"), "takes the column user_id")])
def test_columns_that_a_format_does_not_have(tmp_path, form, flags, message):
    path = written(tmp_path, "l.csv", text())
    default = {} if form == "columns" else dict(user_column="user_id", item_column="item_id", timestamp_column="timestamp")
    with pytest.raises(UserError, match=message):
        read(path, format=form, **{**default, **flags})


def test_lines_that_are_not_json_are_bad_rows(tmp_path):
    lines = "".join(json.dumps(dict(user=f"u{u}", item=f"i{i}", time=t)) + "\n" for u, i, t in ROWS)
    path = written(tmp_path, "l.jsonl", lines + "\n" + '{"user": "u1", "it')
    with pytest.raises(DataError, match="1 bad of 41 rows(.|\n)*line 42: ..user.: .u1., .it .missing user id"):
        read(path)
    for content in (json.dumps({"user": {"0": "u0"}, "item": {"0": "a"}}), json.dumps(dict(user="u0", item=[1]), indent=1)):
        with pytest.raises(DataError, match="is one JSON value, and not an object a line"):
            read(written(tmp_path, "l.json", content))


def test_records_are_no_values(tmp_path):
    pl.DataFrame({"user": [{"id": 1}], "item": [1], "time": [1]}).write_parquet(tmp_path / "l.parquet")
    with pytest.raises(UserError, match="the user holds records .*name a column of single values"):
        read(tmp_path / "l.parquet")


def test_columns_of_json_lines_are_listed(tmp_path):
    path = written(tmp_path, "l.jsonl", '{"u": 1, "item": "a", "more": {"x": 1}}\n{"u": 2, "item": "b", "time": 5}\n')
    with pytest.raises(UserError, match="no column 'user': give --user_column as one of u, item, more, time"):
        read(path)
