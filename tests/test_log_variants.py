"""Variants of field logs: how programs write numbers, times, lists and files, read as they are meant or refused."""
import bz2
import gzip
import json
import lzma

import polars as pl
import pytest

from clrec_tf.config import PrepareConfig
from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.preparation import events
from clrec_tf.preparation import query_features
from clrec_tf.preparation import user_features
from clrec_tf.tabular_files import list_texts
from clrec_tf.tabular_files import values
from tests import log_files
from tests.log_files import feature_values
from tests.log_files import read
from tests.log_files import ROWS
from tests.log_files import sequences
from tests.log_files import text
from tests.log_files import written

FRAME = pl.DataFrame([(f"u{u}", f"i{i}", t) for u, i, t in ROWS], ["user", "item", "time"], orient="row")
DEFAULTS = dict(user_column="user_id", item_column="item_id", timestamp_column="timestamp")


def whole(log, user="u{}", item="i{}"):
    return log.rows == 40 and log.bad_rows == 0 and sequences(log) == log_files.expected(user, item)


def refused(words, path, **settings):
    """Whether reading is refused with these words."""
    with pytest.raises(UserError, match=words):
        read(path, **settings)
    return True


def log_of(folder, item="i{}", time="{}", name="l.csv"):
    """The log with items, or times, that functions or patterns write."""
    write = lambda how, value: how(value) if callable(how) else how.format(value)
    rows = "".join(f"u{u},{write(item, i)},{write(time, t)}\n" for u, i, t in ROWS)
    return written(folder, name, "user,item,time\n" + rows)


# Missing values.


@pytest.mark.parametrize("word", ["nil", "NONE", "Nan", "-nan", "(null)", "[NULL]", "<null>", "#N/A N/A", "#NULL!",
                                  "1.#QNAN", "\u3000"])
def test_further_words_for_missing(tmp_path, word):
    path = written(tmp_path, "l.csv", text().replace("i5,", f"{word},"))
    with pytest.raises(DataError, match=r"3 bad of 40 rows(.|\n)*missing item id"):
        read(path)


@pytest.mark.parametrize("word", ["None", "NA", "nan"])
def test_an_item_of_that_name_when_other_words_are_given(tmp_path, word):
    path = written(tmp_path, "l.csv", text().replace("i5,", f"{word},"))
    log = read(path, null_values=("-",))
    assert log.bad_rows == 0 and word in set(log.clicks["item"])


# Numbers.


@pytest.mark.parametrize("given, expected", [
    (["5801", "5802", "99", "1e+05", "1.2e+07"], ["5801", "5802", "99", "100000", "12000000"]),  # R
    (["-0.0", "1.0"], ["0", "1"]), (["1e5", "2.0"], ["1e5", "2"]), (["1E5", "B2"], ["1E5", "B2"]),
    (["1e+05", "u7"], ["1e+05", "u7"]), (["9007199254740991.0"], ["9007199254740991"])])
def test_how_numbers_are_written(given, expected):
    found = pl.Series("id", given)
    found = values.without_fractions(found) if values.are_whole(found, "item", "f") else found
    assert found.to_list() == expected


@pytest.mark.parametrize("given, words", [
    (["9007199254740992.0", "1.0"], "9007199254740992.0 are floats from 2"),
    (["1.78E+12", "5", "6", "7"], "1.78E.12 have lost"),
    (["1E+05", "5", "6"], "1E.05 have lost"), (["1.23457e+06", "5", "6"], "1.23457e.06 have lost"),
    (["1e+16", "5.0", "6.0"], "1e.16 have lost")])
def test_numbers_that_have_lost_digits(given, words):
    with pytest.raises(DataError, match=f"item ids such as {words}"):
        values.are_whole(pl.Series(given), "item", "f")


