"""Memory of parameter servers beside what the formula says: 4·V·d·(1 + s) / P bytes, s slots of the optimizer."""

from clrec_tf.config import Config
from clrec_tf.lab.benchmarks.measured_cluster import MeasuredCluster
from clrec_tf.lab.benchmarks.workload import Items
from clrec_tf.models.build import build_model
from clrec_tf.training.optimizers import build_optimizer

SERVERS = 2
SLOTS = {"lazy_adam": 2, "adagrad": 1}


def measure(config: Config) -> dict:
    """Memory of each of two parameter servers before, while and after model and optimizer are made."""
    with MeasuredCluster(config, 1, SERVERS) as cluster:
        alone = cluster.call(_memory, "VmRSS")
        values = cluster.call(_make)
        held, peak = cluster.call(_memory, "VmRSS"), cluster.call(_memory, "VmHWM")
    expected = 4 * values * (1 + SLOTS[config.train.optimizer]) / SERVERS
    taken, highest = ([after - before for before, after in zip(alone, later)] for later in (held, peak))
    return dict(values=values, expected_bytes_per_server=round(expected), taken_bytes_per_server=taken,
                peak_bytes_per_server=highest, server_alone_bytes=alone,
                ratios=dict(server_memory_vs_formula=round(max(taken) / expected, 3)))


def _make(session) -> int:
    """Number of values of a model without features, under the strategy."""
    config = session.config
    items = Items(config.benchmark.benchmark_items)
    with session.runtime.scope():
        model = build_model(config.but(use_features=False).without_unread(), items.schema())
        optimizer = build_optimizer(config.train, 1)
        optimizer.build(model.trainable_variables)
    session.kept["memory"] = model, optimizer
    return sum(variable.shape.num_elements() for variable in model.trainable_variables)


def _memory(session, field: str) -> list[int]:
    """Bytes of each parameter server: VmRSS, resident now, or VmHWM, the most so far."""
    sizes = []
    for pid in session.pids("ps"):
        with open(f"/proc/{pid}/status", encoding="ascii") as file:
            sizes.append(next(int(line.split()[1]) * 1024 for line in file if line.startswith(field)))
    return sizes
