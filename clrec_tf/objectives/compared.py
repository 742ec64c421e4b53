"""What the losses that CLRec is compared with share: the same towers, candidates from the catalogue, no queue."""
import tensorflow as tf

from clrec_tf.losses import contrastive
from clrec_tf.objectives.base import RowObjective
from clrec_tf.objectives.resources import Constants
from clrec_tf.objectives.resources import in_memory


class Compared(RowObjective):
    """A loss over items of the catalogue, all or sampled.

    Args:
      model: a `TwoTower`.
      rows: [item_rows,C] int64, item row by id; row 0 is padding.
      sampler: an `AliasSampler` of ids minus one, or None.
      num_negatives: L.
      local_constant: see `resources.Constants`.
      **constants: further arrays that each trace opens.
    """

    def __init__(self, model, rows, sampler=None, num_negatives=0, local_constant=in_memory, **constants):
        super().__init__(model, sampler=sampler, constants=Constants(local_constant, rows=rows, **constants))
        self.num_negatives = num_negatives

    def rows(self, batch, training=True):
        """Batch -> [B]."""
        encoded, losses = self.compare(batch, training)
        return losses + self.added_losses(encoded, batch)

    def compare(self, batch, training=True):
        """The encoded batch, and each row's loss [B] without what the model adds."""
        raise NotImplementedError

    def sampled_ids(self, shape):
        """Item ids [shape] drawn by the sampler."""
        return 1 + self.sampler.sample(shape)

    def encode(self, batch, ids, training):
        """The batch, and the items of ids [N] as its candidates."""
        return self.model.encode(batch, tf.gather(self.constants["rows"], ids), training)

    def positive_logits(self, encoded):
        """φ of the targets, [B]."""
        return contrastive.paired_logits(encoded.users, encoded.positives, self.model.temperature)

    def shared_logits(self, users, items, ids=None):
        """φ of candidates that all rows have: users [B,D], items [N,D], ids [N] -> [B,N]."""
        del ids
        return contrastive.pairwise_logits(users, items, self.model.temperature)
