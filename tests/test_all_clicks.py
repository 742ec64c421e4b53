"""--queue=all_clicks: maximum likelihood with a fixed bias of log popularity, the limit of a queue of all clicks."""
import numpy as np
import pytest
import tensorflow as tf

from clrec_tf.config import Config
from clrec_tf.data.item_rows import Items
from clrec_tf.data.schema import Feature
from clrec_tf.data.schema import Schema
from clrec_tf.errors import UserError
from clrec_tf.losses import closed_forms
from clrec_tf.objectives import all_clicks
from clrec_tf.objectives.all_clicks import AllClicks
from clrec_tf.objectives.all_clicks import make_all_clicks
from clrec_tf.objectives.base import ObjectiveInputs
from clrec_tf.objectives.contrastive import build_variant
from clrec_tf.objectives.contrastive import Contrastive
from clrec_tf.objectives.full_softmax import FullSoftmax
from tests.loops import central_differences
from tests.loops import local_variable
from tests.loops import log_sum_exp
from tests.loops import mean_of_rows
from tests.loops import ROWS
from tests.loops import table_step
from tests.loops import Towers
from tests.loops import WIDE_ROWS
from tests.naive_queue import DIM
from tests.naive_queue import ITEMS
from tests.naive_queue import make_batch
from tests.naive_queue import random_batch
from tests.naive_queue import TEMPERATURE
from tests.naive_queue import tiny_model

COUNTS = np.array([0, 40, 1, 7, 3, 12, 5, 0, 2, 0, 9, 30, 4])  # items 7 and 9 were never clicked


def inputs_of(model, counts=COUNTS, rows=ROWS, num_items=ITEMS, **settings):
    schema = Schema(num_items=num_items, item_rows=len(rows), features=(), content_width=0, id_type="int",
                    has_timestamps=False, num_users=9, total_clicks=99, split={}, settings={})
    return ObjectiveInputs(Config.of(queue="all_clicks", **settings), model, local_variable,
                           lambda width: Items(rows, counts), schema=schema)


def clicked(rng, size=6):
    """A batch whose targets were clicked in training, some rows without weight."""
    batch = random_batch(rng, size)
    return {**batch, "target": tf.constant(rng.choice(np.flatnonzero(COUNTS), (size, 1)))}


class LoopTowers(Towers):
    """`Towers` whose vectors are normalized only for the cosine."""

    similarity = "cosine"

    def logit(self, history, candidate):
        if self.similarity == "cosine":
            return super().logit(history, candidate)
        user = sum(self.ids[item] for item in history if item) / np.count_nonzero(history)
        return user @ self.ids[candidate] / TEMPERATURE


@pytest.mark.parametrize("beta", [1.0, .5, .25])
@pytest.mark.parametrize("similarity", ["cosine", "dot"])
@pytest.mark.parametrize("shown", [False, True])
def test_loss_and_gradients_equal_loops(beta, similarity, shown):
    rng, model = np.random.default_rng(3), tiny_model(similarity=similarity)
    counts = COUNTS[::-1].copy() + 1 if shown else COUNTS  # of impressions, say
    objective = make_all_clicks(inputs_of(model), counts if shown else None, beta)
    share = np.where(np.arange(ITEMS + 1) > 0, counts, 0) / counts[1:].sum()
    batch = clicked(rng)

    def loss_of(table):
        towers = LoopTowers([table])
        towers.similarity = similarity

        def of_row(row, history, target):
            terms = [towers.logit(history, item) + beta * np.log(share[item])
                     for item in range(1, ITEMS + 1) if share[item] > 0]
            return log_sum_exp(terms) - towers.logit(history, target) - beta * np.log(share[target])

        return mean_of_rows(batch, of_row)

    table = model.item_encoder.ids.table.numpy().astype(float)
    loss, gradient = table_step(objective, batch)
    np.testing.assert_allclose(loss, loss_of(table), rtol=1e-6)
    np.testing.assert_allclose(gradient, central_differences(loss_of, [table])[0], atol=2e-6)


def test_it_is_full_softmax_with_a_fixed_bias():
    """A bias is a further dimension: of the items log p, of the users 1 (times ρ). All counts alike: full softmax."""
    batch = make_batch([2, 3, 5, 6], histories=[[1, 4], [2, 0], [5, 6], [8, 9]], weights=[1, .5, 0, 2])
    even = table_step(make_all_clicks(inputs_of(tiny_model(), np.full(ITEMS + 1, 7)), None, 1.0), batch)
    softmax = table_step(FullSoftmax(tiny_model(), ROWS), batch)
    for found, expected in zip(even, softmax):
        np.testing.assert_allclose(found, expected, atol=1e-6)
    model = tiny_model()
    users = model.encode(batch).users.numpy().astype(float)
    items = model.score_vectors(model.item_vectors(ROWS)).numpy().astype(float)[1:]
    with np.errstate(divide="ignore"):
        logits = users @ items.T / TEMPERATURE + np.log(COUNTS[1:] / COUNTS.sum())
    rows = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(4), [1, 2, 4, 5]]
    found, _ = table_step(make_all_clicks(inputs_of(tiny_model()), None, 1.0), batch)
    np.testing.assert_allclose(found, np.average(rows, weights=[1, .5, 0, 2]), rtol=1e-6)


