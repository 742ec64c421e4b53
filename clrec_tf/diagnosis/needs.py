"""What a training needs of memory and disk at least: its variables, of which the shapes are known without making any."""
import math

import tensorflow as tf

from clrec_tf.config import Config
from clrec_tf.data.schema import Schema
from clrec_tf.models.build import build_model
from clrec_tf.training.checkpoint_names import shapes_of

_SLOTS = dict(lazy_adam=2, adagrad=1)  # numbers that an optimizer keeps beside each that is trained
_FLOAT = 4
_CONTENT = "content"  # last part of the name of the dense vectors, which are not trained


def model_shapes(config: Config, schema: Schema) -> dict[str, list[int]]:
    """Name of each variable of the model, as a checkpoint has it -> its shape.

    In a graph that never runs, so nothing is allocated, however many items there are.
    """
    with tf.Graph().as_default():
        content = None
        if schema.content_width:
            content = tf.Variable(tf.zeros([schema.item_rows, schema.content_width]), trainable=False)
        return shapes_of(build_model(config, schema, content, config.paths.seed))


def state_bytes(shapes: dict[str, list[int]], optimizer: str) -> int:
    """Bytes of a model and its optimizer, in memory or in a checkpoint; queues come on top."""
    numbers = {name: math.prod(shape) for name, shape in shapes.items()}
    trained = sum(count for name, count in numbers.items() if name.rpartition("/")[2] != _CONTENT)
    return _FLOAT * (sum(numbers.values()) + _SLOTS[optimizer] * trained)
