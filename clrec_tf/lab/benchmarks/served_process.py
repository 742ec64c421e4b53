"""The retrieval service as a process of its own, started as anyone starts it, and watched while it is under load."""
import contextlib
import dataclasses
import math
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

from prometheus_client import parser

from clrec_tf.config import ServeConfig
from clrec_tf.errors import UserError
from clrec_tf.lab.benchmarks.measured_cluster import tail
from clrec_tf.lab.children import resident_memory_bytes

START_S, STOP_S, CALL_S = 300.0, 30.0, 10.0
MEMORY_EVERY_S = 0.5
SHOWN_POINTS = 20  # of memory over time
ADDRESS = re.compile(r"serving \S+ version \d+ at (http://(?:127\.0\.0\.1|localhost):(\d+))")


class ServedBundle:
    """Context in which a service runs.

    Args:
      export_dir: of the bundle.
      settings: of the service; the port is any free one, and draining waits for nobody.

    Attributes:
      port: listened at.

    Raises:
      UserError: it does not start.
    """

    def __init__(self, export_dir: str, settings: ServeConfig):
        settings = dataclasses.replace(settings, host=ServeConfig.host, port=0, drain_s=0.0)
        given = {field.name: getattr(settings, field.name) for field in dataclasses.fields(settings)}
        self._command = [*bound_to_us(), sys.executable, "-m", "clrec_tf.serve", f"--export_dir={export_dir}",
                         *(f"--{name}={','.join(value) if isinstance(value, tuple) else value}"
                           for name, value in given.items() if value != getattr(ServeConfig, name))]
        self._base, self.port = "", 0
        self._messages = self._process = None

    def __enter__(self):
        self._messages = tempfile.TemporaryFile()
        self._process = subprocess.Popen(self._command, stdout=self._messages, stderr=self._messages)
        try:
            self._wait_until_ready()
        except BaseException:
            self.close()
            raise
        return self

    def _wait_until_ready(self):
        end = time.monotonic() + START_S
        while time.monotonic() < end:
            self._messages.seek(0)
            address = ADDRESS.search(self._messages.read().decode(errors="replace"))
            if address:
                self._base, self.port = address[1], int(address[2])
                if self._is_ready():
                    return
            if self._process.poll() is not None:
                raise UserError(f"the service ended with {self._process.returncode}: {tail(self._messages)}")
            time.sleep(.05)
        raise UserError(f"the service was not ready within {START_S:g} s: {tail(self._messages)}")

    def _is_ready(self):
        try:
            return bool(self._get("/readyz"))
        except OSError:  # 503 too
            return False

    def _get(self, path):
        with urllib.request.urlopen(self._base + path, timeout=CALL_S) as answer:
            return answer.read().decode() or " "

    def metrics(self) -> dict[tuple, float]:
        """(name, labels) -> value, of all samples of /metrics. Raises `UserError` where there is no answer."""
        try:
            text = self._get("/metrics")
        except OSError as error:
            raise UserError(f"the service does not answer ({error}): {tail(self._messages)}") from error
        return {(sample.name, tuple(sorted(sample.labels.items()))): sample.value
                for family in parser.text_string_to_metric_families(text) for sample in family.samples}

    def resident_mib(self) -> float:
        """The resident size of the process."""
        return resident_memory_bytes(self._process.pid) / 2**20

    def close(self):
        """Ends the service as Kubernetes does, and by force where that does not help."""
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._messages.close()

    def __exit__(self, *error):
        self.close()


def bound_to_us() -> list[str]:
    """How a command is started that ends with this process, however that ends; nothing where there is no such tool."""
    tool = shutil.which("setpriv")  # of util-linux
    return [tool, "--pdeathsig", "TERM"] if tool else []


class Memory:
    """Context that records the resident size of a service over time, without asking the service."""

    def __init__(self, served: ServedBundle):
        self._served, self._ended, self._sizes = served, threading.Event(), []
        self._thread = threading.Thread(target=self._record, daemon=True)

    def _record(self):
        while not self._ended.is_set():
            with contextlib.suppress(OSError, StopIteration):  # of a service that has died, which others tell
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
