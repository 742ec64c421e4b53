"""Multi-CLRec's loss beside the matrix products that it needs and beside brute force; its steps beside CLRec's.

The loss is measured alone, at the width `DIM`, forward and backward: with candidates grouped by the targets' intents
(what a large catalogue gets, raw and cached), with counts of all items (a small one), and as the formula reads. Steps
are those of training, with the settings' width.
"""
from absl import logging

from clrec_tf.config import Config
from clrec_tf.errors import UserError
from clrec_tf.lab.benchmarks import denominators
from clrec_tf.lab.benchmarks import intent_steps
from clrec_tf.lab.benchmarks.queue_steps import histories
from clrec_tf.lab.children import in_child

INTENTS = (16, 64)  # public data and production (paper)
DIM = 128
COUNTED_ITEMS = 3416  # MovieLens-1M
CATALOGUES = (1.0, 2.0, 3.0, 4.0, 6.0, 8.0)  # items, in multiples of Q, between which counts stop being cheaper


def run(config: Config) -> dict:
    """All comparisons.

    Returns:
      `ratios` (see `headlines`); `losses`: by H, with even and uneven intents, ms of each path and over its products;
      `memory`: bytes that each path takes beyond its inputs, by H; `brute_force_logits_bytes`, by H, of the forward
      pass alone, by formula: with 64 intents they are too many to be measured; `steps`: by length of history;
      `grouped_vs_counted_step`: by number of items, above 1 where counts are cheaper.

    Raises:
      UserError: no comparison is possible.
    """
    capacity = config.loss.queue_size // 2
    if capacity < config.train.batch_size:
        raise UserError(f"--queue_size={config.loss.queue_size}: half of it is the main queue, which must hold "
                        f"--batch_size={config.train.batch_size}; raise the one or lower the other")
    lengths, few = histories(config), INTENTS[0]
    losses = {intents: in_child(denominators.times, config, intents, DIM, COUNTED_ITEMS, intents == few)
              for intents in INTENTS}
    for intents, by_draw in losses.items():
        logging.info("H=%d: %s", intents, by_draw)
    memory = {intents: {path: in_child(denominators.peak_growth, config, intents, DIM, COUNTED_ITEMS, path)
                        for path in denominators.PATHS if intents == few or path != "brute_force"}
              for intents in INTENTS}
    logging.info("memory beyond the inputs, bytes: %s", memory)
    steps = {length: in_child(intent_steps.compare, config, length, few) for length in lengths}
    logging.info("steps: %s", steps)
    crossing = in_child(intent_steps.compare_counts, config, few, [round(part * capacity) for part in CATALOGUES])
    logging.info("time of a step grouped over counted, by items: %s", crossing)
    logits = {intents: 4 * config.train.batch_size * intents * (1 + intents) * capacity for intents in INTENTS}
    return dict(ratios=headlines(losses, memory, steps), losses=losses, memory=memory,
                brute_force_logits_bytes=logits, steps=steps, grouped_vs_counted_step=crossing,
                rounds=config.benchmark.rounds)


def headlines(losses: dict, memory: dict, steps: dict) -> dict[str, float]:
    """The ratios that stand for all: time of the loss over its products, of steps (longest history, raw queues unless
    they are named cached), and of grouped candidates over brute force."""
    ratios, few = {}, INTENTS[0]
    for intents, by_draw in losses.items():
        even = by_draw[denominators.EVEN]["vs_bare_matmul"]
        ratios[f"loss_vs_bare_matmul_H{intents}"] = even["grouped"]
        ratios[f"loss_vs_bare_matmul_H{intents}_uneven"] = by_draw[denominators.UNEVEN]["vs_bare_matmul"]["grouped"]
        ratios |= {f"{path}_loss_vs_bare_matmul_H{intents}": even[path] for path in ("cached", "counted")}
    longest = steps[max(steps)]["multi_vs_single"]
    ratios[f"multi_vs_single_step_time_H{few}"] = longest["raw"]
    ratios[f"multi_vs_single_cached_step_time_H{few}"] = longest["cached"]
    ratios[f"grouped_vs_brute_force_time_H{few}"] = losses[few][denominators.EVEN]["grouped_vs_brute_force"]
    ratios[f"grouped_vs_brute_force_memory_H{few}"] = round(memory[few]["grouped"] / memory[few]["brute_force"], 4)
    return ratios
