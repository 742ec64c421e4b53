"""The figures and warnings that close prepare: right values for logs that are out of line, and none for a sound one."""
import gzip
import json

import numpy as np
import pytest

from clrec_tf.config import Config
from clrec_tf.config import PrepareConfig
from clrec_tf.errors import DataError
from clrec_tf import prepare
from tests.prepared_data import prepare_text
from tests import small_run

DAY, BEGIN = 86_400, 1_600_000_000 // 86_400 * 86_400  # midnight, UTC


def log(rows, header="user_id,item_id,timestamp"):
    return "\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n"


def sound(users=40, clicks=8, items=20, first_user=0):
    """Rows of users with a click every hour, each from another second on."""
    return [(user, 1 + (7 * user + click) % items, BEGIN + 60 * user + 3600 * click)
            for user in range(first_user, first_user + users) for click in range(clicks)]


def report(tmp_path, rows, **settings):
    text = rows if isinstance(rows, str) else log(rows)
    with open(prepare_text(tmp_path, text, **settings) + "/report.json", encoding="utf-8") as file:
        found = json.load(file)
    return found["plausibility"], found["warnings"]


def test_figures_of_a_sound_log(tmp_path):
    items = "\n".join(["item\tcolour", *(f"{item}\tred" for item in range(1, 16))])
    (tmp_path / "items.tsv").write_text(items)
    found, warnings = report(tmp_path, sound(), item_features=str(tmp_path / "items.tsv"), feature_columns=("colour",))
    assert warnings == []
    assert found == dict(
        lines=320, rows=320, dropped={}, users=40, items=20, median_clicks_per_user=8,
        heaviest_user=dict(id="0", clicks=8, share=0.025), heaviest_item=found["heaviest_item"],
        ids=dict(type="int", no_integers=0, such_as=[]), unknown_times=0, equal_times=0.0, whole_days=False,
        first="2020-09-13T00:00:00+00:00", last="2020-09-13T07:39:00+00:00", days=0.32,
        most_until="2020-09-13T07:39:00+00:00", stretched=0.0, in_1970=0, in_the_future=0,
        not_trained_on=dict(users=0, clicks=0),
        parts=dict(train=dict(sequences=40, share_of_users=1.0, share_of_clicks=0.75),
                   valid=dict(sequences=40, share_of_users=1.0, share_of_clicks=0.125),
                   test=dict(sequences=40, share_of_users=1.0, share_of_clicks=0.125)),
        items_with_feature=dict(colour=0.75))
    counts = np.bincount([item for _, item, _ in sound()])
    assert found["heaviest_item"]["clicks"] == counts.max() == counts[int(found["heaviest_item"]["id"])]


def test_the_report_closes_a_dry_run(tmp_path, capsys):
    (tmp_path / "log.csv").write_text(log(sound() + [("guest", 1 + n % 20, BEGIN + n) for n in range(80)]))
    prepare.prepare(Config(prepare=PrepareConfig(input=str(tmp_path / "log.csv"), dry_run=True)))
    text = capsys.readouterr().out
    assert "\nplausibility:\n  lines: 400\n  rows: 400\n  users: 41\n" in text and "whole_days: False" in text
    assert text.rstrip().split("\n")[-2:] == [
        "warnings:", "  user 'guest' has 20.0% of all clicks: if the id stands for a missing user, a robot or a test "
        "account, take its rows out of the log; else see whether 'user_id' is the column of the user"]


