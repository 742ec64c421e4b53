"""Large constants: in this process' memory, or held by each worker (`ClusterRuntime.local_constant`)."""
import tensorflow as tf


def in_memory(value):
    """A function that gives the constant; where workers hold it, to be called once per trace, outside of loops."""
    tensor = tf.constant(value)
    return lambda: tensor
