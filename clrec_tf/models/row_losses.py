"""Objectives whose rows each have a loss of their own."""
import tensorflow as tf

from clrec_tf.losses.contrastive import weighted_mean


class RowLosses(tf.Module):
    """Gives `loss`, what a training step differentiates, to objectives that have `losses(batch, handles) -> [B]`."""

    def loss(self, batch, handles) -> tf.Tensor:
        """Mean of the rows' losses by their weights, scalar; 0 where no row counts."""
        return weighted_mean(self.losses(batch, handles), batch["weight"])
