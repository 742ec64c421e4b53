"""Oracle of the queue variants: the loss in plain NumPy loops over a deque of single entries, in double precision.

The users are means of their histories' item vectors; `tiny_model` is the CLRec model that this describes.
"""
import collections
import dataclasses

import numpy as np

from clrec_tf.encoders.base import NoSettings
from clrec_tf.encoders.base import Sizes
from clrec_tf.encoders.clicks import ClickEncoder
from clrec_tf.encoders.items import ItemEncoder
from clrec_tf.encoders.mean import MeanUserEncoder
from clrec_tf.models.clrec import CLRec
import tensorflow as tf

ITEMS, DIM, HISTORY, TEMPERATURE = 12, 3, 2, .5


def tiny_model(features=(), similarity="cosine", seed=3):
    """Item table [ITEMS+1, DIM], mean of the history, no time or position."""
    return CLRec(ItemEncoder(ITEMS + 1, DIM, features, seed=seed), ClickEncoder(DIM, HISTORY, "none", (), 0),
                 MeanUserEncoder(NoSettings(), Sizes(DIM)), similarity, TEMPERATURE)


def make_batch(targets, users=None, weights=None, histories=None, contexts=None):
    """A batch of ids; every user is another one and has clicked item 1 in context 0, unless told otherwise."""
    size = len(targets)
    histories = [[1, 0]] * size if histories is None else histories
    return {
        "history": tf.constant(histories, tf.int64)[:, :, None],
        "length": tf.constant([sum(item > 0 for item in history) for history in histories], tf.int64),
        "target": tf.constant(targets, tf.int64)[:, None],
        "user_id": tf.constant(range(size) if users is None else users, tf.int64),
        "weight": tf.constant([1.0] * size if weights is None else weights, tf.float32),
        "query": tf.constant([0] * size if contexts is None else contexts, tf.int64)[:, None]}


def random_batch(rng, size, all_valid=False):
    """Few items and users, so that both repeat; some rows of weight 0."""
    histories = rng.integers(1, ITEMS + 1, (size, HISTORY))
    histories[rng.random(size) < .4, 1] = 0
    weights = rng.choice([0.0, .5, 1.0, 2.0] if not all_valid else [1.0], size)
    weights[0] = 1.0
    return make_batch(rng.integers(2, ITEMS + 1, size), rng.integers(0, 4, size), weights, histories,
                      rng.integers(0, 2, size))


@dataclasses.dataclass
class Entry:
    """One click in the queue: `vector` is what the cached queue keeps of it, `row` its place in the current batch."""
    item: int
    owner: int
    context: int
    vector: np.ndarray
    row: int


class NaiveQueue:
    """One denominator of one row at a time."""

    def __init__(self, kind, capacity, mask_same_user, similarity="cosine", balanced=False, contexts=False):
        self.contexts, self.kind, self.mask_same_user, self.similarity = contexts, kind, mask_same_user, similarity
        self.balanced = balanced
        self.entries = collections.deque(maxlen=capacity)

    def compared(self, vector):
        """l2(v) for the cosine."""
        return vector / np.sqrt(max(vector @ vector, 1e-12)) if self.similarity == "cosine" else vector

    def enqueue(self, table, batch):
        """Pushes the batch's valid rows."""
        if self.kind == "in_batch":
            self.entries.clear()
        for entry in self.entries:
            entry.row = -1
        batch = _arrays(batch)
        for row in np.flatnonzero(batch["weight"]):
            item = batch["target"][row]
            self.entries.append(Entry(item, batch["user_id"][row], batch["query"][row, 0], self.compared(table[item]), row))

    def loss(self, table, batch):
        """Weighted mean of −φ(x,y) + log Σ e^φ over the queue as it stands, a function of the item table."""
        return self._loss(table, _arrays(batch))

    def gradient(self, table, batch, step=1e-5):
        """Central differences of `loss` by every entry of the table; balanced: what goes through the batch's items as
        negatives of other rows counts as often as there are entries to each of them."""
        batch, result = _arrays(batch), np.zeros_like(table)
        live = sum(entry.row >= 0 for entry in self.entries)
        times = len(self.entries) / live if self.balanced and live else 1.0
        for place in np.ndindex(*table.shape):
            shift = np.zeros_like(table)
            shift[place] = step
            difference = self._loss(table + shift, batch, table) - self._loss(table - shift, batch, table)
            as_negatives = self._loss(table, batch, table + shift) - self._loss(table, batch, table - shift)
            result[place] = (difference + times * as_negatives) / (2 * step)
        return result

    def _loss(self, table, batch, negatives=None):
        """`negatives`: the table that the batch's items are read from where they are negatives of other rows."""
        negatives = table if negatives is None else negatives
        total, weights = 0.0, batch["weight"]
        for row in np.flatnonzero(weights):
            history = [item for item in batch["history"][row] if item > 0]
            user = self.compared(sum(table[item] for item in history) / len(history))
            terms = []
            for entry in self.entries:
                own = entry.row == row
                if self.mask_same_user and entry.owner == batch["user_id"][row] and not own:
                    continue
                if self.contexts and entry.context != batch["query"][row, 0]:
                    continue
                older = self.kind == "cached" and entry.row < 0
                source = table if own else negatives
                terms.append(user @ (entry.vector if older else self.compared(source[entry.item])) / TEMPERATURE)
            positive = user @ self.compared(table[batch["target"][row]]) / TEMPERATURE
            total += weights[row] * (np.log(np.sum(np.exp(terms))) - positive)
        return total / weights.sum()


def _arrays(batch):
    """The batch in NumPy, ids without their column axis."""
    return {name: value.numpy()[..., 0] if name in ("history", "target") else value.numpy()
            for name, value in batch.items()}
