"""Each format on a file small enough to read, and every fault of a log or an item file."""
import gzip
import json
import re

import numpy as np
import polars as pl
import pytest

from clrec_tf.config import PrepareConfig
from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.preparation import dense_features
from clrec_tf.preparation import item_features
from clrec_tf.preparation import logs
from tests import log_files


def read(path, **settings):
    settings = PrepareConfig(input=str(path), **settings)
    return log_files.in_memory(logs.read_log(logs.open_log(settings), settings))


def written(folder, name, text):
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(text.encode("latin-1") if isinstance(text, str) else text)
    return path


def test_taobao(tmp_path):
    log = read(written(tmp_path, "u.csv", "1,20,300,pv,4000\n1,21,301,buy,4001\n"), format="taobao")
    assert log.clicks.rows() == [("1", "20", 4000, "pv", "300"), ("1", "21", 4001, "buy", "301")]
    assert log.clicks.columns == ["user", "item", "timestamp", "event", "f:category"]
    assert log.features == {"category": False}


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_movielens_1m_form(tmp_path, end):
    written(tmp_path, "ml/ratings.dat", f"1::1193::5::978300760{end}2::661::1::978302109{end}")
    written(tmp_path, "ml/movies.dat", f"661::Caf\xe9: the Peach (1996)::Animation|Musical{end}1193::Nest::Drama{end}")
    log = read(tmp_path / "ml", format="movielens")
    assert log.clicks.rows() == [("1", "1193", 978300760), ("2", "661", 978302109)]
    assert log.items.frame.rows() == [("661", "Caf\xe9: the Peach (1996)", ["Animation", "Musical"]),
                                      ("1193", "Nest", ["Drama"])]
    assert log.items.features == {"genres": True}


def test_movielens_100k_form(tmp_path):
    flags = ["0"] * 19
    flags[5] = flags[16] = "1"  # comedy, thriller
    written(tmp_path, "ml/u.data", "196\t242\t3\t881250949\n")
    written(tmp_path, "ml/u.item", "242|Kolya (1996)|24-Jan-1997||http://x|" + "|".join(flags) + "\n")
    log = read(tmp_path / "ml", format="movielens")
    assert log.clicks.rows() == [("196", "242", 881250949)]
    assert log.items.frame.rows() == [("242", "Kolya (1996)", ["Comedy", "Thriller"])]


@pytest.mark.parametrize("mark", [" ", "\t", ","])
def test_sequence(tmp_path, mark):
    log = read(written(tmp_path, "s.txt", f"1{mark}5\n1{mark}6\n2{mark}5"), format="sequence")
    assert log.clicks.rows() == [("1", "5"), ("1", "6"), ("2", "5")]


def test_sequence_per_user(tmp_path):
    log = read(written(tmp_path, "s.txt", "1 5 6 5\n\n2 7 \n"), format="sequence_per_user")
    assert log.clicks.rows() == [("1", "5"), ("1", "6"), ("1", "5"), ("2", "7")]


def test_recbole(tmp_path):
    written(tmp_path, "r/x.inter", "user_id:token\titem_id:token\trating:float\ttimestamp:float\n1\ta\t3\t8.5e8\n")
    written(tmp_path, "r/x.item", "item_id:token\tmovie_title:token_seq\tyear:token\tclass:token_seq\tprice:float\n"
            "a\tA \"quoted\" title\t1995\tWar Drama\t1.5\n")
    log = read(tmp_path / "r", format="recbole")
    assert log.clicks.rows() == [("1", "a", 850_000_000)]
    assert log.items.frame.rows() == [("a", 'A "quoted" title', "1995", ["War", "Drama"])]
    assert log.items.features == {"year": False, "class": True}
    with pytest.raises(UserError, match="--feature_columns=class: .* name it in --multi_feature_columns"):
        read(tmp_path / "r", format="recbole", feature_columns=("class",))


COLUMNS = dict(user_column="who", item_column="what", timestamp_column="when")


def test_columns_with_quotes_mark_gzip_and_features(tmp_path):
    text = '\ufeffwhen,who,what,tags,title\n7,"a,b",x,p|q,"One, two"\n8,c,y,,\n'
    path = written(tmp_path, "log.csv.gz", gzip.compress(text.encode()))
    log = read(path, **COLUMNS, multi_feature_columns=("tags",))
    assert log.clicks.select("user", "item", "timestamp", "title", "f:tags").rows() == [
        ("a,b", "x", 7, "One, two", "p|q"), ("c", "y", 8, None, None)]


def test_columns_from_parquet_with_typed_columns(tmp_path):
    frame = pl.DataFrame({"who": [1, 2], "what": ["x", "y"], "tags": [["p", "q"], []],
                          "when": pl.Series(["2020-01-01T08:00:00"] * 2).str.to_datetime()})
    frame.write_parquet(tmp_path / "log.parquet")
    log = read(tmp_path / "log.parquet", **COLUMNS, multi_feature_columns=("tags",), utc_offset=8.0)
    assert log.clicks["timestamp"].to_list() == [1577836800] * 2  # 2020-01-01 00:00 UTC
    assert log.clicks["user"].to_list() == ["1", "2"] and log.clicks["f:tags"].to_list() == [["p", "q"], []]


