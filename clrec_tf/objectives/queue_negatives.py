"""Where the denominator's candidates come from: what in-batch, raw and cached negatives share (paper, Figure 2).

Each variant enqueues first and then gives the logits of the positives and, in one to three blocks of columns, of the
whole multiset C, in which each row's positive stands exactly once. A queue is fed with the clicked items, or with
impressions (``impression_stream.ImpressionStream``); then the positive is a block of its own.
"""
import dataclasses
from typing import Optional

import numpy as np
import tensorflow as tf

from clrec_tf.losses import contrastive
from clrec_tf.losses.sampled import corrected_logits
from clrec_tf.objectives.base import RowObjective
from clrec_tf.objectives.fifo_queue import duplicate_rate
from clrec_tf.objectives.resources import Constants
from clrec_tf.objectives.resources import in_memory


ENTERING = 104_729  # added to a step's seed: draws of what enters are not those of dropout


@dataclasses.dataclass(frozen=True)
class Fed:
    """What a step brings into the queue.

    Attributes:
      rows: [E,C] item rows.
      valid: [E] bool, which of them enter.
      owners: [E] int64, who clicked them; −1: nobody.
      contexts: [E] int64, in which context; None: there is none.
      places: [E] int32 of them among the batch's targets; None: all targets in order, or none of them.
    """
    rows: tf.Tensor
    valid: tf.Tensor
    owners: tf.Tensor
    contexts: Optional[tf.Tensor] = None
    places: Optional[tf.Tensor] = None


