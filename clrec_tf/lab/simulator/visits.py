"""When users of the sequential simulation come, and with what intent. Pure NumPy, vectorised over users.

Letters: U users, N visits of all users, W columns for the visits of one user, H intents.
"""
import dataclasses

import numpy as np

from clrec_tf.preparation.splits import DAY
from clrec_tf.preparation.synthetic_log import FIRST_SECOND
from clrec_tf.preparation.synthetic_log import MEAN_GAP
from clrec_tf.preparation.synthetic_log import switch_probability

INTENTS = 8
WEEK = 7 * DAY
LONGEST_VISIT = 50  # impressions, one a second, so that a user's visits do not overlap


@dataclasses.dataclass(frozen=True)
class Visits:
    """Visits, a user's together and in time order.

    Attributes:
      user: [N] int64, from 0.
      seconds: [N] int64, time of the visit's first impression.
      intent: [N] int64, in [0, INTENTS).
    """
    user: np.ndarray
    seconds: np.ndarray
    intent: np.ndarray


def make_visits(rng: np.random.Generator, is_weekend_type: np.ndarray, visits: int, weeks: int,
                weekend_shift: float) -> Visits:
    """Draws every user's visits and intents.

    Args:
      rng: source of all draws.
      is_weekend_type: bool [U], users who come more often at weekends; the others come more often on weekdays.
      visits: mean number per user.
      weeks: that they are spread over, from Monday, 1 March 2021 UTC.
      weekend_shift: in [0, 1), see `clock` and `intent_preference`.
    """
    mean_gap = weeks * WEEK / visits
    # Eight standard deviations of a Poisson number above its mean: nobody has more visits than columns.
    columns = int(visits + 8 * np.sqrt(visits) + 20)
    own_time = np.cumsum(rng.exponential(mean_gap, (len(is_weekend_type), columns)), axis=1)
    weekend_rate = np.where(is_weekend_type, 1 + weekend_shift, 1 - weekend_shift)
    seconds = FIRST_SECOND + _spaced(clock(own_time, weekend_rate[:, None]).astype(np.int64))
    kept = seconds + LONGEST_VISIT <= FIRST_SECOND + weeks * WEEK
    intent = _intents(rng, np.diff(seconds) * (MEAN_GAP / mean_gap), intent_preference(is_weekend_type, weekend_shift))
    return Visits(np.nonzero(kept)[0], seconds[kept], intent[kept])


def clock(own_time: np.ndarray, weekend_rate: np.ndarray) -> np.ndarray:
    """Seconds since the first Monday at which a user's own time has run so far.

    Own time runs `weekend_rate` times as fast as the clock on Saturdays and Sundays, and on weekdays at the rate that
    makes a week of it a week of the clock. So visits with exponential gaps in own time are a Poisson process whose rate
    depends on the day, with the same mean number for every user.

    Args:
      own_time: seconds, ≥ 0.
      weekend_rate: in (0, 3.5), broadcast against `own_time`.
    """
    weekday_rate = (7 - 2 * weekend_rate) / 5
    week, rest = np.divmod(own_time, WEEK)
    before_saturday = 5 * DAY * weekday_rate
    return week * WEEK + np.where(rest < before_saturday, rest / weekday_rate,
                                  5 * DAY + (rest - before_saturday) / weekend_rate)


def intent_preference(is_weekend_type: np.ndarray, weekend_shift: float) -> np.ndarray:
    """Preference [U,H] for each intent: 1 + shift for the half that the user's kind favours, 1 − shift for the other.

    Weekday types favour the first half, weekend types the second, so that intents are others at weekends.
    """
    second_half = np.arange(INTENTS) >= INTENTS // 2
    return np.where(second_half == is_weekend_type[:, None], 1 + weekend_shift, 1 - weekend_shift)


def is_weekend(seconds: np.ndarray) -> np.ndarray:
    """Whether a time, in seconds since 1970 UTC, is a Saturday or Sunday."""
    return (seconds - FIRST_SECOND) // DAY % 7 >= 5


def _spaced(seconds):
    """Moves visits [U,W] later where the one before still lasts."""
    shift = LONGEST_VISIT * np.arange(seconds.shape[1])
    return np.maximum.accumulate(seconds - shift, axis=1) + shift


def _intents(rng, gaps, preference):
    """Intents [U,W], a Markov chain: after gap [U,W−1] (in units of `switch_probability`) a user switches, and then to
    another intent by preference [U,H]."""
    # A chain that leaves h always as often and goes to h' ∝ preference, h' ≠ h, is reversible with this distribution.
    start = preference * (preference.sum(axis=1, keepdims=True) - preference)
    intents = [_pick(rng, start)]
    for gap in gaps.T:
        switched = rng.random(len(gap)) < switch_probability(gap)
        others = np.where(np.arange(INTENTS) == intents[-1][:, None], 0.0, preference)
        intents.append(np.where(switched, _pick(rng, others), intents[-1]))
    return np.stack(intents, axis=1)


def _pick(rng, weights):
    """One column [U] per row, drawn ∝ weights [U,H]."""
    cumulative = np.cumsum(weights, axis=1)
    return (rng.random(len(weights))[:, None] * cumulative[:, -1:] >= cumulative[:, :-1]).sum(axis=1)
