"""What every objective is: one file with its settings and its loss, registered under the name that --loss takes.

An objective holds what lives between steps (queues, samplers, large constants). `open` gives the same objective in one
trace, whose queues, samplers and constants are opened: only that one has a loss.

Letters: B batch, C columns of an item row.
"""
import copy
import dataclasses
import functools
import math
from typing import Any, Callable, Optional

import numpy as np
import tensorflow as tf

from clrec_tf.data.item_rows import Items
from clrec_tf.data import schema as schema_lib
from clrec_tf.encoders.base import NoSettings
from clrec_tf.losses.contrastive import weighted_mean
from clrec_tf.models.key_encoder import KeyEncoder
from clrec_tf.models.two_tower import TwoTower
from clrec_tf.objectives.resources import in_memory

MAX_FULL_SOFTMAX = 20_000  # items; more are not scored whole in every step


@dataclasses.dataclass(frozen=True)
class ObjectiveInputs:
    """What an objective is made from.

    Attributes:
      config: a `config.Config`.
      model: the towers.
      local_variable: (make, shape, dtype) -> variable of which each worker has its own; make(worker) gives its value.
      read_items: (columns C) -> `Items`, the catalogue by item id; asked only where a loss needs it.
      read_exposures: (flag that needs them) -> int [N,2], see `data.exposures`.
      local_constant: see `resources.Constants`.
      schema: facts of the data.
      batches: () -> training batches as a `tf.data.Dataset`, for what is fitted before training.
      epoch_steps: of the first epoch.
      keys: encodes what is compared with users; None: the model does.
    """
    config: Any
    model: TwoTower
    local_variable: Callable
    read_items: Optional[Callable[[int], Items]] = None
    read_exposures: Optional[Callable[[str], np.ndarray]] = None
    local_constant: Callable = in_memory
    schema: Optional[schema_lib.Schema] = None
    batches: Optional[Callable] = None
    epoch_steps: int = 0
    keys: Optional[KeyEncoder] = None

    @functools.cached_property
    def items(self) -> Items:
        """The catalogue with the columns that the model reads, read once."""
        return self.read_items(self.model.item_encoder.item_width)

    @property
    def seed(self) -> int:
        """Of everything random."""
        return self.config.paths.seed

    @property
    def num_items(self) -> int:
        """V, hash buckets included."""
        return (self.schema.item_rows if self.schema else len(self.items.rows)) - 1


class Objective:
    """A loss over two towers.

    Args:
      model: a `TwoTower`.
      **resources: by name, what `open` opens: objects with `open()`; None where there is none. Each becomes an
        attribute. Those with `local_variables` are what a checkpoint must hold besides the model.
    """

    Settings = NoSettings
    summary = ""  # a phrase for --help
    metric_names = ()  # of what `metrics` gives
    all_vectors = False  # of a model with several per user: whether all are trained to be ranked by, else the heaviest
    prefills = False  # whether `prefill` is wanted before the first step
    pretext = None  # of --pretext, a ``pretext.Pretext``

    def __init__(self, model: TwoTower, **resources):
        self.model, self.resources = model, {name: each for name, each in resources.items() if each is not None}
        for name, resource in resources.items():
            setattr(self, name, resource)

    def with_pretext(self, pretext) -> "Objective":
        """The objective that trains a pretext task too; None: it alone."""
        both = copy.copy(self)
        if pretext is not None:
            both.resources, both.pretext = {**self.resources, "pretext": pretext}, pretext
        return both

    @property
    def parts(self) -> tuple["Objective", ...]:
        """Itself and the pretext: each has metrics and a loss by chance."""
        return (self,) if self.pretext is None else (self, self.pretext)

    @classmethod
    def make(cls, inputs: ObjectiveInputs) -> "Objective":
        """The objective with its settings; `UserError` where settings and data do not agree."""
        return cls(inputs.model)

    @classmethod
    def closed_form(cls, world, settings) -> Optional[np.ndarray]:
        """What the loss learns when it has learned all, from ``losses/closed_forms``.

        Args:
          world: exact distributions over X contexts and V items: `clicks` p(y|x) [X,V], `exposure` q(y|x) [X,V],
            `click_popularity` and `mean_exposure` [V], and each item's `intent` [V].
          settings: an instance of `Settings`.

        Returns:
          softmax φ(x,·) [X,V]; None: not known.
        """
        del world, settings

    @property
    def states(self) -> dict:
        """Name -> object with `local_variables`, all that a checkpoint must hold besides the model."""
        nested = [each.states for each in self.resources.values() if isinstance(each, Objective)]
        own = {name: each for name, each in self.resources.items() if hasattr(each, "local_variables")}
        return {name: each for states in (*nested, own) for name, each in states.items()}

    def open(self) -> "Objective":
        """The objective in this trace; once, outside of loops and conditions."""
        opened = copy.copy(self)
        for name, resource in self.resources.items():
            setattr(opened, name, resource.open())
        return opened

    # Of an opened objective:

    def loss(self, batch: dict, training: bool = True) -> tf.Tensor:
        """What a step differentiates, scalar; enqueues. 0 where no row counts. See ``models/batches`` for batches."""
        raise NotImplementedError

    def added_losses(self, encoded, batch: dict) -> tf.Tensor:
        """What model and pretext add to the loss of each row, whatever the loss: [B], or a scalar for all; enqueues."""
        added = self.model.auxiliary_losses(encoded, batch)
        return added if self.pretext is None else added + self.pretext.rows(encoded, batch)

    def chance_loss(self, batch: dict) -> tf.Tensor:
        """The batch's loss if all candidates had the same score, scalar, to be asked after `loss`; NaN: not known."""
        del batch
        return tf.constant(math.nan)

    def metrics(self) -> dict[str, tf.Tensor]:
        """Scalars about queues and samplers, by `metric_names`."""
        return {}

    def prefill(self, batches) -> None:
        """Fills what begins empty with batches, before the first step; of the objective itself, not an opened one."""


class RowObjective(Objective):
    """An objective whose rows each have a loss of their own: `rows`."""

    def loss(self, batch, training=True):
        """Mean of the rows' losses by their weights, scalar; 0 where no row counts."""
        return weighted_mean(self.rows(batch, training), batch["weight"])

    def rows(self, batch: dict, training: bool = True) -> tf.Tensor:
        """The loss of each row, [B]; enqueues."""
        raise NotImplementedError
