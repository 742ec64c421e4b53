"""TFRecords to batches. Records are parsed a pool at a time and cut into windows with gathers: no Python, no
per-example work. What comes out is a pure function of the plan and the seed (see ``epoch_plan``)."""
import numpy as np
import tensorflow as tf

from clrec_tf.data.epoch_plan import EpochPlan
from clrec_tf.data.epoch_plan import Pool
from clrec_tf.data.fetched_pools import FetchedPools
from clrec_tf.data import histories
from clrec_tf.data.pools import known_of_clicks
from clrec_tf.data.pools import read_pool
from clrec_tf.data import schema as schema_lib
from clrec_tf.data import windows
from clrec_tf.system.graphs import traced


def target_clicks(splits, target_mode: str):
    """Where a pool's targets are.

    Args:
      splits: [n+1] int64, begin and end of each sequence among the clicks.
      target_mode: "last" or "sliding".

    Returns:
      (target [W], sequence [W]) int64: click index and sequence of each example, in reading order. In mode "last" a
      sequence of one click gives an example without history (its weight becomes 0).
    """
    sequence = tf.ragged.row_splits_to_segment_ids(splits, out_type=tf.int64)
    if target_mode == "last":
        count = tf.size(splits, tf.int64) - 1
        return splits[1:] - 1, tf.range(count)
    clicks = tf.range(tf.size(sequence, tf.int64))
    follows = clicks > tf.gather(splits[:-1], sequence)
    return tf.boolean_mask(clicks, follows), tf.boolean_mask(sequence, follows)


def window_batch(pool, targets, sequences, valid, max_history: int):
    """The examples whose targets are at `targets`.

    Args:
      pool: from `pools.parse_pool`.
      targets: [B] int64 click index of each target.
      sequences: [B] int64 sequence of each target.
      valid: [B] bool, False for rows that pad the batch.
      max_history: T.

    Returns:
      A batch as documented in ``models/batches``.
    """
    begin = tf.gather(pool["splits"], sequences)
    length = tf.minimum(targets - begin, max_history)
    clicks, mask = histories.last_clicks(begin, targets, max_history, tf)
    return {
        "history": tf.where(mask[:, :, None], tf.gather(pool["rows"], clicks), 0),
        "length": length,
        "target": tf.gather(pool["rows"], targets),
        "user_id": tf.gather(pool["user_id"], sequences),
        "weight": tf.where(valid & (length > 0), tf.gather(pool["weight"], targets), 0.0),
        **known_of_clicks(pool, clicks, mask, targets[:, None], sequences, targets)}


def clicks_after(pool, targets, sequences, most: int) -> dict:
    """What follows the histories of examples: the target and the clicks behind it, the first `most` of them.

    Args:
      pool: from `pools.parse_pool`.
      targets, sequences: [B] int64, click index and sequence of each target.
      most: A.

    Returns:
      `after` [B,A,C], `after_length` [B], and of what the pool knows `after_gap`, seconds before the last of these
      clicks, `after_dwell` and `after_event` [B,A], as in ``models/batches``.
    """
    ends = tf.minimum(tf.gather(pool["splits"], sequences + 1), targets + most)
    clicks, mask = histories.last_clicks(targets, ends, most, tf)
    known = known_of_clicks(pool, clicks, mask, ends[:, None] - 1, sequences, targets)
    names = dict(time_gap="after_gap", dwell="after_dwell", event="after_event")
    return {"after": tf.where(mask[:, :, None], tf.gather(pool["rows"], clicks), 0), "after_length": ends - targets,
            **{names[name]: value for name, value in known.items() if name in names}}


def _drop_times(batch, rate, seed):
    """Some examples lose their time stamps and dwell times, so that what stands for unknown ones is trained too."""
    timed = {"time_gap": histories.UNKNOWN_GAP, "dwell": histories.UNKNOWN_DWELL}
    timed |= {"after_gap": histories.UNKNOWN_GAP, "after_dwell": histories.UNKNOWN_DWELL}
    timed = {name: unknown for name, unknown in timed.items() if name in batch}
    if timed and rate > 0:
        dropped = tf.random.stateless_uniform(tf.shape(batch["length"]), seed) < rate
        for name, unknown in timed.items():
            batch[name] = tf.where(dropped[:, None], tf.constant(unknown, tf.int64), batch[name])
    return batch


