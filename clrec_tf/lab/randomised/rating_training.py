"""Training on self-selected ratings, evaluation on ratings of items drawn uniformly.

A click is a rating of at least --click_rating. Each click of the self-selected part is one example: y is the click, x
the set of the user's other clicks there, without order or time. A user of one click has no x and gives no example. A
test user is encoded from all clicks of the self-selected part and ranks the pairs of the random part without those
that were rated in the self-selected part too; a user without clicks has the zero vector, for whom all items tie.
"""
import dataclasses
from typing import Optional

import numpy as np
import tensorflow as tf

from clrec_tf.config import Config
from clrec_tf.data.schema import Schema
from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.evaluation import metrics
from clrec_tf.lab.randomised import compared_losses
from clrec_tf.lab.randomised.ratings import RatingData
from clrec_tf.models.build import build_model
from clrec_tf.training.optimizers import build_optimizer
from clrec_tf.training.runtime import LocalRuntime
from clrec_tf.training.step import make_train_call

ENCODED_USERS = 512  # at once


@dataclasses.dataclass(frozen=True)
class SelectedClicks:
    """Clicks of the self-selected part, sorted by user: users int64 [N] from 0, items int64 [N], ids from 1."""
    users: np.ndarray
    items: np.ndarray

    def select(self, marks: np.ndarray) -> "SelectedClicks":
        """Those marked: bool [N]."""
        return SelectedClicks(self.users[marks], self.items[marks])

    def histories(self, num_users: int, width: int) -> tuple[np.ndarray, np.ndarray]:
        """All clicks of each user: (item ids int64 [U,T], 0 = padding at the end; how many [U])."""
        lengths = np.bincount(self.users, minlength=num_users)
        ids = np.zeros((num_users, width), np.int64)
        ids[np.arange(width) < lengths[:, None]] = self.items
        return ids, lengths

    def longest(self) -> int:
        """T: clicks of the user who has most."""
        return int(np.bincount(self.users).max(initial=1))


def clicks_of(data: RatingData, click_rating: float) -> SelectedClicks:
    """The clicks of the self-selected part."""
    clicked = np.flatnonzero(data.selected.ratings >= click_rating)
    order = clicked[np.lexsort((data.selected.items[clicked], data.selected.users[clicked]))]
    return SelectedClicks(data.selected.users[order], data.selected.items[order] + 1)


def make_examples(clicks: SelectedClicks, width: int) -> dict[str, np.ndarray]:
    """One example per click of a user who has others.

    Args:
      clicks: N of them, each user's in order of items.
      width: T, at least one less than a user's clicks.

    Returns:
      history int64 [N',T,1], length int64 [N'], target int64 [N',1], user_id int64 [N'], weight float32 [N'].
    """
    users, first, counts = np.unique(clicks.users, return_index=True, return_counts=True)
    histories, targets, owners = [], [], []
    for user, start, count in zip(users, first, counts):
        own = clicks.items[start:start + count]
        if count > 1:
            others = np.broadcast_to(own, (count, count))[~np.eye(count, dtype=bool)].reshape(count, count - 1)
            histories.append(np.pad(others, ((0, 0), (0, width - count + 1))))
            targets.append(own)
            owners.append(np.full(count, user))
    if not targets:
        raise DataError("--selected_ratings: no user has two clicks, so there is nothing to train on: lower "
                        "--click_rating, or give more ratings")
    history = np.concatenate(histories)
    return dict(history=history[:, :, None].astype(np.int64), length=(history > 0).sum(axis=1).astype(np.int64),
                target=np.concatenate(targets)[:, None], user_id=np.concatenate(owners).astype(np.int64),
                weight=np.ones(len(history), np.float32))


