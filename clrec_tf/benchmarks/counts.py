"""What a step has to touch: distinct ids per variant, and from them its bare operations."""
import numpy as np

from clrec_tf.benchmarks import workload
from clrec_tf.benchmarks.bare_ops import SLOTS
from clrec_tf.benchmarks.bare_ops import BareStep
from clrec_tf.benchmarks.bare_ops import Lookup
from clrec_tf.benchmarks.bare_ops import products


def distinct_ids(batches: dict, kind: str, capacity: int) -> list[dict]:
    """What each step touches once the queue is full and the batches have come round.

    Args:
      batches: stacked, from `workload.draw_batches`.
      kind: variant.
      capacity: Q.

    Returns:
      Per step a dict of ids `encoded` (of history and targets, for raw of the queue too), ids `queued` (distinct ones
      of the queue after the step's targets entered) and `places` of targets and history among the encoded.
    """
    history, target = batches["history"][..., 0], batches["target"][..., 0]
    steps, size = target.shape
    batches_back = -(-capacity // size)
    found = []
    for step in range(steps):
        entered = [target[(step - age) % steps] for age in reversed(range(batches_back))]
        queued = np.unique(np.concatenate(entered)[-capacity:])
        rows = np.concatenate([target[step], history[step].ravel()])
        encoded, places = np.unique(np.concatenate([rows, queued]) if kind == "raw" else rows, return_inverse=True)
        found.append(dict(encoded=encoded, queued=queued, places=places[:len(rows)]))
    return found


def encoded_items(batches: dict, kind: str, capacity: int) -> float:
    """Items that a variant encodes per step, mean over the steps."""
    return float(np.mean([len(step["encoded"]) for step in distinct_ids(batches, kind, capacity)]))


def bare_step(items: workload.Items, trainer: workload.Trainer, kind: str, batches: dict, tables: dict) -> BareStep:
    """The bare operations of a trainer's variant over the same batches; `tables` are shared, see `BareStep`."""
    config, schema = trainer.config, items.schema()
    model, slots, size = config.model, SLOTS[config.train.optimizer], config.train.batch_size
    steps = distinct_ids(batches, kind, model.queue_size)
    encoded, places = [step["encoded"] for step in steps], [step["places"] for step in steps]
    sums = None
    if model.user_encoder == "mean":  # a target alone, then the clicks of each history
        sums = np.repeat(np.arange(2 * size), [1] * size + [model.max_history] * size)
    lookups = [Lookup("item ids", items.count + 1, model.embedding_dim, encoded, places, slots, sums)]
    if schema.features:
        rows = [items.rows(ids) for ids in encoded]
        for column, (feature, table) in enumerate(zip(schema.features, trainer.model.item_encoder.feature_tables), 1):
            ids, places = zip(*(np.unique(row[:, column], return_inverse=True) for row in rows))
            lookups.append(Lookup(feature.name, feature.rows, table.table.shape[1], ids, places, slots))
    if schema.content_width:
        lookups.append(Lookup("content", items.count + 1, schema.content_width, encoded, None, slots=None))
    mean = lambda name: round(np.mean([len(step[name]) for step in steps]))
    candidates = mean("queued") if kind == "raw" else model.queue_size
    queue = (model.queue_size, model.embedding_dim, size) if kind == "cached" else None
    return BareStep(lookups, products(config, kind, mean("encoded"), candidates, schema.content_width), queue,
                    tables)
