"""The task u2u: batches with what follows, its loss and queue in loops, with every loss, resumed, and what it learns."""
import collections
import json

import numpy as np
import pytest
import tensorflow as tf

from clrec_tf.config import Config
from clrec_tf.data.query_features import QueryFeature
from clrec_tf.data.schema import load_manifest
from clrec_tf.data.schema import load_schema
from clrec_tf.encoders.query import QueryEncoder
from clrec_tf.errors import UserError
from clrec_tf.lab.benchmarks import u2u_steps
from clrec_tf.models.batches import as_histories
from clrec_tf.models.batches import without_after
from clrec_tf.models.build import build_keys
from clrec_tf.models.build import build_model
from clrec_tf.objectives.all_clicks import AllClicks
from clrec_tf.objectives.build import build_objective
from clrec_tf.objectives.contrastive import build_variant
from clrec_tf.objectives.full_softmax import FullSoftmax
from clrec_tf.objectives.ipw import PropensityWeighted
from clrec_tf.objectives.user_to_user import UserToUser
from clrec_tf.training.runtime import LocalRuntime
from clrec_tf.training.setup import set_up
from tests.loops import central_differences
from tests.loops import l2
from tests.loops import local_variable
from tests.loops import LOG_Q
from tests.loops import ROWS
from tests.naive_queue import DIM
from tests.naive_queue import ITEMS
from tests.naive_queue import random_batch
from tests.naive_queue import TEMPERATURE
from tests.naive_queue import tiny_model
from tests.prepared_data import prepare_text
from tests.prepared_data import read_split
from tests import small_run
from tests.test_feeds import Reader
from tests.test_momentum import lagging

U2U = dict(pretext="u2u", u2u_queue_size=40)


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    return small_run.prepared(tmp_path_factory.mktemp("pretext"), dwell_column="stayed")


def test_batches_bring_the_target_and_the_clicks_behind_it(data_dir):
    """As a loop over the records cuts them, both in one process and for a worker's pool; a moment for each click."""
    reader = Reader(data_dir, epochs=1, clicks_after=4)
    found, records = [], {tuple(record["user_id"]): record for record in read_split(data_dir, "train")}
    while part := reader.slice(0, 3):
        found += part
    moments, hidden = collections.Counter(), 0
    for batch, expected in zip(found, reader.expected):
        tf.nest.map_structure(np.testing.assert_array_equal, batch, expected)
        for row in np.flatnonzero(batch["weight"]):
            record = records[batch["user_id"][row],]
            length, after = batch["length"][row], batch["after_length"][row]
            clicks = list(zip(record["item_id"], record["f:category"]))
            at = next(at for at in range(1, len(clicks)) if clicks[at] == tuple(batch["target"][row])
                      and clicks[max(0, at - 6):at] == [tuple(item) for item in batch["history"][row, :length]])
            last = min(at + 4, len(clicks))
            assert [tuple(item) for item in batch["after"][row, :after]] == clicks[at:last] and after == last - at
            assert not batch["after"][row, after:].any() and (batch["after_gap"][row, after:] == -1).all()
            unknown = (batch["time_gap"][row, :length] == -1).all()
            hidden += unknown
            gaps = [record["timestamp"][last - 1] - time for time in record["timestamp"][at:last]]
            assert batch["after_gap"][row, :after].tolist() == ([-1] * after if unknown else gaps)
            dwell = [max(seconds, -1) for seconds in record["dwell"][at:last]]
            assert batch["after_dwell"][row, :after].tolist() == ([-1] * after if unknown else dwell)
            moments[batch["user_id"][row], at] += 1
    assert set(moments) == {
        (user, at) for (user,), record in records.items() for at in range(1, len(record["item_id"]))}
    assert set(moments.values()) == {1} and 0 < hidden < len(moments) / 2


def batch_with_after(rng, size):
    """A `random_batch`, and for each row one to three clicks after."""
    lengths = rng.integers(1, 4, size)
    after = rng.integers(1, ITEMS + 1, (size, 3)) * (np.arange(3) < lengths[:, None])
    return {**random_batch(rng, size), "after": tf.constant(after)[:, :, None], "after_length": tf.constant(lengths)}


