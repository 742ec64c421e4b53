"""One training step, and several of them in one compiled call."""
import functools

import tensorflow as tf

from clrec_tf.models.step_targets import with_step_targets
from clrec_tf.system.graphs import graph_function
from clrec_tf.training.feeds import open_iterator
from clrec_tf.training.optimizers import summed_rows

SUMS = ("loss", "gradient_norm", "trained", "examples", "skipped")
FLAT = ("chance_loss", "judged")  # sums too, for ``collapse``
TIMES = ("input_seconds", "call_seconds")  # of waiting for batches, and in all
RUNS = ("leading_skipped", "trailing_skipped", "longest_skipped", "trailing_zero_gradients")  # of steps in a row


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


class TrainingStep:
    """One step: differentiates an objective and updates the model.

    Args:
      objective: opened in this trace.
      variables: of the model.
      optimizer: built for them.
      clip_norm: global norm that gradients are clipped to; 0 = off.
      keys: a `KeyEncoder` that follows the variables, or None.
    """

    def __init__(self, objective, variables, optimizer, clip_norm, keys=None):
        self._objective, self._variables, self._keys = objective, variables, keys
        self._optimizer, self._clip_norm = optimizer, clip_norm

    def differentiate(self, batch):
        """Batch -> (gradients, loss, their global norm before clipping, facts of the batch); enqueues."""
        batch = with_step_targets(batch, self._objective.model)
        with tf.GradientTape() as tape:
            loss = self._objective.loss(batch, training=True)
        gradients = [summed_rows(gradient) for gradient in tape.gradient(loss, self._variables)]
        norm = global_norm([g for g in gradients if g is not None])
        if self._clip_norm:
            gradients = scale_gradients(gradients, tf.minimum(1.0, self._clip_norm / tf.maximum(norm, 1e-12)))
        counts = batch["weight"] > 0
        # A user without any click has the zero vector, from which nothing is learned; no window is without.
        taught = counts if "row" in batch else counts & (batch["length"] > 0)
        facts = dict(examples=tf.reduce_sum(tf.cast(counts, tf.float32)),
                     chance_loss=tf.add_n([part.chance_loss(batch) for part in self._objective.parts]),
                     teaches=tf.reduce_any(taught))
        return gradients, loss, norm, facts

    def apply(self, gradients):
        """Updates the model; a gradient of None is left out. Returns 0, for a condition wants a value."""
        pairs = [(g, v) for g, v in zip(gradients, self._variables) if g is not None]
        change = functools.partial(self._optimizer.apply_gradients, pairs)
        if self._keys is None:
            change()
        else:
            self._keys.update(pairs, change)
        return 0.0


def seconds_since(begin, *after) -> tf.Tensor:
    """Seconds, scalar float32, from a time stamp until all of `after` is there."""
    with tf.control_dependencies(after):
        return tf.cast(tf.timestamp() - begin, tf.float32)


def timed(batch_of, step):
    """(batch of a step, seconds that it took); nothing else of the step waits for the clock."""
    begin = tf.timestamp()
    with tf.control_dependencies([begin]):
        batch = batch_of(step)
    return batch, seconds_since(begin, *tf.nest.flatten(batch))


def zero_tally() -> dict[str, tf.Tensor]:
    """What a call reports before its first step: `SUMS`, `FLAT`, `TIMES` and `RUNS`, scalars float32 by name."""
    return {name: tf.constant(0.0) for name in (*SUMS, *FLAT, *TIMES, *RUNS)}


def tallied(values, step, loss, norm, finite, trained, facts) -> dict[str, tf.Tensor]:
    """What a call reports after one more step.

    Args:
      values: before it.
      step: its number in the call.
      loss, norm: of it.
      finite: whether both are numbers.
      trained: whether it updated the model.
      facts: see `TrainingStep.differentiate`; and `input_seconds`, which the batch took.
    """
    skipped, judged = 1.0 - tf.cast(finite, tf.float32), trained & facts["teaches"]
    done = {"loss": tf.where(trained, loss, 0.0), "gradient_norm": tf.where(trained, norm, 0.0),
            "trained": tf.cast(trained, tf.float32), "examples": facts["examples"], "skipped": skipped,
            "chance_loss": tf.where(trained, facts["chance_loss"], 0.0), "judged": tf.cast(judged, tf.float32),
            "input_seconds": facts["input_seconds"], "call_seconds": 0.0}
    leading, zeros = values["leading_skipped"], values["trailing_zero_gradients"]
    trailing = (values["trailing_skipped"] + 1.0) * skipped
    return {
        **{name: values[name] + done[name] for name in done},
        "leading_skipped": leading + tf.where(leading == tf.cast(step, tf.float32), skipped, 0.0),
        "trailing_skipped": trailing, "longest_skipped": tf.maximum(values["longest_skipped"], trailing),
        "trailing_zero_gradients": tf.where(judged, (zeros + 1.0) * tf.cast(norm == 0.0, tf.float32), zeros)}


def make_train_call(model, objective, optimizer, clip_norm, runtime, open_feed=open_iterator, keys=None) -> TrainCall:
    """Compiles the training steps.

    Args:
      model: a `TwoTower`.
      objective: gives the loss of a batch, see ``objectives/base``.
      optimizer: built for the model's variables.
      clip_norm: global norm that gradients are clipped to; 0 = off.
      runtime: where calls run.
      open_feed: `open` of a feed.
      keys: the model's `KeyEncoder`, or None.

    Returns:
      A call of an iterator of batches and a scalar int64 number of steps, or of what another feed gives. Its result
      holds sums over the steps `loss`, `gradient_norm` (both of steps that updated the model), `trained` (how many
      did), `examples` (rows of weight > 0), `skipped` (steps whose loss or gradient was not finite), the
      `longest_skipped` run of those, the `leading_skipped` one at the begin and the `trailing_skipped` one at the end,
      the objective's metrics after the last; seconds spent in waiting for batches, `input_seconds`, and in all,
      `call_seconds`; `chance_loss`, what `loss` would be if all candidates had the same score (NaN: not known),
      `judged`, steps of those trained that had a history to learn from, and of these the run at the end whose gradient
      was exactly 0, `trailing_zero_gradients`.
    """
    metrics = [name for part in objective.parts for name in part.metric_names]
    names, strategy = [*SUMS, *FLAT, *TIMES, *RUNS, *metrics], runtime.strategy

    def call(*work):
        begin, opened = tf.timestamp(), objective.open()
        one_step = TrainingStep(opened, model.trainable_variables, optimizer, clip_norm, keys)
        batch_of, steps = open_feed(*work)

        def take(step, values):
            batch, waited = timed(batch_of, step)
            gradients, loss, norm, facts = strategy.run(one_step.differentiate, args=(batch,))
            finite = tf.math.is_finite(loss) & tf.math.is_finite(norm)
            # A batch without a row that counts changes nothing either: momentum would move the model on its own.
            trained = finite & (facts["examples"] > 0)
            # In a replica context of its own: an optimizer synchronises there, which a condition inside would forbid.
            update = functools.partial(strategy.run, one_step.apply, args=(gradients,))
            tf.cond(trained, update, lambda: 0.0)
            return step + 1, tallied(values, step, loss, norm, finite, trained, facts | {"input_seconds": waited})

        _, values = tf.while_loop(lambda step, _: step < steps, take, [tf.zeros_like(steps), zero_tally()])
        values["call_seconds"] = seconds_since(begin, values["loss"])
        for part in opened.parts:
            values |= part.metrics()
        return tf.stack([values[name] for name in names])  # one tensor: in a cluster each would be a message

    return TrainCall(graph_function(call), names)
