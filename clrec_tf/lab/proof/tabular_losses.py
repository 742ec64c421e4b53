"""The losses of the stochastic check, each beside its own closed form.

The mathematics is that of `clrec_tf.losses`; here stands only where a loss takes its negatives from.
Letters: X contexts, V items, B batch, L negatives.
"""
import dataclasses
import functools
import typing

import numpy as np
import tensorflow as tf

from clrec_tf import config  # noqa: F401  pylint: disable=unused-import  (registers the losses)
from clrec_tf.lab.proof.exposure_simulator import ExposureSimulation
from clrec_tf.lab.proof.tabular import BATCH
from clrec_tf.lab.proof.tabular import QUEUE
from clrec_tf.lab.proof.tabular import TableTrainer
from clrec_tf.lab.proof.tabular_intents import ContextIntentTrainer
from clrec_tf.lab.proof.tabular_intents import gated
from clrec_tf.lab.proof.tabular_intents import GatedTableTrainer
from clrec_tf.lab.proof.tabular_intents import HeaviestTableTrainer
from clrec_tf.lab.proof.tabular_intents import IntentTableTrainer
from clrec_tf.lab.proof.tabular_intents import OfClicksTableTrainer
from clrec_tf.lab.proof.tabular_intents import multi_queue
from clrec_tf.losses.closed_forms import normalized
from clrec_tf.losses import contrastive
from clrec_tf.losses import ipw
from clrec_tf.losses import sampled
from clrec_tf.settings.registry import LOSSES

BETA = 0.5
NOISE_POWER = 0.75  # negatives of negative sampling are drawn from p_d to this power
NEGATIVES = 64  # per positive, of negative sampling
WEIGHT_CAP = 20.0  # of clipped IPW


@dataclasses.dataclass(frozen=True)
class Case:
    """One loss and what it should learn.

    Attributes:
      name: of the loss.
      loss: (step) -> [B].
      target: its closed form, [X,V].
      queue: what enters the queue, see `TableTrainer`.
      defect: it must *miss* the target.
      trainer: of the table.
    """
    name: str
    loss: typing.Callable
    target: np.ndarray
    queue: str = ""
    defect: bool = False
    trainer: type[TableTrainer] = TableTrainer


def cases(simulation: ExposureSimulation, mask_hits: bool) -> list[Case]:
    """Every loss in a simulation; `mask_hits` plants the defect in the click queue's own run too."""
    popularity, items = simulation.click_popularity, simulation.exposure.shape[1]
    noise, even = normalized(popularity ** NOISE_POWER), np.full(items, 1 / items)
    learned = functools.partial(optimum, simulation)
    clicks, (_, multi) = learned("contrastive"), queue_cases(simulation)
    return [
        Case("full softmax", full_softmax, learned("full_softmax")),
        Case("sampled softmax, logQ", sampled_softmax(popularity), learned("sampled_softmax")),
        Case("IPW", weighted_softmax(simulation.exposure, np.inf), learned("ipw", propensity="softmax", ipw_cap=0.0)),
        Case(f"IPW, weights up to {WEIGHT_CAP:g}", weighted_softmax(simulation.exposure, WEIGHT_CAP),
             learned("ipw", propensity="softmax", ipw_cap=WEIGHT_CAP / items)),
        Case("impression queue", impression_queue, learned("contrastive", negatives="impressions"), "impressions"),
        Case("click queue", masked_click_queue if mask_hits else click_queue, clicks, "clicks"),
        Case("click queue, hits masked", masked_click_queue, clicks, "clicks", defect=True),
        Case(f"click queue, β={BETA:g}", debiased_click_queue(popularity), learned("contrastive", debias_beta=BETA),
             "clicks"),
        Case("negative sampling", negative_sampling(noise, NEGATIVES), learned("negative_sampling")),
        Case("shared negative sampling", shared_negative_sampling(noise), learned("shared_negative_sampling")),
        Case("BCE, a uniform negative", negative_sampling(even, 1), learned("bce")),
        multi,
        Case("multi-queue, by the context's intent", multi_queue, multi.target, "clicks", defect=True,
             trainer=ContextIntentTrainer),
        Case("multi-queue, gated vectors", gated, multi.target, "clicks", trainer=GatedTableTrainer),
        Case("multi-queue, gated vectors, intent β=0", gated, learned("contrastive", tower="multi_clrec"), "clicks",
             trainer=OfClicksTableTrainer),
        Case("multi-queue, gated vectors, the heaviest alone", gated, multi.target, "clicks", defect=True,
             trainer=HeaviestTableTrainer),
    ]


