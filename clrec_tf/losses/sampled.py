"""Losses over sampled negatives that CLRec is compared with: softmax with logQ correction, and negative sampling.

Letters: B batch, N candidates, L negatives. All results are float32, whatever the inputs' precision.
"""
import tensorflow as tf


def corrected_logits(logits: tf.Tensor, log_q: tf.Tensor) -> tf.Tensor:
    """φ − log q, the logQ correction: what a softmax over sampled candidates takes instead of φ.

    Taken for the positive and for negatives drawn from q, with the contrastive loss on top, the optimum is
    e^φ ∝ p(y|x) for any number of negatives: the maximum-likelihood solution, exposure bias included.

    Args:
      logits: φ, any shape.
      log_q: of the same candidates, broadcast to it; any constant may be added.
    """
    return tf.cast(logits, tf.float32) - tf.cast(log_q, tf.float32)


def negative_sampling_loss(positive_logits: tf.Tensor, negative_logits: tf.Tensor) -> tf.Tensor:
    """−log σ(φ⁺) − Σ log σ(−φ⁻): each positive told from its negatives by logistic regression.

    With L negatives drawn from p_n its optimum is e^φ = p(y|x) / (L·p_n(y)); one uniform negative gives SASRec's loss.

    Args:
      positive_logits: [B].
      negative_logits: [B,L].

    Returns:
      [B], nats, summed over the negatives.
    """
    tf.debugging.assert_shapes([(positive_logits, "B"), (negative_logits, "BL")])
    positive, negative = tf.cast(positive_logits, tf.float32), tf.cast(negative_logits, tf.float32)
    return tf.nn.softplus(-positive) + tf.reduce_sum(tf.nn.softplus(negative), axis=1)
