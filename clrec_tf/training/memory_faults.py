"""What to say where memory runs out, of the machine or of a GPU."""
import contextlib

import tensorflow as tf

from clrec_tf.errors import UserError
from clrec_tf.training.reasons import reason


@contextlib.contextmanager
def memory_told():
    """Context in which memory that TensorFlow or NumPy could not have is a `UserError` that names what takes it."""
    try:
        yield
    except (tf.errors.ResourceExhaustedError, MemoryError) as error:
        raise UserError(
            f"memory ran out: {reason(error)}: lower --batch_size, --queue_size, --num_negatives, --max_history or "
            "--embedding_dim in a new --workdir, or end what else runs there; python -m clrec_tf.doctor with the same "
            "flags says what tables need. The last checkpoint stands") from error
