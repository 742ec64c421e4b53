"""A model from the facts of the data and the settings; the one place where both meet."""
import os

import numpy as np
import tensorflow as tf

from clrec_tf.config import ModelConfig
from clrec_tf.data import schema as schema_lib
from clrec_tf.encoders.attention_user import AttentionUserEncoder
from clrec_tf.encoders.attention_user import MeanUserEncoder
from clrec_tf.encoders.clicks import BOUNDARIES
from clrec_tf.encoders.clicks import ClickEncoder
from clrec_tf.encoders.items import ItemEncoder
from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.models.clrec import CLRec


def time_boundaries(config: ModelConfig, schema: schema_lib.Schema) -> tuple[int, ...]:
    """Boundaries of the time buckets in seconds, ascending; empty where the model reads no time."""
    kind = config.time_embedding
    if kind == "none" or (kind == "auto" and not schema.has_timestamps):
        return ()
    if not schema.has_timestamps:
        raise UserError(f"--time_embedding={kind}: this data set has no time stamps; "
                        "use auto or none, or prepare a log that has them")
    if kind == "log2" and config.time_boundaries:
        raise UserError(f"--time_boundaries={','.join(config.time_boundaries)} has no meaning with --time_embedding=log2: "
                        "leave one of them out")
    if kind == "log2" or not config.time_boundaries:
        return BOUNDARIES["log2" if kind == "log2" else "minutes"]
    given = f"--time_boundaries={','.join(config.time_boundaries)}"
    try:
        seconds = [round(60 * float(minutes)) for minutes in config.time_boundaries]
    except (ValueError, OverflowError) as error:
        raise UserError(f"{given}: must be numbers of minutes") from error
    if seconds[0] < 1 or any(a >= b for a, b in zip(seconds, seconds[1:])):
        raise UserError(f"{given}: must ascend, from at least one second on")
    return tuple(seconds)


def load_content(data_dir: str, schema: schema_lib.Schema):
    """The dense item vectors [item_rows, width] float32, or None."""
    if not schema.content_width:
        return None
    path = os.path.join(data_dir, schema_lib.CONTENT_FILE)
    known = np.load(path, mmap_mode="r", allow_pickle=False)
    if known.shape != (schema.num_items + 1, schema.content_width):
        raise DataError(f"{path} has shape {known.shape}, the schema says "
                        f"{(schema.num_items + 1, schema.content_width)}: prepare the data again")
    content = np.zeros((schema.item_rows, schema.content_width), np.float32)
    content[:len(known)] = known
    return content


def build_model(config: ModelConfig, schema: schema_lib.Schema, content=None, seed: int = 0) -> CLRec:
    """A freshly initialised model.

    Args:
      config: model settings.
      schema: facts of the data.
      content: from `load_content`; used if `config.use_features`.
      seed: of every initial value; sets TensorFlow's global seed.

    Raises:
      UserError: settings that contradict each other or the data.
    """
    tf.keras.utils.set_random_seed(seed)
    dim = config.embedding_dim
    try:
        widths = [int(width) for width in config.feature_dims]
    except ValueError as error:
        raise UserError(f"--feature_dims={','.join(config.feature_dims)}: widths must be integers") from error
    dtype = tf.as_dtype(config.product_dtype)
    features = schema.features if config.use_features else ()
    if len(features) > dim:
        raise UserError(f"--embedding_dim={dim} is too narrow for {len(features)} item features: raise it")
    items = ItemEncoder(
        schema.item_rows, dim, features, widths or None, config.feature_projection,
        content if config.use_features else None, config.content_hidden, seed,
        dtype)
    clicks = ClickEncoder(dim, config.max_history, config.position, time_boundaries(config, schema), seed + 1000)
    if config.user_encoder == "mean":
        users = MeanUserEncoder()
    else:
        users = AttentionUserEncoder(dim, config.attention_heads, config.attention_hidden or 4 * dim,
                                     config.head_aggregation, config.attention_values, dtype)
    return CLRec(items, clicks, users, config.similarity, config.temperature, config.candidate_features)