@pytest.mark.parametrize("rows, settings, name, value, words", [
    ([(user, "top" if click % 2 else f"i{user}-{click}", BEGIN + 60 * click) for user in range(40)
      for click in range(8)], {}, "heaviest_item", dict(id="top", clicks=160, share=0.5),
     "item 'top' has 50.0% of all clicks"),
    (sound() + [(user, 1, BEGIN + user) for user in range(100, 160)], {}, "median_clicks_per_user", 1,
     "half of the 100 users have one click"),
    (sound(clicks=6), dict(min_train_length=4), "not_trained_on", dict(users=0, clicks=0), None),
    (sound(10) + sound(30, 6, first_user=50), {}, "not_trained_on", dict(users=30, clicks=120),
     "30 of 40 users are not trained on, since they have fewer than --min_train_length=5 training clicks: lower it"),
    ([(u, i, BEGIN + DAY * ((t - BEGIN) // 7200)) for u, i, t in sound()], {}, "equal_times", 1.0,
     "100.0% of the clicks have the same time as another of their user, being dates without a time of day: among"),
    ([(u, i, t - t % 7200 + 1) for u, i, t in sound(1)] + sound(1, first_user=60), {}, "equal_times", 0.5,
     "50.0% of the clicks have the same time as another of their user: among these the order is that of the file"),
    ([(u, i, t // 1000) for u, i, t in sound()], {}, "in_1970", 320, "320 clicks are of 1970: check"),
    (sound() + [(1, 3, 2_600_000_000)], dict(max_time="2100-01-01"), "in_the_future", 1,
     "1 clicks lie in the future, the last at 2052-05-22T14:13:20+00:00: check"),
    (sound(400) + [(1, 3, BEGIN + 900 * DAY)], {}, "stretched", round(1 - 49_020 / (900 * DAY), 4),
     "99.9% of the clicks lie before 2020-09-13T13:37:00+00:00, but the last is of 2023-03-02T00:00:00+00:00"),
    ([(u, i, 0 if u == 5 else t) for u, i, t in sound()], {}, "unknown_times", 8, "8 clicks have no time (0 or less)"),
    ([(u, "B00x" if n == 9 else i, t) for n, (u, i, t) in enumerate(sound(60, items=30))], {}, "ids",
     dict(type="string", no_integers=1, such_as=["B00x"]),
     "1 of 31 item ids are no integers, such as 'B00x', which makes all ids strings"),
    ([(u, "(Unknown)" if n == 9 else f"i{i}", t) for n, (u, i, t) in enumerate(sound(items=5))], {}, "ids",
     dict(type="string", no_integers=6, such_as=["i1", "i2", "i3"], items_like_missing=["(Unknown)"]),
     "item ids such as '(Unknown)' read like words for a missing item: if they are, add them to --null_values"),
    ([("00000000-0000-0000-0000-000000000000" if u == 7 else u, i, t) for u, i, t in sound()], {}, "ids",
     dict(type="int", no_integers=0, such_as=[], users_like_missing=["00000000-0000-0000-0000-000000000000"]),
     "user ids such as '00000000-0000-0000-0000-000000000000' read like words for a missing user"),
    ([(u, "None" if n == 9 else f"i{i}", t) for n, (u, i, t) in enumerate(sound(items=5))], dict(null_values=("NULL",)),
     "ids", dict(type="string", no_integers=6, such_as=["i1", "i2", "i3"]), None),  # who names words has thought of it
    (sound() + [(1, 3, BEGIN + 40 * DAY)], dict(split="last_days"), "parts", None,
     "the part valid has none of 40 users: see whether an outlier ends the log"),
    (sound() + [(u, i, t + 40 * DAY) for u, i, t in sound()], dict(split="last_days", valid_days=0), "in_1970", 0,
     None),
    (sound(), dict(from_time=str(BEGIN + 1)), "dropped", dict(dropped_by_time=1), None),
    (sound() + [("", 1, BEGIN)] * 20, dict(max_bad_rows=20), "dropped", dict(bad_rows=20),
     "20 of 340 rows are bad and were left out: bad_row_examples says why"),
    (sound(3), {}, "heaviest_user", dict(id="0", clicks=8, share=0.3333), None),  # of three users each has a third
])
def test_what_is_out_of_line_is_told(tmp_path, rows, settings, name, value, words):
    found, warnings = report(tmp_path, rows, **settings)
    assert value is None or found[name] == value
    assert len(warnings) == (words is not None), warnings
    assert words is None or warnings[0].startswith(words)


def test_features_that_match_few_items(tmp_path):
    (tmp_path / "items.tsv").write_text("item\tcolour\n" + "".join(f"{item}\tred\n" for item in range(19, 60)))
    np.savez(tmp_path / "dense.npz", ids=np.array(["7", "8"]), vectors=np.ones((2, 3)))
    found, warnings = report(tmp_path, sound(), item_features=str(tmp_path / "items.tsv"), feature_columns=("colour",),
                             dense_features=str(tmp_path / "dense.npz"))
    assert found["items_with_feature"] == dict(colour=0.1, dense=0.1)
    assert [warning.split(":")[0] for warning in warnings] == [
        f"{name} is known of 10.0% of the items only" for name in ("colour", "dense")]


@pytest.mark.parametrize("scale, words", [(1e3, []), (1.01e3, ["--dense_features has values up to 1.01e+03, beside"]),
                                          (1e30, ["--dense_features has values up to 1e+30, beside which"])])
def test_dense_vectors_far_from_one(tmp_path, scale, words):
    vectors = np.linspace(-1, 1, 60).reshape(20, 3)[::-1]
    vectors[:, 1:] *= 0.5  # the largest is negative
    np.savez(tmp_path / "dense.npz", ids=np.arange(1, 21).astype(str), vectors=vectors * scale)
    found, warnings = report(tmp_path, sound(), dense_features=str(tmp_path / "dense.npz"))
    assert found["largest_dense_value"] == pytest.approx(scale, rel=1e-6)
    assert [warning[:len(start)] for warning, start in zip(warnings, words)] == words and len(warnings) == len(words)


def test_rows_are_counted_against_lines(tmp_path):
    titled = [(*row, f"title {number}") for number, row in enumerate(sound())]
    titled[3], titled[6] = (*titled[3][:3], '"twelve inch'), (*titled[6][:3], 'ten inch"')  # lines 3 to 6 are one row
    text = log(titled, "user_id,item_id,timestamp,title")
    with pytest.raises(DataError, match="--quote=none"):
        report(tmp_path, text, name="swallowed")
    found, warnings = report(tmp_path, text, quote="none")
    assert (found["lines"], found["rows"]) == (320, 320) and warnings == []


@pytest.mark.parametrize("ending, lines", [("csv", 320), ("csv.gz", 320), ("parquet", None)])
def test_lines_of_every_form(tmp_path, ending, lines):
    import polars as pl  # pylint: disable=import-outside-toplevel
    path, text = tmp_path / f"clicks.{ending}", log(sound()).rstrip("\n").replace("\n", "\r\n")
    if ending == "parquet":
        pl.DataFrame(sound(), ["user_id", "item_id", "timestamp"], orient="row").write_parquet(path)
    else:
        path.write_bytes(gzip.compress(text.encode()) if ending.endswith("gz") else text.encode())
    found, warnings = report(tmp_path, "", name="made", input=str(path))
    assert found.get("lines") == lines and found["rows"] == 320 and warnings == []


def test_a_line_of_many_clicks_is_not_compared_with_rows(tmp_path):
    text = "".join(
        f"{user} " + " ".join(str(1 + (user + click) % 20) for click in range(8)) + "\n" for user in range(40))
    found, warnings = report(tmp_path, text, format="sequence_per_user")
    assert "lines" not in found and (found["rows"], found["users"], warnings) == (320, 40, [])
    assert "equal_times" not in found and "first" not in found  # there are no times


def test_the_small_log_of_other_tests_is_sound(tmp_path):
    assert report(tmp_path, small_run.click_log())[1] == []


@pytest.mark.parametrize("name, settings, expected", [
    ("ml-1m/ml-1m.txt.gz", dict(format="sequence"), []),
    ("ml-100k", dict(format="recbole"), ["75.8% of the clicks have the same time"]),  # whole pages rated at once
    ("beauty/beauty.txt.gz", dict(format="sequence"), ["20,419 of 40,226 users are not trained on"]),
    ("amazon-beauty-5core/Beauty.txt.gz", dict(format="sequence_per_user"), [
        "11,383 of 22,363 users are not trained on"]),
    ("taobao-sample/UserBehavior.csv.gz", dict(format="taobao", max_bad_rows=1, split="last_days", utc_offset=8.0), []),
])
def test_real_logs_are_warned_of_what_is_strange_in_them(shared_data, tmp_path, capsys, name, settings, expected):
    del tmp_path
    prepare.prepare(Config(prepare=PrepareConfig(input=str(shared_data / name), dry_run=True, **settings)))
    warnings = capsys.readouterr().out.partition("\nwarnings:\n")[2].splitlines()
    assert len(warnings) == len(expected)
    assert all(line.strip().startswith(words) for line, words in zip(warnings, expected))
