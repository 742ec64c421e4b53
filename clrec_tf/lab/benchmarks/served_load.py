"""The retrieval server under load: latencies at steady rates, what it can serve, and what overload does to it.

For a model of one vector per user and for one of four intents, which are all searched, each trained briefly on a
generated catalogue and published as any is (``served_bundles``). Requests are of one user with 50 clicks for 200
items, without those clicked, and come in an open loop from a process of its own (``open_loop``) on the same machine:
its share of the CPU is in the figures. All latencies are from the moment at which a request was due.
"""
import contextlib
import json
import math
import os
import tempfile
from typing import Callable

from absl import logging

from clrec_tf.config import Config
from clrec_tf.lab.benchmarks import open_loop
from clrec_tf.lab.benchmarks import serve_in_process
from clrec_tf.lab.benchmarks.served_bundles import DIM
from clrec_tf.lab.benchmarks.served_bundles import HISTORY
from clrec_tf.lab.benchmarks.served_bundles import MODELS
from clrec_tf.lab.benchmarks.served_bundles import published
from clrec_tf.lab.benchmarks.served_bundles import STEPS
from clrec_tf.lab.benchmarks.served_catalogue import ASKING
from clrec_tf.lab.benchmarks.served_catalogue import CatalogueSimulator
from clrec_tf.lab.benchmarks.served_process import Memory
from clrec_tf.lab.benchmarks.served_process import ServedBundle
from clrec_tf.lab.benchmarks.served_process import server_cpu_seconds
from clrec_tf.lab.benchmarks.served_process import stages
from clrec_tf.lab.children import in_child
from clrec_tf.system import atomic

K, USERS = 200, 2000  # items asked for, which the recall is measured for too; different users, who ask in turn
RATE = 100.0  # requests per second, of the headline figure
BEST_OF = 3  # runs at it, or --rounds if fewer
SIDE_RATES = (50.0, 200.0)
OVERLOAD, OVER_CAPACITY, MOST_RATE = 10 * RATE, 3.0, 4000.0  # requests/s; times the capacity; what is offered at most
SERVED_SHARE, SLOW_MS = 0.95, 100.0  # at the capacity as many are answered with 200, the 99th percentile within these
RATE_STEP, BISECTIONS, LEAST_RATE = 1.5, 2, 5.0  # of the search for the capacity
NEARLY_ALL = 0.99  # share served, below which a 99th percentile of those served is no figure


def run(config: Config) -> dict:
    """Measures both models.

    Returns:
      By "K1" and "K4": `published`, `in_process`, `loads` by rate, `capacity`, `overload`. `figures`:
      `serve_p99_ms_100qps_K…`: the best of three runs, None where fewer than 99 % were served;
      `serve_capacity_per_s_K…`: see `capacity`;
      `served_vs_offered_10x_overload`: requests answered with 200 over requests offered, where 1,000/s are offered, or
      three times the capacity where that is more; of the two models the worse;
      `served_vs_capacity_10x_overload`: the same requests per second over the capacity, of the two models the worse.
      The first says what clients see, and is small where far too much is offered, however good the server; the second
      whether a server that is asked for too much keeps doing what it can. Above 1: its batches are fuller then.
    """
    simulator = CatalogueSimulator(config.benchmark.benchmark_items, DIM)
    by_model = {}
    with bundles_folder(config) as base:
        for intents in MODELS:
            folder = os.path.join(base, f"served_V{simulator.items}_K{intents}")
            by_model[f"K{intents}"] = measure(config, simulator, intents, folder)
    figures = {}
    for name, measured in by_model.items():
        figures |= {f"serve_p99_ms_100qps_{name}": headline(measured["loads"][f"{RATE:g}"]),
                    f"serve_capacity_per_s_{name}": measured["capacity"]["accepted_per_s"]}
    for key in ("served_vs_offered", "served_vs_capacity"):
        figures[f"{key}_10x_overload"] = min(measured["overload"][key] for measured in by_model.values())
    return dict(figures=figures, items=simulator.items, **by_model)


@contextlib.contextmanager
def bundles_folder(config: Config):
    """--workdir, where bundles stay for another time, or a temporary folder."""
    if not config.paths.workdir:
        with tempfile.TemporaryDirectory() as folder:
            yield folder
        return
    atomic.check_folder_place(config.paths.workdir, "workdir")
    os.makedirs(config.paths.workdir, exist_ok=True)
    yield config.paths.workdir


