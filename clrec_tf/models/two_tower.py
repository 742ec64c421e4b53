"""The contract of two towers that share the item encoder, and what all of them do alike.

Batches and their letters: see ``batches``.
"""
import tensorflow as tf
import tf_keras

from clrec_tf.encoders.base import NoSettings
from clrec_tf.encoders.items import distinct_rows
from clrec_tf.encoders.items import with_hidden_ids
from clrec_tf.encoders.query import hidden_histories
from clrec_tf.losses.contrastive import l2_normalize
from clrec_tf.models.batches import as_histories
from clrec_tf.models.encoded import Encoded
from clrec_tf.models.tower_facts import TowerFacts


class TwoTower(TowerFacts, tf_keras.Model):
    """The candidate tower g, the query tower f, and the score φ between them; registered by `TOWERS.register(name)`.

    Args:
      item_encoder: rows [N,C] -> [N, history_width], of which the first `item_encoder.dim` numbers are g.
      click_encoder: g, mask, gaps -> X, see ``encoders/clicks``; None where the user encoder does that too.
      user_encoder: see ``encoders/base``.
      similarity: "cosine" or "dot".
      temperature: ρ.

    Attributes:
      candidate_features: whether the candidate tower reads item features; the query tower always does. Without, the
        candidate tower is the id table alone.
      id_dropout: share of items whose id a training step does not see.
      history_dropout: share of examples whose history a training step does not see.
    """

    Settings = NoSettings
    summary = ""  # a phrase for --help
    candidate_features = True

    def __init__(self, item_encoder, click_encoder, user_encoder, similarity, temperature, name):
        super().__init__(name=name)
        # In this order, by which checkpoints number the optimizer's slots.
        self.item_encoder, self.click_encoder, self.user_encoder = item_encoder, click_encoder, user_encoder
        self.similarity, self.temperature = similarity, temperature
        self.id_dropout, self.history_dropout = 0.0, 0.0

    @classmethod
    def encoder_name(cls, settings) -> str:
        """The user encoder's name in `ENCODERS`."""
        raise NotImplementedError

    @classmethod
    def make(cls, inputs) -> "TwoTower":
        """A freshly initialised model from ``build.TowerInputs``; `UserError` where settings and data do not agree."""
        raise NotImplementedError

    def score_vectors(self, vectors):
        """What is compared: l2(v) for the cosine, v for the dot product. [...,D] -> [...,D]."""
        return l2_normalize(vectors) if self.similarity == "cosine" else vectors

    def compared_items(self, rows):
        """Items as users' vectors are compared with them: rows [N,C] -> [N,D + `intent_coordinates`]."""
        return self.score_vectors(self.item_vectors(rows))

    def candidate_vectors(self, items):
        """Candidates of a loss, from what the query tower reads of items: [N,history_width] -> [N,D]."""
        return self.score_vectors(items[:, :self.item_encoder.dim])

    def item_vectors(self, rows):
        """The candidate tower: item rows [N,C] -> g [N,D], not normalized."""
        raise NotImplementedError

    def history_vectors(self, rows):
        """Items as the query tower reads them: rows [N,C] -> [N,history_width]."""
        return self.item_encoder(rows)

    def user_intents(self, items, mask, gaps=None, dwell=None, events=None, query=None):
        """The vectors that users are served with, the heaviest first.

        Args:
          items: [B,T,history_width], from `history_vectors`.
          mask: [B,T] bool.
          gaps, dwell: [B,T] int64 seconds, −1 = unknown; None: all unknown.
          events: [B,T] int64, numbers of behaviours, 0 = none; None: none is known.
          query: [B,W] int64, query rows; None: nothing is known.

        Returns:
          (vectors [B,H,D + `intent_coordinates`] ready to be compared, weights [B,H] of sum 1, int32 numbers [B,H]).
        """
        raise NotImplementedError

    def user_vectors(self, items, mask, gaps=None, dwell=None, events=None, query=None):
        """f(x) [B,D], the heaviest of `user_intents`, ready to be compared."""
        return self.user_intents(items, mask, gaps, dwell, events, query)[0][:, 0]

    def hidden_histories(self, count, batch, training):
        """Which of `count` examples a step sees no clicks of, [count] bool."""
        share = self.history_dropout if training else 0.0
        return hidden_histories(count, share, batch["seed"]) if share else tf.zeros([count], tf.bool)

    def for_targets(self, users, targets):
        """What of users is trained with their targets: of what `_encode_rows` gives, and g(y) [B,D] -> [B,D]."""
        del targets
        return users

    def auxiliary_losses(self, encoded, batch):
        """What the model adds to the loss of each row, whatever the loss: [B], or a scalar for all rows."""
        del encoded, batch
        return 0.0

    def call(self, batch):
        """The query tower on a batch: -> f(x) [B,D]."""
        return self.encode(batch).users

    def encode(self, batch, candidate_rows=None, training=False) -> Encoded:
        """Encodes history, targets and further candidates (of a raw queue, or sampled), each distinct item once.

        Args:
          batch: see ``batches``.
          candidate_rows: [N,C] int64 item rows, or None.
          training: whether a training step asks (dropout).
        """
        target, histories = batch["target"], [batch, as_histories(batch)] if "after" in batch else [batch]
        clicks = [tf.reshape(each["history"], [-1, target.shape[1]]) for each in histories]
        candidates = [target] if candidate_rows is None else [candidate_rows, target]
        # The candidates come first, so their distinct items are the first of all distinct ones.
        distinct, inverse = distinct_rows(tf.concat(candidates + clicks, axis=0))
        of_targets, *of_clicks = _parted(inverse, candidates + clicks)[len(candidates) - 1:]
        if self.candidate_features:
            hiding = training and self.id_dropout
            items = self._history_items(with_hidden_ids(distinct, hiding, batch["seed"]) if hiding else distinct)
            places = tf.concat([of_targets, of_clicks[0]], axis=0)
            targets, users, beside = self._encode_rows(items, places, batch, training)
            after = self._encode_users(items, of_clicks[1:], histories[1:], training)
        else:
            items = self.item_encoder.ids.rows_of(distinct[:, 0])  # once for both towers
            targets = tf.gather(items, of_targets)
            clicked, places = tf.unique(tf.concat(of_clicks, axis=0))
            read = self._history_items(tf.gather(distinct, clicked), tf.gather(items, clicked))
            (users, beside), *after = self._encode_users(read, _parted(places, clicks), histories, training)
        positives, after = self.score_vectors(targets), after[0][0] if after else None
        users = self.for_targets(users, positives)
        if candidate_rows is None:
            return Encoded(users, positives, beside=beside, after=after)
        queued = inverse[:tf.shape(candidate_rows)[0]]
        _, _, counts = tf.unique_with_counts(queued)
        # Cut in two steps, which keeps the width known.
        vectors = self.candidate_vectors(items[:tf.size(counts)])
        return Encoded(users, positives, vectors, distinct[:tf.size(counts), 0], counts, queued, beside, after)

    def _history_items(self, rows, ids=None):
        """Items as the query tower reads them: distinct rows [U,C] -> [U,history_width].

        `ids` [U,D]: what the id table has of them, where that was looked up already.
        """
        del ids  # all of `candidate_features` look up here alone
        return self.item_encoder(rows)

    def _encode_users(self, items, places, batches, training):
        """(users f(x) [B,D], `Encoded.beside`) of each batch alone: distinct items [U,history_width], places [B·T] of
        its clicks in them."""
        return [self._encode_rows(items, tf.concat([tf.zeros(tf.shape(batch["target"])[:1], tf.int32), of_clicks], 0),
                                  batch, training)[1:] for batch, of_clicks in zip(batches, places)]

    def _encode_rows(self, items, places, batch, training):
        """From distinct items to both towers' vectors.

        Args:
          items: [U,history_width].
          places: [B+B·T], of windows [N+w·L], int32, where targets and clicks are among them.
          batch: see ``batches``.
          training: see `encode`.

        Returns:
          (targets g(y) [B,D], users ready to be compared: f(x) [B,D], slots [B,K,D] or what `for_targets` takes;
          `Encoded.beside`).
        """
        raise NotImplementedError


def _parted(values, rows):
    """Values [N] of joined rows, by the parts [n,C] that were joined."""
    return tf.split(values, [tf.shape(part)[0] for part in rows])
