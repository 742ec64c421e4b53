"""The contrastive loss over several intent vectors and the multi-queue (paper, "Multi-CLRec"). Pure.

Letters: B batch, H intents, D width, N shared candidates, Q candidates of one intent's queue. A row's denominator runs
over all its H vectors and over two sets of candidates: those that all rows share (the main queue) and those of the
target's own intent h⁺ (that intent's queue). Every candidate has a count: how often it stands in the queue, 0 for an
empty slot.

The paper's objective selects a vector for the numerator, ours (gated, an extension) takes the one of the target's
intent, with the weights w of the vectors on both sides:

paper:  L_cl = −log Σ_h ẅ_h e^{s_hT} + log Σ_{h', y'} n_{y'} e^{s_h'y'},  s = ⟨z, g⟩ / ρ of normalized vectors
gated:  L_cl = −(s_{h⁺T} + log w_{h⁺}) + log Σ_{h', y'} n_{y'} w_h' e^{s_h'y'}
"""
import math

import tensorflow as tf

from clrec_tf.losses.contrastive import SAFE_EXPONENT
from clrec_tf.losses.grouped_candidates import GroupedCandidates
from clrec_tf.losses.grouped_candidates import SortedRows
from clrec_tf.system.private_tensorflow import custom_gradient

VECTORS_AT_ONCE = 512  # of users in a chunk: their terms stay near the processor, and products are large enough
ST_MODES = ("literal", "capped", "soft")


def gated_scores(scores: tf.Tensor, log_weights: tf.Tensor) -> tf.Tensor:
    """s_h + log w_h: the score of each target under each vector with its weight, both [B,H] -> [B,H].

    `gated_score` and `rest_of_own` both take it, so that the sum is made once. Otherwise its gradient, which scores
    and weights share, would be added to theirs in an order that is a race.
    """
    tf.debugging.assert_shapes([(scores, "BH"), (log_weights, "BH")])
    return scores + log_weights


def gated_score(gated: tf.Tensor, intents: tf.Tensor) -> tf.Tensor:
    """s_{h⁺} + log w_{h⁺}: the score of each target under the vector of its own intent.

    Args:
      gated: `gated_scores` [B,H].
      intents: h⁺ [B] int32, of the targets.

    Returns:
      [B].
    """
    tf.debugging.assert_shapes([(gated, "BH"), (intents, "B")])
    return tf.gather(gated, intents, batch_dims=1)


def entry_weights(left: tf.Tensor, fills: tf.Tensor, main_fill: tf.Tensor, intent_beta: float) -> tf.Tensor:
    """What a candidate of intent h counts to a target of intent h: (1 + F_h/(F₀·π_h))^−(1−β'); to others it counts 1.

    Main queue and intent's queue together hold items of h more often than clicks do: n_h/p = (1 + F_h/(F₀·π_h))·const.
    So candidates are as of n_h^β'·p^(1−β'). A row's own positive is no sample: it counts 1 to its row, see `rest_of_own`.

    Args:
      left: int [H], clicks of each intent so far, of which π_h is made; one is added to each, since none may be 0.
      fills: int [H], F_h, entries of each intent's queue.
      main_fill: int scalar, F₀.
      intent_beta: β', 0 to 1.

    Returns:
      [H] float32.
    """
    clicks = tf.cast(left, tf.float32) + 1.0
    ratio = tf.cast(fills, tf.float32) / tf.maximum(tf.cast(main_fill, tf.float32), 1.0)
    return (1.0 + ratio * tf.reduce_sum(clicks) / clicks) ** (intent_beta - 1.0)


def rest_of_own(gated: tf.Tensor, entry_weight: tf.Tensor) -> tf.Tensor:
    """log((1 − m)·Σ_h w_h e^{s_h}): what a row's own positive lacks to count 1, where its entry counts m.

    Args:
      gated: `gated_scores` [B,H] of each row's target, or s_h where vectors have no weights.
      entry_weight: m [B], 0 to 1; of 1 the result is −inf.

    Returns:
      [B].
    """
    return tf.math.log(1.0 - entry_weight) + tf.reduce_logsumexp(gated, axis=1)


