"""What a step has to touch: distinct ids per variant, and from them its bare operations."""
import numpy as np

from clrec_tf.lab.benchmarks.bare_ops import BareStep
from clrec_tf.lab.benchmarks.bare_ops import Lookup
from clrec_tf.lab.benchmarks.bare_ops import products
from clrec_tf.lab.benchmarks.bare_ops import SLOTS
from clrec_tf.lab.benchmarks import workload


def distinct_ids(items: workload.GeneratedItems, batches: dict, kind: str, capacity: int) -> list[dict]:
    """What each step touches once the queue is full and the batches have come round.

    Args:
      items: the catalogue, from which sampled negatives are drawn.
      batches: stacked, from `workload.draw_batches`.
      kind: variant, or `SAMPLED_SOFTMAX`.
      capacity: Q, or the number L of sampled negatives.

    Returns:
      Per step a dict of ids `encoded` (of history and targets, and of `queued` but for cached and in_batch), ids
      `queued` (distinct ones of the queue after the step's targets entered, or of a sample of as many), `places` of
      targets and history among the encoded, ids `candidates` of targets and queued, and ids `clicked` of the history.
    """
    history, target = batches["history"][..., 0], batches["target"][..., 0]
    steps, size = target.shape
    batches_back = -(-capacity // size)
    touched, random = [], np.random.default_rng(workload.DRAW_SEED + 1)
    for step in range(steps):
        entered = [target[(step - age) % steps] for age in reversed(range(batches_back))]
        queued = np.unique(np.concatenate(entered)[-capacity:])
        if kind == workload.SAMPLED_SOFTMAX:
            queued = np.unique(items.drawn(random, 1, capacity))
        rows = np.concatenate([target[step], history[step].ravel()])
        negatives = [queued] if kind in ("raw", workload.SAMPLED_SOFTMAX) else []  # that are encoded anew
        encoded, places = np.unique(np.concatenate([rows, *negatives]), return_inverse=True)
        touched.append(dict(encoded=encoded, queued=queued, places=places[:len(rows)], clicked=np.unique(history[step]),
                            candidates=np.unique(np.concatenate([target[step], *negatives]))))
    return touched


def encoded_items(items: workload.GeneratedItems, batches: dict, kind: str, capacity: int) -> float:
    """Items that a variant encodes per step, mean over the steps."""
    return float(np.mean([len(step["encoded"]) for step in distinct_ids(items, batches, kind, capacity)]))


def bare_step(items: workload.GeneratedItems, trainer: workload.Trainer, kind: str, batches: dict,
              tables: dict) -> BareStep:
    """The bare operations of a trainer's variant over the same batches; `tables` are shared, see `BareStep`."""
    config, schema = trainer.config, items.schema()
    model, tower, capacity = config.model, config.tower, config.loss.queue_size
    slots, size = SLOTS[config.train.optimizer], config.train.batch_size
    steps = distinct_ids(items, batches, kind, capacity)
    column = lambda name: [step[name] for step in steps]
    encoded, places = column("encoded"), column("places")
    if not tower.candidate_features:
        encoded = column("clicked")
        places = [np.searchsorted(ids, history.ravel()) for ids, history in zip(encoded, batches["history"][..., 0])]
    sums = None
    if tower.user_encoder == "mean":  # a target alone, then the clicks of each history
        alone = size if tower.candidate_features else 0
        sums = np.repeat(np.arange(alone + size), [1] * alone + [model.max_history] * size)
    ids_table = (items.count + 1, model.embedding_dim)
    lookups = [Lookup("item ids", *ids_table, encoded, places, slots, sums)]
    if not tower.candidate_features:
        lookups.append(Lookup("item ids", *ids_table, column("candidates"), None, slots))
    if schema.features:
        rows = [items.rows(ids) for ids in encoded]
        for number, (feature, table) in enumerate(zip(schema.features, trainer.model.item_encoder.feature_tables), 1):
            ids, places = zip(*(np.unique(row[:, number], return_inverse=True) for row in rows))
            lookups.append(Lookup(feature.name, feature.rows, table.table.shape[1], ids, places, slots))
    if schema.content_width:
        lookups.append(Lookup("content", items.count + 1, schema.content_width, encoded, None, slots=None))
    mean = lambda arrays: round(np.mean([len(array) for array in arrays]))
    candidates = capacity if kind == "cached" else mean(column("queued"))
    queue = (capacity, model.embedding_dim, size) if kind == "cached" else None
    return BareStep(lookups, products(config, kind, mean(encoded), candidates, schema.content_width), queue, tables)
