"""Peak memory of training against what tables and optimizer slots hold."""
import dataclasses

from absl import logging

from clrec_tf.config import Config
from clrec_tf.lab.benchmarks.workload import draw_batches
from clrec_tf.lab.benchmarks.workload import GeneratedItems
from clrec_tf.lab.benchmarks.workload import in_turn
from clrec_tf.lab.benchmarks.workload import Trainer
from clrec_tf.lab.children import in_child
from clrec_tf.lab.children import peak_memory_bytes

CATALOGUES = (1_000, 1_000_000, 10_000_000)  # the first shows what TensorFlow and the program take alone
TABLES = 3  # the table and Adam's two slots
STEPS = 20


def run(config: Config) -> dict:
    """Trains `STEPS` steps with each size of catalogue, each in a process of its own.

    Returns:
      `ratios`: `peak_memory_V…_vs_tables`, growth of the peak from the smallest catalogue over growth of table and
      slots; `peak_memory_bytes` and `table_and_slot_bytes` by number of items.

    Raises:
      UserError: a process was killed, such as for lack of memory.
    """
    config = dataclasses.replace(
        config, train=dataclasses.replace(config.train, steps_per_call=STEPS, optimizer="lazy_adam"))
    tables = {count: TABLES * 4 * (count + 1) * config.model.embedding_dim for count in CATALOGUES}
    peaks = {}
    for count in CATALOGUES:
        peaks[count] = in_child(train_some, config, count)
        logging.info("%s items: peak %.2f GiB, table and slots %.2f GiB", f"{count:,}", peaks[count] / 2**30,
                     tables[count] / 2**30)
    base = CATALOGUES[0]
    ratios = {f"peak_memory_V{count:.0e}_vs_tables".replace("+0", ""):
              round((peaks[count] - peaks[base]) / (tables[count] - tables[base]), 3) for count in CATALOGUES[1:]}
    return dict(ratios=ratios, peak_memory_bytes=peaks, table_and_slot_bytes=tables)


def train_some(config: Config, count: int) -> int:
    """A training of a few steps; its peak memory in bytes."""
    items = GeneratedItems(count)
    Trainer(items, config).call("cached", in_turn(draw_batches(items, config, STEPS)))()
    return peak_memory_bytes()