def epoch_order(count: int, batch_size: int, epochs: int, seed: int) -> np.ndarray:
    """Which examples each batch holds: int64 [epochs·steps, B]; each of 0..count−1 once an epoch, in an order of the
    seed and the epoch; `count`, which stands for no example, fills the last batch."""
    steps = -(-count // batch_size)
    orders = [np.random.default_rng([seed, epoch]).permutation(count) for epoch in range(epochs)]
    return np.stack([np.pad(order, (0, steps * batch_size - count), constant_values=count) for order in orders]
                    ).reshape(epochs * steps, batch_size)


def batches(examples: dict, batch_size: int, epochs: int, seed: int) -> tf.data.Dataset:
    """Batches from memory, shuffled in each epoch; rows without an example are zeros, of weight 0."""
    padded = {name: tf.constant(np.pad(values, [(0, 1)] + [(0, 0)] * (values.ndim - 1)))
              for name, values in examples.items()}
    order = epoch_order(len(examples["weight"]), batch_size, epochs, seed)
    return tf.data.Dataset.from_tensor_slices(order).map(
        lambda rows: {name: tf.gather(values, rows) for name, values in padded.items()})


class Training:
    """One model in training with one loss.

    Args:
      config: of model, loss and training; positions and time are off, and T is that of the clicks.
      data: what was rated.
      clicks: trained on.
      loss: of ``compared_losses.LOSSES``.
      seed: of initial values, order, samples.
      epochs: in all, where a cosine schedule ends.
    """

    def __init__(self, config: Config, data: RatingData, clicks: SelectedClicks, loss: str, seed: int, epochs: int):
        self._width, self._num_users, self._num_items = clicks.longest(), data.num_users, data.num_items
        self._clicks, examples = clicks, make_examples(clicks, clicks.longest())
        config = config.but(position="none", time_embedding="none", max_history=self._width, seed=seed)
        schema = Schema(data.num_items, data.num_items + 1, (), 0 if data.vectors is None else data.vectors.shape[1],
                        "int", False, data.num_users, len(clicks.users), {}, {})
        content = None if data.vectors is None else np.pad(data.vectors, ((1, 0), (0, 0)))
        self.model = build_model(config, schema, content, seed)
        if self.model.target_aware or (self.model.num_intents > 1 and not self.model.routes_by_category):
            raise UserError(f"--user_encoder={config.encoder_class.registered_name} gives several vectors of a user, "
                            "and losses are compared by one of each: use another encoder")
        self._steps = -(-len(examples["weight"]) // config.train.batch_size)
        optimizer = build_optimizer(config.train, epochs * self._steps)
        optimizer.build(self.model.trainable_variables)
        runtime = LocalRuntime()
        objective = compared_losses.build(
            loss, config, exposures_of(data, examples), self.model, seed, runtime.local_variable)
        self._iterator = iter(batches(examples, config.train.batch_size, epochs, seed))
        if objective.prefills:
            objective.prefill(batches(examples, config.train.batch_size, epochs, seed))
        self._call = make_train_call(self.model, objective, optimizer, config.train.clip_norm, runtime)

    def run(self, epochs: int) -> dict[str, float]:
        """Trains on; the sums of ``training/step``.

        Raises:
          UserError: a loss or gradient was not finite.
        """
        sums = {name: float(value) for name, value in
                self._call(self._iterator, tf.constant(epochs * self._steps, tf.int64)).items()}
        if sums["skipped"]:
            raise UserError(f"{sums['skipped']:.0f} steps had a loss or gradient that is not finite: lower "
                            "--learning_rate")
        return sums

    def vectors(self) -> tuple[np.ndarray, np.ndarray]:
        """f(x) [U,D] of every user's clicks, and g(y) [V+1,D] by item id, as they are compared."""
        rows = tf.range(self._num_items + 1, dtype=tf.int64)[:, None]
        items = self.model.score_vectors(self.model.item_vectors(rows)).numpy()
        ids, lengths = self._clicks.histories(self._num_users, self._width)
        users = [self.model(dict(
            history=tf.constant(ids[start:start + ENCODED_USERS, :, None]),
            length=tf.constant(lengths[start:start + ENCODED_USERS]),
            target=tf.zeros_like(ids[start:start + ENCODED_USERS, :1]))).numpy()
            for start in range(0, self._num_users, ENCODED_USERS)]
        return np.concatenate(users), items

    def scores(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        """⟨f, g⟩ of pairs: users [N] from 0, item ids [N] from 1 -> float64 [N]."""
        of_users, of_items = self.vectors()
        return np.einsum("nd,nd->n", of_users[users].astype(np.float64), of_items[items].astype(np.float64))


def exposures_of(data: RatingData, examples: dict) -> compared_losses.Exposures:
    """What the losses know beyond examples."""
    q = None if data.propensities is None else compared_losses.chances(data.propensities)
    return compared_losses.Exposures(
        examples["target"][:, 0], examples["user_id"], data.selected.items + 1, data.num_items, q)


def hold_out(clicks: SelectedClicks, seed: int) -> tuple[SelectedClicks, SelectedClicks]:
    """(clicks kept, one random click of every user who has three or more): two remain, which make an example."""
    shuffled = np.random.default_rng(seed).permutation(len(clicks.users))
    users, first, counts = np.unique(clicks.users[shuffled], return_index=True, return_counts=True)
    held = np.zeros(len(clicks.users), bool)
    held[shuffled[first[counts >= 3]]] = True
    return clicks.select(~held), clicks.select(held)


def mean_reciprocal_rank(training: Training, kept: SelectedClicks, held: SelectedClicks) -> float:
    """MRR of the held-out clicks among all items that the user's other clicks do not hold."""
    users, items = training.vectors()
    scores = users[held.users].astype(np.float64) @ items.T.astype(np.float64)
    targets = scores[np.arange(len(held.users)), held.items]
    ids, _ = kept.histories(len(users), kept.longest())
    np.put_along_axis(scores, ids[held.users], -np.inf, axis=1)  # the history, and 0, which is padding
    scores[:, 0] = -np.inf
    better = (scores > targets[:, None]).sum(axis=1)
    tied = (scores == targets[:, None]).sum(axis=1)
    return float(metrics.reciprocal_rank(better, tied).mean())


def choose_epochs(config: Config, data: RatingData, clicks: SelectedClicks, seeds) -> tuple[int, Optional[dict]]:
    """The number of --epochs_tried with which `mle` has the highest MRR on held-out training clicks, mean over seeds.

    The test part has no say in it, nor has any loss but the one that the others are compared with.

    Returns:
      (epochs; number of epochs -> MRR, or None where --epochs is taken).

    Raises:
      UserError: numbers that are none, or a schedule that depends on the number of epochs.
    """
    settings = config.randomised
    given = f"--epochs_tried={','.join(settings.epochs_tried)}"
    if not settings.epochs_tried:
        if not config.train.epochs:
            raise UserError("--epochs=0 trains nothing: give 1 or more, or --epochs_tried")
        return config.train.epochs, None
    try:
        tried = sorted({int(number) for number in settings.epochs_tried})
    except ValueError as error:
        raise UserError(f"{given}: must be whole numbers") from error
    if tried[0] < 1:
        raise UserError(f"{given}: must be 1 or more")
    if config.train.schedule != "constant":
        raise UserError(f"{given} with --schedule={config.train.schedule}: one training passes through all numbers, so "
                        "its learning rate must be constant; or leave --epochs_tried empty and give --epochs")
    held_out_mrr = np.zeros((len(seeds), len(tried)))
    for place, seed in enumerate(seeds):
        kept, held = hold_out(clicks, seed)
        if not len(held.users):
            raise DataError(f"{given}: no user of --selected_ratings has three clicks, of which one could be held out: "
                            "leave it empty and give --epochs")
        training = Training(config, data, kept, compared_losses.MLE, seed, tried[-1])
        for number, (before, after) in enumerate(zip([0, *tried], tried)):
            training.run(after - before)
            held_out_mrr[place, number] = mean_reciprocal_rank(training, kept, held)
    means = held_out_mrr.mean(axis=0)
    return tried[int(means.argmax())], {number: float(mean) for number, mean in zip(tried, means)}
