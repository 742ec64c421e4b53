"""--target_mode=all end to end on a small log: every loss learns, a killed training goes on bit for bit, and what is
served is what was trained."""
import collections
import dataclasses
import io
import json

import numpy as np
import pytest
import tensorflow as tf

from clrec_tf.config import Config
from clrec_tf.config import ExportConfig
from clrec_tf.data.catalogue import read_catalogue
from clrec_tf.data.held_out_examples import read_evaluation_set
from clrec_tf.export import export
from clrec_tf.models.encode import Encoder
from clrec_tf.objectives.propensity_fit import last_clicks
from clrec_tf.objectives.propensity_fit import pairs
from clrec_tf.retrieval.bundle import load_bundle
from clrec_tf.training.checkpoints import find_checkpoint
from clrec_tf.training.restore import load_trained
from clrec_tf.training.runtime import LocalRuntime
from clrec_tf.training.setup import set_up
from tests.naive_windows import windows
from tests import small_run
from tests.cases import in_ci
from tests.test_input_pipeline import expected_rows
from tests.test_loss_training import assert_equal_checkpoints
from tests.test_loss_training import impression_log

ENCODERS = {"sasrec": dict(user_encoder="sasrec", dropout=.2, queue="cached", enqueue_per_step=9),
            "mean": dict(user_encoder="mean", time_embedding="none", queue="raw", enqueue_per_step=9),
            "bert4rec": dict(user_encoder="bert4rec", dropout=0.0, queue="cached", enqueue_per_step=9),
            "multi_att": dict(user_encoder="multi_att", time_embedding="none", queue="in_batch")}
TRAIN = dict(target_mode="all", epochs=1, batch_size=16, keep_checkpoints=100, learning_rate=.03)


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("windows")
    (folder / "shown.csv").write_text(impression_log(small_run.click_log()))
    return small_run.prepared(folder, impressions=str(folder / "shown.csv"))


def config(data_dir, workdir, model, **settings) -> Config:
    return small_run.config(data_dir, workdir, model=model, **{**TRAIN, **settings})


def assert_learns(workdir, least=.05):
    found = small_run.losses(workdir)
    values_ = np.array([found[step] for step in sorted(found)])
    assert len(values_) > 20 and np.isfinite(values_).all()
    assert values_[-8:].mean() < values_[:8].mean() - least
    return found


@pytest.mark.parametrize("encoder", in_ci(ENCODERS, "sasrec", "mean"))
def test_killed_and_gone_on_equals_uninterrupted_bit_for_bit(data_dir, tmp_path, encoder):
    settings = dict(time_dropout=.3, schedule="cosine")
    assert small_run.run(config(data_dir, tmp_path / "whole", ENCODERS[encoder], **settings)) == 0
    losses = small_run.losses(tmp_path / "whole")
    # Killed after step 17: what is left is the checkpoint of step 10, in the middle of an epoch.
    rows = small_run.killed(tmp_path / "whole", tmp_path / "killed")
    (tmp_path / "killed" / "metrics.jsonl").write_text("".join(rows[:12]))
    assert small_run.run(config(data_dir, tmp_path / "killed", ENCODERS[encoder], steps_per_call=7, **settings)) == 0
    assert len(losses) > 20 and small_run.losses(tmp_path / "killed") == losses
    names = assert_equal_checkpoints(tmp_path / "whole", tmp_path / "killed")
    assert ("queue" in {name.split("/")[0] for name in names}) == (encoder != "multi_att")


def test_every_target_of_an_epoch_enters_the_queue_once_in_one_trace(data_dir, tmp_path):
    model = dict(user_encoder="sasrec", queue="raw", queue_size=2000, enqueue_per_step=2000)
    settings = config(data_dir, tmp_path, model)
    run = set_up(settings, LocalRuntime())
    targets, iterator = [row[2][0] for row in expected_rows(data_dir, "sliding")], iter(run.dataset())
    results = [run.call(iterator, tf.constant(steps, tf.int64)) for steps in (1, 3, 2, run.total_steps - 6)]
    assert run.call.function.experimental_get_tracing_count() == 1
    assert sum(float(result["examples"]) for result in results) == len(targets)
    assert run.total_steps > 20 and np.isfinite([float(result["loss"]) for result in results]).all()
    small_run.run(settings)
    reader = tf.train.load_checkpoint(find_checkpoint(str(tmp_path), "latest"))
    name = next(name for name in reader.get_variable_to_shape_map() if name.startswith("queue/"))
    with np.load(io.BytesIO(reader.get_tensor(name)), allow_pickle=False) as archive:
        items = archive["item/0"][:int(archive["count/0"]), 0]
    assert collections.Counter(items.tolist()) == collections.Counter(targets)


