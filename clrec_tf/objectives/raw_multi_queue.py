"""Multi-CLRec over queues of item rows, re-encoded each step."""
import tensorflow as tf

from clrec_tf.objectives.multi_queue_negatives import MultiQueueNegatives
from clrec_tf.objectives.multi_queue_negatives import Negatives


class RawMultiQueue(MultiQueueNegatives):
    """Queues of item rows, re-encoded each step with gradient, each distinct item once.

    Args:
      item_rows: rows of the id table, which bound the distinct items.
      *arguments: see `MultiQueueNegatives`.
    """

    def __init__(self, item_rows, *arguments):
        super().__init__(*arguments)
        # Counts of items are cheaper than 1+H queues of them, up to about twice the 2Q entries that a row is compared with.
        self.by_counts = item_rows <= 4 * self.queue.capacity

    def compare(self, batch, training):
        pushed = self._push(batch, batch["weight"] > 0)
        main, weights = self.queue.main.read("item")[:pushed.fill], self.entry_weights()
        of_main = self.main_counts(main, weights)
        encoded = self.model.encode(batch, tf.concat([main, self.queue.read("item")], axis=0), training)
        mine = tf.reshape(encoded.queued[pushed.fill:], [self.model.num_intents, self.queue.capacity])
        valid = self.queue.valid()
        if self.by_counts:
            return encoded, self._counted(encoded, encoded.queued[:pushed.fill], of_main, mine, valid, weights)
        gather = lambda places: tf.gather(encoded.distinct, places)
        return encoded, Negatives(gather(encoded.queued[:pushed.fill]), of_main, gather(mine),
                                  tf.cast(valid, tf.float32) * weights[:, None])

    def _counted(self, encoded, main, of_main, own, valid, weights):
        """Every distinct item as a shared candidate, with counts [H,U] of the main queue and each intent's own."""
        intents, items = self.model.num_intents, tf.size(encoded.counts)
        intent, _ = tf.unstack(tf.cast(tf.where(valid), tf.int32), axis=1)
        places = tf.stack([intent, tf.boolean_mask(own, valid)], axis=1)
        counts = tf.scatter_nd(places, tf.gather(weights, intent), [intents, items])
        return Negatives(encoded.distinct, counts + tf.transpose(
            tf.math.unsorted_segment_sum(tf.transpose(of_main), main, items)))