def example_fields(target_mode: str) -> tuple[str, ...]:
    """Names of what `pool_examples` gives."""
    return windows.FIELDS if target_mode == "all" else ("targets", "sequences")


def pool_examples(pool, numbers, plan: EpochPlan) -> dict:
    """A pool's examples in training order.

    Args:
      pool: from `pools.parse_pool`.
      numbers: int64 [≥ 2], epoch and index of the pool.
      plan: for mode and seed.

    Returns:
      dict of int64 `example_fields`: targets [W] and sequences [W], see `target_clicks`; or see `windows.pool_windows`.
    """
    if plan.target_mode == "all":
        return windows.pool_windows(pool, numbers, plan)
    targets, sequences = target_clicks(pool["splits"], plan.target_mode)
    order = tf.random.experimental.stateless_shuffle(
        tf.range(tf.size(targets, tf.int64)), plan.random_seed(numbers[0], numbers[1]))
    return dict(targets=tf.gather(targets, order), sequences=tf.gather(sequences, order))


def pool_batch(pool, examples, numbers, batch_index, plan: EpochPlan, max_history: int, time_dropout: float):
    """One batch of a pool: its rows are a function of the pool and the index.

    Args:
      pool: from `pools.parse_pool`.
      examples: from `pool_examples`.
      numbers: int64 [≥ 2], epoch and index of the pool.
      batch_index: scalar int64.
      plan: for mode, batch size and seed.
      max_history: T.
      time_dropout: share of examples, or of windows, whose time stamps and dwell times are hidden.

    Returns:
      A batch as documented in ``models/batches``.
    """
    if plan.target_mode == "all":
        batch = windows.windows_batch(pool, examples, batch_index)
    else:
        at = batch_index * plan.batch_size + tf.range(plan.batch_size, dtype=tf.int64)
        valid = at < tf.size(examples["targets"], tf.int64)
        chosen = tf.where(valid, at, 0)
        targets, sequences = tf.gather(examples["targets"], chosen), tf.gather(examples["sequences"], chosen)
        batch = window_batch(pool, targets, sequences, valid, max_history)
        if plan.clicks_after:
            batch |= clicks_after(pool, targets, sequences, plan.clicks_after)
    batch["seed"] = plan.random_seed(numbers[0], numbers[1] * 10_000_019 + batch_index + 1)
    return _drop_times(batch, time_dropout, batch["seed"])


def training_dataset(data_dir: str, schema: schema_lib.Schema, manifest: schema_lib.Manifest, plan: EpochPlan,
                     pools: list[Pool], max_history: int, time_dropout: float = 0.0) -> tf.data.Dataset:
    """The batches of pools, in their order.

    Args:
      data_dir: folder of the data set.
      schema: its facts.
      manifest: its files.
      plan: order and cut of the examples.
      pools: of the plan, such as `Assignments.remaining()`; each from its `first_batch` on.
      max_history: T.
      time_dropout: share of examples whose time stamps and dwell times are hidden.
    """
    files, fetched = tf.constant(manifest.paths(data_dir, "train")), FetchedPools(data_dir)
    shards = np.full((len(pools), max((len(pool.shards) for pool in pools), default=0)), -1, np.int64)
    for row, pool in zip(shards, pools):
        row[:len(pool.shards)] = pool.shards
    numbers = [[pool.epoch, pool.index, pool.records, pool.first_batch, pool.batches] for pool in pools]
    numbers = np.array(numbers, np.int64).reshape(-1, 5)

    def read(shards, numbers):
        pool_files = fetched.files(tf.gather(files, tf.boolean_mask(shards, shards >= 0)))
        return read_pool(pool_files, numbers[2], schema).map(lambda pool: (pool, numbers))

    def batches(pool, numbers):
        examples = pool_examples(pool, numbers, plan)

        def cut(batch_index):
            return pool_batch(pool, examples, numbers, batch_index, plan, max_history, time_dropout)

        return tf.data.Dataset.range(numbers[3], numbers[4]).map(cut, num_parallel_calls=2, deterministic=True)

    # The next pool is read while this one is cut.
    dataset = tf.data.Dataset.from_tensor_slices((shards, numbers)).flat_map(traced(read)).prefetch(1)
    dataset = dataset.flat_map(traced(batches))
    options = tf.data.Options()
    options.autotune.enabled = False  # its budget of all cores would fight with the training step
    options.threading.private_threadpool_size = 2
    return dataset.prefetch(4).with_options(options)
