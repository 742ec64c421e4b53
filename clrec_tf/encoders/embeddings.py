"""Embedding tables: one initialisation for all, and lookups that touch each row once."""
import tensorflow as tf
import tf_keras


class RowNormal(tf_keras.initializers.Initializer):
    """Untruncated normal of mean 0, the same values whatever the shards of a table: each draws its part of one stream.

    Args:
      std: standard deviation.
      seed: of the stream.
    """

    def __init__(self, std, seed):
        self.std, self.seed = std, seed

    def __call__(self, shape, dtype=None, partition_shape=None, partition_offset=None):
        """The table [rows, dim], or the shard of `partition_shape` that begins at `partition_offset`."""
        dtype = dtype or tf.float32
        key, counter = tf.raw_ops.StatelessRandomGetKeyCounter(seed=[self.seed, 0])
        first = int(partition_offset[0]) * int(shape[1]) if partition_offset else 0
        rows = partition_shape or shape
        # Philox draws four numbers for each value of its counter.
        blocks, skipped = divmod(first, 4)
        count = int(rows[0]) * int(rows[1])
        values = tf.raw_ops.StatelessRandomNormalV2(
            shape=[skipped + count], key=key, counter=counter + tf.constant([blocks, 0], tf.uint64), alg=1, dtype=dtype)
        return self.std * tf.reshape(values[skipped:], rows)

    def get_config(self):
        """Constructor arguments."""
        return dict(std=self.std, seed=self.seed)


def embedding_initializer(dim: int, seed: int) -> tf_keras.initializers.Initializer:
    """Untruncated normal of mean 0 and std d^−0.5, the same for every table whatever its rows.

    Normal, since directions of uniform vectors crowd the corners; independent of the number of rows, since tables of
    very different sizes are summed.
    """
    return RowNormal(dim ** -0.5, seed)


DISTINCT = "ids_that_do_not_repeat"  # name of the operation that marks them in a graph


def rows_at(table, ids: tf.Tensor) -> tf.Tensor:
    """Rows [N,d] of a (possibly sharded) table at ids [N], any repeats, which travel to it as int32 where they fit."""
    return tf.nn.embedding_lookup(table, _row_numbers(table, ids))


def lookup_distinct(table, ids: tf.Tensor) -> tf.Tensor:
    """The same for ids that do not repeat.

    It marks the ids in the graph, so that the rows of the table's gradient need not be summed (see `optimizers`).
    """
    return tf.nn.embedding_lookup(table, tf.identity(_row_numbers(table, ids), name=DISTINCT))


def _row_numbers(table, ids):
    """Ids in the type in which a lookup sends them, and an update the rows of its gradient.

    What is outside the table stays outside, so that the lookup refuses it: a cast alone would take it modulo 2³².
    """
    rows = table.shape[0]
    return tf.cast(tf.clip_by_value(ids, -1, rows), tf.int32) if rows <= tf.int32.max else tf.cast(ids, tf.int64)


def lookup(table, ids: tf.Tensor, read=lookup_distinct) -> tf.Tensor:
    """Rows of a (possibly sharded) table: ids [...] -> [..., d]. Each distinct row is fetched and updated once.

    `read` gives the rows of distinct ids.
    """
    flat = tf.reshape(ids, [-1])
    distinct, inverse = tf.unique(flat)
    rows = tf.gather(read(table, distinct), inverse)
    return tf.reshape(rows, tf.concat([tf.shape(ids), tf.shape(rows)[1:]], 0))


class EmbeddingTable(tf_keras.layers.Layer):
    """A table [rows, dim] whose row 0, if `zero_is_missing`, reads as the zero vector.

    Args:
      rows: number of rows.
      dim: width.
      scale_dim: d of the initial std d^−0.5; the model's width, not the slot's.
      zero_is_missing: id 0 gives zeros by a mask; what its row holds is never seen.
      seed: of the initial values.

    Attributes:
      read: (table, distinct ids [N]) -> rows [N,dim]; as they stand in the table, or what else is made of them.
    """

    def __init__(self, rows, dim, scale_dim, zero_is_missing, seed, name):
        super().__init__(name=name)
        self.zero_is_missing, self.read = zero_is_missing, lookup_distinct
        self.table = self.add_weight(
            name="table", shape=(rows, dim), initializer=embedding_initializer(scale_dim, seed), trainable=True)

    def call(self, ids):
        """ids [...] int64 -> [..., dim]."""
        return self._masked(lookup(self.table, ids, self.read), ids)

    def rows_of(self, distinct_ids):
        """The same for ids [N] known to be distinct."""
        return self._masked(self.read(self.table, distinct_ids), distinct_ids)

    def _masked(self, rows, ids):
        if not self.zero_is_missing:
            return rows
        return rows * tf.cast(ids != 0, rows.dtype)[..., None]
