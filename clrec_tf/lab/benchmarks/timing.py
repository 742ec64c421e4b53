"""Times of calls that take turns, so that what else the machine does meets all of them alike."""
import statistics
import time
from typing import Callable

import tensorflow as tf


def take_turns(calls: dict[str, Callable], rounds: int) -> dict[str, list[float]]:
    """Seconds of each call in each round, after one round that is not counted (tracing, first touch of memory).

    Args:
      calls: name -> function of no arguments that returns tensors; it is done when they can be read.
      rounds: times that each is called, in turn; every other round in reverse order.
    """
    seconds = {name: [] for name in calls}
    for turn in range(-1, rounds):
        for name in (list(calls) if turn % 2 else reversed(list(calls))):
            started = time.perf_counter()
            tf.nest.map_structure(lambda tensor: tensor.numpy(), calls[name]())
            if turn >= 0:
                seconds[name].append(time.perf_counter() - started)
    return seconds


def ratio(seconds: dict[str, list[float]], slow: str, fast: str) -> float:
    """Median over the rounds of slow/fast, both of the same round."""
    return statistics.median(a / b for a, b in zip(seconds[slow], seconds[fast]))
