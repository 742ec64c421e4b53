"""prepare --impressions: exposures by pencil and by plain loops, the folder's identity and checks, and refusals."""
import hashlib
import json
import os
import pathlib

import numpy as np
import pytest

from clrec_tf.config import Config
from clrec_tf.config import Paths
from clrec_tf.config import PrepareConfig
from clrec_tf.data.exposures import read_exposures
from clrec_tf.data import schema as schema_lib
from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.preparation import impressions
from clrec_tf import prepare
from tests import prepared_data

DAY = 86_400
HEADER = "user_id,item_id,timestamp\n"
# The last two clicks of a and b are held out; c has too few. So trained on: p q r p of a, q p of b.
CLICKS = HEADER + "a,p,10\na,q,20\na,r,20\nb,q,5\na,p,30\nb,p,15\na,y,40\na,x,50\nb,r,25\nb,p,35\nc,p,1\n"
IMPRESSIONS = HEADER + "".join(f"{row}\n" for row in (
    "a,p,30",   # r was clicked last; the last training click's own time still counts
    "a,q,20",   # p: the clicks of second 20 are not before it
    "a,r,5",    # nothing before
    "b,q,5",    # nothing before, for its own click has the same time stamp
    "a,r,20",   # p
    "a,q,31",   # after the last training click
    "a,y,12",   # y is clicked in the validation part only: outside the vocabulary
    "a,p,21",   # r: of two clicks in second 20 the one that stands later
    "c,p,0",    # a user who is not trained on
    "z,p,1",    # a user without clicks
    "b,new,6",  # an item without clicks
    "b,r,15"))  # q
P, Q, R = 1, 2, 3  # by falling training count
EXPOSED = [[0, R], [0, Q], [Q, R], [P, Q], [P, R], [R, P], [R, P]]  # seconds 5 5 15 20 20 21 30


def call(folder, clicks=CLICKS, shown=IMPRESSIONS, **settings):
    """Prepares into folder/data and returns it; `shown` None: no impressions."""
    if shown is not None:
        (folder / "shown.csv").write_text(shown)
        settings = {"impressions": str(folder / "shown.csv"), **settings}
    return prepared_data.prepare_text(folder, clicks, **{"min_train_length": 2, **settings})


def exposures(data_dir):
    array = np.load(os.path.join(data_dir, "impressions.npy"))
    assert array.dtype == np.int32 and array.shape[1:] == (2,)
    return array.tolist()


def report_of(data_dir):
    return json.loads((pathlib.Path(data_dir) / "report.json").read_text())["impressions"]


def test_by_pencil(tmp_path):
    data_dir = call(tmp_path)
    assert exposures(data_dir) == EXPOSED
    assert report_of(data_dir) == dict(
        rows=12, bad_rows=0, bad_row_examples=[], kept=7, dropped_without_user=0,
        dropped_other_users=2, dropped_after_training=1, dropped_by_time=0, dropped_other_items=2)
    manifest = schema_lib.load_manifest(data_dir, "sha256")
    assert manifest.impressions.records == 7
    np.testing.assert_array_equal(read_exposures(data_dir, manifest, "--x"), EXPOSED)


def test_the_rest_of_the_data_is_the_same_with_and_without(tmp_path):
    for name in ("with", "without"):
        (tmp_path / name).mkdir()
    first, second = call(tmp_path / "with"), call(tmp_path / "without", shown=None)
    for split in schema_lib.SPLITS:
        assert prepared_data.read_split(first, split) == prepared_data.read_split(second, split)
    assert schema_lib.load_manifest(second).impressions is None
    assert not os.path.exists(os.path.join(second, "impressions.npy"))


