"""A sequential simulation of known exposure and relevance: what users are shown, and what they click.

A context x is a user's current intent h and his type u, whose taste U lasts. The old system shows items y ~ q(·|x), one
after another, until the user clicks or has seen 50; an impression is clicked with probability c(x,y). So clicks follow
p_data(y|x) ∝ q(y|x)·c(x,y), and what should be recommended is o(y|x) ∝ c(x,y). Both tables are kept.

With one seed, the policies and their strengths decide only what is shown: items, users and visits stay the same.

Letters: X contexts, V items, U users, N visits, M impressions, Z types.
"""
import dataclasses

import numpy as np

from clrec_tf.config import ExposureWorldConfig
from clrec_tf.errors import UserError
from clrec_tf.lab.simulator.visits import INTENTS
from clrec_tf.lab.simulator.visits import LONGEST_VISIT
from clrec_tf.lab.simulator.visits import make_visits
from clrec_tf.lab.simulator.visits import Visits
from clrec_tf.preparation.synthetic_log import CATEGORIES

TASTE_DIM = 4
GENDERS = ("men", "any", "women")
GENDER_BORDERS = (-0.25, 0.25)  # of the first taste coordinate: half its standard deviation
ITEMS_PER_SELLER = 20
UNIFORM_SHARE = 0.02  # ε
TASTE_EXPOSURE = 1.5  # factor of VᵀU in the policy `personal`
SIZES = {"small": (2_000, 2_000), "full": (20_000, 10_000)}  # users, items


@dataclasses.dataclass(frozen=True)
class SimulatedItems:
    """The V items.

    Attributes:
      category: [V] int64, in [0, INTENTS · CATEGORIES); its intent is category // CATEGORIES.
      seller: [V] int64; half of the variance of an item's taste is its seller's.
      taste: [V,TASTE_DIM] vectors V of entries N(0, ¼).
      quality: [V], s.
      popularity: [V], rank^−zipf.
    """
    category: np.ndarray
    seller: np.ndarray
    taste: np.ndarray
    quality: np.ndarray
    popularity: np.ndarray

    @property
    def intent(self) -> np.ndarray:
        """[V] int64, z."""
        return self.category // CATEGORIES

    @property
    def gender(self) -> np.ndarray:
        """[V] int64, index into GENDERS: whom the item is for, read off the first coordinate of its taste."""
        return np.digitize(self.taste[:, 0], GENDER_BORDERS)


@dataclasses.dataclass(frozen=True)
class Impressions:
    """What was shown, in the order of the visits and of their impressions.

    Attributes:
      visit: [M] int64, index of the visit.
      place: [M] int64, how many impressions of the visit came before.
      item: [M] int64, from 0.
      clicked: [M] bool; only a visit's last impression can be.
    """
    visit: np.ndarray
    place: np.ndarray
    item: np.ndarray
    clicked: np.ndarray


@dataclasses.dataclass(frozen=True)
class Simulation:
    """Everything that was drawn; context = intent · Z + type.

    Attributes:
      catalogue: the items.
      type_taste: [Z,TASTE_DIM] vectors U of entries N(0, ¼).
      user_type: [U] int64; odd types come more often at weekends.
      relevance: [X,V], c.
      exposure: [X,V], q.
      visits: all visits.
      context: [N] int64, of each visit; shelf · INTENTS · Z more, where there are several shelves.
      impressions: all impressions.
      shelf: [N] int64, of each visit.
    """
    catalogue: SimulatedItems
    type_taste: np.ndarray
    user_type: np.ndarray
    relevance: np.ndarray
    exposure: np.ndarray
    visits: Visits
    context: np.ndarray
    impressions: Impressions
    shelf: np.ndarray


def generate(config: ExposureWorldConfig, seed: int) -> Simulation:
    """Draws a simulation.

    Raises:
      UserError: fewer items than categories, or so few visits that none ends with a click.
    """
    users, items = (given or default for given, default in
                    zip((config.exposure_users, config.exposure_items), SIZES[config.exposure_size]))
    if items < INTENTS * CATEGORIES:
        raise UserError(f"--exposure_items={items}: must be ≥ {INTENTS * CATEGORIES}, one item for each category")
    rng = np.random.default_rng(seed)
    type_taste = rng.normal(size=(config.exposure_types, TASTE_DIM)) / 2
    catalogue = make_catalogue(rng, items, config.exposure_zipf, config.quality_std)
    user_type = rng.integers(0, config.exposure_types, users)
    visits = make_visits(rng, user_type % 2 == 1, config.exposure_visits, config.exposure_weeks, config.weekend_shift)
    relevance = relevance_table(catalogue, type_taste, config.intent_bonus)
    exposure = exposure_table(catalogue, type_taste, config.exposure_policy, config.exposure_tau)
    context = visits.intent * config.exposure_types + user_type[visits.user]
    # Draws of their own, so that all else stays the same.
    of_shelves, shelf = np.random.default_rng([seed, config.exposure_shelves]), np.zeros_like(context)
    if config.exposure_shelves > 1:
        shelf = of_shelves.integers(0, config.exposure_shelves, len(context))
        others = [dataclasses.replace(catalogue, popularity=of_shelves.permutation(catalogue.popularity))
                  for _ in range(config.exposure_shelves - 1)]
        exposure = np.concatenate([exposure, *(exposure_table(
            other, type_taste, config.exposure_policy, config.exposure_tau) for other in others)])
        context += shelf * len(relevance)
        relevance = np.tile(relevance, (config.exposure_shelves, 1))
    impressions = show_until_click(rng, exposure, relevance, context, LONGEST_VISIT)
    if not impressions.clicked.any():
        raise UserError(f"--exposure_users={users} with --exposure_visits={config.exposure_visits} made no click: "
                        "raise them")
    return Simulation(catalogue, type_taste, user_type, relevance, exposure, visits, context, impressions,
                      shelf)


