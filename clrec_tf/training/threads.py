"""How many threads TensorFlow uses; to be set before its first operation."""
import tensorflow as tf

from clrec_tf.config import TrainConfig
from clrec_tf.errors import UserError


def set_threads(settings: TrainConfig) -> None:
    """Applies --threads (within an operation) and --parallel_ops (operations at once); 0 leaves TensorFlow's choice.

    Raises:
      UserError: TensorFlow has run in this process with other numbers, which it keeps.
    """
    try:
        if settings.threads:
            tf.config.threading.set_intra_op_parallelism_threads(settings.threads)
        if settings.parallel_ops:
            tf.config.threading.set_inter_op_parallelism_threads(settings.parallel_ops)
    except RuntimeError as error:
        raise UserError(f"--threads={settings.threads} --parallel_ops={settings.parallel_ops}: TensorFlow has run in "
                        "this process with other numbers of threads, and keeps them; start the process anew, or leave "
                        "the flags out") from error