def test_the_training_part_by_days(tmp_path):
    """last_days: what was shown after a user's last click of the training days stays out."""
    clicks = HEADER + "".join(f"u,{item},{day * DAY}\n" for day, item in enumerate("pqprq"))
    shown = HEADER + "".join(f"u,{item},{day * DAY - 1}\n" for day, item in enumerate("ppqqpq", 1))
    # Days 0 to 2 are trained on, 3 validates and 4 tests: what was shown before the clicks of days 1 and 2 counts.
    assert exposures(call(tmp_path, clicks, shown, split="last_days")) == [[1, 1], [2, 1]]


def test_from_and_hash_buckets(tmp_path):
    data_dir = call(tmp_path, from_time="6", oov_buckets=1)
    # Without b's click in second 5 its training part is too short. y has a bucket; `new` was never clicked.
    assert exposures(data_dir) == [[P, 4], [P, Q], [P, R], [R, P], [R, P]]
    assert report_of(data_dir)["dropped_by_time"] == 1 and report_of(data_dir)["dropped_other_users"] == 5


def test_columns_and_units_are_those_of_the_flags(tmp_path):
    rename = lambda text: text.replace("user_id,item_id,timestamp", "who;what;when").replace(",", ";")
    in_ms = lambda text: "\n".join(line if ";when" in line else line + "000" for line in text.split())
    data_dir = call(tmp_path, *(in_ms(rename(text)) for text in (CLICKS, IMPRESSIONS)), user_column="who",
                    item_column="what", timestamp_column="when", timestamp_unit="ms", delimiter=";")
    assert exposures(data_dir) == EXPOSED


