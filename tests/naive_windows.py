"""Oracle of queues fed by windows: one denominator of one target at a time, over a deque, in double precision.

The users are means of their clicks' item vectors; `naive_queue.tiny_model` is the model that this describes.
"""
import collections

import numpy as np
import tensorflow as tf

from tests.loops import central_differences
from tests.loops import l2
from tests.loops import log_sum_exp
from tests.naive_queue import ITEMS
from tests.naive_queue import TEMPERATURE


def windows(clicks, users, weights=None, seed=0):
    """A batch of windows: a list of items for each, all but the first of which are targets."""
    counts = [len(items) - 1 for items in clicks]
    history = np.zeros((len(clicks), max(counts)), np.int64)
    for row, items in zip(history, clicks):
        row[:len(items) - 1] = items[:-1]
    ints = dict(history=history[:, :, None], length=counts, user_id=np.repeat(users, counts), seed=[seed, 7],
                target=[[item] for items in clicks for item in items[1:]],
                row=np.flatnonzero(np.arange(history.shape[1]) < np.array(counts)[:, None]))
    weights = np.repeat([1.0] * len(clicks) if weights is None else weights, counts)
    return {**{name: tf.constant(part, tf.int64) for name, part in ints.items()},
            "weight": tf.constant(weights, tf.float32)}


def random_windows(rng, count=4, seed=0, users=5, weights=(0.0, .5, 2.0)):
    """Windows of one target to four, few items and users, so that both repeat."""
    clicks = [rng.integers(1, ITEMS + 1, rng.integers(2, 6)).tolist() for _ in range(count)]
    return windows(clicks, rng.integers(0, users, count), [1.0, *rng.choice(weights, count - 1)], seed)


class NaiveWindows:
    """Denominators of single targets over a deque of [item, owner, vector as it was, is it of this step]."""

    def __init__(self, kind, capacity, log_q, similarity):
        self.kind, self.log_q, self.similarity = kind, log_q, similarity
        self.entries = collections.deque(maxlen=capacity)

    def compared(self, vector):
        return l2(vector) if self.similarity == "cosine" else vector

    def push(self, table, entered):
        if self.kind == "in_batch":
            self.entries.clear()
        for entry in self.entries:
            entry[3] = False
        self.entries.extend([item, owner, self.compared(table[item]), True] for item, owner in entered)

    def loss(self, batch, table, negatives, balanced=False):
        """`negatives`: the table that this step's entries are read from; `balanced`: each row's loss by how many of the
        entries it is compared with one of this step stands for."""
        part = {name: value.numpy() for name, value in batch.items()}
        total, target = 0.0, 0
        for history, length in zip(part["history"][:, :, 0], part["length"]):
            for position in range(length):
                user = self.compared(sum(table[item] for item in history[:position + 1]) / (position + 1))
                logit = lambda item, vector, user=user: user @ vector / TEMPERATURE - self.log_q[item]
                positive = logit(part["target"][target, 0], self.compared(table[part["target"][target, 0]]))
                terms, new = [positive], 0
                for item, owner, before, is_new in self.entries:
                    if owner != part["user_id"][target]:
                        now = self.compared((negatives if is_new else table)[item])
                        terms.append(logit(item, before if self.kind == "cached" and not is_new else now))
                        new += is_new
                times = (len(terms) - 1) / new if balanced and new else 1.0
                if part["weight"][target]:
                    total += part["weight"][target] * times * (log_sum_exp(terms) - positive)
                target += 1
        return total / part["weight"].sum()

    def gradient(self, batch, table, balanced):
        """With `balanced` through this step's entries by what they stand for."""
        still = table.copy()
        [through], [others] = (central_differences(loss, [table.copy()]) for loss in (
            lambda moved: self.loss(batch, still, moved, balanced), lambda moved: self.loss(batch, moved, still)))
        return others + through
