"""Every --loss end to end on a small log: it learns, resumes bit for bit, and its flags are kept from contradicting.

And --candidate_features=false the whole way: train, evaluate, export, retrieve."""
import dataclasses
import json
import os

import numpy as np
import pytest
import tensorflow as tf

from clrec_tf.config import Config
from clrec_tf.config import EvaluateConfig
from clrec_tf.config import ExportConfig
from clrec_tf.data.catalogue import read_catalogue
from clrec_tf.data.held_out_examples import read_evaluation_set
from clrec_tf.data import schema as schema_lib
from clrec_tf.errors import UserError
from clrec_tf.evaluate import evaluate
from clrec_tf.export import export
from clrec_tf.models.build import build_model
from clrec_tf.models.encode import Encoder
from clrec_tf.objectives import build
from clrec_tf.objectives import full_softmax
from clrec_tf.objectives.full_softmax import FullSoftmax
from clrec_tf.objectives import ipw
from clrec_tf.objectives.negative_sampling import SharedNegativeSampling
from clrec_tf.objectives import propensity_fit
from clrec_tf.objectives.sampled_softmax import SampledSoftmax
from clrec_tf.retrieval.bundle import load_bundle
from clrec_tf.training.checkpoints import find_checkpoint
from clrec_tf.training.restore import load_trained
from clrec_tf.training.runtime import LocalRuntime
from tests import small_run
from tests.cases import in_ci
from tests.test_sampled_losses import assert_frequencies

RANDOM_SHOWN = 3  # impressions of random items before each click


def impression_log(clicks: str, seed: int = 1) -> str:
    """Before each click of a log, some random items and the one that was clicked."""
    rng, lines = np.random.default_rng(seed), ["user_id,item_id,timestamp"]
    for row in clicks.split()[1:]:
        user, item, second = row.split(",")[:3]
        shown = [*(rng.geometric(.15, RANDOM_SHOWN) % small_run.ITEMS + 1), item]
        lines += [f"{user},{one},{int(second) - 9 + place}" for place, one in enumerate(shown)]
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("losses")
    (folder / "shown.csv").write_text(impression_log(small_run.click_log()))
    return small_run.prepared(folder, impressions=str(folder / "shown.csv"))


def config(data_dir, workdir, loss, model=None, **train_settings) -> Config:
    settings = small_run.config(data_dir, workdir, model={**dict(user_encoder="mean"), **(model or {})}, **{
        **dict(epochs=1, learning_rate=.03, keep_checkpoints=100), **train_settings})
    return settings.but(**loss)


CASES = {
    "full_softmax": (dict(loss="full_softmax"), {}),
    "sampled_softmax": (dict(loss="sampled_softmax"), {}),
    "negative_sampling": (dict(loss="negative_sampling", num_negatives=8), {}),
    "shared_negative_sampling": (dict(loss="shared_negative_sampling"), {}),
    "bce": (dict(loss="bce"), {}),
    "ipw": (dict(loss="ipw"), {}),
    "ipw_category": (dict(loss="ipw", propensity="category", propensity_data="clicks", ipw_cap=0.0), {}),
    "debiased_raw": (dict(debias_beta=.5), dict(queue="raw", prefill_queue=True)),
    "impressions_in_batch": (dict(negatives="impressions"), dict(queue="in_batch")),
    "impressions_debiased_cached": (dict(negatives="impressions", debias_beta=.5),
                                    dict(queue="cached", prefill_queue=True))}


def assert_falling(losses):
    values = np.array([losses[step] for step in sorted(losses)])
    assert len(values) > 20 and np.isfinite(values).all()
    assert values[-8:].mean() < values[:4].mean() - .02


def assert_equal_checkpoints(*folders):
    before, after = (tf.train.load_checkpoint(find_checkpoint(str(folder), "latest")) for folder in folders)
    names = list(before.get_variable_to_shape_map())
    for name in names:
        first, second = before.get_tensor(name), after.get_tensor(name)
        assert first == second if isinstance(first, bytes) else np.array_equal(first, second), name
    return names


@pytest.mark.parametrize("case", in_ci(CASES, "full_softmax", "negative_sampling", "bce", "ipw_category",
                                       "impressions_debiased_cached"))