def measure(config: Config, simulator: CatalogueSimulator, intents: int, folder: str) -> dict:
    """All of one model."""
    facts = in_child(published, config, intents, folder, STEPS)
    histories, seconds = simulator.users(USERS, HISTORY, ASKING).history, config.benchmark.serve_seconds
    path = f"/v1/models/{config.serve.model_name}:predict"
    spec = lambda port, rate, length, seed: open_loop.Spec(port, path, bodies(histories), rate, length, seed)
    due = spec(1, RATE, seconds / 2, 0).arrivals()
    measured = dict(published=facts, in_process=in_child(serve_in_process.measure, config, folder, histories, K, due))
    logging.info("K=%d in process: %s", intents, measured["in_process"])
    with ServedBundle(folder, config.serve) as served:
        offer = lambda rate, length, seed=0: offered(served, spec(served.port, rate, length, seed))
        offer(50.0, seconds / 6)  # warms up
        loads = {f"{rate:g}": [offer(rate, seconds / 2)] for rate in SIDE_RATES}
        loads[f"{RATE:g}"] = [offer(RATE, seconds, seed) for seed in range(min(BEST_OF, config.benchmark.rounds))]
        most = capacity(lambda rate, seed: offer(rate, seconds / 12, seed))
        with Memory(served) as memory:
            over = offer(overload_rate(most["accepted_per_s"]), seconds)
        over |= dict(memory=memory.sizes(), after=offer(RATE, seconds / 12),
                     served_vs_offered=round(over["statuses"].get("200", 0) / over["offered"], 4),
                     served_vs_capacity=round(over["accepted_per_s"] / max(most["accepted_per_s"], 1e-9), 4))
    return measured | dict(loads=loads, capacity=most, overload=over)


def bodies(histories) -> list[str]:
    """Requests of users [n,L] as JSON."""
    return [json.dumps(dict(signature_name="retrieve",
                            instances=[dict(history=history.tolist(), k=K, exclude_seen=True)]))
            for history in histories]


def offered(served: ServedBundle, spec: open_loop.Spec) -> dict:
    """One load: what `open_loop.offer` found, and what the service says of itself."""
    before = served.metrics()
    load = open_loop.offer(spec)
    after = served.metrics()
    answer = json.loads(load.pop("first_answer") or "{}")
    if load["statuses"].get("200") and len(answer["predictions"][0]["ids"]) != K:
        logging.warning("answers hold %d items, not %d", len(answer["predictions"][0]["ids"]), K)
    load |= dict(rate=spec.rate, stages=stages(before, after), load_average=round(os.getloadavg()[0], 2),
                 server_cpu_share=round((server_cpu_seconds(after) - server_cpu_seconds(before)) / load["wall_s"], 3))
    logging.info("%g/s offered for %g s: %.1f/s served, accepted %s ms; statuses %s, %d without answer; CPU of server "
                 "%.2f, of generator %.2f, sent late by %s ms%s", spec.rate, spec.seconds, load["accepted_per_s"],
                 load["accepted_ms"], load["statuses"], load["not_answered"], load["server_cpu_share"],
                 load["cpu_share"], load["send_lag_ms"], "" if load["valid"] else ": NOT VALID")
    return load


def headline(runs: list[dict]):
    """The lowest 99th percentile of the valid runs that served nearly all, in ms, or None."""
    good = [run["accepted_ms"]["p99"] for run in runs
            if run["valid"] and run["statuses"].get("200", 0) >= NEARLY_ALL * run["offered"]]
    if not good:
        logging.warning("no run at %g/s was valid and served %g of all: there is no 99th percentile", RATE, NEARLY_ALL)
    return min(good, default=None)


def capacity(offer: Callable) -> dict:
    """The highest rate that is served: 95 % and more answered with 200, their 99th percentile within 100 ms.

    Args:
      offer: (rate, seed) -> what was found.

    Returns:
      `rate`, `accepted_per_s` of the run, and `tried`: rate -> whether it was served, share and 99th percentile.
    """
    tried, served, failed = {}, None, None

    def attempt(rate):
        nonlocal served, failed
        for seed in (1, 2):  # a rate fails twice: once may be the machine's
            run = offer(rate, seed)
            share, p99 = run["statuses"].get("200", 0) / run["offered"], run["accepted_ms"].get("p99", math.inf)
            passed = share >= SERVED_SHARE and p99 <= SLOW_MS
            tried[f"{rate:.1f}"] = dict(served=passed, share=round(share, 3), p99_ms=p99 if share else None,
                                        valid=run["valid"])
            if passed:
                served = dict(rate=round(rate, 1), accepted_per_s=run["accepted_per_s"])
                return
        failed = rate

    rate = RATE
    while not (served and failed) and LEAST_RATE <= rate <= MOST_RATE:
        attempt(rate)
        rate = failed / RATE_STEP if failed else rate * RATE_STEP
    for _ in range(BISECTIONS if served and failed else 0):
        attempt(math.sqrt(served["rate"] * failed))
    return dict(served or dict(rate=0.0, accepted_per_s=0.0), tried=tried)


def overload_rate(most: float) -> float:
    """Requests per second of the overload, given the capacity."""
    return min(max(OVERLOAD, OVER_CAPACITY * most), MOST_RATE)
