"""Batches of --target_mode=all: windows of successive clicks, each click of which is the target of those before it.

A sequence of n+1 clicks has n targets. They are cut into ⌈n/T⌉ windows, the first of which has a random number of them
in every epoch, so that windows begin elsewhere each time. Windows of similar length make up a batch, since all are
padded to the longest. Letters: W windows of a pool, w of a batch, L the longest of them, N targets of a batch.
"""
import tensorflow as tf

from clrec_tf.data.epoch_plan import EpochPlan
from clrec_tf.data.pools import known_of_clicks

SORTED_TOGETHER = 64  # batches whose windows are sorted by length
FIELDS = ("targets", "sequences", "counts", "begins", "order")


def cut_windows(targets, max_history: int, seed):
    """Where the windows of sequences begin and end.

    Args:
      targets: n [S] int64 of each sequence.
      max_history: T.
      seed: [2] of the first windows' lengths.

    Returns:
      (sequence [W], first [W], count [W]) int64: a window holds the targets first..first+count−1 of its sequence,
      numbered from 0; 1 ≤ count ≤ T. Every target is in one window.
    """
    windows = -(-targets // max_history)
    least = targets - (windows - 1) * max_history  # of the first window: what the others, all of T, leave over
    spare = tf.where(windows > 0, max_history - least, 0)
    draws = tf.random.stateless_uniform(tf.shape(targets), seed, dtype=tf.float64)
    longer = least + tf.cast(draws * tf.cast(spare + 1, tf.float64), tf.int64)
    sequence = tf.repeat(tf.range(tf.size(targets, tf.int64)), windows)
    number = tf.range(tf.size(sequence, tf.int64)) - tf.gather(tf.cumsum(windows, exclusive=True), sequence)
    ends = tf.minimum(tf.gather(longer, sequence) + number * max_history, tf.gather(targets, sequence))
    first = tf.where(number > 0, tf.gather(longer, sequence) + (number - 1) * max_history, 0)
    return sequence, first, ends - first


def pool_windows(pool, numbers, plan: EpochPlan) -> dict:
    """A pool's windows in training order.

    Args:
      pool: from ``pools.parse_pool``.
      numbers: int64 [≥ 2], epoch and index of the pool.
      plan: for batch size and seed.

    Returns:
      dict of int64 `FIELDS`: click index of each window's first `targets` [W], their `sequences` [W] and `counts` [W],
      the `begins` [batches+1] of batches among the windows, and their `order` [batches] of training.
    """
    seed = plan.random_seed(numbers[0], numbers[1])
    sequences, firsts, counts = cut_windows(
        tf.maximum(pool["splits"][1:] - pool["splits"][:-1] - 1, 0), plan.max_history, seed)
    total = tf.reduce_sum(counts)
    batches = tf.maximum(total // plan.least_targets, tf.minimum(total, 1))  # `EpochPlan.batches` of a tensor
    # The i-th of `parts` equal shares of all targets that a window begins in.
    share = lambda counts, parts: tf.cumsum(counts, exclusive=True) * parts // tf.maximum(total, 1)
    order = tf.random.experimental.stateless_shuffle(tf.range(tf.size(counts)), seed)
    # Whole batches are sorted together, or one would hold the longest windows of some and the shortest of others.
    groups = tf.maximum(batches // SORTED_TOGETHER, 1)
    together = share(tf.gather(counts, order), batches) * groups // tf.maximum(batches, 1)
    order = tf.gather(order, tf.argsort(together * (plan.max_history + 1) + tf.gather(counts, order), stable=True))
    sequences, firsts, counts = (tf.gather(part, order) for part in (sequences, firsts, counts))
    begins = tf.searchsorted(share(counts, batches), tf.range(batches + 1), out_type=tf.int64)
    return dict(targets=tf.gather(pool["splits"], sequences) + 1 + firsts, sequences=sequences, counts=counts,
                begins=begins, order=tf.random.experimental.stateless_shuffle(tf.range(batches), seed + 1))


def windows_batch(pool, windows, batch_index) -> dict:
    """One batch of windows, as documented in ``models/batches``: histories [w,L], targets [N]."""
    number = windows["order"][batch_index]
    chosen = tf.range(windows["begins"][number], windows["begins"][number + 1])
    targets, sequences, counts = (tf.gather(windows[name], chosen) for name in ("targets", "sequences", "counts"))
    mask = tf.sequence_mask(counts)
    clicks = tf.where(mask, targets[:, None] - 1 + tf.range(tf.shape(mask, tf.int64)[1]), 0)
    of_targets = lambda name: tf.repeat(tf.gather(pool[name], sequences), counts)
    following = tf.boolean_mask(clicks, mask) + 1
    return {
        "history": tf.where(mask[:, :, None], tf.gather(pool["rows"], clicks), 0), "length": counts,
        "row": tf.squeeze(tf.where(tf.reshape(mask, [-1])), axis=1),
        "target": tf.gather(pool["rows"], following),
        "user_id": of_targets("user_id"),
        "weight": tf.gather(pool["weight"], following),
        **known_of_clicks(pool, clicks, mask, tf.where(mask, clicks + 1, 0), tf.repeat(sequences, counts), following)}
