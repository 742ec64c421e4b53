"""The first stage of inverse propensity weighting: tables by pencil, a planted q found again, what is reported."""
import logging

import numpy as np
import pytest
import tensorflow as tf

from clrec_tf.config import Config
from clrec_tf.config import Paths
from clrec_tf.config import TrainConfig
from clrec_tf.data.assignments import Assignments
from clrec_tf.data.epoch_plan import EpochPlan
from clrec_tf.data.exposures import read_exposures
from clrec_tf.data.input_pipeline import training_dataset
from clrec_tf.data.item_rows import read_items
from clrec_tf.data import schema as schema_lib
from clrec_tf.errors import UserError
from clrec_tf.objectives.base import ObjectiveInputs
from clrec_tf.objectives import build
from clrec_tf.objectives import propensity_fit
from clrec_tf.objectives import propensity_models as models
from tests.naive_queue import make_batch
from tests.prepared_data import prepare_text

# Trained on per user (the last two of each are held out): items p q r p, p q q, r p. Categories: p k, q k, r l.
CLICKS = "user_id,item_id,timestamp,tags,category\n" + "".join(
    f"{user},{item},{10 * place},{'s|t' if item == 'p' else 's'},{'l' if item == 'r' else 'k'}\n"
    for user, items in (("a", "pqrpqr"), ("b", "pqqpp"), ("c", "rpqq")) for place, item in enumerate(items))
SHOWN = "user_id,item_id,timestamp\n" + "".join(f"{row}\n" for row in (
    "a,p,5", "a,q,5", "a,p,15", "a,r,25", "b,p,5", "b,p,15", "b,p,15", "c,r,5"))
P, Q, R = 1, 2, 3


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("propensity")
    (folder / "shown.csv").write_text(SHOWN)
    return prepare_text(folder, CLICKS, min_train_length=2, impressions=str(folder / "shown.csv"),
                        multi_feature_columns=("tags",), feature_columns=("category",))


def fit(config, schema, manifest, batches, plan):
    data_dir = config.paths.data_dir
    inputs = ObjectiveInputs(
        config, None, None, lambda width: read_items(data_dir, schema, manifest, width),
        lambda flag: read_exposures(data_dir, manifest, flag), schema=schema, batches=lambda: batches,
        epoch_steps=plan.steps(0))
    return propensity_fit.fit(inputs, config.objective, config.objective.cap(schema.num_items))


def fitted(data_dir, epochs=1, **settings):
    """q̂ of a batch, on the data and by the settings of the loss."""
    config = Config(Paths(data_dir=data_dir),
                    train=TrainConfig(batch_size=2, target_mode="sliding", epochs=epochs)).but(loss="ipw", **settings)
    schema, manifest = schema_lib.load_schema(data_dir), schema_lib.load_manifest(data_dir)
    plan = EpochPlan(manifest.shards["train"], 2, 8, "sliding", 0)
    batches = training_dataset(data_dir, schema, manifest, plan, Assignments(plan, epochs).remaining(), 4)
    of_batch, constants = fit(config, schema, manifest, batches, plan)
    return lambda batch: of_batch(batch, constants)


def asked(of_batch, pairs):
    """q̂ of (last click, item) pairs; last click 0: none."""
    after, items = zip(*pairs)
    batch = make_batch(items, histories=[[2, last] if last else [0, 0] for last in after])
    return of_batch(batch).numpy()


@pytest.fixture(name="logged")
def records(caplog, monkeypatch):
    """What the library logs, whatever earlier tests made of its logger."""
    logger = logging.getLogger("absl")
    monkeypatch.setattr(logger, "propagate", True)
    caplog.set_level(logging.INFO, "absl")
    return caplog


# The models by pencil.


def test_popularity_by_pencil():
    share = models.popularity(np.array([2, 2, 1]), 5)
    np.testing.assert_allclose(share, [0, 2 / 7, 3 / 7, 1 / 7, 1 / 7])
    np.testing.assert_allclose(models.popularity(np.zeros(0, int), 3), [0, 1 / 2, 1 / 2])


def test_by_context_by_pencil():
    table = models.by_context(np.array([1, 1, 1, 2]), np.array([1, 1, 2, 2]), 3, 4)
    share = np.array([0, 3, 3, 1]) / 7
    np.testing.assert_allclose(table, [share, ([0, 2, 1, 0] + 20 * share) / 23, ([0, 0, 1, 0] + 20 * share) / 21])
    np.testing.assert_allclose(table.sum(axis=1), 1)
    many = models.by_context(np.repeat(1, 10 ** 6), np.repeat([1, 3], [250_000, 750_000]), 2, 4)
    np.testing.assert_allclose(many[1], [0, .25, 0, .75], atol=1e-4)  # what was seen often stands for itself


