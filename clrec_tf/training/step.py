"""One training step, and several of them in one compiled call."""
import tensorflow as tf

from clrec_tf.losses import contrastive


def global_norm(gradients) -> tf.Tensor:
    """√Σ g², sparse gradients by their rows (whose indices do not repeat), float32."""
    values = [g.values if isinstance(g, tf.IndexedSlices) else g for g in gradients]
    return tf.sqrt(tf.add_n([tf.reduce_sum(tf.square(tf.cast(v, tf.float32))) for v in values]))


def scale_gradients(gradients, factor):
    """Every gradient times a scalar, sparse ones kept sparse; None stays None."""
    def scaled(gradient):
        if isinstance(gradient, tf.IndexedSlices):
            return tf.IndexedSlices(gradient.values * factor, gradient.indices, gradient.dense_shape)
        return None if gradient is None else gradient * factor
    return [scaled(gradient) for gradient in gradients]


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

    def differentiate(batch, handles):
        with tf.GradientTape() as tape:
            positive, candidates = variant.logits(batch, handles)
            losses = contrastive.contrastive_loss(positive, candidates)
            loss = contrastive.weighted_mean(losses, batch["weight"])
        gradients = tape.gradient(loss, variables)
        norm = global_norm([g for g in gradients if g is not None])
        if clip_norm:
            gradients = scale_gradients(gradients, tf.minimum(1.0, clip_norm / tf.maximum(norm, 1e-12)))
        return gradients, loss, norm, tf.reduce_sum(tf.cast(batch["weight"] > 0, tf.float32))

    def apply(gradients):
        optimizer.apply_gradients((g, v) for g, v in zip(gradients, variables) if g is not None)

    def update(gradients):
        # In a replica context of its own: an optimizer synchronises there, which a condition inside would forbid.
        runtime.strategy.run(apply, args=(gradients,))
        return 0.0

    @tf.function
    def call(iterator, steps):
        handles = variant.handles()
        sums = {name: tf.constant(0.0) for name in ("loss", "gradient_norm", "examples", "skipped")}
        trailing = tf.constant(0.0)
        for _ in tf.range(steps):
            gradients, loss, norm, examples = runtime.strategy.run(differentiate, args=(next(iterator), handles))
            finite = tf.math.is_finite(loss) & tf.math.is_finite(norm)
            skipped = tf.cond(finite, lambda: update(gradients), lambda: 1.0)  # pylint: disable=cell-var-from-loop
            trailing = (trailing + 1.0) * skipped
            sums = {"loss": sums["loss"] + tf.where(finite, loss, 0.0),
                    "gradient_norm": sums["gradient_norm"] + tf.where(finite, norm, 0.0),
                    "examples": sums["examples"] + examples, "skipped": sums["skipped"] + skipped}
        return {**sums, "trailing_skipped": trailing, **variant.health(handles)}

    return call
