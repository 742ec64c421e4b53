"""User encoders beside each other: samples/s of a training step with a cached queue, and parameters, at equal width."""
from absl import logging
import numpy as np

from clrec_tf.config import Config
from clrec_tf.lab.benchmarks import queue_steps
from clrec_tf.lab.benchmarks import timing
from clrec_tf.lab.benchmarks.workload import draw_batches
from clrec_tf.lab.benchmarks.workload import GeneratedItems
from clrec_tf.lab.benchmarks.workload import in_turn
from clrec_tf.lab.benchmarks.workload import Trainer
from clrec_tf.lab.children import in_child
from clrec_tf.settings.registry import ENCODERS

FIRST = "mean"  # what the others' speed is divided by


def run(config: Config) -> dict:
    """Each encoder with its default settings, one process each, over items without features.

    Returns:
      `ratios`: samples/s over those of the mean; `cases`: each with `samples_per_s`, its median over the rounds, and
      `parameters`: numbers trained beside the table of item ids.
    """
    cases = []
    for history in queue_steps.histories(config):
        for name in ENCODERS.names():
            cases.append(in_child(measure, queue_steps.case_config(config, history, user_encoder=name)))
            logging.info("%(user_encoder)-10s T=%(history)d %(samples_per_s)9.0f samples/s, %(parameters)d parameters",
                         cases[-1])
    speed = {(case["user_encoder"], case["history"]): case["samples_per_s"] for case in cases}
    ratios = {f"{name}_vs_{FIRST}_T{history}": round(found / speed[FIRST, history], 3)
              for (name, history), found in speed.items() if name != FIRST}
    return dict(ratios=ratios, cases=cases, rounds=config.benchmark.rounds)


def measure(config: Config) -> dict:
    """One encoder."""
    items = GeneratedItems(config.benchmark.benchmark_items)
    trainer = Trainer(items, config)
    batches = in_turn(draw_batches(items, config, queue_steps.STEPS))
    seconds = timing.take_turns({"cached": trainer.call("cached", batches)}, config.benchmark.rounds)["cached"]
    ids = trainer.model.item_encoder.ids.table
    parameters = sum(int(np.prod(weight.shape)) for weight in trainer.model.trainable_variables if weight is not ids)
    return dict(user_encoder=config.tower.user_encoder, history=config.model.max_history, parameters=parameters,
                samples_per_s=queue_steps.samples_per_s(config, seconds))
