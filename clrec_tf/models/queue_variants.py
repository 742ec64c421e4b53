"""Where the denominator's candidates come from: the batch, a raw queue or a cached queue (paper, Figure 2 a, b, c).

Each variant enqueues first and then gives the logits of the positives and, in one or two blocks of columns, of the
whole multiset C, in which each row's positive stands exactly once.
"""
import tensorflow as tf

from clrec_tf.losses import contrastive
from clrec_tf.negatives.fifo_queue import FifoQueue
from clrec_tf.negatives.fifo_queue import duplicate_rate


class _Variant(tf.Module):
    """Shared parts: the queue's fields, and its health."""

    def __init__(self, model, queue, mask_same_user):
        super().__init__()
        self.model, self.queue, self.mask_same_user = model, queue, mask_same_user

    def handles(self):
        """Handles of the queue's variables; once per trace."""
        return self.queue.handles() if self.queue else {}

    def health(self, handles):
        """`queue_fill`, entries, and `queue_duplicate_rate`, share of entries that repeat an item; scalars."""
        if not self.queue:
            return {}
        fill = self.queue.fill(handles)
        ids = self.queue.read(handles, "item")[:fill, 0]
        return {"queue_fill": tf.cast(fill, tf.float32), "queue_duplicate_rate": duplicate_rate(ids)}

    def prefill(self, batches):
        """Fills the queue with the targets of batches, encoded by the model as it is, until it is full."""
        handles = self.handles()
        for batch in batches:
            if int(self.queue.fill(handles)) == self.queue.capacity:
                break
            fields = {"item": batch["target"], "owner": batch["user_id"]}
            if "vector" in self.queue.specs:
                fields["vector"] = self.model.score_vectors(self.model.item_vectors(batch["target"]))
            self.queue.enqueue(handles, batch["weight"] > 0, **fields)

    def _logits(self, users, items):
        return contrastive.pairwise_logits(users, items, self.model.temperature)

    def _positive_logits(self, encoded):
        return contrastive.paired_logits(encoded.users, encoded.positives, self.model.temperature)


class InBatchNegatives(_Variant):
    """(a) The batch's own positives: the queue with Q = B. Nothing is kept between steps."""

    def logits(self, batch, handles):
        """Batch -> (positive logits [B], candidate logits [B,B])."""
        del handles
        encoded = self.model.encode(batch)
        valid = batch["weight"] > 0
        keep = valid[None, :]
        if self.mask_same_user:
            own = tf.range(tf.size(batch["user_id"], out_type=tf.int64), dtype=tf.int64)
            keep &= contrastive.same_user_mask(batch["user_id"], batch["user_id"], own)
        return self._positive_logits(encoded), self._logits(
            encoded.users, encoded.positives) + contrastive.mask_logits(keep)


class RawQueueNegatives(_Variant):
    """(b) A queue of item rows, re-encoded each step with gradient; each distinct item once, weighted by its count."""

    def logits(self, batch, handles):
        """Batch -> (positive logits [B], candidate logits [B,U] with log counts, or [B,fill] with same-user masks)."""
        # Enqueue first: a positive belongs to its own denominator, once.
        pushed = self.queue.enqueue(handles, batch["weight"] > 0, item=batch["target"], owner=batch["user_id"])
        encoded = self.model.encode(batch, self.queue.read(handles, "item")[:pushed.fill])
        if self.mask_same_user:
            candidates = tf.gather(encoded.distinct, encoded.queued)
            owners = self.queue.read(handles, "owner")[:pushed.fill]
            terms = contrastive.mask_logits(contrastive.same_user_mask(batch["user_id"], owners, pushed.slots))
        else:
            # Equal items have equal logits, so m of them are one term with log m added: exact, and cheaper.
            candidates = encoded.distinct
            terms = tf.math.log(tf.cast(encoded.counts, tf.float32))[None, :]
        return self._positive_logits(encoded), self._logits(encoded.users, candidates) + terms


class CachedQueueNegatives(_Variant):
    """(c) A queue of item vectors: this batch's items live and with gradient, earlier ones as they were encoded."""

    def logits(self, batch, handles):
        """Batch -> (positive logits [B], candidate logits [B,B] of the batch, [B,Q] of the queue)."""
        encoded = self.model.encode(batch)
        # A vector that is not finite would spoil every later step, so it never enters.
        valid = (batch["weight"] > 0) & tf.math.is_finite(tf.reduce_sum(encoded.positives, axis=1))
        pushed = self.queue.enqueue(
            handles, valid, item=batch["target"], owner=batch["user_id"], vector=encoded.positives)
        keep_live, keep_older = valid[None, :], pushed.older[None, :]
        if self.mask_same_user:
            own = tf.range(tf.size(batch["user_id"], out_type=tf.int64), dtype=tf.int64)
            owners = self.queue.read(handles, "owner")
            keep_live &= contrastive.same_user_mask(batch["user_id"], batch["user_id"], own)
            keep_older &= contrastive.same_user_mask(batch["user_id"], owners, -tf.ones_like(own))
        live = self._logits(encoded.users, encoded.positives) + contrastive.mask_logits(keep_live)
        older = self._logits(encoded.users, tf.stop_gradient(self.queue.read(handles, "vector")))
        return self._positive_logits(encoded), live, older + contrastive.mask_logits(keep_older)


def build_variant(kind, model, capacity, mask_same_user, local_variable):
    """The variant "in_batch", "raw" or "cached" over a new queue.

    Args:
      kind: variant.
      model: a `CLRec`.
      capacity: Q.
      mask_same_user: leave a user's other clicks out of its denominator.
      local_variable: from the runtime, see `FifoQueue`.
    """
    if kind == "in_batch":
        return InBatchNegatives(model, None, mask_same_user)
    fields = {"item": tf.TensorSpec([model.item_encoder.item_width], tf.int64), "owner": tf.TensorSpec([], tf.int64)}
    if kind == "cached":
        fields["vector"] = tf.TensorSpec([model.item_encoder.dim], tf.float32)
    variant = {"raw": RawQueueNegatives, "cached": CachedQueueNegatives}[kind]
    return variant(model, FifoQueue(capacity, fields, local_variable), mask_same_user)
