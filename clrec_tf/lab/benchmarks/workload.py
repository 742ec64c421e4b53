"""A training step over generated ids, with everything that the training loop runs but the reading of files."""
import dataclasses

import numpy as np
import tensorflow as tf

from clrec_tf.config import Config
from clrec_tf.data.schema import Feature
from clrec_tf.data.schema import Schema
from clrec_tf.models.build import build_model
from clrec_tf.objectives.alias_sampler import AliasSampler
from clrec_tf.objectives.base import RowObjective
from clrec_tf.objectives.contrastive import build_variant
from clrec_tf.objectives.contrastive import Contrastive
from clrec_tf.objectives.sampled_softmax import SampledSoftmax
from clrec_tf.training.feeds import open_iterator
from clrec_tf.training.optimizers import build_optimizer
from clrec_tf.training.runtime import LocalRuntime
from clrec_tf.training.step import make_train_call

FEATURE_ROWS = (1_000, 10_000, 50, 100_000, 200, 20)  # six features of an item, from brand to price band
CONTENT_WIDTH = 512
CATALOGUE_SEED, DRAW_SEED = 1, 2
SAMPLED_SOFTMAX, HISTORY_ONLY = "sampled_softmax", "history_only"


@dataclasses.dataclass(frozen=True)
class GeneratedItems:
    """A catalogue.

    Attributes:
      count: V.
      features: whether items have `FEATURE_ROWS`.
      content: whether items have dense vectors.
      draw: "uniform"; "zipf": chance of an item falls as one over its rank; "distinct": uniform, none twice in a step.
    """
    count: int
    features: bool = False
    content: bool = False
    draw: str = "uniform"

    def schema(self) -> Schema:
        """The facts that a model is built from."""
        features = tuple(Feature(f"feature_{i}", rows, 1, rows - 1) for i, rows in enumerate(FEATURE_ROWS))
        return Schema(self.count, self.count + 1, features if self.features else (),
                      CONTENT_WIDTH if self.content else 0, "int", False, 0, 0, {}, {})

    def content_vectors(self):
        """[V+1, width] float32, or None."""
        if not self.content:
            return None
        return np.random.default_rng(CATALOGUE_SEED).standard_normal((self.count + 1, CONTENT_WIDTH), np.float32)

    def rows(self, ids: np.ndarray) -> np.ndarray:
        """Item rows [..., C] int64 of ids [...]; a feature is a fixed function of the id."""
        return np.stack(self.columns(ids), axis=-1).astype(np.int64)

    def columns(self, ids) -> list:
        """The columns of `rows`, each shaped as the ids: arrays or tensors."""
        columns = [ids]
        if self.features:
            columns += [1 + ids * 2_654_435_761 % (2**32) * (2 * i + 1) // 64 % (rows - 1)
                        for i, rows in enumerate(FEATURE_ROWS)]
        return columns

    def drawn(self, random, steps: int, number: int) -> np.ndarray:
        """Ids [steps, number] of 1..V."""
        shape = (steps, number)
        if self.draw == "distinct":
            return np.stack([random.choice(self.count, number, replace=False) + 1 for _ in range(steps)])
        if self.draw == "uniform":
            return random.integers(1, self.count + 1, shape)
        return zipf_ids(random.random(shape), self.count)

    def chances(self) -> np.ndarray:
        """The distribution [V] of what is drawn, ids 1..V."""
        ranks = np.arange(1, self.count + 1, dtype=np.float64)
        weights = np.log1p(1 / ranks) if self.draw == "zipf" else np.ones(self.count)
        return weights / weights.sum()


def zipf_ids(chance: np.ndarray, count: int) -> np.ndarray:
    """Ids 1..count whose chance falls as one over the id, from uniform numbers in [0,1) of any shape."""
    return np.minimum(((count + 1.0) ** chance).astype(np.int64), count)  # the inverse of that distribution


def draw_batches(items: GeneratedItems, config: Config, steps: int) -> dict[str, np.ndarray]:
    """`steps` batches of full histories, stacked: the fields of ``models/batches`` with a first axis of steps."""
    random = np.random.default_rng(DRAW_SEED)
    size, history = config.train.batch_size, config.model.max_history
    ids = items.drawn(random, steps, size * (history + 1))
    return dict(
        history=items.rows(ids[:, size:].reshape(steps, size, history)),
        target=items.rows(ids[:, :size]),
        length=np.full((steps, size), history, np.int64),
        user_id=random.integers(0, 10**6, (steps, size)),
        weight=np.ones((steps, size), np.float32))


def in_turn(stacked: dict) -> tf.data.Iterator:
    """Iterator over stacked batches from memory, again and again."""
    dataset = tf.data.Dataset.from_tensor_slices(stacked).repeat()
    options = tf.data.Options()
    options.autotune.enabled = False
    return iter(dataset.with_options(options))


class HistoryOnly(RowObjective):
    """A loss of the histories alone, to tell apart what they cost: no target is read, and there are no negatives."""

    def rows(self, batch, training=True):
        """Batch -> [B], a sum of each user's numbers."""
        history = batch["history"]
        size, length, width = history.shape
        items = self.model.history_vectors(tf.reshape(history, [size * length, width]))
        mask = tf.sequence_mask(batch["length"], length)
        return tf.reduce_sum(self.model.user_vectors(tf.reshape(items, [size, length, -1]), mask), axis=1)


class Trainer:
    """One model with a training step for each queue variant or other loss.

    Args:
      items: the catalogue.
      config: settings of model and training.
      kinds: variants, `SAMPLED_SOFTMAX` or `HISTORY_ONLY`, that take turns on the one model and optimizer.
      runtime: where they run.
      open_feed: where their batches come from, see ``training/feeds``.

    Attributes:
      calls: kind -> `TrainCall`.
    """

    def __init__(self, items: GeneratedItems, config: Config, kinds=("cached",), runtime=None,
                 open_feed=open_iterator):
        self.config, runtime = config, runtime or LocalRuntime()
        with runtime.scope():
            self.model = build_model(config, items.schema(), items.content_vectors(), config.paths.seed)
            self.optimizer = build_optimizer(config.train, 10**6)
            self.optimizer.build(self.model.trainable_variables)
            objectives = {kind: self._objective(items, kind, runtime) for kind in kinds}
        self.calls = {kind: make_train_call(self.model, objective, self.optimizer, config.train.clip_norm, runtime,
                                            open_feed) for kind, objective in objectives.items()}

    def _objective(self, items, kind, runtime):
        capacity, local, constant = self.config.loss.queue_size, runtime.local_variable, runtime.local_constant
        if kind == HISTORY_ONLY:
            return HistoryOnly(self.model)
        if kind != SAMPLED_SOFTMAX:
            mask_same_user = self.config.settings_of(Contrastive).mask_same_user
            return build_variant(kind, self.model, capacity, mask_same_user, local)
        chances = items.chances()
        sampler = AliasSampler(chances, self.config.paths.seed, local, constant)
        log_q = np.append(0.0, np.log(chances)).astype(np.float32)
        rows = items.rows(np.arange(items.count + 1))
        return SampledSoftmax(self.model, rows, sampler, capacity, log_q, constant)

    def call(self, kind: str, iterator):
        """Function of no arguments: one call of `steps_per_call` steps of a variant."""
        steps = tf.constant(self.config.train.steps_per_call, tf.int64)
        return lambda: self.calls[kind](iterator, steps)
