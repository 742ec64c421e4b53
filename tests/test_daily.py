"""python -m clrec_tf.daily: one day after the other, gates, refusals, kills, and the history of it."""
import errno
import json
import math
import os
import pathlib
import signal
import subprocess
import sys
import time
import warnings

from matplotlib.axes import Axes
from matplotlib.figure import Figure
import numpy as np
import pytest
import tensorflow as tf

from clrec_tf.config import Config
from clrec_tf.data.catalogue import read_catalogue
from clrec_tf.data import schema as schema_lib
from clrec_tf.days import comparison
from clrec_tf.days import data_checks
from clrec_tf.days import data_report
from clrec_tf.days import gate
from clrec_tf.days import history
from clrec_tf.days import history_figure
from clrec_tf.days import one_daily
from clrec_tf.days.day import run_day
from clrec_tf.errors import BusyError
from clrec_tf.errors import DataError
from clrec_tf.errors import DiskFullError
from clrec_tf.errors import UserError
from clrec_tf.retrieval.bundle import load_bundle
from clrec_tf.training.checkpoints import find_checkpoint
from tests import forked
from tests.test_warm_start import day_log

SMALL = dict(feature_columns=("category",), multi_feature_columns=("tags",), max_history=6, embedding_dim=8,
             queue_size=128, batch_size=64, attention_heads=2, min_train_length=2, ks=("10",),
             gate=("hr@10/full:-0.9", "aggregate_diversity@5/full/popularity=1:-0.9"))


def day_config(days_dir, number: int, text: str = "", **settings) -> Config:
    """Settings of a day, whose log is written beside the days."""
    log = pathlib.Path(days_dir).parent / f"log{number}.csv"
    log.write_text(text or day_log(number, range(1 + 4 * number, 31 + 4 * number), users=60))
    return Config.of(**SMALL, days_dir=str(days_dir), day=f"day{number}", input=str(log)).but(**settings)


def versions(days_dir) -> list[int]:
    return sorted(int(name) for name in os.listdir(days_dir / "export") if name.isdigit())


def original_ids(folder) -> list:
    schema = schema_lib.load_schema(str(folder))
    return list(read_catalogue(str(folder), schema, schema_lib.load_manifest(str(folder))).original_ids)


def assert_findable_by_hand(entry: dict, days) -> None:
    """What the log of day 1 says of last clicks, which are the test: on items of its own training part or of day 0's,
    and on those of day 0's alone."""
    last, train = {}, set()
    for line in (days.parent / "log1.csv").read_text().splitlines()[1:]:
        user, item, *_ = line.split(",")
        last.setdefault(user, []).append(item)
    for items in last.values():
        train.update(items[:-2])
    before = set(map(str, original_ids(days / "day0" / "data")))
    shares = [np.mean([items[-1] in known for items in last.values()]) for known in (before | train, before)]
    assert [entry["findable"], entry["findable_yesterday"]] == [round(share, 4) for share in shares]
    assert shares[0] > shares[1] > 0.5


def assert_whole_png(path) -> None:
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n" and data[-8:-4] == b"IEND"


