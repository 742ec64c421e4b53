"""Training steps of Multi-CLRec beside those of CLRec with one queue, over the same item encoder.

Both read the same histories, compare each row with as many candidates, and take turns; what differs is the query tower,
H vectors in place of one, and 1+H queues in place of one.
"""

import tensorflow as tf
import tf_keras

from clrec_tf.config import Config
from clrec_tf.lab.benchmarks.queue_steps import case_config
from clrec_tf.lab.benchmarks.queue_steps import ms
from clrec_tf.lab.benchmarks.queue_steps import STEPS
from clrec_tf.lab.benchmarks import timing
from clrec_tf.lab.benchmarks.workload import draw_batches
from clrec_tf.lab.benchmarks.workload import GeneratedItems
from clrec_tf.lab.benchmarks.workload import in_turn
from clrec_tf.models.build import build_model
from clrec_tf.models.clrec import CLRec
from clrec_tf.objectives.contrastive import build_variant
from clrec_tf.objectives.multi_queue import build_multi_queue
from clrec_tf.training.optimizers import build_optimizer
from clrec_tf.training.runtime import LocalRuntime
from clrec_tf.training.step import make_train_call

KINDS = ("raw", "cached")
TOWER_ITEMS = 1000  # of a catalogue whose item encoder is not used


class WithoutCategory(tf_keras.layers.Layer):
    """An `IntentItemEncoder` as CLRec reads it: rows [N,C] -> g [N,d] alone."""

    def __init__(self, encoder):
        super().__init__(name="item_encoder")
        self.encoder, self.dim, self.item_width = encoder, encoder.dim, encoder.item_width
        self.width = self.dim

    def call(self, rows):
        """Rows [N,C] int64 with distinct ids -> g [N,d]."""
        return self.encoder(rows)[:, :self.dim]

    def encode_distinct(self, rows, ids=None):
        """The same; `ids` are looked up here alone."""
        del ids
        return self(rows)


def of_model(config: Config, name: str, intents: int) -> Config:
    """The settings of one of the models, without those that only the other has."""
    own = dict(num_intents=intents) if name == "multi_clrec" else {}
    return config.but(model=name, **own).without_unread()


def single_over(item_encoder, config: Config) -> CLRec:
    """CLRec with the settings' query tower over the item encoder of Multi-CLRec."""
    settings = of_model(config, "clrec", 1)
    towers = build_model(settings, GeneratedItems(TOWER_ITEMS, features=True).schema(), None, config.paths.seed)
    return CLRec(WithoutCategory(item_encoder), towers.click_encoder, towers.user_encoder, towers.similarity,
                 towers.temperature)


class ComparedSteps:
    """Both models with their queues, full.

    Args:
      config: settings.
      items: the catalogue, with features, of which the first is the category.
      intents: H.
      kinds: of the queues of both.
    """

    def __init__(self, config: Config, items: GeneratedItems, intents: int, kinds=KINDS):
        self.config, self._runtime = config, LocalRuntime()
        settings, local = of_model(config, "multi_clrec", intents), self._runtime.local_variable
        schema = items.schema()
        # Histories are not read; as many clicks as `prefill` takes, and every one another.
        capacity = settings.loss.queue_size
        fill = -(-4 * (1 + intents) * capacity // 2 // config.train.batch_size) + 1
        self._fill = draw_batches(items, config.but(max_history=1), fill)
        self.models = {"multi": build_model(settings, schema, None, config.paths.seed)}
        self.models["single"] = single_over(self.models["multi"].item_encoder, config)
        self.objectives = {}
        for kind in kinds:
            losses = settings.objective
            self.objectives["multi", kind] = build_multi_queue(
                kind, self.models["multi"], capacity // 2, local, schema.item_rows, losses.st_mode,
                losses.st_max_ratio, losses.beta_of("gated"), losses.balanced_gradient)
            self.objectives["single", kind] = build_variant(kind, self.models["single"], capacity, False, local,
                                                            balanced=losses.balanced_gradient)
        self._optimizers = {}

    def call(self, name: str, kind: str, batches):
        """Function of no arguments: `STEPS` steps of a model with a queue, full at the begin, over stacked batches."""
        model, objective = self.models[name], self.objectives[name, kind]
        if name not in self._optimizers:
            self._optimizers[name] = build_optimizer(self.config.train, 10**6)
            self._optimizers[name].build(model.trainable_variables)
        steps, size = tf.constant(STEPS, tf.int64), len(self._fill["weight"])
        objective.prefill({field: values[step] for field, values in self._fill.items()} for step in range(size))
        call = make_train_call(model, objective, self._optimizers[name], self.config.train.clip_norm, self._runtime)
        iterator = in_turn(batches)
        return lambda: call(iterator, steps)


def compare(config: Config, history: int, intents: int) -> dict:
    """Raw and cached steps of both models, all in turn.

    Returns:
      `ms_per_step` by model and kind, `multi_vs_single` by kind, and how full the intents' queues were.
    """
    config = case_config(config, history)
    items = GeneratedItems(config.benchmark.benchmark_items, features=True)
    steps = ComparedSteps(config, items, intents)
    # No batch comes twice: repeats would leave ever fewer distinct items in the queues.
    batches = draw_batches(items, config, STEPS * (config.benchmark.rounds + 1))
    sides = [(name, kind) for kind in KINDS for name in ("single", "multi")]
    calls = {side: steps.call(*side, batches) for side in sides}
    seconds = timing.take_turns({side: _last(call) for side, call in calls.items()}, config.benchmark.rounds)
    filled = {kind: _filled(steps.objectives["multi", kind]) for kind in KINDS}
    return dict(
        history=history, intents=intents, items=items.count,
        ms_per_step={f"{name} {kind}": ms(seconds[name, kind]) for name, kind in sides},
        multi_vs_single={kind: round(timing.ratio(seconds, ("multi", kind), ("single", kind)), 3) for kind in KINDS},
        intent_queues_filled=filled)


def compare_counts(config: Config, intents: int, catalogues) -> dict:
    """Raw steps of Multi-CLRec with candidates grouped by intent over those with counts of items, by size of catalogue.

    Returns:
      V -> time of the grouped over that of the counted; above 1 counts are cheaper.
    """
    config = case_config(config, 1)
    ratios = {}
    for count in catalogues:
        items = GeneratedItems(count, features=True)
        steps, batches = ComparedSteps(config, items, intents, kinds=("raw",)), draw_batches(items, config, STEPS)
        sides = {by_counts: _by_counts(steps, by_counts, batches) for by_counts in (False, True)}
        seconds = timing.take_turns(sides, config.benchmark.rounds)
        ratios[count] = round(timing.ratio(seconds, False, True), 3)
    return ratios


def _by_counts(steps, by_counts, batches):
    """Function of no arguments: raw steps of Multi-CLRec with one of the two forms of candidates."""
    objective, call = steps.objectives["multi", "raw"], steps.call("multi", "raw", batches)

    def run():
        objective.by_counts = by_counts  # read when the call is traced, the first time that it runs
        return call()["loss"]

    return run


def _last(call):
    """Of what a call gives only the loss is waited for: all of it is one tensor."""
    return lambda: call()["loss"]


def _filled(objective):
    """Share of the slots of the intents' queues that hold an entry."""
    queue = objective.queue
    return round(float(tf.reduce_mean(tf.cast(queue.open().valid(), tf.float32))), 3)
