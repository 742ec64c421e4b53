"""Forms of logs that are met in the field: each is read as it is meant, or refused with the way out."""
import json

import polars as pl
import pytest

from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from tests import log_files
from tests.log_files import feature_values
from tests.log_files import read
from tests.log_files import ROWS
from tests.log_files import sequences
from tests.log_files import text
from tests.log_files import written

ITEMS = "item,category\n" + "".join(f"i{item},c{item % 3}\n" for item in range(11))


def whole(log, user="u{}", item="i{}", **settings):
    """Whether all 40 clicks are there in their order."""
    return log.rows == 40 and log.bad_rows == 0 and sequences(log, **settings) == log_files.expected(user, item)


def test_a_recbole_file_whose_times_have_another_name(tmp_path):
    shuffled = sorted(ROWS, key=lambda row: hash((row[2] * 7919) % 101))
    path = written(tmp_path, "ml.inter", "user_id:token\titem_id:token\ttime:float\n" + "".join(
        f"u{user}\ti{item}\t{time}\n" for user, item, time in shuffled))
    flags = dict(format="recbole", user_column="user_id", item_column="item_id")
    with pytest.raises(UserError, match="no column 'timestamp': give --timestamp_column as one of user_id, item_id, "
                                        "time, or --timestamp_column= if"):
        read(path, **flags, timestamp_column="timestamp")
    assert whole(read(path, **flags))
    assert read(path, **flags, timestamp_column="").clicks.columns == ["user", "item"]


def test_ids_that_became_floats_match_the_items_file(tmp_path, caplog):
    items = written(tmp_path, "items.csv", "item,category\n" + "".join(f"{5800 + i},c{i % 3}\n" for i in range(11)))
    flags = dict(item_features=str(items), feature_columns=("category",))
    as_text = written(tmp_path, "clicks.csv", text(item="58{:02}.0"))
    frame = pl.DataFrame(ROWS, ["user", "item", "time"], orient="row").with_columns(pl.col("item") + 5800.0)
    frame.write_parquet(tmp_path / "clicks.parquet")
    for path in (as_text, tmp_path / "clicks.parquet"):
        values = feature_values(path, **flags)
        assert values == {f"{5800 + i}": [f"c{i % 3}"] for i in range(11)}
    with caplog.at_level("INFO", "absl"):
        read(as_text)
    assert "item ids that are whole numbers are read as such: 58" in caplog.text
    # The other way round: floats in the items file alone.
    items.write_text(items.read_text().replace(",c", ".0,c").replace(".0,category", ",category"))
    assert feature_values(written(tmp_path, "whole.csv", text(item="58{:02}")), **flags)["5803"] == ["c0"]


@pytest.mark.parametrize("word", ["nan", "NaN", "NULL", "null", r"\N", "None", "NA", "N/A", "<NA>", "", " ", "undefined"])
def test_words_for_missing_are_bad_rows(tmp_path, word):
    path = written(tmp_path, "l.csv", text().replace("i5,", f"{word},").replace("u4,", f"{word},"))
    missing = [row for row in ROWS if row[1] == 5 or row[0] == 4]
    with pytest.raises(DataError, match=rf"has {len(missing)} bad of 40 rows(.|\n)*missing item id(.|\n)*--null_values"):
        read(path)
    log = read(path, max_bad_rows=len(missing))
    assert log.bad_rows == len(missing) and set(log.clicks["item"]) == {f"i{n}" for n in range(11) if n != 5}


def test_words_that_are_said_to_be_missing(tmp_path):
    path = written(tmp_path, "l.csv", text().replace("i5,", "-,"))
    assert "-" in set(read(path).clicks["item"])
    assert read(path, null_values=("-",), max_bad_rows=5).bad_rows == 3
    path = written(tmp_path, "l.csv", text().replace("i5,", "NA,"))
    assert "NA" in set(read(path, null_values=()).clicks["item"])


