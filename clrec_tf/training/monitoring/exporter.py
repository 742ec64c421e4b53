"""The metrics of one process of a training, and the HTTP server of --metrics_port where Prometheus reads them.

Values are handed over by those who have them; a request only reads what was handed over, on a thread of its own.
"""
import contextlib

from absl import logging

import clrec_tf
from clrec_tf.config import Config
from clrec_tf.errors import UserError
from clrec_tf.settings.operations import MAX_PORT
from clrec_tf.settings.operations import run_id_of

ROLES = ("chief", "worker", "ps")  # in the order of their ports


class NoMetrics:
    """Metrics that nobody reads: --metrics_port=0."""

    served = False

    def counter(self, name: str, text: str, labels=()):
        """What only grows; Prometheus adds _total to its name."""
        del name, text, labels
        return self

    gauge = summary = counter

    def labels(self, *values):
        """One series of a metric."""
        del values
        return self

    def set(self, value):
        """The value of a gauge."""

    def inc(self, amount=1):
        """Adds to a counter."""

    def observe(self, value):
        """Adds to a summary."""


class Metrics:
    """Metrics in a registry of their own.

    Args:
      prometheus: the package `prometheus_client`.
    """

    served = True

    def __init__(self, prometheus):
        self._prometheus, self.registry = prometheus, prometheus.CollectorRegistry()
        prometheus.ProcessCollector(registry=self.registry)

    def counter(self, name, text, labels=()):
        """See `NoMetrics`."""
        return self._prometheus.Counter(name, text, labels, registry=self.registry)

    def gauge(self, name, text, labels=()):
        """A value that rises and falls."""
        return self._prometheus.Gauge(name, text, labels, registry=self.registry)

    def summary(self, name, text, labels=()):
        """How often something was done, and the sum of what it took."""
        return self._prometheus.Summary(name, text, labels, registry=self.registry)


@contextlib.contextmanager
def metrics_of(config: Config, task=None):
    """Yields the metrics of this process, `Metrics` that are served meanwhile, or `NoMetrics`.

    Args:
      config: settings.
      task: of this process in its cluster, a `roles.Task`; None: it trains alone.

    Raises:
      UserError: the port cannot be had, or prometheus-client does not load.
    """
    settings = config.operations
    if not settings.metrics_port:
        yield NoMetrics()
        return
    try:
        import prometheus_client  # pylint: disable=import-outside-toplevel
    except ImportError as error:
        raise UserError(f"--metrics_port={settings.metrics_port} needs the package prometheus-client, which does not "
                        f"load ({error}): pip install 'clrec_tf[serve]', or leave the flag out") from error
    metrics, role, index = Metrics(prometheus_client), task.role if task else "local", task.index if task else 0
    metrics.gauge("clrec_train_process_info", "1, with what this process is.", ["role", "index", "run_id", "version"]
                  ).labels(role, index, settings.run_id or run_id_of(vars(config.paths)), clrec_tf.__version__).set(1)
    server, thread = _server(prometheus_client, settings.metrics_host, port_of(settings.metrics_port, task), metrics)
    try:
        logging.info("metrics of %s %d at http://%s:%d/metrics", role, index, settings.metrics_host,
                     server.server_port)
        yield metrics
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _server(prometheus, host, port, metrics):
    """(server, its thread) of the metrics."""
    try:
        return prometheus.start_http_server(port, host, metrics.registry)
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or f"{error}; ports end at {MAX_PORT}"
        raise UserError(f"metrics cannot be served at {host}:{port} ({why}): give this role another --metrics_port "
                        "or --metrics_host, or stop what listens there") from error


def port_of(port: int, task=None) -> int:
    """The port of a role: that of the flag, and on a host of several roles, by the addresses of TF_CONFIG, the next.

    The evaluator, which has no address there, comes last where all others share a host, else has the flag's.
    """
    if task is None:
        return port
    hosts = [(role, index, address.rpartition(":")[0]) for role in ROLES
             for index, address in enumerate(task.addresses[role])]
    own = {(role, index): host for role, index, host in hosts}.get((task.role, task.index))
    if own is None:
        return port + (len(hosts) if len({host for *_, host in hosts}) == 1 else 0) + task.index
    before = [host for role, index, host in hosts
              if (ROLES.index(role), index) < (ROLES.index(task.role), task.index)]
    return port + before.count(own)
