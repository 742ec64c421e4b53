"""prepare on the real data sets, against the sizes that their sources state."""
import collections
import gzip
import json

import pytest

from clrec_tf.config import Config
from clrec_tf.config import PrepareConfig
from clrec_tf.errors import DataError
from clrec_tf import prepare
from tests import prepared_data
from tests.test_prepare import call
from tests.test_prepare import DAY


@pytest.mark.parametrize("name, given_settings, users, items, clicks", [
    ("ml-1m/ml-1m.txt.gz", dict(format="sequence", item_features="ml-1m/ml-1m_items.tsv",
                                multi_feature_columns=("genres",)), 6040, 3416, 999_611),
    ("beauty/beauty.txt.gz", dict(format="sequence"), 40_226, 54_542, 353_962),
    ("ml-100k", dict(format="recbole"), 943, 1682, 100_000),
    ("amazon-beauty-5core/Beauty.txt.gz", dict(
        format="sequence_per_user", item_features="amazon-beauty-5core/Beauty_item2attributes.json.gz"),
     22_363, 12_101, 198_502),
    ("taobao-sample/UserBehavior.csv.gz", dict(format="taobao", max_bad_rows=1), 815, 55_368, 84_475)])
def test_sizes_of_real_data(shared_data, capsys, name, given_settings, users, items, clicks):
    given_settings = dict(given_settings, input=str(shared_data / name), dry_run=True)
    if "item_features" in given_settings:
        given_settings["item_features"] = str(shared_data / given_settings["item_features"])
    schema = prepare.prepare(Config(prepare=PrepareConfig(**given_settings)))
    out = capsys.readouterr().out
    assert schema.num_users == users and f"\nitems: {items:,}\n" in out and f"\nclicks: {clicks:,}\n" in out


def test_taobao_days(shared_data, tmp_path, capsys):
    path = str(shared_data / "taobao-sample/UserBehavior.csv.gz")
    given_settings = dict(input=path, format="taobao", split="last_days", utc_offset=8.0, from_time="2017-11-25",
                          to_time="2017-12-04")
    with pytest.raises(DataError, match="line 84476: 100370,1968385,1875258,pv .missing or unreadable time stamp"):
        call(tmp_path, "", **given_settings)
    call(tmp_path, "", max_bad_rows=1, **given_settings)
    report = json.loads((tmp_path / "data" / "report.json").read_text())
    assert (report["clicks"], report["dropped_by_time"]) == (84_440, 35)
    assert report["last_click"].startswith("2017-12-03T")
    # Counted from the text itself: clicks of 3 December in UTC+8 are the targets, of users who were there before.
    begin, last = 1511539200, 1511539200 + 8 * DAY
    with gzip.open(path, "rt") as file:
        rows = [line.strip().split(",") for line in file]
    times = collections.defaultdict(list)
    for row in rows:
        if len(row) == 5 and begin <= int(row[4]) < last + DAY:
            times[row[0]].append(int(row[4]))
    targets = [sum(second >= last for second in seconds) for seconds in times.values()]
    records = prepared_data.read_split(str(tmp_path / "data"), "test")
    assert len(records) + report["test"]["users_without_known_history"] == sum(count > 0 for count in targets)
    for record in records:
        count = record["target_count"][0]
        assert count == targets[record["user_id"][0]]
        assert max(record["timestamp"][:-count]) < last <= min(record["timestamp"][-count:])
