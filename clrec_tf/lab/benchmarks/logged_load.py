"""What a log of what was shown costs a request: two services of one bundle, one with --impression_log, at the same load.

Both stand ready in processes of their own and are asked in turn, so that what else the machine does meets both alike.
Requests are those of ``served_load``, at its rate, each of a user who is named: every answer is logged, 200 rows each.
"""
import dataclasses
import json
import os
import tempfile

from absl import logging
import numpy as np
import polars as pl

from clrec_tf.config import Config
from clrec_tf.errors import UserError
from clrec_tf.lab.benchmarks import open_loop
from clrec_tf.lab.benchmarks import served_load
from clrec_tf.lab.benchmarks.served_bundles import DIM
from clrec_tf.lab.benchmarks.served_bundles import HISTORY
from clrec_tf.lab.benchmarks.served_bundles import published
from clrec_tf.lab.benchmarks.served_bundles import STEPS
from clrec_tf.lab.benchmarks.served_catalogue import ASKING
from clrec_tf.lab.benchmarks.served_catalogue import CatalogueSimulator
from clrec_tf.lab.benchmarks.served_process import ServedBundle
from clrec_tf.lab.children import in_child

PERCENTILES = ("p50", "p99")


def run(config: Config) -> dict:
    """Measures both services.

    Returns:
      `ratios`: latency with the log over latency without, medians over the rounds; by service the `milliseconds` of
      each round; `rows_logged`.

    Raises:
      UserError: a service does not start, or the log is not whole.
    """
    simulator = CatalogueSimulator(config.benchmark.benchmark_items, DIM)
    bodies = _bodies(simulator.users(served_load.USERS, HISTORY, ASKING).history)
    path = f"/v1/models/{config.serve.model_name}:predict"
    spec = lambda service, seed: open_loop.Spec(service.port, path, bodies, served_load.RATE,
                                                config.benchmark.serve_seconds / 6, seed)
    with served_load.bundles_folder(config) as base, tempfile.TemporaryDirectory() as log:
        folder = os.path.join(base, f"served_V{simulator.items}_K1")
        in_child(published, config, 1, folder, STEPS)
        served = lambda given: ServedBundle(folder, dataclasses.replace(config.serve, impression_log=given))
        with served("") as without, served(log) as logging_one:
            loads = _in_turn(dict(without=without, **{"with": logging_one}), spec, config.benchmark.rounds)
        rows = pl.scan_parquet(os.path.join(log, "**", "*.parquet")).select(pl.len()).collect().item()
    answered = sum(load["statuses"].get("200", 0) for load in loads["with"])
    if rows != answered * served_load.K:
        raise UserError(f"the log of impressions holds {rows} rows of {answered} answers: the latencies are not of a "
                        "service that logs all; look at the log lines above")
    milliseconds = {name: [load["accepted_ms"] for load in of[1:] if load["valid"]] for name, of in loads.items()}
    return dict(ratios=_ratios(milliseconds), milliseconds=milliseconds, rows_logged=rows)


def _in_turn(services: dict, spec, rounds: int) -> dict[str, list[dict]]:
    """What each service does with one load for warming up, and one of each round."""
    loads = {name: [] for name in services}
    for turn in range(1 + rounds):
        for name in (list(services) if turn % 2 else reversed(list(services))):
            loads[name].append(served_load.offered(services[name], spec(services[name], turn)))
    return loads


def _bodies(histories) -> list[str]:
    requests = map(json.loads, served_load.bodies(histories))
    return [json.dumps(dict(request, instances=[dict(instance, user_id=f"u{number}")
                                                for instance in request["instances"]]))
            for number, request in enumerate(requests)]


def _ratios(milliseconds) -> dict:
    """`impression_log_p50`, `impression_log_p99`: with over without, of medians over rounds."""
    if not all(milliseconds.values()):
        logging.warning("no run of one of the services was valid: there is no ratio")
        return {}
    median = lambda name, key: float(np.median([run[key] for run in milliseconds[name]]))
    return {f"impression_log_{key}": round(median("with", key) / median("without", key), 3) for key in PERCENTILES}