def queue_cases(simulation: ExposureSimulation) -> list[Case]:
    """The click queue and the multi-queue."""
    return [Case("click queue", click_queue, optimum(simulation, "contrastive"), "clicks"),
            Case("multi-queue", multi_queue, optimum(simulation, "contrastive", tower="multi_clrec", intent_beta=1.0), "clicks",
                 trainer=IntentTableTrainer)]


def optimum(simulation: ExposureSimulation, loss: str, tower: str = "", **settings) -> np.ndarray:
    """What a registered loss with these settings says that it learns, [X,V]."""
    cls = LOSSES.get(loss, tower)
    return cls.closed_form(simulation, cls.Settings(**settings))


def full_softmax(step):
    """All items are candidates."""
    return contrastive.contrastive_loss(step.positive_logits, step.logits)


def sampled_softmax(popularity):
    """The positive and Q−1 negatives from p_d, which the batch shares, all corrected by log p_d [V]."""
    def loss(step):
        negatives = step.draws.repeated(_constant(popularity), QUEUE - 1)
        positive = _corrected(step.positive_logits, popularity, step.positives)
        corrected = _corrected(step.shared(negatives), popularity, negatives)
        return contrastive.contrastive_loss(positive, positive[:, None], corrected)
    return loss


def weighted_softmax(exposure, cap):
    """IPW with the true propensities q [X,V]."""
    def loss(step):
        propensities = tf.gather(tf.gather(_constant(exposure), step.contexts), step.positives, batch_dims=1)
        weights = ipw.inverse_propensity_weights(propensities, cap)
        return ipw.self_normalized(weights, tf.ones_like(weights)) * full_softmax(step)
    return loss


def impression_queue(step):
    """The positive in a slot of its own, and the queue's impressions."""
    positive = step.positive_logits
    return contrastive.contrastive_loss(positive, positive[:, None], step.shared(step.queued))


def click_queue(step):
    """The queue, which holds the positive once as its own slot; its other copies are kept."""
    return contrastive.contrastive_loss(step.positive_logits, step.shared(step.queued))


def masked_click_queue(step):
    """The defect: copies of the positive ("accidental hits") other than its own slot are masked."""
    own = tf.range(QUEUE, dtype=tf.int64)[None, :] == step.slots[:, None]
    keep = own | (step.queued[None, :] != step.positives[:, None])
    return contrastive.contrastive_loss(step.positive_logits, step.shared(step.queued) + contrastive.mask_logits(keep))


def debiased_click_queue(popularity):
    """The click queue, its logits corrected by (1−β) log p_d."""
    partly = popularity ** (1 - BETA)

    def loss(step):
        positive = _corrected(step.positive_logits, partly, step.positives)
        return contrastive.contrastive_loss(positive, _corrected(step.shared(step.queued), partly, step.queued))
    return loss


def negative_sampling(noise, number):
    """`number` negatives from p_n [V] for each positive."""
    def loss(step):
        negatives = tf.reshape(step.draws.repeated(_constant(noise), BATCH * number), [BATCH, number])
        return sampled.negative_sampling_loss(
            step.positive_logits, tf.gather(step.logits, negatives, batch_dims=1))
    return loss


def shared_negative_sampling(noise):
    """Q negatives from p_n [V] that the batch shares."""
    def loss(step):
        return sampled.negative_sampling_loss(
            step.positive_logits, step.shared(step.draws.repeated(_constant(noise), QUEUE)))
    return loss


def _corrected(logits, chances, items):
    """φ − log chances of the items."""
    return sampled.corrected_logits(logits, tf.gather(tf.math.log(_constant(chances)), items))


def _constant(values):
    return tf.constant(values, tf.float32)
