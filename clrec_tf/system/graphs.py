"""Functions as graphs. AutoGraph is off: translating their Python would take seconds in every process."""
from typing import Callable

import tensorflow as tf

traced = tf.autograph.experimental.do_not_convert  # what is called by TensorFlow itself, as by maps of data sets


def graph_function(function: Callable, input_signature=None):
    """`tf.function` of a function that is traced as it stands.

    What depends on a tensor's value is said by `tf.cond`, `tf.where` or `tf.while_loop`; Python's `if` and `for` on
    tensors are errors.
    """
    return tf.function(traced(function), input_signature, autograph=False)
