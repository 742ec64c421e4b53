"""Units of time stamps told from their values, against datetime; and times that none has."""
import datetime
import time

import numpy as np
import polars as pl
import pytest

from clrec_tf.config import PrepareConfig
from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.preparation import outliers
from clrec_tf.tabular_files import time_units
from tests import log_files
from tests.log_files import read
from tests.log_files import ROWS
from tests.log_files import text
from tests.log_files import written

SECONDS = [t for *_, t in ROWS]
UTC = datetime.timezone.utc
MOMENTS = [datetime.datetime.fromtimestamp(t, UTC) for t in SECONDS]


def log_of(folder, times):
    """The log with other time stamps."""
    rows = "".join(f"u{u},i{i},{when}\n" for (u, i, _), when in zip(ROWS, times))
    return written(folder, "l.csv", "user,item,time\n" + rows)


@pytest.mark.parametrize("unit, write, exact", [
    ("s", lambda t, m: t, 1), ("s", lambda t, m: f"{t}.25", 1), ("ms", lambda t, m: 1000 * t + 7, 1),
    ("us", lambda t, m: 10**6 * t, 1), ("ns", lambda t, m: 10**9 * t, 1),
    ("yyyymmdd", lambda t, m: m.strftime("%Y%m%d"), 86_400), ("yyyymmddhh", lambda t, m: m.strftime("%Y%m%d%H"), 3600),
    ("yyyymmddhhmm", lambda t, m: m.strftime("%Y%m%d%H%M"), 60),
    ("yyyymmddhhmmss", lambda t, m: m.strftime("%Y%m%d%H%M%S"), 1)])
