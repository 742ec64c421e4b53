"""The training step against the losses and gradients of plain NumPy loops: clipping, weights, and steps left out."""
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from clrec_tf.config import Config
from clrec_tf.config import TrainConfig
from clrec_tf.data.schema import Feature
from clrec_tf.data.schema import Schema
from clrec_tf.encoders.embeddings import lookup
from clrec_tf.losses import contrastive
from clrec_tf.models.build import build_model
from clrec_tf.models.encoded import Encoded
from clrec_tf.objectives.contrastive import build_variant
from clrec_tf.training.optimizers import build_optimizer
from clrec_tf.training.runtime import LocalRuntime
from clrec_tf.training.step import make_train_call
from tests.naive_queue import make_batch
from tests.naive_queue import NaiveQueue
from tests.naive_queue import tiny_model

RATE = 0.5
HISTORIES = [[2, 3], [4, 0], [5, 2], [3, 0]]


def good_batch(weights=(1.0, 1.0, 1.0, 1.0)):
    """Items 2 to 9; item 1 stays untouched."""
    return make_batch([6, 7, 8, 9], weights=list(weights), histories=HISTORIES)


def bad_batch():
    """Every user has clicked item 1, whose vector the tests spoil."""
    return make_batch([6, 7, 8, 9])


class Trainer:
    """The step over a tiny model and a queue that is filled by nobody else."""

    def __init__(self, clip_norm=0.0, optimizer=None, kind="in_batch", similarity="cosine"):
        self.model = tiny_model(similarity=similarity)
        self.table = self.model.item_encoder.ids.table
        self.variant = build_variant(kind, self.model, 8, False, LocalRuntime().local_variable)
        self.optimizer = optimizer or tf_keras.optimizers.SGD(RATE, jit_compile=False)
        self.optimizer.build(self.model.trainable_variables)
        self._call = make_train_call(self.model, self.variant, self.optimizer, clip_norm, LocalRuntime())

    def run(self, *batches):
        """The batches in one call; its result in NumPy."""
        stacked = tf.nest.map_structure(lambda *parts: tf.stack(parts), *batches)
        iterator = iter(tf.data.Dataset.from_tensor_slices(stacked))
        result = self._call(iterator, tf.constant(len(batches), tf.int64))
        return {name: value.numpy() for name, value in result.items()}

    def state(self):
        """Values of model, optimizer (its count of steps too) and queue."""
        variables = [*self.model.variables, *self.optimizer.variables]
        variables += self.variant.queue.local_variables.values() if self.variant.queue else []
        return [variable.numpy() for variable in variables]

    def differentiated(self, batch):
        """(loss, gradient) of one batch outside of the step."""
        with tf.GradientTape() as tape:
            losses = contrastive.contrastive_loss(*self.variant.open().logits(batch))
            loss = contrastive.weighted_mean(losses, batch["weight"])
        return loss.numpy(), tf.convert_to_tensor(tape.gradient(loss, self.table)).numpy()


def naive(table, batch):
    """(loss, gradient) by loops and central differences."""
    queue, table = NaiveQueue("in_batch", 4, False), table.astype(float)
    queue.enqueue(table, batch)
    return queue.loss(table, batch), queue.gradient(table, batch)


def assert_equal_states(before, after):
    assert len(before) == len(after)
    for old, new in zip(before, after):
        np.testing.assert_array_equal(old, new)


@pytest.mark.parametrize("relative", [0.0, 0.25, 4.0])  # clip norm over the gradient's norm; 0 = off
def test_one_step_moves_by_the_clipped_gradient(relative):
    before = tiny_model().item_encoder.ids.table.numpy()
    loss, gradient = naive(before, good_batch())
    norm = np.sqrt((gradient ** 2).sum())
    trainer = Trainer(clip_norm=float(relative * norm))
    result = trainer.run(good_batch())
    factor = 0.25 if relative == 0.25 else 1.0
    assert factor * norm > 0.05
    np.testing.assert_allclose(trainer.table.numpy() - before, -RATE * factor * gradient, atol=1e-5)
    np.testing.assert_allclose([result["loss"], result["gradient_norm"]], [loss, norm], rtol=1e-4)  # before clipping
    assert (result["trained"], result["examples"], result["skipped"]) == (1, 4, 0)


def test_rows_count_by_their_weights():
    weights = [4.0, 0.0, 0.25, 1.0]
    trainer = Trainer()
    before = trainer.table.numpy()
    loss, gradient = naive(before, good_batch(weights))
    assert abs(loss - naive(before, good_batch([1.0, 0.0, 1.0, 1.0]))[0]) > 0.01
    result = trainer.run(good_batch(weights))
    np.testing.assert_allclose(result["loss"], loss, rtol=1e-5)
    np.testing.assert_allclose(trainer.table.numpy() - before, -RATE * gradient, atol=1e-5)
    assert result["examples"] == 3


