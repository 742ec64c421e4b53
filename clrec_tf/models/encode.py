"""Vectors of all items and of evaluated users from a model, in chunks."""
from typing import Iterator
from typing import Optional

import numpy as np
import tensorflow as tf

from clrec_tf.data.evaluation_set import EvaluationSet
from clrec_tf.data.query_features import query_width
from clrec_tf.system.graphs import graph_function

CHUNK_ITEMS = 8192
CHUNK_USERS = 512


class Encoder:
    """Compiled towers of one model; built once, since each new one is traced anew.

    Args:
      model: a `CLRec`.
      max_history: T, clicks that the query tower sees.
      cold: bool [V], items by number from 1 that nobody has clicked in training; a model that was trained with
        --id_dropout encodes them without their ids. None: none.

    Attributes:
      model: that.
    """

    def __init__(self, model, max_history: int, cold: Optional[np.ndarray] = None):
        self.model, self._max_history = model, max_history
        self._cold = np.append(False, cold) if cold is not None and model.id_dropout else np.zeros(1, bool)
        width, ids = model.item_encoder.item_width, tf.int64
        rows = [tf.TensorSpec([None, width], ids)]
        self._items = graph_function(model.item_vectors, input_signature=rows)
        self._history_items = graph_function(model.history_vectors, input_signature=rows)
        self._compared_items = graph_function(model.compared_items, input_signature=rows)
        of_clicks = tf.TensorSpec([None, max_history], ids)
        histories = [tf.TensorSpec([None, max_history, None], ids), tf.TensorSpec([None, max_history], tf.bool),
                     of_clicks, of_clicks, of_clicks, tf.TensorSpec([None, query_width(model.query_features)], ids)]
        self._users, self._intents = (
            graph_function(self._of_histories(tower), input_signature=histories)
            for tower in (model.user_vectors, model.user_intents))

    def _of_histories(self, tower):
        """The query tower's `tower`, from item rows in place of item vectors."""
        width = self.model.item_encoder.item_width

        def encode(rows, mask, gaps, dwell, events, query):
            items = self.model.history_vectors(tf.reshape(rows[:, :, :width], [-1, width]))
            items = tf.reshape(items, [-1, self._max_history, self.model.history_width])
            return tower(items, mask, gaps, dwell, events, query)

        return encode

    def item_vectors(self, item_rows: np.ndarray) -> np.ndarray:
        """The candidate tower: item rows [V,C'] with C' ≥ C columns -> g [V,D] float32, not normalized."""
        return self._in_chunks(self._items, item_rows)

    def history_vectors(self, item_rows: np.ndarray) -> np.ndarray:
        """The same, as the query tower reads items."""
        return self._in_chunks(self._history_items, item_rows)

    def _in_chunks(self, encode, item_rows):
        width = self.model.item_encoder.item_width
        chunks = (item_rows[start:start + CHUNK_ITEMS, :width] for start in range(0, len(item_rows), CHUNK_ITEMS))
        return np.concatenate([encode(tf.constant(self._without_cold_ids(rows), tf.int64)).numpy() for rows in chunks])

    def _without_cold_ids(self, rows):
        """Item rows [...,C], those of cold items with the id negative."""
        if not self._cold.any():
            return rows
        ids = rows[..., 0]
        cold = (ids < len(self._cold)) & self._cold[np.minimum(ids, len(self._cold) - 1)]
        return np.concatenate([np.where(cold, -ids, ids)[..., None], rows[..., 1:]], axis=-1) if cold.any() else rows

    def compared_items(self, item_rows: np.ndarray) -> np.ndarray:
        """The same, as compared with user vectors: see `TwoTower.compared_items`."""
        return self._in_chunks(self._compared_items, item_rows)

    def searched(self, users: EvaluationSet, count: int = 0) -> np.ndarray:
        """What rankings compare with items, float32: [U,D] of one vector per user, else [U,K,D], the heaviest first.

        Args:
          users: U users.
          count: K; 0: the model's `served_intents`.

        Raises:
          UserError: users have no vector to search by, see `UserEncoder.refuse_search`.
        """
        self.model.user_encoder.refuse_search("a ranking of the catalogue")
        count = count or self.model.served_intents
        return self.user_intents(users, count)[0] if count > 1 else self.user_vectors(users)

    def scored(self, users: EvaluationSet, count: int = 0) -> np.ndarray:
        """What pairs of users and items are scored by: `searched`, or the slots of a model that is `target_aware`."""
        return self.user_vectors(users) if self.model.target_aware else self.searched(users, count)

    def user_vectors(self, users: EvaluationSet) -> np.ndarray:
        """f(x) [U,D] float32 of every user, the heaviest of several, ready to be compared; slots [U,K,D] of a model
        that is `target_aware`."""
        return np.concatenate([vectors.numpy() for vectors in self._user_chunks(self._users, users)])

    def user_intents(self, users: EvaluationSet, count: Optional[int] = None
                     ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What users are served with, each one's heaviest first.

        Args:
          users: U users.
          count: how many of each are kept, K; None: all H.

        Returns:
          (vectors [U,K,d] float32 ready to be compared, weights [U,K] float32, numbers [U,K] int32 of the intents).
        """
        # Copies, since a slice would keep its whole chunk.
        chunks = zip(*([part[:, :count].copy() for part in chunk] for chunk in self.user_intent_chunks(users)))
        return tuple(map(np.concatenate, chunks))

    def user_intent_chunks(self, users: EvaluationSet) -> Iterator[list[np.ndarray]]:
        """All of `user_intents`, a few users at a time and in their order."""
        for chunk in self._user_chunks(self._intents, users):
            yield [part.numpy() for part in chunk]

    def routing_logits(self, item_rows: np.ndarray) -> np.ndarray:
        """cos(μ_h, c)/ρ of items by a model with intents: item rows [V,C'] with C' ≥ C columns -> [V,H] float32."""
        model = self.model
        return self._in_chunks(lambda rows: model.user_encoder.route(model.item_encoder.categories(rows)), item_rows)

    def _user_chunks(self, encode, users):
        for start in range(0, users.num_users, CHUNK_USERS):
            histories = users.histories(start, min(start + CHUNK_USERS, users.num_users), self._max_history)
            rows = self._without_cold_ids(histories.item_rows)
            query, width = histories.query, query_width(self.model.query_features)
            if query.shape[1] != width:  # the model reads none, or nothing is known of these users
                query = np.zeros((len(rows), width), np.int64)
            yield encode(tf.constant(rows, tf.int64), tf.constant(histories.mask), *(
                tf.constant(part, tf.int64)
                for part in (histories.time_gaps, histories.dwell, histories.events, query)))