def selected_score(scores: tf.Tensor, weight_logits: tf.Tensor, mode: str = "literal",
                   max_ratio: float = math.inf) -> tf.Tensor:
    """log Σ_h ẅ_h e^{s_h} with the straight-through weights ẅ = stop(1[h=h*] − w) + w, w = softmax(w̃), h* = argmax w.

    Its value is s_{h*}: the score of the selected vector. What the modes differ in is the gradient of w, the lesson
    of "another vector would have fitted better":

      literal: as the formula reads, ∂/∂ẅ_h = e^{s_h − s_h*}, which has no bound.
      capped:  the same, at most `max_ratio`.
      soft:    that of log Σ_h w_h e^{s_h}, which is bounded by itself, and reaches the scores of all vectors.

    Args:
      scores: [B,H], s_h of each row's target.
      weight_logits: [B,H], w̃.
      mode: see above.
      max_ratio: of `capped`.

    Returns:
      [B].
    """
    tf.debugging.assert_shapes([(scores, "BH"), (weight_logits, "BH")])
    if mode == "soft":
        mixed = tf.reduce_logsumexp(tf.nn.log_softmax(weight_logits) + scores, axis=1)
        chosen = tf.gather(scores, tf.argmax(weight_logits, axis=1), batch_dims=1)
        return mixed + tf.stop_gradient(chosen - mixed)
    straight = straight_through(weight_logits)
    if mode == "capped":
        return _capped_selected_score(scores, straight, max_ratio)
    # Shifted by the selected score, exponents are at most 2/ρ; log ẅ + s would be −inf with NaN for a gradient.
    shift = tf.stop_gradient(tf.gather(scores, tf.argmax(weight_logits, axis=1), batch_dims=1))
    return tf.math.log(tf.reduce_sum(straight * tf.exp(scores - shift[:, None]), axis=1)) + shift


def straight_through(weight_logits: tf.Tensor) -> tf.Tensor:
    """ẅ [B,H]: one-hot at the largest weight, the lowest number among equals, with the gradient of the softmax."""
    weights = tf.nn.softmax(weight_logits)
    chosen = tf.one_hot(tf.argmax(weight_logits, axis=1), weight_logits.shape[-1])
    return tf.stop_gradient(chosen - weights) + weights


@custom_gradient
def _capped_selected_score(scores, straight, max_ratio):
    """`selected_score` of given ẅ: ∂/∂s is one-hot at h*, ∂/∂ẅ_h = min(e^{s_h − s_h*}, max_ratio)."""
    chosen = tf.one_hot(tf.argmax(straight, axis=1), straight.shape[-1])
    selected = tf.reduce_sum(scores * chosen, axis=1)

    def gradient(upstream):
        ratios = tf.exp(tf.minimum(scores - selected[:, None], tf.math.log(tf.cast(max_ratio, tf.float32))))
        return upstream[:, None] * chosen, upstream[:, None] * ratios, None

    return selected, gradient


def brute_force_log_denominators(vectors, intents, shared, shared_counts, own, own_counts, temperature,
                                 log_weights=0.0) -> tf.Tensor:
    """The logarithms of the denominators [B], as the formula reads: every vector with every queue, masked afterwards.

    The reference that `mean_log_denominator` is held against; [B,H,N+H·Q] logits. Arguments as there; `own` is given.
    """
    queues, size = own.shape[0], own.shape[1]
    candidates = tf.concat([shared, tf.reshape(own, [queues * size, -1])], axis=0)
    logits = tf.einsum("bhd,nd->bhn", vectors, candidates) / temperature
    logits += (log_weights + tf.zeros(tf.shape(vectors)[:2]))[:, :, None]
    mine = tf.reshape(tf.one_hot(intents, queues)[:, :, None] * own_counts[None], [-1, queues * size])
    counts = tf.concat([tf.gather(shared_counts, intents), mine], axis=1)
    # Where a count is 0 the logarithm is −inf: the term is none, and has no gradient.
    logits = tf.where(counts[:, None, :] > 0, logits + tf.math.log(tf.maximum(counts, 1e-30))[:, None, :], -1e9)
    return tf.reduce_logsumexp(logits, axis=[1, 2])