@pytest.mark.parametrize("kind", ["in_batch", "raw", "cached"])
@pytest.mark.parametrize("user_encoder", ["mean", "multi_att"])
@pytest.mark.parametrize("position", ["backward", "forward"])
def test_no_row_repeats_in_a_gradient_that_reaches_the_optimizer(kind, user_encoder, position):
    features = (Feature("tags", 5, 2, 4), Feature("brand", 4, 1, 3))
    schema = Schema(20, 21, features, 0, "int", True, 0, 0, {}, {})
    heads = dict(attention_heads=2) if user_encoder == "multi_att" else {}
    config = Config.of(embedding_dim=4, max_history=3, user_encoder=user_encoder, position=position, **heads)
    model = build_model(config, schema)
    variant = build_variant(kind, model, 8, False, LocalRuntime().local_variable)
    optimizer = build_optimizer(TrainConfig(), 10)
    optimizer.build(model.trainable_variables)
    apply, seen = optimizer.apply_gradients, []

    def checked(pairs):
        pairs = list(pairs)
        for gradient, variable in pairs:
            if isinstance(gradient, tf.IndexedSlices):
                seen.append(id(variable))
                distinct = tf.size(tf.unique(gradient.indices).y)
                tf.debugging.assert_equal(distinct, tf.size(gradient.indices), variable.name)
        return apply(pairs)

    optimizer.apply_gradients = checked
    rng = np.random.default_rng(1)
    rows = np.concatenate([np.arange(21)[:, None], rng.integers(0, 4, (21, 3))], axis=1)
    rows[0] = 0
    history, lengths = rng.integers(1, 7, (5, 4, 3)), rng.integers(0, 4, (5, 4))
    history[np.arange(3) >= lengths[..., None]] = 0
    batches = dict(history=rows[history], target=rows[rng.integers(1, 7, (5, 4))], length=lengths,
                   user_id=rng.integers(0, 3, (5, 4)), time_gap=rng.integers(-1, 900, (5, 4, 3)),
                   weight=(lengths > 0).astype(np.float32))
    call = make_train_call(model, variant, optimizer, 5.0, LocalRuntime())
    result = call(iter(tf.data.Dataset.from_tensor_slices(batches)), tf.constant(5, tf.int64))
    assert result["trained"] == 5 and len(set(seen)) == 5  # ids, two features, positions, times


def test_rows_of_a_table_that_is_looked_up_twice_are_summed():
    trainer = Trainer(optimizer=build_optimizer(TrainConfig(learning_rate=0.1, weight_decay=0.0), 10))
    model, table = trainer.model, trainer.table
    once = model.user_vectors
    # The query tower also reads the table's first rows on its own, by ids that the items have too.
    again = lambda: tf.reduce_mean(lookup(table, tf.constant([2, 7, 2])), axis=0)
    model.user_vectors = lambda *arguments: once(*arguments) + again()
    model.encode = lambda batch, queued=None, training=False: encode_through_user_vectors(model, batch)
    before = table.numpy()
    _, gradient = trainer.differentiated(good_batch())
    trainer.run(good_batch())
    moved = np.abs(gradient) > 1e-4
    assert moved[[2, 7]].all()
    # Adam's first step goes by the sign of the whole gradient; a row that repeats would go there twice.
    np.testing.assert_allclose((table.numpy() - before)[moved], -0.1 * np.sign(gradient[moved]), rtol=2e-3)


def encode_through_user_vectors(model, batch):
    vectors = tf.reshape(model.item_vectors(tf.reshape(batch["history"], [-1, 1])), [4, 2, -1])
    users = model.user_vectors(vectors, tf.sequence_mask(batch["length"], 2))
    return Encoded(users, model.score_vectors(model.item_vectors(batch["target"])))


@pytest.mark.parametrize("temperature,similarity", [(.005, "cosine"), (.01, "dot")])
def test_a_step_with_logits_too_large_for_exponentials(temperature, similarity):
    trainer = Trainer(similarity=similarity)
    trainer.model.temperature = temperature
    trainer.table.assign(trainer.table * (1 if similarity == "cosine" else 3))
    batch, before = good_batch(), trainer.table.numpy()
    loss, gradient = trainer.differentiated(batch)
    largest = max(float(tf.reduce_max(block)) for block in trainer.variant.open().logits(batch))
    result = trainer.run(batch)
    assert largest > 88.8 and result["trained"] == 1  # e^88.8 is infinite in float32
    np.testing.assert_allclose(result["loss"], loss, rtol=1e-5)
    np.testing.assert_allclose(trainer.table.numpy() - before, -RATE * gradient, rtol=1e-4, atol=1e-4)


