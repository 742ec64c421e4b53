"""--runner=beam with --impressions: the folder, the warnings and the refusals are those of one process."""
import os

import numpy as np
import polars as pl
import pytest

from clrec_tf.data import schema as schema_lib
from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.server.impression_files import ImpressionFiles
from clrec_tf.server.impression_files import Shown
from tests import test_beam
from tests.test_beam import groups_of_users  # pylint: disable=unused-import
from tests.test_beam import prepared
from tests.test_beam import START
from tests.test_beam import told_alike


def shown_rows(count=400, seed=0, users=36, items=30):
    """Impressions of known and unknown users and items, at seconds of clicks and others, many of them equal."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        user = int(rng.integers(users) ** 2 / users)
        second = START + int(rng.integers(45)) * 20_000 + int(rng.choice([0, user]))
        yield f"u{user}", str(100 + int(rng.integers(items))), second


def csv(folder, rows, name="part", header="user,item,ms"):
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.csv").write_text("\n".join([header, *(f"{user},{item},{1000 * second}"
                                                             for user, item, second in rows)]) + "\n")
    return str(folder)


def in_columns(tmp_path):
    """Four files, of which one is empty, with a bad row in two; ids that make all text."""
    found = list(shown_rows())
    found[10], found[300] = ("", "104", START), ("u1", "", START)
    found[40] = ("u2", "x7", START)
    folder = tmp_path / "shown"
    for name, part in dict(a=found[:100], c=found[100:250], d=found[250:]).items():
        csv(folder, part, name)
    (folder / "b.csv").write_text("")
    return test_beam.weighed(tmp_path) | dict(impressions=str(folder))


def served(tmp_path, user=lambda user: user):
    """As the server writes them, with rows of nobody; the click log has other columns, and requests have features."""
    files = ImpressionFiles(str(tmp_path / "shown"), 70, 1e9)
    for number, (who, item, second) in enumerate(sorted(shown_rows(seed=1), key=lambda row: row[2])):
        files.add([Shown(f"r{number}", "m", 1, user(who if number % 9 else None), second + 0.25, 0.0, [item, "120"],
                         [1.0, 0.5])], 0.0)
        if files.due(0.0):
            files.publish()
    files.publish()
    return test_beam.asked(tmp_path) | dict(impressions=str(tmp_path / "shown"), max_time="2100-01-01")


def warnings_of(caplog):
    """What was warned of, but for what Beam itself says."""
    found = {record.getMessage() for record in caplog.records if (record.name, record.levelname) == ("absl", "WARNING")}
    caplog.clear()
    return found


@pytest.mark.parametrize("log", [in_columns, served])
def test_folders_are_equal(log, tmp_path, groups_of_users, caplog):
    given = log(tmp_path)
    local = prepared(tmp_path, "local", given)
    report = schema_lib.load_json(str(tmp_path / "local" / "report.json"), "", "")["impressions"]
    wanted = ["kept", "dropped_other_users", "dropped_after_training", "dropped_other_items"]
    wanted += ["bad_rows", "dropped_by_time"] if log is in_columns else ["dropped_without_user"]
    assert all(report[name] > 0 for name in wanted), report
    warned = warnings_of(caplog)
    assert prepared(tmp_path, "beam", given | dict(beam_options="--direct_runner_bundle_repeat=1")) == local
    assert warnings_of(caplog) == warned
    if log is in_columns:
        assert len([text for text in warned if text.startswith("bad row left out") and "shown/" in text]) == 2
        assert [text for text in warned if "shown: all ids are text, since 1 of" in text]


@pytest.mark.parametrize("days", [6, 3000])
def test_random_logs_without_a_user_of_one_in_the_other(days, tmp_path, groups_of_users):
    """Few seconds, so clicks and impressions are equal in time; or many days, most of which have one impression."""
    rng = np.random.default_rng(days)
    draw = lambda count, users: [(f"u{rng.choice(users)}", f"{rng.integers(8)}.0", int(rng.integers(days)) * 100_000)
                                 for _ in range(count)]
    clicks, shown = draw(120, range(12)), draw(200, range(6, 18))
    given = dict(input=csv(tmp_path / "log", clicks), impressions=csv(tmp_path / "shown", shown), user_column="user",
                 item_column="item", timestamp_column="ms", timestamp_unit="ms", min_train_length=1, shard_records=3)
    local = prepared(tmp_path, "local", given)
    assert len(np.load(tmp_path / "local" / "impressions.npy")) > 20
    assert prepared(tmp_path, "beam", given) == local


def test_a_dry_run_says_the_same(tmp_path, groups_of_users, capsys):
    assert "\nimpressions:\n  rows: 400\n  bad_rows: 2\n" in told_alike(in_columns(tmp_path), capsys)


def text_of(rows, header="user,item,ms"):
    return lambda path: path.write_text("\n".join([header, *rows]) + "\n")


def of_two_headers(path):
    csv(path, shown_rows(10), "a")
    csv(path, shown_rows(10), "b", "user,item,ms,rank")


def of_nobody(path):
    """Parquet of the server, whose requests named no user."""
    served(path.parent / "nobody", user=lambda _: None)
    pl.concat([pl.read_parquet(name) for name in sorted((path.parent / "nobody" / "shown").rglob("*.parquet"))]
              ).write_parquet(path)


@pytest.mark.parametrize("write, given, message", [
    (text_of(["u1,104,7", "u2,,7"]), dict(max_bad_rows=0), "log has 2 bad of"),  # the click log's are told first
    (text_of(["u1,104,7", "u2,,7", ",104,7", "u3,,7"]), {}, r"shown.csv has 3 bad of 4 rows(.|\n)*line 3: u2,,7"),
    (text_of(["u1,104,1600000000000"], "user,thing,ms"), {}, "--impressions: .*no column 'item': give --item_column"),
    (text_of([]), {}, "shown.csv holds no rows"),
    (text_of([*(f"u1,{item},1999999999000" for item in range(107, 102, -1)), "zz,100,1600000000000"]),
     dict(max_time="2100-01-01"), "none of its 6 rows shows an item.*It has users such as 'u1', 'u1', 'u1' and items "
                                  "such as '107', '106', '105'; the click log"),
    (of_two_headers, {}, "shown.csv: .*b.csv has the columns user, item, ms, rank, and .*a.csv user, item, ms: give"),
    (text_of(["u1,104,7"]), dict(timestamp_column=""), "needs a click log with time stamps"),
    (of_nobody, {}, "none of its 800 rows names a user: send `user_id`")])
def test_refusals_are_those_of_one_process(write, given, message, tmp_path, groups_of_users):
    write(tmp_path / "shown.csv")
    given = test_beam.parts_of_csv(tmp_path) | dict(impressions=str(tmp_path / "shown.csv")) | given
    told = {}
    for runner in ("local", "beam"):
        with pytest.raises(UserError, match=message) as caught:
            prepared(tmp_path, runner, given)
        told[runner] = (type(caught.value), str(caught.value))
        assert not [name for name in os.listdir(tmp_path) if name.startswith(runner)]
    assert told["beam"] == told["local"]


def test_missing_impressions_are_an_error():
    pytest.importorskip("apache_beam")
    from clrec_tf.preparation.beam_runner import exposures  # pylint: disable=import-outside-toplevel
    with pytest.raises(DataError, match="has written 3 of 5 impressions: run again"):
        exposures.joined(None, {"list days": [(1, 2), (2, 1), (1, 2)]}, 5)
