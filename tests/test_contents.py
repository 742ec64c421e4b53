"""Files known by their content: packed, in parts, in any encoding, and those that are something else."""
import bz2
import gzip
import io
import json
import lzma
import zipfile

import numpy as np
import polars as pl
import pytest

from clrec_tf.config import PrepareConfig
from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.preparation import item_features
from clrec_tf.publishing import update_files
from clrec_tf.retrieval import user_requests
from clrec_tf.tabular_files import frames
from clrec_tf.tabular_files import texts
from tests import log_files
from tests.log_files import read
from tests.log_files import ROWS
from tests.log_files import text
from tests.log_files import written

# text() as zstd -3 writes it, whose writer is not at hand.
ZSTD_HEAD = b"\x28\xb5\x2f\xfd"
FRAME = pl.DataFrame([(f"u{u}", f"i{i}", t) for u, i, t in ROWS], ["user", "item", "time"], orient="row")


def whole(path, **settings):
    log = read(path, **settings)
    return log.rows == 40 and log.bad_rows == 0 and log_files.sequences(log) == log_files.expected()


def zipped(**files):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name.replace("__", "/"), content)
    return out.getvalue()


def zstd(content: bytes) -> bytes:
    """A zstd frame of one raw block, without compression (RFC 8878, 3.1.1)."""
    size = len(content)
    return ZSTD_HEAD + bytes([0x80 | 0x20]) + size.to_bytes(4, "little") + (size << 3 | 1).to_bytes(3, "little") + content


@pytest.mark.parametrize("name", ["clicks.csv", "clicks.gz", "clicks", "clicks.dat"])
@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress, zstd, lambda data: zipped(a=data),
                                  lambda data: gzip.compress(gzip.compress(data))])
def test_packed_under_any_name(tmp_path, name, pack):
    assert whole(written(tmp_path, name, pack(text().encode())))


@pytest.mark.parametrize("name", ["l.pq", "l.parquet", "l.csv", "l"])
def test_parquet_and_arrow_under_any_name(tmp_path, name):
    FRAME.write_parquet(tmp_path / name)
    assert whole(tmp_path / name)
    FRAME.write_ipc(tmp_path / name)
    assert whole(tmp_path / name)


def test_packed_items_impressions_and_lines(tmp_path):
    log = written(tmp_path, "l.csv.bz2", bz2.compress(text().encode()))
    items = written(tmp_path, "items.csv.xz", lzma.compress(b"item,category\n" + b"".join(
        b"i%d,c%d\n" % (i, i % 3) for i in range(11))))
    shown = written(tmp_path, "shown.zip", zipped(shown=text()))
    found = log_files.feature_values(log, item_features=str(items), feature_columns=("category",), impressions=str(shown))
    assert found == {f"i{i}": [f"c{i % 3}"] for i in range(11)}
    lines = "".join(json.dumps(dict(user=f"u{u}", item=f"i{i}", time=t)) + "\n" for u, i, t in ROWS)
    assert whole(written(tmp_path, "l.jsonl.gz", gzip.compress(lines.encode())))
    array = json.dumps([json.loads(line) for line in lines.splitlines()])
    assert whole(written(tmp_path, "l.json", array))
    sequence = "".join(f"u{u} i{i}\n" for u, i, _ in ROWS)
    assert whole(written(tmp_path, "s.txt", lzma.compress(sequence.encode())), format="sequence", **DEFAULTS)


DEFAULTS = dict(user_column="user_id", item_column="item_id", timestamp_column="timestamp")


@pytest.mark.parametrize("content, words", [
    (zipped(a=text(), b=text()), "a zip of 2 files .a, b.: unpack it"), (zipped(**{"[Content_Types].xml": ""}), "an Excel"),
    (b"SQLite format 3\0" + bytes(100), "an SQLite database"), (b"\x89HDF\r\n" + bytes(50), "an HDF5 file"),
    (b"ORC" + bytes(50), "an ORC file"), (b"\x80\x04\x95" + bytes(50), "a Python pickle"),
    (b"<!DOCTYPE html>\n<html>", "a web page"),
    (b"version https://git-lfs.github.com/spec/v1\n", "a Git LFS pointer.*git lfs pull"),
    (bytes(257) + b"ustar" + bytes(300), "a tar archive"), (b"\x04\x22M\x18" + bytes(20), "LZ4"),
    (gzip.compress(text().encode())[:-20], "damaged"), (bz2.compress(text().encode())[:-9], "damaged"),
    (lzma.compress(text().encode())[:-9], "damaged"), (zipped(a=text())[:-9], "damaged"), (ZSTD_HEAD + b"x", "damaged")])
