"""What a request tells beside its clicks, on the user side: the user's profile and the request's context."""
from typing import Sequence

import tensorflow as tf
import tf_keras

from clrec_tf.data.query_features import query_columns
from clrec_tf.data.query_features import QueryFeature
from clrec_tf.data.query_features import query_width
from clrec_tf.encoders.dense import JoinedMlp
from clrec_tf.encoders.embeddings import EmbeddingTable
from clrec_tf.encoders.items import feature_vectors

HIDING_HISTORIES = 32_452_843  # added to a step's seed: draws of hidden histories are not those of hidden ids


class QueryEncoder(tf_keras.layers.Layer):
    """u = f + e + MLP([f; e]), e = Σ_j E_j[x_j]: f what the clicks tell, x the query row; lists enter by their mean.

    The sum moves a user towards what all users of a value click; the MLP lets a value mean something else for each
    user. A value that is missing or unknown is the zero vector. An extension of the paper, whose query tower reads
    clicks alone.

    Args:
      features: of users and requests, in the order of the query row.
      dim: d.
      seed: of the tables' initial values.
      product_dtype: of the MLP's products, see ``dense``.
    """

    def __init__(self, features: Sequence[QueryFeature], dim: int, seed: int, product_dtype=tf.float32):
        super().__init__(name="query_encoder")
        self.features, self.width = tuple(features), query_width(features)
        self.tables = [EmbeddingTable(feature.rows, dim, dim, True, seed + number, name=f"query_feature_{number}")
                       for number, feature in enumerate(self.features)]
        self.mlp = JoinedMlp([dim, dim], 2 * dim, dim, "mlp_query", product_dtype)

    def call(self, users, query=None):
        """What clicks tell of users [B,d], or several vectors of each [B,K,d], and query rows [B,W] int64 (None:
        nothing is known) -> the same shape, not normalized."""
        query = tf.zeros([tf.shape(users)[0], self.width], tf.int64) if query is None else query
        columns = query_columns(self.features).values()
        told = tf.add_n([feature_vectors(table, query[:, part]) for table, part in zip(self.tables, columns)])
        told = told if users.shape.rank == 2 else told[:, None]  # of all K
        mixed = self.mlp.finish(self.mlp.part(0, users) + self.mlp.part(1, told))
        return users + told + mixed


def hidden_histories(count, share: float, seed: tf.Tensor) -> tf.Tensor:
    """Which of `count` examples a step sees no clicks of, [count] bool; drawn by the seed [2] of the step."""
    return tf.random.stateless_uniform([count], seed + tf.constant([HIDING_HISTORIES, 0], tf.int64)) < share
