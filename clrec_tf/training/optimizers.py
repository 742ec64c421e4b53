"""Optimizers whose cost does not depend on the catalogue: only rows in use are read and written."""
import functools
import math

from absl import logging
import tensorflow as tf
import tf_keras

from clrec_tf.config import TrainConfig
from clrec_tf.encoders.embeddings import DISTINCT
from clrec_tf.system.private_tensorflow import adam_moments
from clrec_tf.system.private_tensorflow import DistinctRows


class WarmupSchedule(tf_keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up to `peak`, then constant, or half a cosine down to `peak * final_ratio` at `total_steps`."""

    def __init__(self, peak, warmup_steps, schedule, total_steps, final_ratio):
        self.peak, self.warmup_steps, self.schedule = peak, warmup_steps, schedule
        self.total_steps, self.final_ratio = total_steps, final_ratio

    def __call__(self, step):
        """Learning rate of the step-th update (from 0), float32."""
        step = tf.cast(step, tf.float32)
        rate = tf.constant(self.peak, tf.float32)
        if self.schedule == "cosine":
            span = max(1, self.total_steps - self.warmup_steps)
            progress = tf.clip_by_value((step - self.warmup_steps) / span, 0.0, 1.0)
            cosine = 0.5 * (1.0 + tf.cos(math.pi * progress))
            rate *= self.final_ratio + (1.0 - self.final_ratio) * cosine
        if self.warmup_steps:
            rate *= tf.minimum(1.0, (step + 1.0) / self.warmup_steps)
        return rate

    def get_config(self):
        """Constructor arguments."""
        return dict(peak=self.peak, warmup_steps=self.warmup_steps, schedule=self.schedule,
                    total_steps=self.total_steps, final_ratio=self.final_ratio)


def summed_rows(gradient):
    """A gradient in which no row repeats.

    A table that is looked up once a step by `embeddings.lookup_distinct`, which marks its ids, has no repeats. In every
    other gradient equal rows are summed: of a table that is looked up more often, whose lookups the tape joins, or by
    other means, such as a Keras Embedding. Dense gradients and None stay as they are.
    """
    if not isinstance(gradient, tf.IndexedSlices) or _are_distinct(gradient.indices):
        return gradient
    rows, place = tf.unique(gradient.indices)
    values = tf.math.unsorted_segment_sum(gradient.values, place, tf.size(rows))
    return tf.IndexedSlices(values, rows, gradient.dense_shape)


# What TensorFlow does to the ids of a lookup on their way to its gradient, on one machine and to each shard of a table,
# and which input the ids are. All of it keeps distinct ids distinct, so a mark of what goes in holds for what comes
# out.
_KEEP_DISTINCT = dict(Reshape=0, Identity=0, Cast=0, DynamicPartition=0, FloorMod=0, Sub=0, Select=1, SelectV2=1)


def _are_distinct(indices) -> bool:
    """Whether row numbers are known not to repeat: in a graph, if they come from one marked lookup."""
    if tf.executing_eagerly():
        return False
    operation = indices.op
    while not operation.name.rpartition("/")[2].startswith(DISTINCT):
        if operation.type not in _KEEP_DISTINCT:
            return False
        operation = operation.inputs[_KEEP_DISTINCT[operation.type]].op
    return True


def _cast(gradient, dtype):
    """A gradient with values of a type; None stays None."""
    if not isinstance(gradient, tf.IndexedSlices):
        return None if gradient is None else tf.cast(gradient, dtype)
    return tf.IndexedSlices(tf.cast(gradient.values, dtype), gradient.indices, gradient.dense_shape)


class _RowsInUse(DistinctRows):
    """What the sparse optimizers share; mixed into a Keras optimizer.

    Gradients come with rows that do not repeat (see `summed_rows`). `row_decay` is decoupled weight decay (Loshchilov &
    Hutter 2019) of the rows in use only. Gradients are rounded to `gradient_dtype` where they were computed, and made
    the variable's type again where that lives, so that they travel in the former.
    """

    row_decay, gradient_dtype = 0.0, tf.float32

    def apply_gradients(self, grads_and_vars, *args, **kwargs):
        """Rounds, then updates all variables; returns the number of updates."""
        pairs = [(_cast(gradient, self.gradient_dtype), variable) for gradient, variable in grads_and_vars]
        return super().apply_gradients(pairs, *args, **kwargs)

    def update_step(self, gradient, variable):
        """Decays, then updates."""
        gradient = _cast(gradient, variable.dtype)
        if self.row_decay:
            shrink = tf.cast(self.learning_rate, variable.dtype) * self.row_decay
            if isinstance(gradient, tf.IndexedSlices):
                rows = tf.gather(variable, gradient.indices)
                variable.scatter_sub(tf.IndexedSlices(shrink * rows, gradient.indices))
            else:
                variable.assign_sub(shrink * variable)
        super().update_step(gradient, variable)

    def add_variable_from_reference(self, model_variable, variable_name, shape=None, initial_value=None):
        """Slots are filled where they live, not sent there."""
        if initial_value is None:
            shape, dtype = shape or model_variable.shape, model_variable.dtype
            initial_value = lambda: tf.zeros(shape, dtype)
        return super().add_variable_from_reference(model_variable, variable_name, shape, initial_value)


class _SparseAdam(tf_keras.optimizers.Adam):
    """Adam whose moments move only for rows that have a gradient."""

    def update_step(self, gradient, variable):
        """One variable's update; a sparse gradient touches its rows only."""
        step = tf.cast(self.iterations + 1, variable.dtype)
        rate = tf.cast(self.learning_rate, variable.dtype)
        powers = tf.pow(self.beta_1, step), tf.pow(self.beta_2, step)
        momentum, velocity = adam_moments(self, variable)
        if not isinstance(gradient, tf.IndexedSlices):
            tf.raw_ops.ResourceApplyAdam(  # one operation, where Keras has a dozen
                var=variable.handle, m=momentum.handle, v=velocity.handle, beta1_power=powers[0], beta2_power=powers[1],
                lr=rate, beta1=self.beta_1, beta2=self.beta_2, epsilon=self.epsilon, grad=gradient)
            return
        rows = gradient.indices
        rate = rate * tf.sqrt(1 - powers[1]) / (1 - powers[0])
        new_momentum = self.beta_1 * tf.gather(momentum, rows) + (1 - self.beta_1) * gradient.values
        new_velocity = self.beta_2 * tf.gather(velocity, rows) + (1 - self.beta_2) * tf.square(gradient.values)
        momentum.scatter_update(tf.IndexedSlices(new_momentum, rows))
        velocity.scatter_update(tf.IndexedSlices(new_velocity, rows))
        variable.scatter_sub(tf.IndexedSlices(rate * new_momentum / (tf.sqrt(new_velocity) + self.epsilon), rows))


class LazyAdam(_RowsInUse, _SparseAdam):
    """Adam (Kingma & Ba 2015) on the rows in use; equal to Adam when every row has a gradient."""


class RowAdagrad(_RowsInUse, tf_keras.optimizers.Adagrad):
    """Adagrad (Duchi et al. 2011), which is sparse by nature."""


def build_optimizer(config: TrainConfig, total_steps: int) -> tf_keras.optimizers.Optimizer:
    """The optimizer of the settings.

    Args:
      config: training settings.
      total_steps: steps of the whole training, where a cosine ends.
    """
    if config.warmup_steps >= total_steps > 0:
        logging.warning("--warmup_steps=%d of %d steps in all: --learning_rate=%g is reached at the end or never; lower "
                        "it, or raise --epochs", config.warmup_steps, total_steps, config.learning_rate)
    schedule = WarmupSchedule(config.learning_rate, config.warmup_steps, config.schedule, total_steps,
                              config.final_learning_rate_ratio)
    make = {"lazy_adam": functools.partial(LazyAdam, beta_2=config.adam_beta2), "adagrad": RowAdagrad}[config.optimizer]
    optimizer = make(learning_rate=schedule, jit_compile=False)  # XLA fails under parameter servers
    optimizer.row_decay, optimizer.gradient_dtype = config.weight_decay, tf.as_dtype(config.gradient_dtype)
    return optimizer
