"""Retrieval for one user after the other in this process: what the service does, without HTTP and without batches."""
import time

import numpy as np

from clrec_tf.config import Config
from clrec_tf.lab.benchmarks.open_loop import percentiles
from clrec_tf.retrieval.bundle import load_bundle
from clrec_tf.retrieval.retriever import Retriever
from clrec_tf.retrieval.search_options import SearchOptions
from clrec_tf.retrieval.user_requests import UserRequest

WARM = 50  # requests that are not counted


def measure(config: Config, folder: str, histories: np.ndarray, k: int, due: np.ndarray) -> dict:
    """Measures a bundle.

    Args:
      config: settings.
      folder: of the bundle.
      histories: [n,L] ids of users, who ask in turn.
      k: items each.
      due: seconds from the begin at which requests are due, of `open_loop.Spec.arrivals`.

    Returns:
      ms: `back_to_back`, the service time of `total` and of its parts, `tower` (with the lookup of ids) and `search`
      (with the merge of intents); `open_loop`, from the due times on, in one thread.
    """
    del config
    retriever = Retriever(load_bundle(folder), SearchOptions(k=k, exclude_seen=True))
    requests = [[UserRequest(None, history.tolist())] for history in histories]
    for number in range(WARM):
        _in_parts(retriever, requests[number % len(requests)])
    times = np.array([_in_parts(retriever, request) for request in requests])
    parts = dict(tower=times[:, 1] - times[:, 0], search=times[:, 2] - times[:, 1], total=times[:, 2] - times[:, 0])
    return dict(back_to_back_ms={name: percentiles(1000 * seconds) for name, seconds in parts.items()},
                open_loop_ms=percentiles(1000 * _open_loop(retriever, requests, due)))


def _in_parts(retriever, request):
    """Times before, between and after the parts."""
    started = time.perf_counter()
    plans = retriever.plans(request)
    users = retriever.encode(request, plans)
    encoded = time.perf_counter()
    retriever.retrieve(request, plans, users)
    return started, encoded, time.perf_counter()


def _open_loop(retriever, requests, due):
    """Seconds [n] from the due times to the answers."""
    latencies, started = np.empty(len(due)), time.perf_counter()
    for number, moment in enumerate(due):
        time.sleep(max(0.0, started + moment - time.perf_counter()))
        retriever(requests[number % len(requests)])
        latencies[number] = time.perf_counter() - started - moment
    return latencies