@pytest.mark.parametrize("masked", [False, True])
def test_loss_and_queue_are_those_of_a_loop(masked):
    rng, model, queue, size = np.random.default_rng(2), tiny_model(), collections.deque(maxlen=12), 5
    task = UserToUser(model, 12, 0.5, masked, local_variable, balanced=False).open()
    table = model.item_encoder.ids.table.numpy().astype(float)
    mean = lambda table, items: l2(np.mean([table[item] for item in items.numpy().ravel() if item], axis=0))

    for step in range(4):
        batch = batch_with_after(rng, size)
        valid, users = np.flatnonzero(batch["weight"].numpy()), batch["user_id"].numpy()
        queue.extend((users[row], mean(table, batch["after"][row]), (step, row)) for row in valid)

        def loss(table):
            losses = np.zeros(size)
            for row in valid:
                user = mean(table, batch["history"][row]) / TEMPERATURE
                scores = [user @ (mean(table, batch["after"][place[1]]) if place[0] == step else vector)
                          for owner, vector, place in queue
                          if not masked or owner != users[row] or place == (step, row)]
                losses[row] = np.log(np.sum(np.exp(scores))) - user @ mean(table, batch["after"][row])
            return losses @ batch["weight"].numpy() / batch["weight"].numpy().sum()

        with tf.GradientTape() as tape:
            found = tf.tensordot(task.rows(model.encode(batch), batch), batch["weight"] / sum(batch["weight"]), 1)
        np.testing.assert_allclose(found, 0.5 * loss(table), rtol=1e-5)
        gradient = tf.convert_to_tensor(tape.gradient(found, model.item_encoder.ids.table))
        np.testing.assert_allclose(gradient, 0.5 * central_differences(loss, [table.copy()])[0], atol=1e-5)
        metrics = task.metrics()
        np.testing.assert_allclose(metrics["u2u_loss"], 2 * found, rtol=1e-6)
        assert int(metrics["u2u_fill"]) == len(queue)


def test_keys_encode_what_follows_and_histories_learn():
    """f(y) is of the keys' items, without gradient: of what stands in no history none is given."""
    model, keys, averages = lagging()
    batch, table = batch_with_after(np.random.default_rng(7), 5), model.item_encoder.ids.table
    with tf.GradientTape() as tape:
        encoded = model.encode(batch)
        losses = UserToUser(model, 12, 1.0, False, local_variable, keys=keys).open().rows(encoded, batch)
    valid, logits = np.flatnonzero(batch["weight"].numpy()), encoded.users.numpy() @ np.transpose(
        [l2(np.mean([averages[item] for item in row.ravel() if item], axis=0)) for row in batch["after"].numpy()])
    logits /= TEMPERATURE
    for row in valid:
        expected = np.log(np.exp(logits[row, valid]).sum()) - logits[row, row]
        np.testing.assert_allclose(losses[row], expected, rtol=1e-5)
    found = tf.convert_to_tensor(tape.gradient(losses, table)).numpy().any(axis=1)
    histories = set(batch["history"].numpy().ravel()) - {0}
    assert set(batch["after"].numpy().ravel()) - {0} - histories and set(np.flatnonzero(found)) == histories


def test_features_of_users_and_requests_do_not_tell_whose_the_clicks_after_are():
    model, batch = tiny_model(), batch_with_after(np.random.default_rng(8), 5)
    model.query_encoder = QueryEncoder((QueryFeature("country", "context", "category", 4, 1),), DIM, seed=0)
    one, other = (model.encode({**batch, "query": batch["query"] + number}) for number in (1, 2))
    np.testing.assert_array_equal(one.after, other.after)
    assert np.abs(one.users - other.users).max(axis=1).min() > 1e-3


@pytest.mark.parametrize("given", [dict(), dict(mask_same_user=True, balanced_gradient=False, momentum_encoder=0.9)])
def test_its_queue_has_the_settings_of_the_loss(data_dir, given):
    config = small_run.config(data_dir, "unused", model={**U2U, "user_encoder": "mean", **given}).without_unread()
    schema, manifest = load_schema(data_dir), load_manifest(data_dir)
    model = build_model(config, schema)
    keys = build_keys(config, schema, model)
    task = build_objective(config, schema, manifest, model, LocalRuntime(), keys=keys).pretext
    assert (task.negatives.mask_same_user, task.negatives.balanced, bool(keys)) == (
        bool(given), not given, bool(given))
    batch = {name: tf.constant(value) for name, value in Reader(data_dir, 1, clicks_after=4).slice(0, 1)[0].items()}
    encoded = model.encode(batch)
    with tf.GradientTape() as tape:
        tape.watch(encoded.after)
        losses = task.open().rows(encoded, batch)
    assert (tape.gradient(losses, encoded.after) is None) == bool(given)  # keys stand in its place


