"""A model from the facts of the data and the settings; the one place where both meet."""
import dataclasses
import os
from typing import Optional

import numpy as np
import tensorflow as tf
import tf_keras

from clrec_tf.data import schema as schema_lib
from clrec_tf.encoders.base import Sizes
from clrec_tf.encoders.base import UserEncoder
from clrec_tf.encoders.clicks import BOUNDARIES
from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.models.key_encoder import KeyEncoder
from clrec_tf.models.two_tower import TwoTower
from clrec_tf.settings.model import ModelConfig
from clrec_tf.settings.setting import Section

ENCODER_SEED = 1000  # added to the seed: initial values of the users' part are not those of the items'


@dataclasses.dataclass(frozen=True)
class TowerInputs:
    """What a `TwoTower` is made from.

    Attributes:
      settings: its `Settings`.
      encoder, encoder_settings: class of the user encoder, and its `Settings`.
      sizes: of the encoders; its seed is the user encoder's.
      seed: of the item encoder.
      feature_widths: --feature_dims, or None.
      content: [item_rows, width] float32 of dense item vectors, or None.
      all_vectors: whether the loss gives all of a user's vectors a score, see `objectives.base.Objective`.
    """
    settings: Section
    encoder: type[UserEncoder]
    encoder_settings: Section
    sizes: Sizes
    seed: int
    feature_widths: Optional[list]
    content: Optional[np.ndarray]
    all_vectors: bool

    def user_encoder(self) -> UserEncoder:
        """A new one."""
        return self.encoder(self.encoder_settings, self.sizes)


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
    if seconds[-1] >= 2**62:
        raise UserError(f"{given}: {config.time_boundaries[-1]} minutes are no time")
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


def build_model(config, schema: schema_lib.Schema, content=None, seed: int = 0) -> TwoTower:
    """A freshly initialised model.

    Args:
      config: a `config.Config`, of which model, tower and encoder are read.
      schema: facts of the data.
      content: from `load_content`, or the variable of another model; used if the tower reads features.
      seed: of every initial value; sets TensorFlow's global seed.

    Raises:
      UserError: settings that contradict each other or the data.
    """
    config.refuse_unread("model")
    tf_keras.utils.set_random_seed(seed)
    model = config.model
    try:
        widths = [int(width) for width in model.feature_dims]
    except ValueError as error:
        raise UserError(f"--feature_dims={','.join(model.feature_dims)}: widths must be integers") from error
    sizes = Sizes(model.embedding_dim, model.max_history, model.temperature, model.position,
                  time_boundaries(model, schema), schema, seed + ENCODER_SEED, tf.as_dtype(model.product_dtype),
                  len(schema.event_weights) if model.use_events else 0,
                  schema.query_features if model.use_query_features else ())
    towers = config.tower_class.make(TowerInputs(config.tower, config.encoder_class, config.encoder, sizes, seed,
                                                 widths or None, content, config.loss_class.all_vectors))
    towers.id_dropout, towers.history_dropout = model.id_dropout, model.history_dropout
    if model.history_dropout and not towers.query_features:
        why = ("--nouse_query_features leaves features of users and requests out; leave one of the two flags out"
               if schema.query_features else "the data set has no features of users or requests; prepare it with "
               "--user_features or --context_columns, or leave --history_dropout out")
        raise UserError(f"--history_dropout={model.history_dropout} leaves nothing of a user: {why}")
    if model.id_dropout and not (towers.candidate_features and towers.describes_items):
        raise UserError(f"--id_dropout={model.id_dropout} leaves nothing of an item: the candidate tower reads neither "
                        "features nor dense vectors; prepare them, and train with --use_features and "
                        "--candidate_features, or leave --id_dropout out")
    return towers


def build_keys(config, schema: schema_lib.Schema, model: TwoTower, seed: int = 0) -> Optional[KeyEncoder]:
    """The key encoder of a model for --momentum_encoder, of averages as in losses/momentum.py; None without.

    Its dense item vectors are the model's own.
    """
    momentum = getattr(config.objective, "momentum_encoder", 0.0)
    if not momentum:
        return None
    return KeyEncoder(model, build_model(config, schema, getattr(model.item_encoder, "content", None), seed), momentum)
