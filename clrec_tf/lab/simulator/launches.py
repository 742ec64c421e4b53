"""A simulation in which features make quality and some items are launched late: what is known of items without clicks.

User u likes item y by s(u,y) = t_uᵀ(Σ_f w_f(y) + n_y) + Σ_f b_f(y) + ε_y: taste and quality are those of the item's
values of each feature f, and a part of each is its own. Items are shown by popularities e_y that know nothing of s, so
a click of u is on y with probability p(y|u) ∝ e_y·exp s(u,y) among the items that are there. Launched items are there
from the first second of the test part on, and are like the others in everything else.

Letters: U users, V items, D coordinates of taste, F features, N clicks.
"""
import dataclasses
import os
from typing import Iterator

import numpy as np
import polars as pl

from clrec_tf.preparation.splits import DAY
from clrec_tf.preparation.synthetic_log import FIRST_SECOND

FEATURES = {"category": 20, "brand": 40, "style": 8}  # values of each; an item's are drawn uniformly
TASTE_DIM, TASTE_STD, OWN_TASTE = 6, 1.6, 0.2  # D; standard deviation of tᵀ(Σw + n); share of its variance that is n's
QUALITY_STD, OWN_QUALITY, EXPOSURE_STD = 0.6, 0.2, 1.0  # of Σb + ε; share of its variance that is ε's; of log e
LAUNCHED = 0.2  # share of the items
DAYS, TEST_DAYS, CLICKS, LEAST_CLICKS = 35, 7, 25, 5  # days of the log; a user's mean clicks before the test part
CLICKS_FILE, ITEMS_FILE = "clicks.csv", "items.tsv"
CHUNK = 512


@dataclasses.dataclass(frozen=True)
class Launches:
    """The world.

    Attributes:
      user_taste: [U,D], t.
      values: [V,F] int64, from 0.
      feature_taste: [V,D], Σ w_f(y).
      own_taste: [V,D], n_y.
      feature_quality: [V], Σ b_f(y).
      own_quality: [V], ε_y.
      log_exposure: [V], log e_y.
      launched: bool [V], items that are not there before the test part.
    """
    user_taste: np.ndarray
    values: np.ndarray
    feature_taste: np.ndarray
    own_taste: np.ndarray
    feature_quality: np.ndarray
    own_quality: np.ndarray
    log_exposure: np.ndarray
    launched: np.ndarray

    def relevance(self, users: np.ndarray) -> np.ndarray:
        """s(u,y) of users [n] -> [n,V]."""
        return (self.user_taste[users] @ (self.feature_taste + self.own_taste).T
                + self.feature_quality + self.own_quality)

    def next_click(self, users: np.ndarray) -> np.ndarray:
        """log p(y|u) but for a constant of each user, [n,V], when all items are there."""
        return self.relevance(users) + self.log_exposure

    def described(self, users: np.ndarray) -> np.ndarray:
        """The same, [n,V], where of launched items nothing but features is known: log E[e·exp s | features]."""
        taste = self.user_taste[users]
        variance = ((TASTE_STD**2 * OWN_TASTE / TASTE_DIM) * (taste**2).sum(axis=1, keepdims=True)
                    + QUALITY_STD**2 * OWN_QUALITY + EXPOSURE_STD**2)  # log E exp N(0, v) = v/2
        expected = taste @ self.feature_taste.T + self.feature_quality + variance / 2
        return np.where(self.launched, expected, self.next_click(users))


def generate(users: int, items: int, seed: int) -> Launches:
    """Draws U = `users` users and V = `items` items."""
    rng = np.random.default_rng(seed)
    # Entries of t have variance 1, so that tᵀv has the variance Σ v².
    taste, quality = TASTE_STD / np.sqrt(TASTE_DIM), QUALITY_STD
    by_feature, own_taste, own_quality = (np.sqrt(share) for share in (
        1 / len(FEATURES), OWN_TASTE, OWN_QUALITY))
    values = np.stack([rng.integers(0, count, items) for count in FEATURES.values()], axis=1)
    tastes = [taste * by_feature * np.sqrt(1 - OWN_TASTE) * rng.normal(size=(count, TASTE_DIM))
              for count in FEATURES.values()]
    qualities = [quality * by_feature * np.sqrt(1 - OWN_QUALITY) * rng.normal(size=count)
                 for count in FEATURES.values()]
    return Launches(
        user_taste=rng.normal(size=(users, TASTE_DIM)), values=values,
        feature_taste=sum(of_value[column] for of_value, column in zip(tastes, values.T)),
        own_taste=taste * own_taste * rng.normal(size=(items, TASTE_DIM)),
        feature_quality=sum(of_value[column] for of_value, column in zip(qualities, values.T)),
        own_quality=quality * own_quality * rng.normal(size=items),
        log_exposure=EXPOSURE_STD * rng.normal(size=items),
        launched=rng.permutation(np.arange(items) < LAUNCHED * items))


def clicks(world: Launches, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """(user from 0, item from 0, seconds since 1970), [n] each, of some users at a time; a user's in time order."""
    rng, border = np.random.default_rng([seed, 1]), FIRST_SECOND + (DAYS - TEST_DAYS) * DAY
    for start in range(0, len(world.user_taste), CHUNK):
        users = np.arange(start, min(start + CHUNK, len(world.user_taste)))
        everything = np.exp(world.next_click(users))
        before = rng.poisson(CLICKS - LEAST_CLICKS, len(users)) + LEAST_CLICKS
        after = rng.poisson(CLICKS * TEST_DAYS / (DAYS - TEST_DAYS), len(users))
        for row, user in enumerate(users):
            for count, there, begin, end in ((before[row], ~world.launched, FIRST_SECOND, border),
                                             (after[row], 1, border, FIRST_SECOND + DAYS * DAY)):
                cumulative = np.cumsum(everything[row] * there)
                chosen = np.searchsorted(cumulative[:-1], rng.random(count) * cumulative[-1], side="right")
                yield np.full(count, user), chosen, np.sort(rng.integers(begin, end, count))


def write(world: Launches, seed: int, folder: str) -> None:
    """Writes log and item table, as a shop would have them, into an existing folder; user ids are 1..U."""
    user, item, second = map(np.concatenate, zip(*clicks(world, seed)))
    ids = pl.Series("item_id", item_ids(len(world.launched)))
    pl.DataFrame({"user_id": user + 1, "item_id": ids.gather(item), "timestamp": second}).write_csv(
        os.path.join(folder, CLICKS_FILE))
    pl.DataFrame({"item_id": ids, **{name: [f"{name}{value + 1}" for value in column]
                                     for name, column in zip(FEATURES, world.values.T)}}).write_csv(
        os.path.join(folder, ITEMS_FILE), separator="\t")


def item_ids(items: int) -> list[str]:
    """Original ids by number from 0; their alphabetical order is that of the numbers."""
    return [f"i{number:06d}" for number in range(1, items + 1)]
