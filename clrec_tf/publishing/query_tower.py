"""The query tower within an exported graph: from original ids, or rows of the item matrix, to users' vectors."""
import tensorflow as tf

from clrec_tf.data import histories
from clrec_tf.publishing.graph_checks import checked_between
from clrec_tf.publishing.graph_checks import one_each
from clrec_tf.publishing.graph_checks import same_shape
from clrec_tf.publishing.query_inputs import QueryInputs
from clrec_tf.publishing.tower_parts import TowerParts


class QueryTower(tf.Module):
    """The query tower f over an item matrix.

    Args:
      parts: see there.
      ids_file: of the parts; must exist until an asset has been made of it.
    """

    def __init__(self, parts: TowerParts, ids_file: str):
        super().__init__(name="user_tower")
        model, candidates = parts.model, parts.candidates
        # A method, not the model: what is tracked is saved, and the item tables must stay behind.
        self._user_intents = model.user_intents
        self.encoder_variables = model.query_variables
        self.uses_time, self.uses_dwell, self.num_intents = model.uses_time, model.uses_dwell, model.num_intents
        self.max_history, self.id_type = parts.max_history, parts.id_type
        self.uses_events, self._knows_strangers = bool(parts.query.events), model.knows_strangers
        self._popularity_range, self.query = parts.popularity_range, QueryInputs(parts.query)
        self.checkpoint_hash = tf.Variable(parts.checkpoint_hash, trainable=False, name="checkpoint_hash")
        self.items = tf.Variable(candidates.items, trainable=False, name="items")
        self.table = tf.lookup.StaticHashTable(
            tf.lookup.TextFileInitializer(
                ids_file, tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER,
                vocab_size=len(candidates.items)), default_value=-1)

    def positions(self, ids):
        """Original ids of any shape -> int64 row of each in the item matrix; −1 where unknown."""
        return self.table.lookup(tf.strings.as_string(ids) if self.id_type == "int" else ids)

    def encode_users(self, history, popularity, timestamps=None, request_time=None, dwell=None, events=None, **beside):
        """All intents of users, the heaviest first.

        Args:
          history: [B,L] ids.
          popularity: [B] float32, α.
          timestamps, request_time, dwell: [B,L], [B] and [B,L] seconds, where the model uses them.
          events: string [B,L], where the model uses behaviours.
          **beside: features of users and requests by name.

        Returns:
          (vectors [B,H,d+1], weights [B,H], numbers [B,H] int32).
        """
        positions = self.positions(history)
        known = positions >= 0
        # The width is T whatever L is, so a result cannot depend on how far a batch was padded.
        recent = lambda values, padding: histories.last_known_values(values, known, self.max_history, padding)
        times = {}
        if self.uses_time:
            times = dict(request_time=one_each(request_time, history, "request_time"),
                         timestamps=recent(same_shape(history, timestamps, "timestamps"), 0))
        if self.uses_dwell:
            times["dwell"] = recent(same_shape(history, dwell, "dwell"), histories.UNKNOWN_DWELL)
        if self.uses_events:
            times["events"] = recent(self.query.events(same_shape(history, events, "events")), 0)
        if self.query.specs():
            times["query"] = self.query.rows(history, beside)
        popularity = checked_between(popularity, history, "popularity", *self._popularity_range)
        return self.encode_recent(recent(positions, -1), popularity, **times)

    def encode_recent(self, positions, popularity, timestamps=None, request_time=None, dwell=None, events=None,
                      query=None, inserted=None):
        """All intents of users whose latest known clicks are already rows of the item matrix, which saves most ops.

        Args:
          positions: int64 [B,T], −1 for padding, which stands at the end.
          popularity: [B] float32, α, not checked.
          timestamps, request_time, dwell: [B,T], [B] and [B,T] seconds, where the model uses them.
          events: int64 [B,T] and query: [B,W], numbers as `QueryValues` has them, likewise.
          inserted: float32 [M,history_width], M > 0, or None: rows of further items, at the positions V, V + 1, ….

        Returns:
          As `encode_users`.
        """
        mask = positions >= 0
        items = self._rows(positions, inserted) * tf.cast(mask, tf.float32)[:, :, None]
        gaps = None
        if self.uses_time:
            gaps = histories.time_gaps(request_time[:, None], timestamps, mask, tf)
        if self.uses_dwell:
            dwell = histories.dwell_times(dwell, mask, tf)
        vectors, weights, numbers = self._user_intents(items, mask, gaps, dwell, events, query)
        known = tf.reduce_any(mask, axis=1, keepdims=True)
        if self._knows_strangers:
            known |= tf.reduce_any(query > 0, axis=1, keepdims=True)
        last = tf.ones_like(weights) * popularity[:, None]
        vectors = tf.concat([vectors, last[:, :, None]], axis=2)
        return (tf.where(known[:, :, None], vectors, tf.zeros_like(vectors)),
                tf.where(known, weights, tf.fill(tf.shape(weights), 1 / self.num_intents)),
                tf.where(known, numbers, tf.range(self.num_intents)[None]))

    def _rows(self, positions, inserted):
        """Rows of the item matrix, with those of `inserted` behind it: [B,T] -> [B,T,history_width]."""
        if inserted is None:
            return tf.gather(self.items, tf.maximum(positions, 0))
        beyond = positions - self.items.shape[0]
        own = tf.gather(self.items, tf.where(beyond < 0, tf.maximum(positions, 0), 0))
        return tf.where((beyond < 0)[:, :, None], own, tf.gather(inserted, tf.maximum(beyond, 0)))
