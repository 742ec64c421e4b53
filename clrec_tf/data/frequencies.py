"""Frequencies of items from counts."""
import dataclasses
from typing import Sequence

import numpy as np

from clrec_tf.data.features import Feature
from clrec_tf.data.features import feature_columns


def smoothed_frequencies(counts: np.ndarray, power: float) -> np.ndarray:
    """p ∝ max(count, 1)^power, so that no item that may be a target has p = 0: [V] -> float64 [V], summing to 1."""
    raised = np.maximum(np.asarray(counts, np.float64), 1.0) ** power
    return raised / raised.sum()


def log_popularity(counts: np.ndarray) -> np.ndarray:
    """log p̂(y) [item_rows] float32 from counts of clicks or impressions [item_rows]; 0 for padding."""
    return np.append(0.0, np.log(smoothed_frequencies(counts[1:], 1.0))).astype(np.float32)


@dataclasses.dataclass(frozen=True)
class CountsByFeature:
    """Clicks to be expected of items by features alone: c̄·Π_f exp mean_{v of f} log((n_v/c̄ + 1)/(m_v + 1)).

    n_v is the clicks on the items of value v, c̄ those on an average item, and m_v how many average items the features
    before f let expect in place of these: for the first their number. So a factor says how much more than that they are
    clicked, with one average item added, and nothing is counted twice where features say the same, as a category and
    the one above it. Of several values the geometric mean counts; an item without a value of a feature is an average
    one there.

    Attributes:
      average: c̄.
      log_factors: of each feature [rows], by value; 0 for values that no item has.
    """
    average: float
    log_factors: tuple[np.ndarray, ...]

    @classmethod
    def of(cls, counts: np.ndarray, item_rows: np.ndarray, features: Sequence[Feature]) -> "CountsByFeature":
        """What items have.

        Args:
          counts: [V], clicks or impressions.
          item_rows: int64 [V,C], id and features' values, 0 = none.
          features: of the rows.
        """
        average, expected, factors = float(counts.mean()), np.zeros(len(counts)), []
        for feature, columns in zip(features, feature_columns(features).values()):
            values = item_rows[:, columns]
            items, clicks = (np.bincount(values.ravel(), np.repeat(weights, values.shape[1]), feature.rows)
                             for weights in (np.exp(expected), counts))
            factors.append(np.log((clicks / average + 1) / (items + 1)))
            expected += _mean_factor(factors[-1], values)
        return cls(average, tuple(factors))

    def expected(self, item_rows: np.ndarray, features: Sequence[Feature]) -> np.ndarray:
        """Of items with such rows [N,C]: [N]."""
        columns = feature_columns(features).values()
        return self.average * np.exp(sum((_mean_factor(factors, item_rows[:, part])
                                          for factors, part in zip(self.log_factors, columns)),
                                         np.zeros(len(item_rows))))


def _mean_factor(factors, values):
    """Mean log factor of each item's values [N,W] that are there: [N]."""
    present = values > 0
    return np.where(present, factors[values], 0).sum(axis=1) / np.maximum(present.sum(axis=1), 1)


def counts_by_feature(counts: np.ndarray, item_rows: np.ndarray, features: Sequence[Feature]) -> np.ndarray:
    """`CountsByFeature` of the items that it is made from, [V]."""
    return CountsByFeature.of(counts, item_rows, features).expected(item_rows, features)
