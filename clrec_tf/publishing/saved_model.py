"""The query tower as a SavedModel of stock ops, for servers that have nothing but TensorFlow.

Items were encoded once, so the tower needs no feature tables: a history becomes rows of the item matrix. An id outside
the catalogue, which padding ("" or −1) is too, is removed before the last `max_history` clicks are taken, wherever it
stands; so neither padding nor unknown items shift the positions of the others. This includes items that training knew
only by a hash bucket. A history without a known item has the zero vector, which retrieves the most popular items with
score 0.

Signatures (B users, L width of the padded histories, E ids to exclude, N ids)::

    serving_default  history [B,L], popularity [B] float32 (+ timestamps [B,L], request_time [B])
                                                             ->  user_vectors [B,1,d+1], weights [B,1]
    retrieve         the same + k [B] int32, exclude [B,E]   ->  ids [B,k], scores [B,k]
    encode_items     ids [N]                                 ->  vectors [N,d+1], known [N]

`popularity` is α of the dial (see `models.dial`), the last number of a user's vector; an item's is that of its
popularity. It must lie in the range that was exported. Where the model weighs its intents (--multi_objective=gated, see
`models.multi_clrec`), the manifest's `intent_coordinates` stand before it, and d+1 here means as many numbers more.

The times, int64 seconds with ≤ 0 for unknown, are inputs only of models that use time; `dwell` [B,L], int64 seconds
with < 0 for unknown, only of models that use dwell times. Features of users and requests, such as `user_gender` and
`context_country`, and `events`, the behaviours of clicks, are inputs of models that read them: see `query_inputs`. A
model trained with --history_dropout serves a history without a known item by these, if any is known. A model of H > 1
intents has one more input, how many of a
user's heaviest ones count, K in 1..H, and says which they are::

    serving_default  the same + intents [B] int32  ->  user_vectors [B,K,d+1], weights [B,K], intents [B,K] int32
    retrieve         the same + intents [B] int32  ->  ids [B,k], scores [B,k], intents [B,k] int32

There `retrieve` gives an item the highest of the scores that the K intents give it, and names that intent, −1 where no
item is left. Weights sum to 1 over all H intents. Those of a history without a known item are all 1/H.

Every input has the users first, since servers that join requests into one batch, as TensorFlow Serving does, refuse
scalars. So k and K are one number per user. Outputs are as wide as the largest of them; what a row does not use of it
is padding: ids "" or −1, scores −inf, intents −1, and vectors and weights 0. Who has looked ids up himself calls the
functions `recent` and `recent_inserted` of a loaded tower, which are no signatures: see `encode_recent`.
"""
import numpy as np
import tensorflow as tf

from clrec_tf.publishing.candidates import scales_between
from clrec_tf.publishing.graph_checks import checked_counts
from clrec_tf.publishing.graph_checks import largest
from clrec_tf.publishing.graph_checks import one_each
from clrec_tf.publishing.query_tower import QueryTower
from clrec_tf.publishing.tower_parts import TowerParts
from clrec_tf.retrieval.signatures import PADDING
from clrec_tf.system.graphs import graph_function

MAX_RETRIEVED = 100_000  # of the `retrieve` signature, whose output is allocated at the width asked for


