"""Memory of parameter servers beside what the formula says: 4·V·d·(1 + s) / P bytes, s slots of the optimizer."""

from clrec_tf.config import Config
from clrec_tf.lab.benchmarks.bare_ops import SLOTS
from clrec_tf.lab.benchmarks.measured_cluster import MeasuredCluster
from clrec_tf.lab.benchmarks.workload import GeneratedItems
from clrec_tf.lab.children import peak_memory_bytes
from clrec_tf.lab.children import resident_memory_bytes
from clrec_tf.models.build import build_model
from clrec_tf.training.optimizers import build_optimizer

SERVERS = 2


def measure(config: Config) -> dict:
    """Memory of each of two parameter servers before, while and after model and optimizer are made."""
    with MeasuredCluster(config, 1, SERVERS) as cluster:
        alone = cluster.call(_resident)
        values = cluster.call(_make)
        held, peak = cluster.call(_resident), cluster.call(_peak)
    expected = 4 * values * (1 + SLOTS[config.train.optimizer]) / SERVERS
    taken, highest = ([after - before for before, after in zip(alone, later)] for later in (held, peak))
    return dict(values=values, expected_bytes_per_server=round(expected), taken_bytes_per_server=taken,
                peak_bytes_per_server=highest, server_alone_bytes=alone,
                ratios=dict(server_memory_vs_formula=round(max(taken) / expected, 3)))


def _make(session) -> int:
    """Number of values of a model without features, under the strategy."""
    config = session.config
    items = GeneratedItems(config.benchmark.benchmark_items)
    with session.runtime.scope():
        model = build_model(config.but(use_features=False).without_unread(), items.schema())
        optimizer = build_optimizer(config.train, 1)
        optimizer.build(model.trainable_variables)
    session.kept["memory"] = model, optimizer
    return sum(variable.shape.num_elements() for variable in model.trainable_variables)


def _resident(session) -> list[int]:
    """Bytes of each parameter server now."""
    return [resident_memory_bytes(process) for process in session.pids("ps")]


def _peak(session) -> list[int]:
    """The most bytes that each parameter server has had."""
    return [peak_memory_bytes(process) for process in session.pids("ps")]