def test_missing_floats_of_parquet_are_bad_rows(tmp_path):
    frame = pl.DataFrame([(f"u{u}", float("nan") if i == 0 else None if i == 1 else float(i), t) for u, i, t in ROWS],
                         ["user", "item", "time"], orient="row")
    frame.write_parquet(tmp_path / "l.parquet")
    log = read(tmp_path / "l.parquet", max_bad_rows=12)
    assert log.bad_rows == sum(i < 2 for _, i, _ in ROWS) and set(log.clicks["item"]) == {str(n) for n in range(2, 11)}
    with pytest.raises(DataError, match="row 0: .*missing item id"):
        read(tmp_path / "l.parquet")


def test_missing_feature_values_are_none(tmp_path):
    log = written(tmp_path, "l.csv", text())
    for name, content in (("i.json", '{"i0": {"category": NaN}, "i1": {"category": "x"}, "i2": {"category": "NULL"}}'),
                          ("i.csv", "item,category\ni0,nan\ni1,x\ni2,\\N\n"),
                          ("i.jsonl", '{"item": "i0", "category": NaN}\n{"item": "i1", "category": " x "}\n'
                                      '{"item": "i2", "category": null}\n')):
        values = feature_values(log, item_features=str(written(tmp_path, name, content)), feature_columns=("category",))
        assert {item: values[item] for item in ("i0", "i1", "i2")} == {"i0": [], "i1": ["x"], "i2": []}
    several = written(tmp_path, "m.csv", "item,category\ni0,nan|x\ni1,nan\ni2, x | y \n")
    values = feature_values(log, item_features=str(several), multi_feature_columns=("category",))
    assert [values[item] for item in ("i0", "i1", "i2")] == [["x"], [], ["x", "y"]]


@pytest.mark.parametrize("header", ["user item", "user_id\titem_id", "uid,iid"])
def test_a_header_above_sequences_is_left_out(tmp_path, caplog, header):
    mark = "\t" if "\t" in header else "," if "," in header else " "
    path = written(tmp_path, "s.txt", header + "\n" + "".join(f"{user}{mark}{item}\n" for user, item, _ in ROWS))
    with caplog.at_level("INFO", "absl"):
        log = read(path, format="sequence", **DEFAULTS)
    assert whole(log, "{}", "{}") and "line 1 is taken for a header" in caplog.text and log.text_ids == ""


DEFAULTS = dict(user_column="user_id", item_column="item_id", timestamp_column="timestamp")


def test_headers_of_other_formats(tmp_path):
    per_user = "user items\n" + "".join(f"{user} " + " ".join(items) + "\n" for user, items in
                                        log_files.expected("{}", "{}").items())
    assert sequences(read(written(tmp_path, "p.txt", per_user), format="sequence_per_user", **DEFAULTS)
                     ) == log_files.expected("{}", "{}")
    taobao = "user_id,item_id,category_id,behavior_type,timestamp\n" + "".join(
        f"{user},{item},7,pv,{time}\n" for user, item, time in ROWS)
    assert whole(read(written(tmp_path, "t.csv", taobao), format="taobao", **DEFAULTS), "{}", "{}")


def test_one_odd_id_is_named_and_can_be_refused(tmp_path, caplog):
    lines = text("{}", "{}").splitlines()
    lines[7] = lines[7].replace(",7,", ",B00x,")
    path = written(tmp_path, "l.csv", "\n".join(lines) + "\n")
    assert lines[7].startswith("0,B00x,")
    log = read(path)
    assert "1 of 12 item ids are no integers from 0 to 10^18 - 1, the first 'B00x' (line 8)" in caplog.text
    assert log_files.prepared(path).id_type == "string" and "'B00x' (line 8)" in log.text_ids
    with pytest.raises(DataError, match=r"line 8: 0,B00x.*item id that is no integer(.|\n)*--id_type=string"):
        read(path, id_type="int")
    assert log_files.prepared(path, id_type="int", max_bad_rows=1).id_type == "int"