def test_days_follow_each_other(tmp_path, capsys):
    days = tmp_path / "days"
    for number in range(2):
        assert run_day(day_config(days, number)) == 0
    first, second = (original_ids(days / f"day{number}" / "data") for number in range(2))
    assert second[:len(first)] == first and len(second) > len(first)
    entries = history.read(str(days))
    assert [(each["day"], each["status"], each["version"], each["yesterday"]) for each in entries] == [
        ("day0", "published", 1, None), ("day1", "published", 2, "day0")]
    assert "hr@10/full: yesterday's model" in entries[1]["gate"][0] and 0 < entries[1]["data"]["drift"] < 1
    assert "hr@10/full" in entries[1]["metrics"] and entries[1]["data"]["users"] == [60, 60]
    assert list(entries[1]["stages"]) == ["compare", "evaluate", "export", "prepare", "train"]
    assert all(seconds >= 0 for seconds in entries[1]["stages"].values())
    assert entries[1]["seconds"] == pytest.approx(sum(entries[1]["stages"].values()), abs=0.06)
    assert_findable_by_hand(entries[1], days)
    named = [(each["metric"], each["demanded"], each["passed"]) for each in entries[1]["compared"]]
    assert named == [("hr@10/full", -0.9, True), ("aggregate_diversity@5/full/popularity=1", -0.9, True)]
    assert entries[1]["compared"][0]["now"] == pytest.approx(entries[1]["metrics"]["hr@10/full"])
    assert_whole_png(days / "history.png")
    run = json.loads((days / "day1" / "run" / "config.json").read_text())
    assert run["train"]["init_from"] == str(days / "day0" / "run")
    with pytest.raises(UserError, match="day day1: .*was prepared with .*remove .*day1 to begin the day anew"):
        run_day(day_config(days, 1, from_time="20200101"))
    with pytest.raises(UserError, match=r"day day9: .*another model: --embedding_dim=16 \(there 8\).*settings of day day1"):
        run_day(day_config(days, 9, text=day_log(2, range(9, 39), users=60), embedding_dim=16))
    with pytest.raises(DataError, match=r"day day8: .* ends at 2020-09-12.*before --vocabulary_from"):
        run_day(day_config(days, 8, text=day_log(0, range(1, 31), users=60).replace(",16000", ",15999")))
    assert len(history.read(str(days))) == 2
    capsys.readouterr()
    assert run_day(day_config(days, 1)) == 0  # again: nothing is done
    assert versions(days) == [1, 2] and "day1  published  2" in capsys.readouterr().out
    elsewhere = str(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="day1 was published as version 2, but the newest of --export_dir=.*elsewhere is none"):
        run_day(day_config(days, 1, export_dir=elsewhere))

    # A worse model is refused, and the day after goes on from the last that was published.
    with pytest.raises(gate.GateError, match=r"day2 is not published: hr@10/full: .*REFUSED.*of day day1 stays") as refused:
        run_day(day_config(days, 2, gate=("hr@10/full:5", "ndcg@10/full:-1")))
    assert refused.value.exit_code == 3 and versions(days) == [1, 2]
    entry = history.read(str(days))[2]
    assert entry["status"] == "refused" and "REFUSED" in entry["reason"] and "passed" in entry["gate"][1]
    assert run_day(day_config(days, 3)) == 0
    assert history.read(str(days))[3]["yesterday"] == "day1"
    # A newer day is served: what was refused before it would take its place.
    with pytest.raises(UserError, match="--day=day2: day day3 came after it and is published"):
        run_day(day_config(days, 2))
    assert [each["status"] for each in history.read(str(days))] == ["published", "published", "refused", "published"]
    assert versions(days) == [1, 2, 3]


def test_data_that_do_not_fit_stop_the_day_before_training(tmp_path):
    days = tmp_path / "days"
    assert run_day(day_config(days, 0)) == 0
    with pytest.raises(gate.GateError, match=r"total variation of 0\.\d+ .*max_drift=0.05.*model of day0 stays"):
        run_day(day_config(days, 1, max_drift=0.05))
    assert history.read(str(days))[1]["status"] == "stopped" and not (days / "day1" / "run").exists()
    with pytest.raises(gate.GateError, match="day2 lacks the features tags .*name them in --feature_columns or"):
        run_day(day_config(days, 2, multi_feature_columns=()))
    for number, ending in ((3, ""), (7, "\n")):  # also in another file, as of a log that was packed anew
        with pytest.raises(DataError, match="is the log of day day0"):
            run_day(day_config(days, number, text=(tmp_path / "log0.csv").read_text() + ending))
    with pytest.raises(DataError, match="day day5: .*no time stamps, day day0 had them: give the column of day day0"):
        run_day(day_config(days, 5, timestamp_column=""))
    with pytest.raises(DataError, match="day day6: .*item ids of type string, day day0 of type int: --id_type=int says"):
        run_day(day_config(days, 6, text=(tmp_path / "log2.csv").read_text() + "7,a,1600200000,c0,t1\n"))
    with pytest.raises(DataError, match="no click remains|holds no|is empty"):
        run_day(day_config(days, 4, text="user_id,item_id,timestamp,category,tags\n"))
    assert versions(days) == [1] and [each["day"] for each in history.read(str(days))] == ["day0", "day1", "day2"]


