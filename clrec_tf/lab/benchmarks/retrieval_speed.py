"""Nearest items: exact search, our ScaNN index, the same with an update on top, and faiss where it is installed.

Vectors are generated (see `clustered_vectors`). ScaNN is tuned to --target_recall on other users than those measured,
and faiss to the recall that ScaNN reached. `dial_at_A` is a ScaNN index as bundles have it, with the coordinate of the
dial and the head, tuned for every popularity and number of results that is offered, and searched at popularity A. Calls
take turns in one process, so that what else the machine does meets all of them alike. One query is answered by one
thread of ScaNN's and faiss', a batch by one of ScaNN's, all of faiss' and all of TensorFlow's, which exact search uses
for single queries too; `cpu_ms` says what a call took of all cores.
"""
import os
import time

from absl import logging
import numpy as np

from clrec_tf.config import Config
from clrec_tf.lab.benchmarks.filtered_searches import filtered_searches
from clrec_tf.lab.benchmarks.index_contenders import Contenders
from clrec_tf.lab.benchmarks.index_contenders import settings_of

K = 200
BATCHES = {1: 100, 256: 8}  # queries at once: calls of each contender in each round
_LONGEST = 2.0  # seconds of one contender in one round


def run(config: Config) -> dict:
    """All sizes.

    Returns:
      `figures`, if 10⁶ items were measured: ScaNN's recall@200 and its median ms for one query; `ratios` of medians
      over ScaNN's, single queries; and by number of items, of each contender: `recall_at_200`; by queries per call
      `p50_ms`, `p99_ms` and `cpu_ms`, mean; `build_s`; and what it was set to; of ScaNN `filtered` and
      `filtered_by_vectors`, see `filtered_searches`.
    """
    items = config.benchmark.benchmark_items
    sizes = {size_name(size): compare(size, config.benchmark.rounds, config.export.target_recall)
             for size in dict.fromkeys((max(1000, items // 10), items))}
    figures, ratios = {}, {}
    for name, measured in sizes.items():
        for other in measured.keys() - {"scann"}:
            ratios[f"{other}_vs_scann_p50_{name}_batch1"] = round(
                measured[other]["batch_1"]["p50_ms"] / measured["scann"]["batch_1"]["p50_ms"], 3)
    if "1M" in sizes:
        ours = sizes["1M"]["scann"]
        figures = dict(recall_at_200_1M=ours["recall_at_200"], ann_p50_ms_1M_batch1=ours["batch_1"]["p50_ms"])
    return dict(ratios=dict(sorted(ratios.items())), figures=figures, **sizes, rounds=config.benchmark.rounds)


def compare(size: int, rounds: int, target_recall: float) -> dict:
    """All contenders over `size` items; see `run`."""
    logging.info("%d items: building, load average %.1f", size, os.getloadavg()[0])
    k = min(K, size)
    contenders = Contenders(size, k, target_recall)
    milliseconds = timed_searches(contenders.indexes, contenders.users, k, rounds)
    measured = {}
    for name, recalls in contenders.recalls().items():
        measured[name] = dict(recalls, build_s=contenders.build_s[name.partition("_at_")[0]],
                              settings=settings_of(contenders.indexes[name]),
                              **{f"batch_{batch}": milliseconds[name, batch] for batch in BATCHES})
        logging.info("%d items, %s: %s", size, name, measured[name])
    scann = contenders.indexes["scann"]
    measured["scann"] |= dict(filtered=filtered_searches(scann, contenders.users, k),
                              filtered_by_vectors=filtered_searches(scann, contenders.users, k, alike=True))
    return measured


def timed_searches(indexes: dict, users: np.ndarray, k: int, rounds: int) -> dict:
    """Of each (contender, queries at once): median, 99th percentile and mean processor time of a call, ms."""
    times = {(name, batch): [] for batch in BATCHES for name in indexes}
    cpu = dict.fromkeys(times, 0.0)
    for turn in range(-1, rounds):  # the first is not counted: memory is touched for the first time
        for name, batch in (list(times) if turn % 2 else reversed(list(times))):
            started, before = time.perf_counter(), time.process_time()
            seconds_of_turn = []
            for call in range(BATCHES[batch] if turn >= 0 else 2):
                queries = users[call * batch % (len(users) - batch + 1):][:batch]
                begun = time.perf_counter()
                indexes[name].search(queries, k)
                seconds_of_turn.append(time.perf_counter() - begun)
                if time.perf_counter() - started > _LONGEST:
                    break
            if turn >= 0:
                times[name, batch] += seconds_of_turn
                cpu[name, batch] += time.process_time() - before
    return {key: dict(p50_ms=round(1e3 * float(np.percentile(seconds, 50)), 4),
                      p99_ms=round(1e3 * float(np.percentile(seconds, 99)), 4),
                      cpu_ms=round(1e3 * cpu[key] / len(seconds), 4), calls=len(seconds))
            for key, seconds in times.items()}


def size_name(size):
    """1000000 -> "1M", 100000 -> "100k"."""
    for unit, name in ((10**6, "M"), (1000, "k")):
        if size % unit == 0:
            return f"{size // unit}{name}"
    return str(size)
