"""Metrics of a cluster: each role is scraped at a port of its own, and a worker that is killed shows at the chief."""
import signal

import pytest

from tests.local_cluster import LocalCluster
from tests.local_cluster import wait_for
from tests import promql
from tests import scraped
from tests import small_run

pytestmark = pytest.mark.cluster

SMALL = dict(user_encoder="mean", time_embedding="none", use_features=False, queue="raw", parallel_ops=4)
ROLES = [("chief", 0), ("worker", 0), ("worker", 1), ("ps", 0), ("evaluator", 0)]


def series(chief, name, **labels):
    """A value at the chief; 0 where there is none yet."""
    try:
        return scraped.scrape(chief).get_value(name, **labels)
    except (ValueError, OSError):
        return 0


def test_each_role_is_scraped_and_a_killed_worker_shows(tmp_path):
    data_dir, workdir, ports = small_run.prepared(tmp_path), tmp_path / "run", scraped.free_ports(len(ROLES))
    with LocalCluster(tmp_path / "logs", dict(
            data_dir=data_dir, workdir=workdir, epochs=10_000, metrics_port=ports, checkpoint_every_steps=200,
            log_every_steps=20, validate_every=1.0, validation_by="evaluator", run_id="shop", **SMALL),
            servers=1) as cluster:
        cluster.start_servers()
        cluster.start("evaluator")
        cluster.start("chief")
        cluster.wait_for_step(workdir, 100)
        chief, answers = ports, {}
        for number, (role, index) in enumerate(ROLES):
            answers[role, index] = scraped.scrape(ports + number)
            info = next(dict(pairs) for name, pairs in answers[role, index] if name == "clrec_train_process_info")
            assert (info["role"], info["index"], info["run_id"]) == (role, str(index), "shop")
            assert answers[role, index].get_value("process_resident_memory_bytes") > 1e8
        for number in (2, 3):  # a worker and the parameter server, which look from time to time
            scraped.scraped_when(ports + number, lambda found: found.get_value("clrec_train_chief_up"))
        for worker in "01":  # both train, and each waits for less than it works
            assert wait_for(lambda: series(chief, "clrec_train_steps_total", worker=worker), f"a step of {worker}")
            assert 0 < series(chief, "clrec_train_input_wait_seconds_total", worker=worker) < series(
                chief, "clrec_train_call_seconds_total", worker=worker)
        scored = scraped.scraped_when(ports + 4, lambda found: found.get_value("clrec_train_validation_seconds_count"))
        assert scored.get_value("clrec_train_validation_step") % 200 == 0

        assert series(chief, "clrec_train_role_up", role="worker", index="1") == 1
        cluster.kill("worker", 1)
        gone = scraped.scraped_when(chief, lambda found: not found.get_value(
            "clrec_train_role_up", role="worker", index="1"))
        assert gone.get_value("clrec_train_role_up", role="worker", index="0") == 1
        step = gone.get_value("clrec_train_step")
        scraped.scraped_when(chief, lambda found: found.get_value("clrec_train_step") > step)  # the other goes on
        cluster.start("worker", 1)
        back = scraped.scraped_when(chief, lambda found: found.get_value(
            "clrec_train_role_up", role="worker", index="1"))
        assert [back.get_value("clrec_train_role_restarts_total", role=role, index=index)
                for role, index in (("worker", "0"), ("worker", "1"), ("ps", "0"))] == [0, 1, 0]
        served = {name: labels for answer in (*answers.values(), scored, back)
                  for name, labels in answer.labels().items()}
        expressions = promql.dashboard("Training") + promql.alerts("clrec-training")
        assert promql.missing(expressions, served) <= {"clrec_train_objective"}  # of losses that have any
        cluster.signal("chief", 0, signal.SIGUSR2)
        wait_for(lambda: list(workdir.rglob("profile/step-*/**/*.xplane.pb")), "a profile")
        cluster.signal("worker", 0, signal.SIGUSR2)
        wait_for(lambda: "the chief profiles" in cluster.log("worker"), "the worker's answer to SIGUSR2")
        cluster.signal("chief", 0, signal.SIGTERM)
        assert cluster.ended("chief") == 75
