"""The query tower of Multi-CLRec: H intent vectors per user (paper, "Multi-CLRec").

Letters: B batch, T history, H intents, D width. A click's importance p_t says how much it counts, its routing p_{h|t}
for which intent: z'_h = Σ_t p_{h|t} p_t g_t. Routing depends on the category alone, so that an intent means the same
for every user.

A vector that sees only the clicks of its own intent cannot know what comes next after the others. So z_h has a context
c of the whole history too (--intent_context, an extension of the paper): z_h = MLP3([z'_h; β_h; c]) + z'_h + c.
"""
import dataclasses

import tensorflow as tf

from clrec_tf.data.histories import gaps_to_next
from clrec_tf.data.histories import UNKNOWN_GAP
from clrec_tf.encoders.base import Clicks
from clrec_tf.encoders.base import UserEncoder
from clrec_tf.encoders.base import UserVectors
from clrec_tf.encoders.clicks import BOUNDARIES
from clrec_tf.encoders.clicks import ClickEncoder
from clrec_tf.encoders.clicks import positions
from clrec_tf.encoders.clicks import time_bucket
from clrec_tf.encoders.dense import JoinedMlp
from clrec_tf.encoders import embeddings
from clrec_tf.encoders.multi_att import AttentionUserEncoder
from clrec_tf.encoders.multi_att import MultiAttSettings
from clrec_tf.encoders.query import QueryEncoder
from clrec_tf.encoders.sasrec import TransformerSettings
from clrec_tf.encoders.sasrec import TransformerUserEncoder
from clrec_tf.errors import UserError
from clrec_tf.losses.contrastive import l2_normalize
from clrec_tf.losses.contrastive import MASKED
from clrec_tf.settings.registry import ENCODERS
from clrec_tf.settings.setting import setting


def routing_logits(categories: tf.Tensor, prototypes: tf.Tensor, temperature: float) -> tf.Tensor:
    """cos(μ_h, c) / ρ, whose softmax over h is p_{h|item}: categories [N,D], prototypes μ [H,D] -> [N,H]."""
    tf.debugging.assert_shapes([(categories, "ND"), (prototypes, "HD")])
    return tf.matmul(l2_normalize(categories), l2_normalize(prototypes) / temperature, transpose_b=True)


