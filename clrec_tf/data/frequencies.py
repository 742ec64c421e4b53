"""Frequencies of items from counts."""
import numpy as np


def smoothed_frequencies(counts: np.ndarray, power: float) -> np.ndarray:
    """p ∝ max(count, 1)^power, so that no item that may be a target has p = 0: [V] -> float64 [V], summing to 1."""
    raised = np.maximum(np.asarray(counts, np.float64), 1.0) ** power
    return raised / raised.sum()


def log_popularity(counts: np.ndarray) -> np.ndarray:
    """log p̂(y) [item_rows] float32 from counts of clicks or impressions [item_rows]; 0 for padding."""
    return np.append(0.0, np.log(smoothed_frequencies(counts[1:], 1.0))).astype(np.float32)
