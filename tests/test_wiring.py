"""What a setting reaches: features left out, more epochs, another metric, validation's part, the prefilled queue."""
import contextlib
import dataclasses
import io

import numpy as np
import pytest
import tensorflow as tf

from clrec_tf.config import EvaluateConfig
from clrec_tf.data.assignments import Assignments
from clrec_tf.data.catalogue import read_catalogue
from clrec_tf.data.epoch_plan import EpochPlan
from clrec_tf.data.held_out_examples import read_evaluation_set
from clrec_tf.data.input_pipeline import training_dataset
from clrec_tf.data import schema as schema_lib
from clrec_tf.errors import UserError
from clrec_tf import evaluate
from clrec_tf.evaluation import curve
from clrec_tf.evaluation.report import evaluate_vectors
from clrec_tf.models import dial
from clrec_tf.models.encode import Encoder
from clrec_tf.objectives.queue_negatives import QueueNegatives
from clrec_tf.training.checkpoints import find_checkpoint
from clrec_tf.training.restore import load_trained
from clrec_tf.training.runtime import LocalRuntime
from clrec_tf.training.setup import set_up
from clrec_tf.training.validation import metric_parts
from clrec_tf.training.validation import ranking_name
from tests import small_run


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    return small_run.prepared(tmp_path_factory.mktemp("wiring"))


def last_step(workdir):
    return int(find_checkpoint(str(workdir), "latest").rsplit("-", 1)[-1])


@pytest.mark.parametrize("queue", ["in_batch", "raw", "cached"])
def test_features_may_be_left_out(data_dir, tmp_path, queue):
    settings = small_run.config(data_dir, tmp_path, model=dict(queue=queue, use_features=False), epochs=1)
    assert schema_lib.load_schema(data_dir).features and small_run.run(settings) == 0
    names = tf.train.load_checkpoint(find_checkpoint(str(tmp_path), "latest")).get_variable_to_shape_map()
    assert [n for n in names if "/ids/" in n] and not [n for n in names if "feature_" in n or "projection" in n]
    assert load_trained(settings, "latest").model.item_encoder.item_width == 1
    if queue == "raw":
        cheap = dataclasses.replace(settings, evaluate=EvaluateConfig(candidate_sets=("full",)))
        result = evaluate.evaluate(cheap)
        assert 0 < result["mrr/full"] <= 1 and result["step"] == last_step(tmp_path)


def test_more_epochs_go_on_after_the_last_one_but_not_after_early_stopping(data_dir, tmp_path):
    def settings(name, **changes):
        return small_run.config(data_dir, tmp_path / name, validate_every=1.0, model=dict(queue="in_batch"),
                                steps_per_call=50, log_every_steps=1000, checkpoint_every_steps=1000, **changes)

    ends = EpochPlan(schema_lib.load_manifest(data_dir).shards["train"], 16, 2, "sliding", 0).epoch_ends(5)
    for epochs in (2, 3):  # patience for more than there is
        assert small_run.run(settings("whole", epochs=epochs, early_stopping_patience=50)) == 0
        assert last_step(tmp_path / "whole") == ends[epochs - 1]
    for epochs in (4, 5):  # a rate of 0: the first validation is never bettered
        assert small_run.run(settings("early", epochs=epochs, early_stopping_patience=2, learning_rate=0.0)) == 0
        assert last_step(tmp_path / "early") == ends[2]

    # Another metric decides: what the first one found best, and that it had stopped, say nothing any more.
    def progress(**changes):
        stopped = settings("early", epochs=5, early_stopping_patience=2, learning_rate=0.0, **changes)
        run = set_up(stopped, LocalRuntime())
        state = run.progress
        return (run.finished, state.stopped_early, state.step, state.metric, state.best_step, state.best_metric is None,
                state.validations_since_best)

    assert progress() == (True, True, ends[2], "hr@10/full", ends[0], False, 2)
    assert progress(validation_metric="mrr/full") == (False, False, ends[2], "mrr/full", 0, True, 0)


def test_a_run_that_goes_on_is_not_judged_by_figures_of_other_users_or_candidates(data_dir, tmp_path):
    """Of seen items left in, or of fewer users, no later figure might reach the best one, or all might."""
    settings = small_run.config(data_dir, tmp_path, validate_every=1.0, epochs=1, model=dict(queue="in_batch"))
    assert small_run.run(settings) == 0
    best = lambda **changes: set_up(settings.but(epochs=2, **changes), LocalRuntime()).progress.best_metric
    assert best() is not None
    for changes in (dict(filter_seen=False), dict(validation_users=7)):
        assert best(**changes) is best(**changes) is None  # again too: killed before it has saved a checkpoint
    assert small_run.run(settings.but(epochs=2, filter_seen=False)) == 0
    assert set_up(settings.but(epochs=3, filter_seen=False), LocalRuntime()).progress.best_step > 0


def test_validation_scores_the_validation_users(data_dir, tmp_path):
    settings = small_run.config(data_dir, tmp_path, validate_every=1.0, validation_metric="ndcg@5/full")
    run = set_up(settings, LocalRuntime())
    schema, manifest = schema_lib.load_schema(data_dir), schema_lib.load_manifest(data_dir)
    catalogue, encoder = read_catalogue(data_dir, schema, manifest), Encoder(run.model, 6)
    items, results = encoder.compared_items(catalogue.item_rows), {}
    for split in ("valid", "test"):
        users = read_evaluation_set(data_dir, split, schema, manifest)
        config = EvaluateConfig(ks=("5",), eval_split=split, candidate_sets=("full",))
        results[split] = evaluate_vectors(encoder.user_vectors(users), items, users, catalogue.counts, config, 0,
                                          detailed=False)
    found = run.validator.metrics()
    assert found == results["valid"]
    assert found["mrr/full"] != results["test"]["mrr/full"] and found["ndcg@5/full"] != results["test"]["ndcg@5/full"]


