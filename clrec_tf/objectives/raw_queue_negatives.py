"""(b) of the paper's Figure 2: a queue of item rows, re-encoded each step."""
import tensorflow as tf

from clrec_tf.losses import contrastive
from clrec_tf.objectives.counted_logits import counted_logits
from clrec_tf.objectives.fifo_queue import FifoQueue
from clrec_tf.objectives.queue_negatives import QueueNegatives


def raw_queue(capacity, model, local_variable, contexts=False) -> FifoQueue:
    """The queue of `RawQueueNegatives`: item rows, who clicked them, and with `contexts` in which one."""
    fields = {"item": tf.TensorSpec([model.item_encoder.item_width], tf.int64), "owner": tf.TensorSpec([], tf.int64)}
    fields |= {"context": tf.TensorSpec([], tf.int64)} if contexts else {}
    return FifoQueue(capacity, fields, local_variable)


class RawQueueNegatives(QueueNegatives):
    """A queue of item rows, encoded with gradient in every step; each distinct item once, weighted by its count."""

    def compare(self, batch, training):
        """Batch -> (encoded, (positive logits [B], candidate logits [B,U] with log counts, or [B,fill] with
        masks))."""
        fed = self._fed(batch)
        # Enqueue first: a positive belongs to its own denominator, once.
        pushed = self.queue.enqueue(fed.valid, **self._fields(fed))
        encoded = self.model.encode(batch, self.queue.read("item")[:pushed.fill], training)
        positives = self._positive_logits(encoded, batch)
        if not self.masks:
            return encoded, self._with_positives(positives, counted_logits(self._logits, encoded))
        owners = self.queue.read("owner")[:pushed.fill]
        keep = self._of_others(batch, owners, pushed.slots) & self._of_context(
            batch, self._queued_contexts(pushed.fill))
        logits = self._logits(encoded.users, *(tf.gather(part, encoded.queued) for part in (
            encoded.distinct, encoded.distinct_ids)))
        return encoded, self._with_positives(positives, logits + contrastive.mask_logits(keep))
