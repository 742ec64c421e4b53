"""How far a learned distribution is from the oracle, and what its lists look like.

Letters: X contexts, V items. Scorers m, oracle o and clicks p are distributions [X,V]; means over contexts are
unweighted unless said otherwise.
"""
import numpy as np

from clrec_tf.lab.proof.exposure_simulator import ExposureSimulation
from clrec_tf.models.top_k import top_k

LIST_LENGTH = 20


def divergence(truth: np.ndarray, model: np.ndarray) -> float:
    """KL(truth‖model) in nats, mean over contexts."""
    return float(np.sum(truth * np.log(truth / model), axis=1).mean())


def top_lists(scores: np.ndarray, length: int = LIST_LENGTH) -> np.ndarray:
    """The best items of each context, equal scores by index: [X,V] -> int [X,length]."""
    return top_k(scores, length)[0]


def covered_mass(truth: np.ndarray, lists: np.ndarray) -> float:
    """Mass of `truth` inside the lists, mean over contexts: the oracle's or, of p_data, the biased recall."""
    return float(np.take_along_axis(truth, lists, axis=1).sum(axis=1).mean())


def aggregate_diversity(lists: np.ndarray) -> int:
    """Distinct items over all lists."""
    return len(np.unique(lists))


def popularity_auc(scores: np.ndarray, clicks: np.ndarray, popularity: np.ndarray, context_share: np.ndarray) -> float:
    """P(a click of p(·|x) outranks a negative of p_d), ties counting half, contexts weighted by P(x).

    Args:
      scores, clicks: [X,V].
      popularity: p_d [V].
      context_share: P(x) [X].
    """
    won = 0.0
    for row, positives, share in zip(scores, clicks, context_share):
        values, place = np.unique(row, return_inverse=True)
        mass = np.bincount(place, popularity, len(values))
        below = np.cumsum(mass) - mass / 2  # of the negatives, with half of the ties
        won += share * positives @ below[place]
    return float(won)


def effective_share(weights: np.ndarray, chances: np.ndarray) -> float:
    """(E w)²/E w², effective sample size over N of examples weighted by w: [X,V], chances [X,V] that sum to 1."""
    return float(np.sum(chances * weights) ** 2 / np.sum(chances * weights ** 2))


def measure(simulation: ExposureSimulation, model: np.ndarray) -> dict:
    """Every column of the table for one scorer."""
    lists, clicks, oracle = top_lists(model), simulation.clicks, simulation.oracle
    return dict(
        kl=divergence(oracle, model),
        oracle_recall=covered_mass(oracle, lists),
        biased_recall=covered_mass(clicks, lists),
        diversity=aggregate_diversity(lists),
        pop_auc=popularity_auc(model, clicks, simulation.click_popularity, simulation.context_share))
