"""Measurements in processes of their own, one after the other: the tables of one are gone before the next, and its
peak of memory is its own."""
import concurrent.futures
import multiprocessing
import resource
from typing import Callable

import tensorflow as tf

from clrec_tf.config import Config
from clrec_tf.errors import UserError
from clrec_tf.training.threads import set_threads


def in_child(function: Callable, config: Config, *arguments):
    """function(config, *arguments) of a fresh process, which takes nothing with it but its result.

    Raises:
      UserError: the process was killed; errors of the function as they are.
    """
    with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        try:
            return pool.submit(_call, function, config, arguments).result()
        except concurrent.futures.process.BrokenProcessPool as error:
            raise UserError(f"a measuring process was killed, most likely for lack of memory: lower "
                            f"--benchmark_items={config.benchmark.benchmark_items} (10⁶ items with dense vectors take "
                            "about 12 GB), --embedding_dim or --events") from error


def peak_memory_bytes(process: int | str = "self") -> int:
    """The largest resident size that a process, by its number, has had.

    Not what the kernel reports of a child to its parent, which on Linux is never less than the parent's own.
    """
    return _status_bytes(process, "VmHWM")


def resident_memory_bytes(process: int | str = "self") -> int:
    """The resident size of a process now."""
    return _status_bytes(process, "VmRSS")


def cpu_seconds() -> float:
    """CPU time of this process over all cores, which others on the machine do not lengthen."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def quiet_about_functions():
    """Each side of a comparison is a function of its own, which TensorFlow takes for needless retracing."""
    tf.get_logger().setLevel("ERROR")


def _status_bytes(process, field):
    with open(f"/proc/{process}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(field))


def _call(function, config, arguments):
    set_threads(config.train)
    quiet_about_functions()
    return function(config, *arguments)