def test_a_table_is_read_by_the_context_of_the_last_click():
    table = models.TablePropensity(np.arange(12).reshape(3, 4) / 12, np.array([0, 2, 2, 1]))
    found = table(tf.constant([0, 1, 3, 2], tf.int64), tf.constant([1, 3, 0, 2], tf.int64))
    np.testing.assert_allclose(found, np.array([1, 8 + 3, 4, 8 + 2]) / 12, rtol=1e-6)


def test_a_planted_propensity_is_found_again():
    """q(y|x) of rank 2 over 6 contexts and 10 items; from 40,000 exposures."""
    rng, contexts, items = np.random.default_rng(0), 6, 10
    logits = rng.normal(size=(contexts, 2)) @ rng.normal(size=(2, items)) * 1.5
    planted = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    after = rng.integers(contexts, size=40_000)
    shown = 1 + (rng.random((40_000, 1)) > planted[after].cumsum(axis=1)).sum(axis=1)
    share = models.popularity(shown, items + 1)
    model = models.SoftmaxPropensity(share, 1)
    start = -np.mean(np.log(model(tf.constant(after), tf.constant(shown))))
    np.testing.assert_allclose(start, -np.mean(np.log(share[shown])), atol=.05)  # it begins at popularity
    loss = model.fit(after, shown)
    every = np.stack([model(tf.fill([items], row), tf.range(1, items + 1)) for row in range(contexts)])
    np.testing.assert_allclose(every.sum(axis=1), 1, atol=1e-5)  # nothing for padding
    assert np.abs(every - planted).max() < .015
    assert np.sum(planted * np.log(planted / every)) / contexts < .001
    entropy = -np.mean(np.log(planted[after, shown - 1]))
    assert abs(loss - entropy) < .02 < start - loss


def test_a_fit_is_a_function_of_data_and_seed(monkeypatch):
    monkeypatch.setattr(models, "SOFTMAX_STEPS", 20)
    rng = np.random.default_rng(0)
    after, shown = rng.integers(4, size=500), rng.integers(1, 4, size=500)
    found = []
    for seed in (1, 1, 2):
        model = models.SoftmaxPropensity(models.popularity(shown, 4), seed)
        model.fit(after, shown)
        found.append(model(tf.constant(after), tf.constant(shown)).numpy())
    np.testing.assert_array_equal(found[0], found[1])
    assert np.abs(found[0] - found[2]).max() > 1e-4


# On a data set.

# Pairs (last click, shown) of SHOWN in order of time.
EXPOSURES = [(P, P), (P, Q), (P, P), (R, R), (Q, P), (Q, P), (R, R), (Q, R)]


def test_popularity_of_impressions(data_dir):
    found = asked(fitted(data_dir), [(0, P), (P, Q), (R, R), (Q, P)])
    np.testing.assert_allclose(found, np.array([6, 2, 3, 6]) / 11, rtol=1e-6)  # (5+1, 1+1, 2+1) / (8+3)


def test_popularity_of_clicks_whatever_the_number_of_epochs(data_dir):
    """Targets: a q r p, b q q, c p; so p 2, q 3, r 1."""
    for epochs in (1, 3):
        found = asked(fitted(data_dir, epochs, propensity_data="clicks"), [(0, P), (P, Q), (R, R)])
        np.testing.assert_allclose(found, np.array([3, 4, 2]) / 9, rtol=1e-6)


def pairs_of(data_dir):
    manifest = schema_lib.load_manifest(data_dir)
    return build.read_exposures(data_dir, manifest, "--x").tolist()


@pytest.mark.parametrize("feature,context_of", [("category", {0: 0, P: 1, Q: 1, R: 2}), ("", {0: 0, P: 1, Q: 1, R: 2})])
def test_category_of_the_last_click(data_dir, feature, context_of):
    """Of several values, tags are no context; the first feature of one value is the default."""
    shown = pairs_of(data_dir)
    share = {item: (sum(pair[1] == item for pair in shown) + 1) / (len(shown) + 3) for item in (P, Q, R)}
    question = [(after, item) for after in (0, P, Q, R) for item in (P, Q, R)]
    expected = []
    for after, item in question:
        own = [pair[1] for pair in shown if context_of[pair[0]] == context_of[after]]
        expected.append((own.count(item) + 20 * share[item]) / (len(own) + 20))
    found = asked(fitted(data_dir, propensity="category", propensity_feature=feature), question)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert len(set(np.round(found, 6))) > 6  # contexts differ


def test_softmax_of_impressions_is_logged_beside_popularity(data_dir, logged, monkeypatch):
    monkeypatch.setattr(models, "SOFTMAX_STEPS", 400)
    of_batch = fitted(data_dir, propensity="softmax")
    assert "of popularity alone" in logged.text and "cancels the signal" not in logged.text
    shown = pairs_of(data_dir)
    after_p = [item for last, item in shown if last == P]
    found = asked(of_batch, [(P, item) for item in (P, Q, R)])
    np.testing.assert_allclose(found, [after_p.count(item) / len(after_p) for item in (P, Q, R)], atol=.05)


