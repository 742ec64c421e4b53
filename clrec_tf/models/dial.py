"""The dial: every degree of debiasing from one trained model (an extension of the paper).

With clicks as negatives e^{φ(x,y)} ∝ p(y|x)/p(y), so φ + α·log p̂(y) ranks as p(y|x)/p(y)^{1−α}: α = 0 is the model as
trained, α = 1 undoes the division and ranks as p(y|x) does, between them lies every degree, beyond 1 more popular
still. A loss trained at `debias_beta` β has p(y|x)/p(y)^β for its optimum, to which the dial adds: the exponent is
β − α. Where the queue holds impressions, p̂ is their popularity q̄ in place of the clicks'.

It is one more coordinate of the vectors compared, so one index serves every α: an item carries ρ·(log p̂(y) − c), a
user α, and ⟨(f, α), (g, ρ·(log p̂ − c))⟩ = ρ·(φ + α·(log p̂ − c)). The constant c, the mean of log p̂ over the
catalogue, changes no ranking.
"""
import dataclasses
import math
from typing import Mapping
from typing import Sequence

import numpy as np

from clrec_tf.data.frequencies import smoothed_frequencies

RANGE = (-0.25, 1.25)  # of α, that is offered unless told otherwise


@dataclasses.dataclass(frozen=True)
class Dial:
    """What a bundle needs to know of the dial.

    Attributes:
      counts: [V] int, clicks or impressions of items 1..V, of which p̂ is made.
      default: α where a request names none.
      lowest, highest: of α.
      source: what was counted, "clicks" or "impressions".
      chosen_by: how the default was chosen, for the manifest.
    """
    counts: np.ndarray
    default: float = 0.0
    lowest: float = RANGE[0]
    highest: float = RANGE[1]
    source: str = "clicks"
    chosen_by: Mapping = dataclasses.field(default_factory=dict)


def item_coordinate(counts: np.ndarray, temperature: float) -> np.ndarray:
    """ρ·(log p̂ − mean log p̂) of items: counts [V] -> float32 [V]. Every item counts as clicked at least once."""
    log_popularity = np.log(smoothed_frequencies(counts, 1.0))
    return (temperature * (log_popularity - log_popularity.mean())).astype(np.float32)


def inserted_coordinate(count: float, temperature: float, mean_log_count: float) -> float:
    """The coordinate of an item that was not in the catalogue, by the formula of `item_coordinate`, in which the sum
    of all counts cancels.

    Args:
      count: clicks known of it; as there, fewer than 1 count as 1.
      temperature: ρ.
      mean_log_count: see there.
    """
    return temperature * (math.log(max(count, 1.0)) - mean_log_count)


def mean_log_count(counts: np.ndarray) -> float:
    """Mean of log max(count, 1) over the catalogue, [V] -> scalar."""
    return float(np.log(np.maximum(np.asarray(counts, np.float64), 1.0)).mean())


def with_coordinate(vectors: np.ndarray, coordinate) -> np.ndarray:
    """Vectors float32 [...,d] with one more coordinate, a scalar or [...] -> float32 [...,d+1]."""
    last = np.broadcast_to(np.asarray(coordinate, np.float32), vectors.shape[:-1])[..., None]
    return np.concatenate([vectors, last], axis=-1, dtype=np.float32)


def at_popularity(users: np.ndarray, popularity: float) -> np.ndarray:
    """Users float32 [...,d+1] at another α; zero vectors, of empty histories, stay so: there is nothing to debias."""
    turned = np.array(users, np.float32)
    turned[..., -1] = np.where(np.any(turned[..., :-1], axis=-1), np.float32(popularity), 0)
    return turned


def grid(lowest: float, highest: float, step: float) -> list[float]:
    """The bounds, and the multiples of `step` between them, ascending."""
    inside = step * np.arange(math.ceil(lowest / step), math.floor(highest / step) + 1)
    return sorted({lowest + 0.0, highest + 0.0, *(round(float(value), 9) + 0.0 for value in inside)})


def choose(curve: Mapping[float, tuple[float, float]], tolerance: float) -> float:
    """The α of a bundle by the stated rule: of those whose metric is at most `tolerance`, as a share, below the best,
    the one with the most distinct items; among equals the nearest to 0, the model as trained.

    Args:
      curve: α -> (metric, aggregate diversity).
      tolerance: 0 takes the best metric alone.
    """
    best = max(metric for metric, _ in curve.values())
    good = [value for value, (metric, _) in curve.items() if metric >= best - tolerance * abs(best)]
    wanted = 1 if tolerance else 0
    return min(good, key=lambda value: (-curve[value][wanted], abs(value), value))


def name(metric: str, popularity: float) -> str:
    """`hr@10/full` at α = .5 -> `hr@10/full/popularity=0.5`."""
    return f"{metric}/popularity={popularity + 0.0:g}"


def values_named(metric: str, names: Sequence[str]) -> list[float]:
    """The α of which a metric is among names, ascending."""
    start = f"{metric}/popularity="
    return sorted(float(name[len(start):]) for name in names if name.startswith(start) and "/" not in name[len(start):])
