"""What a click adds to its item on the user side: when it was (time bucket), where it stood (position), what it was
(behaviour)."""
import tensorflow as tf
import tf_keras

from clrec_tf.data.histories import UNKNOWN_GAP
from clrec_tf.encoders import embeddings

BOUNDARIES = {
    "minutes": tuple(60 * m for m in (5, 10, 15, 30, 60, 120, 240, 480, 960, 1920, 3840)),  # seconds; 12 buckets
    "log2": tuple(2 ** i for i in range(31)),  # 0 below 1 s, else 1 + floor(log2 Δ), capped at 31
}


def time_bucket(gap: tf.Tensor, boundaries) -> tf.Tensor:
    """Number of boundaries ≤ Δ (paper, "Time Bucket Embedding").

    Args:
      gap: [...] int64 seconds; `UNKNOWN_GAP` marks a missing time stamp.
      boundaries: ascending seconds, such as `BOUNDARIES["minutes"]`.

    Returns:
      [...] int64 in [0, len(boundaries) + 1]; the last is the bucket of unknown gaps.
    """
    boundaries = tf.constant(boundaries, tf.int64)
    bucket = tf.searchsorted(boundaries, tf.reshape(gap, [-1]), side="right", out_type=tf.int64)
    return tf.where(gap == UNKNOWN_GAP, tf.size(boundaries, out_type=tf.int64) + 1, tf.reshape(bucket, tf.shape(gap)))


def positions(mask: tf.Tensor, kind: str) -> tf.Tensor:
    """Position of each click, whichever side the padding is on (paper, "Backward Positional Embedding").

    backward: the earliest kept click is 0, the latest has the highest index. forward: the latest click is 0.

    Args:
      mask: [B,T] bool, True at clicks, oldest first.
      kind: "backward" or "forward".

    Returns:
      [B,T] int64; 0 at padding.
    """
    valid = tf.cast(mask, tf.int64)
    backward = tf.cumsum(valid, axis=1) - 1
    position = backward if kind == "backward" else tf.reduce_sum(valid, axis=1, keepdims=True) - 1 - backward
    return position * valid


class ClickEncoder(tf_keras.layers.Layer):
    """X_t = g(y_t) + E_time[b_t] + E_pos[p_t] + E_event[e_t], the last an extension of the paper.

    Args:
      dim: d.
      max_history: T, rows of the position table.
      position: "backward", "forward" or "none".
      boundaries: of the time buckets, ascending seconds; empty: no time.
      seed: of the initial values.
      event_kinds: behaviours told apart; 0: none.
    """

    def __init__(self, dim, max_history, position, boundaries, seed, event_kinds=0):
        super().__init__(name="click_encoder")
        self.position, self.boundaries = position, tuple(boundaries)
        table = lambda rows, offset, name: embeddings.EmbeddingTable(rows, dim, dim, False, seed + offset, name=name)
        self.position_table = None if position == "none" else table(max_history, 0, "positions")
        self.time_table = table(len(self.boundaries) + 2, 1, "time_buckets") if self.boundaries else None
        self.event_table = None
        if event_kinds:
            self.event_table = embeddings.EmbeddingTable(event_kinds + 1, dim, dim, True, seed + 2, name="events")

    def call(self, items, mask, gaps=None, events=None):
        """X [B,T,d] of items [B,T,d], mask [B,T] bool (padding last), gaps [B,T] int64 seconds (None: unknown), and
        events [B,T] int64, numbers of behaviours (None: no click has one)."""
        tf.debugging.assert_shapes([(items, "BTD"), (mask, "BT")])
        clicks = items
        if self.position == "backward":
            # Padding stands at the end, so the t-th click of every row has position t.
            clicks += self._first_positions(mask)
        elif self.position == "forward":
            clicks += self.position_table(positions(mask, self.position))
        if self.time_table is not None:
            clicks += self.time_table(self._buckets(mask, gaps))
        if self.event_table is not None and events is not None:
            clicks += self.event_table(events)
        return clicks

    def sums(self, item_sums, mask, gaps=None, events=None):
        """What `call` gives, summed over each user's clicks: Σ_t g(y_t) [B,d], mask, gaps, events -> Σ_t X_t [B,d].

        Products with counts of positions and buckets, whose cost does not grow with d for every click.
        """
        tf.debugging.assert_shapes([(item_sums, "BD"), (mask, "BT")])
        sums, valid = item_sums, tf.cast(mask, item_sums.dtype)
        if self.position_table is not None:  # forward or backward, n clicks have the positions 0..n-1
            sums += tf.matmul(valid, self._first_positions(mask))
        if self.time_table is not None:
            sums += _counted(self.time_table, self._buckets(mask, gaps), len(self.boundaries) + 2, valid)
        if self.event_table is not None and events is not None:
            sums += _counted(self.event_table, events, self.event_table.table.shape[0], valid)
        return sums

    def _first_positions(self, mask):
        """Rows [T,d] of the position table, zeros beyond the longest history: what no click uses, no step may move."""
        longest = tf.reduce_max(tf.reduce_sum(tf.cast(mask, tf.int32), axis=1))
        rows = self.position_table.rows_of(tf.range(longest))
        length = mask.shape[1] or tf.shape(mask)[1]  # known, but of windows
        return tf.ensure_shape(tf.pad(rows, [[0, length - longest], [0, 0]]), [mask.shape[1], None])

    def _buckets(self, mask, gaps):
        gaps = tf.fill(tf.shape(mask), tf.constant(UNKNOWN_GAP, tf.int64)) if gaps is None else gaps
        return time_bucket(gaps, self.boundaries)


def _counted(table, places, rows, valid):
    """Σ_t of a table's rows at places [B,T], of clicks alone (valid [B,T] 0 or 1): [B,d]."""
    counts = tf.reduce_sum(tf.one_hot(places, rows) * valid[:, :, None], axis=1)
    used = tf.squeeze(tf.where(tf.reduce_any(counts > 0, axis=0)), axis=1)
    return tf.matmul(tf.gather(counts, used, axis=1), table.rows_of(used))
