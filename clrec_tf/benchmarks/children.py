"""Comparisons in processes of their own, one after the other, so that the tables of one are gone before the next."""
import concurrent.futures
import multiprocessing
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
                            "about 12 GB)") from error


def quiet_about_functions():
    """Each side of a comparison is a function of its own, which TensorFlow takes for needless retracing."""
    tf.get_logger().setLevel("ERROR")


def _call(function, config, arguments):
    set_threads(config.train)
    quiet_about_functions()
    return function(config, *arguments)