def test_learns_and_resumes_bit_for_bit(data_dir, tmp_path, case):
    loss, model = CASES[case]
    assert small_run.run(config(data_dir, tmp_path / "whole", loss, model)) == 0
    losses = small_run.losses(tmp_path / "whole")
    assert_falling(losses)
    # Killed after step 17: what is left is the checkpoint of step 10.
    rows = small_run.killed(tmp_path / "whole", tmp_path / "killed")
    marked = json.dumps({**json.loads(rows[2]), "loss": 123.0}) + "\n"  # a training from the start would replace it
    (tmp_path / "killed" / "metrics.jsonl").write_text("".join([*rows[:2], marked, *rows[3:17]]))
    assert small_run.run(config(data_dir, tmp_path / "killed", loss, model, steps_per_call=7)) == 0
    assert small_run.losses(tmp_path / "killed") == {**losses, 3: 123.0}
    names = {name.split("/")[0] for name in assert_equal_checkpoints(tmp_path / "whole", tmp_path / "killed")}
    states = {"queue": case.endswith(("raw", "cached")), "impressions": "impressions" in case,
              "sampler": case.endswith(("sampled_softmax", "sampling", "bce"))}
    assert {name for name, held in states.items() if held} == names & set(states)
    assert ("queue_fill" in json.loads(rows[0])) == states["queue"]


def test_tf_default_learns_and_goes_on_from_a_checkpoint(data_dir, tmp_path):
    loss = dict(loss="sampled_softmax", sampler="tf_default", num_negatives=12)
    assert small_run.run(config(data_dir, tmp_path, loss)) == 0
    losses = small_run.losses(tmp_path)
    assert_falling(losses)
    assert small_run.run(config(data_dir, tmp_path, loss, epochs=2)) == 0
    more = small_run.losses(tmp_path)
    assert len(more) > 1.5 * len(losses) and np.isfinite(list(more.values())).all()
    assert {step: more[step] for step in losses} == losses


def test_a_propensity_of_low_rank_trains(data_dir, tmp_path, monkeypatch):
    monkeypatch.setattr("clrec_tf.objectives.propensity_models.SOFTMAX_STEPS", 100)
    assert small_run.run(config(data_dir, tmp_path, dict(loss="ipw", propensity="softmax"))) == 0
    assert_falling(small_run.losses(tmp_path))


def test_a_run_keeps_its_loss(data_dir, tmp_path):
    small_run.run(config(data_dir, tmp_path, dict(loss="bce")))
    for loss, message in ((dict(loss="full_softmax"), "--loss=full_softmax differs from bce"),
                          (dict(loss="bce", sampler_power=1.0), "--sampler_power=1.0 belongs to --loss=.*, not to bce")):
        with pytest.raises(UserError, match=message):
            small_run.run(config(data_dir, tmp_path, loss))


# What the settings make of the data.


def objective_of(data_dir, loss, model=None):
    settings = config(data_dir, "", loss, model)
    schema, manifest = schema_lib.load_schema(data_dir), schema_lib.load_manifest(data_dir)
    return build.build_objective(settings, schema, manifest, build_model(settings, schema), LocalRuntime())


def clicks_by_id(data_dir):
    schema = schema_lib.load_schema(data_dir)
    return read_catalogue(data_dir, schema, schema_lib.load_manifest(data_dir)).counts


@pytest.mark.parametrize("loss,power", [
    (dict(loss="sampled_softmax"), 1.0), (dict(loss="negative_sampling"), .75),
    (dict(loss="shared_negative_sampling"), .75), (dict(loss="bce"), 0.0),
    (dict(loss="shared_negative_sampling", sampler_power=2.0), 2.0),
    (dict(loss="sampled_softmax", sampler_power=0.0), 0.0)])