def importance(scores: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """p_t: softmax of the scores [B,T] over the clicks; 0 at padding, and everywhere for an empty history."""
    keep = tf.cast(mask, scores.dtype)
    return tf.nn.softmax(tf.where(mask, scores, MASKED), axis=1) * keep


def routed_sums(routing: tf.Tensor, weights: tf.Tensor, items: tf.Tensor) -> tf.Tensor:
    """z'_h = Σ_t p_{h|t} p_t g_t, not divided by the mass Σ_t p_{h|t} p_t: an intent without clicks has z' ≈ 0.

    Args:
      routing: p_{h|t} [B,T,H].
      weights: p_t [B,T].
      items: g [B,T,D].

    Returns:
      [B,H,D].
    """
    tf.debugging.assert_shapes([(routing, "BTH"), (weights, "BT"), (items, "BTD")])
    return tf.matmul(routing * weights[:, :, None], items, transpose_a=True)


def intent_logits(interest: tf.Tensor, vectors: tf.Tensor, temperature: float) -> tf.Tensor:
    """w̃_h = cos(m, z_h) / ρ, what the user is after now: m [B,D], normalized z [B,H,D] -> [B,H]."""
    tf.debugging.assert_shapes([(interest, "BD"), (vectors, "BHD")])
    return tf.linalg.matvec(vectors, l2_normalize(interest) / temperature)


@dataclasses.dataclass(frozen=True)
class Intents(UserVectors):
    """The intents of a batch of users: `vectors` z [B,H,D], `logits` w̃ [B,H], and

    Attributes:
      routing: routing logits of the clicks, [B·T,H].
      mask: [B·T] bool, True at clicks.
      selection: w̃ [B,H], whose gradient reaches what the vectors are made from, but not through the vectors.
    """
    routing: tf.Tensor
    mask: tf.Tensor
    selection: tf.Tensor


CONTEXTS = dict(attention=AttentionUserEncoder, sasrec=TransformerUserEncoder)  # that read the clicks themselves


@dataclasses.dataclass(frozen=True)
class IntentSettings(MultiAttSettings, TransformerSettings):
    """--model=multi_clrec: the intents; settings of other encoders are those of --intent_context"""
    num_intents: int = setting(16, "multi_clrec: intents H, vectors per user.", lower=1, upper=1024)
    use_dwell: bool = setting(True, "multi_clrec: weigh clicks by how long the user stayed, where the data says so.")
    residual: bool = setting(True, "multi_clrec: MLPs add to their input, and items are normalized before they are "
                                   "summed, as the method's predecessor did.")
    intent_context: str = setting("attention",
        "multi_clrec: what each intent's vector knows of clicks on other intents. none: nothing (paper). sum: their "
        "weighted sum. attention, sasrec: what --user_encoder=multi_att or sasrec makes of the whole history.",
        choices=("none", "sum", *CONTEXTS))

    def check(self, config):
        """`UserError` where a setting is of another context, or does not fit."""
        for name, encoder in CONTEXTS.items():
            for field in dataclasses.fields(encoder.Settings) if name != self.intent_context else ():
                value = getattr(self, field.name)
                if value != field.default:
                    raise UserError(f"--{field.name}={value} with --model=multi_clrec is read with --intent_context="
                                    f"{name}, not with {self.intent_context}: leave it out")
        if self.intent_context == "sasrec":
            super().check(config)


@ENCODERS.register("intents", tower="multi_clrec")
class IntentUserEncoder(UserEncoder):
    """Histories -> `Intents`. Clicks come as `items`, g and the category's c side by side [B,T,2D].

    With `residual`, MLP3 and MLP4 are added to their first d inputs, and items are normalized before they are summed.
    """

    Settings = IntentSettings
    summary = "one vector for each intent (Multi-CLRec)."

    def __init__(self, settings, sizes):
        super().__init__(settings, sizes)
        dim, intents, seed, product_dtype = sizes.dim, settings.num_intents, sizes.seed, sizes.product_dtype
        uses_dwell = settings.use_dwell and sizes.schema is not None and sizes.schema.has_dwell
        self.dim, self.intents, self.temperature, self.position = dim, intents, sizes.temperature, sizes.position
        self.boundaries, self.residual = tuple(sizes.boundaries), settings.residual
        vectors = lambda name, offset: self.add_weight(
            name=name, shape=(intents, dim), initializer=embeddings.embedding_initializer(dim, seed + offset))
        self.prototypes, self.biases = vectors("prototypes", 0), vectors("biases", 1)
        table = lambda rows, offset, name: embeddings.EmbeddingTable(rows, dim, dim, False, seed + offset, name=name)
        self.position_table = None if sizes.position == "none" else table(sizes.max_history, 2, "positions")
        self.time_table = table(len(self.boundaries) + 2, 3, "time_buckets") if self.boundaries else None
        self.dwell_table = table(len(BOUNDARIES["log2"]) + 2, 4, "dwell_buckets") if uses_dwell else None
        self.event_table = table(sizes.event_kinds + 1, 10, "events") if sizes.event_kinds else None
        tables = [self.position_table, self.time_table, self.dwell_table, self.event_table]
        signals = [dim for known in tables if known is not None]
        self.importance_mlp = JoinedMlp([2 * dim, *signals], 2 * dim, 1, "mlp_2", product_dtype)
        context = settings.intent_context
        parts = [dim, dim] + ([] if context == "none" and not sizes.query_features else [dim])
        self.intent_mlp = JoinedMlp(parts, 2 * dim, dim, "mlp_3", product_dtype)
        self.interest_mlp = JoinedMlp([dim], 2 * dim, dim, "mlp_4", product_dtype)
        self.context_mlp = JoinedMlp([dim], 2 * dim, dim, "mlp_context", product_dtype) if context == "sum" else None
        self.context_clicks, self.context_encoder = None, None
        if context in CONTEXTS:
            self.context_clicks = ClickEncoder(dim, sizes.max_history, sizes.position, self.boundaries, seed + 5,
                                               sizes.event_kinds)
            self.context_encoder = CONTEXTS[context](settings, dataclasses.replace(sizes, seed=seed + 7))
        self.query_encoder = None
        if sizes.query_features:
            self.query_encoder = QueryEncoder(sizes.query_features, dim, seed + 11, product_dtype)

    def route(self, categories):
        """Routing logits of items: c [N,d] -> [N,H]."""
        return routing_logits(categories, self.prototypes, self.temperature)

    @classmethod
    def vectors_of(cls, settings):
        """H."""
        return settings.num_intents

    @property
    def reads(self) -> frozenset:
        """Times and dwell times, where the data has them."""
        return frozenset(name for name, table in (("times", self.time_table), ("dwell", self.dwell_table))
                         if table is not None)

    def call(self, clicks, training=False):
        """-> `Intents`."""
        tf.debugging.assert_shapes([(clicks.items, ("B", "T", 2 * self.dim)), (clicks.mask, "BT")])
        read = self.read_items(tf.reshape(clicks.items, [-1, 2 * self.dim]))
        return self.of_read(read, clicks, training)

    def read_items(self, items):
        """What the tower reads of an item, whoever clicked it: [N,2d] -> (share of the importance's hidden layer
        [N,2d], routing logits [N,H], g as it is summed [N,d]). Callers that meet items often need it once for each."""
        vectors, categories = tf.split(items, 2, axis=1)  # whose gradient is one copy; that of slices is one each
        summed = l2_normalize(vectors) if self.residual else vectors
        return self.importance_mlp.part(0, items), self.route(categories), summed

    def of_read(self, read, clicks, training=False):
        """`call`, from `read_items` of the clicks, [B·T,·] each, and the clicks, whose items are not read."""
        hidden, routing, items = read
        mask, length = clicks.mask, clicks.mask.shape[1]
        scores = self.importance_mlp.finish(hidden + self._signals(clicks))
        weights, items = importance(tf.reshape(scores, [-1, length]), mask), tf.reshape(items, [-1, length, self.dim])
        sums = routed_sums(tf.reshape(tf.nn.softmax(routing), [-1, length, self.intents]), weights, items)
        # Routing sums to 1 over the intents, so their sums add up to the sum of all clicks.
        interest = tf.reduce_sum(sums, axis=1)
        context = self._context(interest, clicks, items, training)
        if self.query_encoder is not None:
            known = tf.reduce_any(mask, axis=1, keepdims=True)
            told = tf.zeros_like(interest) if context is None else tf.where(known, context, 0.0)
            context = self.query_encoder(told, clicks.query)
        context = None if context is None else l2_normalize(context)
        vectors = l2_normalize(self._intent_vectors(sums, context))
        interest = interest if context is None else interest + context
        interest = self.interest_mlp(interest) + (interest if self.residual else 0.0)
        logits, selection = (intent_logits(interest, compared, self.temperature)
                             for compared in (vectors, tf.stop_gradient(vectors)))
        return Intents(vectors, logits, routing, tf.reshape(mask, [-1]), selection)

    def _context(self, total, clicks, items, training):
        """c [B,d], not normalized, from Σ_t p_t g_t [B,d], clicks, and g as summed [B,T,d]; or None."""
        if self.context_mlp is not None:
            return self.context_mlp(total) + total
        if self.context_encoder is None:
            return None
        gaps = clicks.gaps
        if gaps is not None and self.context_encoder.gaps_to_next:
            gaps = gaps_to_next(gaps, clicks.mask)
        vectors = self.context_clicks(items, clicks.mask, gaps, clicks.events)
        return self.context_encoder(Clicks(vectors, items, clicks.mask, gaps, clicks.dwell, clicks.events, clicks.query,
                                           clicks.seed), training=training)

    def _intent_vectors(self, sums, context):
        """z_h = MLP3([z'_h; β_h; c]), the same MLP for all intents: [B,H,d], [B,d] or None -> [B,H,d]."""
        flat = tf.reshape(sums, [-1, self.dim])
        hidden = tf.reshape(self.intent_mlp.part(0, flat), [-1, self.intents, 2 * self.dim])
        hidden += self.intent_mlp.part(1, self.biases)[None]
        if context is not None:
            hidden += self.intent_mlp.part(2, context)[:, None]
        vectors = tf.reshape(self.intent_mlp.finish(tf.reshape(hidden, [-1, 2 * self.dim])),
                             [-1, self.intents, self.dim])
        if self.residual:
            vectors += sums
        return vectors if context is None else vectors + context[:, None]

    def _signals(self, clicks):
        """What position, time, dwell and behaviour give the hidden layer of the importance, [B·T, hidden]."""
        mask, numbers = clicks.mask, []
        if self.position_table is not None:
            numbers.append((self.position_table, positions(mask, self.position)))
        unknown = tf.fill(tf.shape(mask), tf.constant(UNKNOWN_GAP, tf.int64))
        for table, seconds, boundaries in ((self.time_table, clicks.gaps, self.boundaries),
                                           (self.dwell_table, clicks.dwell, BOUNDARIES["log2"])):
            if table is not None:
                numbers.append((table, time_bucket(unknown if seconds is None else seconds, boundaries)))
        if self.event_table is not None:
            numbers.append((self.event_table, tf.zeros_like(unknown) if clicks.events is None else clicks.events))
        total = 0.0
        for part, (table, places) in enumerate(numbers, 1):
            used, inverse = tf.unique(tf.reshape(places, [-1]))
            total += tf.gather(self.importance_mlp.part(part, table.rows_of(used)), inverse)
        return total