class QueueNegatives(RowObjective):
    """The contrastive loss over a queue.

    Args:
      model: a `TwoTower`.
      queue: a `FifoQueue`, or None.
      mask_same_user: leave a user's other clicks out of its denominator.
      log_q: [item_rows] float32 by item id, subtracted from every logit; None: nothing is.
      impressions: an `ImpressionStream` that feeds the queue instead of the clicks; None: clicks do.
      local_constant: see `resources.Constants`.
      entering: of a batch of windows, how many of its targets enter the queue, drawn by the step's seed. Every positive
        then has a slot of its own, and the copy of it that may be queued is left out with the user's other entries.
        None: all targets enter.
      context: column of the query row in whose value a row and its negatives agree; None: in none.
    """

    def __init__(self, model, queue, mask_same_user, log_q=None, impressions=None, local_constant=in_memory,
                 entering=None, context=None):
        super().__init__(model, queue=queue, impressions=impressions,
                         corrections=None if log_q is None else Constants(local_constant, log_q=log_q))
        self.mask_same_user, self._entering, self._context = mask_same_user, entering, context
        self._spread = 0.0 if log_q is None else float(np.max(np.abs(log_q)))

    @property
    def bound(self) -> float:
        """What no logit exceeds."""
        return self.model.logit_bound + self._spread

    def rows(self, batch, training=True):
        """Batch -> the contrastive loss of each row, and what the model adds, [B]; enqueues."""
        encoded, logits = self.compare(batch, training)
        losses = contrastive.contrastive_loss(*logits, bound=self.bound)
        return losses + self.added_losses(encoded, batch)

    def logits(self, batch, training=True):
        """Batch -> (positive logits [B], blocks of candidate logits [B,·]); enqueues."""
        return self.compare(batch, training)[1]

    def compare(self, batch, training):
        """Batch -> (the encoded batch, its `logits`); enqueues."""
        raise NotImplementedError

    def chance_loss(self, batch):
        """Mean log of the number of candidates, the positive's own slot included; NaN where logits are corrected."""
        if self.corrections is not None:
            return super().chance_loss(batch)
        if self.queue:
            fill = self.queue.fill()
            owners, contexts = self.queue.read("owner")[:fill], self._queued_contexts(fill)
        else:
            valid = tf.ones_like(batch["weight"], tf.bool) if self.impressions else batch["weight"] > 0
            owners, contexts = tf.boolean_mask(batch["user_id"], valid), self._contexts(batch)
            contexts = None if contexts is None else tf.boolean_mask(contexts, valid)
        candidates = tf.cast(tf.size(owners), tf.float32)
        if not self.masks:
            return tf.math.log(candidates + (1.0 if self.positives_apart else 0.0))
        users, of_row = batch["user_id"], self._contexts(batch)
        if of_row is not None:
            candidates = _equal_entries(of_row, contexts)
            users, owners = (each * 2**20 + context for each, context in ((users, of_row), (owners, contexts)))
        apart = 1.0 if self.positives_apart else 0.0
        if self.mask_same_user:  # of the entries of a row's own user only its own positive counts, in whatever slot
            candidates, apart = candidates - _equal_entries(users, owners), 1.0
        return contrastive.weighted_mean(tf.math.log(tf.maximum(candidates + apart, 1.0)), batch["weight"])

    @property
    def metric_names(self):
        """Names of what `metrics` gives."""
        return ("queue_fill", "queue_duplicate_rate", "queue_entered") if self.queue else ()

    def metrics(self):
        """`queue_fill`, entries, `queue_duplicate_rate`, share of entries that repeat an item, and `queue_entered`,
        entries since the objective was opened; scalars."""
        if not self.queue:
            return {}
        fill = self.queue.fill()
        ids = self.queue.read("item")[:fill, 0]
        return {"queue_fill": tf.cast(fill, tf.float32), "queue_duplicate_rate": duplicate_rate(ids),
                "queue_entered": tf.cast(self.queue.entered(), tf.float32)}

    def prefill(self, batches):
        """Fills the queue with what batches feed it, encoded by the model as it is, until it is full."""
        opened = self.open()
        for batch in batches:
            if int(opened.queue.fill()) == self.queue.capacity:
                break
            fed = opened._fed(batch)
            fields = self._fields(fed)
            if "vector" in self.queue.specs:
                fields["vector"] = self.model.score_vectors(self.model.item_vectors(fed.rows))
            opened.queue.enqueue(fed.valid, **fields)

    @property
    def masks(self) -> bool:
        """Whether a row is compared with some entries of the queue only."""
        return self.mask_same_user or self._context is not None

    def _contexts(self, batch):
        """The context of each row, [B] int64; None without."""
        return None if self._context is None else batch["query"][:, self._context]

    def _fields(self, fed) -> dict:
        """What the queue holds of entries beside vectors."""
        fields = {"item": fed.rows, "owner": fed.owners}
        return fields if self._context is None else {**fields, "context": fed.contexts}

    @property
    def positives_apart(self) -> bool:
        """Whether a row's positive has a slot of its own beside the queue."""
        return self.impressions is not None or self._entering is not None

    def _fed(self, batch) -> "Fed":
        """What this step brings into the queue."""
        if self.impressions is not None:
            rows = self.impressions.next(self._entering or tf.size(batch["weight"]))
            return Fed(rows, tf.ones_like(rows[:, 0], tf.bool), -tf.ones_like(rows[:, 0]))
        everything = Fed(batch["target"], batch["weight"] > 0, batch["user_id"], self._contexts(batch))
        if self._entering is None:
            return everything
        count = tf.size(batch["weight"])
        draws = tf.random.stateless_uniform([count], batch["seed"] + tf.constant([ENTERING, 0], tf.int64))
        places = tf.math.top_k(tf.where(everything.valid, draws, -1.0), tf.minimum(self._entering, count)).indices
        parts = everything.rows, everything.valid, everything.owners, everything.contexts
        return Fed(*(None if part is None else tf.gather(part, places) for part in parts), places)

    def _encode_fed(self, batch, fed, training):
        """The encoded batch, and g [E,D] of what is fed: targets, or rows encoded beside them."""
        if self.impressions is not None:
            encoded = self.model.encode(batch, fed.rows, training)
            return encoded, tf.gather(encoded.distinct, encoded.queued)
        encoded = self.model.encode(batch, training=training)
        return encoded, of_fed(encoded.positives, fed)

    def _of_others(self, batch, owners, own_slots=None):
        """Which entries [B,N] are no other click of the row's own user; [1,1] where those count.

        Args:
          batch: of B rows.
          owners: [N] of the entries.
          own_slots: see `same_user_mask`.
        """
        if not self.mask_same_user:
            return tf.ones([1, 1], tf.bool)
        none = -tf.ones_like(batch["user_id"])
        return contrastive.same_user_mask(
            batch["user_id"], owners, none if own_slots is None or self.positives_apart else own_slots)

    def _of_context(self, batch, contexts):
        """Which entries [B,N] are of the row's context: contexts [N] of the entries; [1,1] for None."""
        return tf.ones([1, 1], tf.bool) if contexts is None else self._contexts(batch)[:, None] == contexts[None, :]

    def _queued_contexts(self, fill=None):
        """Contexts of the queue's first `fill` slots, or of all; None without."""
        return None if self._context is None else self.queue.read("context")[:fill]

    def _logits(self, users, items, ids):
        logits = contrastive.pairwise_logits(users, items, self.model.temperature)
        return logits if self.corrections is None else corrected_logits(logits, self._log_q(ids)[None, :])

    def _positive_logits(self, encoded, batch):
        logits = contrastive.paired_logits(encoded.users, encoded.positives, self.model.temperature)
        return logits if self.corrections is None else corrected_logits(logits, self._log_q(batch["target"][:, 0]))

    def _log_q(self, ids):
        return tf.gather(self.corrections["log_q"], ids)

    def _with_positives(self, positives, *blocks):
        """The blocks, and the positives' own slots where the queue does not hold them."""
        return (positives, positives[:, None], *blocks) if self.positives_apart else (positives, *blocks)


def of_fed(targets, fed):
    """Those of the targets [B,D] that are fed, [E,D]."""
    return targets if fed.places is None else tf.gather(targets, fed.places)


def _equal_entries(rows, entries):
    """How many entries [N] equal each of the rows [B], float32 [B]."""
    distinct, place = tf.unique(rows)
    return tf.gather(tf.reduce_sum(tf.cast(distinct[:, None] == entries[None, :], tf.float32), axis=1), place)
