"""Whether training waits for its input: the pipeline alone, training from files, and the same step from memory."""
import dataclasses
import math
import os
import statistics
import tempfile

from absl import logging
import tensorflow as tf

from clrec_tf.config import Config
from clrec_tf.config import PrepareConfig
from clrec_tf.config import WorldConfig
from clrec_tf.data.epoch_plan import EpochPlan
from clrec_tf.data.schema import load_manifest
from clrec_tf.lab.benchmarks import timing
from clrec_tf.lab.benchmarks.workload import in_turn
from clrec_tf.preparation.prepare_folder import prepare_folder
from clrec_tf.preparation import synthetic_log
from clrec_tf.training.runtime import LocalRuntime
from clrec_tf.training.setup import set_up

STEPS = 60  # of training per measured call; the pipeline alone reads a whole epoch
SHARD_RECORDS = 64  # small shards, so that many are opened and parsed within what is measured


def run(config: Config) -> dict:
    """Samples/s on --data_dir, or on a generated log of 20,000 users with two features and time stamps.

    Returns:
      `ratios`: `input_vs_training`, the pipeline's rate alone over the rate of training from files, and
      `training_from_files_vs_memory`, step times. `samples_per_s` of the three.
    """
    with tempfile.TemporaryDirectory() as folder:
        data_dir = config.paths.data_dir or generated(folder, config)
        config = dataclasses.replace(
            config, train=dataclasses.replace(config.train, validate_every=0.0, target_mode="sliding"),
            paths=dataclasses.replace(config.paths, data_dir=data_dir, workdir=os.path.join(folder, "run")))
        settings = config.train
        plan = EpochPlan(load_manifest(data_dir).shards["train"], settings.batch_size, settings.shuffle_shards,
                         settings.target_mode, config.paths.seed)
        epoch_steps = plan.epoch_ends(1)[0]
        epochs = config.benchmark.rounds + 2 + math.ceil((config.benchmark.rounds + 3) * STEPS / epoch_steps)
        return measured(dataclasses.replace(config, train=dataclasses.replace(settings, epochs=epochs)), epoch_steps)


def generated(folder: str, config: Config) -> str:
    """A generated log, prepared."""
    log = synthetic_log.generate(WorldConfig(world_users=20_000, world_items=10_000), config.paths.seed, folder)
    data_dir = os.path.join(folder, "data")
    prepare_folder(dataclasses.replace(config.paths, data_dir=data_dir), PrepareConfig(
        shard_records=SHARD_RECORDS, input=log, item_features=os.path.join(folder, synthetic_log.ITEMS_FILE),
        feature_columns=("category", "seller")))
    return data_dir


def measured(config: Config, epoch_steps: int) -> dict:
    """Input alone, training from files and training from memory, in turn."""
    run_ = set_up(config, LocalRuntime())
    steps = tf.constant(STEPS, tf.int64)

    @tf.function
    def read(iterator):
        samples = tf.constant(0.0)
        for _ in tf.range(epoch_steps):
            samples += next(iterator)["weight"][0]
        return samples

    alone, trained = iter(run_.dataset()), iter(run_.dataset())
    kept = [next(trained) for _ in range(STEPS)]
    memory = in_turn(tf.nest.map_structure(lambda *parts: tf.stack(parts), *kept))
    seconds = timing.take_turns({
        "input": lambda: read(alone), "training": lambda: run_.call(trained, steps),
        "training from memory": lambda: run_.call(memory, steps)}, config.benchmark.rounds)
    seconds = {name: [time / (epoch_steps if name == "input" else STEPS) for time in times]
               for name, times in seconds.items()}
    rates = {name: round(config.train.batch_size / statistics.median(times)) for name, times in seconds.items()}
    ratios = dict(input_vs_training=round(timing.ratio(seconds, "training", "input"), 2),
                  training_from_files_vs_memory=round(timing.ratio(seconds, "training", "training from memory"), 3))
    logging.info("samples/s %s, ratios %s", rates, ratios)
    return dict(ratios=ratios, samples_per_s=rates, history=config.model.max_history,
                user_encoder=config.tower.user_encoder, epoch_steps=epoch_steps)
