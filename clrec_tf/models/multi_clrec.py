"""Multi-CLRec: H intent vectors per user, told apart by the categories of the clicks (paper, "Multi-CLRec").

Batches are those of ``two_tower``.

With --multi_objective=gated the score of an item is log Σ_h w_h e^{s_h}, w the weights, s_h = ⟨z_h, g⟩/ρ with the margin
of the item's intent (``intent_margin``). All of it is an inner product over ρ, of [z_h; margin; ρ·log w_h] and
[g; margin; 1].
"""
import dataclasses

from absl import logging
import tensorflow as tf

from clrec_tf.encoders.base import Clicks
from clrec_tf.encoders.intent_items import IntentItemEncoder
from clrec_tf.errors import UserError
from clrec_tf.losses import auxiliary
from clrec_tf.losses import multi_vector
from clrec_tf.models.intent_margin import IntentMargin
from clrec_tf.models.two_tower import TwoTower
from clrec_tf.settings.registry import TOWERS
from clrec_tf.settings.setting import Section
from clrec_tf.settings.setting import setting


@dataclasses.dataclass(frozen=True)
class MultiCLRecSettings(Section):
    """--model=multi_clrec"""
    multi_objective: str = setting("gated",
        "multi_clrec: gated: the vector of a target's intent is trained, and weights count in numerator and "
        "denominator. paper: the vector selected for the user is trained, by --st_mode.", choices=("gated", "paper"))
    intent_margin: float = setting(7.0,
        "multi_clrec: gated: nats by which a vector prefers items of its own intent, so that vectors need not keep away "
        "from items of others. Vectors of an index have as many more coordinates as there are intents, at most 16 (0: "
        "no margin). Of more than 32 intents it is approximate.", lower=0.0, upper=1000.0)
    category_feature: str = setting("", "multi_clrec: item feature by which clicks are routed to intents (default: "
                                        "the first).")
    routing_weight: float = setting(1.0, "multi_clrec: weight λ1 of the loss that targets are routed clearly.",
                                    lower=0.0)
    vector_weight: float = setting(1.0, "multi_clrec: weight λ2 of the loss that the vector of a target's intent is "
                                        "the nearest to it, of gated ones with the margin, which nearly sees to it.",
                                   lower=0.0)
    balance_weight: float = setting(1.0, "multi_clrec: weight λ3 of the loss that all intents are used equally.",
                                    lower=0.0)
    selection_weight: float = setting(0.0, "multi_clrec: weight of the loss that the vector of a target's intent is "
                                           "the one selected, by which weights become chances (not in the paper).",
                                      lower=0.0)
    balance_items: str = setting("all", "multi_clrec: whose routing is balanced: all clicks of a batch, its targets, "
                                        "or its unique items.", choices=("all", "targets", "unique"))
    balance_hinge: bool = setting(False, "multi_clrec: balance pulls at intents with less than their share only.")
    routing_confidence: float = setting(1.0, "multi_clrec: a target routed with more than this probability draws no "
                                             "further (.95 is a remedy for collapse).", lower=0.0, upper=1.0)

    def check(self, config):
        """`UserError` where a margin is given to an objective without."""
        default = type(self).intent_margin
        if self.multi_objective == "paper" and self.intent_margin not in (0.0, default):
            raise UserError(f"--intent_margin={self.intent_margin} is read with --multi_objective=gated, not with paper: "
                            "leave it out, or give that")


@dataclasses.dataclass(frozen=True)
class BatchIntents:
    """What is known of a batch's intents.

    Attributes:
      users: `intents.Intents` of the histories.
      target_logits: routing logits of the targets, [B,H].
      targets: h⁺ [B] int32, the intent of each target.
      scores: s_h = ⟨z_h, g(y)⟩/ρ of each target, with the margin of h⁺, [B,H].
    """
    users: object
    target_logits: tf.Tensor
    targets: tf.Tensor
    scores: tf.Tensor


