"""Where the denominator's candidates come from: the batch, a raw queue or a cached queue (paper, Figure 2 a, b, c).

Each variant enqueues first and then gives the logits of the positives and, in one to three blocks of columns, of the
whole multiset C, in which each row's positive stands exactly once. A queue is fed with the clicked items, or with
impressions (``impression_stream.ImpressionStream``); then the positive is a block of its own.
"""
import functools

import numpy as np
import tensorflow as tf

from clrec_tf.losses import contrastive
from clrec_tf.losses.sampled import corrected_logits
from clrec_tf.objectives.constants import in_memory
from clrec_tf.objectives.fifo_queue import duplicate_rate
from clrec_tf.objectives.fifo_queue import FifoQueue
from clrec_tf.objectives.row_losses import RowLosses


class _Variant(RowLosses):
    """Shared parts: the loss, the queue's fields, and its health.

    Args:
      model: a `CLRec`.
      queue: a `FifoQueue`, or None.
      mask_same_user: leave a user's other clicks out of its denominator.
      log_q: [item_rows] float32 by item id, subtracted from every logit; None: nothing is.
      local_constant: see ``objectives/constants``.
      impressions: an `ImpressionStream` that feeds the queue instead of the clicks; None: clicks do.
    """

    def __init__(self, model, queue, mask_same_user, log_q=None, impressions=None, local_constant=in_memory):
        super().__init__()
        self.model, self.queue, self.mask_same_user = model, queue, mask_same_user
        self.log_q, self.impressions = None if log_q is None else local_constant(log_q), impressions
        self._spread = 0.0 if log_q is None else float(np.max(np.abs(log_q)))

    @property
    def bound(self) -> float:
        """What no logit exceeds."""
        return self.model.logit_bound + self._spread

    @property
    def states(self):
        """Name -> object with `local_variables`, all that a checkpoint must hold besides the model."""
        return {name: state for name, state in (("queue", self.queue), ("impressions", self.impressions)) if state}

    def handles(self):
        """Handles of the variables of each state, and what is constant; once per trace."""
        handles = {name: state.handles() for name, state in self.states.items()}
        return handles if self.log_q is None else {**handles, "log_q": self.log_q()}

    def losses(self, batch, handles):
        """Batch -> the contrastive loss of each row, [B]; enqueues."""
        return contrastive.contrastive_loss(*self.logits(batch, handles), bound=self.bound)

    def chance_loss(self, batch, handles):
        """log of the number of candidates, the positive's own slot included; NaN where rows differ in it, or logits
        are corrected."""
        if self.mask_same_user or self.log_q is not None:
            return super().chance_loss(batch, handles)
        if self.queue:
            candidates = tf.cast(self.queue.fill(handles["queue"]), tf.float32)
        else:
            valid = tf.ones_like(batch["weight"]) if self.impressions else tf.cast(batch["weight"] > 0, tf.float32)
            candidates = tf.reduce_sum(valid)
        return tf.math.log(candidates + (1.0 if self.impressions else 0.0))

    @property
    def health_names(self):
        """Names of what `health` gives."""
        return ("queue_fill", "queue_duplicate_rate") if self.queue else ()

    def health(self, handles):
        """`queue_fill`, entries, and `queue_duplicate_rate`, share of entries that repeat an item; scalars."""
        if not self.queue:
            return {}
        handles = handles["queue"]
        fill = self.queue.fill(handles)
        ids = self.queue.read(handles, "item")[:fill, 0]
        return {"queue_fill": tf.cast(fill, tf.float32), "queue_duplicate_rate": duplicate_rate(ids)}

    def prefill(self, batches):
        """Fills the queue with what batches feed it, encoded by the model as it is, until it is full."""
        handles = self.handles()
        for batch in batches:
            if int(self.queue.fill(handles["queue"])) == self.queue.capacity:
                break
            rows, valid, owners = self._fed(batch, handles)
            fields = {"item": rows, "owner": owners}
            if "vector" in self.queue.specs:
                fields["vector"] = self.model.score_vectors(self.model.item_vectors(rows))
            self.queue.enqueue(handles["queue"], valid, **fields)

    def _fed(self, batch, handles):
        """What enters the queue: (item rows [B,C], valid [B] bool, user ids [B])."""
        if self.impressions is None:
            return batch["target"], batch["weight"] > 0, batch["user_id"]
        rows = self.impressions.next(handles["impressions"], batch["target"].shape[0])
        return rows, tf.ones_like(batch["weight"], tf.bool), -tf.ones_like(batch["user_id"])

    def _logits(self, handles, users, items, ids):
        logits = contrastive.pairwise_logits(users, items, self.model.temperature)
        return logits if self.log_q is None else corrected_logits(logits, tf.gather(handles["log_q"], ids)[None, :])

    def _positive_logits(self, handles, encoded, batch):
        logits = contrastive.paired_logits(encoded.users, encoded.positives, self.model.temperature)
        if self.log_q is None:
            return logits
        return corrected_logits(logits, tf.gather(handles["log_q"], batch["target"][:, 0]))

    def _with_positives(self, positives, *blocks):
        """The blocks, and the positives' own slots where the queue does not hold them."""
        return (positives, *blocks) if self.impressions is None else (positives, positives[:, None], *blocks)