def test_live_sequences_stand_for_the_whole_queue_in_the_gradient():
    model, gradients = tiny_model(), {}
    for balanced in (False, True):
        rng = np.random.default_rng(3)
        task = UserToUser(model, 12, 1.0, False, local_variable, balanced=balanced).open()
        for _ in range(3):
            batch = batch_with_after(rng, 4)
            encoded = model.encode(batch)
            users, after = tf.constant(encoded.users), tf.constant(encoded.after)
            with tf.GradientTape() as tape:
                tape.watch([users, after])
                logits = task.negatives.logits(batch, users, after)
                chances = [tf.reduce_sum(tf.exp(block), axis=1, keepdims=True) for block in logits[1:]]
                loss = tf.reduce_sum(tf.math.log(tf.add_n(chances))[:, 0] - logits[0])
            gradients[balanced] = tape.gradient(loss, [users, after]), users, after, logits, batch
    (of_users, literal), users, after, (_, live, older), batch = gradients[False]
    fill = int(task.metrics()["u2u_fill"])
    np.testing.assert_allclose(gradients[True][0][0], of_users, rtol=1e-5)
    total = tf.reduce_sum(tf.exp(live), axis=1) + tf.reduce_sum(tf.exp(older), axis=1)
    shares = tf.linalg.set_diag(tf.exp(live) / total[:, None], tf.zeros(4))  # of others' sequences
    times = fill / int(tf.math.count_nonzero(batch["weight"])) - 1
    extra = times * tf.matmul(shares, users / TEMPERATURE, transpose_a=True)
    np.testing.assert_allclose(gradients[True][0][1] - literal, extra, atol=1e-5)


@pytest.mark.parametrize("settings", [
    dict(user_encoder="mean"), dict(user_encoder="multi_att", candidate_features=False),
    dict(user_encoder="sasrec"), dict(user_encoder="caser", caser_clicks=7)], ids=lambda each: each["user_encoder"])
def test_what_follows_is_encoded_as_a_history_would_be(data_dir, settings):
    """By its clicks and its times, and nothing of what the model gives else is another for it."""
    config = small_run.config(data_dir, "unused", model={**U2U, **settings}).without_unread()
    reader = Reader(data_dir, epochs=1, clicks_after=5)
    batch = {name: tf.constant(value) for name, value in reader.slice(0, 1)[0].items()}
    model = build_model(config, reader.schema)
    encoded, alone = model.encode(batch), model.encode(without_after(batch))
    np.testing.assert_allclose(encoded.after, model.encode(as_histories(batch)).users, atol=1e-6)
    np.testing.assert_allclose(encoded.users, alone.users, atol=1e-6)
    np.testing.assert_allclose(encoded.positives, alone.positives, atol=1e-6)
    assert alone.after is None and np.abs(encoded.after - encoded.users).max() > 0.1


def objectives(model):
    """Name -> one of each kind that adds something to its rows."""
    softmax = FullSoftmax(model, ROWS)
    return {"cached": build_variant("cached", model, 12, False, local_variable), "full_softmax": softmax,
            "ipw": PropensityWeighted(softmax, lambda batch, constants: tf.constant([.5, .1, .2, .4]), 100.0),
            "all_clicks": AllClicks(model, ROWS, LOG_Q.astype(np.float32))}


@pytest.mark.parametrize("kind", ["cached", "full_softmax", "ipw", "all_clicks"])
def test_it_is_added_to_every_loss(kind):
    """λ times its own loss, by which the other, and what it is by chance, stay as they are."""
    model, batch = tiny_model(), batch_with_after(np.random.default_rng(4), 4)
    alone, task = objectives(model)[kind], UserToUser(model, 12, 3.0, False, local_variable)
    both = objectives(model)[kind].with_pretext(task)
    assert set(both.states) == {*alone.states, "u2u_queue"}
    opened, fill = both.open(), np.log(np.count_nonzero(batch["weight"]))
    loss, added = opened.loss(batch), opened.pretext.metrics()["u2u_loss"]
    np.testing.assert_allclose(loss, alone.open().loss(batch) + 3 * added, rtol=1e-5)
    assert added > 0.1
    np.testing.assert_allclose(opened.pretext.chance_loss(batch), 3 * fill, rtol=1e-6)


