"""A training as it is operated: a real process, scraped over HTTP while it trains, with JSON logs; ports, refusals."""
import contextlib
import datetime
import json
import os
import re
import resource
import signal
import socket
import sys
import time

import pytest

from clrec_tf.errors import UserError
from clrec_tf.training.cluster.roles import Task
from clrec_tf.training.monitoring import exporter
from clrec_tf.training.monitoring import role_watch
from clrec_tf.training.reporter import objective_metrics
from tests import forked
from tests import promql
from tests import scraped
from tests import small_run
from tests.local_cluster import flags

SERIES = {  # of a training on one machine; those of the process beside them
    "clrec_train_step": set(), "clrec_train_target_steps": set(), "clrec_train_steps_total": {"worker"},
    "clrec_train_examples_total": {"worker"}, "clrec_train_input_wait_seconds_total": {"worker"},
    "clrec_train_call_seconds_total": {"worker"}, "clrec_train_loss": set(), "clrec_train_queue_entries": {"worker"},
    "clrec_train_queue_age_steps": {"worker"}, "clrec_train_queue_duplicate_ratio": {"worker"},
    "clrec_train_validation_score": {"metric"}, "clrec_train_validation_seconds_sum": set(),
    "clrec_train_checkpoint_timestamp_seconds": set(), "clrec_train_checkpoint_seconds_sum": set(),
    "clrec_train_skipped_steps_total": set(), "clrec_train_data_bad_rows": set(),
    "clrec_train_process_info": {"role", "index", "run_id", "version"}, "process_resident_memory_bytes": set()}
CLUSTERS = ["clrec_train_role_up", "clrec_train_role_restarts_total", "clrec_train_chief_up"]
ONE_HOST = {"chief": ["a:1"], "worker": ["a:2", "a:3"], "ps": ["a:4", "a:5"]}
PODS = {"chief": ["c:1"], "worker": ["w0:1", "w1:1"], "ps": ["p0:1", "w1:2"]}


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    return small_run.prepared(tmp_path_factory.mktemp("training"))


