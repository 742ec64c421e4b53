"""What a training step cannot do without, as operations alone: the yardstick of the step's own time.

Counted are the rows gathered from tables and optimizer slots and handed out to clicks (or summed, where the query tower
is a mean), one forward and two backward products per matrix product (fewer where an input needs no gradient), and the
rows scattered back. Left out, and so counted against the step, is everything else: finding distinct ids, adding up the
gradients of repeated ids, activations, normalisation, softmax, the optimizer's arithmetic, the queue's bookkeeping.
Both sides read their batches, or the ids of them, from memory.
"""
import dataclasses
from typing import Optional

import numpy as np
import tensorflow as tf

from clrec_tf.config import Config

SLOTS = {"lazy_adam": 2, "adagrad": 1}  # per table, beside its own rows


@dataclasses.dataclass(frozen=True)
class Product:
    """[batch,] [m,k]·[k,n], forward and `backward` times."""
    name: str
    m: int
    k: int
    n: int
    backward: int = 2
    batch: int = 1


@dataclasses.dataclass(frozen=True)
class Lookup:
    """Rows `width` wide of a table of `rows`, gathered at each step's distinct ids, handed out at `places`, scattered.

    Attributes:
      ids: one array [U] of distinct ids per step.
      places: one array [N] per step, values below U; None: the rows go nowhere but into products.
      slots: of the optimizer, gathered too, and all are scattered; None: not trained, the rows are only gathered.
      sums: [N], ascending: which sum each place is added to; None: the rows are handed out.
    """
    name: str
    rows: int
    width: int
    ids: list
    places: Optional[list]
    slots: Optional[int]
    sums: Optional[np.ndarray] = None

    @property
    def tables(self) -> int:
        """The table and its slots."""
        return 1 + (self.slots or 0)


def products(config: Config, kind: str, encoded: int, candidates: int, content_width: int) -> list[Product]:
    """Matrix products of one step.

    Args:
      config: settings.
      kind: queue variant, or "sampled_softmax".
      encoded: items that pass the feature encoder.
      candidates: distinct items of a raw queue or among the sampled, entries of a cached queue.
      content_width: of dense vectors, 0 = none.
    """
    model, encoder, size = config.model, config.encoder, config.train.batch_size
    dim, clicks = model.embedding_dim, size * model.max_history
    listed = []
    if content_width:
        hidden = config.tower.content_hidden
        if hidden:
            listed.append(Product("content, first layer", encoded, content_width, hidden, backward=1))
        listed.append(Product("content, last layer", encoded, hidden or content_width, dim,
                              backward=2 if hidden else 1))
    if config.tower.user_encoder == "multi_att":
        width, heads = encoder.attention_hidden or 4 * dim, encoder.attention_heads
        listed += [Product("attention, first layer", clicks, dim, width),
                  Product("attention, last layer", clicks, width, heads),
                  Product("weighted sum of clicks", heads, model.max_history, dim, batch=size)]
        if encoder.head_aggregation == "wha":
            listed += [Product("head aggregation, matrix", size, dim, dim),
                      Product("head aggregation, scores", heads, dim, 1, batch=size)]
        elif encoder.head_aggregation != "mean":
            joined = dim if encoder.head_aggregation == "mean_mlp" else heads * dim
            listed += [Product("head aggregation, first layer", size, joined, 2 * dim),
                      Product("head aggregation, last layer", size, 2 * dim, dim)]
    if kind in ("in_batch", "cached"):
        listed.append(Product("logits of the batch", size, dim, size))
    if kind != "in_batch":
        listed.append(Product("logits of the negatives", size, dim, candidates, backward=1 if kind == "cached" else 2))
    return listed


