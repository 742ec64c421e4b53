"""--queue=all_clicks: the queue that holds all training clicks at once, for small catalogues.

It is the limit of a long queue: each item is one term of the denominator, by its number of clicks. No state, no old
vectors, and one product with the whole table for each row.
"""
import numpy as np
import tensorflow as tf

from clrec_tf.errors import UserError
from clrec_tf.losses import contrastive
from clrec_tf.losses.multi_vector import mean_log_denominator
from clrec_tf.objectives.base import MAX_FULL_SOFTMAX
from clrec_tf.objectives.base import Objective
from clrec_tf.objectives.resources import Constants
from clrec_tf.objectives.resources import in_memory


class AllClicks(Objective):
    """ℓ = −(φ(x,y) + β·log p̂(y)) + log Σ_y' p̂(y')^β e^{φ(x,y')}: the optimum is e^φ ∝ p(y|x)/p̂(y)^β.

    Args:
      model: a `TwoTower`.
      rows: [item_rows,C] int64, item row by id; row 0 is padding.
      log_popularity: β·log p̂ [item_rows] float32 by id; −inf for items that are never drawn.
      local_constant: see `resources.Constants`.
    """

    queue = None

    def __init__(self, model, rows, log_popularity, local_constant=in_memory):
        finite = log_popularity[1:][np.isfinite(log_popularity[1:])]
        self._spread, self._rarest = float(np.abs(finite).max()), float(finite.min())
        super().__init__(model, constants=Constants(local_constant, rows=rows, log_popularity=log_popularity))

    def loss(self, batch, training=True):
        """Mean of the rows' losses by their weights, scalar; 0 where no row counts."""
        encoded = self.model.encode(batch, self.constants["rows"][1:], training)
        weights, log_popularity = batch["weight"], self.constants["log_popularity"]
        shares = tf.math.divide_no_nan(weights, tf.reduce_sum(weights))
        bound = self.model.logit_bound + self._spread
        if encoded.users.shape.rank == 3:  # slots that each item reads by itself
            logits = contrastive.pairwise_logits(encoded.users, encoded.distinct, self.model.temperature)
            denominator = contrastive.weighted_mean(
                contrastive.log_sum_exp(logits + log_popularity[None, 1:], bound=bound), weights)
        else:
            denominator, _ = mean_log_denominator(
                encoded.users[:, None, :], tf.zeros_like(batch["user_id"], tf.int32), shares, encoded.distinct,
                tf.exp(log_popularity[None, 1:]), temperature=self.model.temperature, bound=bound)
        positives = contrastive.paired_logits(encoded.users, encoded.positives, self.model.temperature)
        rows = self.added_losses(encoded, batch) - positives - self._of_targets(batch)
        return denominator + contrastive.weighted_mean(rows, weights)

    def _of_targets(self, batch):
        found = tf.gather(self.constants["log_popularity"], batch["target"][:, 0])
        # A click on what was never shown is learned from too: a constant of the loss, finite.
        return tf.maximum(found, self._rarest)

    def chance_loss(self, batch):
        """Mean of −log p̂(y), where β = 1."""
        total = tf.reduce_logsumexp(self.constants["log_popularity"][1:])
        return total - contrastive.weighted_mean(self._of_targets(batch), batch["weight"])


def make_all_clicks(inputs, counts, beta: float) -> AllClicks:
    """The objective of `ObjectiveInputs`.

    Args:
      inputs: see there.
      counts: [item_rows] of what the queue would hold, such as impressions; None: training clicks.
      beta: how much of the popularity is removed.

    Raises:
      UserError: the catalogue is too large to be scored whole.
    """
    if inputs.num_items > MAX_FULL_SOFTMAX:
        raise UserError(f"--queue=all_clicks scores every item in every step; {inputs.num_items} are more than "
                        f"{MAX_FULL_SOFTMAX}: use cached, or raw")
    counts = np.array(inputs.items.counts if counts is None else counts, np.float64)
    counts[inputs.schema.num_items + 1:] += 1  # clicks on hash buckets are not counted apart, and may be targets
    counts[0] = 0
    log_popularity = np.where(counts > 0, beta * np.log(np.maximum(counts, 1) / counts.sum()), -np.inf)
    return AllClicks(inputs.model, inputs.items.rows, log_popularity.astype(np.float32), inputs.local_constant)