@pytest.mark.slow
def test_a_killed_run_goes_on_bit_by_bit_with_its_sequences_and_keys(data_dir, tmp_path):
    """At step 10 of 28 an epoch."""
    model = {**U2U, "momentum_encoder": 0.9, "user_encoder": "dnn"}
    settings = lambda name: small_run.config(data_dir, tmp_path / name, model=model, epochs=1, keep_checkpoints=10)
    assert small_run.run(settings("whole")) == 0
    small_run.killed(tmp_path / "whole", tmp_path / "killed")
    assert small_run.run(settings("killed")) == 0
    whole, rows = small_run.losses(tmp_path / "whole"), [json.loads(line) for line in (
        tmp_path / "killed/metrics.jsonl").read_text().splitlines()]
    assert small_run.losses(tmp_path / "killed") == whole and len(whole) > 20
    assert rows[-1]["u2u_fill"] == 40 and 0 < rows[-1]["u2u_loss"] < rows[-1]["loss"]


def test_lasting_taste_is_learned(tmp_path):
    """Users click items of one of ten kinds, so that of ten sequences one is of the user's own kind: by chance the loss
    is the log of the queue's fill, known kinds leave it a tenth of that many."""
    rng, lines = np.random.default_rng(0), ["user_id,item_id,timestamp"]
    for user in range(120):
        lines += [f"{user},{1 + user % 10 + 10 * rng.integers(6)},{1_600_000_000 + 60 * click}" for click in range(12)]
    folder = prepare_text(tmp_path, "\n".join(lines) + "\n")
    config = small_run.config(folder, tmp_path / "run", model={**U2U, "user_encoder": "mean"}, epochs=4, batch_size=32,
                              learning_rate=0.03, log_every_steps=20, steps_per_call=20)
    assert small_run.run(config) == 0
    rows = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["u2u_fill"] == 40 and rows[-1]["u2u_loss"] < np.log(40) - 1  # of log 10 at most


def test_the_benchmark_compares_equal_losses_and_counts_clicks(monkeypatch):
    """Without learning, sequences encoded anew are those that the cached queue holds."""
    losses = {}

    def measured(calls, rounds):
        del rounds
        losses.update({kind: [float(call()["loss"]) for _ in range(3)] for kind, call in calls.items()})
        return {kind: [1.0 if kind == "cached" else 2.0] for kind in calls}

    monkeypatch.setattr(u2u_steps, "in_child", lambda function, config: function(config))
    monkeypatch.setattr(u2u_steps.timing, "take_turns", measured)
    config = Config.of(batch_size=4, queue_size=10, embedding_dim=8, user_encoder="mean", learning_rate=0.0, rounds=1,
                       benchmark_items=2000, benchmark_histories=("2",))
    found = u2u_steps.run(config)
    np.testing.assert_allclose(losses["reencoded"], losses["cached"], rtol=1e-5)
    bound = (4 * 2 + 10 * 2) / (4 * 2 + 4 * 2)
    assert found["cases"][0]["bound"] == pytest.approx(bound, abs=1e-3)
    assert found["ratios"] == {"cached_vs_reencoded_T2": 2.0, "cached_vs_reencoded_T2_of_bound": pytest.approx(
        1 / (bound - 1), abs=1e-3)}


@pytest.mark.parametrize("settings, words", [
    (dict(pretext="u2u", model="multi_clrec"), "--model=multi_clrec gives several"),
    (dict(pretext="u2u", user_encoder="mind"), "--user_encoder=mind gives several"),
    (dict(pretext="u2u", user_encoder="rum"), "--user_encoder=rum gives several"),
    (dict(pretext="u2u", history_dropout=0.1), "--history_dropout=0.1: of a hidden history nothing is left"),
    (dict(pretext="u2u", u2u_queue_size=100), "--u2u_queue_size=100 is smaller than --batch_size=256"),
    (dict(u2u_weight=2.0), "--u2u_weight=2.0 belongs to --pretext=u2u, not to none: leave it out"),
    (dict(pretext="u2u", u2u_weight=0.0), "u2u_weight=0.0: must be ≥ 1e-06"),
    (dict(pretext="i2i"), "pretext=i2i: must be one of none, u2u")])
def test_what_the_task_cannot_take_is_refused(settings, words):
    with pytest.raises(UserError, match=words):
        Config.of(**settings).refuse_unread()


@pytest.mark.parametrize("mode", ["last", "all"])
def test_examples_without_clicks_after_are_refused(data_dir, tmp_path, mode):
    config = small_run.config(data_dir, tmp_path, target_mode=mode, model={
        **U2U, "user_encoder": "mean", "time_embedding": "none", "queue": "in_batch"})
    with pytest.raises(UserError, match=f"--target_mode={mode}: .*; use --target_mode=sliding"):
        set_up(config, LocalRuntime())
