"""Whether two tables order their rows alike: pure functions of the published figures and ours."""
import dataclasses
import itertools
from typing import Sequence

import numpy as np


@dataclasses.dataclass(frozen=True)
class Pair:
    """Two rows whose order the paper tells.

    Attributes:
      larger, smaller: their names, as the paper orders their figures.
      gap: our mean of `larger` minus that of `smaller`.
      apart: whether the ranges of our seeds do not overlap; None where one of them has a single seed.
      neighbours: whether no other row stands between them in the paper's order.
    """
    larger: str
    smaller: str
    gap: float
    apart: bool | None
    neighbours: bool

    @property
    def agrees(self) -> bool:
        """Whether ours have the paper's order; equal figures have not."""
        return self.gap > 0


def pairs(paper: dict[str, float], ours: dict[str, Sequence[float]]) -> list[Pair]:
    """All pairs of rows that both have and the paper tells apart, the largest first.

    Args:
      paper: row -> figure.
      ours: row -> figures of the seeds; rows without any are left out.
    """
    rows = sorted((row for row in paper if ours.get(row)), key=lambda row: -paper[row])
    made = []
    for (place, larger), (other, smaller) in itertools.combinations(enumerate(rows), 2):
        if paper[larger] == paper[smaller]:
            continue
        between = any(paper[smaller] < paper[row] < paper[larger] for row in rows[place + 1:other])
        made.append(Pair(larger, smaller, float(np.mean(ours[larger]) - np.mean(ours[smaller])),
                         _apart(ours[larger], ours[smaller]), not between))
    return made


def _apart(some, others):
    if min(len(some), len(others)) < 2:
        return None
    return max(min(some), min(others)) > min(max(some), max(others))


def sentence(pair: Pair, metric: str, digits: int) -> str:
    """What is different, in one sentence, of a pair that does not agree."""
    paper = f"{metric}: paper: {pair.larger} > {pair.smaller}; ours: "
    if pair.gap == 0:
        return f"{paper}equal."
    doubt = {None: "one seed", True: "the seeds' ranges do not overlap", False: "the seeds' ranges overlap"}[pair.apart]
    return f"{paper}{pair.smaller} > {pair.larger} by {-pair.gap:.{digits}f} ({doubt})."
