"""Momentum contrast (He et al. 2020): a second pair of towers whose weights are moving averages of the trained ones.

It costs nothing per row of a table. A row that does not change for n steps has the average m^n·θ_k + (1−m^n)·θ_q, so
keys are read by that formula, and only rows that the optimizer is about to change are written: brought up to date
before it, averaged once after it. Each row has a stamp, the step of which its stored key is.
"""
import functools

import tensorflow as tf
import tf_keras

from clrec_tf.encoders.embeddings import EmbeddingTable
from clrec_tf.encoders.embeddings import rows_at
from clrec_tf.losses import momentum as averages
from clrec_tf.models.batches import as_histories


class KeyEncoder:
    """θ_k ← m·θ_k + (1−m)·θ_q after each step of the optimizer; what it encodes has no gradient.

    Keys are encoded without dropout, as they would be served. Workers of a cluster count and average together, each
    with its own steps, so there m is that of a step of any of them.

    Args:
      model: the `TwoTower` that is trained, of one vector per user.
      towers: another of the same settings. Its tables are read by `losses.momentum.caught_up` from now on.
      momentum: m.

    Attributes:
      state: what a checkpoint must hold of it.
    """

    def __init__(self, model, towers, momentum: float):
        self.towers, self._momentum = towers, momentum
        self.steps = tf.Variable(0, dtype=tf.int64, trainable=False, name="steps")  # of the optimizer
        self.state = tf.train.Checkpoint(towers=towers, steps=self.steps)
        tables = [[layer for layer in each.submodules if isinstance(layer, EmbeddingTable)] for each in (towers, model)]
        self._rows = {}  # id of each part of a table -> its keys and stamps
        for keys, queries in zip(*tables):
            keys.stamps = keys.add_weight(
                name="stamps", shape=(keys.table.shape[0], 1), dtype=tf.int64, trainable=False,
                initializer=tf_keras.initializers.Constant(averages.EQUAL))
            keys.read = functools.partial(self._read, queries=queries.table, stamps=keys.stamps)
            self._rows |= {id(part): rows for part, *rows in zip(*map(_parts, (
                queries.table, keys.table, keys.stamps)))}
        pairs = zip(towers.trainable_variables, model.trainable_variables)
        self._dense = [(key, query) for key, query in pairs if id(query) not in self._rows]

    def begin(self) -> None:
        """Makes the keys' weights equal to the model's; those of tables begin so by their stamps."""
        for key, query in self._dense:
            key.assign(query)

    def _read(self, table, ids, queries, stamps):
        """A table's keys at distinct ids [N], up to date -> [N,d]."""
        keys, queries, stamps = (rows_at(each, ids) for each in (table, queries, stamps))
        return tf.stop_gradient(averages.caught_up(keys, queries, stamps, self.steps, self._momentum))

    def candidates(self, rows) -> tf.Tensor:
        """Item rows [N,C], any repeats -> g [N,D], ready to be compared."""
        return tf.stop_gradient(self.towers.score_vectors(self.towers.item_vectors(rows)))

    def clicks_after(self, batch) -> tf.Tensor:
        """What users clicked after their histories -> f(y) [B,D]."""
        return tf.stop_gradient(self.towers.encode(as_histories(batch)).users)

    def update(self, gradients_and_variables, change) -> None:
        """Changes the model by `change()`, and the keys with it.

        Args:
          gradients_and_variables: pairs; of a table in use a gradient with its rows, none twice.
          change: function of no arguments that applies the gradients.
        """
        now, used = tf.identity(self.steps), []
        for gradient, query in gradients_and_variables:
            if id(query) in self._rows:
                keys, stamps = self._rows[id(query)]
                rows = gradient.indices if isinstance(gradient, tf.IndexedSlices) else tf.range(tf.shape(query)[0])
                before = averages.caught_up(
                    *(tf.gather(each, rows) for each in (keys, query, stamps)), now, self._momentum)
                used.append((query, keys, stamps, rows, before))
        change()
        for query, keys, stamps, rows, before in used:
            _write(keys, averages.averaged(before, tf.gather(query, rows), self._momentum), rows)
            _write(stamps, tf.fill([tf.size(rows), 1], now + 1), rows)
        for key, query in self._dense:
            key.assign(averages.averaged(key, query, self._momentum))
        self.steps.assign_add(1)


def _parts(table) -> list:
    """The variables that a table is made of, several where it is in shards."""
    return list(getattr(table, "variables", [table]))


def _write(variable, values, rows) -> None:
    variable.scatter_update(tf.IndexedSlices(values, rows))
