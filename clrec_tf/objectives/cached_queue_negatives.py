"""(c) of the paper's Figure 2: a queue of item vectors, encoded once."""
import tensorflow as tf

from clrec_tf.losses import contrastive
from clrec_tf.objectives.fifo_queue import FifoQueue
from clrec_tf.objectives.queue_negatives import QueueNegatives


def cached_queue(capacity, model, local_variable) -> FifoQueue:
    """The queue of `CachedQueueNegatives`: item rows, who clicked them, and their vectors."""
    encoder = model.item_encoder
    fields = {"item": tf.TensorSpec([encoder.item_width], tf.int64), "owner": tf.TensorSpec([], tf.int64),
              "vector": tf.TensorSpec([encoder.dim], tf.float32)}
    return FifoQueue(capacity, fields, local_variable)


class CachedQueueNegatives(QueueNegatives):
    """A queue of item vectors: this batch's items live and with gradient, earlier ones as they were encoded.

    Earlier entries give no gradient to the items, so that an item would be drawn to its users in full and pushed away
    by a share B/Q of the negatives only, until all items point the same way. With `balanced` each of the batch's items
    therefore stands for fill/B entries in that gradient, which then has the raw queue's expectation, entries being
    alike; of windows, for the share of the entries that its row is compared with. The loss itself, and the gradient of the users, are the same.
    """

    def __init__(self, *arguments, balanced=True, **more):
        super().__init__(*arguments, **more)
        self.balanced = balanced

    def compare(self, batch, training):
        """Batch -> (encoded, (positive logits [B], candidate logits [B,B] of the batch, [B,Q] of the queue))."""
        fed = self._fed(batch)
        encoded, live = self._encode_fed(batch, fed, training)
        # A vector that is not finite would spoil every later step, so it never enters.
        valid = fed.valid & tf.math.is_finite(tf.reduce_sum(live, axis=1))
        pushed = self.queue.enqueue(valid, item=fed.rows, owner=fed.owners, vector=live)
        keep_live, keep_older = valid[None, :], pushed.older[None, :]
        if self.mask_same_user:
            own = tf.range(tf.size(batch["user_id"], out_type=tf.int64), dtype=tf.int64)
            keep_live &= self._kept(batch, fed.owners, own)
            keep_older &= self._kept(batch, self.queue.read("owner"))
        older, items = (self.queue.read(name) for name in ("vector", "item"))
        positives = self._positive_logits(encoded, batch)
        return encoded, self._with_positives(
            positives,
            self._live_logits(encoded, live, fed.rows, positives,
                              self._entries_of_each(pushed.fill, valid, keep_live, keep_older))
            + contrastive.mask_logits(keep_live),
            self._logits(encoded.users, tf.stop_gradient(older), items[:, 0]) + contrastive.mask_logits(keep_older))

    def _entries_of_each(self, fill, valid, keep_live, keep_older):
        """How many entries of the queue each valid row of the batch stands for, scalar, or by row [B,1]."""
        if not (self.positives_apart and self.mask_same_user):
            entered = tf.reduce_sum(tf.cast(valid, tf.float32))
            return tf.maximum(tf.cast(fill, tf.float32), 1.0) / tf.maximum(entered, 1.0)
        # Of a few windows' targets many are the row's own, and left out: the others stand for all that is not.
        live, older = (tf.reduce_sum(tf.cast(keep, tf.float32), axis=1, keepdims=True)
                       for keep in (keep_live, keep_older))
        return tf.where(live > 0, (live + older) / tf.maximum(live, 1.0), 1.0)

    def _live_logits(self, encoded, live, rows, positives, entries_of_each):
        """Logits [B,B] of the batch's own entries."""
        if not self.balanced:
            return self._logits(encoded.users, live, rows[:, 0])
        # In the gradient of the items alone: that of the users is the loss's.
        users = contrastive.scale_gradient(encoded.users, 1.0 / entries_of_each)
        logits = contrastive.scale_gradient(self._logits(users, live, rows[:, 0]), entries_of_each)
        # A row meets its own positive in one step only, the one in which both are here.
        return logits if self.positives_apart else tf.linalg.set_diag(logits, positives)
