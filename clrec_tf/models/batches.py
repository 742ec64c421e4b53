"""What a batch is: a dict of tensors, and the clicks after the histories of those that bring them.

Of histories and their targets (see ``data/input_pipeline``)::

    history  [B,T,C] int64  item rows, oldest first, padding at the end
    length   [B]     int64  clicks in the history
    target   [B,C]   int64  item row of the clicked item
    user_id  [B]     int64
    weight   [B]     float32  importance; 0 = the row does not count and does not enter the queue
    time_gap [B,T]   int64  seconds before the target, −1 = unknown (only for data with time stamps)
    dwell    [B,T]   int64  seconds that the user stayed, −1 = unknown (for models that read them)
    event    [B,T]   int64  number of the behaviour, 0 = none (only for data with --event_weights)
    query    [B,W]   int64  query row of the request (only for data with features of users or requests)
    seed     [2]     int64  of the step's random numbers (dropout); absent outside of training

Batches of --target_mode=all (see ``data/windows``) have w histories of at most L clicks, and N targets in them: history
[w,L,C], length [w], time_gap (to the click after), dwell and event [w,L], but target [N,C], query [N,W], user_id and
weight [N], and one thing more::

    row      [N]     int64  the position among w·L, row by row, that each target follows

Batches of --pretext=u2u have besides what the user clicked from the target on::

    after        [B,A,C] int64  item rows of the target and of the clicks behind it, padding at the end
    after_length [B]     int64  how many
    after_gap    [B,A]   int64  seconds before the last of them, −1 = unknown (only for data with time stamps)
    after_dwell  [B,A]   int64  seconds that the user stayed, −1 = unknown (for models that read them)
    after_event  [B,A]   int64  number of the behaviour, 0 = none (only for data with --event_weights)
"""
import tensorflow as tf

AFTER = 32_452_843  # added to a step's seed: draws for the clicks after are not those for the history
_NAMES = dict(after="history", after_length="length", after_gap="time_gap", after_dwell="dwell", after_event="event")


def as_histories(batch: dict) -> dict:
    """The clicks after as the histories of a batch [B,A,·] without targets.

    Nothing else is known of their users: features of users and requests would tell whose they are without any click.
    """
    histories = {name: batch[after] for after, name in _NAMES.items() if after in batch}
    histories["target"] = tf.zeros_like(batch["after"][:, 0])
    if "query" in batch:
        histories["query"] = tf.zeros_like(batch["query"])
    if "seed" in batch:
        histories["seed"] = batch["seed"] + tf.constant([AFTER, 0], tf.int64)
    return histories


def without_after(batch: dict) -> dict:
    """The batch without its clicks after."""
    return {name: value for name, value in batch.items() if name not in _NAMES}
