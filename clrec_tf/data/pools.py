"""The sequences of a pool of shards, flat, as training keeps them: parsed at once and checked against the manifest."""
import tensorflow as tf

from clrec_tf.data import histories
from clrec_tf.data import query_features
from clrec_tf.data import schema as schema_lib
from clrec_tf.system.graphs import traced


def per_click(schema: schema_lib.Schema) -> list[str]:
    """Names of what the data holds once per click, besides the item row."""
    return ["timestamp"] * schema.has_timestamps + ["dwell"] * schema.has_dwell + ["event"] * bool(schema.event_weights)


def example_spec(schema: schema_lib.Schema) -> dict:
    """Parsing spec of sequence Examples; every list is ragged."""
    ints = ["user_id", "target_count", "item_id"]
    ints += [feature.key for feature in (*schema.features, *schema.query_features)]
    ints += per_click(schema)
    spec = {name: tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.int64) for name in ints}
    return {**spec, "weight": tf.io.RaggedFeature(tf.float32, row_splits_dtype=tf.int64)}


def _check(condition, message, files):
    return tf.debugging.Assert(tf.reduce_all(condition), [f"damaged training data: {message}; shards:", files], 20)


def parse_pool(serialized, expected, files, schema: schema_lib.Schema) -> dict:
    """All sequences of a pool, flat.

    Args:
      serialized: [n] string, serialized Examples.
      expected: scalar int64, records that the manifest promises.
      files: [G] string, for error messages.
      schema: facts of the data.

    Returns:
      dict of `rows` [E,C] int64 item rows of all clicks, `splits` [n+1] int64 where sequences begin and end,
      `user_id` [n], `weight` [E], of each click as a target, and if the data has them `timestamp`, `dwell` and `event`
      [E], and of query rows `profile` [n,·], the users' columns, and `context` [E,·], the requests'.

    Raises:
      tf.errors.InvalidArgumentError: (when run) counts, lengths or ids do not agree with manifest and schema.
    """
    with tf.control_dependencies([_check(tf.size(serialized, tf.int64) == expected, "a file ends early or late, the "
                                         "records read differ from the manifest's", files)]):
        parsed = tf.io.parse_example(serialized, example_spec(schema))
    items = parsed["item_id"]
    lengths = items.row_lengths()
    checks = [_check(parsed[name].row_lengths() == 1, f"{name} is not one value in every record", files)
              for name in ("user_id", "weight")]
    checks.append(_check((items.values >= 1) & (items.values < schema.item_rows),
                         f"an item_id is outside 1..{schema.item_rows - 1}", files))
    for feature in (*schema.features, *schema.query_features):
        values, of_user = parsed[feature.key], getattr(feature, "source", "") == query_features.USER
        checks.append(_check(values.row_lengths() == feature.width * (tf.ones_like(lengths) if of_user else lengths),
                             f"{feature.key} does not have {feature.width} value(s) per "
                             f"{'user' if of_user else 'click'}", files))
        checks.append(_check((values.values >= 0) & (values.values < feature.rows),
                             f"{feature.key} has a value outside 0..{feature.rows - 1}", files))
    checks.append(_check(tf.math.is_finite(parsed["weight"].values) & (parsed["weight"].values >= 0),
                         "a weight is negative or not finite", files))
    checks += [_check(parsed[name].row_lengths() == lengths, f"{name} is not one per click", files)
               for name in per_click(schema)]
    weight = tf.gather(parsed["weight"].values, items.value_rowids())
    if schema.event_weights:
        events = parsed["event"].values
        checks.append(_check((events >= 0) & (events <= len(schema.event_weights)),
                             f"an event is outside 0..{len(schema.event_weights)}", files))
        weight *= tf.gather([1.0, *(weight for _, weight in schema.event_weights)], events)
    with tf.control_dependencies(checks):
        joined = lambda columns, features: tf.concat(
            [*columns, *(tf.reshape(parsed[f.key].values, [-1, f.width]) for f in features)], axis=1)
        pool = {"rows": joined([items.values[:, None]], schema.features), "splits": items.row_splits,
                "user_id": parsed["user_id"].values, "weight": tf.identity(weight)}
        pool |= {name: joined([], features) for name, features in query_parts(schema).items()}
    return {**pool, **{name: parsed[name].values for name in per_click(schema)}}


def query_parts(schema: schema_lib.Schema) -> dict[str, tuple]:
    """Name of each part of a query row in a pool -> its features; nothing where there are none."""
    parts = dict(profile=query_features.USER, context=query_features.CONTEXT)
    parts = {name: query_features.of_source(schema.query_features, source) for name, source in parts.items()}
    return {name: features for name, features in parts.items() if features}


def query_rows(pool, sequences, targets):
    """Query rows [B,W] of targets: their sequences and clicks [B] int64; None where the pool has none."""
    parts = [tf.gather(pool[name], places) for name, places in (("profile", sequences), ("context", targets))
             if name in pool]
    return tf.concat(parts, axis=1) if parts else None


def known_of_clicks(pool, clicks, mask, answered, sequences, targets) -> dict:
    """What a batch has of its clicks beside their items, of what the pool knows, as in ``models/batches``.

    Args:
      pool: from `parse_pool`.
      clicks: [w,L] int64, the clicks of each history; any at padding.
      mask: [w,L] bool, True where there is a click.
      answered: [w,L] or [w,1] int64, the click that is to be foreseen at each.
      sequences, targets: [B] int64, the sequence and the click of each target.
    """
    known = {}
    if "timestamp" in pool:
        times = pool["timestamp"]
        known["time_gap"] = histories.time_gaps(tf.gather(times, answered), tf.gather(times, clicks), mask, tf)
    if "dwell" in pool:
        known["dwell"] = histories.dwell_times(tf.gather(pool["dwell"], clicks), mask, tf)
    if "event" in pool:
        known["event"] = tf.where(mask, tf.gather(pool["event"], clicks), 0)
    query = query_rows(pool, sequences, targets)
    return known if query is None else {**known, "query": query}


def serialized_pool(files, records) -> tf.data.Dataset:
    """Dataset of one element, [n] string, of [G] files: the `records` sequences that they should hold, or how many
    there are, but one more at most."""
    # One more than promised is asked for, so that a file with too many records shows itself too.
    return tf.data.TFRecordDataset(files, buffer_size=8 << 20).batch(records + 1)


def read_pool(files, records, schema: schema_lib.Schema) -> tf.data.Dataset:
    """Dataset of one element, what `parse_pool` gives for [G] files that hold `records` sequences."""
    return serialized_pool(files, records).map(traced(lambda whole: parse_pool(whole, records, files, schema)))
