"""What must hold in the closed-form table, as named checks.

Statements hold for every seed, unless their name says "seed 0": those made of the simulations of seed 0, which other
seeds may contradict, and they are checked for that seed only.
"""
import dataclasses

import numpy as np

from clrec_tf.lab.checks import Check
from clrec_tf.lab.proof import measures
from clrec_tf.lab.proof import optima
from clrec_tf.losses import closed_forms
from clrec_tf.losses.closed_forms import normalized

EXACT = 1e-9  # what rounding may leave of an equality; nats where it is a divergence
SPEC_SEED = 0
DIALLED = (0.25, 0.5, 1.0)  # popularities at serving
SLIGHTLY = 0.05  # nats


def all_checks(evaluated: list[optima.Evaluated]) -> list[Check]:
    """The checks of every simulation, named after it."""
    named = []
    for each in evaluated:
        made = [*equalities(each), *biases(each), *corrections(each)]
        made += OF_ONE_SIMULATION.get(each.name, lambda _: ())(each)
        named += [dataclasses.replace(check, name=f"{each.name}: {check.name}") for check in made]
    return named


def equalities(each):
    """Forms of one optimum that must agree."""
    p, popularity, models = each.simulation.clicks, each.simulation.click_popularity, each.models
    by_noise = closed_forms.negative_sampling(p, normalized(popularity ** 0.75))
    rebiased = closed_forms.rebiased(models[optima.CLREC], popularity)
    yield Check("IPW learns the oracle, KL", each.measured[optima.IPW]["kl"], "<", EXACT)
    yield Check("negative sampling from p_d^.75 is β=.75, KL",
                measures.divergence(models[optima.BETA75], by_noise), "<", EXACT)
    yield Check("BCE with uniform negatives is softmax, KL",
                measures.divergence(p, closed_forms.uniform_bce(p)), "<", EXACT)
    yield Check("CLRec + log p_d ranks as softmax, contexts that differ",
                float(np.any(ranking(rebiased) != ranking(p), axis=1).sum()), "<", 1)
    for alpha in DIALLED:
        turned = closed_forms.dialled(models[optima.CLREC], popularity, alpha)
        trained = closed_forms.debiased(p, popularity, 1 - alpha)
        yield Check(f"CLRec served at popularity {alpha} is β={1 - alpha} trained, KL",
                    measures.divergence(trained, turned), "<", EXACT)
        yield Check(f"CLRec served at popularity {alpha} ranks as β={1 - alpha} trained, contexts that differ",
                    float(np.any(ranking(turned) != ranking(trained), axis=1).sum()), "<", 1)
    yield Check("the impression queue served at popularity 1 is softmax, KL", measures.divergence(
        p, closed_forms.dialled(models[optima.IMPRESSIONS], each.simulation.mean_exposure, 1.0)), "<", EXACT)
    yield Check("Multi-CLRec's objective is stationary, largest gradient",
                multi_queue_gradient(models[optima.MULTI], each.simulation), "<", EXACT)


def biases(each):
    """What exposure does to a softmax over clicks, and the measures that reward it."""
    # Where exposure is personal, even the oracle's lists may hold fewer distinct items.
    apart, spared = ((optima.IPW, optima.CLIPPED), " but for IPW") if each.settings.policy == "personal" else ((), "")
    recall, diversity = each.column("biased_recall", optima.MLE), each.column("diversity", optima.MLE, *apart)
    measured = each.measured
    yield Check("softmax has the highest biased recall, lead over the next",
                measured[optima.MLE]["biased_recall"] - max(recall.values()), ">", 0)
    yield Check(f"softmax has the lowest diversity{spared}, items to the next",
                min(diversity.values()) - measured[optima.MLE]["diversity"], ">", 0)
    yield Check("CLRec's pop-AUC exceeds the oracle's (a trap of the metric)",
                measured[optima.CLREC]["pop_auc"] - measured[optima.IPW]["pop_auc"], ">", 0)


def corrections(each):
    """What the queues repair."""
    kl, recall = each.column("kl"), each.column("oracle_recall")
    if each.settings.policy in ("intent", "personal"):
        yield Check("Multi-CLRec is nearer to the oracle than CLRec, KL over KL",
                    kl[optima.MULTI] / kl[optima.CLREC], "<", 1)
        return
    if each.settings.policy == "pop":
        yield Check("Multi-CLRec is farther from the oracle than CLRec, KL",
                    kl[optima.MULTI] - kl[optima.CLREC], ">", 0)
        yield Check("but slightly", kl[optima.MULTI] - kl[optima.CLREC], "<", SLIGHTLY)
    yield Check("the impression queue learns the oracle, KL", kl[optima.IMPRESSIONS], "<", EXACT)
    yield Check("the impression queue's oracle recall over the better of softmax and CLRec",
                recall[optima.IMPRESSIONS] - max(recall[optima.MLE], recall[optima.CLREC]), ">", 0)


def _pop(each):
    kl = each.column("kl")
    yield Check("softmax's KL over CLRec's", kl[optima.MLE] / kl[optima.CLREC], ">", 5)


def _strong_quality(each):
    """The price of learning p/p_d: it divides quality out too."""
    yield Check("CLRec loses to softmax on oracle recall, by", _lost(each), ">", 0)


def _intent_and_quality(each):
    recall = each.column("oracle_recall")
    yield Check("CLRec loses to β=.5 on oracle recall, by", recall[optima.BETA50] - recall[optima.CLREC], ">", 0)
    if each.settings.seed == SPEC_SEED:
        yield Check("seed 0, CLRec loses to softmax on oracle recall, by", _lost(each), ">", 0)


def _strong_intent(each):
    """The variance of IPW, and what clipping it costs."""
    p, share = each.simulation.clicks, each.simulation.context_share
    weights = closed_forms.relative_weights(p, each.simulation.exposure)
    effective, clipped = measures.effective_share(weights, share[:, None] * p), each.measured[optima.CLIPPED]["kl"]
    yield Check("effective sample size of IPW over N", effective, "<", 0.15)
    yield Check("clipping IPW at 10 times the mean raises KL from 0 to", clipped, ">", 0.01)
    if each.settings.seed == SPEC_SEED:
        yield Check("seed 0, effective sample size of IPW over N, from .10", abs(effective - 0.10), "<", 0.01)
        yield Check("seed 0, KL of clipped IPW, from .032", abs(clipped - 0.032), "<", 0.0005)


OF_ONE_SIMULATION = {"pop": _pop, "quality σ=1.4": _strong_quality, "intent τ=2 σ=.7": _intent_and_quality,
                     "intent τ=3": _strong_intent}


def _lost(each):
    recall = each.column("oracle_recall")
    return recall[optima.MLE] - recall[optima.CLREC]


def ranking(scores: np.ndarray) -> np.ndarray:
    """Items from best to worst, [X,V] -> int [X,V]."""
    return np.argsort(-scores, axis=1, kind="stable")


def multi_queue_gradient(model: np.ndarray, simulation) -> float:
    """Largest |∂/∂φ| of Multi-CLRec's objective −Σ_y p φ + Σ_h P_h log Σ_y n_h e^φ at e^φ = model [X,V]."""
    negatives = closed_forms.intent_negatives(simulation.click_popularity, simulation.intent)
    share = simulation.clicks @ (simulation.intent[:, None] == np.arange(len(negatives)))
    of_intent = normalized(negatives * model[:, None, :])  # [X,H,V]
    return float(np.abs(np.einsum("xh,xhv->xv", share, of_intent) - simulation.clicks).max())
