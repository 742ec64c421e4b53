"""The loss of Multi-CLRec with its 1+H queues (paper, "Multi-CLRec"): enqueue, encode, compare.

Each row's positive is compared with the whole main queue and with the queue of the positive's own intent h⁺, by all H
vectors of the user. Letters: B batch, H intents, Q capacity of each queue, V items.
"""
import dataclasses
from typing import Optional

import tensorflow as tf

from clrec_tf.losses import contrastive
from clrec_tf.losses import multi_vector as losses
from clrec_tf.objectives.fifo_queue import duplicate_rate
from clrec_tf.objectives.intent_queues import MultiQueue
from clrec_tf.objectives.row_losses import ChanceUnknown


@dataclasses.dataclass(frozen=True)
class Negatives:
    """Candidates of all denominators, as `losses.mean_log_denominator` takes them.

    Attributes:
      trained: [H,B], see there: entries that each of the batch's own items stands for in the gradient.
      stands_for: [B], the same for each row with its own positive; None: once, for itself.
    """
    shared: tf.Tensor
    shared_counts: tf.Tensor
    own: Optional[tf.Tensor] = None
    own_counts: Optional[tf.Tensor] = None
    trained: Optional[tf.Tensor] = None
    stands_for: Optional[tf.Tensor] = None


class MultiQueueNegatives(ChanceUnknown, tf.Module):
    """Shared parts of the raw and the cached variant.

    Args:
      model: a `MultiCLRec`.
      capacity: Q.
      local_variable: see `FifoQueue`.
      st_mode, st_max_ratio: see `losses.selected_score`.
    """

    health_names = ("queue_fill", "queue_duplicate_rate", "queue_age", "queue_intent_fill_min",
                    "queue_intent_fill_mean", "queue_intent_age_max", "queue_intent_share_min",
                    "queue_intent_share_max")

    def __init__(self, model, capacity, local_variable, st_mode, st_max_ratio):
        super().__init__()
        self.model, self._st_mode, self._st_max_ratio = model, st_mode, st_max_ratio
        fields = {"item": tf.TensorSpec([model.item_encoder.item_width], tf.int64), **self._more_fields()}
        self.queue = MultiQueue(capacity, capacity, model.num_intents, fields, local_variable)

    def _more_fields(self):
        return {}

    @property
    def states(self):
        """Name -> object with `local_variables`, all that a checkpoint must hold besides the model."""
        return {"queue": self.queue}

    def handles(self):
        """Handles of the variables of each state; once per trace."""
        return {"queue": self.queue.handles()}

    def loss(self, batch, handles) -> tf.Tensor:
        """Batch -> mean of L_cl + λ1·L1 + λ2·L2 + λ3·L3 by the rows' weights, scalar; enqueues."""
        encoded, negatives = self._compared(batch, handles["queue"])
        found, weights = encoded.intents, batch["weight"]
        shares = tf.math.divide_no_nan(weights, tf.reduce_sum(weights))
        positives = losses.selected_score(found.scores, found.users.logits, self._st_mode, self._st_max_ratio)
        denominator, logs = losses.mean_log_denominator(
            found.users.vectors, found.targets, shares, negatives.shared, negatives.shared_counts, negatives.own,
            negatives.own_counts, temperature=self.model.temperature, trained=negatives.trained)
        rows = self.model.auxiliary_losses(encoded, batch) - positives
        if negatives.stands_for is not None:
            rows += own_entry_once(encoded.positives, found.users.vectors, logs, negatives.stands_for,
                                   self.model.temperature)
        return denominator + contrastive.weighted_mean(rows, weights)

    def _compared(self, batch, handles):
        """Enqueues; the encoded batch and the `Negatives`."""
        raise NotImplementedError

    def _push(self, handles, batch, valid, **fields):
        # Enqueue first: a positive belongs to its own denominator, once. Only the main queue takes it.
        return self.queue.push(handles, valid, lambda entries: self.model.route(entries["item"]), item=batch["target"],
                               **fields)

    def health(self, handles):
        """Entries of the main queue, their share of repeats and age (steps since the click); entries and age of the
        intents' queues; shares π_h of the intents in the main queue."""
        handles, intents = handles["queue"], self.model.num_intents
        fill, fills, ages = self.queue.main.fill(handles["main"]), self.queue.fill(handles), self.queue.ages(handles)
        rows = self.queue.main.read(handles["main"], "item")[:fill]
        routed = tf.math.bincount(self.model.route(rows), minlength=intents, maxlength=intents, dtype=tf.float32)
        shares = tf.math.divide_no_nan(routed, tf.cast(fill, tf.float32))
        values = (fill, duplicate_rate(rows[:, 0]), ages[0], tf.reduce_min(fills),
                  tf.reduce_mean(tf.cast(fills, tf.float32)), tf.reduce_max(ages[1:]), tf.reduce_min(shares),
                  tf.reduce_max(shares))
        return dict(zip(self.health_names, (tf.cast(value, tf.float32) for value in values)))

    def prefill(self, batches):
        """Fills the queues with clicks, routed and encoded by the model as it is, until they are full, or as many were
        sent as would fill all queues four times."""
        handles = self.handles()["queue"]
        enough = 4 * (self.model.num_intents + 1) * self.queue.capacity
        for sent, batch in enumerate(batches):
            if self.queue.full(handles) or sent * len(batch["weight"]) >= enough:
                break
            self._push(handles, batch, batch["weight"] > 0, **self._encoded_fields(batch))

    def _encoded_fields(self, batch):
        del batch
        return {}


