"""Checks of inputs that run inside an exported graph, and of what such a graph is made of."""
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2


def same_shape(history, seconds, name: str):
    """`seconds` [B,L], checked to have the shape of the history [B,L]."""
    same = tf.debugging.assert_equal(tf.shape(seconds), tf.shape(history), f"{name} and history differ in shape")
    with tf.control_dependencies([same]):
        return tf.identity(seconds)


def one_each(values, history, name: str):
    """`values` [B,...], checked to have an entry for each user of `history` [B,L]; a single one is not shared."""
    same = tf.debugging.assert_equal(tf.shape(values)[0], tf.shape(history)[0],
                                     f"{name} must have one entry per user, as history has rows")
    with tf.control_dependencies([same]):
        return tf.identity(values)


def checked_counts(counts, history, name: str, most: int, why: str = ""):
    """`counts` int32 [B], checked to be one number from 1 to `most` for each user of `history`."""
    counts = one_each(counts, history, name)
    limit = f"{name} must be at most {most}" + (f", {why}" if why else "")
    checks = [tf.debugging.assert_positive(counts, f"{name} must be at least 1"),
              tf.debugging.assert_less_equal(counts, most, limit)]
    with tf.control_dependencies(checks):  # or what uses them may run first, and fail with words of its own
        return tf.identity(counts)


def checked_between(values, history, name: str, lowest: float, highest: float):
    """`values` float32 [B], checked to be one number from `lowest` to `highest` for each user of `history`."""
    values = one_each(values, history, name)
    slack = 1e-6  # of a bound that float32 cannot hold
    inside = (values >= lowest - slack) & (values <= highest + slack)  # NaN is not
    check = tf.debugging.Assert(tf.reduce_all(inside), [f"{name} must be a number from {lowest:g} to {highest:g}"])
    with tf.control_dependencies([check]):
        return tf.identity(values)


def largest(counts):
    """The largest of `counts` [B]; 1 where there is no user."""
    return tf.maximum(tf.reduce_max(counts), 1)


def foreign_ops(saved_model_file: str) -> list[str]:
    """Ops of a saved_model.pb that a stock C++ runtime lacks: of custom libraries (">" in the name) and Python's."""
    model = saved_model_pb2.SavedModel()
    with open(saved_model_file, "rb") as file:
        model.ParseFromString(file.read())
    ops = set()
    for meta in model.meta_graphs:
        ops |= {op.name for op in meta.meta_info_def.stripped_op_list.op}
        for nodes in (meta.graph_def.node, *(function.node_def for function in meta.graph_def.library.function)):
            ops |= {node.op for node in nodes}
    return sorted(op for op in ops if ">" in op or "PyFunc" in op)
