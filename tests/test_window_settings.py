"""--target_mode=all: settings that contradict each other are refused; a cluster trains what one process trains."""
import numpy as np
import pytest

from clrec_tf.config import Config
from clrec_tf.data.schema import load_manifest
from clrec_tf.data.schema import load_schema
from clrec_tf.errors import UserError
from clrec_tf.models.build import build_model
from clrec_tf.objectives.build import build_objective
from clrec_tf.training.runtime import LocalRuntime
from clrec_tf.training.setup import check_every_position
from tests.local_cluster import LocalCluster
from tests.local_cluster import progress_of
from tests.local_cluster import queue_of
from tests.local_cluster import TELLING
from tests.local_cluster import values
from tests import small_run
from tests.test_input_pipeline import expected_rows

SASREC = dict(user_encoder="sasrec", dropout=.2)


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    return small_run.prepared(tmp_path_factory.mktemp("windows"))


@pytest.mark.parametrize("settings,message", [
    (dict(model="multi_clrec"), "--target_mode=all needs a user vector at every position, which --model=multi_clrec "
                                "does not give: use --model=clrec with --user_encoder=multi_att or mean or sasrec "
                                "or bert4rec or gru4rec or lstm or dnn or caser or svdpp, or --target_mode=sl"),
    (dict(position="forward"), "--target_mode=all with --position=forward: .*; use backward or none"),
    (dict(user_encoder="mean", queue_size=255), "--queue_size=255 is smaller than --enqueue_per_step=256: what a step "
                                                "adds enters the queue whole, so raise"),
    (dict(user_encoder="mean", enqueue_per_step=0), "--enqueue_per_step=0: must be ≥ 1")])
def test_settings_are_refused(settings, message):
    with pytest.raises(UserError, match=message):
        Config.of(**{**dict(target_mode="all"), **settings})
    Config.of(**{**settings, "target_mode": "sliding", "queue_size": 2560, "enqueue_per_step": 1})


@pytest.mark.parametrize("encoder", ["mean", "multi_att"])
def test_times_before_the_request_are_refused(data_dir, tmp_path, encoder):
    """They are another for each target of a window. Of data without time stamps there are none."""
    message = (f"--target_mode=all with --user_encoder={encoder}: .*another for each target.*set "
               "--time_embedding=none, or use --user_encoder=sasrec")
    with pytest.raises(UserError, match=message):
        small_run.run(small_run.config(
            data_dir, tmp_path / "run", model=dict(user_encoder=encoder, enqueue_per_step=8), target_mode="all"))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("batch_size,warns", [(23, True), (24, False)])  # windows of 6
def test_steps_of_few_windows_are_warned_of(data_dir, batch_size, warns, caplog):
    settings = small_run.config(data_dir, "run", model=dict(user_encoder="sasrec", enqueue_per_step=8),
                                target_mode="all", batch_size=batch_size)
    check_every_position(settings, build_model(settings, load_schema(data_dir)))
    assert ("--batch_size=23 targets are few windows of --max_history=6" in caplog.text) == warns


@pytest.mark.parametrize("queue", ["in_batch", "raw", "cached"])
@pytest.mark.parametrize("mode", ["all", "sliding"])
def test_windows_mask_their_owner_and_give_positives_a_slot(data_dir, tmp_path, queue, mode):
    """Whatever --mask_same_user says; in other modes neither."""
    model = dict(user_encoder="mean", time_embedding="none", queue=queue, enqueue_per_step=2)
    settings = small_run.config(data_dir, tmp_path, model=model, target_mode=mode)
    found = build_objective(settings, load_schema(data_dir), load_manifest(data_dir),
                            build_model(settings, load_schema(data_dir)), LocalRuntime())
    assert found.mask_same_user == (mode == "all")
    assert found.positives_apart == (mode == "all" and queue != "in_batch")


# ---- in a cluster


@pytest.fixture(scope="module")
def two_workers(data_dir, tmp_path_factory):
    with LocalCluster(tmp_path_factory.mktemp("logs"), dict(data_dir=data_dir, chief_gone_s=0), workers=2,
                      servers=1) as cluster:
        yield cluster.start_servers()


@pytest.mark.cluster
def test_two_workers_train_every_target_of_an_epoch_once(data_dir, two_workers, tmp_path):
    settings = dict(epochs=1, target_mode="all", queue="raw", queue_size=2000, enqueue_per_step=2000, steps_per_call=2)
    assert two_workers.chief(workdir=tmp_path, code=TELLING, **SASREC, **settings) == 0
    found = values(tmp_path)
    counts = [int(queue_of(found, "count", worker)) for worker in (0, 1)]
    items = [queue_of(found, "item", worker)[:count, 0] for worker, count in zip((0, 1), counts)]
    assert sorted(np.concatenate(items).tolist()) == sorted(row[2][0] for row in expected_rows(data_dir, "sliding"))
    losses = small_run.losses(tmp_path)
    assert min(counts) > 0 and progress_of(found)["step"] == max(losses) and np.isfinite(list(losses.values())).all()
    assert two_workers.told()["traces"] == 1


@pytest.mark.cluster
@pytest.mark.parametrize("queue", ["cached", pytest.param("all_clicks", marks=pytest.mark.long)])
def test_one_worker_trains_what_one_process_trains(data_dir, tmp_path, queue):
    model = dict(SASREC, queue=queue, **(dict(enqueue_per_step=9) if queue == "cached" else {}))
    more = dict(target_mode="all", epochs=1, time_dropout=.2)
    assert small_run.run(small_run.config(data_dir, tmp_path / "local", model=model, **more)) == 0
    with LocalCluster(tmp_path / "logs", dict(data_dir=data_dir, shard_rows=10_000), workers=1, servers=1) as cluster:
        cluster.start_servers()
        assert cluster.chief(workdir=tmp_path / "cluster", **model, **more) == 0
    expected, found = small_run.losses(tmp_path / "local"), small_run.losses(tmp_path / "cluster")
    assert len(expected) > 20 and found.keys() == expected.keys()
    np.testing.assert_allclose(list(found.values()), list(expected.values()), rtol=2e-5)