@pytest.mark.parametrize("metric, told", [("hr@30/full", True), ("recall@31/full", True), ("hr@29/full", False),
                                          ("ndcg@30/full", False), ("mrr/full", False)])
def test_a_metric_that_every_checkpoint_meets_is_told(data_dir, tmp_path, caplog, metric, told):
    """The log has 30 items: among its first 30 every target is found, and the first checkpoint would be the best."""
    set_up(small_run.config(data_dir, tmp_path, validate_every=1.0, validation_metric=metric), LocalRuntime())
    assert (f"--validation_metric={metric}: of the 30 candidates of /full at most" in caplog.text) == told


def test_validation_at_a_popularity_is_that_of_the_curve(data_dir, tmp_path):
    settings = small_run.config(data_dir, tmp_path, validate_every=1.0, validation_metric="ndcg@5/full/popularity=1")
    run = set_up(settings, LocalRuntime())
    schema, manifest = schema_lib.load_schema(data_dir), schema_lib.load_manifest(data_dir)
    catalogue, encoder = read_catalogue(data_dir, schema, manifest), Encoder(run.model, 6)
    users, counts = read_evaluation_set(data_dir, "valid", schema, manifest), catalogue.counts
    config = EvaluateConfig(ks=("5",), eval_split="valid", candidate_sets=("full",))
    points = curve.curve(encoder.user_vectors(users), encoder.compared_items(catalogue.item_rows),
                         dial.item_coordinate(counts, 0.07), users, counts, config, 0, [0.0, 1.0])
    found = run.validator.metrics()["ndcg@5/full/popularity=1"]
    assert found == pytest.approx(points[1.0]["ndcg@5/full"], abs=1e-6) and found != points[0.0]["ndcg@5/full"]


@pytest.mark.parametrize("metric,value", [
    ("hr@10/full", 0.0), ("hr@10/full/popularity=1", 1.0), ("mrr/pop100/popularity=-0.25", -0.25),
    ("hr@10/full/popularity=", None), ("hr@10/full/popularity=x", None), ("hr@10/full/popularity=nan", None),
    ("hr@10/full/popularity=5.5", None)])
def test_metrics_name_their_popularity(metric, value):
    assert ranking_name(metric)[1] == value
    with contextlib.nullcontext() if value is not None else pytest.raises(UserError, match="must be hr@K.*popularity"):
        metric_parts(metric)


def first_targets(data_dir, seed, count):
    schema, manifest = schema_lib.load_schema(data_dir), schema_lib.load_manifest(data_dir)
    plan = EpochPlan(manifest.shards["train"], 16, 2, "sliding", seed)
    targets = [target for batch in training_dataset(data_dir, schema, manifest, plan, Assignments(plan, 1).remaining(), 6).as_numpy_iterator()
               for target in batch["target"][batch["weight"] > 0].tolist()]
    return targets[:count]


def test_prefill_takes_the_first_targets_of_another_order_than_training(data_dir, tmp_path):
    seed = 5
    model = dict(queue="raw", queue_size=32, prefill_queue=True)
    settings = small_run.config(data_dir, tmp_path, seed=seed, model=model)
    set_up(settings, LocalRuntime()).checkpoints.save()
    reader = tf.train.load_checkpoint(find_checkpoint(str(tmp_path), "latest"))
    name = next(n for n in reader.get_variable_to_shape_map() if n.startswith("queue/"))
    with np.load(io.BytesIO(reader.get_tensor(name)), allow_pickle=False) as archive:
        count, items = int(archive["count/0"]), archive["item/0"].tolist()
    assert count == 32 and items == first_targets(data_dir, seed + 1, 32) != first_targets(data_dir, seed, 32)


def test_a_run_that_goes_on_is_not_prefilled_again(data_dir, tmp_path, monkeypatch):
    settings = small_run.config(data_dir, tmp_path, model=dict(queue="raw", queue_size=32, prefill_queue=True), epochs=1)
    assert small_run.run(settings) == 0
    monkeypatch.setattr(QueueNegatives, "prefill", lambda *arguments: pytest.fail("filled"))
    assert set_up(settings.but(epochs=2), LocalRuntime()).progress.step > 0


@pytest.mark.parametrize("masked", [False, True])
def test_mask_same_user_reaches_the_denominator(data_dir, tmp_path, masked):
    model = dict(queue="in_batch", mask_same_user=masked)
    run = set_up(small_run.config(data_dir, tmp_path, model=model), LocalRuntime())
    batch = next(iter(run.dataset()))
    encoded, users = run.model.encode(batch), batch["user_id"].numpy()
    assert len(set(users)) < len(users) and (batch["weight"].numpy() == 1).all()
    logits, losses = encoded.users.numpy() @ encoded.positives.numpy().T / run.model.temperature, []
    for row, scores in enumerate(logits):
        kept = [score for other, score in enumerate(scores)
                if not masked or other == row or users[other] != users[row]]
        losses.append(np.log(np.sum(np.exp(kept))) - scores[row])
    result = run.call(iter(run.dataset()), tf.constant(1, tf.int64))
    np.testing.assert_allclose(result["loss"], np.mean(losses), rtol=1e-4)


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_time_dropout_reaches_the_batches(data_dir, tmp_path, rate):
    run = set_up(small_run.config(data_dir, tmp_path, time_dropout=rate), LocalRuntime())
    batch = next(iter(run.dataset()))
    clicks = np.arange(6) < batch["length"].numpy()[:, None]
    assert (batch["time_gap"].numpy()[clicks] == -1).all() == bool(rate)
    assert (batch["time_gap"].numpy()[clicks] > 0).all() == (not rate)
