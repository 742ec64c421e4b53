"""Nearest items: exact search, our ScaNN index, the same with an update on top, and faiss where it is installed.

Vectors are generated (see `clustered_vectors`). ScaNN is tuned to --target_recall on other users than those measured, and
faiss to the recall that ScaNN reached. `dial_at_A` is a ScaNN index as bundles have it, with the coordinate of the dial
and the head, tuned for every popularity and number of results that is offered, and searched at popularity A. Calls take
turns in one process, so that what else the machine does meets all of them alike. One query is answered by one thread of
ScaNN's and faiss', a batch by one of ScaNN's, all of faiss' and all of TensorFlow's, which exact search uses for single
queries too; `cpu_ms` says what a call took of all cores.
"""
import os
import time

from absl import logging
import numpy as np

from clrec_tf.config import Config
from clrec_tf.lab.benchmarks.clustered_vectors import draw_clustered
from clrec_tf.lab.benchmarks.faiss_ivf import FaissIvf
from clrec_tf.models.dial import item_coordinate
from clrec_tf.models.dial import with_coordinate
from clrec_tf.publishing.tuning import build_index
from clrec_tf.publishing.tuning import usual_head
from clrec_tf.retrieval.index import ExactIndex
from clrec_tf.retrieval.recall import best_scores
from clrec_tf.retrieval.recall import Demand
from clrec_tf.retrieval.recall import demand_of
from clrec_tf.retrieval.recall import recall_at_k
from clrec_tf.retrieval.recall import worst_scores
from clrec_tf.retrieval.updated_index import UpdatedIndex

DIM, K, RHO = 64, 200, 0.07
ALPHAS = (-0.25, 0.0, 0.5, 1.0, 1.25)  # popularities
BATCHES = {1: 100, 256: 8}  # queries at once: calls of each contender in each round
USERS = 1024  # to tune on, and as many others to measure on
CHANGED = 0.01  # share of the items that is fresh, and that is withdrawn, in the updated index
_LONGEST = 2.0  # seconds of one contender in one round


