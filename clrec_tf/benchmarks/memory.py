"""Peak memory of training, in processes of their own, against what tables, optimizer slots and batches hold."""
import json
import os
import subprocess
import sys

from absl import logging

from clrec_tf.config import Config
from clrec_tf.errors import UserError

CATALOGUES = (1_000, 1_000_000, 10_000_000)  # the first shows what TensorFlow and the program take alone
TABLES = 3  # the table and Adam's two slots
STEPS = 20


def run(config: Config) -> dict:
    """Trains `STEPS` steps with each size of catalogue.

    Returns:
      `ratios`: `peak_memory_V…_vs_tables`, growth of the peak from the smallest catalogue over growth of table and
      slots; `peak_memory_bytes` and `table_and_slot_bytes` by number of items.

    Raises:
      UserError: a process failed, such as for lack of memory.
    """
    peaks, tables = {}, {}
    for count in CATALOGUES:
        process = subprocess.Popen(
            [sys.executable, "-m", "clrec_tf.benchmarks.memory", str(count), json.dumps(_settings(config))])
        _, status, usage = os.wait4(process.pid, 0)
        if status:
            raise UserError(f"training with {count} items ended with wait status {status}; is there memory for "
                            f"{TABLES * 4 * count * config.model.embedding_dim / 2**30:.1f} GiB of tables?")
        peaks[count] = usage.ru_maxrss * 1024  # Linux counts KiB
        tables[count] = TABLES * 4 * (count + 1) * config.model.embedding_dim
        logging.info("%s items: peak %.2f GiB, table and slots %.2f GiB", f"{count:,}", peaks[count] / 2**30,
                     tables[count] / 2**30)
    base = CATALOGUES[0]
    ratios = {f"peak_memory_V{count:.0e}_vs_tables".replace("e+0", "e"):
              round((peaks[count] - peaks[base]) / (tables[count] - tables[base]), 3) for count in CATALOGUES[1:]}
    return dict(ratios=ratios, peak_memory_bytes=peaks, table_and_slot_bytes=tables)


def _settings(config: Config) -> dict:
    return dict(embedding_dim=config.model.embedding_dim, max_history=config.model.max_history,
                user_encoder=config.model.user_encoder)


def train_some(count: int, model: dict) -> None:
    """A training of a few steps, for its memory."""
    # pylint: disable=import-outside-toplevel
    from clrec_tf.benchmarks import workload
    from clrec_tf.config import ModelConfig, TrainConfig
    config = Config(model=ModelConfig(**model), train=TrainConfig(steps_per_call=STEPS))
    items = workload.Items(count)
    batches = workload.in_turn(workload.draw_batches(items, config, STEPS))
    workload.Trainer(items, config).call("cached", batches)()


if __name__ == "__main__":
    train_some(int(sys.argv[1]), json.loads(sys.argv[2]))
