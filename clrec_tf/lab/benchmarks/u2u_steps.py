"""What the cached queue of --pretext=u2u saves: training steps with it beside steps that encode all of its sequences
anew, which brings every one of them a gradient.

The other side is written as carefully: sequences share the distinct items of the step, and one call of the encoder.
"""
from absl import logging
import numpy as np
import tensorflow as tf

from clrec_tf.config import Config
from clrec_tf.lab.benchmarks import queue_steps
from clrec_tf.lab.benchmarks import timing
from clrec_tf.lab.benchmarks.workload import DRAW_SEED
from clrec_tf.lab.benchmarks.workload import draw_batches
from clrec_tf.lab.benchmarks.workload import GeneratedItems
from clrec_tf.lab.benchmarks.workload import in_turn
from clrec_tf.lab.benchmarks.workload import Trainer
from clrec_tf.lab.children import in_child
from clrec_tf.losses import contrastive
from clrec_tf.objectives.base import Objective
from clrec_tf.objectives.fifo_queue import FifoQueue
from clrec_tf.objectives.pretext import Pretext
from clrec_tf.objectives.user_to_user import UserToUser

CACHED, REENCODED = "cached", "reencoded"


class ReencodedSequences(Pretext):
    """`UserToUser` over a queue of clicks, encoded in every step with gradient.

    Args:
      model: a `TwoTower`.
      capacity, local_variable: of the queue, see `FifoQueue`.
      clicks: A, of each sequence.
    """

    def __init__(self, model, capacity, local_variable, clicks):
        fields = {"after": tf.TensorSpec([clicks, model.item_encoder.item_width], tf.int64),
                  "after_length": tf.TensorSpec([], tf.int64)}
        super().__init__(model, queue=FifoQueue(capacity, fields, local_variable))

    def queued(self, batch):
        """The batch with the queue's clicks [Q,A,C] for its clicks after, and where its own are, `slot` [B]."""
        names = ("after", "after_length")
        pushed = self.queue.enqueue(batch["weight"] > 0, **{name: batch[name] for name in names})
        return {**batch, **{name: self.queue.read(name) for name in names}, "slot": pushed.slots}

    def rows(self, encoded, batch):
        """Encoded batch of `queued` -> [B]."""
        positives = contrastive.paired_logits(
            encoded.users, tf.gather(encoded.after, tf.maximum(batch["slot"], 0)), self.model.temperature)
        logits = contrastive.pairwise_logits(encoded.users, encoded.after, self.model.temperature)
        logits += contrastive.mask_logits(batch["after_length"] > 0)[None, :]
        return contrastive.contrastive_loss(positives, logits, bound=self.model.logit_bound)


class OverQueued(Objective):
    """An objective whose pretext is `ReencodedSequences`."""

    def __init__(self, objective):
        super().__init__(objective.model, objective=objective)

    def loss(self, batch, training=True):
        """See `Objective.loss`."""
        return self.objective.loss(self.objective.pretext.queued(batch), training)


class SequenceTrainer(Trainer):
    """A trainer of both kinds of queue, beside the loss with a cached queue of items."""

    def _objective(self, items, kind, runtime):
        loss, capacity = super()._objective(items, "cached", runtime), self.config.loss.queue_size
        if kind == CACHED:
            return loss.with_pretext(UserToUser(self.model, capacity, 1.0, False, runtime.local_variable))
        clicks = UserToUser.clicks_read(self.config.model.max_history)
        return OverQueued(loss.with_pretext(ReencodedSequences(self.model, capacity, runtime.local_variable, clicks)))


def run(config: Config) -> dict:
    """Each length of history in a process of its own; --queue_size entries in both queues.

    Returns:
      `ratios`: step time of encoding anew over the cached queue's, and its share of what the bound allows; `cases`.
    """
    cases = [in_child(measure, queue_steps.case_config(config, history)) for history in queue_steps.histories(config)]
    ratios = {}
    for case in cases:
        logging.info("u2u T=%(history)d cached/reencoded %(cached_vs_reencoded).2f, clicks encoded %(bound).2f", case)
        name = f"cached_vs_reencoded_T{case['history']}"
        ratios |= {name: case["cached_vs_reencoded"], f"{name}_of_bound": case["of_bound"]}
    return dict(ratios=ratios, cases=cases, rounds=config.benchmark.rounds)


def measure(config: Config) -> dict:
    """Both kinds in turn, full queues."""
    items, size, steps = GeneratedItems(config.benchmark.benchmark_items), config.train.batch_size, queue_steps.STEPS
    batches, clicks = draw_batches(items, config, steps), UserToUser.clicks_read(config.model.max_history)
    drawn = items.drawn(np.random.default_rng(DRAW_SEED + 1), steps, size * clicks)
    batches |= dict(after=items.rows(drawn.reshape(steps, size, clicks)),
                    after_length=np.full((steps, size), clicks, np.int64))
    trainer = SequenceTrainer(items, config, (CACHED, REENCODED))
    calls = {kind: trainer.call(kind, in_turn(batches)) for kind in (CACHED, REENCODED)}
    for _ in range(-(-config.loss.queue_size // (size * steps))):  # until the queues are full
        for call in calls.values():
            call()
    seconds = timing.take_turns(calls, config.benchmark.rounds)
    ratio = timing.ratio(seconds, REENCODED, CACHED)
    bound = clicks_encoded(config, config.loss.queue_size) / clicks_encoded(config, size)
    return dict(history=config.model.max_history, user_encoder=config.tower.user_encoder,
                cached_vs_reencoded=round(ratio, 3), bound=round(bound, 3),
                of_bound=round((ratio - 1) / (bound - 1), 3) if bound > 1 else None,
                ms_per_step={kind: queue_steps.ms(seconds[kind]) for kind in calls})


def clicks_encoded(config: Config, sequences: int) -> int:
    """Clicks that a step's encoder reads: of B histories, and of as many sequences of clicks after."""
    history = config.model.max_history
    return config.train.batch_size * history + sequences * UserToUser.clicks_read(history)