@pytest.mark.parametrize("parts", [1, 2])
def test_columns_are_named_where_neither_log_has_a_header(parts, tmp_path):
    """Though the first row has a value twice, as no header has."""
    bare = lambda text: text.removeprefix(HEADER)
    (tmp_path / "shown").mkdir()
    lines = ["5,5,3", *bare(IMPRESSIONS).split()]
    for number in range(parts):
        (tmp_path / "shown" / f"{number}.csv").write_text("\n".join(lines[7 * number:7 * number + 14 // parts]) + "\n")
    data_dir = call(tmp_path, bare(CLICKS), None, impressions=str(tmp_path / "shown"), min_train_length=2,
                    columns=("user_id", "item_id", "timestamp"))
    assert exposures(data_dir) == EXPOSED and report_of(data_dir)["rows"] == 13


def test_context_columns_of_the_click_log_are_not_asked_for(tmp_path):
    clicks = "".join(f"{line},{'country' if line + chr(10) == HEADER else 'de'}\n" for line in CLICKS.split())
    assert exposures(call(tmp_path, clicks, context_columns=("country",))) == EXPOSED


def test_logs_of_another_form_have_impressions_in_columns(tmp_path):
    clicks = "".join(f"{user},{item},7,pv,{1_500_000_000 + second}\n" for user, item, second in (
        ("1", "5", 10), ("1", "6", 20), ("1", "5", 30), ("1", "6", 40)))
    shown = HEADER + "1,6,1500000015\n1,5,1500000020\n"
    assert exposures(call(tmp_path, clicks, shown, format="taobao")) == [[1, 2], [1, 1]]


@pytest.mark.parametrize("users,shown", [(400, 30), (3, 300)])
def test_random_logs_by_loops_in_the_order_of_the_file(tmp_path, users, shown):
    rng = np.random.default_rng(users)
    clicks = [(f"u{rng.integers(users)}", f"i{rng.integers(12)}", int(rng.integers(40))) for _ in range(5 * users)]
    rows = [(f"u{rng.integers(users)}", f"i{rng.integers(14)}", int(rng.choice([7, 7, 19, 20, 39])))
            for _ in range(shown)]
    text = lambda table: HEADER + "".join(f"{user},{item},{second}\n" for user, item, second in table)
    data_dir = call(tmp_path, text(clicks), text(rows), min_train_length=1)
    ids = {record["original_id"][0].decode(): record["item_id"][0]
           for record in prepared_data.read_split(data_dir, "catalogue")}
    trained = {}
    for user in {row[0] for row in clicks}:
        own = sorted((row for row in clicks if row[0] == user), key=lambda row: row[2])
        trained[user] = own[:-2] if len(own) > 2 else own
    expected = []
    for user, item, second in sorted(rows, key=lambda row: row[2]):
        own = trained.get(user, [])
        if item in ids and own and second <= own[-1][2]:
            before = [ids[row[1]] for row in own if row[2] < second]
            expected.append([before[-1] if before else 0, ids[item]])
    assert len(expected) > 5 and exposures(data_dir) == expected


# Refusals.


@pytest.mark.parametrize("clicks,shown,settings,message", [
    (CLICKS, IMPRESSIONS, dict(impressions="absent.csv"), "--impressions=absent.csv is no file"),
    ("1 2\n1 3\n1 4\n1 2\n", IMPRESSIONS, dict(format="sequence"), "--impressions=.* needs a click log with"),
    (CLICKS, IMPRESSIONS, dict(timestamp_column=""), "--impressions=.* needs a click log with time stamps"),
    (CLICKS, "user_id,item_id\na,p\n", {}, "--impressions: .*'timestamp': give --timestamp_column as one of user_id, item_id$"),
    (CLICKS, "who,item_id,timestamp\na,p,3\n", {}, "shown.csv has no column 'user_id': give --user_column"),
    (CLICKS, HEADER + "a,p,3\na,,4\na,q,yesterday\n", dict(max_bad_rows=1),
     r"shown.csv has 2 bad of 3 rows, --max_bad_rows=1(.|\n)*line 3: a,,4 .missing item id"),
    (CLICKS, HEADER, {}, "shown.csv holds no rows"),
    (CLICKS, HEADER + "a,p,1500000000123\n", dict(timestamp_unit="s"), "give --timestamp_unit=ms"),
    (CLICKS, HEADER + "a,p,31\nz,p,3\na,y,3\n", {}, "--impressions=.*none of its 3 rows shows an item.*It has users "
                                                    "such as 'a', 'z', 'a' and items such as 'p', 'p', 'y'; "
     "the click log users such as 'a', 'b', 'c'")])
def test_refusals_leave_nothing(tmp_path, clicks, shown, settings, message):
    with pytest.raises(UserError, match=message):
        call(tmp_path, clicks, shown, **settings)
    assert not (tmp_path / "data").exists()


def test_a_missing_file_and_missing_time_stamps_are_named_where_the_log_is_read():
    for settings, message in ((dict(impressions="absent.csv"), "--impressions=absent.csv does not exist"),
                              (dict(impressions=__file__, timestamp_column=""), "give --timestamp_column")):
        with pytest.raises(UserError, match=message):
            impressions.exposures_of_log(PrepareConfig(**settings), None, None, None, None, {})


def test_bad_rows_are_counted_with_examples(tmp_path):
    data_dir = call(tmp_path, shown=IMPRESSIONS + "a,,4\n", max_bad_rows=1)
    report = report_of(data_dir)
    assert exposures(data_dir) == EXPOSED and (report["rows"], report["bad_rows"], report["kept"]) == (13, 1, 7)
    assert report["bad_row_examples"] == ["line 14: a,,4 (missing item id)"]
    assert report["dropped_other_users"] == 2


# The folder: identity and damage.


def test_a_folder_is_known_by_its_impressions(tmp_path):
    data_dir = call(tmp_path)
    stamp = os.stat(os.path.join(data_dir, "manifest.json")).st_mtime_ns
    call(tmp_path)  # complete: left as it is
    (tmp_path / "moved.csv").write_text(IMPRESSIONS)
    call(tmp_path, impressions=str(tmp_path / "moved.csv"))  # a file counts by its content
    assert os.stat(os.path.join(data_dir, "manifest.json")).st_mtime_ns == stamp
    for shown in (IMPRESSIONS + "a,p,4\n", None):
        with pytest.raises(UserError, match="was prepared with sha256=(.|\n)*choose another --data_dir"):
            call(tmp_path, shown=shown)
    assert exposures(data_dir) == EXPOSED


def test_a_folder_without_impressions_is_another(tmp_path):
    data_dir = call(tmp_path, shown=None)
    with pytest.raises(UserError, match="was prepared with sha256="):
        call(tmp_path)
    with pytest.raises(UserError, match=f"--negatives=impressions needs impressions.*--data_dir={data_dir}.*"
                                        "--impressions=FILE"):
        read_exposures(data_dir, schema_lib.load_manifest(data_dir), "--negatives=impressions")


def test_the_schema_knows_other_impressions_too(tmp_path):
    """So a run cannot go on, nor a model be exported, with other impressions than it was trained with."""
    hashes = set()
    for name, shown in (("one", IMPRESSIONS), ("two", IMPRESSIONS + "a,p,4\n"), ("none", None)):
        (tmp_path / name).mkdir()
        hashes.add(schema_lib.load_schema(call(tmp_path / name, shown=shown)).hash())
    assert len(hashes) == 3


def test_damage_is_found(tmp_path):
    data_dir = call(tmp_path)
    path = pathlib.Path(data_dir) / "impressions.npy"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with pytest.raises(DataError, match=f"impressions.npy has {len(whole) - 1} bytes, the manifest says {len(whole)}"):
        schema_lib.load_manifest(data_dir)
    path.write_bytes(whole[:-1] + b"\x07")
    schema_lib.load_manifest(data_dir)
    with pytest.raises(DataError, match="impressions.npy has sha256"):
        schema_lib.load_manifest(data_dir, "sha256")
    with pytest.raises(DataError, match="impressions.npy has sha256"):  # whoever reads it is told, whatever was checked
        read_exposures(data_dir, schema_lib.load_manifest(data_dir), "--x")
    path.unlink()
    with pytest.raises(DataError, match="impressions.npy is missing"):
        schema_lib.load_manifest(data_dir)
    np.save(path, np.zeros((6, 2), np.int32))
    content = path.read_bytes()
    entry = schema_lib.Shard("impressions.npy", 7, 0, len(content), hashlib.sha256(content).hexdigest())
    manifest = schema_lib.Manifest("", {}, None, entry)
    with pytest.raises(DataError, match=r"shape \(6, 2\), the manifest says 7 rows"):
        read_exposures(data_dir, manifest, "--x")


@pytest.mark.parametrize("strangers, warned", [(57, False), (58, True)])
def test_few_impressions_that_are_kept_are_warned_of(tmp_path, strangers, warned):
    """3 that are kept are 5 % of 60."""
    data_dir = call(tmp_path, CLICKS, HEADER + "a,p,3\n" * 3 + "z,p,3\n" * strangers)
    assert report_of(data_dir)["kept"] == 3
    with open(f"{data_dir}/report.json", encoding="utf-8") as file:
        found = [text for text in json.load(file)["warnings"] if "impressions that name a user" in text]
    assert bool(found) == warned
    assert not warned or found[0].startswith("of 61 impressions that name a user only 3 are kept, which are all that "
                                             "is learned from: 58 are of users that are not trained on, 0 later")


def test_dry_run_reports_impressions_and_writes_nothing(tmp_path, capsys):
    (tmp_path / "log.csv").write_text(CLICKS)
    (tmp_path / "shown.csv").write_text(IMPRESSIONS)
    prepare.prepare(Config(Paths(), prepare=PrepareConfig(
        input=str(tmp_path / "log.csv"), impressions=str(tmp_path / "shown.csv"), min_train_length=2, dry_run=True)))
    assert "\nimpressions:\n  rows: 12\n  bad_rows: 0\n  kept: 7\n" in capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log.csv", "shown.csv"]
