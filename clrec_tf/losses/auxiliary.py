"""The auxiliary losses of Multi-CLRec, which keep intents apart and in use (paper, "Multi-CLRec"). Pure.

Letters: B batch, N items, H intents. Logits are cosines over the temperature; results are float32, nats.
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
