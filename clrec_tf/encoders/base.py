"""What every user encoder is: one file with its settings and its layer, registered under the name that users give.

Letters: B batch, T clicks of a history, D width, K vectors per user.
"""
import dataclasses
from typing import NamedTuple, Optional

import tensorflow as tf
import tf_keras

from clrec_tf.data.query_features import QueryFeature
from clrec_tf.data import schema as schema_lib
from clrec_tf.errors import UserError
from clrec_tf.losses.contrastive import MASKED
from clrec_tf.settings.setting import Section


READABLE = {"times", "dwell"}  # what an encoder may read of clicks beside their items


class Clicks(NamedTuple):
    """Histories as an encoder sees them, oldest click first, padding last.

    Attributes:
      vectors: X [B,T,D], the items with their positions and times (see ``clicks``); None for an encoder that reads
        positions and times itself.
      items: g [B,T,·], the item vectors alone.
      mask: [B,T] bool, True at clicks.
      gaps: [B,T] int64, seconds before the next click that is asked for, −1 = unknown; None: all unknown.
      dwell: [B,T] int64, seconds that the user stayed, −1 = unknown; None: all unknown.
      events: [B,T] int64, number of each click's behaviour, 0 = none; None: all have none.
      query: [B,W] int64, query rows (see ``query``); None: nothing is known.
      seed: [2] int64 of this step's random numbers, see ``random_draws``; None: there are none, as in serving.
      asked: [B,T] bool, clicks whose next click is asked for, of `positions`; None: all are.
    """
    vectors: Optional[tf.Tensor]
    items: tf.Tensor
    mask: tf.Tensor
    gaps: Optional[tf.Tensor] = None
    dwell: Optional[tf.Tensor] = None
    events: Optional[tf.Tensor] = None
    query: Optional[tf.Tensor] = None
    seed: Optional[tf.Tensor] = None
    asked: Optional[tf.Tensor] = None


@dataclasses.dataclass(frozen=True)
class Sizes:
    """What an encoder's layers are made from, beside its own settings.

    Attributes:
      dim: d, width of items and users.
      max_history: T.
      temperature: ρ.
      position: "backward", "forward" or "none"; see ``clicks``.
      boundaries: of the time buckets, ascending seconds; empty: no time.
      schema: facts of the data; None where only sizes matter.
      seed: of initial values.
      product_dtype: of large products, see ``dense``.
      event_kinds: behaviours of clicks that are told apart; 0: none is.
      query_features: of users and requests that the query tower reads.
    """
    dim: int
    max_history: int = 50
    temperature: float = 0.07
    position: str = "backward"
    boundaries: tuple = ()
    schema: Optional[schema_lib.Schema] = None
    seed: int = 0
    product_dtype: tf.DType = tf.float32
    event_kinds: int = 0
    query_features: tuple[QueryFeature, ...] = ()


@dataclasses.dataclass(frozen=True)
class UserVectors:
    """What an encoder of several vectors gives.

    Attributes:
      vectors: [B,K,D]; normalized where the tower leaves that to the encoder.
      logits: [B,K], whose softmax is the vectors' weights; `MASKED` of those that a user does not have.
    """
    vectors: tf.Tensor
    logits: tf.Tensor

    @property
    def in_use(self) -> tf.Tensor:
        """Which vectors users have, [B,K] bool."""
        return self.logits > MASKED / 2

    def heaviest_first(self) -> tuple["UserVectors", tf.Tensor]:
        """(the same by falling weight, of equal ones the lowest number first; int32 numbers [B,K] that they had).

        In place of vectors that a user does not have stands the heaviest again, with weight 0: it finds nothing more,
        where zeros would be nearer to an item than a vector that points away from it.
        """
        # By logits, since small weights may round to the same number.
        logits, numbers = tf.math.top_k(self.logits, self.logits.shape[1])
        vectors = tf.gather(self.vectors, numbers, batch_dims=1)
        used = UserVectors(vectors, logits).in_use[:, :, None]
        return UserVectors(tf.where(used, vectors, vectors[:, :1]), logits), numbers


