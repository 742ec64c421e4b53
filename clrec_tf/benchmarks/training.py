"""Training speed: the queue variants against each other and against what their counts allow, and against bare operations."""
import dataclasses
import statistics

import numpy as np

from clrec_tf.benchmarks import bare_ops
from clrec_tf.benchmarks import timing
from clrec_tf.benchmarks import workload
from clrec_tf.benchmarks.workload import Items


def id_counts(batches: dict, kind: str, capacity: int) -> dict[str, float]:
    """Distinct items per step of a variant, mean over the steps, once the queue is full.

    Args:
      batches: stacked, from `workload.draw_batches`; they come round again and again.
      kind: variant.
      capacity: Q.

    Returns:
      `encoded`: items encoded (history, targets and, for raw, the queue); `queued`: distinct items of the queue.
    """
    return {name: float(np.mean([len(part[name]) for part in distinct_parts(batches, kind, capacity)]))
            for name in ("encoded", "queued")}


def distinct_parts(batches: dict, kind: str, capacity: int) -> list[dict]:
    """Per step: ids `encoded`, ids `queued`, and `places` of targets and history among the encoded."""
    history, target = batches["history"][..., 0], batches["target"][..., 0]
    steps, size = target.shape
    back = -(-capacity // size)
    parts = []
    for step in range(steps):
        recent = np.concatenate([target[(step - age) % steps] for age in reversed(range(back))])[-capacity:]
        rows = np.concatenate([target[step], history[step].ravel()])
        encoded, places = np.unique(np.concatenate([rows, recent]) if kind == "raw" else rows, return_inverse=True)
        parts.append(dict(encoded=encoded, queued=np.unique(recent), places=places[:len(rows)]))
    return parts


def bare_step(items: Items, config, kind: str, batches: dict) -> bare_ops.BareStep:
    """The bare operations of a variant over the same batches."""
    model, size = config.model, config.train.batch_size
    dim, parts = model.embedding_dim, distinct_parts(batches, kind, model.queue_size)
    lookups = [bare_ops.Lookup("item ids", items.count + 1, dim, [p["encoded"] for p in parts], [p["places"] for p in parts])]
    schema = items.schema()
    if schema.features:
        widths = workload.feature_widths(config, schema)
        values = [items.rows(part["encoded"]) for part in parts]
        for column, (feature, width) in enumerate(zip(schema.features, widths), start=1):
            found = [np.unique(rows[:, column], return_inverse=True) for rows in values]
            lookups.append(bare_ops.Lookup(feature.name, feature.rows, width, [f[0] for f in found], [f[1] for f in found]))
    if schema.content_width:
        lookups.append(bare_ops.Lookup("content", items.count + 1, schema.content_width, [p["encoded"] for p in parts],
                                       [np.zeros(1, np.int64)] * len(parts), trained=False))
    encoded = int(np.mean([len(part["encoded"]) for part in parts]))
    candidates = int(np.mean([len(part["queued"]) for part in parts])) if kind == "raw" else model.queue_size
    queue = (model.queue_size, dim, size) if kind == "cached" else None
    return bare_ops.BareStep(lookups, bare_ops.products(config, kind, encoded, candidates, schema.content_width), queue)
