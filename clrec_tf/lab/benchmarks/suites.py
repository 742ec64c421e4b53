"""The suites of the benchmark by name, and what they are run with."""
import os
import platform

from absl import logging
import tensorflow as tf

from clrec_tf.config import Config
from clrec_tf.errors import UserError
from clrec_tf.lab.benchmarks import cluster_traffic
from clrec_tf.lab.benchmarks import encoder_steps
from clrec_tf.lab.benchmarks import input_speed
from clrec_tf.lab.benchmarks import logged_load
from clrec_tf.lab.benchmarks import loss_steps
from clrec_tf.lab.benchmarks import multi_clrec_speed
from clrec_tf.lab.benchmarks import prepare_speed
from clrec_tf.lab.benchmarks import quality
from clrec_tf.lab.benchmarks import queue_steps
from clrec_tf.lab.benchmarks import retrieval_speed
from clrec_tf.lab.benchmarks import served_load
from clrec_tf.lab.benchmarks import tfrs
from clrec_tf.lab.benchmarks import training_memory
from clrec_tf.lab.benchmarks import u2u_steps
from clrec_tf.lab.children import quiet_about_functions
from clrec_tf.system import atomic
from clrec_tf.system.versions import versions
from clrec_tf.training.threads import set_threads

# Each takes all settings and returns its figures, units in their names; those under "ratios" and "figures" are shown
# first.
SUITES = {
    "training": queue_steps.run,
    "losses": loss_steps.run,
    "encoders": encoder_steps.run,
    "u2u": u2u_steps.run,
    "input": input_speed.run,
    "tfrs": tfrs.run,
    "quality": quality.run,
    "memory": training_memory.run,
    "prepare": prepare_speed.run,
    "cluster": cluster_traffic.run,
    "multi_queue": multi_clrec_speed.run,
    "retrieval": retrieval_speed.run,
    "serve": served_load.run,
    "impression_log": logged_load.run,
}
SHOWN_FIRST = ("ratios", "figures")
INCLUDES = {"training": ("training", "input")}  # what a training waits for belongs to its speed


def run_suites(config: Config) -> dict:
    """Runs the suites of --suite.

    Returns:
      `ratios` and `figures` of all of them, `versions`, `device`, and each suite's own figures under its name.

    Raises:
      UserError: there is none of a name, or --json cannot be written.
    """
    unknown = [name for name in config.benchmark.suite if name not in SUITES]
    if unknown or not config.benchmark.suite:
        raise UserError(f"--suite={','.join(config.benchmark.suite)}: choose from {','.join(SUITES)}")
    if config.benchmark.json:
        atomic.check_file_place(config.benchmark.json, "json")
    if config.benchmark.rounds < 3:
        logging.warning("--rounds=%d: medians of so few rounds are noise, good to see that everything runs; give 5 or "
                        "more for figures", config.benchmark.rounds)
    set_threads(config.train)
    quiet_about_functions()
    names = dict.fromkeys(part for name in config.benchmark.suite for part in INCLUDES.get(name, (name,)))
    results = dict(ratios={}, figures={}, versions=versions(), device=device())
    for name in names:
        figures = SUITES[name](config)
        for kind in SHOWN_FIRST:
            results[kind] |= figures.pop(kind, {})
        results[name] = figures
    return results


def device() -> dict:
    """What the figures were measured on."""
    model = platform.processor() or platform.machine()
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            model = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), model)
    gpus = [tf.config.experimental.get_device_details(gpu).get("device_name", gpu.name)
            for gpu in tf.config.list_physical_devices("GPU")]
    return dict(cpu=model, cpus=os.cpu_count(), gpus=gpus)