@TOWERS.register("multi_clrec")
class MultiCLRec(TwoTower):
    """The candidate tower g, the query tower z_1..z_H with weights, and the auxiliary losses.

    Args:
      item_encoder: an `IntentItemEncoder`.
      user_encoder: an `IntentUserEncoder`.
      temperature: ρ.
      settings: of the objective and the auxiliary losses.
      all_vectors: whether the loss gives all H vectors a score; else it trains the selected one alone.
    """

    Settings = MultiCLRecSettings
    summary = "--num_intents vectors per user, and a queue for each intent."

    def __init__(self, item_encoder, user_encoder, temperature, settings=MultiCLRecSettings(), all_vectors=True):
        super().__init__(item_encoder, None, user_encoder, "cosine", temperature, name="multi_clrec")
        self.settings, self._all_vectors = settings, all_vectors
        self.margin = IntentMargin(self.num_intents, temperature, settings.intent_margin if self.gated else 0.0)

    @classmethod
    def encoder_name(cls, settings):
        """Always the intents'."""
        del settings
        return "intents"

    @classmethod
    def make(cls, inputs):
        """See `TwoTower.make`."""
        settings, sizes = inputs.settings, inputs.sizes
        names = [feature.name for feature in sizes.schema.features]
        if not names:
            raise UserError("--model=multi_clrec routes clicks to intents by their category, and this data set has no "
                            "item features: prepare it with --feature_columns or --item_features, or use --model=clrec")
        category = settings.category_feature or names[0]
        if category not in names:
            raise UserError(f"--category_feature={category} is no item feature of this data set: choose from "
                            f"{', '.join(names)}")
        logging.info("clicks are routed to intents by their %s (--category_feature)", category)
        items = IntentItemEncoder(sizes.schema.item_rows, sizes.dim, sizes.schema.features, category,
                                  inputs.feature_widths, inputs.content, inputs.encoder_settings.residual, inputs.seed,
                                  sizes.product_dtype)
        return cls(items, inputs.user_encoder(), sizes.temperature, settings, inputs.all_vectors)

    @property
    def served_intents(self):
        """All H: what the loss is calibrated for is the sum over all of them, of which the largest term is served."""
        return self.num_intents if self._all_vectors else 1

    @property
    def routes_by_category(self):
        """With several intents."""
        return self.num_intents > 1

    @property
    def gated(self):
        """By --multi_objective. With one vector per user there is nothing to weigh."""
        return self._all_vectors and self.settings.multi_objective == "gated" and self.num_intents > 1

    @property
    def intent_coordinates(self):
        """Of the margin, and of the gate."""
        return self.margin.width + self.gated

    @property
    def candidate_width(self) -> int:
        """Numbers of `candidate_vectors`."""
        return self.item_encoder.dim + self.margin.width

    @property
    def logit_bound(self):
        """1/ρ, and the margin."""
        return 1.0 / self.temperature + self.margin.nats

    @property
    def history_width(self):
        """Item and category side by side."""
        return 2 * self.item_encoder.dim

    def item_vectors(self, rows):
        """The candidate tower: item rows [N,C] -> g [N,D], not normalized."""
        return self.history_vectors(rows)[:, :self.item_encoder.dim]

    def compared_items(self, rows):
        """See `TwoTower.compared_items`."""
        vectors = self.candidate_vectors(self.history_vectors(rows))
        return tf.concat([vectors, tf.ones_like(vectors[:, :1])], axis=1) if self.gated else vectors

    def candidate_vectors(self, items):
        """Candidates with the direction of the intent that each is routed to: [N,2D] -> [N,`candidate_width`]."""
        vectors, categories = tf.split(items, 2, axis=1)
        intents = tf.argmax(self.user_encoder.route(categories), axis=1, output_type=tf.int32)
        return self.margin.behind(self.score_vectors(vectors), intents)

    def intent_vectors(self, vectors):
        """Users' vectors z [B,H,D], in the order of the intents, as candidates are compared with them."""
        return self.margin.behind(vectors, tf.tile(tf.range(self.num_intents)[None], [tf.shape(vectors)[0], 1]))

    def user_intents(self, items, mask, gaps=None, dwell=None, events=None, query=None):
        """See `TwoTower.user_intents`; all H vectors, by falling weight."""
        users, numbers = self.user_encoder(Clicks(None, items, mask, gaps, dwell, events, query)).heaviest_first()
        vectors = self.margin.behind(users.vectors, numbers)
        if self.gated:
            gate = self.temperature * tf.nn.log_softmax(users.logits)
            vectors = tf.concat([vectors, gate[:, :, None]], axis=2)
        return vectors, tf.nn.softmax(users.logits), numbers

    def route(self, rows):
        """The intent of each item, argmax_h cos(μ_h, c): rows [N,C] -> [N] int32."""
        return tf.argmax(self.user_encoder.route(self.item_encoder.categories(rows)), axis=1, output_type=tf.int32)

    def auxiliary_losses(self, encoded, batch):
        """λ1·L1 + λ2·L2 of each row, and λ3·L3 of the batch in every row: [B]."""
        intents, settings = encoded.beside, self.settings
        losses = tf.zeros_like(batch["weight"])
        if settings.routing_weight:
            losses += settings.routing_weight * auxiliary.intent_cross_entropy(
                intents.target_logits, intents.targets, settings.routing_confidence)
        if settings.vector_weight:
            losses += settings.vector_weight * auxiliary.intent_cross_entropy(intents.scores, intents.targets)
        if settings.selection_weight:
            losses += settings.selection_weight * auxiliary.intent_cross_entropy(
                intents.users.selection, intents.targets)
        if settings.balance_weight:
            mean = self._mean_routing(intents, batch)
            losses += settings.balance_weight * auxiliary.balance_loss(mean, settings.balance_hinge)
        return losses

    def _mean_routing(self, intents, batch):
        """log π [H] over the items that --balance_items names."""
        counts = batch["weight"] > 0
        if self.settings.balance_items == "targets":
            return auxiliary.mean_routing(intents.target_logits, counts)
        logits = tf.concat([intents.users.routing, intents.target_logits], axis=0)
        of_row = tf.repeat(counts, batch["history"].shape[1])
        keep = tf.concat([intents.users.mask & of_row, counts], axis=0)
        if self.settings.balance_items == "unique":
            items = tf.concat([tf.reshape(batch["history"][:, :, 0], [-1]), batch["target"][:, 0]], axis=0)
            keep &= _first_of_each(tf.where(keep, items, 0))
        return auxiliary.mean_routing(logits, keep)

    def _encode_rows(self, items, places, batch, training):
        batch_size, length = batch["history"].shape[:2]
        mask = tf.sequence_mask(batch["length"], length)
        mask &= ~self.hidden_histories(batch_size, batch, training)[:, None]
        of_targets, of_clicks = tf.split(places, [batch_size, batch_size * length])
        targets, (clicked, inverse) = tf.gather(items, of_targets), tf.unique(of_clicks)
        read = [tf.gather(part, inverse) for part in self.user_encoder.read_items(tf.gather(items, clicked))]
        clicks = Clicks(None, None, mask, batch.get("time_gap"), batch.get("dwell"), batch.get("event"),
                        batch.get("query"), batch.get("seed"))
        users = self.user_encoder.of_read(read, clicks, training)
        targets, categories = tf.split(targets, 2, axis=1)
        target_logits = self.user_encoder.route(categories)
        of_targets = tf.argmax(target_logits, axis=1, output_type=tf.int32)
        positives = self.margin.behind(self.score_vectors(targets), of_targets)
        scores = tf.linalg.matvec(self.intent_vectors(users.vectors), positives / self.temperature)
        intents = BatchIntents(users, target_logits, of_targets, scores)
        # For losses of one vector per user: the selected one, with the straight-through gradient of the selection.
        selected = tf.linalg.matvec(users.vectors, multi_vector.straight_through(users.logits), transpose_a=True)
        return targets, selected, intents


def _first_of_each(ids):
    """Whether each id [N] is the first of its kind; 0 never is."""
    distinct, places = tf.unique(ids)
    positions = tf.range(tf.size(ids))
    first = tf.math.unsorted_segment_min(positions, places, tf.size(distinct))
    return (tf.gather(first, places) == positions) & (ids != 0)