def started(data_dir, workdir, **settings):
    """A training as a process."""
    given = {**small_run.SMALL_MODEL, **small_run.SMALL_TRAIN, "threads": 1, "data_dir": data_dir, "workdir": workdir,
             **settings}
    with open(f"{workdir}.log", "wb") as log:
        return forked.Popen([sys.executable, "-m", "clrec_tf.train", *flags(**given)], stderr=log,
                            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"})


def test_a_training_is_scraped_while_it_trains(data_dir, tmp_path):
    port, begin = scraped.free_ports(), time.time()
    process = started(data_dir, tmp_path / "run", epochs=10_000, metrics_port=port, run_id="shop", validate_every=2,
                      batch_size=32, pretext="u2u", log_format="json")
    try:
        first = scraped.scraped_when(port, lambda found: ("clrec_train_checkpoint_seconds_count", frozenset()) in found
                                     and found.get_value("clrec_train_checkpoint_seconds_count") > 1
                                     and found.get_value("clrec_train_validation_seconds_count") > 0)
        step = first.get_value("clrec_train_step")
        later = scraped.scraped_when(port, lambda found: found.get_value("clrec_train_step") > step)
    finally:
        process.send_signal(signal.SIGTERM)
        code, log = process.wait(timeout=60), (tmp_path / "run.log").read_text()
    assert code == 75, log
    lines = [json.loads(line) for line in log.splitlines()]  # each is an object
    assert {(line["command"], line["role"], line["index"], line["run_id"]) for line in lines} == {
        ("train", "local", 0, "shop")}
    assert {"message": f"metrics of local 0 at http://127.0.0.1:{port}/metrics", "severity": "INFO"}.items() <= next(
        line.items() for line in lines if "metrics of" in line["message"])
    of_steps = [line for line in lines if re.match(r"step \d+/", line["message"])]
    assert len(of_steps) > 5 and all(line["message"].startswith(f"step {line['step']}/") for line in of_steps)
    moments = [datetime.datetime.fromisoformat(line["time"]).timestamp() for line in lines]
    assert moments == sorted(moments) and begin - 1 < moments[0] <= moments[-1] < time.time() + 1
    assert first.labels() | SERIES == first.labels()
    of_clusters = [name for name in CLUSTERS if name not in first.labels()]
    assert of_clusters == CLUSTERS
    assert promql.missing([expression for expression in promql.dashboard("Training") + promql.alerts("clrec-training")
                           if not promql.metrics_in(expression)[0] & set(CLUSTERS)], first.labels()) == set()
    info = next(dict(pairs) for name, pairs in first if name == "clrec_train_process_info")
    assert info["role"] == "local" and info["index"] == "0" and info["run_id"] == "shop"
    # What stands in metrics.jsonl, by another way.
    rows = {row["step"]: row for row in map(json.loads, (tmp_path / "run" / "metrics.jsonl").read_text().splitlines())
            if "loss" in row}
    for found in (first, later):
        step = found.get_value("clrec_train_step")
        # Of calls of one step; values are read one by one, while the next call ends.
        around = [rows[other] for other in rows if abs(other - step) <= 1]
        assert abs(found.get_value("clrec_train_steps_total") - step) <= 1
        assert found.get_value("clrec_train_loss") in [pytest.approx(row["loss"]) for row in around]
        assert {found.get_value("clrec_train_queue_entries"), *(row["queue_fill"] for row in around)} == {40}
        assert 0 < found.get_value("clrec_train_input_wait_seconds_total") < found.get_value(
            "clrec_train_call_seconds_total") < time.time() - begin
        assert 32 * step * .5 < found.get_value("clrec_train_examples_total") <= 32 * step
        assert begin < found.get_value("clrec_train_checkpoint_timestamp_seconds") < time.time()
        assert found.get_value("clrec_train_queue_age_steps") in [pytest.approx(row["queue_age"]) for row in around]
        assert found.get_value("clrec_train_skipped_steps_total") == found.get_value("clrec_train_data_bad_rows") == 0
        assert 0 <= found.get_value("clrec_train_validation_score", metric="hr@10/full") <= 1
        assert found.get_value("process_resident_memory_bytes") > 2e8
    with pytest.raises(OSError):
        scraped.scrape(port)


def test_the_age_of_a_queue_is_what_it_holds_by_what_enters():
    result = {"queue_fill": 40.0, "queue_entered": 64.0, "loss": 3.0, "u2u_fill": 7.0, "input_seconds": 1.0}
    assert objective_metrics(4, result) == {"queue_fill": 40.0, "queue_age": 2.5, "u2u_fill": 7.0}  # 16 a step
    assert objective_metrics(4, {"queue_fill": 0.0, "queue_entered": 0.0}) == {"queue_fill": 0.0}


def test_a_port_that_is_taken_is_refused_before_anything_is_trained(data_dir, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        settings = small_run.config(data_dir, tmp_path / "run").but(metrics_port=port)
        with pytest.raises(UserError, match=f"metrics cannot be served at 127.0.0.1:{port} .*in use.*--metrics_port"):
            small_run.run(settings)
    assert not (tmp_path / "run").exists()
    with pytest.raises(UserError, match="cannot be served at nowhere.invalid:"):
        small_run.run(settings.but(metrics_host="nowhere.invalid"))


def test_without_the_package_the_error_names_the_extra(data_dir, tmp_path, monkeypatch):
    settings = small_run.config(data_dir, tmp_path / "run", epochs=0)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(UserError, match=r"--metrics_port=9400 needs the package prometheus-client.*'clrec_tf\[serve\]'"):
        small_run.run(settings.but(metrics_port=9400))
    with pytest.raises(UserError, match="--epochs=0 trains nothing, and there is no run yet: give 1 or more"):
        small_run.run(settings)  # who asks for no metrics needs no package


@pytest.mark.parametrize("role, index, on_one_host, in_pods", [
    ("chief", 0, 9400, 9400), ("worker", 0, 9401, 9400), ("worker", 1, 9402, 9400), ("ps", 0, 9403, 9400),
    ("ps", 1, 9404, 9401), ("evaluator", 0, 9405, 9400)])
def test_roles_of_one_host_have_ports_of_their_own(role, index, on_one_host, in_pods):
    assert exporter.port_of(9400, Task(role, index, ONE_HOST)) == on_one_host
    assert exporter.port_of(9400, Task(role, index, PODS)) == in_pods


def test_a_role_that_goes_and_comes_back_is_counted_once():
    import prometheus_client  # pylint: disable=import-outside-toplevel
    with socket.create_server(("127.0.0.1", 0)) as steady, socket.create_server(("127.0.0.1", 0)) as first:
        ports = [server.getsockname()[1] for server in (first, steady)]
        task = Task("chief", 0, {"chief": ["127.0.0.1:1"], "worker": [f"127.0.0.1:{port}" for port in ports],
                                 "ps": ["nowhere.invalid:2"]})
        metrics = exporter.Metrics(prometheus_client)
        roles = role_watch.RoleMetrics(metrics, task)

        def told():
            roles.look()
            found = scraped.parsed(prometheus_client.generate_latest(metrics.registry).decode())
            return {name: [found.get_value(f"clrec_train_{name}", role=role, index=index)
                           for role, index in (("worker", "0"), ("worker", "1"), ("ps", "0"))]
                    for name in ("role_up", "role_restarts_total")}
        assert told() == {"role_up": [1, 1, 0], "role_restarts_total": [0, 0, 0]}
        first.close()
        assert told() == {"role_up": [0, 1, 0], "role_restarts_total": [0, 0, 0]}
        with socket.create_server(("127.0.0.1", ports[0])):
            for _ in range(2):
                assert told() == {"role_up": [1, 1, 0], "role_restarts_total": [1, 0, 0]}


def test_roles_are_asked_in_a_process_of_many_open_files():
    """More than 1,024, which `select` cannot tell apart."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(2048, limits[1]), limits[1]))
    try:
        with socket.create_server(("127.0.0.1", 0)) as there, contextlib.ExitStack() as stack:
            for _ in range(1100):
                stack.enter_context(open(os.devnull, "rb"))
            port = there.getsockname()[1]
            with socket.create_server(("127.0.0.1", 0)) as closed:
                silent = closed.getsockname()[1]
            addresses = {("ps", 0): f"127.0.0.1:{port}", ("ps", 1): f"127.0.0.1:{silent}"}
            assert role_watch.answering(addresses, 5.0) == {("ps", 0)}
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
