"""Numbers drawn for users by seed: which of them validate, whose last click is hidden, what they are compared with."""
import numpy as np

LABEL, NEGATIVE, VALIDATION = 0, 1, 2  # what a user's number is drawn for


def user_draws(seed: int, purpose: int, users: np.ndarray) -> np.ndarray:
    """Number of each user in [0, 1): uniform, and a pure function of seed, purpose and the user's number alone.

    Args:
      seed: --seed.
      purpose: `LABEL`, `NEGATIVE` or `VALIDATION`, whose numbers are independent.
      users: int [U], numbers of users from 0, as prepare gives them.

    Returns:
      float64 [U]: for user u the u-th number of one generator, whoever else is asked for.
    """
    return np.random.default_rng([seed, purpose]).random(int(users.max(initial=-1)) + 1)[users]


def labels(seed: int, users: np.ndarray) -> np.ndarray:
    """The fair coin, bool [U]: True = the user's row holds the true last item. Args: see `user_draws`."""
    return user_draws(seed, LABEL, users) < 0.5
