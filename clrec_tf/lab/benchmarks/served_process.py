"""The retrieval service as a process of its own, started as anyone starts it, and watched while it is under load."""
import contextlib
import dataclasses
import math
import threading
import urllib.request

from prometheus_client import parser

from clrec_tf.config import ServeConfig
from clrec_tf.errors import UserError
from clrec_tf.lab.benchmarks.measured_cluster import SHOWN
from clrec_tf.lab.serving_process import ServingProcess

START_S, CALL_S = 300.0, 10.0
MEMORY_EVERY_S = 0.5
SHOWN_POINTS = 20  # of memory over time


class ServedBundle:
    """Context in which a service runs.

    Args:
      export_dir: of the bundle.
      settings: of the service; the port is any free one, and draining waits for nobody.

    Attributes:
      port: of HTTP.

    Raises:
      UserError: it does not start.
    """

    def __init__(self, export_dir: str, settings: ServeConfig):
        settings = dataclasses.replace(settings, host=ServeConfig.host, port=ServeConfig.port, drain_s=0.0)
        given = {field.name: getattr(settings, field.name) for field in dataclasses.fields(settings)}
        self._export_dir, self._flags = export_dir, [
            f"--{name}={','.join(value) if isinstance(value, tuple) else value}"
            for name, value in given.items() if value != getattr(ServeConfig, name)]
        self._server, self.port = None, 0

    def __enter__(self):
        self._server = ServingProcess(self._export_dir, *self._flags, start_s=START_S, bound=True)
        try:
            self.port = self._server.port
        except BaseException:
            self._server.stop()
            raise
        return self

    def metrics(self) -> dict[tuple, float]:
        """(name, labels) -> value, of all samples of /metrics. Raises `UserError` where there is no answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=CALL_S) as answer:
                text = answer.read().decode()
        except OSError as error:
            raise UserError(f"the service does not answer ({error}): {self._server.log[-SHOWN:]}") from error
        return {(sample.name, tuple(sorted(sample.labels.items()))): sample.value
                for family in parser.text_string_to_metric_families(text) for sample in family.samples}

    def resident_mib(self) -> float:
        """The resident size of the process."""
        return self._server.memory() / 2**20

    def __exit__(self, *error):
        self._server.stop()


class Memory:
    """Context that records the resident size of a service over time, without asking the service."""

    def __init__(self, served: ServedBundle):
        self._served, self._ended, self._sizes = served, threading.Event(), []
        self._thread = threading.Thread(target=self._record, daemon=True)

    def _record(self):
        while not self._ended.is_set():
            with contextlib.suppress(OSError, StopIteration):  # of a service that has ended, which its requests show
                self._sizes.append(self._served.resident_mib())
            self._ended.wait(MEMORY_EVERY_S)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *error):
        self._ended.set()
        self._thread.join()

    def sizes(self) -> dict:
        """MiB: at the begin, at most, and at `SHOWN_POINTS` times or fewer."""
        step = math.ceil(len(self._sizes) / SHOWN_POINTS)
        return dict(first_mib=round(self._sizes[0]), max_mib=round(max(self._sizes)),
                    over_time_mib=[round(size) for size in self._sizes[::step]])


def stages(before: dict, after: dict) -> dict:
    """What the service's own histograms of seconds say of the time between two readings of its metrics.

    Returns:
      "metric{labels}" -> `count`, `mean_ms`, and `p99_ms_at_most`, the upper bound of the bucket that holds it.
    """
    grown = {key: value - before.get(key, 0.0) for key, value in after.items()}
    histograms = {}
    for (name, labels), count in grown.items():
        family = name.removesuffix("_count")
        if family == name or not family.endswith("_seconds") or not count:
            continue
        bounds = sorted((float(other["le"]), value) for other, value in _samples(grown, f"{family}_bucket", labels))
        p99 = next((bound for bound, value in bounds if value >= .99 * count), math.inf)
        total = _samples(grown, f"{family}_sum", labels)[0][1]
        shown = ",".join(value for _, value in labels)
        histograms[f"{family}{{{shown}}}"] = dict(count=int(count), mean_ms=round(1000 * total / count, 3),
                                                  p99_ms_at_most=round(1000 * p99, 3) if p99 < math.inf else None)
    return histograms


def _samples(metrics, name, labels) -> list[tuple[dict, float]]:
    """(all labels, value) of the samples of a name that have these labels and perhaps others."""
    return [(dict(others), value) for (called, others), value in metrics.items()
            if called == name and set(labels) <= set(others)]


def server_cpu_seconds(metrics: dict) -> float:
    """CPU time of the service over all cores; NaN where it does not say."""
    return metrics.get(("process_cpu_seconds_total", ()), math.nan)
