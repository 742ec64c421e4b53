"""Items with a second vector each, for query towers that read items by a table of their own."""
import tensorflow as tf

from clrec_tf.encoders.embeddings import EmbeddingTable
from clrec_tf.encoders.items import ItemEncoder

FACTORS = 500  # added to the seed: initial values of the factors are not those of the ids


class FactorItemEncoder(ItemEncoder):
    """Items -> g of `ItemEncoder`, and y[item] of one more table, side by side: [N,C] -> [N,2d].

    An item whose id is hidden, or which has no row of its own, has zeros for y.

    Args:
      item_rows, dim, ...: as `ItemEncoder`.
    """

    def __init__(self, item_rows, dim, features=(), feature_dims=None, projection=False, content=None,
                 content_hidden=0, seed=0, product_dtype=tf.float32):
        super().__init__(item_rows, dim, features, feature_dims, projection, content, content_hidden, seed, product_dtype)
        self.width = 2 * dim
        self.factors = EmbeddingTable(item_rows, dim, dim, True, seed + FACTORS, name="factors")

    def encode_distinct(self, rows, ids=None):
        """See `ItemEncoder.encode_distinct`: -> [U,2d]."""
        factors = self.factors.rows_of(tf.maximum(rows[:, 0], 0))
        return tf.concat([super().encode_distinct(rows, ids), factors], axis=1)

    def encode_described(self, rows, content):
        """See `ItemEncoder.encode_described`: -> [U,2d]."""
        vectors = super().encode_described(rows, content)
        return tf.concat([vectors, tf.zeros_like(vectors)], axis=1)
