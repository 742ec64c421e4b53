"""A synthetic click log with planted structure, for a first run without data.

Users move between intents like a Markov chain: they stay for the next click with probability .85 on average, and less
the longer they were away, so that time gaps carry signal. Within an intent they dwell on one of its categories. What
they are shown is biased: exposure q(y|x) ∝ popularity × match of intent and category, with Zipf popularity. What they
then click depends on relevance, c(x,y) = sigmoid(−3 + b·1[intent match] + VᵀU) with taste U of the user's type and V of
the item, partly its seller's. The log holds clicks only, so an item's clicks are p_data(y|x) ∝ q(y|x)·c(x,y).
"""
import os

import numpy as np
import polars as pl

from clrec_tf.settings.data import WorldConfig
from clrec_tf.system import atomic

CLICKS_FILE, ITEMS_FILE = "clicks.csv", "items.tsv"

CATEGORIES = 4  # per intent
TYPES = 6  # of taste among users
TASTE_DIM = 4
STAY_CATEGORY = 0.8  # while the intent stays
ZIPF_EXPONENT = 0.6  # flatter than 1, or most-popular alone would find a third of all clicks in so small a catalogue
INTENT_EXPOSURE, CATEGORY_EXPOSURE = 2.0, 3.0  # log odds of being shown
INTENT_RELEVANCE, TASTE_RELEVANCE = 1.5, 0.7  # b, and the scale of VᵀU
MEAN_GAP = 7200.0  # seconds between a user's clicks
FIRST_SECOND, START_SPREAD = 1_614_556_800, 259_200  # 1 March 2021 UTC; users start within three days


def generate(config: WorldConfig, seed: int, folder: str) -> str:
    """Writes CLICKS_FILE (user_id, item_id, timestamp; sorted) and ITEMS_FILE (item_id, title, category, seller).

    Each file gets its name only when complete, the clicks last.

    Args:
      config: numbers of users, items, intents and clicks.
      seed: with `config` decides every byte.
      folder: where to write; made if missing.

    Returns:
      Path of the clicks.
    """
    rng = np.random.default_rng(seed)
    category = rng.permutation(np.arange(config.world_items) % (config.world_intents * CATEGORIES))
    seller = rng.integers(0, max(2, config.world_items // 20), config.world_items)
    user, seconds, user_category = _visits(config, rng)
    item = _clicks(config, rng, category, seller, user, user_category)

    ids = np.array([f"i{number:06d}" for number in range(1, config.world_items + 1)])
    titles = [f"intent {c // CATEGORIES + 1} · category {c % CATEGORIES + 1} · item {number + 1}"
              for number, c in enumerate(category)]
    items = pl.DataFrame({"item_id": ids, "title": titles,
                          "category": [f"c{c // CATEGORIES + 1}.{c % CATEGORIES + 1}" for c in category],
                          "seller": [f"s{s + 1}" for s in seller]})
    clicks = pl.DataFrame({"user_id": user + 1, "item_id": pl.Series(ids).gather(item), "timestamp": seconds})
    os.makedirs(folder, exist_ok=True)
    path, flag = os.path.join(folder, CLICKS_FILE), "data_dir"
    with atomic.new_file(os.path.join(folder, ITEMS_FILE), flag) as name:
        items.write_csv(name, separator="\t")
    with atomic.new_file(path, flag) as name:
        clicks.write_csv(name)
    return path


def switch_probability(gap: np.ndarray) -> np.ndarray:
    """Chance of a new intent after `gap` seconds: .6·F(gap)³ with F the gaps' own distribution, so .15 on average."""
    return 0.6 * (1 - np.exp(-gap / MEAN_GAP)) ** 3


def _visits(config, rng):
    """When each user clicks, and in what state of mind: (user [N], seconds [N], current category [N])."""
    users, mean = config.world_users, config.world_clicks_per_user
    lengths = rng.integers(mean - mean // 2, mean + mean // 2 + 1, users)
    shape = (users, lengths.max())
    gaps = np.ceil(rng.exponential(MEAN_GAP, shape)).astype(np.int64)  # at least a second, so times strictly rise
    seconds = FIRST_SECOND + rng.integers(0, START_SPREAD, users)[:, None] + np.cumsum(gaps, axis=1) - gaps[:, :1]

    switched = rng.random(shape) < switch_probability(gaps)
    switched[:, 0] = True
    # A switch adds 1..H−1 modulo H, which never gives the same intent again.
    step = np.where(switched, rng.integers(1, config.world_intents, shape), 0)
    step[:, 0] = rng.integers(0, config.world_intents, users)
    intent = np.cumsum(step, axis=1) % config.world_intents
    chooses = switched | (rng.random(shape) > STAY_CATEGORY)
    since = np.maximum.accumulate(np.where(chooses, np.arange(shape[1]), 0), axis=1)  # the click that chose it
    category = np.take_along_axis(rng.integers(0, CATEGORIES, shape), since, axis=1)

    kept = np.arange(shape[1]) < lengths[:, None]
    return np.nonzero(kept)[0], seconds[kept], (intent * CATEGORIES + category)[kept]


def _clicks(config, rng, category, seller, user, user_category):
    """The item [N] of each click, from p_data(y|x) ∝ q(y|x)·c(x,y), where x is the category and the user's type."""
    popularity = rng.permutation(np.arange(1.0, config.world_items + 1) ** -ZIPF_EXPONENT)
    seller_taste = rng.normal(size=(seller.max() + 1, TASTE_DIM))[seller]
    item_taste = np.sqrt(0.5) * (seller_taste + rng.normal(size=seller_taste.shape))
    user_type = rng.integers(0, TYPES, config.world_users)[user]
    taste = TASTE_RELEVANCE * rng.normal(size=(TYPES, TASTE_DIM)) @ item_taste.T

    context = user_category * TYPES + user_type
    order = np.argsort(context, kind="stable")
    chance, item = rng.random(len(user)), np.empty(len(user), np.int64)
    for rows in np.split(order, np.flatnonzero(np.diff(context[order])) + 1):
        current, kind = divmod(context[rows[0]], TYPES)
        match = category // CATEGORIES == current // CATEGORIES
        exposure = popularity * np.exp(INTENT_EXPOSURE * match + CATEGORY_EXPOSURE * (category == current))
        relevance = 1 / (1 + np.exp(3 - INTENT_RELEVANCE * match - taste[kind]))
        cumulative = np.cumsum(exposure * relevance)
        item[rows] = np.searchsorted(cumulative, chance[rows] * cumulative[-1], side="right")
    return item
