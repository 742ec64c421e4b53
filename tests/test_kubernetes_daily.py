"""The CronJob's command as pods: two days, those that the Jobs' names say, are published; one is refused."""
import datetime
import json

import pytest

from tests import kubernetes_manifests as manifests
from tests import pods
from tests.test_warm_start import day_log

pytestmark = [pytest.mark.cluster, pytest.mark.long]

FIRST = datetime.date(2020, 9, 13)  # of the logs, which begin at 1,600,000,000 s
# What a person puts into daily.flags: the log's columns, and a small model.
FLAGS = """
--user_column=user_id
--item_column=item_id
--timestamp_column=timestamp
--feature_columns=category
--max_history=6
--embedding_dim=8
--queue_size=128
--batch_size=64
--attention_heads=2
--ks=10
--recall_k=5
--threads=1
--gate=hr@10/full:-0.99
"""


def run_day(node: pods.Node, cron: dict, name: str) -> pods.Pod:
    """The pod of a Job that the CronJob's controller would make, to its end."""
    pod = node.start(f"{name}-x", cron["spec"]["jobTemplate"]["spec"]["template"],
                     labels={"batch.kubernetes.io/job-name": name})
    pod.ended(300)
    return pod


def test_two_nights_publish_two_days_and_a_third_is_refused(tmp_path):
    if reason := pods.unavailable():
        pytest.skip(reason)
    objects, claims = manifests.built("daily"), {}
    flags, = manifests.of_kind(objects, "ConfigMap")
    flags["data"]["daily.flags"] += FLAGS
    for name in ("clrec-data", "clrec-export"):
        claims[name] = tmp_path / name
        claims[name].mkdir()
    (tmp_path / "clrec-data" / "clicks").mkdir()
    days = [FIRST + datetime.timedelta(days=number) for number in range(3)]
    for number, day in enumerate(days):
        items = range(1 + 4 * number, 31 + 4 * number) if number < 2 else range(31, 35)  # the third: four items only
        text = day_log(number, items, users=60)
        (tmp_path / "clrec-data" / "clicks" / f"{day}.csv").write_text(text, encoding="utf-8")
    cron, = manifests.of_kind(objects, "CronJob")
    nights = [datetime.datetime.combine(day + datetime.timedelta(days=1), datetime.time(3), datetime.timezone.utc)
              for day in days]
    names = [f"clrec-daily-{int(night.timestamp()) // 60}" for night in nights]
    with pods.Node(tmp_path, objects, claims) as node:
        for name, day in zip(names, days[:2]):
            pod = run_day(node, cron, name)
            assert pod.process.returncode == 0, pod.log[-3000:]
            assert f"--day={day}" in pod.log and f"--to={day + datetime.timedelta(days=1)}" in pod.log
        again = run_day(node, cron, names[1])  # tried again after it was done, whatever the clock says
        assert again.process.returncode == 0 and f"day {days[1]} is published already" in again.log
        refused = run_day(node, cron, names[2])
        rule = cron["spec"]["jobTemplate"]["spec"]["podFailurePolicy"]["rules"][0]
        assert refused.process.returncode == 3 and 3 in rule["onExitCodes"]["values"], refused.log[-3000:]
        late = run_day(node, cron, "clrec-daily-tonight")
        assert late.process.returncode == 2 and "says no day" in late.log
    lines = (tmp_path / "clrec-data" / "days" / "history.jsonl").read_text(encoding="utf-8").splitlines()
    found = [(row["day"], row["status"], row.get("version")) for row in map(json.loads, lines)]
    assert found == [(str(days[0]), "published", 1), (str(days[1]), "published", 2), (str(days[2]), "stopped", None)]
    assert sorted(path.name for path in (tmp_path / "clrec-export").iterdir() if path.name.isdigit()) == ["1", "2"]
