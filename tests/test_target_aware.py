"""Encoders whose slots each candidate reads by itself, RUM and HPMN: equations, what is trained, what is refused."""
import json

import numpy as np
import pytest
import tensorflow as tf

from clrec_tf.config import Config
from clrec_tf.daily import main as daily
from clrec_tf.data.held_out_examples import read_evaluation_set
from clrec_tf.encoders.base import Sizes
from clrec_tf.encoders.clicks import ClickEncoder
from clrec_tf.encoders.items import ItemEncoder
from clrec_tf.errors import UserError
from clrec_tf.evaluate import evaluate
from clrec_tf.evaluation.auc_protocol import join_of
from clrec_tf.evaluation.auc_protocol import pair_scores
from clrec_tf.losses import contrastive
from clrec_tf.losses.auxiliary import slot_covariance
from clrec_tf.models.clrec import CLRec
from clrec_tf.models.encode import Encoder
from clrec_tf.objectives.all_clicks import AllClicks
from clrec_tf.objectives.alias_sampler import AliasSampler
from clrec_tf.objectives.contrastive import build_variant
from clrec_tf.objectives.full_softmax import FullSoftmax
from clrec_tf.objectives.negative_sampling import NegativeSampling
from clrec_tf.publishing.export_run import export
from clrec_tf.report import write_report
from clrec_tf.settings.registry import ENCODERS
from clrec_tf.train import run_stages
from clrec_tf.training.restore import load_trained
from tests.loops import local_variable
from tests.loops import ROWS
from tests import naive_queue
from tests import prepared_data
from tests import small_run
from tests.cases import in_ci
from tests import tiny_multi
from tests.test_published_encoders import clicks_of
from tests.test_published_encoders import DIM
from tests.test_published_encoders import gru
from tests.test_published_encoders import LENGTH
from tests.test_published_encoders import LENGTHS
from tests.test_published_encoders import random_encoder
from tests.test_published_encoders import softmax
from tests.test_published_encoders import weights_of

SMALL = dict(rum=dict(memory_clicks=3, memory_weight=.4), hpmn=dict(memory_layers=3))
NAMES = tuple(SMALL)
TEMPERATURE = .5


def encoder_of(name, **settings):
    """One whose biases are random too."""
    return random_encoder(name, **{**SMALL[name], **settings})


# ---- the equations


@pytest.fixture(scope="module", name="vectors")
def fixture_vectors():
    """Slots [3,4,6] and items [5,6]."""
    rng = np.random.default_rng(2)
    return rng.normal(size=(3, 4, DIM)).astype(np.float32), rng.normal(size=(5, DIM)).astype(np.float32)


def read(slots, item):
    """Σ_k softmax_k(φ_k)·φ_k, one number at a time."""
    logits = [slot @ item / TEMPERATURE for slot in slots.astype(float)]
    return sum(share * logit for share, logit in zip(softmax(logits), logits))


def test_each_candidate_reads_the_slots_by_itself(vectors):
    slots, items = vectors
    expected = [[read(user, item) for item in items] for user in slots]
    users, own = tf.constant(slots), np.stack([items, items[::-1], items])
    np.testing.assert_allclose(contrastive.pairwise_logits(users, tf.constant(items), TEMPERATURE), expected, rtol=1e-5)
    paired = contrastive.paired_logits(users, tf.constant(items[:3]), TEMPERATURE)
    np.testing.assert_allclose(paired, np.diag(expected), rtol=1e-5)
    listed = contrastive.listed_logits(users, tf.constant(own), TEMPERATURE)
    np.testing.assert_allclose(listed, [expected[0], expected[1][::-1], expected[2]], rtol=1e-5)


def test_gradient_of_a_read_by_differences():
    rng = np.random.default_rng(3)
    logits, upstream = rng.normal(0, 2, (2, 3, 4)), rng.normal(size=(2, 4))
    value = lambda logits: np.sum(upstream * contrastive.attended_logits(tf.constant(logits), axis=1).numpy())
    with tf.GradientTape() as tape:
        given = tf.constant(logits)
        tape.watch(given)
        total = tf.reduce_sum(upstream * contrastive.attended_logits(given, axis=1))
    expected = np.zeros_like(logits)
    for place in np.ndindex(logits.shape):
        shift = np.zeros_like(logits)
        shift[place] = 1e-5
        expected[place] = (value(logits + shift) - value(logits - shift)) / 2e-5
    np.testing.assert_allclose(tape.gradient(total, given), expected, atol=1e-8)