def assert_skipped(trainer, batch):
    before = trainer.state()
    result = trainer.run(batch)
    assert_equal_states(before, trainer.state())
    assert {name: result[name] for name in ("skipped", "trained", "trailing_skipped", "longest_skipped", "loss",
                                            "gradient_norm")} == dict(
        skipped=1, trained=0, trailing_skipped=1, longest_skipped=1, loss=0, gradient_norm=0)


@pytest.mark.parametrize("clip_norm", [0.0, 5.0])
def test_a_finite_loss_with_an_infinite_norm_changes_nothing(clip_norm):
    trainer = Trainer(clip_norm, similarity="dot")
    # The first user points along an axis that no item has: its logits are 0, its gradient by an item is 10^20 and more.
    table = trainer.table.numpy()
    table[:, 0], table[1] = 0, [1e20, 0, 0]
    trainer.table.assign(table)
    batch = make_batch([6, 7, 8, 9], histories=[[1, 0]] + HISTORIES[1:])
    loss, gradient = trainer.differentiated(batch)
    with np.errstate(over="ignore"):
        assert loss < 10 and np.isfinite(gradient).all() and np.isinf(np.square(gradient).sum())
    assert_skipped(trainer, batch)


@pytest.mark.parametrize("clip_norm", [0.0, 5.0])
def test_an_infinite_loss_with_a_finite_gradient_changes_nothing(clip_norm):
    trainer = Trainer(clip_norm, similarity="dot")
    # Each target lies opposite to its user, beside the other's: losses above 30. Their sum times 4·10^37 overflows,
    # the sum of weights does not, and the gradient has only quotients of weights.
    table = trainer.table.numpy()
    table[2], table[4], table[6], table[7] = [3, 0, 0], [-3, 0, 0], [-3, 0, 0], [3, 0, 0]
    trainer.table.assign(table)
    batch = make_batch([6, 7], weights=[4e37, 4e37], histories=[[2, 0], [4, 0]])
    loss, gradient = trainer.differentiated(batch)
    assert np.isinf(loss) and np.isfinite(np.square(gradient).sum()) and np.abs(gradient).max() > 1
    assert_skipped(trainer, batch)


@pytest.mark.parametrize("pattern,longest,trailing", [
    ("bgb", 1, 1), ("bbgb", 2, 1), ("gbbg", 2, 0), ("bb", 2, 2)])
def test_bad_steps_between_good_ones(pattern, longest, trailing):
    trainer, reference = Trainer(), Trainer()
    for one in (trainer, reference):
        one.table.assign(tf.tensor_scatter_nd_update(one.table, [[1]], [[float("nan")] * 3]))
    good = pattern.count("g")
    result = trainer.run(*(good_batch() if step == "g" else bad_batch() for step in pattern))
    assert (result["trained"], result["skipped"]) == (good, len(pattern) - good)
    assert (result["longest_skipped"], result["trailing_skipped"]) == (longest, trailing)
    assert result["leading_skipped"] == (pattern + "g").index("g")
    if good:  # as if the bad ones had never been there
        alone = reference.run(*[good_batch()] * good)
        np.testing.assert_allclose([result["loss"], result["gradient_norm"]], [alone["loss"], alone["gradient_norm"]])
    assert_equal_states(reference.state(), trainer.state())


@pytest.mark.parametrize("kind", ["in_batch", "raw", "cached"])
@pytest.mark.parametrize("warm", [True, False])  # with momentum; with an empty queue
def test_a_batch_without_weight_changes_nothing_and_counts_as_nothing(kind, warm):
    trainer = Trainer(5.0, build_optimizer(TrainConfig(learning_rate=0.1, weight_decay=0.1), 10), kind)
    if warm:
        before = trainer.table.numpy()
        assert trainer.run(good_batch())["trained"] == 1 and np.abs(trainer.table.numpy() - before).max() > 0.05
    assert int(trainer.optimizer.iterations) == warm
    before = trainer.state()
    result = trainer.run(good_batch([0.0] * 4))
    assert_equal_states(before, trainer.state())
    assert {name: result[name] for name in ("trained", "skipped", "trailing_skipped", "longest_skipped", "examples",
                                            "loss", "gradient_norm")} == dict(
        trained=0, skipped=0, trailing_skipped=0, longest_skipped=0, examples=0, loss=0, gradient_norm=0)