def make_catalogue(rng: np.random.Generator, items: int, zipf: float, quality_std: float) -> SimulatedItems:
    """Draws V = `items` items, as many of each category, popularity in random order, quality N(0, quality_std²)."""
    category = rng.permutation(np.arange(items) % (INTENTS * CATEGORIES))
    sellers = max(2, items // ITEMS_PER_SELLER)
    seller = rng.integers(0, sellers, items)
    taste = (rng.normal(size=(sellers, TASTE_DIM))[seller] + rng.normal(size=(items, TASTE_DIM))) * np.sqrt(0.5) / 2
    popularity = rng.permutation(np.arange(1.0, items + 1) ** -zipf)
    return SimulatedItems(category, seller, taste, quality_std * rng.normal(size=items), popularity)


def relevance_table(catalogue: SimulatedItems, type_taste: np.ndarray, intent_bonus: float) -> np.ndarray:
    """c(x,y) = sigmoid(−3 + b·1[z_y=h] + V_yᵀU_u + s_y), [X,V], from type_taste [Z,TASTE_DIM] and b."""
    match, affinity = _match_and_affinity(catalogue, type_taste)
    return 1 / (1 + np.exp(3 - intent_bonus * match - affinity - catalogue.quality))


def exposure_table(catalogue: SimulatedItems, type_taste: np.ndarray, policy: str, tau: float) -> np.ndarray:
    """q(y|x) of a policy, mixed with UNIFORM_SHARE uniform, [X,V]; rows sum to 1.

    Args:
      catalogue: the items.
      type_taste: [Z,TASTE_DIM].
      policy: `uniform`; or, times the popularity, `pop` 1, `quality` e^s, `intent` e^{τ·1[z_y=h]}, `personal`
        e^{τ·1[z_y=h] + 1.5·VᵀU}.
      tau: τ.
    """
    match, affinity = _match_and_affinity(catalogue, type_taste)
    logits = {"uniform": 0.0, "pop": 0.0, "quality": catalogue.quality, "intent": tau * match,
              "personal": tau * match + TASTE_EXPOSURE * affinity}[policy]
    base = np.ones_like(catalogue.popularity) if policy == "uniform" else catalogue.popularity
    shown = np.broadcast_to(base * np.exp(logits), affinity.shape)
    return (1 - UNIFORM_SHARE) * shown / shown.sum(axis=1, keepdims=True) + UNIFORM_SHARE / len(base)


def show_until_click(rng: np.random.Generator, exposure: np.ndarray, relevance: np.ndarray, context: np.ndarray,
                     limit: int) -> Impressions:
    """Shows items y ~ q(·|x) in each visit until one is clicked, with probability c(x,y), or `limit` were shown.

    Exact, without a step per impression: how many are shown until the click is geometric with rate r_x = Σ_y q·c, and
    given that number the clicked item is drawn ∝ q·c, the others independently ∝ q·(1−c).

    Args:
      rng: source of all draws.
      exposure: [X,V], q.
      relevance: [X,V], c.
      context: [N], of each visit.
      limit: most impressions of a visit.
    """
    clicks = exposure * relevance
    needed = rng.geometric(clicks.sum(axis=1)[context])
    shown = np.minimum(needed, limit)
    visit = np.repeat(np.arange(len(context)), shown)
    place = np.arange(len(visit)) - np.repeat(np.cumsum(shown) - shown, shown)
    clicked = place == (needed - 1)[visit]
    item = np.empty(len(visit), np.int64)
    item[clicked] = _draw(rng, clicks, context[visit[clicked]])
    item[~clicked] = _draw(rng, exposure - clicks, context[visit[~clicked]])
    return Impressions(visit, place, item, clicked)


def _draw(rng, weights, context):
    """One item [M] per context [M], ∝ weights[context] of [X,V]."""
    order = np.argsort(context.astype(np.int16), kind="stable")  # a radix sort for integers this short
    chance, item = rng.random(len(context)), np.empty(len(context), np.int64)
    for rows in np.split(order, np.flatnonzero(np.diff(context[order])) + 1):
        if len(rows):
            cumulative = np.cumsum(weights[context[rows[0]]])
            item[rows] = np.searchsorted(cumulative[:-1], chance[rows] * cumulative[-1], side="right")
    return item


def _match_and_affinity(catalogue, type_taste):
    """1[z_y=h] and V_yᵀU_u, both [X,V]."""
    match = np.repeat(np.arange(INTENTS)[:, None] == catalogue.intent, len(type_taste), axis=0)
    return match, np.tile(type_taste @ catalogue.taste.T, (INTENTS, 1))
