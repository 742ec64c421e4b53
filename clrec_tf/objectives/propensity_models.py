"""The first stage of inverse propensity weighting: q̂(y|x), the chance that an item was shown, fitted on exposures.

The context x is the user's last click before. An exposure is a pair (after, item) of item ids: `item` was shown when
`after` was the last click, 0 where there was none.
"""
import numpy as np
import tensorflow as tf
import tf_keras

from clrec_tf.system.graphs import graph_function

PRIOR_EXPOSURES = 20.0  # of a context, taken from the popularity of all: q̂ of rarely seen contexts falls back on it
RANK, LEARNING_RATE, SOFTMAX_BATCH, SOFTMAX_STEPS = 16, 0.02, 1024, 2000


def popularity(items: np.ndarray, item_rows: int) -> np.ndarray:
    """q̂(y) = (n_y + 1) / (N + V) from exposures' item ids [N]: -> float64 [item_rows]; row 0, padding, is 0."""
    counts = np.bincount(items, minlength=item_rows)[1:item_rows] + 1.0
    return np.append(0.0, counts / counts.sum())


def by_context(contexts: np.ndarray, items: np.ndarray, num_contexts: int, item_rows: int) -> np.ndarray:
    """q̂(y|c) = (n_cy + a·q̂(y)) / (n_c + a) with a = `PRIOR_EXPOSURES`, such as c = category of the last click.

    Args:
      contexts: [N] in 0..num_contexts−1.
      items: [N] item ids.
      num_contexts, item_rows: sizes.

    Returns:
      float64 [num_contexts, item_rows]; each row sums to 1.
    """
    counts = np.bincount(contexts * item_rows + items, minlength=num_contexts * item_rows).astype(np.float64)
    counts = counts.reshape(num_contexts, item_rows)
    prior = PRIOR_EXPOSURES * popularity(items, item_rows)
    return (counts + prior) / (counts.sum(axis=1, keepdims=True) + PRIOR_EXPOSURES)


class TablePropensity:
    """q̂ from a table [contexts, item_rows], of one row for popularity.

    Args:
      table: from `popularity` (as one row) or `by_context`.
      context_of_item: [item_rows] int, row of the table by the last click's item id.
    """

    def __init__(self, table, context_of_item):
        self._constants = {"table": np.asarray(table, np.float32), "contexts": np.asarray(context_of_item, np.int32)}

    def constants(self):
        """What `of` reads."""
        return self._constants

    @staticmethod
    def of(constants, after, items):
        """after [B], items [B] ids -> q̂ [B]."""
        contexts = tf.gather(constants["contexts"], after)
        return tf.gather_nd(constants["table"], tf.stack([contexts, tf.cast(items, tf.int32)], axis=1))

    def __call__(self, after, items):
        """The same with the model's own constants."""
        return self.of(self._constants, after, items)


class SoftmaxPropensity(tf.Module):
    """q̂(y|x) = softmax_y(A[x]·B[y] + b[y]), of low rank; b starts at the log of popularity.

    Args:
      start: q̂(y) float64 [item_rows], from `popularity`.
      seed: of initial values and of the order of exposures.
    """

    def __init__(self, start, seed):
        super().__init__(name="softmax_propensity")
        random, self._seed = np.random.default_rng(seed), seed
        rows = len(start)
        self._contexts = tf.Variable(0.1 * random.normal(size=(rows, RANK)), dtype=tf.float32)
        self._items = tf.Variable(0.1 * random.normal(size=(rows, RANK)), dtype=tf.float32)
        self._bias = tf.Variable(np.log(np.maximum(start, 1e-30)), dtype=tf.float32)

    def constants(self):
        """What `of` reads, as it is fitted now."""
        return {name: variable.numpy() for name, variable in self._variables().items()}

    def _variables(self):
        return {"contexts": self._contexts, "items": self._items, "bias": self._bias}

    @staticmethod
    def of(constants, after, items):
        """after [B], items [B] ids -> q̂ [B]."""
        return tf.exp(_log_softmax_propensity(constants, after, items))

    def __call__(self, after, items):
        """The same as it is fitted now."""
        return self.of(self._variables(), after, items)

    def fit(self, after: np.ndarray, items: np.ndarray) -> float:
        """Maximum likelihood on exposures [N], [N], by `SOFTMAX_STEPS` steps of Adam; returns the last mean loss."""
        # Down to 0, or the noise of the last steps would stay in q̂, and in the weights 1/q̂.
        rate = tf_keras.optimizers.schedules.PolynomialDecay(LEARNING_RATE, SOFTMAX_STEPS, 0.0)
        optimizer = tf_keras.optimizers.Adam(rate, jit_compile=False)
        variables = [self._contexts, self._items, self._bias]
        optimizer.build(variables)
        after, items = tf.constant(after, tf.int32), tf.constant(items, tf.int32)

        def take(step, loss):
            rows = tf.random.stateless_uniform([SOFTMAX_BATCH], [self._seed, step], 0, tf.size(items), tf.int32)
            with tf.GradientTape() as tape:
                now = -tf.reduce_mean(_log_softmax_propensity(
                    self._variables(), tf.gather(after, rows), tf.gather(items, rows)))
            optimizer.apply_gradients(zip(tape.gradient(now, variables), variables))
            return step + 1, loss + 0.02 * (now - loss)

        _, loss = graph_function(lambda: tf.while_loop(lambda step, _: step < SOFTMAX_STEPS, take, [0, 0.0]))()
        return float(loss)


def _log_softmax_propensity(parts, after, items):
    """log q̂ [B] by `SoftmaxPropensity`."""
    affinity = tf.matmul(tf.gather(parts["contexts"], after), parts["items"], transpose_b=True)
    return tf.gather(tf.nn.log_softmax(affinity + parts["bias"]), items, batch_dims=1)
