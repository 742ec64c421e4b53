"""The contrastive loss of CLRec and what its denominator is made of. Pure functions of logits.

Letters: B batch, N candidates, L candidates of a row's own, D width, K slots of a user that each candidate reads by
itself. All results are float32, whatever the inputs' precision.
"""
import functools
import math

import tensorflow as tf

from clrec_tf.system.private_tensorflow import custom_gradient

SAFE_EXPONENT = 60.0  # e^60 times any number of candidates is far from float32's 3e38, and e^-60 from its 1e-38
MASKED = -1e9  # added to a logit, leaves nothing of it in a float32 logsumexp, and no NaN in its gradient


def l2_normalize(vectors: tf.Tensor) -> tf.Tensor:
    """v / sqrt(max(|v|², 1e-12)) over the last axis; zero vectors stay zero."""
    return tf.math.l2_normalize(vectors, axis=-1, epsilon=1e-12)


def attended_logits(logits: tf.Tensor, axis: int) -> tf.Tensor:
    """φ = Σ_k softmax_k(φ_k)·φ_k: a candidate reads those of a user's K slots that it is close to.

    The attention of target-aware encoders (RUM, HPMN), by products of slot and candidate: Σ_k a_k·⟨m_k, y⟩ is
    ⟨Σ_k a_k·m_k, y⟩, so nothing of width D is laid out for each pair.

    The gradient is ∂φ/∂φ_k = a_k·(1 + φ_k − φ), from shares a_k that are there.

    Args:
      logits: φ_k = ⟨m_k, y⟩/ρ, any shape.
      axis: of the slots, which the result does not have.
    """
    @custom_gradient
    def read(logits):
        # Not tf.nn.softmax, which lays its input out anew where the axis is not the last.
        exponentials = tf.exp(logits - tf.reduce_max(logits, axis, keepdims=True))
        shares = exponentials / tf.reduce_sum(exponentials, axis, keepdims=True)
        result = tf.reduce_sum(shares * logits, axis, keepdims=True)

        def gradient(upstream):
            return tf.expand_dims(upstream, axis) * shares * (1.0 + logits - result)

        return tf.squeeze(result, axis), gradient

    return read(logits)


def pairwise_logits(users: tf.Tensor, items: tf.Tensor, temperature: float) -> tf.Tensor:
    """φ(x_b, y_n) = ⟨f, g⟩ / ρ of every user with every item (paper, "Normalization and Initialization").

    Args:
      users: [B,D], or slots [B,K,D] that each item reads by `attended_logits`; l2-normalized by the caller for the
        cosine.
      items: [N,D]; likewise.
      temperature: ρ.

    Returns:
      [B,N] float32; within ±1/ρ for normalized inputs.
    """
    tf.debugging.assert_shapes([(users, _letters(users)), (items, "ND")])
    # Cast before the product, as in `paired_logits`: a positive's logit must equal its own slot's.
    # The temperature divides the users, which are fewer numbers than the logits.
    users, items = tf.cast(users, tf.float32) / temperature, tf.cast(items, tf.float32)
    if users.shape.rank == 2:
        return tf.matmul(users, items, transpose_b=True)
    flat = tf.matmul(tf.reshape(users, [-1, users.shape[2]]), items, transpose_b=True)  # [B·K,N]
    return attended_logits(tf.reshape(flat, [-1, users.shape[1], tf.shape(items)[0]]), axis=1)


def listed_logits(users: tf.Tensor, items: tf.Tensor, temperature: float) -> tf.Tensor:
    """φ of each user with items of its own: users [B,D], or slots [B,K,D] as of `pairwise_logits`, items [B,L,D] ->
    [B,L] float32."""
    tf.debugging.assert_shapes([(users, _letters(users)), (items, "BLD")])
    users, items = tf.cast(users, tf.float32) / temperature, tf.cast(items, tf.float32)
    if users.shape.rank == 2:
        return tf.linalg.matvec(items, users)
    return attended_logits(tf.matmul(users, items, transpose_b=True), axis=1)


def paired_logits(users: tf.Tensor, items: tf.Tensor, temperature: float) -> tf.Tensor:
    """φ(x_b, y_b) = ⟨f, g⟩ / ρ of each user with its own item: [B,D], or slots [B,K,D] as of `pairwise_logits`, and
    [B,D] -> [B] float32."""
    tf.debugging.assert_shapes([(users, _letters(users)), (items, "BD")])
    users, items = tf.cast(users, tf.float32) / temperature, tf.cast(items, tf.float32)
    if users.shape.rank == 2:
        return tf.reduce_sum(users * items, axis=1)
    return attended_logits(tf.reduce_sum(users * items[:, None], axis=2), axis=1)