def test_it_is_the_limit_of_a_queue_that_holds_all_clicks():
    """A raw queue of 50 copies of every training click, in which one step's targets change next to nothing."""
    model, rng, copies = tiny_model(), np.random.default_rng(1), 50
    clicks = np.repeat(np.repeat(np.arange(ITEMS + 1), COUNTS), copies)
    queue = build_variant("raw", model, len(clicks) + 6, False, local_variable)
    queue.prefill([make_batch(clicks)])
    batch = {**clicked(rng), "weight": tf.ones([6])}
    table = model.item_encoder.ids.table
    with tf.GradientTape() as tape:
        loss = queue.open().loss(batch)
    objective = make_all_clicks(inputs_of(model), None, 1.0)
    found, gradient = table_step(objective, batch)
    # The queue's own term is log of a sum over clicks; the popularity of the target is no part of it.
    popularity = np.mean(np.log(COUNTS[batch["target"].numpy()[:, 0]] / COUNTS.sum()))
    np.testing.assert_allclose(float(loss) - np.log(len(clicks)), found + popularity, atol=3e-3)
    np.testing.assert_allclose(tf.convert_to_tensor(tape.gradient(loss, table)), gradient, atol=3e-3)
    assert objective.states == {} and objective.metric_names == () and not objective.prefills


@pytest.mark.parametrize("beta", [1.0, .5])
def test_the_optimum_is_the_click_probability_over_a_power_of_the_popularity(beta):
    """With logits log p(y|x)/p_d(y)^β the expected gradient vanishes; it is what the registered loss says it learns."""
    rng, contexts, items = np.random.default_rng(0), 3, ITEMS
    clicks = rng.dirichlet(np.ones(items), contexts)  # p(y|x), contexts equally often
    popularity = clicks.mean(axis=0)

    class Table:
        """A tower with a logit of its own for each context and item: users are contexts, items one-hot vectors."""
        temperature, logit_bound = 1.0, float("inf")
        logits = tf.Variable(np.log(clicks / popularity ** beta).astype(np.float32))

        def encode(self, batch, candidates, training):
            del training
            users = tf.gather(self.logits, batch["user_id"])
            one_hot = lambda rows: tf.one_hot(rows[:, 0] - 1, items)
            return type("Encoded", (), dict(users=users, positives=one_hot(batch["target"]),
                                            distinct=one_hot(candidates)))

        def auxiliary_losses(self, encoded, batch):
            return 0.0

    model = Table()
    objective = AllClicks(model, ROWS, np.append(-np.inf, beta * np.log(popularity)).astype(np.float32))
    every = dict(user_id=np.repeat(np.arange(contexts), items),
                 target=np.tile(np.arange(1, items + 1), contexts)[:, None])
    batch = {**{name: tf.constant(part, tf.int64) for name, part in every.items()},
             "weight": tf.constant(clicks.ravel() / contexts, tf.float32)}

    def gradient():
        with tf.GradientTape() as tape:
            loss = objective.open().loss(batch)
        return tf.convert_to_tensor(tape.gradient(loss, model.logits)).numpy()

    assert np.abs(gradient()).max() < 1e-7
    world = type("World", (), dict(clicks=clicks, click_popularity=popularity))
    learned = Contrastive.closed_form(world, Config.of(queue="all_clicks", debias_beta=beta).settings_of(Contrastive))
    np.testing.assert_allclose(learned, closed_forms.debiased(clicks, popularity, beta), rtol=1e-6)
    model.logits.assign(np.log(learned))
    assert np.abs(gradient()).max() < 1e-7
    model.logits.assign(np.log(clicks))
    assert np.abs(gradient()).max() > 1e-3


@pytest.mark.parametrize("beta", [0.0, .5, 1.0])
def test_items_that_were_never_clicked_are_no_candidates(beta):
    """As no queue ever holds them. β = 0 is maximum likelihood over the others."""
    model, batch = tiny_model(), make_batch([2, 3, 5], histories=[[1, 4], [2, 0], [5, 6]])
    loss, gradient = table_step(make_all_clicks(inputs_of(model), None, beta), batch)
    assert np.isfinite(loss) and np.isfinite(gradient).all()
    assert not gradient[[0, 7, 9]].any() and np.abs(gradient[[8, 10, 11, 12]]).min() > 0
    if beta == 0:
        items = np.delete(np.arange(1, ITEMS + 1), [6, 8])
        users = model.encode(batch).users.numpy()
        logits = users @ model.score_vectors(model.item_vectors(tf.constant(items[:, None]))).numpy().T / TEMPERATURE
        positives = logits[np.arange(3), [np.flatnonzero(items == item)[0] for item in (2, 3, 5)]]
        np.testing.assert_allclose(loss, np.mean(np.log(np.exp(logits).sum(axis=1)) - positives), rtol=1e-6)


