"""The result of a search that finds nothing, into which others write."""
import numpy as np


def nothing_found(users: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Positions and scores [users,k] of a search that finds nothing."""
    return np.full((users, k), -1, np.int64), np.full((users, k), -np.inf, np.float32)