def _letters(users):
    """Shape of one vector per user, or of slots."""
    return "BD" if users.shape.rank == 2 else "BKD"


def log_sum_exp(*blocks: tf.Tensor, bound: float = math.inf) -> tf.Tensor:
    """log Σ e^x over all columns of several blocks, as if they were joined: [B,N₁], [B,N₂], … -> [B].

    What a library's function does too, in fewer passes over the logits, which are most of what a step with a cheap
    encoder touches: no joined copy, no search for the maximum where none is needed, and a gradient from the
    exponentials that are there.

    Args:
      *blocks: float32 logits.
      bound: what they cannot exceed, known beforehand; up to `SAFE_EXPONENT` they are not shifted by their maximum.
    """
    shifted = bound > SAFE_EXPONENT

    @custom_gradient
    def reduce(*blocks):
        if shifted:
            top = functools.reduce(tf.maximum, [tf.reduce_max(block, axis=1) for block in blocks])
            top = tf.where(tf.math.is_finite(top), top, 0.0)
            blocks = [block - top[:, None] for block in blocks]
        terms = [tf.exp(block) for block in blocks]
        total = tf.add_n([tf.reduce_sum(term, axis=1) for term in terms])

        def gradient(upstream):
            scale = tf.math.divide_no_nan(upstream, total)[:, None]  # a row whose columns are all masked has total 0
            return [term * scale for term in terms]

        return tf.math.log(total) + (top if shifted else 0.0), gradient

    return reduce(*blocks)


def contrastive_loss(positive_logits: tf.Tensor, *candidate_logits: tf.Tensor, bound: float = math.inf) -> tf.Tensor:
    """ℓ = −φ(x,y) + log Σ_{y'∈C} e^{φ(x,y')} (paper, Eq. "contrastive loss").

    C is a multiset that holds the positive exactly once as its own slot, beside the negatives. Copies of the positive
    among the negatives stay (masking them pulls the optimum toward popular items), and no log q is subtracted: at the
    optimum e^φ ∝ p_data(y|x)/q(y|x), the inverse-propensity-weighted solution, for any number of negatives.

    Args:
      positive_logits: [B], φ of each row's positive.
      *candidate_logits: [B,N] each, together φ of the whole of C, the positive's slot included; masked entries
        carry `MASKED`, m-fold entries log m.
      bound: of their absolute values, masked ones aside, if known: see `log_sum_exp`.

    Returns:
      [B], nats.
    """
    tf.debugging.assert_shapes([(positive_logits, "B")] + [(block, ("B", None)) for block in candidate_logits])
    blocks = [tf.cast(block, tf.float32) for block in candidate_logits]
    return log_sum_exp(*blocks, bound=bound) - tf.cast(positive_logits, tf.float32)


@custom_gradient
def scale_gradient(values: tf.Tensor, factor: tf.Tensor):
    """The values themselves, whose gradient is multiplied by a factor on its way back: any shape, [] or one that is
    broadcast to it -> same shape."""
    return tf.identity(values), lambda upstream: (upstream * factor, None)


def mask_logits(keep: tf.Tensor) -> tf.Tensor:
    """0 where `keep`, else `MASKED`; added to logits. Any shape, bool -> float32."""
    return tf.where(keep, 0.0, MASKED)


def same_user_mask(users: tf.Tensor, owners: tf.Tensor, own_slots: tf.Tensor) -> tf.Tensor:
    """Which queue entries a row may be compared with when a user's other clicks are left out.

    A user's other clicks are no independent draws given x; the row's own positive stays.

    Args:
      users: [B] int64 user of each row.
      owners: [N] int64 user of each queue entry.
      own_slots: [B] int64, the entry that is the row's own positive (−1: none of them).

    Returns:
      [B,N] bool, True = kept.
    """
    entries = tf.range(tf.size(owners, out_type=tf.int64), dtype=tf.int64)
    return (users[:, None] != owners[None, :]) | (entries[None, :] == own_slots[:, None])


def weighted_mean(values: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """Σ w v / Σ w, and 0 where all weights are 0: [B], [B] -> scalar. Rows of weight 0 may hold any value, even NaN."""
    return tf.math.divide_no_nan(tf.reduce_sum(tf.math.multiply_no_nan(values, weights)), tf.reduce_sum(weights))