def test_headers_that_are_missing(tmp_path):
    path = written(tmp_path, "l.csv", text(header=""))
    remedy = "--columns=user,item,time"
    with pytest.raises(UserError, match=f"looks like a row and no header. .*{remedy}"):
        read(path)
    first = dict(user_column="u0", item_column="i0", timestamp_column="1700000000")
    with pytest.raises(UserError, match=f"'1700000000' is a number.*{remedy}"):
        read(path, **first)
    with pytest.raises(UserError, match=r"'u0' is a value below it, too.*--columns="):
        read(path, **{**first, "timestamp_column": ""})
    assert whole(read(path, columns=("user", "item", "time")))
    for names, message in ((("user", "item"), "has 2 names, and the first line .* has 3 fields"),
                           (("user", "item", "when"), "no column 'time'")):
        with pytest.raises(UserError, match=message):
            read(path, columns=names)
    with pytest.raises(UserError, match="these names already; leave --columns out"):
        read(written(tmp_path, "h.csv", text()), columns=("user", "item", "time"))


def test_a_first_row_with_equal_numbers_is_no_header(tmp_path):
    path = written(tmp_path, "l.txt", "0,17,0\n0,9,1\n0,3,2\n0,5,3\n")
    with pytest.raises(UserError, match="stands twice in the header.*--columns=user,item,time"):
        read(path)
    assert read(path, columns=("user", "item", "time")).clicks["item"].to_list() == ["17", "9", "3", "5"]


def test_headers_that_stand_again_are_bad_rows(tmp_path):
    path = written(tmp_path, "l.csv", text() + text())  # two files behind one another
    with pytest.raises(DataError, match=r"1 bad of 81 rows(.|\n)*line 42: user,item,time .the header again"):
        read(path, timestamp_column="")


def test_movielens_in_utf_8_and_latin_1(tmp_path):
    written(tmp_path, "ratings.dat", "".join(f"{u}::{i}::3.5::{t}\n" for u, i, t in ROWS))
    for encoding in ("utf-8", "latin-1", "utf-8-sig"):
        movies = "".join(f"{item}::Misérables {item}, Les (1995)::Drama|War\n" for item in range(11))
        written(tmp_path, "movies.dat", movies.encode(encoding))
        log = read(tmp_path, format="movielens", **DEFAULTS)
        assert whole(log, "{}", "{}") and log.items.frame["title"][3] == "Misérables 3, Les (1995)"
        assert log.items.frame["item"][0] == "0" and log.items.frame["f:genres"][0].to_list() == ["Drama", "War"]


def test_dates_in_bounds(tmp_path):
    path = written(tmp_path, "l.csv", text())
    with pytest.raises(DataError, match="no click remains of 40 rows"):
        log_files.prepared(path, from_time="20240101")
    log_files.prepared(path, from_time="20231114", to_time="20231115")
    for bound in ("12345", "2023"):
        with pytest.raises(UserError, match=f"--from={bound} is 1970-.*the log begins at 2023.*a date such as "
                                            "2023-11-14"):
            log_files.prepared(path, from_time=bound)


@pytest.mark.parametrize("mark, given", [("::", "::"), ("\t", r"\t"), ("\x01", r"\x01"), ("||", "||"), ("§", "§")])
def test_delimiters_of_several_characters_and_escapes(tmp_path, mark, given):
    assert whole(read(written(tmp_path, "l.dat", text(mark=mark)), delimiter=given))


def test_delimiters_that_are_none(tmp_path):
    path = written(tmp_path, "l.dat", text(mark="::"))
    for given in ("", r"\t"):
        with pytest.raises(UserError, match="its header is one column.*give --delimiter='::'"):
            read(path, delimiter=given)
    for given in (r"\s+", '"', "\n"):
        with pytest.raises(UserError, match="--delimiter="):
            read(path, delimiter=given)