class InBatchNegatives(_Variant):
    """(a) The batch's own positives, or as many impressions: the queue with Q = B. Nothing is kept between steps."""

    def logits(self, batch, handles):
        """Batch -> (positive logits [B], candidate logits [B,B])."""
        rows, valid, _ = self._fed(batch, handles)
        encoded, live = _live(self.model, batch, rows)
        keep = valid[None, :]
        if self.mask_same_user:
            own = tf.range(tf.size(batch["user_id"], out_type=tf.int64), dtype=tf.int64)
            keep &= contrastive.same_user_mask(batch["user_id"], batch["user_id"], own)
        candidates = self._logits(handles, encoded.users, live, rows[:, 0]) + contrastive.mask_logits(keep)
        return self._with_positives(self._positive_logits(handles, encoded, batch), candidates)


class RawQueueNegatives(_Variant):
    """(b) A queue of item rows, re-encoded each step with gradient; each distinct item once, weighted by its count."""

    def logits(self, batch, handles):
        """Batch -> (positive logits [B], candidate logits [B,U] with log counts, or [B,fill] with same-user masks)."""
        rows, valid, owners = self._fed(batch, handles)
        # Enqueue first: a positive belongs to its own denominator, once.
        pushed = self.queue.enqueue(handles["queue"], valid, item=rows, owner=owners)
        encoded = self.model.encode(batch, self.queue.read(handles["queue"], "item")[:pushed.fill])
        positives = self._positive_logits(handles, encoded, batch)
        if not self.mask_same_user:
            return self._with_positives(positives, counted_logits(functools.partial(self._logits, handles), encoded))
        owners = self.queue.read(handles["queue"], "owner")[:pushed.fill]
        keep = contrastive.same_user_mask(batch["user_id"], owners, pushed.slots)
        logits = self._logits(handles, encoded.users, *(tf.gather(part, encoded.queued) for part in (
            encoded.distinct, encoded.distinct_ids)))
        return positives, logits + contrastive.mask_logits(keep)