@dataclasses.dataclass(frozen=True)
class NoSettings(Section):
    """An encoder or loss without settings of its own."""


class UserEncoder(tf_keras.layers.Layer):
    """The query tower's own part: clicks -> vectors.

    Subclasses are registered by `ENCODERS.register(name)`.

    Args:
      settings: an instance of `Settings`.
      sizes: the tower's.
    """

    Settings = NoSettings
    summary = ""  # a phrase for --help
    reads = frozenset()  # of "times", "dwell": what the encoder reads of clicks beside `vectors` and `items`
    adds_clicks = False  # whether the users are a function of Σ_t X_t and the mask alone, given by `of_sums`
    every_position = False  # whether there is `positions`, which --target_mode=all needs
    hides_targets = False  # whether `positions` hides the clicks that are asked for, so that a step asks for some alone
    own_clicks = False  # whether it reads positions and times itself, and `Clicks.vectors` is None
    own_factors = False  # whether its clicks are of `FactorItemEncoder`'s second vectors in place of g
    target_aware = False  # whether each candidate reads a user's slots by itself, see `losses.contrastive`
    gaps_to_next = False  # whether a click's time is that to the click after it; else to the request, for all clicks

    def __init__(self, settings, sizes: Sizes):
        super().__init__(name="user_encoder")
        self.settings, self.sizes = settings, sizes
        declared = type(self).reads
        if not isinstance(declared, property) and set(declared) - READABLE:
            raise ValueError(f"{type(self)} reads {sorted(declared)}: choose from {sorted(READABLE)}")
        if self.every_position and type(self).positions is UserEncoder.positions:
            raise ValueError(f"{type(self)} has every_position but no positions(): define it, or leave every_position out")

    @classmethod
    def vectors_of(cls, settings) -> int:
        """K of an encoder with these settings."""
        del settings
        return 1

    @property
    def num_vectors(self) -> int:
        """K."""
        return self.vectors_of(self.settings)

    def call(self, clicks: Clicks, training: bool = False):
        """-> [B,D], not normalized; `UserVectors` where `num_vectors` is above 1; slots [B,K,D] where `target_aware`.

        Args:
          clicks: of B users; a user without clicks has a mask of False.
          training: whether a training step asks (dropout).
        """
        raise NotImplementedError

    def with_auxiliary(self, clicks: Clicks, training: bool = False):
        """-> (what `call` gives, what the encoder adds to the loss of each row [B]; None: nothing)."""
        return self(clicks, training=training), None

    def positions(self, clicks: Clicks, training: bool = False):
        """The users as they were after each click: -> [B,T,D], not normalized; padding may hold anything.

        At t it is what `call` gives for the first t+1 clicks alone; where `hides_targets`, for all clicks but those
        asked for, of which click t+1 is one. Where `every_position`.
        """
        raise NotImplementedError

    def step_targets(self, is_last: tf.Tensor, seed: tf.Tensor):
        """Which targets of windows a training step asks for, by the step's seed [2]; where `hides_targets`.

        Args:
          is_last: [N] bool, True at each window's last target.

        Returns:
          [N] bool.
        """
        raise NotImplementedError

    def for_targets(self, users: UserVectors, targets: tf.Tensor):
        """What of each user is trained with its target: targets g(y) [B,D] -> one vector [B,D], or [B,K,D] that every
        candidate reads by itself.

        Where `num_vectors` is above 1; both ready to be compared.
        """
        raise NotImplementedError

    @classmethod
    def refuse_search(cls, asked: str, remedy: str = "it can be trained, and evaluated by evaluate --auc") -> None:
        """`UserError` where users have no vector to search a catalogue by: `target_aware`.

        Args:
          asked: what needs one, such as a flag with its value.
          remedy: what to do instead.
        """
        if cls.target_aware:
            raise UserError(f"{asked}: with --user_encoder={cls.registered_name} each candidate reads a user's memory "
                            f"by itself, so users have no vector that a catalogue could be searched by: {remedy}")