@pytest.mark.parametrize("parquet", [False, True])
def test_units_are_told(tmp_path, unit, write, exact, parquet):
    path = log_of(tmp_path, [write(*pair) for pair in zip(SECONDS, MOMENTS)])
    if parquet:
        pl.read_csv(path).write_parquet(tmp_path / "l.parquet")
        path = tmp_path / "l.parquet"
    for given in ("auto", unit):
        assert read(path, timestamp_unit=given).clicks["timestamp"].to_list() == [t // exact * exact for t in SECONDS]


def test_digits_of_dates_are_local(tmp_path):
    path = log_of(tmp_path, [moment.strftime("%Y%m%d%H%M%S") for moment in MOMENTS])
    assert read(path, utc_offset=8.0).clicks["timestamp"].to_list() == [t - 8 * 3600 for t in SECONDS]


@pytest.mark.parametrize("form", [
    "%Y-%m-%dT%H:%M:%SZ", "%Y%m%dT%H%M%SZ", "%Y-%m-%d %H:%M:%S UTC", "%Y-%m-%dT%H:%M:%S+0000", "%Y-%m-%dT%H:%M:%S.000+00",
    "%Y-%m-%d %H:%M:%S +00:00", "%Y/%m/%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S.500Z", "%d/%m/%Y %H:%M:%S", "%m/%d/%Y %H:%M:%S",
    "%d.%m.%Y %H:%M:%S"])
def test_forms_of_date_times(tmp_path, form):
    assert read(log_of(tmp_path, [moment.strftime(form) for moment in MOMENTS])).clicks["timestamp"].to_list() == SECONDS


def test_days_and_months_that_cannot_be_told_apart(tmp_path):
    path = log_of(tmp_path, ["03/04/2023 10:11"] * 40)
    with pytest.raises(UserError, match="--timestamp_format='%d/%m/%Y %H:%M' or '%m/%d/%Y %H:%M'"):
        read(path)
    for form, month, day in (("%d/%m/%Y %H:%M", 4, 3), ("%m/%d/%Y %H:%M", 3, 4)):
        expected = datetime.datetime(2023, month, day, 10, 11, tzinfo=UTC).timestamp()
        assert read(path, timestamp_format=form).clicks["timestamp"][0] == expected
    with pytest.raises(UserError, match="--timestamp_format=.*no pattern of a date and time|every one"):
        read(path, timestamp_format="nonsense")


@pytest.mark.parametrize("scale, given, better", [
    (10**6, "ms", "us"), (10**6, "s", "us"), (1000, "s", "ms"), (1, "ms", "s"), (10**9, "us", "ns")])
def test_a_unit_that_is_evidently_another_is_refused_with_the_right_one(tmp_path, scale, given, better):
    """And never the one that was given."""
    with pytest.raises(DataError, match=f"--timestamp_unit={given} makes .*give --timestamp_unit={better}, or leave"
                       ) as caught:
        read(log_of(tmp_path, [scale * t for t in SECONDS]), timestamp_unit=given)
    assert f"give --timestamp_unit={given}" not in str(caught.value)


def test_two_units_in_one_column_are_refused(tmp_path):
    mixed = [t if number < 20 else 1000 * t for number, t in enumerate(SECONDS)]
    with pytest.raises(DataError, match=r"50% look like s \(1700000000\), 50% look like ms .*bring them into one"):
        read(log_of(tmp_path, mixed))


def test_times_after_tomorrow_are_bad_rows(tmp_path):
    late = SECONDS[:-1] + [int(time.time()) + 3 * 86_400]
    path = log_of(tmp_path, late)
    with pytest.raises(DataError, match=r"1 bad of 40 rows(.|\n)*line 41: .*after the latest allowed(.|\n)*--max_time"):
        read(path)
    assert read(path, max_bad_rows=1).bad_rows == 1
    assert read(path, max_time="2100-01-01").bad_rows == 0
    assert read(path, to_time="2023-11-15").bad_rows == 0  # which drops and counts it
    assert read(log_of(tmp_path, SECONDS), max_time="2023-11-14T22:14:30", max_bad_rows=39).bad_rows == 38
    assert read(log_of(tmp_path, [1000 * t for t in SECONDS]), max_time="2023-11-14T22:14:30", max_bad_rows=39).bad_rows == 38
    with pytest.raises(DataError, match="every one of the 40 rows"):
        read(log_of(tmp_path, [t + 10**10 for t in SECONDS]))


def test_numbers_that_are_no_times_stay_seconds(tmp_path, caplog):
    read(log_of(tmp_path, range(20_000_000, 20_000_040)))  # a counter, and no dates
    assert "it looks like no time" in caplog.text
    ticks = [638_000_000_000_000_000 + n for n in range(40)]  # of 100 ns since the year 1
    with pytest.raises(DataError, match="every one of the 40 rows"):
        read(log_of(tmp_path, ticks))


def test_a_few_times_before_1980_are_said(tmp_path, caplog):
    read(log_of(tmp_path, [86_400 * 5, *SECONDS[1:]]))
    assert "has 1 time stamps before 1980, such as 1970-01-06" in caplog.text


def test_plausible_shares_by_hand():
    clock = time_units.Clock(0, 1_800_000_000, 1_800_000_000)
    shares = time_units.plausible(time_units.tally(pl.Series([0, -1, 1_700_000_000, 1_700_000_000_000, 5, None]), clock))
    assert shares == {"s": pytest.approx(1 / 3), "ms": pytest.approx(1 / 3)}
    assert PrepareConfig.__dataclass_fields__["timestamp_unit"].metadata["choices"] == time_units.UNITS


def test_an_outlier_that_empties_a_part_is_named(tmp_path, caplog, capsys):
    path = log_of(tmp_path, [t + 86_400 * (number % 8) for number, t in enumerate(SECONDS)])
    log_files.prepared(path, split="last_days")
    assert "last_days" not in caplog.text
    with open(path, "a", encoding="utf-8") as file:
        file.write("u0,i0,2023-12-31\n".replace("2023-12-31", str(SECONDS[0] + 47 * 86_400)))
    log_files.prepared(path, split="last_days")
    assert ("no click lies in the 1 validation days; 1 of 41 clicks, the latest of 2023-12-31T22:13:20+00:00, lie 40 "
            "days behind the others: if they are mistakes, drop them with --to=2023-11-22") in caplog.text
    caplog.clear()
    log_files.prepared(path, split="last_days", to_time="2023-11-22")  # the advice
    assert not caplog.text and "dropped_by_time: 1\n" in capsys.readouterr().out


def test_a_gap_by_hand():
    settings = PrepareConfig(split="last_days", test_days=2, valid_days=1)
    day = lambda *days: (86_400 * np.array(days), np.ones(len(days), int))
    assert outliers.after_a_gap(*day(0, 1, 2, 3, 5), settings) == ""
    assert "1 of 4 clicks" in outliers.after_a_gap(*day(0, 1, 2, 6), settings)
    assert "--to=1970-01-04" in outliers.after_a_gap(*day(0, 1, 2, 6), settings)


def test_no_times_by_an_empty_flag(tmp_path):
    assert read(written(tmp_path, "l.csv", text()), timestamp_column="").clicks.columns == ["user", "item"]
    taobao = written(tmp_path, "t.csv", "1,2,3,pv,1700000000\n")
    assert "timestamp" not in read(taobao, format="taobao", timestamp_column="", user_column="user_id",
                                   item_column="item_id").clicks.columns
