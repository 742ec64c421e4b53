"""CLRec beside sampled softmax (paper, Table 5): samples/s with equal towers and as many negatives, and what each
encodes, reads and updates per step.

The sampled softmax is written as carefully as CLRec: negatives shared by the batch, drawn by an alias table inside the
step, each distinct item encoded once. What remains between the two is that a cached queue encodes no negatives.
"""
from absl import logging
import numpy as np

from clrec_tf.config import Config
from clrec_tf.lab.benchmarks.counts import bare_step
from clrec_tf.lab.benchmarks.counts import distinct_ids
from clrec_tf.lab.benchmarks import queue_steps
from clrec_tf.lab.benchmarks import timing
from clrec_tf.lab.benchmarks.workload import draw_batches
from clrec_tf.lab.benchmarks.workload import GeneratedItems
from clrec_tf.lab.benchmarks.workload import in_turn
from clrec_tf.lab.benchmarks.workload import SAMPLED_SOFTMAX
from clrec_tf.lab.benchmarks.workload import Trainer
from clrec_tf.lab.children import in_child

KINDS = {"clrec": "cached", "sampled_softmax": SAMPLED_SOFTMAX}
# Items, and whether candidates are encoded with their features; histories always are. `ids`: items have none.
ENCODERS = {"with_features": ("costly", True), "without_features": ("costly", False),
            "six_features": ("features", True), "ids": ("ids", True)}
CASES = [*((name, "mean") for name in ENCODERS), ("with_features", "multi_att")]


def run(config: Config) -> dict:
    """All comparisons.

    Returns:
      `ratios`: samples/s of CLRec over sampled softmax, costly items, mean of the history as query tower; each with
      `…_of_bound`, (ratio − 1)/(bound − 1), the bound being the ratio of items encoded (of ids read where candidates
      have no features). `cases`: all, with both sides' samples/s, counts, and time over their bare operations.
    """
    cases = []
    for history in queue_steps.histories(config):
        for name, tower in CASES:
            case = in_child(compare, queue_steps.case_config(config, history, user_encoder=tower,
                                                             candidate_features=ENCODERS[name][1]), name)
            logging.info("%-32s CLRec over softmax %.2f, by counts %.2f; samples/s %s; over bare operations "
                         "%s", case["name"], case["ratio"], case["bound"],
                         *({side: figures[figure] for side, figures in case["sides"].items()}
                           for figure in ("samples_per_s", "vs_bare_ops")))
            cases.append(case)
    ratios = {}
    for case in cases:
        if case["encoder"] in ("with_features", "without_features") and case["user_encoder"] == "mean":
            key = f"clrec_vs_sampled_softmax_{case['encoder']}_T{case['history']}"
            ratios |= {key: case["ratio"], f"{key}_of_bound": case["of_bound"]}
    return dict(ratios=ratios, cases=cases, rounds=config.benchmark.rounds)


def compare(config: Config, name: str) -> dict:
    """One case: both losses on one model, in turn with their bare operations."""
    items = GeneratedItems(config.benchmark.benchmark_items, **queue_steps.ENCODERS[ENCODERS[name][0]])
    trainer, tables = Trainer(items, config, tuple(KINDS.values())), {}
    batches = draw_batches(items, config, queue_steps.STEPS)
    bare = {side: bare_step(items, trainer, kind, batches, tables) for side, kind in KINDS.items()}
    calls = {side: trainer.call(kind, in_turn(batches)) for side, kind in KINDS.items()}
    calls |= {f"{side} bare": bare[side].call(queue_steps.STEPS) for side in KINDS}
    seconds = timing.take_turns(calls, config.benchmark.rounds)
    touched = {side: counts(config, items, batches, kind) for side, kind in KINDS.items()}
    counted = "items_encoded" if config.tower.candidate_features else "id_rows_read"
    bound = touched["sampled_softmax"][counted] / touched["clrec"][counted]
    ratio = timing.ratio(seconds, "sampled_softmax", "clrec")
    sides = {side: dict(samples_per_s=queue_steps.samples_per_s(config, seconds[side]), **touched[side],
                        ms_per_step=queue_steps.ms(seconds[side]),
                        bare_ms_per_step=queue_steps.ms(seconds[f"{side} bare"]),
                        vs_bare_ops=round(timing.ratio(seconds, side, f"{side} bare"), 3),
                        bare_operations=bare[side].listed()) for side in KINDS}
    history, tower = config.model.max_history, config.tower.user_encoder
    return dict(name=f"{name}_T{history}_{tower}", encoder=name, history=history, user_encoder=tower, items=items.count,
                batch=config.train.batch_size, negatives=config.loss.queue_size, ratio=round(ratio, 3),
                bound=round(bound, 3), of_bound=round((ratio - 1) / (bound - 1), 3), sides=sides)


def counts(config: Config, items: GeneratedItems, batches: dict, kind: str) -> dict[str, float]:
    """Per step, mean over the steps: items through the feature encoder, and rows of the id table read and updated."""
    steps = distinct_ids(items, batches, kind, config.loss.queue_size)
    mean = lambda sizes: round(float(np.mean(list(sizes))), 1)
    updated = mean(len(step["encoded"]) for step in steps)
    if config.tower.candidate_features:
        return dict(items_encoded=updated, id_rows_read=updated, id_rows_updated=updated)
    return dict(items_encoded=mean(len(step["clicked"]) for step in steps), id_rows_updated=updated,
                id_rows_read=mean(len(step["clicked"]) + len(step["candidates"]) for step in steps))
