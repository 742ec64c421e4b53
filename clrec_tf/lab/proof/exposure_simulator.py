"""Small simulations in which everything is known: what was shown, what is liked, and so what clicks say.

An impression of item y in context x has probability q(y|x) and is clicked with probability c(x,y), so that
p_data ∝ q·c, while an unbiased system should rank by the oracle o ∝ c.

Letters: X contexts, V items. A context of a simulation is a pair (intent, type of taste).
"""
import dataclasses

import numpy as np

from clrec_tf.losses.closed_forms import normalized

BASE_LOGIT = -3.0  # of a click on an item of another intent, average taste and quality
TASTE_EXPOSURE = 1.5  # how strongly the policy `personal` follows taste
TABULAR_SEED = 123


@dataclasses.dataclass(frozen=True)
class SimulationSettings:
    """A simulation.

    Attributes:
      policy: how items were exposed: `pop` ∝ popularity, `quality` ∝ popularity·e^s, `intent` ∝
        popularity·e^{τ·1[intent of y = that of x]}, `personal` like intent, times e^{1.5·VᵀU}.
      quality_std: σ_s of the quality s, in logits.
      intent_relevance: b, logits that a matching intent adds to a click.
      intent_exposure: τ, log odds that a matching intent adds to exposure.
      items, intents, tastes, taste_dim: sizes; intents divides items.
      uniform_share: ε of exposure that is uniform.
      seed: of intents, popularity, quality and tastes.
    """
    policy: str = "pop"
    quality_std: float = 0.0
    intent_relevance: float = 1.5
    intent_exposure: float = 0.0
    items: int = 400
    intents: int = 8
    tastes: int = 6
    taste_dim: int = 4
    uniform_share: float = 0.02
    seed: int = 0


@dataclasses.dataclass(frozen=True)
class ExposureSimulation:
    """Exact distributions; rows [X,V] sum to 1 unless said otherwise.

    Attributes:
      exposure: q(y|x) [X,V].
      click_rate: c(x,y) [X,V], probabilities of a click on an impression.
      context_share: P(x) [X], share of the clicks.
      intent: intent of each item [V], int.
    """
    exposure: np.ndarray
    click_rate: np.ndarray
    context_share: np.ndarray
    intent: np.ndarray

    @property
    def clicks(self) -> np.ndarray:
        """p_data(y|x) ∝ q·c."""
        return normalized(self.exposure * self.click_rate)

    @property
    def oracle(self) -> np.ndarray:
        """o(y|x) ∝ c."""
        return normalized(self.click_rate)

    @property
    def click_popularity(self) -> np.ndarray:
        """p_d(y) = Σ_x P(x) p(y|x), [V]."""
        return self.context_share @ self.clicks

    @property
    def mean_exposure(self) -> np.ndarray:
        """q̄(y), mean of q over contexts, [V]."""
        return self.exposure.mean(axis=0)


def generate(settings: SimulationSettings) -> ExposureSimulation:
    """Simulates; contexts are in the order intent·tastes + type, weighted by their volume of clicks."""
    rng, shape = np.random.default_rng(settings.seed), settings.taste_dim
    intent = rng.permutation(np.repeat(np.arange(settings.intents), settings.items // settings.intents))
    popularity = rng.permutation(1.0 / np.arange(1, settings.items + 1))
    quality = settings.quality_std * rng.normal(size=settings.items)
    user_taste = rng.normal(size=(settings.tastes, shape)) / 2
    item_taste = rng.normal(size=(settings.items, shape)) / 2

    match = np.repeat(intent == np.arange(settings.intents)[:, None], settings.tastes, axis=0)
    taste = np.tile(user_taste @ item_taste.T, (settings.intents, 1))
    click_rate = sigmoid(BASE_LOGIT + settings.intent_relevance * match + taste + quality)
    by_intent = settings.intent_exposure * match
    preference = {"pop": 0.0 * match, "quality": quality + 0.0 * match, "intent": by_intent,
                  "personal": by_intent + TASTE_EXPOSURE * taste}[settings.policy]
    exposure = _mixed(popularity * np.exp(preference), settings.uniform_share)
    volume = (exposure * click_rate).sum(axis=1)
    return ExposureSimulation(exposure, click_rate, volume / volume.sum(), intent)


def tabular_simulation(contexts: int = 4, items: int = 30) -> ExposureSimulation:
    """That of the stochastic check: c = sigmoid(−1 + N(0,1)), q ∝ 1/rank everywhere, contexts equally frequent.

    An item's intent is the context that likes it most, so that intents are preferred differently.
    """
    click_rate = sigmoid(-1 + np.random.default_rng(TABULAR_SEED).normal(size=(contexts, items)))
    exposure = _mixed(np.tile(1.0 / np.arange(1, items + 1), (contexts, 1)), 0.02)
    return ExposureSimulation(exposure, click_rate, np.full(contexts, 1 / contexts), click_rate.argmax(axis=0))


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """1/(1+e^−x), any shape."""
    return 1 / (1 + np.exp(-logits))


def _mixed(weights, uniform_share):
    """(1−ε)·weights, normalized, + ε/V: [X,V] -> [X,V]."""
    return (1 - uniform_share) * normalized(weights) + uniform_share / weights.shape[1]


def impression_log(simulation: ExposureSimulation, number: int, seed: int):
    """Impressions y ~ q(·|x) in equally frequent contexts, each clicked with probability c(x,y).

    Returns:
      (context [N] int, item [N] int, clicked [N] bool).
    """
    rng = np.random.default_rng(seed)
    context, chance = rng.integers(0, len(simulation.exposure), number), rng.random(number)
    item = np.empty(number, np.int64)
    for x, row in enumerate(np.cumsum(simulation.exposure, axis=1)):
        of_context = context == x
        item[of_context] = np.searchsorted(row, chance[of_context] * row[-1], side="right")
    return context, item, rng.random(number) < simulation.click_rate[context, item]
