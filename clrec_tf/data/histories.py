"""A user's history: cut to the last T clicks, with seconds between click and request. NumPy and TensorFlow alike.

Functions take `ops`, numpy or tensorflow, by what their arrays are. Letters: B users, L clicks of a padded history, T.
"""
import numpy as np
import tensorflow as tf

UNKNOWN_GAP = -1  # seconds; marks a missing time stamp
UNKNOWN_DWELL = -1  # seconds; marks a missing dwell time


def last_clicks(begins, ends, max_history: int, ops=np):
    """Where the last T clicks of each user stand in a flat array, oldest first, padded at the right.

    Args:
      begins, ends: [B] int64; a user's clicks are those at begin..end-1.
      max_history: T.
      ops: see above.

    Returns:
      (places [B,T] int64, 0 at padding; mask [B,T] bool, True where there is a click).
    """
    first = ops.maximum(begins, ends - max_history)
    places = first[:, None] + np.arange(max_history)
    mask = places < ends[:, None]
    return ops.where(mask, places, 0), mask


def last_known(known: np.ndarray, max_history: int) -> np.ndarray:
    """Of one user's clicks, known [L] bool: places of the last T known ones, [at most T]."""
    return np.flatnonzero(known)[-max_history:]


def last_known_values(values: tf.Tensor, known: tf.Tensor, max_history: int, padding: int) -> tf.Tensor:
    """Of each user's padded clicks, the last T known ones: values [B,L], known [B,L] bool -> [B,T], padding last."""
    latest = tf.ragged.boolean_mask(values, known)[:, -max_history:]
    return latest.to_tensor(padding, shape=[None, max_history])


def time_gaps(requests, clicks, mask, ops=np):
    """Δ = t_request − t_click in seconds, not below 0.

    Args:
      requests: [B,1] int64, seconds, or [B,T], for each click another; ≤ 0 where unknown.
      clicks: [B,T] int64, likewise.
      mask: [B,T] bool, True where there is a click.
      ops: see above.

    Returns:
      [B,T] int64, `UNKNOWN_GAP` at padding and where either time is unknown.
    """
    return ops.where(mask & (requests > 0) & (clicks > 0), ops.maximum(requests - clicks, 0), UNKNOWN_GAP)


def gaps_to_next(gaps: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Seconds from each click to the one after it, from the last to the request: of `time_gaps` [B,T] and the mask.

    With them nothing said of a click depends on clicks after the next one, so that all positions of a window can be
    encoded at once.
    """
    follows = tf.concat([mask[:, 1:], tf.zeros_like(mask[:, :1])], axis=1)
    later = tf.concat([gaps[:, 1:], tf.zeros_like(gaps[:, :1])], axis=1)
    later = tf.where(follows, later, 0)
    known = mask & (gaps != UNKNOWN_GAP) & (later != UNKNOWN_GAP)
    return tf.where(known, tf.maximum(gaps - later, 0), UNKNOWN_GAP)


def dwell_times(dwell, mask, ops=np):
    """Seconds that users stayed, dwell [B,T] int64 (< 0: unknown): `UNKNOWN_DWELL` where unknown and at padding."""
    return ops.where(mask & (dwell >= 0), dwell, UNKNOWN_DWELL)
