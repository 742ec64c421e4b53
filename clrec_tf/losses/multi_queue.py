"""The contrastive loss over several intent vectors and the multi-queue (paper, "Multi-CLRec"; SPEC A13). Pure.

Letters: B batch, H intents, D width, N shared candidates, Q candidates of one intent's queue. A row's denominator runs
over all its H vectors and over two sets of candidates: those that all rows share (the main queue) and those of the
target's own intent h⁺ (that intent's queue). Every candidate has a count: how often it stands in the queue, 0 for an
empty slot.

L_cl = −log Σ_h ẅ_h e^{s_hT} + log Σ_{h', y'} n_{y'} e^{s_h'y'},  s = ⟨z, g⟩ / ρ of normalized vectors.
"""
import math

import tensorflow as tf

from clrec_tf.losses.contrastive import SAFE_EXPONENT

ST_MODES = ("literal", "capped", "soft")


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


@tf.custom_gradient
def _capped_selected_score(scores, straight, max_ratio):
    """`selected_score` of given ẅ: ∂/∂s is one-hot at h*, ∂/∂ẅ_h = min(e^{s_h − s_h*}, max_ratio)."""
    chosen = tf.one_hot(tf.argmax(straight, axis=1), straight.shape[-1])
    selected = tf.reduce_sum(scores * chosen, axis=1)

    def gradient(upstream):
        ratios = tf.exp(tf.minimum(scores - selected[:, None], tf.math.log(tf.cast(max_ratio, tf.float32))))
        return upstream[:, None] * chosen, upstream[:, None] * ratios, None

    return selected, gradient


def brute_force_log_denominators(vectors, intents, shared, shared_counts, own, own_counts, temperature) -> tf.Tensor:
    """The logarithms of the denominators [B], as the formula reads: every vector with every queue, masked afterwards.

    The reference that `mean_log_denominator` is held against; [B,H,N+H·Q] logits. Arguments as there; `own` is given.
    """
    queues, size = own.shape[0], own.shape[1]
    candidates = tf.concat([shared, tf.reshape(own, [queues * size, -1])], axis=0)
    logits = tf.einsum("bhd,nd->bhn", vectors, candidates) / temperature
    mine = tf.reshape(tf.one_hot(intents, queues)[:, :, None] * own_counts[None], [-1, queues * size])
    counts = tf.concat([tf.gather(shared_counts, intents), mine], axis=1)
    # Where a count is 0 the logarithm is −inf: the term is none, and has no gradient.
    logits = tf.where(counts[:, None, :] > 0, logits + tf.math.log(tf.maximum(counts, 1e-30))[:, None, :], -1e9)
    return tf.reduce_logsumexp(logits, axis=[1, 2])


def mean_log_denominator(vectors, intents, shares, shared, shared_counts, own=None, own_counts=None, *,
                         temperature: float, trained: int | None = None, chunk: int = 32):
    """Σ_b share_b · log Z_b, Z_b = Σ_{h', y'} n_{y'} e^{⟨z_bh', g_y'⟩/ρ}, where y' runs over shared and own candidates.

    Rows are taken intent by intent, at most `chunk` at once: each meets the shared candidates and those of its own
    intent in one matrix product, so no other queue is scored and no candidate is copied per row. Since the shares are
    known, a chunk's gradient is computed while its logits are there: every logit is computed once, in three products
    (one forward, two backward), and memory is that of one chunk, whatever B, H and the queues are.

    Small catalogues need no own candidates: with all items as the shared ones and a row of counts for each intent,
    this is the count-matrix form.

    Args:
      vectors: z [B,H,D], normalized.
      intents: h⁺ [B] int32, of the targets, 0..G−1.
      shares: [B] float32, of each row in the mean; a row of share 0 contributes nothing.
      shared: [N,D], normalized.
      shared_counts: [G,N] float32, ≥ 0, by h⁺; or [1,N], for all.
      own: [G,Q,D], normalized; None: there are none.
      own_counts: [G,Q] float32.
      temperature: ρ.
      trained: only this many of the shared candidates, the first, have a gradient, and no own one; None: all.
      chunk: rows at once.

    Returns:
      (scalar float32, log Z [B] without gradient).
    """
    tf.debugging.assert_shapes([(vectors, "BHD"), (intents, "B"), (shares, "B"), (shared, "ND"),
                                (shared_counts, (None, "N"))]
                               + ([(own, "GQD"), (own_counts, "GQ")] if own is not None else []))
    vectors, shared = tf.cast(vectors, tf.float32), tf.cast(shared, tf.float32)
    groups = own.shape[0] if own is not None else shared_counts.shape[0]
    order = tf.argsort(intents, stable=True)
    sizes = tf.math.bincount(tf.cast(intents, tf.int32), minlength=groups, maxlength=groups)
    ends = tf.cumsum(sizes)
    one = own is None

    @tf.custom_gradient
    def mean(vectors, shared, own):
        rows = tf.gather(vectors, order) / temperature
        sorted_shares = tf.gather(shares, order)
        found = _grouped(rows, sorted_shares, ends - sizes, ends, shared, shared_counts, None if one else own,
                         None if one else own_counts, 1.0 / temperature > SAFE_EXPONENT, trained, chunk)
        logs, by_vectors, by_shared, by_own = found
        total = tf.reduce_sum(tf.math.multiply_no_nan(logs, sorted_shares))
        by_vectors = tf.scatter_nd(order[:, None], by_vectors / temperature, tf.shape(vectors, tf.int32))

        def gradient(upstream, _):
            return upstream * by_vectors, upstream * by_shared, tf.zeros_like(own) if one else upstream * by_own

        return (total, tf.scatter_nd(order[:, None], logs, tf.shape(logs))), gradient

    total, logs = mean(vectors, shared, tf.zeros([]) if one else tf.cast(own, tf.float32))
    return total, tf.stop_gradient(logs)