class BareStep:
    """The operations over real ids.

    Args:
      lookups: with as many steps in each.
      matrix_products: of one step.
      queue: (rows, width, rows written per step) of the cached vectors, or None.
      tables: by name, for several steps over the same ones; what is missing is added.
    """

    def __init__(self, lookups: list[Lookup], matrix_products: list[Product], queue, tables: dict):
        self.lookups, self.products, self.queue = lookups, matrix_products, queue
        variable = lambda *shape: tf.Variable(tf.random.normal(shape), trainable=False)
        for lookup in lookups:
            if lookup.name not in tables:
                tables[lookup.name] = [tf.Variable(tf.zeros([lookup.rows, lookup.width]), trainable=False)
                                       for _ in range(lookup.tables)]
        self._tables = [tables[lookup.name] for lookup in lookups]
        lead = lambda product: (product.batch,) if product.batch > 1 else ()
        self._operands = [(variable(*lead(p), p.m, p.k), variable(*lead(p), p.k, p.n), variable(*lead(p), p.m, p.n))
                          for p in matrix_products]
        self._queue = variable(queue[0], queue[1]) if queue else None
        self._pushed = variable(queue[2], queue[1]) if queue else None
        ragged = lambda arrays: tf.RaggedTensor.from_row_lengths(
            np.concatenate(arrays).astype(np.int64), [len(array) for array in arrays])
        ids = [{name: ragged(arrays) for name, arrays in (("ids", lookup.ids), ("places", lookup.places))
                if arrays is not None} for lookup in lookups]
        dataset = tf.data.Dataset.from_tensor_slices(tuple(ids)).repeat()
        options = tf.data.Options()
        options.autotune.enabled = False
        self._iterator = iter(dataset.with_options(options))
        self._call = tf.function(self._steps)

    def call(self, steps: int):
        """Function of no arguments that does `steps` steps."""
        steps = tf.constant(steps, tf.int64)
        return lambda: self._call(self._iterator, steps)

    def listed(self) -> list[dict]:
        """Every operation with its shape, for the report; U and N are means over the steps."""
        mean = lambda arrays: int(np.mean([len(array) for array in arrays]))
        listed = []
        for lookup in self.lookups:
            rows, shape = mean(lookup.ids), dict(table=[lookup.rows, lookup.width])
            listed.append(dict(operation="gather", of=lookup.name, rows=rows, times=lookup.tables, **shape))
            if lookup.places is not None:
                operation = "hand out" if lookup.sums is None else "sum"
                listed.append(dict(operation=operation, of=lookup.name, rows=mean(lookup.places), times=1, **shape))
            if lookup.slots is not None:
                listed.append(dict(operation="scatter", of=lookup.name, rows=rows, times=lookup.tables, **shape))
        listed += [dict(operation="product", of=p.name, shape=[p.batch, p.m, p.k, p.n], times=1 + p.backward)
                   for p in self.products]
        if self.queue:
            rows, width, pushed = self.queue
            listed.append(dict(operation="scatter", of="queue", rows=pushed, times=1, table=[rows, width]))
        return listed

    def _steps(self, iterator, steps):
        total = tf.constant(0.0)
        for _ in tf.range(steps):
            total += self._step(next(iterator))
        return total

    def _step(self, batch):
        # One element of every result is used, or TensorFlow would leave the operation out.
        used = []
        for lookup, tables, part in zip(self.lookups, self._tables, batch):
            rows = [tf.gather(table, part["ids"]) for table in tables]
            result = rows[0]
            if lookup.sums is not None:
                result = tf.sparse.segment_sum(result, part["places"], tf.constant(lookup.sums))
            elif lookup.places is not None:
                result = tf.gather(result, part["places"])
            used.append(result[0, 0])
            if lookup.slots is not None:
                tables[0].scatter_sub(tf.IndexedSlices(rows[0], part["ids"]))
                for table, values in zip(tables[1:], rows[1:]):
                    table.scatter_update(tf.IndexedSlices(values, part["ids"]))
        for product, (left, right, result) in zip(self.products, self._operands):
            used.append(tf.reshape(tf.matmul(left, right), [-1])[0])
            used.append(tf.reshape(tf.matmul(left, result, transpose_a=True), [-1])[0])
            if product.backward > 1:
                used.append(tf.reshape(tf.matmul(result, right, transpose_b=True), [-1])[0])
        if self._queue is not None:
            rows = tf.range(self.queue[2], dtype=tf.int64)
            self._queue.scatter_update(tf.IndexedSlices(self._pushed, rows))
        return tf.add_n(used)