def flags_of(days, config: Config, **settings) -> list[str]:
    """The flags of `day_config`."""
    return [f"--{name}={','.join(map(str, value)) if isinstance(value, tuple) else value}" for name, value in
            {**SMALL, "days_dir": days, "day": config.days.day, "input": config.prepare.input, **settings}.items()]


@pytest.mark.slow
def test_a_day_killed_in_any_stage_is_finished_by_the_same_command(tmp_path):
    days = tmp_path / "days"
    assert run_day(day_config(days, 0)) == 0
    config = day_config(days, 1)
    command = [sys.executable, "-m", "clrec_tf.daily", *flags_of(days, config, epochs=40, checkpoint_every_steps=5)]
    for mark in ("day day1: prepare", "training from step", "day day1: compare", "Assets written"):
        with forked.Popen(command, start_new_session=True, stderr=subprocess.PIPE, text=True) as process:
            assert any(mark in line for line in process.stderr), mark
            end = time.monotonic() + 120
            while mark.startswith("training") and not list((days / "day1" / "run").glob("checkpoints/*.index")):
                assert process.poll() is None and time.monotonic() < end
                time.sleep(0.01)
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        assert [each["day"] for each in history.read(str(days))] == ["day0"] and versions(days) == [1]
        load_bundle(str(days / "export" / "1"))
    done = forked.run(command, timeout=300, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [each["status"] for each in history.read(str(days))] == ["published"] * 2 and versions(days) == [1, 2]
    assert "day1  published  2" in done.stdout
    assert not [name for _, folders, files in os.walk(days) for name in [*folders, *files]
                if "incomplete" in name or name.endswith(".lock") or name.startswith(".")]


def test_towers_are_traced_once_a_model(tmp_path):
    """TensorFlow's own warning of needless tracing, which nothing filters out, does not come in a whole day."""
    days = tmp_path / "days"
    assert run_day(day_config(days, 0)) == 0
    done = forked.run([sys.executable, "-m", "clrec_tf.daily", *flags_of(days, day_config(days, 1))], timeout=300,
                      capture_output=True, text=True)
    assert done.returncode == 0 and "day day1: compare" in done.stderr and "retracing" not in done.stderr


@pytest.mark.parametrize("settings, said", [
    (dict(gate=("hr@10:-0.1",)), "--gate=hr@10:-0.1: 'hr@10:-0.1' must be METRIC:CHANGE"),
    (dict(gate=("hr@10/full:nan",)), "--gate=hr@10/full:nan: 'hr@10/full:nan' must be METRIC:CHANGE"),
    (dict(gate=("hr@10/full",)), "must be METRIC:CHANGE"), (dict(gate=("hr@10/full:little",)), "must be METRIC:CHANGE"),
    (dict(vocabulary_from="V"), "--vocabulary_from=V: daily takes the last published day"),
    (dict(dry_run=True), "--dry_run: daily trains on what it prepares"),
    (dict(init_from="R"), "--init_from=R: daily takes"), (dict(day="history.png"), "--day=history.png must be"),
    (dict(day="../up"), "--day=../up must be a name"), (dict(day="export"), "--day=export must be a name"),
    (dict(days_dir=""), "--days_dir is not set"),
    (dict(eval_checkpoint="latest"), "--eval_checkpoint=latest and --export_checkpoint=best: .* both must be best"),
    (dict(export_checkpoint="latest"), "daily publishes what --gate has judged"),
    (dict(eval_checkpoint="a", export_checkpoint="a"), "--eval_checkpoint=a and --export_checkpoint=a")])
def test_bad_settings_are_told_before_any_work(tmp_path, settings, said):
    with pytest.raises(UserError, match=said.replace("(", r"\(")):
        run_day(day_config(tmp_path / "days", 0).but(**settings))


def test_judgements():
    demand = gate.demands_of(("hr@50/full/popularity=0.5:-.01",))[0]
    assert (demand.kind, demand.k, demand.popularity, demand.change) == ("hr", 50, 0.5, -0.01)
    judged = lambda before, now: gate.Judgement(demand, before, now)
    assert judged(0.5, 0.495).passed and not judged(0.5, 0.4949).passed
    assert "0 beside 0 says nothing" in judged(0.0, 0.0).text()
    assert not judged(0.0, 0.0).passed and judged(0.0, 0.1).passed and not judged(0.1, 0.0).passed


def test_the_published_checkpoint_is_compared_and_few_users_pass_nothing(tmp_path):
    """Yesterday's best checkpoint is not its latest."""
    days = tmp_path / "days"
    settings = dict(epochs=4, validate_every=1.0, learning_rate=.5)  # too high, so that the first epoch is the best
    assert run_day(day_config(days, 0, **settings)) == 0
    run = days / "day0" / "run"
    best, latest = (find_checkpoint(str(run), which) for which in ("best", "latest"))
    with pytest.raises(gate.GateError, match="60 users of the test part compare the models, --gate_users=61 are asked"):
        run_day(day_config(days, 1, gate_users=61, **settings))
    assert versions(days) == [1] and history.read(str(days))[-1]["status"] == "refused"
    before = tf.train.load_checkpoint(find_checkpoint(str(days / "day1" / "yesterday"), "latest"))
    table = "model/user_encoder/attention/layer_with_weights-0/kernel/.ATTRIBUTES/VARIABLE_VALUE"
    was_best, was_latest = (tf.train.load_checkpoint(prefix).get_tensor(table) for prefix in (best, latest))
    np.testing.assert_array_equal(before.get_tensor(table), was_best)
    assert np.abs(was_best - was_latest).max() > 0
    assert run_day(day_config(days, 1, gate_users=60, **settings)) == 0 and versions(days) == [1, 2]


def test_the_flags_that_name_lost_features():
    assert data_checks.flags_of(["c:flag", "tags", "c:hour", "u:age"]) == (
        "--context_columns, --feature_columns or --multi_feature_columns, --user_features with --user_feature_columns")


def test_relative_interval_is_paired():
    """The same users in both: where each gains a tenth, every resample does."""
    before = np.random.default_rng(0).random(300)
    low, high = comparison.relative_interval(before, 1.1 * before, 0)
    assert low == pytest.approx(0.1) and high == pytest.approx(0.1)
    low, high = comparison.relative_interval(before, before[::-1], 0)
    assert low < 0 < high


def test_an_interval_without_end_is_json():
    """One user of yesterday's was hit: in a third of the draws none, and the change is infinite."""
    before, now = np.eye(30)[0], np.repeat([1.0, 0.0], [10, 20])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        low, high = comparison.relative_interval(before, now, 0)
    assert 0 < low < 9 and high == math.inf
    judgement = gate.Judgement(gate.demands_of(("hr@5/full:0",))[0], 1 / 30, 1 / 3, low, high)
    assert judgement.numbers()["high"] is None and judgement.numbers()["low"] == low and "+inf" in judgement.text()
    json.dumps(judgement.numbers(), allow_nan=False)


def test_drift_by_hand():
    assert data_report.drift(dict(a=1, b=1), dict(a=2, c=2)) == pytest.approx(0.5)
    assert data_report.drift(dict(a=3), dict(a=1)) == 0.0 and data_report.drift(dict(a=3), dict(b=1)) == 1.0


def test_only_one_daily_at_a_time(tmp_path):
    days = tmp_path / "days"
    with one_daily.alone(str(days)):
        with pytest.raises(BusyError, match=r"--days_dir=.* in use by another daily, process \d+ .*daily.lock.*wait"):
            run_day(day_config(days, 0))
    assert not list(days.iterdir())  # neither a day nor a lock is left


def test_a_day_without_its_yesterday_is_told(tmp_path):
    """Old folders may be deleted, but for that of the last published day."""
    days = tmp_path / "days"
    history_of(days, dict(day="day0", status="published"))
    with pytest.raises(UserError, match="day0/data of day day0, the last published one, is gone.*restore the folder"):
        run_day(day_config(days, 1))


def history_of(days, *entries) -> None:
    days.mkdir()
    for entry in entries:
        history.record(str(days), entry)


OLD = dict(day="2026-01-01", status="published", version=1, clicks=10, metrics={"hr@50/full": 0.2}, yesterday=None,
           began=1, seconds=30, data=dict(new_items=0.1, drift=0.2), gate=["hr@50/full: yesterday's model 0.1"])


def compared(before: float, now: float, **others) -> list[dict]:
    return [dict(metric="hr@50/full", before=before, now=now, low=-0.1, high=0.2, demanded=-0.01, passed=True) | others]


def test_the_table_has_what_one_judges_a_day_by(tmp_path):
    """Beside entries of an older version, which had fewer figures."""
    history_of(tmp_path / "days", OLD, dict(OLD, day="2026-01-02", compared=compared(0.25, 0.3), findable=0.912),
               dict(day="2026-01-03", status="stopped", reason="too far"))
    head, *lines = history.table(history.read(str(tmp_path / "days"))).splitlines()
    assert head.split() == "day status version training clicks new items drift findable hr@50/full seconds why".split()
    assert lines[0].split() == "2026-01-01 published 1 10 0.100 0.200 0.2 30".split()
    assert lines[1].split() == "2026-01-02 published 1 10 0.100 0.200 0.912 0.25 → 0.3 30".split()
    assert lines[2].split() == "2026-01-03 stopped too far".split()


def test_the_picture_shows_both_models_and_marks_days(tmp_path, monkeypatch):
    days = [OLD, dict(OLD, day="2026-01-02", compared=compared(0.25, 0.3), findable=0.9, findable_yesterday=0.8),
            dict(OLD, day="2026-01-03", status="refused", compared=compared(0.3, 0.1, low=None, high=None)),
            dict(day="2026-01-04", status="stopped", reason="too far"), dict(OLD, day="2026-01-05")]
    drawn, bars, bands = [], [], []
    plot, vlines, axvspan = Axes.plot, Axes.vlines, Axes.axvspan
    monkeypatch.setattr(Axes, "plot", lambda axes, xs, ys, *style, label, **words: (
        drawn.append((label, xs, ys)), plot(axes, xs, ys, *style, label=label, **words))[1])
    monkeypatch.setattr(Axes, "vlines", lambda axes, *values, **words: (
        bars.append(values), vlines(axes, *values, **words))[1])
    monkeypatch.setattr(Axes, "axvspan", lambda axes, *values, **words: (
        bands.append(values), axvspan(axes, *values, **words))[1])
    assert_whole_png(pathlib.Path(history_figure.draw_history(str(tmp_path), days)))
    assert drawn[:3] == [("yesterday's model", (1, 2), (0.25, 0.3)), ("today's model", (0, 1, 4), (0.2, 0.3, 0.2)),
                         ("refused", (2,), (0.1,))]
    assert drawn[3:5] == [("with today's items", (1,), (0.9,)), ("with yesterday's", (1,), (0.8,))]
    assert bars == [((1,), pytest.approx((0.25 * 0.9,)), pytest.approx((0.25 * 1.2,)))]
    assert bands == [(2.5, 3.5)] * 2  # in both panels
    assert_whole_png(pathlib.Path(history_figure.draw_history(str(tmp_path), [])))  # nothing yet


def test_a_picture_that_cannot_be_written_leaves_the_old_one_and_the_day(tmp_path, monkeypatch, caplog):
    """Killed or out of space while it draws: what stood there stays, and nothing half stands beside it."""
    days = tmp_path / "days"
    history_of(days, OLD)
    history_figure.draw_history(str(days), [OLD])
    before = (days / "history.png").read_bytes()
    savefig = Figure.savefig

    def full(figure, name, **settings):
        savefig(figure, name, **settings)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Figure, "savefig", full)
    with pytest.raises(DiskFullError, match=r"--days_dir=.*history.png cannot be written .*free space"):
        history_figure.draw_history(str(days), [OLD, dict(OLD, day="2026-01-02")])
    assert (days / "history.png").read_bytes() == before and len(list(days.iterdir())) == 2


def test_a_damaged_history_is_told(tmp_path):
    (tmp_path / "history.jsonl").write_bytes(b'{"day": "a", "status": "published"}\n{"day": "\xff"}\n')
    with pytest.raises(DataError, match="history.jsonl, line 2 is no entry of a day .*correct or remove"):
        history.read(str(tmp_path))
    (tmp_path / "history.jsonl").write_text('{"day": "a", "status": "published"}\n{"day"\n')
    with pytest.raises(DataError, match="history.jsonl, line 2"):
        history.read(str(tmp_path))
