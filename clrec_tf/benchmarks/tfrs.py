"""Our step beside what a user would run instead: the retrieval task of TensorFlow Recommenders.

Both sides have the same query tower (mean of the last 50 items, 64 wide, one table for history and candidates, cosine
and temperature), read the same batches from memory and do as many steps per compiled call. Theirs has the batch's own
items as negatives, corrected by the log of each item's share of clicks, and Adagrad, the faster of Keras's optimizers
on sparse gradients; ours a cached queue and lazy Adam. What differs is therefore to our disadvantage: ten times the
negatives, and two slots per row instead of one.
"""
import dataclasses
import os
import statistics
import tempfile

from absl import logging
import numpy as np
import tensorflow as tf

from clrec_tf.benchmarks import timing
from clrec_tf.benchmarks.workload import in_turn
from clrec_tf.config import Config
from clrec_tf.config import require
from clrec_tf.data.schema import load_manifest
from clrec_tf.data.schema import load_schema
from clrec_tf.evaluation.examples import read_catalogue
from clrec_tf.training.runtime import LocalRuntime
from clrec_tf.training.setup import set_up

STEPS = 32  # per call, and different batches
HISTORY, DIM = 50, 64


def run(config: Config) -> dict:
    """Samples/s of both on --data_dir.

    Returns:
      `ratios`: `ours_vs_tfrs_mean50`, our samples/s over theirs; `samples_per_s` of both.
    """
    data_dir = require(config.paths.data_dir, "data_dir", "the comparison reads a data set made by clrec_tf.prepare")
    with tempfile.TemporaryDirectory() as folder:
        model = dataclasses.replace(config.model, user_encoder="mean", queue="cached", embedding_dim=DIM,
                                    max_history=HISTORY, position="none", time_embedding="none", use_features=False)
        train = dataclasses.replace(config.train, target_mode="sliding", validate_every=0.0, epochs=1)
        ours = set_up(dataclasses.replace(
            config, model=model, train=train,
            paths=dataclasses.replace(config.paths, workdir=os.path.join(folder, "run"))), LocalRuntime())
        stream = iter(ours.dataset())
        batches = tf.nest.map_structure(lambda *parts: tf.stack(parts), *(next(stream) for _ in range(STEPS)))
    theirs = retrieval_model(data_dir, model.temperature, config.train.learning_rate)
    their_call, steps = several_steps(theirs), tf.constant(STEPS, tf.int64)
    our_batches, their_batches = in_turn(batches), in_turn(batches)
    seconds = timing.take_turns({"ours": lambda: ours.call(our_batches, steps),
                                 "tfrs": lambda: their_call(their_batches, steps)}, config.benchmark.rounds)
    rates = {name: round(config.train.batch_size * STEPS / statistics.median(times)) for name, times in seconds.items()}
    ratios = dict(ours_vs_tfrs_mean50=round(timing.ratio(seconds, "tfrs", "ours"), 3))
    logging.info("samples/s %s, ratios %s", rates, ratios)
    return dict(ratios=ratios, samples_per_s=rates, batch=config.train.batch_size, queue=config.model.queue_size)


def retrieval_model(data_dir: str, temperature: float, learning_rate: float):
    """A tfrs.Model over the batches of this package, compiled."""
    import tensorflow_recommenders as tfrs  # pylint: disable=import-outside-toplevel
    counts = read_catalogue(data_dir, load_schema(data_dir), load_manifest(data_dir)).counts
    shares = tf.constant(np.concatenate([[1.0], counts / counts.sum()]), tf.float32)

    class Retrieval(tfrs.Model):
        """Two towers over one table."""

        def __init__(self):
            super().__init__()
            self.items = tf.keras.layers.Embedding(len(counts) + 1, DIM, mask_zero=True)
            self.query = tf.keras.Sequential([self.items, tf.keras.layers.GlobalAveragePooling1D()])
            self.task = tfrs.tasks.Retrieval(temperature=temperature)

        def compute_loss(self, inputs, training=False):
            """Loss of one batch."""
            target = inputs["target"][:, 0]
            users = tf.math.l2_normalize(self.query(inputs["history"][:, :, 0]), axis=1)
            items = tf.math.l2_normalize(self.items(target), axis=1)
            return self.task(users, items, compute_metrics=False, candidate_sampling_probability=tf.gather(shares, target))

    model = Retrieval()
    model.compile(optimizer=tf.keras.optimizers.Adagrad(learning_rate, jit_compile=False))
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
