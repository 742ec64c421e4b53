"""Multi-CLRec over queues of item vectors, encoded once."""
import tensorflow as tf

from clrec_tf.objectives.multi_queue_negatives import MultiQueueNegatives
from clrec_tf.objectives.multi_queue_negatives import Negatives


class CachedMultiQueue(MultiQueueNegatives):
    """Queues of item vectors: this batch's items live and with gradient, earlier ones as they were encoded.

    A live item's gradient from the denominators stands for all the rows that its copies in the main queue and then in
    its intent's queue will meet, as in `CachedQueueNegatives`; `balanced` off: for itself alone.
    """

    def __init__(self, *arguments, balanced):
        super().__init__(*arguments)
        self._balanced = balanced

    def _more_fields(self, model):
        return {"vector": tf.TensorSpec([model.candidate_width], tf.float32)}

    def _encoded_fields(self, batch):
        return {"vector": self.model.candidate_vectors(self.model.history_vectors(batch["target"]))}

    def compare(self, batch, training):
        encoded = self.model.encode(batch, training=training)
        live = self.model.margin.behind(encoded.positives, encoded.beside.targets)
        # A vector that is not finite would spoil every later step, so it never enters.
        valid = (batch["weight"] > 0) & tf.math.is_finite(tf.reduce_sum(live, axis=1))
        pushed = self._push(batch, valid, vector=live)
        targets, stands_for = encoded.beside.targets, None
        trained = tf.ones([self.model.num_intents, live.shape[0]])
        if self._balanced:
            trained = self._entries_of_each(targets, pushed.fill, valid)
            stands_for = tf.gather_nd(trained, tf.stack([targets, tf.range(live.shape[0])], axis=1))
        older, weights = self.queue.main.read("vector"), self.entry_weights()
        shared = tf.concat([live, tf.stop_gradient(older)], axis=0)
        rows = tf.concat([batch["target"], self.queue.main.read("item")], axis=0)
        counts = self.main_counts(rows, weights) * tf.cast(tf.concat([valid, pushed.older], axis=0), tf.float32)
        own = tf.reshape(self.queue.read("vector"), [self.model.num_intents, self.queue.capacity, -1])
        return encoded, Negatives(shared, counts, own, tf.cast(self.queue.valid(), tf.float32) * weights[:, None],
                                  trained, stands_for)

    def _entries_of_each(self, targets, fill, valid):
        """How many entries of its queues each of the batch's items stands for, to rows of each intent: [H,B].

        To all rows for its share of the main queue, and to rows of its own intent for that of the intent's queue too.
        A row's own positive, which counts once, is no sample of what else the queues hold: it is left out of shares.
        """
        share = lambda entries, items: tf.cast(entries, tf.float32) / tf.maximum(items - 1.0, 1.0)
        same = tf.one_hot(targets, self.model.num_intents, axis=0) * tf.cast(valid, tf.float32)[None, :]
        sizes = tf.reduce_sum(same, axis=1)
        return share(fill - 1, tf.reduce_sum(sizes)) + same * share(self.queue.fill(), sizes)[:, None]