def test_negatives_come_by_a_power_of_the_training_counts(data_dir, loss, power):
    objective, counts = objective_of(data_dir, loss), clicks_by_id(data_dir)
    assert objective.num_negatives == (1 if loss["loss"] == "bce" else small_run.SMALL_MODEL["queue_size"])
    share = counts ** power / np.sum(counts ** power)
    drawn = objective.sampler.open().sample([30_000]).numpy()
    assert_frequencies(np.bincount(drawn, minlength=len(share)), share)
    if loss["loss"] == "sampled_softmax":  # what is corrected is what is drawn
        log_q = objective.open().constants["log_q"].numpy()[1:]
        np.testing.assert_allclose(log_q - log_q[0], np.log(share / share[0]), atol=1e-5)
    if loss["loss"] in ("shared_negative_sampling", "negative_sampling"):
        assert isinstance(objective, SharedNegativeSampling) == (loss["loss"] == "shared_negative_sampling")


@pytest.mark.parametrize("negatives", ["clicks", "impressions"])
def test_the_correction_is_of_what_feeds_the_queue(data_dir, negatives):
    objective = objective_of(data_dir, dict(debias_beta=.25, negatives=negatives))
    counts = clicks_by_id(data_dir)
    if negatives == "impressions":
        shown = np.load(os.path.join(data_dir, "impressions.npy"))[:, 1]
        counts = np.bincount(shown, minlength=len(counts) + 1)[1:]
        assert set(objective.states) == {"queue", "impressions"}
        rows = objective.impressions.open().next(len(shown)).numpy()
        np.testing.assert_array_equal(np.sort(rows[:, 0]), np.sort(shown))
        catalogue = read_catalogue(data_dir, schema_lib.load_schema(data_dir), schema_lib.load_manifest(data_dir))
        np.testing.assert_array_equal(rows, catalogue.item_rows[rows[:, 0] - 1])  # with their features
    log_q = objective.open().corrections["log_q"].numpy()[1:]
    expected = .75 * np.log(np.maximum(counts, 1))
    np.testing.assert_allclose(log_q - log_q[0], expected - expected[0], atol=1e-5)
    assert objective_of(data_dir, dict(negatives=negatives)).corrections is None


def test_ipw_scores_all_items_where_they_are_few(data_dir, monkeypatch):
    monkeypatch.setattr(propensity_fit, "fit", lambda *arguments: (None, {}))
    found = objective_of(data_dir, dict(loss="ipw", ipw_cap=2.0))
    assert isinstance(found.softmax, FullSoftmax)
    assert found._cap == 2 * len(clicks_by_id(data_dir))
    for module in (full_softmax, ipw):
        monkeypatch.setattr(module, "MAX_FULL_SOFTMAX", 20)
    found = objective_of(data_dir, dict(loss="ipw", ipw_cap=0.0))
    assert isinstance(found.softmax, SampledSoftmax) and found._cap == np.inf
    with pytest.raises(UserError, match="--loss=full_softmax scores every item.* 30 are more than 20: use sampled"):
        objective_of(data_dir, dict(loss="full_softmax"))


@pytest.mark.parametrize("loss,model,message", [
    (dict(loss="full_softmax", debias_beta=.5), {}, "--debias_beta=0.5 belongs to --loss=contrastive, not to full"),
    (dict(loss="bce", negatives="impressions"), {}, "--negatives=impressions belongs to --loss=contrastive, not to"),
    (dict(loss="ipw"), dict(mask_same_user=True), "--mask_same_user=True belongs to --loss=contrastive, not to ipw"),
    (dict(loss="bce"), dict(prefill_queue=True), "--prefill_queue=True belongs to --loss=contrastive, not to bce"),
    (dict(negatives="impressions"), dict(mask_same_user=True), "--mask_same_user and --negatives=impressions"),
    (dict(loss="ipw", sampler="tf_default"), {}, "--sampler=tf_default belongs to --loss=sampled_softmax, not to ipw"),
    (dict(sampler="tf_default"), {}, "--sampler=tf_default belongs to --loss=sampled_softmax, not to contrastive"),
    (dict(loss="bce", sampler_power=-.5), {}, "--sampler_power=-0.5 .*give 0 or more"),
    (dict(loss="bce", num_negatives=20), {}, "--num_negatives=20 belongs to --loss=sampled_softmax, .*, not to bce"),
    (dict(propensity="category"), {}, "--propensity=category belongs to --loss=ipw, not to contrastive")])
def test_flags_that_contradict_each_other_are_refused(data_dir, loss, model, message):
    with pytest.raises(UserError, match=message):
        objective_of(data_dir, loss, model)