def test_of_one_slot_all_is_as_of_a_vector(vectors):
    slots, items = vectors
    for function, of in ((contrastive.pairwise_logits, items), (contrastive.paired_logits, items[:3]),
                         (contrastive.listed_logits, np.stack([items] * 3))):
        alone, as_slot = (function(tf.constant(users), tf.constant(of), TEMPERATURE)
                          for users in (slots[:, 0], slots[:, :1]))
        np.testing.assert_allclose(alone, as_slot, rtol=1e-5)


def test_rums_slots_are_the_papers_merge(vectors):
    """Of products: ⟨p + α·Σ_k a_k·x_k, y⟩ with a = softmax_k(β·⟨x_k, y⟩), β = α/ρ."""
    weight = SMALL["rum"]["memory_weight"]
    given = clicks_of([6, 3])
    slots = encoder_of("rum")(given).numpy()
    for user, length in enumerate([6, 3]):
        rows = given.vectors.numpy()[user, :length].astype(float)
        for item in vectors[1]:
            shares = softmax([weight / TEMPERATURE * row @ item for row in rows[-3:]])
            merged = rows.mean(axis=0) + weight * sum(share * row for share, row in zip(shares, rows[-3:]))
            assert read(slots[user], item) == pytest.approx(merged @ item / TEMPERATURE, rel=1e-5)


def rum_by_loops(encoder, rows):
    memory = [np.zeros(DIM)] * (encoder.settings.memory_clicks - len(rows)) + list(rows)
    return [np.mean(rows, axis=0) + encoder.settings.memory_weight * row
            for row in memory[-encoder.settings.memory_clicks:]]


def hpmn_by_loops(encoder, rows):
    """Click by click: layer k takes a step where 2^k divides the click's number from 1."""
    count = len(encoder.layers)
    reads, states = [[] for _ in range(count)], [None] * count
    for number, row in enumerate(rows, 1):
        below = row * DIM ** .5
        for k in range(count):
            if number % 2 ** k:
                break
            reads[k].append(below)
            below = states[k] = gru(encoder.layers[k], reads[k])[-1]
    slots = []
    for layer, state in zip(encoder.output_maps, states):
        kernel, bias = weights_of(layer)
        slots.append(np.zeros(DIM) if state is None else state @ kernel + bias)
    return slots


LOOPS = dict(rum=rum_by_loops, hpmn=hpmn_by_loops)


@pytest.mark.parametrize("name", NAMES)
def test_slots_by_a_loop_over_clicks(name):
    encoder, given = encoder_of(name), clicks_of(LENGTHS, noise=9.0)
    slots = encoder(given).numpy()
    assert slots.shape == (len(LENGTHS), 3, DIM)
    for user, length in enumerate(LENGTHS):
        rows = given.vectors.numpy()[user, :length].astype(float)
        expected = LOOPS[name](encoder, rows) if length else np.zeros((3, DIM))
        np.testing.assert_allclose(slots[user], expected, atol=2e-5)


@pytest.mark.parametrize("name", NAMES)
def test_padding_has_no_influence_and_no_history_is_finite(name):
    lengths = [8, 4, 1, 2, 0]  # with two steps of the last layer
    encoder, given = encoder_of(name), clicks_of(lengths, 9, noise=40.0)
    for same in (given, clicks_of(lengths, LENGTH + 3)):
        np.testing.assert_allclose(encoder(same), encoder(clicks_of(lengths, 9)), atol=1e-6)
    items = tf.constant(np.random.default_rng(0).normal(size=(4, DIM)), tf.float32)
    with tf.GradientTape() as tape:
        tape.watch(given.vectors)
        slots, added = encoder.with_auxiliary(given)
        users = contrastive.l2_normalize(slots)
        total = tf.reduce_sum(contrastive.pairwise_logits(users, items, .07)) + tf.reduce_sum(
            0.0 if added is None else added)
    of_clicks, *of_weights = tape.gradient(total, [given.vectors, *encoder.trainable_weights])
    assert not of_clicks.numpy()[~given.mask.numpy()].any() and of_clicks.numpy()[0, 7].any()
    assert all(np.isfinite(part).all() and np.any(part) for part in (of_clicks, *of_weights))


def test_covariance_of_slots(vectors):
    slots = vectors[0]
    expected = []
    for user in slots:
        covariance = np.cov(user, bias=True)
        expected.append(.5 * (np.sum(covariance ** 2) - np.sum(np.diag(covariance) ** 2)))
    np.testing.assert_allclose(slot_covariance(tf.constant(slots)), expected, rtol=1e-5)


