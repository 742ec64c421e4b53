"""Time stamps of logs in every form, those that are evidently none, and the bounds --from and --to."""
import pytest

from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.tabular_files import times
from tests.test_logs import COLUMNS
from tests.test_logs import read
from tests.test_logs import written


@pytest.mark.parametrize("text, seconds", [
    ("1577836800", 1577836800), ("1577836800.9", 1577836800), ("1.5778368e9", 1577836800),
    ("2020-01-01", 1577836800 - 7200), ("2020-01-01 00:00", 1577836800 - 7200),
    ("2020-01-01T00:00:00.5", 1577836800 - 7200), ("2020-01-01T00:00:00Z", 1577836800),
    ("2020-01-01T03:00:00+03:00", 1577836800)])
def test_time_stamps(tmp_path, text, seconds):
    log = read(written(tmp_path, "l.csv", f"who,what,when\n1,2,{text}\n"), **COLUMNS, utc_offset=2.0)
    assert log.clicks["timestamp"].to_list() == [seconds]


def test_milliseconds_are_divided_and_recognised(tmp_path):
    path = written(tmp_path, "l.csv", "who,what,when\n1,2,1577836800999\n")
    for unit in ("ms", "auto"):
        assert read(path, **COLUMNS, timestamp_unit=unit).clicks["timestamp"].to_list() == [1577836800]
    with pytest.raises(DataError, match="--timestamp_unit=s makes 1577836800999 .*give --timestamp_unit=ms"):
        read(path, **COLUMNS, timestamp_unit="s")


@pytest.mark.parametrize("times_given, words", [
    (["6", "0", "12"], ["the latest time stamp", "is 12, as seconds since 1970 1970-01-01T00:00:12"]),
    (["-6", "1577836800", "-2"], ["2 negative time stamps, such as -6, which count as unknown"]),
    (["-6", "2", "3"], ["the latest time stamp", "1 negative time stamps"]),
    (["1970-01-02", "1979-12-31", "1975-05-05"], ["1979-12-31"]),
    (["0", "0", "0"], []), (["5", "315532800", "7"], [])])
def test_time_stamps_that_are_none_are_warned_of(tmp_path, caplog, times_given, words):
    path = written(tmp_path, "l.csv", "who,what,when\n" + "".join(f"1,2,{when}\n" for when in times_given))
    with caplog.at_level("WARNING"):
        read(path, **COLUMNS)
    for word in words:
        assert word in caplog.text
    assert caplog.text.count("check --timestamp_column and --timestamp_unit") == (
        len({"latest", "negative"} & set(caplog.text.split())))
    assert bool(words) == bool(caplog.records)


def test_seconds_taken_for_milliseconds_are_refused(tmp_path):
    path = written(tmp_path, "l.csv", "who,what,when\n1,2,1577836800\n")
    with pytest.raises(DataError, match="makes 1577836800 the time 1970-01-19.*as s it would be 2020-01-01.*"
                       "give --timestamp_unit=s, or leave"):
        read(path, **COLUMNS, timestamp_unit="ms")


@pytest.mark.parametrize("when, others", [("-90000000000", "1577836800"),
    ("0001-01-01T00:00:00", "2020-01-01T00:00:00")])
def test_a_time_before_the_year_5_is_a_bad_row(tmp_path, when, others):
    """Zeros of .NET's date-times among them."""
    path = written(tmp_path, "l.csv", f"who,what,when\n1,2,{when}\n1,3,{others}\n1,4,{others}\n")
    with pytest.raises(DataError, match="line 2: .*time stamp before the year 5(.|\n)*check --timestamp_column"):
        read(path, **COLUMNS)
    assert read(path, **COLUMNS, max_bad_rows=1).clicks["timestamp"].to_list() == [1577836800] * 2


@pytest.mark.parametrize("when, noted", [("2020-01-01", True), ("1577836800000", False)])
def test_a_unit_without_effect_is_said(tmp_path, caplog, when, noted):
    with caplog.at_level("INFO", "absl"):
        log = read(written(tmp_path, "l.csv", f"who,what,when\n1,2,{when}\n"), **COLUMNS, timestamp_unit="ms")
    assert log.clicks["timestamp"].to_list() == [1577836800]
    assert ("--timestamp_unit=ms has no effect" in caplog.text) == noted


def test_bounds_of_time():
    assert times.parse_bound("from", "", 0.0) is None
    assert times.parse_bound("from", "1577836800", 8.0) == 1577836800
    assert times.parse_bound("from", "2020-01-01", 8.0) == 1577836800 - 8 * 3600
    assert times.parse_bound("to", "2020-01-01T00:00:00+00:00", 8.0) == 1577836800
    with pytest.raises(UserError, match="--to=yesterday"):
        times.parse_bound("to", "yesterday", 0.0)