class RawMultiQueue(MultiQueueNegatives):
    """Queues of item rows, re-encoded each step with gradient, each distinct item once.

    Args:
      item_rows: rows of the id table, which bound the distinct items.
      *arguments: see `MultiQueueNegatives`.
    """

    def __init__(self, item_rows, *arguments):
        super().__init__(*arguments)
        # Each row is compared with 2Q entries; where there are no more items than that, counts of items are cheaper.
        self.by_counts = item_rows <= 2 * self.queue.capacity

    def _compared(self, batch, handles):
        pushed = self._push(handles, batch, batch["weight"] > 0)
        main = self.queue.main.read(handles["main"], "item")[:pushed.fill]
        encoded = self.model.encode(batch, tf.concat([main, self.queue.read(handles, "item")], axis=0))
        mine = tf.reshape(encoded.queued[pushed.fill:], [self.model.num_intents, self.queue.capacity])
        valid = self.queue.valid(handles)
        if self.by_counts:
            return encoded, self._counted(encoded, encoded.queued[:pushed.fill], mine, valid)
        gather = lambda places: tf.gather(encoded.distinct, places)
        ones = tf.ones([1, tf.cast(pushed.fill, tf.int32)])
        return encoded, Negatives(gather(encoded.queued[:pushed.fill]), ones, gather(mine), tf.cast(valid, tf.float32))

    def _counted(self, encoded, main, own, valid):
        """Every distinct item as a shared candidate, with counts [H,U] of the main queue and each intent's own."""
        intents, items = self.model.num_intents, tf.size(encoded.counts)
        intent, _ = tf.unstack(tf.cast(tf.where(valid), tf.int32), axis=1)
        places = tf.stack([intent, tf.boolean_mask(own, valid)], axis=1)
        counts = tf.scatter_nd(places, tf.ones_like(intent, tf.float32), [intents, items])
        main_counts = tf.math.bincount(main, minlength=items, maxlength=items, dtype=tf.float32)
        return Negatives(encoded.distinct, counts + main_counts[None, :])


class CachedMultiQueue(MultiQueueNegatives):
    """Queues of item vectors: this batch's items live and with gradient, earlier ones as they were encoded.

    A live item's gradient from the denominators stands for all the rows that its copies in the main queue and then in
    its intent's queue will meet, as in ``queue_variants.CachedQueueNegatives``; `balanced` off: for itself alone.
    """

    def __init__(self, *arguments, balanced):
        super().__init__(*arguments)
        self._balanced = balanced

    def _more_fields(self):
        return {"vector": tf.TensorSpec([self.model.item_encoder.dim], tf.float32)}

    def _encoded_fields(self, batch):
        return {"vector": self.model.score_vectors(self.model.item_vectors(batch["target"]))}

    def _compared(self, batch, handles):
        encoded = self.model.encode(batch)
        live = encoded.positives
        # A vector that is not finite would spoil every later step, so it never enters.
        valid = (batch["weight"] > 0) & tf.math.is_finite(tf.reduce_sum(live, axis=1))
        pushed = self._push(handles, batch, valid, vector=live)
        targets, stands_for = encoded.intents.targets, None
        trained = tf.ones([self.model.num_intents, live.shape[0]])
        if self._balanced:
            trained = self._entries_of_each(targets, pushed.fill, handles, valid)
            stands_for = tf.gather_nd(trained, tf.stack([targets, tf.range(live.shape[0])], axis=1))
        older = self.queue.main.read(handles["main"], "vector")
        shared = tf.concat([live, tf.stop_gradient(older)], axis=0)
        counts = tf.cast(tf.concat([valid, pushed.older], axis=0), tf.float32)[None, :]
        own = tf.reshape(self.queue.read(handles, "vector"), [self.model.num_intents, self.queue.capacity, -1])
        return encoded, Negatives(shared, counts, own, tf.cast(self.queue.valid(handles), tf.float32),
                                  trained, stands_for)

    def _entries_of_each(self, targets, fill, handles, valid):
        """How many entries of its queues each of the batch's items stands for, to rows of each intent: [H,B].

        To all rows for its share of the main queue, and to rows of its own intent for that of the intent's queue too.
        A row's own positive, which counts once, is no sample of what else the queues hold: it is left out of shares.
        """
        share = lambda entries, items: tf.cast(entries, tf.float32) / tf.maximum(items - 1.0, 1.0)
        same = tf.one_hot(targets, self.model.num_intents, axis=0) * tf.cast(valid, tf.float32)[None, :]
        sizes = tf.reduce_sum(same, axis=1)
        return share(fill - 1, tf.reduce_sum(sizes)) + same * share(self.queue.fill(handles), sizes)[:, None]


def own_entry_once(positives, vectors, log_denominators, stands_for, temperature):
    """0 for each row, with a gradient that takes back what its own positive's entry stands for beyond itself: a row
    meets its own positive in one step only, the one in which both are here.

    Args:
      positives: g [B,D], live.
      vectors: z [B,H,D].
      log_denominators: log Z [B].
      stands_for: [B], entries that the gradient of each positive stands for in the denominators.
      temperature: ρ.

    Returns:
      [B].
    """
    scores = tf.linalg.matvec(tf.stop_gradient(vectors), positives / temperature)
    chances = tf.stop_gradient(tf.exp(scores - log_denominators[:, None]))  # the gradient of log Z by the scores
    term = (1.0 - stands_for) * tf.reduce_sum(chances * scores, axis=1)
    return term - tf.stop_gradient(term)


def build_multi_queue(kind, model, capacity, local_variable, item_rows, st_mode, st_max_ratio, balanced=True):
    """The objective "raw" or "cached" over new queues; see the classes."""
    arguments = model, capacity, local_variable, st_mode, st_max_ratio
    if kind == "raw":
        return RawMultiQueue(item_rows, *arguments)
    return CachedMultiQueue(*arguments, balanced=balanced)