@pytest.mark.parametrize("row, reason", [
    ("1,2,3,4", "more fields"), ("1,2,3,4,5,6", "more fields"), ("1,2", "time stamp"), ("1,2,noon", "time stamp"), (",2,3", "missing user id"),
    ("1,,3", "missing item id"), ("1,-2,3", "negative id"), ("-1,2,3", "negative id"), ('1,"2\n3",3', "line break"),
    ("1,2,nan", "time stamp"), ("1,2,1e300", "time stamp")])
def test_bad_row_is_counted_shown_and_limited(tmp_path, row, reason):
    path = written(tmp_path, "l.csv", f"who,what,when\n1,2,3\n{row}\n5,6,7\n")
    with pytest.raises(DataError, match=rf"(?s)l\.csv has 1 bad of 3 rows.*line 3: .*{reason}.*--max_bad_rows=1"):
        read(path, **COLUMNS)
    log = read(path, **COLUMNS, max_bad_rows=1)
    assert log.clicks.rows() == [("1", "2", 3), ("5", "6", 7)] and (log.rows, log.bad_rows) == (3, 1)


@pytest.mark.parametrize("more", [",4", ",4,5", ",4,5,6,7"])
def test_the_first_row_may_be_the_longest(tmp_path, more):
    path = written(tmp_path, "l.csv", f"who,what,when\n1,2,3{more}\n1,2,3\n5,6,7\n")
    with pytest.raises(DataError, match=r"(?s)has 1 bad of 3 rows.*line 2: .*more fields than columns"):
        read(path, **COLUMNS)


def test_nobody_is_advised_to_leave_out_every_row(tmp_path):
    path = written(tmp_path, "l.csv", "who,what,when\n1,2,x\n1,3,y\n")
    for tolerated in (0, 2):
        with pytest.raises(DataError, match=r"(?s)every one of the 2 rows of .*line 2: 1,2,x.*Check --format=columns, "
                           "--delimiter") as caught:
            read(path, **COLUMNS, max_bad_rows=tolerated)
        assert "--max_bad_rows" not in str(caught.value)


@pytest.mark.parametrize("mark, given, value", [
    ("|", "", "'|'"), (",", ";", "','"), ("\t", ",", r"'\t' (tab)"), (" ", "", "' '")])
def test_a_wrong_delimiter_is_recognised(tmp_path, mark, given, value):
    path = written(tmp_path, "l.txt", mark.join(["who", "what", "when"]) + "\n" + mark.join("123") + "\n")
    with pytest.raises(UserError, match=re.escape(f"give --delimiter={value}")):
        read(path, **COLUMNS, delimiter=given)
    assert read(path, **COLUMNS, delimiter=mark).clicks.rows() == [("1", "2", 3)]


def test_at_most_five_bad_rows_are_shown(tmp_path):
    path = written(tmp_path, "l.csv", "who,what,when\n" + "1,2,x\n" * 9 + "1,2,3\n")
    log = read(path, **COLUMNS, max_bad_rows=9)
    assert [text.split(":")[0] for text in log.bad_examples] == [f"line {line}" for line in range(2, 7)]
    with pytest.raises(DataError, match="has 9 bad of 10 rows, --max_bad_rows=8"):
        read(path, **COLUMNS, max_bad_rows=8)


@pytest.mark.parametrize("column", ["user", "item", "timestamp", "event"])
def test_missing_column_names_flag_and_choices(tmp_path, column):
    path = written(tmp_path, "l.csv", "who,what,when\n1,2,3\n")
    with pytest.raises(UserError, match=f"no column 'absent': give --{column}_column as one of who, what, when"):
        read(path, **dict(COLUMNS, **{f"{column}_column": "absent"}))


@pytest.mark.parametrize("content", ["", "who,what,when\n", "who,what,when\n\n\n"])
def test_empty_log(tmp_path, content):
    with pytest.raises(UserError, match="no column|no rows"):
        read(written(tmp_path, "l.csv", content), **COLUMNS)


def test_truncated_gzip(tmp_path):
    rows = "".join(f"{u},{u * 7919 % 10007},{u}\n" for u in range(50_000))
    whole = gzip.compress(("who,what,when\n" + rows).encode())
    with pytest.raises(DataError, match=r"l\.csv\.gz is damaged"):
        read(written(tmp_path, "l.csv.gz", whole[:-1000]), **COLUMNS)


