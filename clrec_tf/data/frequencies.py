"""Frequencies of items from counts."""
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


def counts_by_feature(counts: np.ndarray, item_rows: np.ndarray, features: Sequence[Feature]) -> np.ndarray:
    """Clicks to be expected of items by features alone: c̄·Π_f exp mean_{v of f} log((n_v/c̄ + 1)/(m_v + 1)), [V].

    n_v is the clicks on the items of value v, c̄ those on an average item, and m_v how many average items the features
    before f let expect in place of these: for the first their number. So a factor says how much more than that they are
    clicked, with one average item added, and nothing is counted twice where features say the same, as a category and
    the one above it. Of several values the geometric mean counts; an item without a value of a feature is an average
    one there.

    Args:
      counts: [V], clicks or impressions.
      item_rows: int64 [V,C], id and features' values, 0 = none.
      features: of the rows.
    """
    average, log_factor = counts.mean(), np.zeros(len(counts))
    for columns in feature_columns(features).values():
        values = item_rows[:, columns]
        items, clicks = (np.bincount(values.ravel(), np.repeat(weights, values.shape[1])) for weights in
                         (np.exp(log_factor), counts))
        of_value, present = np.log((clicks / average + 1) / (items + 1)), values > 0
        log_factor += np.where(present, of_value[values], 0).sum(axis=1) / np.maximum(present.sum(axis=1), 1)
    return average * np.exp(log_factor)