def test_fitting_on_clicks_is_said_and_warned_of_where_the_model_is_fine(data_dir, logged, monkeypatch):
    monkeypatch.setattr(models, "SOFTMAX_STEPS", 5)
    for kind, warned in (("popularity", False), ("softmax", True)):
        logged.clear()
        fitted(data_dir, propensity=kind, propensity_data="clicks")
        assert "q̂ is fitted on clicks" in logged.text
        warnings = [record for record in logged.records if record.levelno == logging.WARNING]
        assert any("cancels the signal" in record.getMessage() for record in warnings) == warned


def report_of(propensities, weights, cap, logged):
    batch = make_batch([2] * len(weights), weights=weights)
    propensity_fit.report(lambda _: tf.constant(propensities), tf.data.Dataset.from_tensors(batch), cap)
    return logged.records[-1].getMessage()


def test_the_report_by_pencil(logged):
    """Weights 2, 4, 20: (26)²/420 = 1.6095 of 3 = 53.7 %; the last is clipped; 20 is 2.3 times the mean 8.67."""
    text = report_of([.5, .25, .01, 1e-9], [1.0, 2.0, .5, 0.0], 20.0, logged)
    assert "of 3 training examples: effective sample size 53.7 %, clipped 33.3 %, largest 2.3 times the mean" in text
    text = report_of([.5, .5, .01, 0.0], [1.0, 1.0, 0.0, 0.0], np.inf, logged)
    assert "of 2 training examples: effective sample size 100.0 %, clipped 0.0 %, largest 1.0 times" in text


def test_the_cap_counts_in_averages(data_dir, logged):
    """--ipw_cap=1: q̂ of the average item, 1/3, is the last that is not clipped."""
    fitted(data_dir, ipw_cap=1.0)
    # Weights of the targets q q q r p p: min(1/q̂, 3) of q̂ = 2/11, 3/11, 6/11.
    weights = np.array([3, 3, 3, 3, 11 / 6, 11 / 6])
    size = 100 * weights.sum() ** 2 / (weights ** 2).sum() / 6
    assert f"effective sample size {size:.1f} %, clipped {100 * 4 / 6:.1f} %" in logged.text


def test_pairs_of_a_batch():
    batch = make_batch([5, 6, 7, 8], weights=[1, 0, .5, 1], histories=[[3, 4], [3, 0], [2, 0], [0, 0]])
    assert propensity_fit.pairs(batch).tolist() == [[4, 5], [2, 7], [0, 8]]


@pytest.mark.parametrize("settings,epochs,message", [
    (dict(propensity="category", propensity_feature="brand"), 1, "--propensity_feature=brand: .* data has category"),
    (dict(propensity="category", propensity_feature="tags"), 1, "--propensity_feature=tags: .*one value"),
    (dict(propensity_data="clicks"), 0, "--loss=ipw: no training example counts: give --epochs=1"),
    (dict(), 0, "--loss=ipw: no training example counts: give --epochs=1")])
def test_refusals(data_dir, settings, epochs, message):
    with pytest.raises(UserError, match=message):
        fitted(data_dir, epochs, **settings)


def test_refusals_of_sizes_and_of_data_without_features_or_impressions(data_dir, tmp_path, monkeypatch):
    monkeypatch.setattr(propensity_fit, "MAX_TABLE", 5)
    with pytest.raises(UserError, match="--propensity=category: 4 values times 4 items .* --propensity_feature"):
        fitted(data_dir, propensity="category")
    monkeypatch.setattr(propensity_fit, "MAX_FULL_SOFTMAX", 2)
    with pytest.raises(UserError, match="--propensity=softmax scores every item; 3 are more than 2"):
        fitted(data_dir, propensity="softmax")
    plain = prepare_text(tmp_path, CLICKS, min_train_length=2)
    with pytest.raises(UserError, match="--loss=ipw needs impressions.*--impressions=FILE"):
        fitted(plain)
    with pytest.raises(UserError, match="--propensity_feature=: .*the data has none"):
        fitted(plain, propensity="category", propensity_data="clicks")


def test_sequences_of_one_click_are_no_examples(tmp_path):
    single = prepare_text(tmp_path, "user_id,item_id,timestamp\na,p,1\nb,q,2\n", min_train_length=1)
    schema, manifest = schema_lib.load_schema(single), schema_lib.load_manifest(single)
    config = Config(Paths(data_dir=single)).but(loss="ipw", propensity_data="clicks")
    plan = EpochPlan(manifest.shards["train"], 2, 8, "last", 0)
    with pytest.raises(UserError, match="sequences of two clicks or more"):
        fit(config, schema, manifest, training_dataset(single, schema, manifest, plan,
                                                       Assignments(plan, 1).remaining(), 4), plan)
