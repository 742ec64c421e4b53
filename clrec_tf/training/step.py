"""One training step, and several of them in one compiled call."""
import tensorflow as tf

from clrec_tf.training.feeds import open_iterator
from clrec_tf.training.optimizers import summed_rows

SUMS = ("loss", "gradient_norm", "trained", "examples", "skipped")
FLAT = ("chance_loss", "judged")  # sums too, for ``collapse``


def global_norm(gradients) -> tf.Tensor:
    """√Σ g², sparse gradients by their rows (whose indices do not repeat), float32."""
    values = [g.values if isinstance(g, tf.IndexedSlices) else g for g in gradients]
    return tf.sqrt(2.0 * tf.add_n([tf.nn.l2_loss(tf.cast(v, tf.float32)) for v in values]))


def scale_gradients(gradients, factor):
    """Every gradient times a scalar, sparse ones kept sparse; None stays None."""
    def scaled(gradient):
        if isinstance(gradient, tf.IndexedSlices):
            return tf.IndexedSlices(gradient.values * factor, gradient.indices, gradient.dense_shape)
        return None if gradient is None else gradient * factor
    return [scaled(gradient) for gradient in gradients]


class TrainCall:
    """Several steps in one compiled call.

    Attributes:
      function: tf.function of what the feed gives (see ``feeds``) -> [n] float32, one value for each of `names`.
      names: of the values.
    """

    def __init__(self, function, names):
        self.function, self.names = function, names

    def __call__(self, *work) -> dict:
        """Name -> scalar."""
        return self.named(tf.unstack(self.function(*work)))

    def named(self, values) -> dict:
        """The values by their names."""
        return dict(zip(self.names, values))


def make_train_call(model, objective, optimizer, clip_norm, runtime, open_feed=open_iterator) -> TrainCall:
    """Compiles the training steps.

    Args:
      model: a `CLRec`.
      objective: gives the loss of a batch; a queue variant over the model, or a loss of ``objectives/sampled_variants``.
      optimizer: built for the model's variables.
      clip_norm: global norm that gradients are clipped to; 0 = off.
      runtime: where calls run.
      open_feed: `open` of a feed.

    Returns:
      A call of an iterator of batches and a scalar int64 number of steps, or of what another feed gives. Its result
      holds sums over the steps `loss`, `gradient_norm` (both of steps that updated the model), `trained` (how many
      did), `examples` (rows of weight > 0), `skipped` (steps whose loss or gradient was not finite), the
      `longest_skipped` run of those, the `leading_skipped` one at the begin and the `trailing_skipped` one at the end,
      the queue's health after the last; `chance_loss`, what `loss` would be if all candidates had the same score (NaN:
      not known), `judged`, steps of those trained that had a history to learn from, and of these the run at the end
      whose gradient was exactly 0, `trailing_zero_gradients`.
    """
    variables = model.trainable_variables

    def differentiate(batch, handles):
        with tf.GradientTape() as tape:
            loss = objective.loss(batch, handles)
        gradients = [summed_rows(gradient) for gradient in tape.gradient(loss, variables)]
        norm = global_norm([g for g in gradients if g is not None])
        if clip_norm:
            gradients = scale_gradients(gradients, tf.minimum(1.0, clip_norm / tf.maximum(norm, 1e-12)))
        counts = batch["weight"] > 0
        facts = dict(examples=tf.reduce_sum(tf.cast(counts, tf.float32)),
                     chance_loss=objective.chance_loss(batch, handles),
                     # A user without any click has the zero vector, from which nothing is learned.
                     teaches=tf.reduce_any(counts & (batch["length"] > 0)))
        return gradients, loss, norm, facts

    def apply(gradients):
        optimizer.apply_gradients((g, v) for g, v in zip(gradients, variables) if g is not None)

    def update(gradients):
        # In a replica context of its own: an optimizer synchronises there, which a condition inside would forbid.
        runtime.strategy.run(apply, args=(gradients,))
        return 0.0

    names = [*SUMS, *FLAT, "leading_skipped", "trailing_skipped", "longest_skipped", "trailing_zero_gradients",
             *objective.health_names]

    @tf.function
    def call(*work):
        handles = objective.handles()
        batch_of, steps = open_feed(*work)
        sums = {name: tf.constant(0.0) for name in (*SUMS, *FLAT)}
        leading = trailing = longest = zero_run = tf.constant(0.0)
        for step in tf.range(steps):
            gradients, loss, norm, facts = runtime.strategy.run(differentiate, args=(batch_of(step), handles))
            examples = facts["examples"]
            finite = tf.math.is_finite(loss) & tf.math.is_finite(norm)
            # A batch without a row that counts changes nothing either: momentum would move the model on its own.
            trained = finite & (examples > 0)
            tf.cond(trained, lambda: update(gradients), lambda: 0.0)  # pylint: disable=cell-var-from-loop
            skipped = 1.0 - tf.cast(finite, tf.float32)
            leading += tf.where(leading == tf.cast(step, tf.float32), skipped, 0.0)
            trailing = (trailing + 1.0) * skipped
            longest = tf.maximum(longest, trailing)
            judged = trained & facts["teaches"]
            zero_run = tf.where(judged, (zero_run + 1.0) * tf.cast(norm == 0.0, tf.float32), zero_run)
            done = {"loss": tf.where(trained, loss, 0.0), "gradient_norm": tf.where(trained, norm, 0.0),
                    "trained": tf.cast(trained, tf.float32), "examples": examples, "skipped": skipped,
                    "chance_loss": tf.where(trained, facts["chance_loss"], 0.0), "judged": tf.cast(judged, tf.float32)}
            sums = {name: sums[name] + done[name] for name in done}
        result = {**sums, "leading_skipped": leading, "trailing_skipped": trailing, "longest_skipped": longest,
                  "trailing_zero_gradients": zero_run, **objective.health(handles)}
        return tf.stack([result[name] for name in names])  # one tensor: in a cluster each would be a message

    return TrainCall(call, names)