@pytest.mark.parametrize("loss,message", [
    (dict(loss="mle"), "--loss=mle: must be one of contrastive, full_softmax"),
    (dict(debias_beta=1.5), "--debias_beta=1.5: must be ≤ 1"), (dict(ipw_cap=-1.0), "--ipw_cap=-1.0: must be ≥ 0"),
    (dict(num_negatives=-1), "--num_negatives=-1: must be ≥ 0")])
def test_values_out_of_bounds_are_refused(loss, message):
    with pytest.raises(UserError, match=message):
        Config.of(**loss)


def test_impressions_must_have_been_prepared(tmp_path):
    plain = small_run.prepared(tmp_path)
    for loss, message in ((dict(negatives="impressions"), "--negatives=impressions needs impressions"),
                          (dict(loss="ipw"), "--loss=ipw needs impressions")):
        with pytest.raises(UserError, match=message):
            small_run.run(config(plain, tmp_path / "run", loss))


# Candidates without features, the whole way.


def test_without_candidate_features_from_training_to_retrieval(data_dir, tmp_path):
    settings = config(data_dir, tmp_path / "run", {}, dict(candidate_features=False, time_embedding="none"), epochs=2)
    settings = dataclasses.replace(settings, evaluate=EvaluateConfig(list_length=5),
                                   export=ExportConfig(recall_k=5, export_users=50))
    assert small_run.run(settings) == 0
    trained = load_trained(settings, "latest")
    schema, model = trained.schema, trained.model
    catalogue = read_catalogue(data_dir, schema, trained.manifest)
    users = read_evaluation_set(data_dir, "test", schema, trained.manifest, 0, 0)
    vectors = Encoder(model, 6).user_vectors(users)
    # Scores by hand: candidates are rows of the id table, users the live tower's.
    table = model.item_encoder.ids.table.numpy()[1:len(catalogue.counts) + 1].astype(float)
    scores = vectors @ (table / np.linalg.norm(table, axis=1, keepdims=True)).T
    featured = model.item_encoder(tf.constant(catalogue.item_rows)).numpy()
    assert np.abs(featured - table).max() > .1
    histories = [users.histories(row, row + 1, 6).item_rows[0, :, 0] for row in range(users.num_users)]
    histories = [history[history > 0] for history in histories]

    folder = export(settings)
    bundle = load_bundle(folder)
    order = bundle.positions(catalogue.original_ids)
    np.testing.assert_allclose(bundle.item_vectors()[order][:, :-1], table / np.linalg.norm(table, axis=1, keepdims=True),
                               atol=1e-6)
    width = max(map(len, histories))
    ids = np.full((len(histories), width), -1, np.int64)
    for row, history in zip(ids, histories):
        row[:len(history)] = catalogue.original_ids[history - 1]
    np.testing.assert_allclose(bundle.user_intents(ids).vectors[:, 0, :-1], vectors, atol=1e-5)
    found = bundle.tower.signatures["retrieve"](
        history=tf.constant(ids), popularity=tf.zeros([len(ids)]), k=tf.fill([len(ids)], 10), exclude=tf.constant(ids[:, :2]))
    for row, history in enumerate(ids):
        left = scores[row].copy()
        left[np.isin(catalogue.original_ids, history[:2])] = -np.inf
        best = np.argsort(-left)[:10]
        assert found["ids"].numpy()[row].tolist() == catalogue.original_ids[best].tolist()
        np.testing.assert_allclose(found["scores"].numpy()[row], left[best], atol=1e-5)
    # The index of the bundle searches the same vectors.
    places = np.asarray(bundle.index.search(np.pad(vectors, [(0, 0), (0, 1)]), 3)[0])
    np.testing.assert_array_equal(bundle.item_ids[places], catalogue.original_ids[np.argsort(-scores, axis=1)[:, :3]])

    hits = []
    for row, target in enumerate(users.next_clicks):
        seen = users.history_ids[users.history_splits[row]:users.history_splits[row + 1]]
        rivals = [score for item, score in enumerate(scores[row], 1) if item not in seen and item != target]
        hits.append(target > 0 and np.sum(rivals > scores[row, target - 1]) < 10)
    assert evaluate(settings)["hr@10/full"] == pytest.approx(np.mean(hits))