def test_a_target_that_was_never_shown_is_trained():
    """Of impressions: its popularity is no part of the gradient, so it counts as that of the rarest."""
    model, batch = tiny_model(), make_batch([7, 3], histories=[[1, 4], [2, 0]])
    loss, gradient = table_step(make_all_clicks(inputs_of(model), COUNTS, 1.0), batch)
    assert np.isfinite(loss) and np.isfinite(gradient).all() and np.abs(gradient[7]).max() > 1e-3


def test_hash_buckets_are_candidates():
    """Clicks on them are not counted apart: each is a candidate as if clicked once."""
    counts = np.append(COUNTS[:-2], [0, 0])
    objective = make_all_clicks(inputs_of(tiny_model(), counts, num_items=ITEMS - 2), None, 1.0)
    found = objective.open().constants["log_popularity"].numpy()
    np.testing.assert_allclose(found[-2:], -np.log(COUNTS[:-2].sum() + 2), rtol=1e-6)
    loss, gradient = table_step(objective, make_batch([ITEMS, 3]))
    assert np.isfinite(loss) and np.abs(gradient[-2:]).min() > 0


def test_features_and_dot_products_that_are_large():
    model = tiny_model((Feature("category", 4, 1, 3), Feature("tags", 5, 2, 4)))
    objective = make_all_clicks(inputs_of(model, rows=WIDE_ROWS), None, 1.0)
    batch = make_batch([2, 3, 5])
    wide = {**batch, **{name: tf.gather(WIDE_ROWS, batch[name][..., 0]) for name in ("history", "target")}}
    items = model.score_vectors(model.item_vectors(WIDE_ROWS)).numpy()[1:]
    with np.errstate(divide="ignore"):
        logits = model.encode(wide).users.numpy() @ items.T / TEMPERATURE + np.log(COUNTS[1:] / COUNTS.sum())
    expected = np.mean(np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(3), [1, 2, 4]])
    np.testing.assert_allclose(float(objective.open().loss(wide)), expected, rtol=1e-5)
    large = tiny_model(similarity="dot")
    large.item_encoder.ids.table.assign(40 * tf.ones([ITEMS + 1, DIM]))  # logits of 9,600
    loss, gradient = table_step(make_all_clicks(inputs_of(large), None, 1.0), batch)
    # Of equal logits what is left is the popularity.
    np.testing.assert_allclose(loss, -np.mean(np.log(COUNTS[[2, 3, 5]] / COUNTS.sum())), atol=2e-3)
    assert np.isfinite(gradient).all()


def test_chance_and_rows_without_weight():
    objective = make_all_clicks(inputs_of(tiny_model()), None, 1.0)
    batch = make_batch([2, 3, 5], weights=[1, 0, 3])
    opened = objective.open()
    expected = -np.average(np.log(COUNTS[[2, 3, 5]] / COUNTS.sum()), weights=[1, 0, 3])
    np.testing.assert_allclose(float(opened.chance_loss(batch)), expected, rtol=1e-6)
    loss, gradient = table_step(objective, make_batch([2, 3], weights=[0, 0]))
    assert loss == 0 and not gradient.any()


def test_what_is_refused(monkeypatch):
    monkeypatch.setattr(all_clicks, "MAX_FULL_SOFTMAX", ITEMS - 1)
    with pytest.raises(UserError, match="--queue=all_clicks scores every item.*; 12 are more than 11: use cached, or"):
        make_all_clicks(inputs_of(tiny_model()), None, 1.0)
    with pytest.raises(UserError, match="--queue=all_clicks with --model=multi_clrec: .*use raw or cached"):
        Config.of(queue="all_clicks", model="multi_clrec")
    with pytest.raises(UserError, match="--mask_same_user and --queue=all_clicks: .*give one of them"):
        Config.of(queue="all_clicks", mask_same_user=True)
    for setting, flag in ((dict(prefill_queue=True), "prefill_queue"), (dict(balanced_gradient=False), "nobalanced_")):
        with pytest.raises(UserError, match=f"--{flag}.* and --queue=all_clicks: nothing is kept.*leave --{flag}.* out"):
            Config.of(queue="all_clicks", **setting)
    Config.of(queue="all_clicks", queue_size=3, batch_size=4)  # its size is that of the data