def _grouped(rows, shares, begins, ends, shared, shared_counts, own, own_counts, shifted, trained, chunk):
    """log Z of rows sorted by intent, and the gradients of `mean_log_denominator`.

    Returns:
      (log Z [B], by rows [B,H,D], by shared [N,D], by own [G,Q,D] or a scalar without meaning).
    """
    groups = own.shape[0] if own is not None else shared_counts.shape[0]
    size = tf.shape(shared)[0]
    # Of shared candidates the first `train_shared` have a gradient; of own ones all or none.
    train_shared, train_own = (size, own is not None) if trained is None else (trained, False)
    width, heads = rows.shape[2], rows.shape[1]

    def of_group(group, logs, by_rows, by_shared, by_own, piece):
        candidates, counts = shared, shared_counts[tf.minimum(group, shared_counts.shape[0] - 1)]
        if own is not None:
            candidates = tf.concat([shared, own[group]], axis=0)
            counts = tf.concat([counts, own_counts[group]], axis=0)
        live = tf.shape(candidates)[0] if train_own else train_shared
        # An empty slot may hold anything, which must not become inf·0.
        candidates = tf.where(counts[:, None] > 0, candidates, 0.0)

        def of_chunk(begin, logs, by_rows, by_candidates, piece):
            end = tf.minimum(begin + chunk, ends[group])
            log_sums, by_users, by_live = _chunk(rows[begin:end], shares[begin:end], candidates, counts, live, shifted)
            return (end, logs.write(piece, log_sums), by_rows.write(piece, by_users), by_candidates + by_live,
                    piece + 1)

        _, logs, by_rows, by_candidates, piece = tf.while_loop(
            lambda begin, *_: begin < ends[group], of_chunk,
            [begins[group], logs, by_rows, tf.zeros([live, width]), piece],
            shape_invariants=[tf.TensorShape([]), None, None, tf.TensorShape([None, width]), tf.TensorShape([])],
            parallel_iterations=1)
        by_shared += by_candidates[:train_shared]
        if train_own:
            by_own = by_own.write(group, by_candidates[size:])
        return group + 1, logs, by_rows, by_shared, by_own, piece

    pieces = lambda *shape: tf.TensorArray(tf.float32, 0, dynamic_size=True, infer_shape=False,
                                           element_shape=[None, *shape])
    queues = tf.TensorArray(tf.float32, groups if train_own else 0,
                            element_shape=own.shape[1:] if train_own else None)
    _, logs, by_rows, by_shared, by_own, _ = tf.while_loop(
        lambda group, *_: group < groups, of_group,
        [0, pieces(), pieces(heads, width), tf.zeros([train_shared, width]), queues, 0],
        shape_invariants=[tf.TensorShape([]), None, None, tf.TensorShape([None, width]), None, tf.TensorShape([])],
        parallel_iterations=1)
    by_shared = tf.pad(by_shared, [[0, size - train_shared], [0, 0]])
    if own is None:
        by_own = tf.zeros([])
    else:
        by_own = by_own.stack() if train_own else tf.zeros_like(own)
    return logs.concat(), tf.reshape(by_rows.concat(), [-1, heads, width]), by_shared, by_own


def _chunk(rows, shares, candidates, counts, live, shifted):
    """Rows [n,H,D], already over ρ, with candidates [M,D] of counts [M].

    Returns:
      (log of the denominators [n]; the gradient of Σ share·log by the rows [n,H,D]; by the first `live` candidates).
    """
    heads, width = rows.shape[1], rows.shape[2]
    flat = tf.reshape(rows, [-1, width])
    logits = tf.matmul(flat, candidates, transpose_b=True)
    top = 0.0
    if shifted:
        masked = tf.where(counts > 0, logits, -math.inf)
        top = tf.reduce_max(tf.reshape(masked, [tf.shape(rows)[0], -1]), axis=1)
        logits -= tf.repeat(top, heads)[:, None]
        logits = tf.where(counts > 0, logits, 0.0)
    terms = tf.exp(logits)
    # One product gives the sums of the terms and the sums of the candidates that they weigh.
    weighed = tf.matmul(terms, tf.concat([counts[:, None] * candidates, counts[:, None]], axis=1))
    sums = tf.reduce_sum(tf.reshape(weighed[:, width], [-1, heads]), axis=1)
    scale = tf.repeat(tf.math.divide_no_nan(shares, sums), heads)[:, None]
    by_rows = tf.reshape(scale * weighed[:, :width], [-1, heads, width])
    by_live = tf.matmul(terms[:, :live], scale * flat, transpose_a=True) * counts[:live, None]
    # 0 where nothing is compared with, as in a batch of rows that do not count.
    return tf.math.log(tf.where(sums > 0, sums, 1.0)) + top, by_rows, by_live