def test_hpmn_adds_the_covariance_of_its_slots():
    encoder = encoder_of("hpmn", covariance_weight=3.0)
    slots, added = encoder.with_auxiliary(clicks_of([8, 5, 0], 9))
    np.testing.assert_array_equal(slots, encoder(clicks_of([8, 5, 0], 9)))
    units = slots.numpy() / np.maximum(np.linalg.norm(slots, axis=2, keepdims=True), 1e-6)
    np.testing.assert_allclose(added, 3 * slot_covariance(tf.constant(units)), rtol=1e-5)
    assert added[0] > 0 and added[2] == 0


def aware_model():
    """`naive_queue`'s items, and RUM over two clicks."""
    cls = ENCODERS.get("rum")
    encoder = cls(cls.Settings(memory_clicks=2, memory_weight=.4), Sizes(naive_queue.DIM))
    return CLRec(ItemEncoder(naive_queue.ITEMS + 1, naive_queue.DIM, (), seed=3),
                 ClickEncoder(naive_queue.DIM, naive_queue.HISTORY, "none", (), 0), encoder, "cosine", TEMPERATURE)


def sampled(model):
    """Negative sampling whose negatives are all item 5."""
    sampler = AliasSampler(np.eye(naive_queue.ITEMS)[4], 0, local_variable)
    return NegativeSampling(model, ROWS, sampler, 3)


LOSSES = dict(in_batch=None, cached=None, raw=None, full_softmax=lambda model: FullSoftmax(model, ROWS),
              negative_sampling=sampled)


@pytest.mark.parametrize("name", LOSSES)
def test_losses_compare_each_candidate_by_its_own_attention(name):
    """Of a second batch, after which a queue holds both."""
    model, rng = aware_model(), np.random.default_rng(1)
    first, batch = (naive_queue.random_batch(rng, 4, all_valid=True) for _ in range(2))
    make = LOSSES[name] or (lambda model: build_variant(name, model, 8, False, local_variable, balanced=False))
    objective = make(model).open()
    objective.rows(first)
    table = model.item_encoder.ids.table
    with tf.GradientTape() as tape:
        losses = objective.rows(batch)
        total = tf.reduce_sum(losses)
    slots, items = model.encode(batch).users.numpy(), contrastive.l2_normalize(table).numpy()
    assert slots.shape == (4, 2, naive_queue.DIM)
    own, before = (each["target"][:, 0].numpy() for each in (batch, first))
    candidates = dict(in_batch=own, full_softmax=range(1, naive_queue.ITEMS + 1)).get(name, [*before, *own])
    for row, user in enumerate(slots):
        positive = read(user, items[own[row]])
        expected = np.log(sum(np.exp(read(user, items[item])) for item in candidates)) - positive
        if name == "negative_sampling":
            expected = np.log1p(np.exp(-positive)) + 3 * np.log1p(np.exp(read(user, items[5])))
        assert losses[row].numpy() == pytest.approx(expected, rel=1e-5)
    clicked = np.unique(batch["history"][batch["history"] > 0])
    assert np.abs(tf.convert_to_tensor(tape.gradient(total, table)).numpy()[clicked]).max(axis=1).min() > 1e-3


def test_all_clicks_weigh_what_each_item_reads():
    """−(φ(x,y) + log p̂(y)) + log Σ p̂(y')·e^φ(x,y'), with p̂ of a popularity of 1, 2, … for items 1, 2, …"""
    model, batch = aware_model(), naive_queue.random_batch(np.random.default_rng(1), 6)
    share = np.arange(1, naive_queue.ITEMS + 1) / sum(range(1, naive_queue.ITEMS + 1))
    objective = AllClicks(model, ROWS, np.append(-np.inf, np.log(share)).astype(np.float32))
    slots, items = model.encode(batch).users.numpy(), contrastive.l2_normalize(model.item_encoder.ids.table).numpy()
    expected = [np.log(sum(share[item - 1] * np.exp(read(user, items[item])) for item in range(1, len(items))))
                - read(user, items[own]) - np.log(share[own - 1])
                for user, own in zip(slots, batch["target"][:, 0].numpy())]
    weights = batch["weight"].numpy()
    assert len(set(weights)) > 2 and not weights.all()
    assert objective.open().loss(batch).numpy() == pytest.approx(np.average(expected, weights=weights), rel=1e-5)


# ---- trained and evaluated


@pytest.fixture(scope="module", name="data_dir")
def fixture_data_dir(tmp_path_factory):
    """A log in which an item is usually followed by the next one, split by users."""
    return prepared_data.prepare_text(tmp_path_factory.mktemp("log"), small_run.click_log(users=200), split="by_user",
                                      min_train_length=2, valid_share=0.2, shard_records=32)


