"""How many threads TensorFlow uses; to be set before its first operation."""
import tensorflow as tf

from clrec_tf.config import TrainConfig


def set_threads(settings: TrainConfig) -> None:
    """Applies --threads (within an operation) and --parallel_ops (operations at once); 0 leaves TensorFlow's choice."""
    if settings.threads:
        tf.config.threading.set_intra_op_parallelism_threads(settings.threads)
    if settings.parallel_ops:
        tf.config.threading.set_inter_op_parallelism_threads(settings.parallel_ops)