def test_lists_of_items_and_times_in_parquet(tmp_path):
    rows = [(f"u{user}", [f"i{i}" for u, i, _ in ROWS if u == user], [t for u, _, t in ROWS if u == user])
            for user in range(5)]
    frame = pl.DataFrame(rows, ["user", "item", "time"], orient="row")
    frame.write_parquet(tmp_path / "h.parquet")
    for form in ("columns", "lists"):
        assert whole(read(tmp_path / "h.parquet", format=form))
    frame.with_columns(pl.col("item").list.to_array(8)).write_parquet(tmp_path / "arrays.parquet")
    assert whole(read(tmp_path / "arrays.parquet"))
    frame.with_columns(user=pl.concat_list("user")).write_parquet(tmp_path / "users.parquet")
    with pytest.raises(UserError, match="the user holds lists .*name a column of single values"):
        read(tmp_path / "users.parquet")
    frame.with_columns(pl.col("time").list.head(3)).write_parquet(tmp_path / "odd.parquet")
    with pytest.raises(DataError, match=r"row 0: the lists differ in length \(8 of item, 3 of timestamp\)"):
        read(tmp_path / "odd.parquet")
    frame.with_columns(pl.col("time").list.first()).write_parquet(tmp_path / "baskets.parquet")
    assert read(tmp_path / "baskets.parquet").clicks["timestamp"].to_list()[:9] == [ROWS[0][2]] * 8 + [ROWS[8][2]]


@pytest.mark.parametrize("write", [json.dumps, str, lambda items: "|".join(map(str, items)),
                                   lambda items: "[" + " ".join(map(repr, items)) + "]"])
def test_lists_of_items_in_text(tmp_path, write):
    rows = "".join(f'u{user}\t{write([f"i{i}" for u, i, _ in ROWS if u == user])}\t'
                   f"{write([t for u, _, t in ROWS if u == user])}\n" for user in range(5))
    path = written(tmp_path, "h.tsv", "user\titem\ttime\n" + rows)
    with pytest.raises(UserError, match="'item' holds lists of items.*--format=lists"):
        read(path)
    log = read(path, format="lists")
    assert log.rows == 40 and sequences(log) == log_files.expected()
    with pytest.raises(UserError, match="are no lists: give --format=columns"):
        read(written(tmp_path, "l.csv", text()), format="lists")


@pytest.mark.parametrize("content, form, command", [
    ("".join(f"{u}\t{i}\t3\t{t}\n" for u, i, t in ROWS), "sequence", "--columns=user,item,rating,time "
                                                                     ".*--user_column=user"),
    ("".join(f"{u} {i} {t}\n" for u, i, t in ROWS), "sequence", "--columns=user,item,time .*--timestamp_column=time"),
    ("".join(f"{u} {i} 3 {t}\n" for u, i, t in ROWS), "sequence_per_user", "look like clicks; "
                                                                           ".*--columns=user,item,rating,"),
    ("userId,movieId,rating,timestamp\n1,2,3.5,1700000000\n", "sequence", "--user_column=userId --item_column=movieId "
     "--timestamp_column=timestamp"),
    ("userId,movieId,rating,timestamp\n1,2,3.5,1700000000\n", "movielens", "--format=columns --user_column=userId"),
    ("1 5 6 7\n2 5 6\n", "sequence", "--format=sequence_per_user"),
    ("1::5\n2::6\n", "sequence", "give --delimiter='::'"),
    ("1\t5,6,7\n2\t5,6\n", "sequence", "--format=lists .*--multi_separator=','"),
    ("1\t5,6,7\n2\t5,6\n", "sequence_per_user", "--format=lists"),
    ("u,i,t\n1,2,3\n", "taobao", "has 3 fields .* --format=taobao has 5")])
def test_a_file_of_another_form_is_named(tmp_path, content, form, command):
    path = written(tmp_path, "x.csv", content)
    with pytest.raises(UserError, match=command):
        read(path, format=form, **DEFAULTS)
    if "ratings" in command or form == "movielens":
        written(tmp_path, "ml/ratings.csv", content)
        with pytest.raises(UserError, match="ml/ratings.csv, and read it with --format=columns --user_column=userId"):
            read(tmp_path / "ml", format=form, **DEFAULTS)


def test_the_named_form_reads_the_file(tmp_path):
    """Following the advice gives the right clicks."""
    path = written(tmp_path, "r.tsv", "".join(f"u{u}\ti{i}\t3\t{t}\n" for u, i, t in ROWS))
    assert whole(read(path, columns=("user", "item", "rating", "time")))