def test_what_is_not_read_is_named(tmp_path, content, words):
    with pytest.raises(DataError, match=f"clicks.csv is {words}"):
        read(written(tmp_path, "clicks.csv", content))
    with pytest.raises(DataError, match=f"items is {words}"):
        item_features.read_item_file(PrepareConfig(item_features=str(written(tmp_path, "items", content))))


def test_parquet_where_text_is_expected(tmp_path):
    FRAME.write_parquet(tmp_path / "l")
    with pytest.raises(DataError, match="is a Parquet file, where text is expected: give --format=columns"):
        read(tmp_path / "l", format="sequence", **DEFAULTS)


# Several files.


def parts(folder, write, names):
    for number, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write(FRAME[number * 40 // len(names):(number + 1) * 40 // len(names)], folder / name)
    return folder


def test_folders_patterns_and_lists_of_files(tmp_path):
    folder = parts(tmp_path / "clicks", pl.DataFrame.write_parquet, ["part-0.snappy.parquet", "part-1.snappy.parquet"])
    for name in ("_SUCCESS", ".part-0.crc"):
        (folder / name).write_bytes(b"x")
    for given in (folder, f"{folder}/part*", f"{folder}/part-0.snappy.parquet, {folder}/part-1.snappy.parquet"):
        assert whole(given)
    csv = parts(tmp_path / "csv", pl.DataFrame.write_csv, ["a.csv", "b.csv", "c.csv"])
    (csv / "d.csv").touch()  # an empty partition
    assert whole(csv)
    for name in ("e.parquet", "e.csv.gz"):  # not so where whole files have bytes
        (csv / name).touch()
        with pytest.raises(DataError, match=f"{name} has no bytes, which no whole file of this kind has: restore it"):
            read(csv)
        (csv / name).unlink()
    with pytest.raises(UserError, match="twice"):
        read(f"{csv}/*.csv,{csv}/a.csv")
    for given in (f"{csv}/*.tsv", f"{csv}/a.csv,{csv}/z.csv", tmp_path / "absent"):
        with pytest.raises(UserError, match="does not exist: give a file, several"):
            read(given)


def test_a_file_that_is_removed_while_it_is_read_is_said(tmp_path):
    for reading in (lambda: pl.scan_parquet(tmp_path / "gone.parquet").collect(), lambda: open(tmp_path / "gone.csv")):
        with pytest.raises(DataError, match="log cannot be read: No such file .*another process removes files run again"
                           ), frames.readable("log"):
            reading()


def test_bad_rows_of_parts_are_found(tmp_path):
    folder = parts(tmp_path / "csv", pl.DataFrame.write_csv, ["a.csv", "b.csv"])
    (folder / "b.csv").write_text((folder / "b.csv").read_text() + "u1,,5\n")
    with pytest.raises(DataError, match=r"1 bad of 41 rows(.|\n)*/b.csv, line 22: u1,,5 .missing item id"):
        read(folder)


def test_parts_without_their_header(tmp_path):
    folder = parts(tmp_path / "csv", pl.DataFrame.write_csv, ["a.csv", "b.csv"])
    second = (folder / "b.csv").read_text().split("\n", 1)[1]
    (folder / "b.csv").write_text(second)  # as `split` cuts a file
    with pytest.raises(DataError, match="b.csv has the columns .*a.csv user, item, time: give all parts the same "
                                        "header"):
        read(folder)
    (folder / "a.csv").write_text((folder / "a.csv").read_text().split("\n", 1)[1])
    assert whole(folder, columns=("user", "item", "time"))


@pytest.mark.parametrize("write", [pl.DataFrame.write_parquet, pl.DataFrame.write_csv])
def test_partitions_are_columns(tmp_path, write):
    for user in range(5):
        own = FRAME.filter(pl.col("user") == f"u{user}").drop("user")
        (tmp_path / f"log/user=u{user}").mkdir(parents=True)
        write(own, tmp_path / f"log/user=u{user}/part-0")
    assert whole(tmp_path / "log") and whole(f"{tmp_path}/log/*/part-0")


def test_types_of_parts_may_differ(tmp_path):
    numbers = pl.DataFrame(ROWS, ["user", "item", "time"], orient="row")
    numbers[:20].write_parquet(tmp_path / "a.parquet")
    numbers[20:].with_columns(pl.col("item").cast(pl.Float64)).write_parquet(tmp_path / "b.parquet")
    log = read(f"{tmp_path}/*.parquet")
    assert log_files.sequences(log) == log_files.expected("{}", "{}")


def test_items_and_impressions_in_parts(tmp_path):
    items = pl.DataFrame({"item": [f"i{i}" for i in range(11)], "category": [f"c{i % 3}" for i in range(11)]})
    (tmp_path / "items").mkdir()
    items[:5].write_csv(tmp_path / "items/a.csv")
    items[5:].write_csv(tmp_path / "items/b.csv")
    shown = parts(tmp_path / "shown", pl.DataFrame.write_csv, ["a.csv", "b.csv"])
    found = log_files.feature_values(written(tmp_path, "l.csv", text()), item_features=f"{tmp_path}/items",
                                     feature_columns=("category",), impressions=f"{shown}/*.csv")
    assert found == {f"i{i}": [f"c{i % 3}"] for i in range(11)}


def test_marks_of_patterns_in_names_of_folders(tmp_path):
    """The name as it stands is meant where it exists, also by the readers of Parquet, vectors and requests."""
    folder = tmp_path / "run[1]*.inter"
    folder.mkdir()
    (tmp_path / "run1x.inter").mkdir()
    for name, write in (("l.parquet", FRAME.write_parquet), ("l.csv", FRAME.write_csv)):
        write(folder / name)
        assert whole(folder / name)
    written(folder, "ml.inter", text(mark="\t", header="user:token,item:token,time:float"))
    written(folder, "ml.item", "item:token\tcategory:token\n" + "".join(f"i{i}\tc{i % 3}\n" for i in range(11)))
    for given in (folder, folder / "ml.inter"):
        log = read(given, format="recbole")
        assert log.items.features == {"category": False} and log_files.sequences(log) == log_files.expected()
    pl.DataFrame({"history": [["a"]]}).write_parquet(folder / "users.parquet")
    assert [request.history for request in user_requests.read_parquet(str(folder / "users.parquet"), "string")] == [["a"]]


# Encodings.

TITLED = text(header="user,item,time,title", more=",Café – 5 €")


@pytest.mark.parametrize("encoding, given", [
    ("utf-8", ""), ("utf-8-sig", ""), ("utf-16", ""), ("utf-16-le", ""), ("utf-16-be", ""), ("utf-32", ""), ("cp1252", ""),
    ("cp1252", "cp1252"), ("utf-16", "utf-16"), ("utf-8", "utf-8"), ("utf-8-sig", "utf-8"), ("cp1252", "windows-1252")])
def test_encodings(tmp_path, caplog, encoding, given):
    with caplog.at_level("INFO", "absl"):
        log = read(written(tmp_path, "l.csv", TITLED.encode(encoding)), encoding=given)
    assert log.clicks["title"].to_list() == ["Café – 5 €"] * 40 and log_files.sequences(log) == log_files.expected()
    assert ("is not UTF-8: read as cp1252, line 2 as" in caplog.text) == (encoding == "cp1252" and not given)


def test_encodings_that_must_be_given(tmp_path, caplog):
    greek = text(header="user,item,time,title", more=",Ελλάδα").encode("iso-8859-7")
    path = written(tmp_path, "l.csv", gzip.compress(greek))
    assert read(path, encoding="iso-8859-7").clicks["title"][0] == "Ελλάδα"
    with pytest.raises(UserError, match="--encoding=greek-x is no encoding: give one such as"):
        read(path, encoding="greek-x")
    with pytest.raises(DataError, match="is not UTF-8 text"):
        read(path, encoding="utf-8")
    log = written(tmp_path, "m.csv", text())
    items = written(tmp_path, "i.csv", "item,category\n" + "".join(f"i{i},Ελλάδα\n" for i in range(11)))
    for content in (items.read_bytes(), items.read_text().encode("iso-8859-7")):  # is UTF-8, and is not
        items.write_bytes(content)
        found = log_files.feature_values(log, item_features=str(items), feature_columns=("category",),
                                         encoding="iso-8859-7")
        assert found["i0"] == ["Ελλάδα"]


def test_a_damaged_line_of_utf_8_is_named(tmp_path):
    lines = TITLED.encode().splitlines(keepends=True)
    lines[20] = lines[20].replace("é".encode(), b"\xe9")
    with pytest.raises(DataError, match="line 21 is not UTF-8 .byte 0xe9., as 119 other characters"):
        read(written(tmp_path, "l.csv", b"".join(lines)))


def test_lines_that_end_as_they_did_once(tmp_path):
    assert whole(written(tmp_path, "l.csv", text().replace("\n", "\r")))
    assert whole(written(tmp_path, "m.csv", text().replace("\n", "\r\n")))


def test_byte_order_marks_of_every_text_file(tmp_path):
    mark = b"\xef\xbb\xbf"
    assert whole(written(tmp_path, "s.txt", mark + "".join(f"u{u}\ti{i}\n" for u, i, _ in ROWS).encode()),
                 format="sequence", **DEFAULTS)
    lines = "".join(json.dumps(dict(user=f"u{u}", item=f"i{i}", time=t)) + "\n" for u, i, t in ROWS)
    assert whole(written(tmp_path, "l.jsonl", mark + lines.encode()))
    log = written(tmp_path, "l.csv", mark + text().encode())
    assert whole(log) and whole(log, columns=()) and log_files.prepared(log, impressions=str(log)).num_users == 5
    for name, content in (("i.csv", b"item,category\ni0,x\n"), ("i.json", b'{"i0": {"category": "x"}}')):
        items = written(tmp_path, name, mark + content)
        assert log_files.feature_values(log, item_features=str(items), feature_columns=("category",))["i0"] == ["x"]
    withdrawn = written(tmp_path, "gone.txt", mark + b"i0\n i1 \n")
    assert update_files.read_deletions(str(withdrawn), "string").tolist() == ["i0", "i1"]
    for lines in (io.BytesIO(mark + b'["a"]\n["b"]\n'), [mark + b'["a"]', b'["b"]']):
        assert [request.history for request in user_requests.read_json_lines(lines, "string", "x")] == [["a"], ["b"]]
    with pytest.raises(DataError, match="x is UTF-16 text: convert it to UTF-8"):
        list(user_requests.json_lines(['["a"]'.encode("utf-16")], "x"))
    with pytest.raises(DataError, match="gone.txt is UTF-16 text"):
        update_files.read_deletions(str(written(tmp_path, "gone.txt", "i0\n".encode("utf-16"))), "string")


def test_the_place_of_a_wrong_byte_is_found_behind_a_border(monkeypatch):
    monkeypatch.setattr(texts, "_CHUNK", 4)
    for content, at in ((b"abc\xc3\xa9de\xff", 7), (b"abc\xc3", 3), ("abcé".encode() + b"\xe2\x82x", 5)):
        with pytest.raises(UnicodeDecodeError, match=f"offset {at}"):
            texts.check_utf8(content)
    texts.check_utf8("a€bé€c".encode())


def test_dense_vectors_join_ids_that_became_floats(tmp_path):
    np.savez(tmp_path / "v.npz", ids=np.arange(11.0), vectors=np.eye(11))
    schema = log_files.prepared(written(tmp_path, "l.csv", text("{}", "{}")), dense_features=str(tmp_path / "v.npz"))
    assert schema.content_width == 11