class CachedQueueNegatives(_Variant):
    """(c) A queue of item vectors: this batch's items live and with gradient, earlier ones as they were encoded.

    Earlier entries give no gradient to the items, so that an item would be drawn to its users in full and pushed away
    by a share B/Q of the negatives only, until all items point the same way. With `balanced` each of the batch's items
    therefore stands for fill/B entries in that gradient, which then has the raw queue's expectation, entries being
    alike. The loss itself, and the gradient of the users, are the same.
    """

    def __init__(self, *arguments, balanced):
        super().__init__(*arguments)
        self.balanced = balanced

    def logits(self, batch, handles):
        """Batch -> (positive logits [B], candidate logits [B,B] of the batch, [B,Q] of the queue)."""
        rows, valid, owners = self._fed(batch, handles)
        encoded, live = _live(self.model, batch, rows)
        # A vector that is not finite would spoil every later step, so it never enters.
        valid &= tf.math.is_finite(tf.reduce_sum(live, axis=1))
        pushed = self.queue.enqueue(handles["queue"], valid, item=rows, owner=owners, vector=live)
        keep_live, keep_older = valid[None, :], pushed.older[None, :]
        if self.mask_same_user:
            own = tf.range(tf.size(batch["user_id"], out_type=tf.int64), dtype=tf.int64)
            owners = self.queue.read(handles["queue"], "owner")
            keep_live &= contrastive.same_user_mask(batch["user_id"], batch["user_id"], own)
            keep_older &= contrastive.same_user_mask(batch["user_id"], owners, -tf.ones_like(own))
        older, items = (self.queue.read(handles["queue"], name) for name in ("vector", "item"))
        positives = self._positive_logits(handles, encoded, batch)
        return self._with_positives(
            positives,
            self._live_logits(handles, encoded, live, rows, positives, self._entries_of_each(pushed.fill, valid))
            + contrastive.mask_logits(keep_live),
            self._logits(handles, encoded.users, tf.stop_gradient(older), items[:, 0])
            + contrastive.mask_logits(keep_older))

    def _entries_of_each(self, fill, valid):
        """How many entries of the queue each valid row of the batch stands for, scalar."""
        return tf.cast(fill, tf.float32) / tf.maximum(tf.reduce_sum(tf.cast(valid, tf.float32)), 1.0)

    def _live_logits(self, handles, encoded, live, rows, positives, entries_of_each):
        """Logits [B,B] of the batch's own entries."""
        if not self.balanced:
            return self._logits(handles, encoded.users, live, rows[:, 0])
        logits = self._logits(handles, encoded.users, contrastive.scale_gradient(live, entries_of_each), rows[:, 0])
        # A row meets its own positive in one step only, the one in which both are here.
        return logits if self.impressions else tf.linalg.set_diag(logits, positives)


def _live(model, batch, rows):
    """The encoded batch, and g [B,D] of what is fed: the targets themselves, or other rows encoded beside them."""
    if rows is batch["target"]:
        encoded = model.encode(batch)
        return encoded, encoded.positives
    encoded = model.encode(batch, rows)
    return encoded, tf.gather(encoded.distinct, encoded.queued)


def counted_logits(logits, encoded):
    """Logits [B,U] of distinct candidates with log counts: equal items have equal logits, so m of them are one term
    with log m added, which is exact, and cheaper.

    Args:
      logits: (users [B,D], items [U,D], ids [U]) -> [B,U].
      encoded: with `distinct`, `distinct_ids`, `counts`.
    """
    terms = tf.math.log(tf.cast(encoded.counts, tf.float32))[None, :]
    return logits(encoded.users, encoded.distinct, encoded.distinct_ids) + terms


def build_variant(kind, model, capacity, mask_same_user, local_variable, log_q=None, impressions=None, balanced=True,
                  local_constant=in_memory):
    """The variant "in_batch", "raw" or "cached" over a new queue.

    Args:
      kind: variant.
      model: a `CLRec`.
      capacity: Q.
      mask_same_user: leave a user's other clicks out of its denominator.
      local_variable: from the runtime, see `FifoQueue`.
      log_q, impressions, local_constant: see `_Variant`.
      balanced: see `CachedQueueNegatives`.
    """
    settings = mask_same_user, log_q, impressions, local_constant
    if kind == "in_batch":
        return InBatchNegatives(model, None, *settings)
    fields = {"item": tf.TensorSpec([model.item_encoder.item_width], tf.int64), "owner": tf.TensorSpec([], tf.int64)}
    if kind == "raw":
        return RawQueueNegatives(model, FifoQueue(capacity, fields, local_variable), *settings)
    fields["vector"] = tf.TensorSpec([model.item_encoder.dim], tf.float32)
    return CachedQueueNegatives(model, FifoQueue(capacity, fields, local_variable), *settings, balanced=balanced)
