"""(a) of the paper's Figure 2: the batch's own positives are the negatives."""
import tensorflow as tf

from clrec_tf.losses import contrastive
from clrec_tf.objectives.queue_negatives import QueueNegatives


class InBatchNegatives(QueueNegatives):
    """The batch's own positives, or as many impressions: the queue with Q = B. Nothing is kept between steps."""

    def compare(self, batch, training):
        """Batch -> (encoded, (positive logits [B], candidate logits [B,B]))."""
        fed = self._fed(batch)
        encoded, live = self._encode_fed(batch, fed, training)
        own = tf.range(tf.size(batch["user_id"], out_type=tf.int64), dtype=tf.int64)
        keep = fed.valid[None, :] & self._of_others(batch, fed.owners, own) & self._of_context(batch, fed.contexts)
        candidates = self._logits(encoded.users, live, fed.rows[:, 0]) + contrastive.mask_logits(keep)
        return encoded, self._with_positives(self._positive_logits(encoded, batch), candidates)
