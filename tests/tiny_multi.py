"""A tiny Multi-CLRec, its batches, and an oracle of its loss: NumPy loops over deques of single entries."""
import collections
import dataclasses

import numpy as np

from clrec_tf.data.schema import Feature
from clrec_tf.encoders.base import Clicks
from clrec_tf.encoders.base import Sizes
from clrec_tf.encoders.intent_items import IntentItemEncoder
from clrec_tf.encoders.intents import IntentSettings
from clrec_tf.encoders.intents import IntentUserEncoder
from clrec_tf.models.multi_clrec import MultiCLRec
from clrec_tf.models.multi_clrec import MultiCLRecSettings
from clrec_tf.objectives.multi_queue import build_multi_queue
from clrec_tf.training.runtime import LocalRuntime
import tensorflow as tf
import tf_keras

ITEMS, CATEGORIES, DIM, HISTORY, TEMPERATURE = 12, 5, 4, 3, 0.4
NO_AUXILIARY = MultiCLRecSettings(routing_weight=0.0, vector_weight=0.0, balance_weight=0.0, multi_objective="paper")
GATED = dataclasses.replace(NO_AUXILIARY, multi_objective="gated")
CATEGORY = np.append(0, np.arange(ITEMS) % CATEGORIES + 1)  # of each item


def tiny_model(intents=3, settings=NO_AUXILIARY, seed=3, **of_users):
    """Items of one category each; positions, no times; the paper's tower and objective unless told otherwise."""
    tf_keras.utils.set_random_seed(seed)
    features = (Feature("category", CATEGORIES + 1, 1, CATEGORIES),)
    items = IntentItemEncoder(ITEMS + 1, DIM, features, "category", seed=seed)
    of_users = dict(residual=False, intent_context="none") | of_users
    users = IntentUserEncoder(IntentSettings(num_intents=intents, **of_users),
                              Sizes(DIM, HISTORY, TEMPERATURE, seed=seed + 50))
    return MultiCLRec(items, users, TEMPERATURE, settings)


def objective_of(kind, model, capacity, item_rows=10**6, st_mode="literal", balanced=True, intent_beta=1.0):
    """By default over so many items that candidates are grouped by intent; `item_rows` = 1: counted."""
    return build_multi_queue(kind, model, capacity, LocalRuntime().local_variable, item_rows, st_mode, 100.0, intent_beta,
                             balanced)


def rows_of(ids):
    return tf.constant(np.stack([ids, CATEGORY[ids]], axis=-1), tf.int64)


def make_batch(targets, histories, weights):
    """Ids; histories [B,HISTORY] are padded with 0 behind."""
    histories = np.asarray(histories)
    return {"history": rows_of(histories), "target": rows_of(np.asarray(targets)),
            "length": tf.constant((histories > 0).sum(axis=1), tf.int64),
            "user_id": tf.range(len(targets), dtype=tf.int64), "weight": tf.constant(weights, tf.float32)}


def random_batch(rng, size, all_valid=False):
    """Some short histories; some rows of weight 0."""
    histories = rng.integers(1, ITEMS + 1, (size, HISTORY))
    histories[rng.random(size) < 0.4, 1:] = 0
    weights = rng.choice([1.0] if all_valid else [0.0, 0.5, 1.0, 2.0], size)
    weights[0] = 1.0
    return make_batch(rng.integers(1, ITEMS + 1, size), histories, weights)


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


class Loops:
    """The loss of a model without auxiliary losses, row by row; entries are kept as ids."""

    def __init__(self, model, capacity, intent_beta=1.0):
        self.model, self.capacity, self.main = model, capacity, collections.deque()
        self.intent_beta, self.left = intent_beta, np.ones(model.num_intents)  # clicks that left the main queue, and 1
        self.own = [collections.deque(maxlen=capacity) for _ in range(model.num_intents)]

    def vectors(self, ids):
        return unit(self.model.item_vectors(rows_of(np.asarray(ids))).numpy().astype(float))

    def intents(self, ids):
        return self.model.route(rows_of(np.asarray(ids))).numpy()

    def enqueue(self, batch):
        targets = batch["target"].numpy()[:, 0]
        for item in targets[batch["weight"].numpy() > 0]:
            self.main.append(item)
            if len(self.main) > self.capacity:
                old = self.main.popleft()
                intent = int(self.intents([old])[0])
                self.own[intent].append(old)
                self.left[intent] += 1

    def margins(self, ids):
        """What each vector prefers items of its own intent by, [H,N]."""
        margin = self.model.settings.intent_margin if self.model.gated else 0.0
        return margin * (self.intents(ids) == np.arange(self.model.num_intents)[:, None])

    def weight(self, intent):
        """What an entry of an intent counts to a target of it."""
        ratio = len(self.own[intent]) / len(self.main) / (self.left[intent] / self.left.sum())
        return (1 + ratio) ** -(1 - self.intent_beta)

    def counts(self, intent):
        """Of the entries of the main queue and of the intent's, to a target of it."""
        weight = self.weight(intent)
        same = [] if not self.main else self.intents(list(self.main)) == intent
        return np.append(np.where(same, weight, 1.0), np.full(len(self.own[intent]), weight))

    def __call__(self, batch):
        """Enqueues, and gives the weighted mean."""
        self.enqueue(batch)
        history, mask = batch["history"], batch["history"][:, :, 0] > 0
        clicks = tf.reshape(self.model.history_vectors(tf.reshape(history, [-1, 2])), [-1, HISTORY, 2 * DIM])
        found = self.model.user_encoder(Clicks(None, clicks, mask))
        targets, weights, losses = batch["target"].numpy()[:, 0], batch["weight"].numpy(), []
        for row, (target, intent) in enumerate(zip(targets, self.intents(targets))):
            ids = [*self.main, *self.own[intent]]
            candidates = self.vectors(ids)
            users, logits = (part.numpy()[row].astype(float) for part in (found.vectors, found.logits))
            weights_of_vectors, chosen = np.ones(len(users)), np.argmax(logits)
            if self.model.gated:
                weights_of_vectors, chosen = np.exp(logits) / np.exp(logits).sum(), intent
            logits = lambda ids, vectors: users @ vectors.T / TEMPERATURE + self.margins(ids)
            positive = weights_of_vectors[chosen] * np.exp(logits([target], self.vectors([target]))[chosen, 0])
            terms = weights_of_vectors @ np.exp(logits(ids, candidates))
            own = weights_of_vectors @ np.exp(logits([target], self.vectors([target])))[:, 0]
            rest = (1 - self.weight(intent)) * own  # the row's own positive counts 1
            losses.append(np.log(terms @ self.counts(intent) + rest) - np.log(positive))
        return np.sum(weights * losses) / np.sum(weights)