def test_ids_in_bytes_decimals_and_durations(tmp_path):
    def of(expression):
        FRAME.with_columns(item=expression).write_parquet(tmp_path / "l.parquet")
        return tmp_path / "l.parquet"
    number = pl.col("item").str.slice(1).cast(pl.Int64)
    assert whole(read(of(number.cast(pl.Decimal(10, 2)))), item="{}")
    halves = number.cast(pl.Decimal(10, 2)) + pl.lit("0.50").cast(pl.Decimal(10, 2))
    assert set(read(of(halves)).clicks["item"][:2]) == {"0.5", "3.5"}
    assert refused("bytes that are no UTF-8 text: write it as text, such as hex", of(pl.lit(b"\xff\xfe")))
    assert set(read(of(pl.duration(hours=number))).clicks["item"][:2]) == {"PT0S", "PT3H"}


# Times.


@pytest.mark.parametrize("pattern", ["%c", "%d/%b/%Y:%H:%M:%S +0000", "%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%d %H",
                                     "%I %p %d/%m/%Y", "%Y-%m-%d"])
def test_patterns_lose_nothing(tmp_path, pattern):
    """A pattern of one letter has the clock, a Z is UTC whatever --utc_offset says, and an hour may stand alone."""
    moments = pl.Series([1000 * t for *_, t in ROWS]).cast(pl.Datetime("ms")).to_list()
    rows = "".join(f'u{u},i{i},"{moment.strftime(pattern)}"\n' for (u, i, _), moment in zip(ROWS, moments))
    given, shift = pattern.replace("+0000", "%z"), 0 if pattern[-1] in "Z0" else 7200
    exact = 1 if "%S" in pattern or pattern == "%c" else 3600 if "%H" in pattern or "%I" in pattern else 86_400
    path = written(tmp_path, "l.csv", "user,item,time\n" + rows)
    assert read(path, timestamp_format=given, utc_offset=2.0).clicks["timestamp"].to_list() == [
        t // exact * exact - shift for *_, t in ROWS]


@pytest.mark.parametrize("pattern, words", [("yyyy-MM-dd", "no pattern of a date and time"),
    ("%Y-%m-%d %Z", "names of zones")])
def test_patterns_that_are_refused(tmp_path, pattern, words):
    path = log_of(tmp_path, time="2023-11-14")
    assert refused(f"--timestamp_format={pattern}: {words}", path, timestamp_format=pattern)


@pytest.mark.parametrize("write, words", [
    (lambda t: f"{t:.2E}", "such as 1.70E.09 have lost their last digits: write them as seconds"),
    (lambda t: f"{t:g}", "such as 1.7e.09 have lost"),
    (lambda t: t / 86_400 + 25_569, "fractions of its time stamps, such as 45244"),
    (lambda t: (t - 1_700_000_000) / 3600, "fractions of its time stamps, such as 0.01")])
def test_times_that_lost_digits_or_would(tmp_path, write, words):
    assert refused(words, log_of(tmp_path, time=write))


def test_times_of_types_that_hold_none(tmp_path):
    FRAME.cast({"time": pl.Duration("ms")}).write_parquet(tmp_path / "l.parquet")
    assert refused("durations .*--timestamp_column", tmp_path / "l.parquet")
    assert read(log_of(tmp_path, time="{}.25")).clicks["timestamp"].to_list() == [t for *_, t in ROWS]


# Headers.


@pytest.mark.parametrize("header", ["user,item,time", "USER_ID,ITEM_ID,TIME", "visitorid,productid,ts"])
def test_columns_of_a_file_that_has_a_header(tmp_path, header):
    path = written(tmp_path, "l.csv", text(header=header))
    flags = dict(columns=("a", "b", "c"), user_column="a", item_column="b", timestamp_column="")
    assert refused(f"--columns=a,b,c: .*'{header}', looks like a header: leave --columns out", path, **flags)


def test_a_header_of_a_later_part_is_a_bad_row(tmp_path):
    lines = text(header="").splitlines(keepends=True)
    written(tmp_path, "log/a.csv", "".join(lines[:20]))
    written(tmp_path, "log/b.csv", "user,item,time\n" + "".join(lines[20:]))
    flags = dict(columns=("user", "item", "time"), timestamp_column="")
    assert refused(r"1 bad of 41 rows(.|\n)*b.csv, line 1: user,item,time .the header again", tmp_path / "log", **flags)


def test_names_that_are_none_or_stand_lower(tmp_path):
    more = written(tmp_path, "l.csv", text(header="user,item,time,,", more=",,"))
    assert whole(read(more)) and whole(read(written(tmp_path, "l.csv", "\ufeff\ufeff" + text())))
    for above, words in (("\n\n", "begins with a blank line: delete"),
    ("# clicks\n#\n", "line 3 looks like its header: delete")):
        assert refused(words, written(tmp_path, "l.csv", above + text()))
    path = written(tmp_path, "l.csv", text())
    assert refused("--user_column and --item_column both name 'user'", path, item_column="user")
    assert refused("--item_column and --timestamp_column both", path, timestamp_column="item")
    path = written(tmp_path, "l.csv", text(header="user,item,time,__extra__", more=","))
    assert refused("a column called __extra__", path)


def test_ids_in_quotes(tmp_path):
    path = written(tmp_path, "l.tsv", text(user='"u{}"', mark="\t"))
    assert refused("column 'user' holds ids in quotes, such as \"u0\": give --quote=double", path)
    assert whole(read(path, quote="double"))  # the advice
    path = written(tmp_path, "l.csv", text(item=' "i{}"'))
    assert refused("--quote=double and, for the space before the quotes, --delimiter=', '", path)
    assert refused("column 'item' holds formulas of a spreadsheet", written(tmp_path, "f.csv", text(item='="{}"')))
    lines = "\n".join(f'"{line}"' for line in text().splitlines())
    assert refused("quotes around whole lines", written(tmp_path, "q.csv", lines))
    items = written(tmp_path, "i.tsv", "item\tcategory\n" + "".join(f'"i{i}"\t"c"\n' for i in range(11)))
    log = written(tmp_path, "m.csv", text())
    with pytest.raises(DataError, match="has ids in quotes, such as .*: give --quote=double"):
        log_files.prepared(log, item_features=str(items), feature_columns=("category",))
    flags = dict(item_features=str(items), feature_columns=("category",), quote="double")
    assert feature_values(log, **flags)["i1"] == ["c"]


# Quotes and delimiters.


@pytest.mark.parametrize("title, expected", [
    (r'"a \"b\" c"', 'a "b" c'), (r'"a \"b, c"', 'a "b, c'), (r'"a, b\", c"', 'a, b", c'), (r'"\"a\", b"', '"a", b'),
    (r'"C:\dir\"', "C:\\dir\\"), (r'"a \\"', r"a \\")])
def test_quotes_behind_backslashes(tmp_path, title, expected):
    rows = text(header="user,item,time,title", more=",t").replace(",t\n", f",{title}\n", 3)
    rows = rows.replace(f",{title}\n", ",t\n", 2)
    log = read(written(tmp_path, "l.csv", rows))
    assert whole(log) and log.clicks["title"][2] == expected


def test_a_delimiter_of_several_characters_in_a_quoted_field(tmp_path):
    rows = text(mark="::", header="user,item,time,title", more='::"a::b"')
    log = read(written(tmp_path, "l.dat", rows), delimiter="::", quote="double")
    assert log.clicks["title"].to_list() == ["a::b"] * 40


@pytest.mark.parametrize("mark, advice", [("\x01", r"\x01"), (":::", ":::"), ("~|~", "~|~"), (" | ", "|"), ("¦", "¦")])
def test_the_advice_for_a_delimiter_reads_the_file(tmp_path, mark, advice):
    path = written(tmp_path, "l.txt", text(mark=mark))
    with pytest.raises(UserError, match="its header is one column") as caught:
        read(path)
    assert f"give --delimiter='{advice}'" in str(caught.value) and whole(read(path, delimiter=advice))


def test_octal_delimiters_and_an_empty_separator(tmp_path):
    assert whole(read(written(tmp_path, "l.txt", text(mark="\x01")), delimiter=r"\001"))
    items = written(tmp_path, "i.csv", "item,category\n" + "".join(f"i{i},a|b\n" for i in range(11)))
    with pytest.raises(UserError, match="--multi_separator= is empty"):
        feature_values(written(tmp_path, "l.csv", text()), item_features=str(items), multi_separator="",
                       multi_feature_columns=("category",))


# Lists and records.


def lists(folder, write, times=None):
    """A file of one list of items a user."""
    rows = "".join("\t".join([f"u{u}", write([f"i{i}" for n, i, _ in ROWS if n == u]), *(
        [times([t for n, _, t in ROWS if n == u])] if times else [])]) + "\n" for u in range(5))
    return written(folder, "l.tsv", "user\titem" + ("\ttime" if times else "") + "\n" + rows)


@pytest.mark.parametrize("write, times", [
    (lambda items: "{'" + "', '".join(items) + "'}", lambda times: "{" + ",".join(map(str, times)) + "}"),
    (lambda items: f"array({items}, dtype=object)", str), (lambda items: f"WrappedArray({', '.join(items)})", str),
    (" ".join, lambda times: " ".join(map(str, times))), ("\x02".join, lambda times: "\x02".join(map(str, times)))])
def test_lists_keep_their_order(tmp_path, write, times):
    """A set of Python as text, a repr, what Spark prints, spaces between numbers, Hive's second delimiter."""
    separator = r"\x02" if "\x02" in write(["a", "b"]) else "|"
    assert whole(read(lists(tmp_path, write, times), format="lists", multi_separator=separator))


@pytest.mark.parametrize("missing", ["null", '""', '"NULL"'])
def test_missing_elements_of_lists_are_bad_rows(tmp_path, missing):
    write = lambda items: json.dumps([*items[:2], "?", *items[3:]]).replace('"?"', missing)
    flags = dict(format="lists", timestamp_column="")
    assert refused(r"5 bad of 40 rows(.|\n)*missing item id", lists(tmp_path, write), **flags)
    write = lambda items: "|".join([*items[:2], "", *items[3:]]) + "|"  # the last separates nothing
    assert refused("5 bad of 40 rows", lists(tmp_path, write), **flags)


@pytest.mark.parametrize("write, words", [
    (lambda items: f"[{' '.join(map(repr, items[:3]))} ... {items[-1]!r}]", "middle of its lists is missing"),
    (lambda items: json.dumps([[item] for item in items]), "records or lists in lists"),
    (lambda items: json.dumps([{"id": item} for item in items]), "records or lists in lists"),
    (lambda items: "[]", "the lists differ in length .0 of item, 8 of timestamp")])
def test_lists_that_are_none_of_ids(tmp_path, write, words):
    path = lists(tmp_path, write, str)
    lines = path.read_text().splitlines()
    if "differ" in words:  # one user alone
        path.write_text(lines[0] + "\n" + lines[1].replace("[]", json.dumps(["a"] * 8)) + "\n" + lines[2] + "\n")
    assert refused(words, path, format="lists")


@pytest.mark.parametrize("value, nested, shortened", [
    ("[{'id': 16, 'name': 'Action'}]", True, False), ('{"a": 1}', True, False), ("[['a'], ['b']]", True, False),
    ("{'a'}", False, False),
    ("['a', 'b']", False, False), ("[]", False, False), ("{}", False, False), ("[1 2 ... 9]", False, True),
    ("['a' ... 'b']", False, True),
    ("['a', ...]", False, True), ("[REC]", False, False), ("[wait ... what]", False, False),
    ("['a...', 'b']", False, False)])
def test_what_stands_in_a_cell(value, nested, shortened):
    assert (list_texts.is_nested(value), list_texts.is_shortened(value)) == (nested, shortened)


@pytest.mark.parametrize("value, several, words", [
    ("[{'id': 16, 'name': 'Action'}]", True, "holds records or lists in lists, such as"),
    ("[1 2 ... 9]", True, "middle is missing"),
    ('{"name": "x"}', False, "holds records such as .* name a column of single values")])
def test_features_that_are_no_values(value, several, words):
    column = pl.Series("x", [value, None])
    with pytest.raises(UserError, match=words):
        if several:
            values.several(column, "|", (), "x")
        else:
            values.single(column, (), "x")


@pytest.mark.parametrize("given, kind, words", [
    (['["a", "b"]'] * 2, "", "holds records or lists such as .*lists as x:list"),
    (['{"a": 1}'] * 2, "", "holds records or lists"),
    ([[1], [2]], ":number", "holds List.Int64.: name a column of single numbers")])
def test_users_columns_of_lists_and_records(given, kind, words):
    [(name, of)] = query_features.declared([f"x{kind}"], "user_feature_columns").items()
    with pytest.raises(UserError, match=words):
        query_features.column(name, "user", of, pl.Series("x", given), PrepareConfig(), "users.csv: column 'x'")
    rounded = pl.Series("x", ["1.2E+05", "7"])  # a category need not be exact
    assert query_features.column("x", "user", "category", rounded, PrepareConfig(), "f").values == ["1.2E+05", "7"]


def test_features_in_arrays_and_braces():
    assert values.several(pl.Series(["{Action,\"Sci Fi, old\"}", "{}", None]), "|", ("NULL",), "x").to_list() == [
        ["Action", "Sci Fi, old"], [], None]
    column = pl.Series([["a", "b"]], dtype=pl.Array(pl.String, 2))
    assert values.several(column, "|", (), "x").to_list() == [["a", "b"]]
    with pytest.raises(UserError, match="holds lists: name it in --multi_feature_columns"):
        values.single(column, (), "x: column 'y'")
    with pytest.raises(UserError, match="Struct.*write lists of single values"):
        values.several(pl.Series([[{"a": 1}]]), "|", (), "x")


# JSON.


def json_lines(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_entries_of_entries(tmp_path):
    rows = [dict(user={"$oid": f"u{u}"}, item={"id": f"i{i}", "name": "x"}, time=t) for u, i, t in ROWS]
    path = written(tmp_path, "l.jsonl", json_lines(*rows))
    assert refused(r"column 'user' holds records such as .* name a column of single values, such as user\.\$oid", path)
    assert refused("column 'item' holds records", path, user_column="user.$oid")
    assert whole(read(path, user_column="user.$oid", item_column="item.id"))


def test_parts_of_json_that_lack_entries(tmp_path):
    rows = [dict(user=f"u{u}", item=f"i{i}", time=t, **{f"x{u}": {"y": 1}}) for u, i, t in ROWS]
    written(tmp_path, "log/a.jsonl", json_lines(*rows[:20]))
    written(tmp_path, "log/b.jsonl", json_lines(*rows[20:]))
    assert whole(read(tmp_path / "log"))


def test_a_first_line_that_is_damaged(tmp_path):
    rows = [dict(user=f"u{u}", item=f"i{i}", time=t) for u, i, t in ROWS]
    path = written(tmp_path, "l.jsonl", '{"user": "u1", "it\n' + json_lines(*rows))
    assert refused(r'1 bad of 41 rows(.|\n)*line 1: ."user": "u1", "it .missing user id', path)
    pretty = json.dumps(dict(data=rows[:3]), indent=1)
    assert refused("is one JSON value", written(tmp_path, "m.json", pretty))


# Files.


@pytest.mark.parametrize("pack", [bz2.compress, lzma.compress, gzip.compress])
@pytest.mark.parametrize("behind", ["member", "padding", "damaged", "garbage"])
def test_what_follows_the_first_stream(tmp_path, pack, behind):
    """Python's readers of bzip2 and xz take a damaged stream for the end of the file."""
    rows, second = text().encode(), pack(b"u0,i0,1700009999\n")
    more = dict(member=second, padding=bytes(8), damaged=b"x" + second[1:], garbage=b"garbage")[behind]
    path = written(tmp_path, "l.csv", pack(rows) + more)
    if behind in ("member", "padding"):
        assert read(path).rows == 40 + (behind == "member")
    else:
        assert refused("l.csv is damaged", path)
        assert refused("l.csv is damaged", written(tmp_path, "l.csv", pack(rows) + second[:-6]))


@pytest.mark.parametrize("content, words", [
    (b"\x89PNG\r\n\x1a\n" + bytes(30), "is no text"), (bytes(range(256)), "is no text"),
    (b"\xff\xff\xff\xff" + bytes(40), "an Arrow stream"),
    (b"PK\x05\x06" + bytes(18), "an empty zip"),
    (b"<?xml version='1.0'?>\n<Error/>", "an XML document, perhaps the answer of a store"),
    (b"x\x9c" + bytes(20), "zlib-compressed"),
    (b"\x50\x2a\x4d\x18" + bytes(20), "zstd-compressed, beginning with a frame without")])
@pytest.mark.parametrize("form", ["columns", "sequence"])
def test_binaries_are_named(tmp_path, content, words, form):
    assert refused(words, written(tmp_path, "l.csv", content), format=form, **({} if form == "columns" else DEFAULTS))


def test_encodings_that_are_no_encoding_of_text(tmp_path):
    path = written(tmp_path, "l.csv", text())
    for encoding in ("base64", "rot13", "idna"):
        assert refused(f"--encoding={encoding} is no encoding", path, encoding=encoding)
    assert refused("is no text of that --encoding", path, encoding="utf-16")
    path = written(tmp_path, "l.csv", text().encode("cp037"))  # whose letters are no ASCII
    assert whole(read(path, encoding="cp037"))


def test_parts_are_ordered_by_their_numbers(tmp_path):
    for number in range(14):
        written(tmp_path, f"log/part-{number}.csv", FRAME[3 * number:3 * number + 3].write_csv())
    for given in (tmp_path / "log", f"{tmp_path}/log/part-*"):
        assert whole(read(given, timestamp_column=""))


def test_copies_among_parts_are_said(tmp_path, caplog):
    for name in ("a.csv", "a (1).csv"):
        written(tmp_path, f"log/{name}", text())
        written(tmp_path, f"parts/{name}", text().splitlines()[0] + "\n")  # without a row
        written(tmp_path, f"days/day={len(name)}/0.csv", text())
    written(tmp_path, "parts/b.csv", text())
    for folder in ("parts", "days"):
        assert log_files.prepared(tmp_path / folder).num_users == 5
    assert "the same bytes" not in caplog.text
    log_files.prepared(tmp_path / "log")
    assert "a (1).csv and" in caplog.text and "hold the same bytes, so that all rows of them count twice" in caplog.text


def test_folders_that_hold_more_than_the_log(tmp_path):
    FRAME[:20].write_csv(written(tmp_path, "mixed/a.csv", ""))
    FRAME[20:].write_parquet(written(tmp_path, "mixed/b.parquet", ""))
    words = "b.parquet is Parquet or Arrow, and .*a.csv delimited text: give files of one kind"
    assert refused(words, tmp_path / "mixed")
    assert read(f"{tmp_path}/mixed/*.csv").rows == 20  # the advice
    FRAME.with_columns(x=pl.concat_list("item")).write_parquet(written(tmp_path, "lists/a.parquet", ""))
    FRAME.with_columns(x="item").write_parquet(written(tmp_path, "lists/b.parquet", ""))
    assert refused("column 'x' is List.String. in .*a.parquet, and String in .*b.parquet", tmp_path / "lists")
    for name, words in (("copy.csv~", "unfinished file or a copy"), ("b.csv.crdownload", "unfinished file"),
                        (".hoodie/x", "a table of Hudi"), ("metadata/v1.metadata.json", "a table of Iceberg")):
        folder = tmp_path / name.strip("./").replace("/", "-")
        FRAME.write_csv(written(folder, "data.csv", ""))
        written(folder, name, "{}")
        assert refused(words, folder)


# Sequences, orders, behaviours, users.


@pytest.mark.parametrize("write, form, words", [
    (lambda u, items: json.dumps([u, *items]) + "\n", "sequence_per_user", "are JSON: give --format=columns"),
    (lambda u, items: json_lines(dict(user=u, item=items)), "sequence_per_user", "are JSON"),
    (lambda u, items: f"{u} [{', '.join(items)}]\n", "sequence_per_user", "hold lists in brackets: put a tab"),
    (lambda u, items: ";".join([u, *items]) + "\n", "sequence_per_user", "one field, cut at ' ': give --delimiter=';'"),
    (lambda u, items: "".join(f'"{u}","{item}"\n' for item in items), "sequence",
     "stand in quotes, which .*--columns=user,item")])
def test_sequences_whose_marks_would_belong_to_ids(tmp_path, write, form, words):
    lines = "".join(write(u, items) for u, items in log_files.expected().items())
    assert refused(words, written(tmp_path, "s.txt", lines), format=form, **DEFAULTS)


@pytest.mark.parametrize("first, words", [(2**53 - 40, ""),
    (2**53 - 1, "missing or unreadable order(.|\n)*below 2.53")])
def test_orders_that_floats_do_not_tell_apart(tmp_path, first, words):
    rows = list(reversed([(u, i, first + number % 8) for number, (u, i, _) in enumerate(ROWS)]))
    path = written(tmp_path, "l.csv", "user,item,seq\n" + "".join(f"u{u},i{i},{seq}\n" for u, i, seq in rows))
    flags = dict(timestamp_column="", order_column="seq")
    assert refused(words, path, **flags) if words else whole(read(path, **flags))


def test_items_that_are_called_with_brackets(tmp_path):
    lines = "".join(f"u{u}\tMovie {i} (1999)\n" for u, i, _ in ROWS)
    assert whole(read(written(tmp_path, "s.txt", lines), format="sequence", **DEFAULTS), item="Movie {} (1999)")


@pytest.mark.parametrize("wanted, found, expected", [
    ("1", ["0.00", "1.00"], "1.00"), ("4.50", ["3.0", "4.5"], "4.5"), ("3.00", ["3", "4.5"], "3"),
    ("nan", ["1"], None)])
def test_behaviours_that_are_numbers(wanted, found, expected):
    if expected is None:
        with pytest.raises(UserError, match="nan is not in the log, which has 1"):
            events.kept([wanted], found)
    else:
        assert events.kept([wanted], found) == [expected]


@pytest.mark.parametrize("given, words", [(("1:3", "1:5", "0:1"), "names 1 twice"),
    (("1:3", "1.0:5", "0:1"), "names 1 twice, as 1.0 too")])
def test_behaviours_that_are_weighed_twice(given, words):
    with pytest.raises(UserError, match=words):
        events.numbered(events.weights_of(given), ["0", "1"], "--event_weights")


def test_users_with_too_many_fields_or_no_id(tmp_path):
    users, path = pl.Series(["u0", "u1"]), tmp_path / "users.csv"
    flags = dict(user_features=str(path), user_column="user")
    path.write_text("user,city\nu0,Bern\nu1,Rome, Italy\n")
    with pytest.raises(DataError, match="users.csv, line 3 has more than its 2 fields"):
        user_features.read(users, PrepareConfig(**flags))
    path.write_text("user,city\nu0,Bern\nu1,Rome\n")
    assert user_features.read(users, PrepareConfig(**flags))[0].values == ["Bern", "Rome"]
    items = written(tmp_path, "i.csv", "item,category\ni0,a\n,b\n")
    with pytest.raises(DataError, match="i.csv, line 3: an item without an id"):
        log_files.prepared(written(tmp_path, "l.csv", text()), item_features=str(items), feature_columns=("category",))
