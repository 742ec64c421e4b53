"""Auxiliary losses of Multi-CLRec, which keep intents apart and in use (paper, "Multi-CLRec"), of HPMN and DIEN. Pure.

Letters: B batch, T clicks, N items, H intents, K slots of memory, D width. Logits of intents are cosines over the
temperature; results are float32, nats.
"""
import tensorflow as tf


def intent_cross_entropy(logits: tf.Tensor, intents: tf.Tensor, confident: float = 1.0) -> tf.Tensor:
    """−log softmax_h(logits)[h⁺]: L1 of a target's routing logits, L2 of its similarities to the intent vectors.

    Args:
      logits: [B,H].
      intents: [B] int, h⁺ of each row.
      confident: a probability above this counts as 1, so that a target routed well draws no further.

    Returns:
      [B].
    """
    tf.debugging.assert_shapes([(logits, "BH"), (intents, "B")])
    losses = -tf.gather(tf.nn.log_softmax(tf.cast(logits, tf.float32)), intents, batch_dims=1)
    return losses if confident >= 1.0 else tf.where(tf.exp(-losses) > confident, tf.zeros_like(losses), losses)


def mean_routing(logits: tf.Tensor, keep: tf.Tensor) -> tf.Tensor:
    """log π_h, where π_h is the mean of softmax_h(logits) over the kept items.

    Args:
      logits: [N,H] routing logits.
      keep: [N] bool; padding is not kept.

    Returns:
      [H]; uniform where nothing is kept.
    """
    tf.debugging.assert_shapes([(logits, "NH"), (keep, "N")])
    routed = tf.nn.log_softmax(tf.cast(logits, tf.float32))
    # Through logarithms, since softmax of a clear case is 0 in float32, whose logarithm has no gradient.
    summed = tf.reduce_logsumexp(tf.where(keep[:, None], routed, -1e9), axis=0)
    count = tf.reduce_sum(tf.cast(keep, tf.float32))
    uniform = -tf.math.log(tf.fill(tf.shape(summed), tf.cast(tf.size(summed), tf.float32)))
    return tf.where(count > 0, summed - tf.math.log(tf.maximum(count, 1.0)), uniform)


def balance_loss(log_shares: tf.Tensor, hinge: bool = False) -> tf.Tensor:
    """L3 = Σ_h (1/H)(log(1/H) − log π_h) = KL(uniform‖π), which is 0 only where all intents have an equal share.

    Args:
      log_shares: [H], log π.
      hinge: terms of intents with more than their share count as 0.

    Returns:
      Scalar.
    """
    uniform = -tf.math.log(tf.cast(tf.size(log_shares), tf.float32))
    terms = uniform - log_shares
    return tf.reduce_mean(tf.maximum(terms, 0.0) if hinge else terms)


def slot_covariance(slots: tf.Tensor) -> tf.Tensor:
    """½·(‖C‖² − ‖diag C‖²), C [K,K] the covariance of a user's slots over their D coordinates (Ren et al. 2019).

    It is 0 where no slot repeats another.

    Args:
      slots: [B,K,D].

    Returns:
      [B].
    """
    tf.debugging.assert_shapes([(slots, "BKD")])
    centred = tf.cast(slots, tf.float32) - tf.reduce_mean(tf.cast(slots, tf.float32), axis=2, keepdims=True)
    covariance = tf.matmul(centred, centred, transpose_b=True) / slots.shape[2]
    apart = tf.linalg.set_diag(covariance, tf.zeros_like(covariance[:, :, 0]))
    return 0.5 * tf.reduce_sum(tf.square(apart), axis=[1, 2])


def next_click_loss(states: tf.Tensor, items: tf.Tensor, others: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """mean_t −log σ(h_t·e_{t+1}) − log σ(−h_t·ê_{t+1}): each state tells the next click from another (DIEN, Eq. 7).

    Args:
      states: h [B,T,D].
      items: e [B,T,D], of the clicks.
      others: ê [B,T,D], another for each of them.
      mask: [B,T] bool, True at clicks, padding last.

    Returns:
      [B], the mean over the clicks that another one follows; 0 where there is none.
    """
    tf.debugging.assert_shapes([(states, "BTD"), (items, "BTD"), (others, "BTD"), (mask, "BT")])
    follows = tf.cast(mask[:, 1:], tf.float32)
    logits = lambda vectors: tf.cast(tf.reduce_sum(states[:, :-1] * vectors[:, 1:], axis=2), tf.float32)
    losses = tf.nn.softplus(-logits(items)) + tf.nn.softplus(logits(others))
    return tf.math.divide_no_nan(tf.reduce_sum(follows * losses, axis=1), tf.reduce_sum(follows, axis=1))
