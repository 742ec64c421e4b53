"""One training step, and several of them in one compiled call."""
import tensorflow as tf

from clrec_tf.losses import contrastive


def global_norm(gradients) -> tf.Tensor:
    """√Σ g², sparse gradients by their rows (whose indices do not repeat), float32."""
    values = [g.values if isinstance(g, tf.IndexedSlices) else g for g in gradients]
    return tf.sqrt(tf.add_n([tf.reduce_sum(tf.square(tf.cast(v, tf.float32))) for v in values]))


def scale_gradients(gradients, factor):
    """Every gradient times a scalar, sparse ones kept sparse."""
    return [tf.IndexedSlices(g.values * factor, g.indices, g.dense_shape) if isinstance(g, tf.IndexedSlices)
            else g * factor for g in gradients]


def make_train_call(model, variant, optimizer, clip_norm, runtime):
    """Compiles `call(iterator, steps) -> sums`.

    Args:
      model: a `CLRec`.
      variant: a queue variant over it.
      optimizer: built for the model's variables.
      clip_norm: global norm that gradients are clipped to; 0 = off.
      runtime: where calls run.

    Returns:
      A tf.function of an iterator of batches and a scalar int64 number of steps. Its result holds sums over the steps
      `loss`, `gradient_norm`, `examples` (rows of weight > 0), `skipped` (steps without update, because loss or
      gradient was not finite), `trailing_skipped` (those at the end without a good step after them), and the queue's
      health after the last.
    """
    variables = model.trainable_variables

    def one_step(batch, handles):
        with tf.GradientTape() as tape:
            positive, candidates = variant.logits(batch, handles)
            losses = contrastive.contrastive_loss(positive, candidates)
            # A row of weight 0 may have an empty denominator: its loss must not enter, not even as 0 · ∞.
            losses = tf.where(batch["weight"] > 0, losses, 0.0)
            loss = contrastive.weighted_mean(losses, batch["weight"])
        pairs = [(g, v) for g, v in zip(tape.gradient(loss, variables), variables) if g is not None]
        gradients, used = zip(*pairs)
        norm = global_norm(gradients)
        finite = tf.math.is_finite(loss) & tf.math.is_finite(norm)
        if clip_norm:
            gradients = scale_gradients(gradients, tf.minimum(1.0, clip_norm / tf.maximum(norm, 1e-12)))
        tf.cond(finite, lambda: _apply(optimizer, gradients, used), lambda: tf.constant(0, tf.int64))
        good = tf.cast(finite, tf.float32)
        return {
            "loss": tf.where(finite, loss, 0.0),
            "gradient_norm": tf.where(finite, norm, 0.0),
            "examples": tf.reduce_sum(tf.cast(batch["weight"] > 0, tf.float32)),
            "skipped": 1.0 - good,
        }

    @tf.function
    def call(iterator, steps):
        handles = variant.handles()
        sums = {name: tf.constant(0.0) for name in ("loss", "gradient_norm", "examples", "skipped")}
        trailing = tf.constant(0.0)
        for _ in tf.range(steps):
            result = runtime.strategy.run(one_step, args=(next(iterator), handles))
            trailing = (trailing + 1.0) * result["skipped"]
            sums = {name: sums[name] + result[name] for name in sums}
        return {**sums, "trailing_skipped": trailing, **variant.health(handles)}

    return call


def _apply(optimizer, gradients, variables):
    optimizer.apply_gradients(zip(gradients, variables))
    return tf.identity(optimizer.iterations)