def settings_of(name, data_dir, workdir, model=None, **training):
    return small_run.config(data_dir, workdir, model=dict(user_encoder=name, **SMALL[name], **(model or {})),
                            **{**dict(validate_every=4.0, validation_metric="auc/paired"), **training})


@pytest.mark.slow
@pytest.mark.parametrize("name", in_ci(NAMES, "rum"))
def test_a_planted_successor_is_told_from_a_random_item(data_dir, tmp_path, name):
    config = settings_of(name, data_dir, tmp_path, dict(queue="in_batch"), epochs=8, learning_rate=0.03)
    assert small_run.run(config) == 0
    result = evaluate(config.but(auc=True, untrained=True))
    references = [result["most_popular/auc/paired"], result["untrained/auc/paired"]]
    assert result["auc/paired"] > .75 > .6 > max(references) and not [key for key in result if "/full" in key]
    assert json.loads((tmp_path / "metrics.json").read_text())["auc/paired"] == result["auc/paired"]
    write_report([str(tmp_path)], str(tmp_path / "page.html"))
    assert f"{result['auc/paired']:.4f}" in (tmp_path / "page.html").read_text()
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    found = {row["step"]: row["valid/auc/paired"] for row in rows if "valid/auc/paired" in row}
    assert len(found) == 2 and result["step"] == max(found, key=found.get)


def test_pairs_are_scored_as_they_are_trained(vectors):
    """By the attention of such a model, by the sum of Multi-CLRec's vectors, and else by the largest product."""
    slots, items = vectors
    pairs = [[1, 5, 2], [3, 0, 4]]
    scores = lambda model: pair_scores(slots, items, np.array(pairs), TEMPERATURE, join_of(model))
    found = scores(aware_model())
    for row, ids in enumerate(pairs):
        expected = [TEMPERATURE * read(user, items[item - 1]) if item else 0 for user, item in zip(slots, ids)]
        np.testing.assert_allclose(found[row], expected, rtol=1e-5)
    products = np.stack([user @ items[item - 1] for user, item in zip(slots, pairs[0])])
    np.testing.assert_allclose(scores(naive_queue.tiny_model())[0], products.max(axis=1), rtol=1e-6)
    summed = TEMPERATURE * np.log(np.exp(products / TEMPERATURE).sum(axis=1))
    np.testing.assert_allclose(scores(tiny_multi.tiny_model())[0], summed, rtol=1e-5)


# ---- what is refused


def test_settings_are_refused():
    for settings, message in (
            (dict(user_encoder="hpmn", memory_layers=5, max_history=15), "--memory_layers=5: .*every 16-th click.*=15"),
            (dict(user_encoder="rum", memory_clicks=0), "--memory_clicks=0: must be ≥ 1"),
            (dict(user_encoder="hpmn", target_mode="all"), "--target_mode=all needs a user vector at every position")):
        with pytest.raises(UserError, match=message):
            Config.of(**settings)


def test_what_ranks_a_catalogue_is_refused_before_and_after_training(data_dir, tmp_path):
    reason = "with --user_encoder=rum each candidate reads a user's memory by itself, so users have no vector"
    config = settings_of("rum", data_dir, tmp_path / "run", epochs=1, validate_every=0.0)
    for stages, changes, message in (
            (("train",), dict(validate_every=1.0, validation_metric="hr@10/full"),
             f"--validation_metric=hr@10/full: {reason}.*--validation_metric=auc/paired"),
            (("train", "evaluate"), {}, f"evaluate ranks the catalogue: {reason}.*give --auc"),
            (("train", "export"), {}, f"--stages=export: {reason}")):
        with pytest.raises(UserError, match=message):
            run_stages(config.but(stages=stages, **changes))
    with pytest.raises(UserError, match=f"daily publishes what it trains: {reason}"):
        daily(config.but(days_dir=str(tmp_path / "days")))
    assert not (tmp_path / "run").exists() and not (tmp_path / "days").exists()
    assert small_run.run(config) == 0
    plain = Config.of(data_dir=data_dir, workdir=str(tmp_path / "run"))
    with pytest.raises(UserError, match=f"evaluate ranks the catalogue: {reason}"):
        evaluate(plain)
    with pytest.raises(UserError, match=f"export: {reason}"):
        export(plain.but(export_dir=str(tmp_path / "export")))
    assert not (tmp_path / "export").exists()
    trained = load_trained(plain, "latest")
    users = read_evaluation_set(data_dir, "test", trained.schema, trained.manifest)
    encoder = Encoder(trained.model, trained.max_history)
    with pytest.raises(UserError, match=f"a ranking of the catalogue: {reason}"):
        encoder.searched(users)
    assert encoder.scored(users).shape == (users.num_users, 3, 8)
