"""A model from the facts of the data and the settings; the one place where both meet."""
import os

from absl import logging
import numpy as np
import tensorflow as tf

from clrec_tf.config import ModelConfig
from clrec_tf.data import schema as schema_lib
from clrec_tf.encoders.attention_user import AttentionUserEncoder
from clrec_tf.encoders.attention_user import MeanUserEncoder
from clrec_tf.encoders.clicks import BOUNDARIES
from clrec_tf.encoders.clicks import ClickEncoder
from clrec_tf.encoders.intent_items import IntentItemEncoder
from clrec_tf.encoders.intent_user import IntentUserEncoder
from clrec_tf.encoders.items import ItemEncoder
from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.models.clrec import CLRec
from clrec_tf.models.multi_clrec import AuxiliarySettings
from clrec_tf.models.multi_clrec import MultiCLRec

# Settings that one of the models alone reads.
ONLY_OF = {
    **dict.fromkeys(("use_features", "feature_projection", "content_hidden", "user_encoder", "attention_heads",
                     "attention_hidden", "attention_values", "head_aggregation", "candidate_features", "similarity",
                     "mask_same_user"), "clrec"),
    **dict.fromkeys(("num_intents", "category_feature", "use_dwell", "residual", "st_mode", "st_max_ratio",
                     "routing_weight", "vector_weight", "balance_weight", "selection_weight", "balance_items",
                     "balance_hinge", "routing_confidence"), "multi_clrec"),
}


def time_boundaries(config: ModelConfig, schema: schema_lib.Schema) -> tuple[int, ...]:
    """Boundaries of the time buckets in seconds, ascending; empty where the model reads no time."""
    kind = config.time_embedding
    if kind == "none" or (kind == "auto" and not schema.has_timestamps):
        return ()
    if not schema.has_timestamps:
        raise UserError(f"--time_embedding={kind}: this data set has no time stamps; "
                        "use auto or none, or prepare a log that has them")
    if kind == "log2" and config.time_boundaries:
        raise UserError(f"--time_boundaries={','.join(config.time_boundaries)} has no meaning with "
                        "--time_embedding=log2: leave one of them out")
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
    """The dense item vectors [item_rows, width] float32, or None; `DataError` where the file was changed."""
    if not schema.content_width:
        return None
    schema_lib.check_file(data_dir, schema_lib.CONTENT_FILE)
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
    _check_flags(config)
    tf.keras.utils.set_random_seed(seed)
    try:
        widths = [int(width) for width in config.feature_dims]
    except ValueError as error:
        raise UserError(f"--feature_dims={','.join(config.feature_dims)}: widths must be integers") from error
    return {"clrec": _clrec, "multi_clrec": _multi_clrec}[config.model](config, schema, content, widths or None, seed)


def _check_flags(config):
    """`UserError` where a setting of the other model is given."""
    for flag, owner in ONLY_OF.items():
        value = getattr(config, flag)
        if owner != config.model and value != getattr(ModelConfig, flag):
            shown = ",".join(value) if isinstance(value, tuple) else value
            raise UserError(f"--{flag}={shown} belongs to --model={owner}, not to {config.model}: leave it out")


def _clrec(config, schema, content, widths, seed):
    dim, dtype = config.embedding_dim, tf.as_dtype(config.product_dtype)
    features = schema.features if config.use_features else ()
    if len(features) > dim:
        raise UserError(f"--embedding_dim={dim} is too narrow for {len(features)} item features: raise it")
    items = ItemEncoder(
        schema.item_rows, dim, features, widths, config.feature_projection,
        content if config.use_features else None, config.content_hidden, seed,
        dtype)
    clicks = ClickEncoder(dim, config.max_history, config.position, time_boundaries(config, schema), seed + 1000)
    if config.user_encoder == "mean":
        users = MeanUserEncoder()
    else:
        users = AttentionUserEncoder(dim, config.attention_heads, config.attention_hidden or 4 * dim,
                                     config.head_aggregation, config.attention_values, dtype)
    return CLRec(items, clicks, users, config.similarity, config.temperature, config.candidate_features)


def _multi_clrec(config, schema, content, widths, seed):
    names = [feature.name for feature in schema.features]
    if not names:
        raise UserError("--model=multi_clrec routes clicks to intents by their category, and this data set has no item "
                        "features: prepare it with --feature_columns or --item_features, or use --model=clrec")
    category = config.category_feature or names[0]
    if category not in names:
        raise UserError(f"--category_feature={category} is no item feature of this data set: choose from "
                        f"{', '.join(names)}")
    logging.info("clicks are routed to intents by their %s (--category_feature)", category)
    dim, dtype = config.embedding_dim, tf.as_dtype(config.product_dtype)
    items = IntentItemEncoder(schema.item_rows, dim, schema.features, category, widths, content, config.residual, seed,
                              dtype)
    users = IntentUserEncoder(
        dim, config.num_intents, config.max_history, config.temperature, config.position,
        time_boundaries(config, schema), config.use_dwell and schema.has_dwell, config.residual, seed + 1000, dtype)
    return MultiCLRec(items, users, config.temperature, AuxiliarySettings(
        config.routing_weight, config.vector_weight, config.balance_weight, config.selection_weight,
        config.balance_items, config.balance_hinge, config.routing_confidence))