def run(config: Config) -> dict:
    """All sizes.

    Returns:
      `figures`, if 10⁶ items were measured: ScaNN's recall@200 and its median ms for one query; `ratios` of medians
      over ScaNN's, single queries; and by number of items, of each contender: `recall_at_200`; by queries per call
      `p50_ms`, `p99_ms` and `cpu_ms`, mean; `build_s`; and what it was set to.
    """
    items = config.benchmark.benchmark_items
    sizes = {_name(size): compare(size, config.benchmark.rounds, config.export.target_recall)
             for size in dict.fromkeys((max(1000, items // 10), items))}
    figures, ratios = {}, {}
    for name, found in sizes.items():
        for other in found.keys() - {"scann"}:
            ratios[f"{other}_vs_scann_p50_{name}_batch1"] = round(
                found[other]["batch_1"]["p50_ms"] / found["scann"]["batch_1"]["p50_ms"], 3)
    if "1M" in sizes:
        ours = sizes["1M"]["scann"]
        figures = dict(recall_at_200_1M=ours["recall_at_200"], ann_p50_ms_1M_batch1=ours["batch_1"]["p50_ms"])
    return dict(ratios=dict(sorted(ratios.items())), figures=figures, **sizes, rounds=config.benchmark.rounds)


def compare(size: int, rounds: int, target_recall: float) -> dict:
    """All contenders over `size` items; see `run`."""
    changed = round(CHANGED * size)
    drawn = draw_clustered(size, changed, 2 * USERS, DIM)
    tuning, users = drawn.queries[:USERS], drawn.queries[USERS:]
    k = min(K, size)
    logging.info("%d items: building, load average %.1f", size, os.getloadavg()[0])
    withdrawn = np.zeros(size, bool)
    withdrawn[np.random.default_rng(1).choice(size, changed, replace=False)] = True
    live, everything = np.append(~withdrawn, np.ones(changed, bool)), np.concatenate([drawn.items, drawn.fresh])
    contenders, built = {}, {}

    def build(name, make):
        started = time.perf_counter()
        contenders[name] = make()
        built[name] = round(time.perf_counter() - started, 3)
    build("exact", lambda: ExactIndex(drawn.items))
    build("scann", lambda: build_index("scann", drawn.items, tuning, Demand((k,), (0.0,), target_recall),
                                              normalized=True))
    coordinate = item_coordinate(_clicks(size), RHO)
    items = with_coordinate(drawn.items, coordinate)
    demand = demand_of(size, (), ALPHAS, target_recall)
    build("dial", lambda: build_index("scann", items, with_coordinate(tuning, 0.0), demand, True,
                                             usual_head(size)))
    dial = contenders.pop("dial")
    contenders |= {f"dial_at_{alpha:g}": _Dialled(dial, alpha) for alpha in ALPHAS}
    build("updated", lambda: UpdatedIndex(contenders["scann"], drawn.fresh, np.arange(size, size + changed), withdrawn))
    try:
        build("faiss_ivf", lambda: FaissIvf.build(drawn.items))
    except ImportError as error:
        logging.info("faiss is not here to be compared with (%s): pip install faiss-cpu adds it", error)
    else:
        worst = worst_scores(drawn.items, tuning, k)
        reached = recall_at_k(contenders["scann"], drawn.items, tuning, k, worst=worst)
        contenders["faiss_ivf"] = contenders["faiss_ivf"].tuned(drawn.items, tuning, k, reached, worst)
    milliseconds = _take_turns(contenders, users, k, rounds)
    found, worst = {}, worst_scores(drawn.items, users, k)
    for name, index in contenders.items():
        of = (everything, users, k, live) if name == "updated" else (drawn.items, users, k, None, worst)
        recalls = {}
        if isinstance(index, _Dialled):
            turned = with_coordinate(users, index.alpha)
            best = best_scores(items, turned, k)
            of, index = (items, turned, k, None, best[:, -1]), index.index
            recalls = dict(recalls={n: round(recall_at_k(index, items, turned, n, worst=best[:, n - 1]), 4)
                                    for n in demand.ks})
        times = {f"batch_{batch}": milliseconds[name, batch] for batch in BATCHES}
        found[name] = dict(recall_at_200=round(recall_at_k(index, *of), 4), build_s=built[name.partition("_at_")[0]],
                           settings=_settings(index), **recalls, **times)
        logging.info("%d items, %s: %s", size, name, found[name])
    return found


class _Dialled:
    """The dial's index at one popularity, for queries [N,d] without the coordinate."""

    def __init__(self, index, alpha):
        self.index, self.alpha = index, alpha

    def search(self, vectors, k):
        return self.index.search(with_coordinate(vectors, self.alpha), k)


def _clicks(size):
    """[V] clicks by Zipf's law, twenty for each item on average, and whatever its vector is."""
    shares = 1 / np.arange(1, size + 1)
    return np.random.default_rng(2).permutation(np.maximum(np.round(20 * size * shares / shares.sum()), 1))


def _take_turns(contenders, users, k, rounds) -> dict:
    """Of each (contender, queries at once): median, 99th percentile and mean processor time of a call, ms."""
    times = {(name, batch): [] for batch in BATCHES for name in contenders}
    cpu = dict.fromkeys(times, 0.0)
    for turn in range(-1, rounds):  # the first is not counted: memory is touched for the first time
        for name, batch in (list(times) if turn % 2 else reversed(list(times))):
            started, before = time.perf_counter(), time.process_time()
            mine = []
            for call in range(BATCHES[batch] if turn >= 0 else 2):
                queries = users[call * batch % (len(users) - batch + 1):][:batch]
                begun = time.perf_counter()
                contenders[name].search(queries, k)
                mine.append(time.perf_counter() - begun)
                if time.perf_counter() - started > _LONGEST:
                    break
            if turn >= 0:
                times[name, batch] += mine
                cpu[name, batch] += time.process_time() - before
    return {key: dict(p50_ms=round(1e3 * float(np.percentile(seconds, 50)), 4),
                      p99_ms=round(1e3 * float(np.percentile(seconds, 99)), 4),
                      cpu_ms=round(1e3 * cpu[key] / len(seconds), 4), calls=len(seconds))
            for key, seconds in times.items()}


def _settings(index):
    if isinstance(index, FaissIvf):
        return dict(lists=index.lists, probes=index.probes)
    return index.parameters


def _name(size):
    """1000000 -> "1M", 100000 -> "100k"."""
    for unit, name in ((10**6, "M"), (1000, "k")):
        if size % unit == 0:
            return f"{size // unit}{name}"
    return str(size)