CASES = {
    "full_softmax": (dict(loss="full_softmax"), {}), "sampled_softmax": (dict(loss="sampled_softmax"), {}),
    "tf_default": (dict(loss="sampled_softmax", sampler="tf_default", num_negatives=12), {}),
    "negative_sampling": (dict(loss="negative_sampling", num_negatives=8), {}),
    "shared_negative_sampling": (dict(loss="shared_negative_sampling"), {}), "bce": (dict(loss="bce"), {}),
    "ipw": (dict(loss="ipw"), {}), "ipw_category": (dict(loss="ipw", propensity="category", propensity_data="clicks"), {}),
    "all_clicks": ({}, dict(queue="all_clicks")),
    "all_clicks_shown": (dict(negatives="impressions", debias_beta=.5), dict(queue="all_clicks")),
    "shown_in_batch": (dict(negatives="impressions"), dict(queue="in_batch")),
    "shown_raw": (dict(negatives="impressions"), dict(queue="raw", enqueue_per_step=8)),
    "shown_cached": (dict(negatives="impressions", debias_beta=.5), dict(queue="cached", prefill_queue=True,
                                                                         enqueue_per_step=8)),
    "without candidate features": ({}, dict(queue="raw", candidate_features=False, enqueue_per_step=8)),
    "dot": ({}, dict(queue="cached", similarity="dot", enqueue_per_step=8))}


@pytest.mark.parametrize("case", in_ci(CASES, "full_softmax", "negative_sampling", "bce", "ipw_category",
                                       "all_clicks_shown", "shown_cached"))
def test_every_loss_learns(data_dir, tmp_path, case):
    loss, model = CASES[case]
    model = dict(user_encoder="sasrec", transformer_blocks=1, dropout=0.0, **model, **loss)
    assert small_run.run(config(data_dir, tmp_path, model, epochs=2)) == 0
    losses = assert_learns(tmp_path, least=.02)
    first = json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[0])
    queued = {"shown_raw": 8, "shown_cached": 40, "without candidate features": 8, "dot": 8}
    assert first.get("queue_fill") == queued.get(case) and len(losses) == max(losses)


def test_the_propensity_is_that_after_the_click_before_each_target():
    batch = windows([[1, 2, 3], [4, 5], [6, 7, 8, 9]], [1, 2, 3], [1, 0, 1])
    assert last_clicks(batch).numpy().tolist() == [1, 2, 4, 6, 7, 8]
    assert pairs(batch).tolist() == [[1, 2], [2, 3], [6, 7], [7, 8], [8, 9]]


@pytest.mark.parametrize("queue", ["raw", "cached"])
def test_prefill_fills_the_queue_before_the_first_step(data_dir, tmp_path, queue):
    small_run.run(config(data_dir, tmp_path, dict(ENCODERS["mean"], queue=queue, prefill_queue=True)))
    first = json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[0])
    assert first["step"] == 1 and first["queue_fill"] == 40


@pytest.mark.parametrize("encoder", in_ci(ENCODERS, "sasrec", "multi_att"))
def test_a_planted_successor_is_served(data_dir, tmp_path, encoder):
    """It is learned, and the exported model gives the live one's vectors, with its times."""
    settings = config(data_dir, tmp_path, ENCODERS[encoder] | dict(max_history=4), epochs=15, log_every_steps=100,
                      learning_rate=.01 if encoder == "bert4rec" else TRAIN["learning_rate"])
    settings = dataclasses.replace(settings, export=ExportConfig(recall_k=5, export_users=50))
    assert small_run.run(settings) == 0
    trained = load_trained(settings, "latest")
    users = read_evaluation_set(data_dir, "test", trained.schema, trained.manifest, 0, 0)
    catalogue, live = read_catalogue(data_dir, trained.schema, trained.manifest), Encoder(trained.model, 4)
    vectors, items, hits = live.user_vectors(users), live.compared_items(catalogue.item_rows), []
    signature = load_bundle(export(settings)).tower.signatures["serving_default"]
    for row in range(users.num_users):
        part = slice(users.history_splits[row], users.history_splits[row + 1])
        history = catalogue.original_ids[users.history_ids[part] - 1]
        arguments = dict(history=tf.constant([history], tf.int64), popularity=tf.zeros([1]))
        if trained.model.uses_time:
            arguments |= dict(timestamps=tf.constant([users.history_times[part]], tf.int64),
                              request_time=tf.constant([users.request_times[row]], tf.int64))
        found = signature(**arguments)["user_vectors"].numpy()[0, 0, :-1]
        np.testing.assert_allclose(found, vectors[row], atol=1e-5)
        best = [item for item in catalogue.original_ids[np.argsort(-(items @ found))] if item not in history][:3]
        hits.append(history[-1] % small_run.ITEMS + 1 in best)
    assert trained.model.uses_time == (encoder in ("sasrec", "bert4rec")) and users.num_users > 50
    assert np.mean(hits) > .6  # 3 of 20 by chance: .15
