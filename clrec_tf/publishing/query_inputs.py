"""What an exported tower reads beside the clicked items: features of users and requests, and behaviours, as inputs.

Inputs by name, B users: a category string [B], a list string [B,·], a number float32 [B]; behaviours `events` string
[B,L]. Missing and unknown are the same: "" and any value that training did not meet, and NaN.
"""
import tensorflow as tf

from clrec_tf.data.query_features import LIST
from clrec_tf.data.query_features import NUMBER
from clrec_tf.publishing.graph_checks import one_each
from clrec_tf.retrieval.query_values import QueryValues


class QueryInputs(tf.Module):
    """Looks inputs up within the graph.

    Args:
      values: of the model.
    """

    def __init__(self, values: QueryValues):
        super().__init__(name="query_inputs")
        self._features, self.width = values.features, values.width
        self._tables = {feature.key: _numbered(values.values[feature.key]) for feature in values.features
                        if feature.kind != NUMBER}
        self._events = _numbered(values.events) if values.events else None

    def specs(self) -> dict[str, tf.TensorSpec]:
        """Of the features' inputs by name."""
        spec = {LIST: ([None, None], tf.string), NUMBER: ([None], tf.float32)}
        return {feature.input: tf.TensorSpec(*spec.get(feature.kind, ([None], tf.string)), feature.input)
                for feature in self._features}

    def rows(self, history, inputs: dict):
        """Query rows [B,W] int64 of users with such histories [B,L]; inputs by name."""
        columns = [tf.zeros([tf.shape(history)[0], 0], tf.int64)]
        for feature in self._features:
            given = one_each(inputs[feature.input], history, feature.input)
            if feature.kind == NUMBER:
                columns.append(_bins(given, feature.bounds)[:, None])
            elif feature.kind == LIST:
                numbers = self._tables[feature.key].lookup(given)
                known_first = tf.argsort(tf.cast(tf.equal(numbers, 0), tf.int32), axis=1, stable=True)
                numbers = tf.gather(numbers, known_first, batch_dims=1)[:, :feature.width]
                columns.append(tf.pad(numbers, [[0, 0], [0, feature.width - tf.shape(numbers)[1]]]))
                columns[-1] = tf.ensure_shape(columns[-1], [None, feature.width])
            else:
                columns.append(self._tables[feature.key].lookup(given)[:, None])
        return tf.concat(columns, axis=1)

    def events(self, names):
        """Numbers of behaviours: any shape."""
        return self._events.lookup(names)


def _bins(numbers, bounds):
    """`query_features.bins_of` of a tensor [B]."""
    bins = 1 + tf.searchsorted(tf.constant(bounds, tf.float32), numbers, side="right", out_type=tf.int64)
    return tf.where(tf.math.is_finite(numbers), bins, 0)


def _numbered(texts):
    """Text -> its number from 1, 0 for others."""
    keys = list(texts) or ["\0"]  # a table has at least one
    return tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(
        tf.constant(keys), tf.range(1, len(keys) + 1, dtype=tf.int64)), default_value=0)