class UserTower(QueryTower):
    """The query tower f and exact search over the catalogue.

    Args:
      parts: see there.
      ids_file: of the parts; must exist until `save` has made an asset of it.
    """

    def __init__(self, parts: TowerParts, ids_file: str):
        super().__init__(parts, ids_file)
        candidates = parts.candidates
        self.id_dtype = tf.int64 if self.id_type == "int" else tf.string
        # ⟨f, g⟩ times the scale is what φ compares: 1/|g| for the cosine, which saves a second matrix. There is one
        # only where histories read something else than candidates.
        self.scored_items, scales = self.items, scales_between(candidates.items, candidates.compared)
        if scales is None:
            self.scored_items = tf.Variable(candidates.compared, trainable=False, name="scored_items")
            scales = np.ones(len(candidates.compared), np.float32)
        self.item_scales = tf.Variable(scales, trainable=False, name="item_scales")
        self.coordinate = tf.Variable(candidates.coordinate, trainable=False, name="popularity_coordinate")
        self.original_ids = tf.Variable(tf.constant(candidates.original_ids, self.id_dtype), trainable=False,
                                        name="original_ids")

    def _heaviest(self, intents, history, **times):
        """`encode_users`, of each user the first `intents` [B] and padding; all H where `intents` is None."""
        everything = self.encode_users(history, **times)
        if intents is None:
            return everything
        intents = checked_counts(intents, history, "intents", self.num_intents, "all that the model has")
        width = largest(intents)
        used = tf.sequence_mask(intents, width)  # [B,K]
        vectors, weights, numbers = (part[:, :width] for part in everything)
        return (tf.where(used[:, :, None], vectors, tf.zeros_like(vectors)),
                tf.where(used, weights, tf.zeros_like(weights)), tf.where(used, numbers, -1))

    def predict(self, intents=None, **history):
        """`serving_default`."""
        vectors, weights, numbers = self._heaviest(intents, **history)
        return {"user_vectors": vectors, "weights": weights} | ({} if intents is None else {"intents": numbers})

    def retrieve(self, k, exclude, intents=None, **history):
        """`retrieve`: the k items of highest score, the more popular first among equals.

        Where fewer than k candidates remain, ids end in "" or −1, scores in −inf.
        """
        k = checked_counts(k, history["history"], "k", MAX_RETRIEVED)
        excluded = self.positions(one_each(exclude, history["history"], "exclude"))
        vectors, _, numbers = self._heaviest(intents, **history)
        width = largest(k)
        scores, rows, columns = self.search(vectors, numbers >= 0, excluded, tf.minimum(width, self.items.shape[0]))
        none = tf.math.is_inf(scores) | ~tf.sequence_mask(k, tf.shape(scores)[1])
        missing = [[0, 0], [0, width - tf.shape(scores)[1]]]
        padded = lambda values, padding: tf.pad(tf.where(none, padding, values), missing, constant_values=padding)
        result = {"ids": padded(tf.gather(self.original_ids, rows), tf.constant(PADDING[self.id_type], self.id_dtype)),
                  "scores": padded(scores, float("-inf"))}
        if intents is not None:
            result["intents"] = padded(tf.gather(numbers, columns, batch_dims=1), -1)
        return result

    def search(self, vectors, used, excluded, count):
        """Exact search, which takes B·K·V·4 bytes for the scores.

        Args:
          vectors: [B,K,d+1].
          used: bool [B,K], which of them count.
          excluded: int64 [B,E] rows of items left out, −1 for none.
          count: scalar, results wanted per user, 1..V.

        Returns:
          ([B,count] scores, −inf where no item is left; [B,count] rows of the item matrix; [B,count] which of the K
          vectors brought each).
        """
        flat = tf.reshape(vectors, [-1, vectors.shape[2]])
        of_intents = tf.matmul(flat[:, :-1], self.scored_items, transpose_b=True) * self.item_scales
        of_intents = tf.reshape(of_intents + flat[:, -1:] * self.coordinate,
                                [tf.shape(used)[0], tf.shape(used)[1], -1])
        if self.num_intents > 1:
            of_intents = tf.where(used[:, :, None], of_intents, float("-inf"))
        scores = tf.reduce_max(of_intents, axis=1)
        places = tf.where(excluded >= 0)  # [M,2]: user, column
        places = tf.stack([places[:, 0], tf.gather_nd(excluded, places)], axis=1)
        scores = tf.tensor_scatter_nd_update(scores, places, tf.fill([tf.shape(places)[0]], float("-inf")))
        # Part of the graph that is exported, so not `models.top_k`, which gives arrays; the kernel is the same. Equal
        # scores come in the order of rows (which it guarantees), which is that of popularity.
        scores, rows = tf.math.top_k(scores, count)
        return scores, rows, tf.argmax(tf.gather(of_intents, rows, axis=2, batch_dims=1), axis=1)

    def encode_items(self, ids):
        """`encode_items`: vectors as φ compares them, zeros where an id is unknown."""
        positions = self.positions(ids)
        known, rows = positions >= 0, tf.maximum(positions, 0)
        vectors = tf.concat([tf.gather(self.scored_items, rows) * tf.gather(self.item_scales, rows)[:, None],
                             tf.gather(self.coordinate, rows)[:, None]], axis=1)
        return {"vectors": vectors * tf.cast(known, tf.float32)[:, None], "known": known}

    def save(self, folder: str) -> None:
        """Writes the SavedModel into `folder`: its three signatures, and `encode_recent` as the functions `recent`, and
        `recent_inserted`, which takes `inserted` first."""
        of_users = lambda name, dtype: {name: tf.TensorSpec([None], dtype, name)}
        of_clicks = lambda name, dtype: {name: tf.TensorSpec([None, None], dtype, name)}
        user = of_clicks("history", self.id_dtype) | of_users("popularity", tf.float32)
        if self.uses_time:
            user |= of_clicks("timestamps", tf.int64) | of_users("request_time", tf.int64)
        if self.uses_dwell:
            user |= of_clicks("dwell", tf.int64)
        if self.uses_events:
            user |= of_clicks("events", tf.string)
        user |= self.query.specs()
        if self.num_intents > 1:
            user |= of_users("intents", tf.int32)
        search = of_users("k", tf.int32) | of_clicks("exclude", self.id_dtype)
        signatures = {
            "serving_default": graph_function(self.predict).get_concrete_function(**user),
            "retrieve": graph_function(self.retrieve).get_concrete_function(**user, **search),
            "encode_items": graph_function(self.encode_items).get_concrete_function(
                ids=tf.TensorSpec([None], self.id_dtype, "ids"))}
        clicks = tf.TensorSpec([None, self.max_history], tf.int64)
        recent = {"positions": clicks, "popularity": user["popularity"]}
        recent |= {name: clicks for name in ("timestamps", "dwell") if name in user}
        recent |= {name: user[name] for name in ("request_time",) if name in user}
        recent |= dict(events=clicks) if self.uses_events else {}
        recent |= dict(query=tf.TensorSpec([None, self.query.width], tf.int64)) if self.query.width else {}
        self.recent = graph_function(lambda *values: self.encode_recent(**dict(zip(recent, values))),
                                     [*recent.values()])
        inserted = tf.TensorSpec([None, self.items.shape[1]], tf.float32)
        self.recent_inserted = graph_function(lambda rows, *values: self.encode_recent(
            **dict(zip(recent, values)), inserted=rows), [inserted, *recent.values()])
        tf.saved_model.save(self, folder, signatures)