def mean_log_denominator(vectors, intents, shares, shared, shared_counts, own=None, own_counts=None, *,
                         temperature: float, log_weights: tf.Tensor | None = None, log_terms: tf.Tensor | None = None,
                         trained: tf.Tensor | None = None, chunk: int | None = None, bound: float | None = None):
    """Σ_b share_b · log Z_b, Z_b = Σ_{h', y'} w_bh' n_{y'} e^{⟨z_bh', g_y'⟩/ρ}, y' over shared and own candidates.

    Rows are taken intent by intent, at most `chunk` at once: each meets the shared candidates and those of its own
    intent, so no other queue is scored and no candidate is copied per row. Since the shares are known, a chunk's
    gradient is computed while its logits are there: every logit is computed once, in three products (one forward, two
    backward), and memory is that of one chunk, whatever B, H and the queues are.

    Small catalogues need no own candidates: with all items as the shared ones and a row of counts for each intent,
    this is the count-matrix form.

    Args:
      vectors: z [B,H,D], normalized.
      intents: h⁺ [B] int32, of the targets, 0..G−1.
      shares: [B] float32, of each row in the mean; a row of share 0 contributes nothing, if it is finite.
      shared: [N,D], normalized.
      shared_counts: [G,N] float32, ≥ 0, by h⁺; with own candidates [1,N] too, for all.
      own: [G,Q,D], normalized; None: there are none.
      own_counts: [G,Q] float32.
      temperature: ρ.
      log_weights: log w [B,H], ≤ 0; None: all 0, each vector counts once.
      log_terms: [B], the logarithm of what Z_b has besides; −inf, or None for all: nothing.
      trained: [G,n] float32: only the first n of the shared candidates have a gradient, which from rows of each intent
        is multiplied by this, and no own candidate has; None: all have.
      chunk: rows at once; None: those of about `VECTORS_AT_ONCE` vectors.
      bound: what no logit exceeds; None: 1/ρ, of normalized vectors.

    Returns:
      (scalar float32, log Z [B] without gradient).
    """
    tf.debugging.assert_shapes([(vectors, "BHD"), (intents, "B"), (shares, "B"), (shared, "ND"),
                                (shared_counts, (None, "N"))]
                               + ([(log_weights, "BH")] if log_weights is not None else [])
                               + ([(log_terms, "B")] if log_terms is not None else [])
                               + ([(own, "GQD"), (own_counts, "GQ")] if own is not None else []))
    vectors, shared = tf.cast(vectors, tf.float32), tf.cast(shared, tf.float32)
    groups = own.shape[0] if own is not None else shared_counts.shape[0]
    chunk = chunk or max(1, VECTORS_AT_ONCE // vectors.shape[1])
    order = tf.argsort(intents, stable=True)
    sizes = tf.math.bincount(tf.cast(intents, tf.int32), minlength=groups, maxlength=groups)
    ends = tf.cumsum(sizes)
    shared_only = own is None

    @custom_gradient
    def mean(vectors, log_weights, log_terms, shared, own):
        rows = SortedRows(tf.gather(vectors, order) / temperature, tf.gather(log_weights, order),
                          tf.gather(log_terms, order), tf.gather(shares, order), ends - sizes, ends)
        queues = (None, None) if shared_only else (own, own_counts)
        shifted = (1.0 / temperature if bound is None else bound) > SAFE_EXPONENT
        candidates = GroupedCandidates(shared, shared_counts, *queues, trained, shifted, chunk)
        logs, by_vectors, by_weights, by_terms, by_shared, by_own = candidates.differentiate(rows)
        total = tf.reduce_sum(tf.math.multiply_no_nan(logs, rows.shares))
        by_vectors, by_weights, by_terms = (
            tf.scatter_nd(order[:, None], gradient, tf.shape(source, tf.int32)) for gradient, source in (
                (by_vectors / temperature, vectors), (by_weights, log_weights), (by_terms, log_terms)))

        def gradient(upstream, _):
            return (upstream * by_vectors, upstream * by_weights, upstream * by_terms, upstream * by_shared,
                    tf.zeros_like(own) if shared_only else upstream * by_own)

        return (total, tf.scatter_nd(order[:, None], logs, tf.shape(logs))), gradient

    log_weights = tf.zeros(tf.shape(vectors)[:2]) if log_weights is None else tf.cast(log_weights, tf.float32)
    log_terms = tf.fill(tf.shape(shares), -math.inf) if log_terms is None else tf.cast(log_terms, tf.float32)
    total, logs = mean(vectors, log_weights, log_terms, shared, tf.zeros([]) if shared_only else tf.cast(own, tf.float32))
    return total, tf.stop_gradient(logs)
