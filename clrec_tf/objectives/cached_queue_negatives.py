"""(c) of the paper's Figure 2: a queue of item vectors, encoded once."""
import dataclasses

import tensorflow as tf

from clrec_tf.losses import contrastive
from clrec_tf.models.batches import without_after
from clrec_tf.objectives.fifo_queue import FifoQueue
from clrec_tf.objectives.queue_negatives import of_fed
from clrec_tf.objectives.queue_negatives import QueueNegatives


def cached_queue(capacity, model, local_variable, contexts=False) -> FifoQueue:
    """The queue of `CachedQueueNegatives`: item rows, who clicked them, their vectors, and with `contexts` in which
    context they were clicked."""
    encoder = model.item_encoder
    fields = {"item": tf.TensorSpec([encoder.item_width], tf.int64), "owner": tf.TensorSpec([], tf.int64),
              "vector": tf.TensorSpec([encoder.dim], tf.float32)}
    fields |= {"context": tf.TensorSpec([], tf.int64)} if contexts else {}
    return FifoQueue(capacity, fields, local_variable)


class CachedQueueNegatives(QueueNegatives):
    """A queue of item vectors: this batch's items live and with gradient, earlier ones as they were encoded.

    Earlier entries give no gradient to the items, so that an item would be drawn to its users in full and pushed away
    by a share B/Q of the negatives only, until all items point the same way. With `balanced` each of the batch's items
    therefore stands for fill/B entries in that gradient, which then has the raw queue's expectation, entries being
    alike. Of a row in windows many live entries are its own user's, and left out: the others stand for all that are of
    other users, of whatever context, since where a step by chance brings none of the row's context the other steps
    have to make up for it. The loss itself, and the gradient of the users, are the same.

    With `keys`, a ``key_encoder.KeyEncoder``, it encodes all items of the comparison, the positives too (MoCo). They
    have no gradient then: items learn by the histories that they stand in.
    """

    def __init__(self, *arguments, balanced=True, keys=None, **more):
        super().__init__(*arguments, **more)
        self.balanced, self.keys = balanced, keys

    def compare(self, batch, training):
        """Batch -> (encoded, (positive logits [B], candidate logits [B,B] of the batch, [B,Q] of the queue))."""
        fed = self._fed(batch)
        encoded, live = self._encode_fed(batch, fed, training)
        return encoded, self.beside_queue(batch, fed, encoded, live)

    def _encode_fed(self, batch, fed, training):
        if self.keys is None:
            return super()._encode_fed(batch, fed, training)
        histories = {**without_after(batch), "target": tf.zeros_like(batch["target"])}
        positives = self.keys.candidates(batch["target"])
        encoded = dataclasses.replace(self.model.encode(histories, training=training), positives=positives)
        return encoded, of_fed(positives, fed) if self.impressions is None else self.keys.candidates(fed.rows)

    def beside_queue(self, batch, fed, encoded, live):
        """Enqueues what is fed, whose vectors are `live` [E,D] -> logits as of `compare`."""
        # A vector that is not finite would spoil every later step, so it never enters.
        valid = fed.valid & tf.math.is_finite(tf.reduce_sum(live, axis=1))
        pushed = self.queue.enqueue(valid, vector=live, **self._fields(fed))
        own = tf.range(tf.size(batch["user_id"], out_type=tf.int64), dtype=tf.int64)
        live_others = valid[None, :] & self._of_others(batch, fed.owners, own)
        older_others = pushed.older[None, :] & self._of_others(batch, self.queue.read("owner"))
        keep_live = live_others & self._of_context(batch, fed.contexts)
        keep_older = older_others & self._of_context(batch, self._queued_contexts())
        older, positives = self.queue.read("vector"), self._positive_logits(encoded, batch)
        return self._with_positives(
            positives,
            self._live_logits(encoded.users, live, fed.rows[:, 0], positives, valid, pushed.fill, live_others,
                              older_others) + contrastive.mask_logits(keep_live),
            self._logits(encoded.users, tf.stop_gradient(older), self._queued_ids())
            + contrastive.mask_logits(keep_older))

    def _queued_ids(self):
        """Item ids [Q] of the queue; None where no logit is corrected by them."""
        return None if self.corrections is None else self.queue.read("item")[:, 0]

    def _live_logits(self, users, live, ids, positives, valid, fill, live_others, older_others):
        """Logits [B,E] of the step's own entries."""
        if not self.balanced:
            return self._logits(users, live, ids)
        if self.positives_apart and self.mask_same_user:
            # The factor is another for each row. In the gradient of the users it is taken back: that is the loss's.
            factor = _entries_of_each_row(live_others, older_others)
            users = contrastive.scale_gradient(users, 1.0 / factor)
            return contrastive.scale_gradient(self._logits(users, live, ids), factor)
        entered = tf.maximum(tf.reduce_sum(tf.cast(valid, tf.float32)), 1.0)
        logits = self._logits(users, contrastive.scale_gradient(live, tf.cast(fill, tf.float32) / entered), ids)
        # A row meets its own positive in one step only, the one in which both are here.
        return logits if self.positives_apart else tf.linalg.set_diag(logits, positives)


def _entries_of_each_row(live, older):
    """How many entries each live one stands for, by row: [B,E], [B,Q] bool -> [B,1]."""
    live, older = (tf.reduce_sum(tf.cast(each, tf.float32), axis=1, keepdims=True) for each in (live, older))
    return tf.where(live > 0, (live + older) / tf.maximum(live, 1.0), 1.0)