def test_damaged_files(tmp_path):
    with pytest.raises(DataError, match="l.csv is not UTF-8 text .*--encoding"):
        read(written(tmp_path, "l.csv", b"who,what,when\n1,\xff\xfe,3\n"), **COLUMNS, encoding="utf-8")
    with pytest.raises(DataError, match=r"l\.parquet is damaged"):
        read(written(tmp_path, "l.parquet", b"PAR1 no"), **COLUMNS)
    with pytest.raises(DataError, match="'who' stands twice"):
        read(written(tmp_path, "l.csv", "who,what,when,who\n1,2,3,4\n"), **COLUMNS)


def test_input_that_is_not_there(tmp_path):
    with pytest.raises(UserError, match="--input is not set"):
        logs.open_log(PrepareConfig())
    with pytest.raises(UserError, match="--input=.*absent does not exist"):
        read(tmp_path / "absent")
    with pytest.raises(UserError, match="folder without exactly one of ratings.dat"):
        read(tmp_path, format="movielens")


# Item files.


def items(path, **settings):
    return item_features.read_item_file(PrepareConfig(item_features=str(path), **settings))


def test_item_tsv(tmp_path):
    path = written(tmp_path, "i.tsv", "item\told\ttitle\tgenres\n1\t9\tThe \"A\", 1999\tWar||Drama\n2\t8\t\t\n")
    table = items(path, multi_feature_columns=("genres",), feature_columns=("old",))
    assert table.features == {"old": False, "genres": True}
    assert table.frame.select("item", "title", "f:old", "f:genres").rows() == [
        ("1", 'The "A", 1999', "9", ["War", "Drama"]), ("2", None, "8", None)]


@pytest.mark.parametrize("content, features, row", [
    ({"5": [1, 2]}, {"attributes": True}, ("5", ["1", "2"])),
    ({"5": {"brand": 7, "tags": ["a", "b"], "title": "T"}}, {"brand": False, "tags": True},
     ("5", "T", "7", ["a", "b"]))])
def test_item_json(tmp_path, content, features, row):
    table = items(written(tmp_path, "i.json.gz", gzip.compress(json.dumps(content).encode())))
    assert table.features == features and table.frame.rows() == [row]


def test_item_parquet(tmp_path):
    pl.DataFrame({"id": [3, 4], "tags": [["x"], None]}).write_parquet(tmp_path / "i.parquet")
    table = items(tmp_path / "i.parquet", multi_feature_columns=("tags",))
    assert table.frame.rows() == [("3", ["x"]), ("4", None)]


@pytest.mark.parametrize("name, content, message", [
    ("i.csv", "item,c\n1,a\n1,b\n", "item id 1 2 times"), ("i.json", '{"1": [2], "1": [3]}', "item id 1 2 times"),
    ("i.csv", "item,c\n,a\n", "item without an id"), ("i.json", "[1, 2]", "not an object"),
    ("i.json", "{", "not JSON"), ("i.csv", "item,c\n1,a,b\n", "line 2 has more than its 2 fields")])
def test_faults_of_item_files(tmp_path, name, content, message):
    with pytest.raises(DataError, match=message):
        items(written(tmp_path, name, content))


def test_feature_named_twice(tmp_path):
    with pytest.raises(UserError, match="both name c"):
        items(written(tmp_path, "i.csv", "item,c\n1,a\n"), feature_columns=("c",), multi_feature_columns=("c",))


def test_dense_vectors(tmp_path):
    vectors = np.arange(6.0).reshape(3, 2)
    np.savez(tmp_path / "v.npz", ids=np.array([7, 8, 9]), vectors=vectors)
    ids, read_back = dense_features.read_dense(str(tmp_path / "v.npz"))
    assert ids == ["7", "8", "9"] and (read_back == vectors).all() and read_back.dtype == np.float32
    pl.DataFrame({"item_id": ["a", "b"], "vector": [[1.0], [2.0]]}).write_parquet(tmp_path / "v.parquet")
    ids, read_back = dense_features.read_dense(str(tmp_path / "v.parquet"))
    assert ids == ["a", "b"] and read_back.tolist() == [[1.0], [2.0]]


@pytest.mark.parametrize("arrays, message", [
    (dict(ids=[1], vectors=[[1.0], [2.0]]), "1 ids but vectors of shape"),
    (dict(ids=[1, 1], vectors=[[1.0], [2.0]]), "twice"),
    (dict(ids=[1], vectors=[[np.nan]]), "NaN"), (dict(ids=[1]), "vectors"), (dict(ids=[1], vectors=[1.0]), "shape")])
def test_faults_of_dense_vectors(tmp_path, arrays, message):
    np.savez(tmp_path / "v.npz", **arrays)
    with pytest.raises(DataError, match=message):
        dense_features.read_dense(str(tmp_path / "v.npz"))


def test_damaged_dense_file(tmp_path):
    for name in ("v.npz", "v.parquet"):
        with pytest.raises(DataError, match=name):
            dense_features.read_dense(str(written(tmp_path, name, b"PK\x03\x04 cut off")))
