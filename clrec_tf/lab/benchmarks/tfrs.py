"""Our step beside what a user would run instead: the retrieval task of TensorFlow Recommenders.

All sides have the same query tower (mean of the last 50 items, 64 wide, cosine and temperature), read the same batches
from memory and do as many steps per compiled call. Theirs has the batch's own items as negatives, corrected by the
log of each item's share of clicks, and Adagrad, as in its tutorials; ours a cached queue with ten times the negatives,
and lazy Adam, which keeps two slots per row instead of one. Theirs is measured as its tutorials run it, by `fit` over
two tables, and as lean as it can be made: one table, and its training step in a compiled loop.
"""
import os
import statistics
import tempfile

from absl import logging
import numpy as np
import tensorflow as tf

from clrec_tf.config import Config
from clrec_tf.config import require
from clrec_tf.data.catalogue import read_catalogue
from clrec_tf.data.schema import load_manifest
from clrec_tf.data.schema import load_schema
from clrec_tf.lab.benchmarks import timing
from clrec_tf.lab.benchmarks.workload import in_turn
from clrec_tf.training.runtime import LocalRuntime
from clrec_tf.training.setup import set_up

STEPS, CALLS = 32, 10  # steps per call (as many different batches), calls that are timed together
HISTORY, DIM = 50, 64


def run(config: Config) -> dict:
    """Samples/s on --data_dir.

    Returns:
      `ratios`: our samples/s over theirs, `ours_vs_tfrs_mean50` (fit), `ours_vs_tfrs_mean50_lean`, and with the batch's
      own items as our negatives too, `ours_in_batch_vs_tfrs_mean50` and `ours_in_batch_vs_tfrs_mean50_lean`: medians of
      the rounds' ratios. `samples_per_s`: of each side by its median time, whose quotients may differ from those.
    """
    data_dir = require(config.paths.data_dir, "data_dir", "the comparison reads a data set made by clrec_tf.prepare")
    with tempfile.TemporaryDirectory() as folder:
        cached, in_batch = (our_run(config, kind, os.path.join(folder, kind)) for kind in ("cached", "in_batch"))
        stream = iter(cached.dataset())
        batches = tf.nest.map_structure(lambda *parts: tf.stack(parts), *(next(stream) for _ in range(STEPS)))
    shares = click_shares(data_dir)
    fitted = retrieval_model(shares, config, one_table=False)
    dataset = tf.data.Dataset.from_tensor_slices(batches).repeat(CALLS)
    steps, lean = tf.constant(STEPS, tf.int64), several_steps(retrieval_model(shares, config, one_table=True))
    repeated = lambda call, iterator: lambda: [call(iterator, steps) for _ in range(CALLS)]
    seconds = timing.take_turns({
        "cached": repeated(cached.call, in_turn(batches)),
        "in_batch": repeated(in_batch.call, in_turn(batches)),
        "tfrs": lambda: tf.constant(fitted.fit(dataset, verbose=0).history["loss"]),
        "tfrs_lean": repeated(lean, in_turn(batches))}, config.benchmark.rounds)
    rates = {name: round(config.train.batch_size * STEPS * CALLS / statistics.median(times))
             for name, times in seconds.items()}
    ratios = {f"{ours}_vs_{name}": round(timing.ratio(seconds, theirs, side), 3)
              for ours, side in (("ours", "cached"), ("ours_in_batch", "in_batch"))
              for name, theirs in (("tfrs_mean50", "tfrs"), ("tfrs_mean50_lean", "tfrs_lean"))}
    logging.info("samples/s %s, ratios %s", rates, ratios)
    return dict(ratios=ratios, samples_per_s=rates, batch=config.train.batch_size, queue=config.loss.queue_size)


def our_run(config: Config, kind: str, workdir: str, epochs: int = 1):
    """Our training of the same tower."""
    ours = config.but(user_encoder="mean", queue=kind, embedding_dim=DIM, max_history=HISTORY, position="none",
                      time_embedding="none", use_features=False, target_mode="sliding", validate_every=0.0, epochs=epochs,
                      workdir=workdir)
    return set_up(ours.without_unread(), LocalRuntime())


def click_shares(data_dir: str) -> np.ndarray:
    """Each item's share of the training clicks [V+1], by item id."""
    counts = read_catalogue(data_dir, load_schema(data_dir), load_manifest(data_dir)).counts
    return np.concatenate([[1.0], counts / counts.sum()]).astype(np.float32)


def retrieval_model(shares: np.ndarray, config: Config, one_table: bool):
    """A compiled tfrs.Model over the batches of this package."""
    import tensorflow_recommenders as tfrs  # pylint: disable=import-outside-toplevel
    rows, shares = len(shares), tf.constant(shares)

    class Retrieval(tfrs.Model):
        """Two towers."""

        def __init__(self):
            super().__init__()
            clicks = tf.keras.layers.Embedding(rows, DIM, mask_zero=True)
            self.candidates = clicks if one_table else tf.keras.layers.Embedding(rows, DIM)
            self.query = tf.keras.Sequential([clicks, tf.keras.layers.GlobalAveragePooling1D()])
            self.task = tfrs.tasks.Retrieval(temperature=config.model.temperature)

        def compute_loss(self, inputs, training=False):
            """Loss of one batch."""
            target = inputs["target"][:, 0]
            users = tf.math.l2_normalize(self.query(inputs["history"][:, :, 0]), axis=1)
            items = tf.math.l2_normalize(self.candidates(target), axis=1)
            return self.task(users, items, compute_metrics=False,
                             candidate_sampling_probability=tf.gather(shares, target))

    model = Retrieval()
    model.compile(optimizer=tf.keras.optimizers.Adagrad(config.train.learning_rate, jit_compile=False),
                  steps_per_execution=STEPS)
    return model


def several_steps(model):
    """A compiled call of several of the model's own training steps."""
    @tf.function
    def call(iterator, steps):
        loss = tf.constant(0.0)
        for _ in tf.range(steps):
            loss += model.train_step(next(iterator))["loss"]
        return loss

    return call