@pytest.mark.parametrize("event, wanted", [
    (pl.Series([n % 2 for n in range(80)]), "1"), (pl.Series([n % 2 == 1 for n in range(80)]), "1"),
    (pl.Series([n % 2 == 1 for n in range(80)]), "True"), (pl.Series([["pv", "buy"][n % 2] for n in range(80)]), "buy"),
    (pl.Series([float(n % 2) for n in range(80)]), "1"),
    (pl.Series([["pv", "buy"][n % 2] for n in range(80)], dtype=pl.Categorical), "buy")])
def test_behaviours_of_every_type(tmp_path, event, wanted, capsys):
    twice = [row for u, i, t in ROWS for row in ((f"u{u}", "other", t + 1), (f"u{u}", f"i{i}", t))]
    frame = pl.DataFrame(twice, ["user", "item", "time"], orient="row").with_columns(click=event)
    frame.write_parquet(tmp_path / "l.parquet")
    frame.write_csv(tmp_path / "l.csv")
    for name in ("l.parquet", "l.csv"):
        schema = log_files.prepared(tmp_path / name, event_column="click", keep_events=(wanted,))
        out = capsys.readouterr().out
        assert (schema.num_users, schema.num_items) == (5, 11) and "dropped_by_keep_events: 40\n" in out
    with pytest.raises(UserError, match="--keep_events=sell: sell is not in the log, which has "):
        log_files.prepared(tmp_path / "l.parquet", event_column="click", keep_events=("sell",))


def test_a_second_column_orders_clicks_of_one_day(tmp_path):
    """The clicks of a session stand in a wrong order, their day is all the time there is."""
    rows = [(user, item, click, f"2016-05-0{user + 1}") for number, (user, item, _) in enumerate(ROWS)
            for click in [number % 8]]
    rows.sort(key=lambda row: (row[2] * 5) % 8)
    path = written(tmp_path, "views.csv", "user;item;when;day\n" + "".join(
        ";".join(map(str, row)) + "\n" for row in rows))
    flags = dict(timestamp_column="day")
    ordered = read(path, **flags, order_column="when")
    assert sequences(ordered) == log_files.expected("{}", "{}") != sequences(read(path, **flags))
    assert sequences(read(path, timestamp_column="", order_column="when")) == log_files.expected("{}", "{}")
    with pytest.raises(UserError, match="no column 'absent': give --order_column as one of user, item, when, day"):
        read(path, **flags, order_column="absent")
    with pytest.raises(DataError, match="missing or unreadable order"):
        read(path, **flags, order_column="day")


@pytest.mark.parametrize("content, name", [
    ("".join(json.dumps(dict(rating=5.0, asin=f"x{i}", parent_asin=f"i{i}", user_id=f"u{u}", timestamp=1000 * t)) + "\n"
             for u, i, t in ROWS), "Beauty.jsonl"),
    ("user_id,parent_asin,rating,timestamp\n" + "".join(f"u{u},i{i},5.0,{1000 * t}\n" for u, i, t in ROWS), "Beauty.csv")])
def test_amazon_reviews_of_2023(tmp_path, content, name):
    path = written(tmp_path, name, content)
    log = read(path, format="amazon2023", **DEFAULTS)
    assert whole(log) and log.clicks["timestamp"].to_list() == [t for *_, t in ROWS] and log.items is None
    with pytest.raises(UserError, match="'user_id' and not 'reviewerID': give --format=amazon2023"):
        read(path, format="amazon", **DEFAULTS)
    written(tmp_path, "meta_Beauty.jsonl", "".join(json.dumps(dict(
        parent_asin=f"i{i}", title=f"Item {i}, the [best]", main_category="All", store=None, categories=["a", f"b{i % 2}"]))
        + "\n" for i in range(11)))
    if name.endswith("jsonl"):
        table = read(path, format="amazon2023", **DEFAULTS, multi_feature_columns=("categories",)).items
        assert table.frame.row(1) == ("i1", "Item 1, the [best]", ["a", "b1"])
        assert read(path, format="amazon2023", **{**DEFAULTS, "item_column": "asin"}).clicks["item"][0] == "x0"
        assert whole(read(path, user_column="user_id", item_column="parent_asin", timestamp_column="timestamp"))
