"""Counts and extremes of some rows: those of parts of a log add up to those of the whole."""
import dataclasses
from typing import Optional


@dataclasses.dataclass(frozen=True)
class Tally:
    """Numbers by name.

    Attributes:
      sums: counts, which add up.
      lowest, highest: extremes; names without any are absent.
    """
    sums: dict[str, int] = dataclasses.field(default_factory=dict)
    lowest: dict[str, int] = dataclasses.field(default_factory=dict)
    highest: dict[str, int] = dataclasses.field(default_factory=dict)

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(_merged(self.sums, other.sums, sum), _merged(self.lowest, other.lowest, min),
                     _merged(self.highest, other.highest, max))

    def count(self, name: str) -> int:
        """The sum of this name; 0 where nobody counted it."""
        return self.sums.get(name, 0)


def tally(sums: dict[str, int], lowest: Optional[dict] = None, highest: Optional[dict] = None) -> Tally:
    """A tally of plain integers; extremes that are None, of no rows, are left out."""
    known = lambda numbers: {name: int(value) for name, value in (numbers or {}).items() if value is not None}
    return Tally(known(sums), known(lowest), known(highest))


def _merged(one, other, merge):
    return {name: merge([numbers[name] for numbers in (one, other) if name in numbers])
            for name in dict.fromkeys([*one, *other])}
