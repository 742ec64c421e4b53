"""Multi-CLRec: H intent vectors per user, told apart by the categories of the clicks (paper, "Multi-CLRec").

Batches are those of ``clrec``, and `dwell` [B,T] int64 seconds where the data has it (−1 = unknown).
"""
import dataclasses

import tensorflow as tf

from clrec_tf.losses import auxiliary
from clrec_tf.losses import multi_vector
from clrec_tf.models.clrec import CLRec

BALANCED = ("all", "targets", "unique")


@dataclasses.dataclass(frozen=True)
class AuxiliarySettings:
    """Weights and kinds of the auxiliary losses.

    Attributes:
      target_routing: λ1, of "a target is routed clearly".
      target_vector: λ2, of "a target's intent is the one whose vector is nearest to it".
      balance: λ3, of "all intents are used equally".
      selection: of "the vector of a target's intent is the one selected" (an extension; 0 in the paper).
      balanced: whose mean routing is balanced: "all" clicks of histories and targets, "targets", or "unique" items.
      hinge: see `auxiliary.balance_loss`.
      confident: see `auxiliary.intent_cross_entropy`.
    """
    target_routing: float = 1.0
    target_vector: float = 1.0
    balance: float = 1.0
    selection: float = 0.0
    balanced: str = "all"
    hinge: bool = False
    confident: float = 1.0


@dataclasses.dataclass(frozen=True)
class BatchIntents:
    """What is known of a batch's intents.

    Attributes:
      users: `intents.Intents` of the histories.
      target_logits: routing logits of the targets, [B,H].
      targets: h⁺ [B] int32, the intent of each target.
      scores: s_h = ⟨z_h, g(y)⟩/ρ of each target, [B,H].
    """
    users: object
    target_logits: tf.Tensor
    targets: tf.Tensor
    scores: tf.Tensor


class MultiCLRec(CLRec):
    """The candidate tower g, the query tower z_1..z_H with weights, and the auxiliary losses.

    Args:
      item_encoder: an `IntentItemEncoder`.
      user_encoder: an `IntentUserEncoder`.
      temperature: ρ.
      settings: of the auxiliary losses.
    """

    def __init__(self, item_encoder, user_encoder, temperature, settings=AuxiliarySettings()):
        super().__init__(item_encoder, None, user_encoder, "cosine", temperature, name="multi_clrec")
        self.settings = settings

    @property
    def num_intents(self) -> int:
        """H."""
        return self.user_encoder.intents

    @property
    def history_width(self) -> int:
        """Item and category side by side."""
        return 2 * self.item_encoder.dim

    @property
    def uses_time(self) -> bool:
        """Whether the query tower reads time gaps."""
        return self.user_encoder.time_table is not None

    @property
    def uses_dwell(self) -> bool:
        """Whether the query tower reads dwell times."""
        return self.user_encoder.dwell_table is not None

    @property
    def query_variables(self):
        """Variables of the query tower beside the items'."""
        return self.user_encoder.variables

    def item_vectors(self, rows):
        """The candidate tower: item rows [N,C] -> g [N,D], not normalized."""
        return self.history_vectors(rows)[:, :self.item_encoder.dim]

    def history_vectors(self, rows):
        """Items as the query tower reads them: rows [N,C] -> g and c side by side, [N,2D]."""
        return self.item_encoder(rows)

    def user_intents(self, items, mask, gaps=None, dwell=None):
        """See `CLRec.user_intents`; all H vectors, by falling weight."""
        found = self.user_encoder(items, mask, gaps, dwell)
        # By logits, since small weights may round to the same number. Of equal ones the lowest number comes first.
        logits, numbers = tf.math.top_k(found.logits, self.num_intents)
        return tf.gather(found.vectors, numbers, batch_dims=1), tf.nn.softmax(logits), numbers

    def user_vectors(self, items, mask, gaps=None, dwell=None):
        """f(x) = z_{h*} [B,D], the vector of the largest weight."""
        return self.user_intents(items, mask, gaps, dwell)[0][:, 0]

    def route(self, rows):
        """The intent of each item, argmax_h cos(μ_h, c): rows [N,C] -> [N] int32."""
        return tf.argmax(self.user_encoder.route(self.item_encoder.categories(rows)), axis=1, output_type=tf.int32)

    def auxiliary_losses(self, encoded, batch):
        """λ1·L1 + λ2·L2 of each row, and λ3·L3 of the batch in every row: [B]."""
        found, settings = encoded.intents, self.settings
        losses = tf.zeros_like(batch["weight"])
        if settings.target_routing:
            losses += settings.target_routing * auxiliary.intent_cross_entropy(
                found.target_logits, found.targets, settings.confident)
        if settings.target_vector:
            losses += settings.target_vector * auxiliary.intent_cross_entropy(found.scores, found.targets)
        if settings.selection:
            losses += settings.selection * auxiliary.intent_cross_entropy(found.users.logits, found.targets)
        if settings.balance:
            losses += settings.balance * auxiliary.balance_loss(self._mean_routing(found, batch), settings.hinge)
        return losses

    def _mean_routing(self, found, batch):
        """log π [H] over the items that --balance_items names."""
        counts = batch["weight"] > 0
        if self.settings.balanced == "targets":
            return auxiliary.mean_routing(found.target_logits, counts)
        logits = tf.concat([found.users.routing, found.target_logits], axis=0)
        of_row = tf.repeat(counts, batch["history"].shape[1])
        keep = tf.concat([found.users.mask & of_row, counts], axis=0)
        if self.settings.balanced == "unique":
            items = tf.concat([tf.reshape(batch["history"][:, :, 0], [-1]), batch["target"][:, 0]], axis=0)
            keep &= _first_of_each(tf.where(keep, items, 0))
        return auxiliary.mean_routing(logits, keep)

    def _history_items(self, rows):
        return self.item_encoder(rows)

    def _encode_rows(self, items, places, batch):
        batch_size, length = batch["history"].shape[:2]
        dim, mask = self.item_encoder.dim, tf.sequence_mask(batch["length"], length)
        targets, history = tf.split(tf.gather(items, places), [batch_size, batch_size * length])
        users = self.user_encoder(tf.reshape(history, [batch_size, length, 2 * dim]), mask, batch.get("time_gap"),
                                  batch.get("dwell"))
        target_logits = self.user_encoder.route(targets[:, dim:])
        positives = self.score_vectors(targets[:, :dim])
        scores = tf.linalg.matvec(users.vectors, positives / self.temperature)
        intents = BatchIntents(users, target_logits, tf.argmax(target_logits, axis=1, output_type=tf.int32), scores)
        # For losses of one vector per user: the selected one, with the straight-through gradient of the selection.
        selected = tf.linalg.matvec(users.vectors, multi_vector.straight_through(users.logits), transpose_a=True)
        return targets[:, :dim], selected, intents


def _first_of_each(ids):
    """Whether each id [N] is the first of its kind; 0 never is."""
    distinct, places = tf.unique(ids)
    positions = tf.range(tf.size(ids))
    first = tf.math.unsorted_segment_min(positions, places, tf.size(distinct))
    return (tf.gather(first, places) == positions) & (ids != 0)
