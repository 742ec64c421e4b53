"""The item encoder g(y), the candidate tower: base id embedding plus the concatenation of feature embeddings.

An item row with a negative id is that of the item whose id is hidden: features and dense vector alone describe it, as of
an item that nobody has clicked.
"""
import functools

import numpy as np
import tensorflow as tf
import tf_keras

from clrec_tf.data.features import feature_columns
from clrec_tf.data.features import item_width
from clrec_tf.encoders import dense
from clrec_tf.encoders import embeddings
from clrec_tf.errors import UserError

HIDING = 15_485_863  # added to a step's seed: draws of hidden ids are not those of dropout


def split_width(dim: int, parts: int) -> list[int]:
    """d split over the features by largest remainder: 64 over 6 -> 11,11,11,11,10,10."""
    return [dim // parts + (i < dim % parts) for i in range(parts)]


def distinct_rows(rows: tf.Tensor):
    """Item rows without repeats.

    Args:
      rows: [N,C] int64, item id first; equal ids have equal rows.

    Returns:
      (distinct [U,C] in order of first occurrence, inverse [N] with distinct[inverse] = rows).
    """
    ids, inverse = tf.unique(rows[:, 0], out_idx=tf.int32)
    if rows.shape[1] == 1:
        return ids[:, None], inverse
    first = tf.math.unsorted_segment_min(tf.range(tf.shape(rows)[0]), inverse, tf.size(ids))
    return tf.gather(rows, first), inverse


def with_hidden_ids(rows: tf.Tensor, share: float, seed: tf.Tensor) -> tf.Tensor:
    """Distinct item rows [U,C], a share of them with the id negative; drawn by the seed [2] of a step."""
    hidden = tf.random.stateless_uniform(tf.shape(rows)[:1], seed + tf.constant([HIDING, 0], tf.int64)) < share
    return tf.concat([tf.where(hidden, -rows[:, 0], rows[:, 0])[:, None], rows[:, 1:]], axis=1)


class ItemEncoder(tf_keras.layers.Layer):
    """g(y) = E_id[y] + concat_f E_f[feat_f(y)] (+ content(y)), [N,C] -> [N,d], not normalized (paper, "Item Encoder").

    Time and position never enter: they belong to a user's click, not to the item.

    Args:
      item_rows: rows of the id table; id 0 reads as zeros.
      dim: d.
      features: sequence of `schema.Feature` in row order; several-valued ones enter by the mean of their values.
      feature_dims: widths of the features' slots, summing to d; None: split by largest remainder.
      projection: instead of requiring the sum, project the concatenation to d (a deviation from the paper).
      content: [item_rows, width] float32 of dense vectors by item id, or None; not trained. See `content_table`.
      content_hidden: hidden width of the content encoder, 0 = linear.
      seed: of the initial values.
      product_dtype: of the content encoder's products, see ``dense``.
    """

    def __init__(self, item_rows, dim, features=(), feature_dims=None, projection=False, content=None,
                 content_hidden=0, seed=0, product_dtype=tf.float32):
        super().__init__(name="item_encoder")
        self.product_dtype = product_dtype
        self.dim, self.width, self.features = dim, dim, tuple(features)
        self.item_width = item_width(self.features)
        self.ids = embeddings.EmbeddingTable(item_rows, dim, dim, True, seed, name="ids")
        widths = self._feature_widths(feature_dims, projection)
        self.feature_tables = [
            embeddings.EmbeddingTable(feature.rows, width, dim, True, seed + 1 + i, name=f"feature_{i}")
            for i, (feature, width) in enumerate(zip(self.features, widths))]
        new_dense = functools.partial(tf_keras.layers.Dense, kernel_initializer="glorot_normal")
        self.projection = new_dense(dim, use_bias=False, name="projection") if projection else None
        if self.projection and self.features:
            self.projection.build((None, sum(widths)))
        self.content, self.content_encoder = None, None
        if content is not None:
            self.content = content_table(self, content)
            hidden = [new_dense(content_hidden, activation="relu", name="hidden")] if content_hidden else []
            self.content_encoder = tf_keras.Sequential([*hidden, new_dense(dim, name="output")], name="content_encoder")
            self.content_encoder.build((None, content.shape[1]))

    def _feature_widths(self, feature_dims, projection):
        if not self.features:
            return []
        widths = list(feature_dims) if feature_dims else split_width(self.dim, len(self.features))
        if len(widths) != len(self.features):
            raise UserError(f"--feature_dims={','.join(map(str, widths))} gives {len(widths)} widths for "
                            f"{len(self.features)} features ({', '.join(f.name for f in self.features)})")
        if min(widths) < 1:
            raise UserError(f"--feature_dims={','.join(map(str, widths))}: every feature needs a width of at least 1")
        if sum(widths) != self.dim and not projection:
            raise UserError(f"--feature_dims={','.join(map(str, widths))} sums to {sum(widths)}, not to "
                            f"--embedding_dim={self.dim}; change one of them or set --feature_projection")
        return widths

    def call(self, rows):
        """rows [N,C] int64, any repeats -> [N,d]; each distinct item is encoded once."""
        distinct, inverse = distinct_rows(rows)
        return tf.gather(self.encode_distinct(distinct), inverse)

    def encode_distinct(self, rows, ids=None):
        """rows [U,C] with distinct ids, and what the table has of these [U,d] (None: it is looked up) -> [U,d]."""
        if ids is None:
            ids = self.ids.rows_of(tf.maximum(rows[:, 0], 0))  # hidden ids read as zeros, as that of nothing does
        content = None if self.content is None else embeddings.rows_at(self.content, tf.abs(rows[:, 0]))
        return self._encoded(ids, rows, content)

    def encode_described(self, rows, content):
        """Items that have no row of their own: rows [U,C] of negative ids, dense vectors [U,width] -> [U,d]."""
        return self._encoded(tf.zeros([tf.shape(rows)[0], self.dim]), rows, content)

    def _encoded(self, encoded, rows, content):
        tf.debugging.assert_shapes([(rows, ("U", self.item_width))])
        if self.features:
            columns = feature_columns(self.features).values()
            joined = tf.concat([feature_vectors(table, rows[:, values])
                                for table, values in zip(self.feature_tables, columns)], axis=1)
            encoded += self.projection(joined) if self.projection else joined
        if self.content_encoder is not None:
            known = tf.cast(rows[:, :1] != 0, encoded.dtype)  # the content encoder's bias must not reach padding
            encoded += known * dense.apply_layers(self.content_encoder, content, self.product_dtype)
        return encoded


def feature_vectors(table, values: tf.Tensor) -> tf.Tensor:
    """Masked mean over an item's values of a feature: [U,W] -> [U, width of the table]; zeros where it has none."""
    vectors = table(values)
    if values.shape[1] == 1:
        return tf.squeeze(vectors, axis=1)
    present = tf.reduce_sum(tf.cast(values != 0, vectors.dtype), axis=1, keepdims=True)
    return tf.math.divide_no_nan(tf.reduce_sum(vectors, axis=1), present)


def content_table(layer, content):
    """A layer's variable of dense vectors [item_rows, width] by item id, not trained; each shard is given its part.

    The variable of another layer in place of an array is shared.
    """
    if not isinstance(content, np.ndarray):
        return content
    return layer.add_weight(
        name="content", shape=content.shape, trainable=False,
        initializer=lambda shape, dtype, **kwargs: _content_rows(content, shape, dtype, **kwargs))


def _content_rows(content, shape, dtype, partition_shape=None, partition_offset=None):
    """The part of the content table that one shard holds."""
    shape, offset = partition_shape or shape, partition_offset or (0, 0)
    return tf.constant(content[offset[0]:offset[0] + shape[0]], dtype)
