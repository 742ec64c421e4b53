"""Objectives whose rows each have a loss of their own."""
import math

import tensorflow as tf

from clrec_tf.losses.contrastive import weighted_mean


class ChanceUnknown:
    """An objective of which nothing is known beforehand about the loss of a model that tells no candidates apart."""

    def chance_loss(self, batch, handles) -> tf.Tensor:
        """The batch's loss if all candidates had the same score, scalar, to be asked after `loss`; NaN: not known."""
        del batch, handles
        return tf.constant(math.nan)


class RowLosses(ChanceUnknown, tf.Module):
    """Gives `loss`, what a training step differentiates, to objectives that have `losses(batch, handles) -> [B]`."""

    def loss(self, batch, handles) -> tf.Tensor:
        """Mean of the rows' losses by their weights, scalar; 0 where no row counts."""
        return weighted_mean(self.losses(batch, handles), batch["weight"])
