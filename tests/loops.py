"""Oracles of the comparison losses and of queues with correction or impressions: NumPy loops in double precision.

φ is that of a mean tower over `naive_queue`'s tiny model; `Loops` is a queue's denominator, entry by entry.
"""
import collections

import numpy as np

from clrec_tf.data.schema import Feature
from clrec_tf.losses.contrastive import weighted_mean
from clrec_tf.training.runtime import LocalRuntime
from tests.naive_queue import ITEMS
from tests.naive_queue import TEMPERATURE
import tensorflow as tf

ROWS = tf.range(ITEMS + 1, dtype=tf.int64)[:, None]
SHARE = np.arange(1, ITEMS + 1) ** 1.5 / np.sum(np.arange(1, ITEMS + 1) ** 1.5)
LOG_Q = np.append(0.0, np.log(SHARE))
FEATURES = (Feature("category", 4, 1, 3), Feature("tags", 5, 2, 4))
FACTS = np.random.default_rng(0).integers(0, 4, (ITEMS + 1, 3)) * (np.arange(ITEMS + 1) > 0)[:, None]
WIDE_ROWS = tf.concat([ROWS, tf.constant(FACTS)], axis=1)


def local_variable(*arguments):
    return LocalRuntime().local_variable(*arguments)


def step(objective, batch, variables):
    """(loss, gradients) of one step."""
    with tf.GradientTape() as tape:
        losses = objective.open().rows(batch)
        loss = weighted_mean(losses, batch["weight"])
    return loss, [tf.convert_to_tensor(gradient) for gradient in tape.gradient(loss, variables)]


def table_step(objective, batch):
    """(loss, gradient of the item table) of one step of any objective, dense."""
    table = objective.model.item_encoder.ids.table
    with tf.GradientTape() as tape:
        loss = objective.open().loss(batch)
    return float(loss), tf.convert_to_tensor(tape.gradient(loss, table)).numpy()


def central_differences(loss, tables, width=1e-5):
    """Gradients of loss(*tables) by every entry."""
    gradients = [np.zeros_like(table) for table in tables]
    for table, gradient in zip(tables, gradients):
        for place in np.ndindex(*table.shape):
            middle = table[place]
            values = []
            for table[place] in (middle + width, middle - width):
                values.append(loss(*tables))
            table[place] = middle
            gradient[place] = (values[0] - values[1]) / (2 * width)
    return gradients


def l2(vector):
    return vector / np.sqrt(max(vector @ vector, 1e-12))


class Towers:
    """φ in loops: items by id alone, or histories by id and features."""

    def __init__(self, tables, features=False):
        self.ids, self.features = tables[0], tables[1:] if features else None

    def item(self, item):
        return l2(self.ids[item])

    def read(self, item):
        """g as histories use it."""
        if self.features is None:
            return self.ids[item]
        category, tags = self.features
        known = [tags[tag] for tag in FACTS[item, 1:] if tag]
        slot = np.zeros(2) if FACTS[item, 0] == 0 else category[FACTS[item, 0]]
        return self.ids[item] + np.concatenate([slot, sum(known) / len(known) if known else np.zeros(1)])

    def logit(self, history, candidate):
        """φ of a history of ids, and a candidate's id or normalized vector."""
        user = l2(sum(self.read(item) for item in history if item) / np.count_nonzero(history))
        return user @ (self.item(candidate) if np.ndim(candidate) == 0 else candidate) / TEMPERATURE


def mean_of_rows(batch, loss_of_row):
    """Σ w ℓ / Σ w of ℓ(row, history, target)."""
    weights = batch["weight"].numpy()
    return sum(weights[row] * loss_of_row(row, batch["history"].numpy()[row, :, 0], batch["target"].numpy()[row, 0])
               for row in np.flatnonzero(weights)) / weights.sum()


def log_sum_exp(terms):
    return np.log(np.sum(np.exp(terms)))


class Loops:
    """A queue's denominator: entries [item, vector as it was, row of this step's batch or −1].

    Args:
      kind: variant; the cached one reads earlier entries as they were.
      capacity: Q.
      log_q: subtracted from every logit, by item.
      impressions: deque of the items that feed the queue, beside which the positive stands by itself; None: clicks do.
      balanced: this step's entries count, in the gradient through them as negatives, as often as there are entries to
        each of them.
    """

    def __init__(self, kind, capacity, log_q, impressions=None, balanced=False):
        self.kind, self.log_q, self.impressions = kind, log_q, impressions
        self.balanced = balanced and kind == "cached"
        self.entries = collections.deque(maxlen=capacity)

    def push(self, towers, batch):
        """What a step enqueues."""
        if self.kind == "in_batch":
            self.entries.clear()
        for entry in self.entries:
            entry[2] = -1
        fed = [(row, batch["target"].numpy()[row, 0]) for row in np.flatnonzero(batch["weight"])]
        if self.impressions is not None:
            fed = [(row, self.impressions.popleft()) for row in range(len(batch["weight"]))]
        self.entries.extend([item, towers.item(item), row] for row, item in fed)

    def loss(self, towers, batch, negatives=None):
        """Weighted mean; `negatives`: towers that this step's entries are read from where they are negatives."""
        def term(row, history, item, vector, of_row):
            if of_row < 0 and self.kind == "cached":
                return towers.logit(history, vector)
            if negatives is None or of_row < 0 or (of_row == row and self.impressions is None):
                return towers.logit(history, item)
            return towers.logit(history, negatives.item(item))

        def loss_of(row, history, target):
            terms = [term(row, history, *entry) - self.log_q[entry[0]] for entry in self.entries]
            positive = towers.logit(history, target) - self.log_q[target]
            return log_sum_exp(terms + [positive] * (self.impressions is not None)) - positive

        return mean_of_rows(batch, loss_of)

    def gradients(self, tables, batch, features=False):
        """Of `loss` by every table."""
        if not self.balanced:
            return central_differences(lambda *shifted: self.loss(Towers(shifted, features), batch), tables)
        times = len(self.entries) / sum(row >= 0 for _, _, row in self.entries)
        still = Towers([table.copy() for table in tables], features)
        parts = (central_differences(lambda *shifted: self.loss(Towers(shifted, features), batch, still), tables),
                 central_differences(lambda *shifted: self.loss(still, batch, Towers(shifted, features)), tables))
        return [others + times * as_negatives for others, as_negatives in zip(*parts)]
