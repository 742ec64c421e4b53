"""The item encoder of Multi-CLRec, g(y) = MLP1([E_id; c; E_f; …]), and the category c by which items are routed."""
import tensorflow as tf
import tf_keras

from clrec_tf.data.features import feature_columns
from clrec_tf.data.features import item_width
from clrec_tf.encoders.dense import JoinedMlp
from clrec_tf.encoders import embeddings
from clrec_tf.encoders.items import content_table
from clrec_tf.encoders.items import feature_vectors
from clrec_tf.errors import UserError

MIN_FEATURE_WIDTH = 8


class IntentItemEncoder(tf_keras.layers.Layer):
    """Items [N,C] -> g [N,d], not normalized, and c [N,d] (paper, "Multi-CLRec").

    The category has the width d, since it is compared with the intents' prototypes; other features' widths are free.
    An item of several categories has the mean of their embeddings, one without category the zero vector.

    Args:
      item_rows: rows of the id table; id 0 reads as zeros.
      dim: d.
      features: sequence of `schema.Feature` in row order, the category among them.
      category: its name.
      feature_dims: widths of the other features; None: d/4, at least 8.
      content: [item_rows, width] float32 of dense vectors by item id, or None; not trained.
      residual: g = MLP1(…) + E_id.
      seed: of the initial values.
      product_dtype: of MLP1's products, see ``dense``.
    """

    def __init__(self, item_rows, dim, features, category, feature_dims=None, content=None, residual=False, seed=0,
                 product_dtype=tf.float32):
        super().__init__(name="item_encoder")
        self.dim, self.features, self.residual = dim, tuple(features), residual
        self.item_width = item_width(self.features)
        names = [feature.name for feature in self.features]
        self.category = names.index(category)
        widths = _widths(names, category, feature_dims, dim)
        self.ids = embeddings.EmbeddingTable(item_rows, dim, dim, True, seed, name="ids")
        self.feature_tables = [
            embeddings.EmbeddingTable(feature.rows, width, dim, True, seed + 1 + i, name=f"feature_{i}")
            for i, (feature, width) in enumerate(zip(self.features, widths))]
        self.content = None if content is None else content_table(self, content)
        joined = dim + sum(widths) + (0 if content is None else content.shape[1])
        self.mlp = JoinedMlp([joined], 2 * dim, dim, "mlp_1", product_dtype)

    def call(self, rows):
        """rows [N,C] int64 with distinct ids -> g and c side by side, [N,2d]; zeros for id 0."""
        ids = self.ids.rows_of(tf.maximum(rows[:, 0], 0))  # of a hidden id zeros, see ``items``
        content = None if self.content is None else embeddings.rows_at(self.content, tf.abs(rows[:, 0]))
        return self._encoded(ids, rows, content)

    def encode_described(self, rows, content):
        """Items that have no row of their own: rows [N,C] of negative ids, dense vectors [N,width] -> [N,2d]."""
        return self._encoded(tf.zeros([tf.shape(rows)[0], self.dim]), rows, content)

    def _encoded(self, ids, rows, content):
        tf.debugging.assert_shapes([(rows, ("N", self.item_width))])
        features = [self._feature(rows, number) for number in range(len(self.features))]
        parts = [ids, *features]
        if self.content is not None:
            parts.append(content)
        encoded = self.mlp(tf.concat(parts, axis=1))
        if self.residual:
            encoded += ids
        known = tf.cast(rows[:, :1] != 0, encoded.dtype)  # biases must not reach padding
        return tf.concat([known * encoded, features[self.category]], axis=1)

    def categories(self, rows):
        """rows [N,C] int64, any repeats -> c [N,d]."""
        return self._feature(rows, self.category)

    def _feature(self, rows, number):
        columns = feature_columns(self.features)[self.features[number].name]
        return feature_vectors(self.feature_tables[number], rows[:, columns])


def _widths(names, category, feature_dims, dim):
    """Width of each feature's embedding, that of the category d."""
    others = [name for name in names if name != category]
    given = list(feature_dims) if feature_dims else [max(MIN_FEATURE_WIDTH, dim // 4)] * len(others)
    flag = f"--feature_dims={','.join(map(str, given))}"
    if len(given) != len(others):
        raise UserError(f"{flag} gives {len(given)} widths for the {len(others)} features beside the category "
                        f"({', '.join(others) or 'none'}), whose width is --embedding_dim")
    if given and min(given) < 1:
        raise UserError(f"{flag}: every feature needs a width of at least 1")
    widths = dict(zip(others, given)) | {category: dim}
    return [widths[name] for name in names]
