"""Training on a cluster of processes on this machine: bytes per sample of CLRec beside sampled softmax (paper, Table
5), the rate at which one coordinator hands out calls, two workers beside one, and what parameter servers hold.

Bytes hardly depend on what else the machine does; samples/s do, and all roles share its cores.
"""
import math
import statistics

from absl import logging

from clrec_tf.config import Config
from clrec_tf.lab.benchmarks.measured_cluster import loopback_bytes
from clrec_tf.lab.benchmarks.measured_cluster import MeasuredCluster
from clrec_tf.lab.benchmarks.measured_cluster import network
from clrec_tf.lab.benchmarks import queue_steps
from clrec_tf.lab.benchmarks import server_memory
from clrec_tf.lab.benchmarks import timing
from clrec_tf.lab.benchmarks import traffic
from clrec_tf.lab.benchmarks.workload import GeneratedItems
from clrec_tf.lab.benchmarks.workload import HISTORY_ONLY
from clrec_tf.lab.benchmarks.workload import SAMPLED_SOFTMAX

SIDES = {"clrec": "cached", "sampled_softmax": SAMPLED_SOFTMAX}
KINDS = ("cached", SAMPLED_SOFTMAX, HISTORY_ONLY, "in_batch")
# Whether items have features, and whether candidates are encoded with them; histories always are.
ENCODERS = {"with_features": (True, True), "without_features": (True, False), "ids": (False, True)}
DRAWS = ("uniform", "zipf")
SERVERS = 2
COUNTED_WORKERS = (1, 2, 4, 8)
CALLS = 500  # of a measurement of the coordinator
HELD_STEPS = 60  # of a measurement of workers
TRAFFIC_ROUNDS = 3  # at most: bytes hardly differ from one to the next
# The paper's cluster: 140 workers, 1,300 steps/s in all; MB/s of traffic and thousands of samples/s of each side.
PAPER_STEPS_PER_S = 1300
PAPER = {"clrec_without_features": (500, 330), "clrec_with_features": (500, 280),
         "sampled_softmax_without_features": (700, 280), "sampled_softmax_with_features": (1100, 130)}


def run(config: Config) -> dict:
    """All measurements.

    Returns:
      `ratios`: bytes of sampled softmax over CLRec's, all of them and, as `negative_bytes_…`, without what histories
      alone cost; the cached queue's bytes over those of in-batch negatives (the worst case); calls per second; two
      workers over one; parameter servers' memory over its formula. `cases` with bytes, samples/s and what has to move;
      `coordinator`; `workers`; `server_memory`; `network`.
    """
    lengths = queue_steps.histories(config)
    loopback_bytes()  # says at once where there is no such counter
    logging.info("the cluster runs in %s", network())
    cases = []
    for length in lengths:
        for encoder in ENCODERS:
            cases += encoder_cases(config, encoder, length)
    workers, memory = compare_workers(config, lengths[0]), server_memory.measure(config)
    coordinator = {count: coordinated(config, count) for count in COUNTED_WORKERS}
    most, calls = COUNTED_WORKERS[-1], coordinator[COUNTED_WORKERS[-1]]["calls_per_s"]
    needed = math.ceil(PAPER_STEPS_PER_S / calls)
    logging.info("%g calls/s: %d steps/s need %d steps per call", calls, PAPER_STEPS_PER_S, needed)
    ratios = headlines(cases) | {f"coordinator_calls_per_second_{most}_workers": calls,
                                 "two_workers_vs_one": workers["ratio"]} | memory.pop("ratios")
    return dict(
        ratios=ratios, network=network(), cases=cases, workers=workers, server_memory=memory,
        coordinator=dict(by_workers=coordinator, steps_per_call_for_1300_steps_per_s=needed),
        paper_bytes_per_sample={side: round(1000 * sent / samples) for side, (sent, samples) in PAPER.items()},
        rounds=config.benchmark.rounds)


def encoder_cases(config: Config, encoder: str, length: int) -> list[dict]:
    """Traffic of all kinds, for each way to draw ids."""
    features, on_candidates = ENCODERS[encoder]
    config, cases = queue_steps.case_config(config, length, candidate_features=on_candidates), []
    rounds = min(config.benchmark.rounds, TRAFFIC_ROUNDS)
    with MeasuredCluster(config, 1, SERVERS) as cluster:
        for draw in DRAWS:
            items = GeneratedItems(config.benchmark.benchmark_items, features=features, draw=draw)
            kinds = cluster.call(traffic.compare, config, items, KINDS, rounds)
            case = dict(name=f"{encoder}_T{length}{'' if draw == 'uniform' else f'_{draw}'}", encoder=encoder,
                        history=length, draw=draw, items=items.count, batch=config.train.batch_size,
                        negatives=config.loss.queue_size, **compared(kinds), kinds=kinds)
            logging.info("%-26s bytes of softmax over CLRec %.2f, of negatives alone %.1f; bytes per sample %s; "
                         "samples/s %s", case["name"], case["bytes_ratio"], case["negative_bytes_ratio"],
                         *({kind: measured[figure] for kind, measured in kinds.items()}
                           for figure in ("bytes_per_sample", "samples_per_s")))
            cases.append(case)
    return cases


def compared(kinds: dict) -> dict:
    """Ratios of bytes of one case."""
    sent = {kind: measured["bytes_per_step"] for kind, measured in kinds.items()}
    clrec, softmax = (sent[kind] for kind in SIDES.values())
    alone = sent[HISTORY_ONLY]
    return dict(bytes_ratio=round(softmax / clrec, 3),
                negative_bytes_ratio=round((softmax - alone) / (clrec - alone), 2),
                cached_vs_in_batch=round(clrec / sent["in_batch"], 4))


def headlines(cases: list[dict]) -> dict[str, float]:
    """The ratios of all cases, by name."""
    ratios = {}
    for case in cases:
        ratios |= {f"{part}bytes_sampled_softmax_vs_clrec_{case['name']}": case[f"{part}bytes_ratio"]
                   for part in ("", "negative_")}
    return ratios | {"bytes_cached_vs_in_batch": max(case["cached_vs_in_batch"] for case in cases)}


def compare_workers(config: Config, length: int) -> dict:
    """Samples/s of CLRec with two workers and with one, in turn; all roles share this machine's cores."""
    config = queue_steps.case_config(config, length)
    items, size = GeneratedItems(config.benchmark.benchmark_items, features=True), config.train.batch_size
    with MeasuredCluster(config, 1, SERVERS) as single, MeasuredCluster(config, 2, SERVERS) as double:
        seconds = {single: [], double: []}
        for cluster in seconds:
            cluster.call(traffic.hold_steps, config, items, "cached")
        for turn in range(config.benchmark.rounds):
            for cluster in (list(seconds) if turn % 2 else reversed(list(seconds))):
                seconds[cluster].append(cluster.call(traffic.run_held, HELD_STEPS))
    rates = {f"samples_per_s_{name}": round(size * HELD_STEPS / statistics.median(seconds[cluster]))
             for name, cluster in (("one", single), ("two", double))}
    comparison = dict(ratio=round(timing.ratio(seconds, single, double), 3), case=f"clrec_with_features_T{length}",
                      **rates)
    logging.info("two workers and one: %s", comparison)
    return comparison


def coordinated(config: Config, workers: int) -> dict[str, float]:
    """What one coordinator hands out to so many workers."""
    with MeasuredCluster(config, workers, 1) as cluster:
        rates = cluster.call(traffic.trivial_calls, CALLS, config.benchmark.rounds)
    logging.info("%d workers: %s", workers, rates)
    return rates
