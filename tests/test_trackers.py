"""MLflow with a real store of files: settings and metrics arrive, a resumed training goes on in its run."""
import json

import pytest

from clrec_tf.errors import UserError
from clrec_tf.training import trackers
from clrec_tf.training.reporter import METRICS_LOG
from tests import small_run

mlflow = pytest.importorskip("mlflow")


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "store").as_uri())
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "shop")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri(None)
    return mlflow.MlflowClient()


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return small_run.prepared(tmp_path_factory.mktemp("data"))


def rows_of(workdir):
    return [json.loads(line) for line in (workdir / METRICS_LOG).read_text().splitlines()]


def test_a_training_and_its_continuation_are_one_run(data, tmp_path, store):
    workdir = tmp_path / "run"
    small_run.run(small_run.config(data, workdir, epochs=1, tracker="mlflow"))
    small_run.run(small_run.config(data, workdir, epochs=2, tracker="mlflow"))
    [run] = store.search_runs([store.get_experiment_by_name("shop").experiment_id])
    assert run.info.status == "FINISHED" and run.info.run_name == "run"
    assert run.data.params["embedding_dim"] == "8" and run.data.params["loss"] == "contrastive"
    rows = rows_of(workdir)
    told = store.get_metric_history(run.info.run_id, "loss")
    assert [(one.step, one.value) for one in told] == [(row["step"], row["loss"]) for row in rows]
    # A run that somebody deleted from the store is not a reason to stop.
    (workdir / trackers.MLFLOW_FILE).write_text('{"run_id": "0123456789abcdef0123456789abcdef"}')
    small_run.run(small_run.config(data, workdir, epochs=3, tracker="mlflow"))
    assert len(store.search_runs([run.info.experiment_id])) == 2


def test_a_training_that_fails_does_not_stay_a_running_one(data, tmp_path, store):
    with pytest.raises(UserError, match="max_nonfinite_steps"):
        small_run.run(small_run.config(data, tmp_path / "run", learning_rate=1e38, clip_norm=0.0, tracker="mlflow",
                                       max_nonfinite_steps=0))
    [run] = store.search_runs([store.get_experiment_by_name("shop").experiment_id])
    assert run.info.status == "KILLED"


def test_a_store_that_fails_later_costs_nothing(data, tmp_path, store, monkeypatch, caplog):
    def refuse(*_, **__):
        raise ConnectionError("the store is gone\nfor good")
    real = mlflow.MlflowClient.log_batch
    monkeypatch.setattr(mlflow.MlflowClient, "log_batch",
                        lambda self, run, **what: refuse() if "metrics" in what else real(self, run, **what))
    small_run.run(small_run.config(data, tmp_path / "run", epochs=1, tracker="mlflow"))
    assert len(rows_of(tmp_path / "run")) > 3
    assert caplog.text.count("MLflow did not take what it was told (the store is gone): the training goes on") == 1


def test_a_store_that_cannot_be_used_is_an_error(data, tmp_path, store, monkeypatch):
    del store
    (tmp_path / "taken").write_text("no folder")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "taken").as_uri())
    with pytest.raises(UserError, match="--tracker=mlflow: the store file:.* cannot be used .*MLFLOW_TRACKING_URI"):
        small_run.run(small_run.config(data, tmp_path / "run", epochs=1, tracker="mlflow"))
