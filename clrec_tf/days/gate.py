"""What today's model must reach beside yesterday's to be published."""
import dataclasses
import math
import re

from clrec_tf.errors import UserError

_GATE = re.compile(r"(?P<kind>hr|ndcg|aggregate_diversity)@(?P<k>[1-9][0-9]*)/full(/popularity=(?P<at>-?[0-9.]+))?")


_ROUNDING = 1e-9


class GateError(UserError):
    """Today's model, or today's data, is refused; yesterday's stays."""

    exit_code = 3


@dataclasses.dataclass(frozen=True)
class Demand:
    """The least relative change of one metric.

    Attributes:
      metric: its name.
      kind: hr, ndcg or aggregate_diversity.
      k: cut-off.
      popularity: α.
      change: least relative change, such as −.01.
    """
    metric: str
    kind: str
    k: int
    popularity: float
    change: float


@dataclasses.dataclass(frozen=True)
class Judgement:
    """How one demand was met.

    Attributes:
      demand: the demand.
      before, now: the metric of yesterday's and of today's model.
      low, high: bounds of the 95 % interval of the relative change over users, paired; None where there is none.
    """
    demand: Demand
    before: float
    now: float
    low: float | None = None
    high: float | None = None

    @property
    def change(self) -> float:
        """Relative change; 0 where both are 0."""
        return 0.0 if self.now == self.before else self.now / self.before - 1.0 if self.before else float("inf")

    @property
    def passed(self) -> bool:
        """Whether the change is at least what is demanded; 0 beside 0 says nothing, and does not pass."""
        return bool(self.before or self.now) and self.change >= self.demand.change - _ROUNDING

    def numbers(self) -> dict:
        """For the history: `metric`, `before`, `now`, `low` and `high` of the relative change, `demanded`, `passed`.

        An infinite bound, which JSON does not have, is None.
        """
        low, high = (bound if bound is not None and math.isfinite(bound) else None for bound in (self.low, self.high))
        return dict(metric=self.demand.metric, before=self.before, now=self.now, low=low, high=high,
                    demanded=self.demand.change, passed=self.passed)

    def text(self) -> str:
        """One line."""
        interval = "" if self.low is None else f" (95 %: {self.low:+.1%} to {self.high:+.1%})"
        verdict = "passed" if self.passed else "REFUSED"
        if not self.before and not self.now:
            verdict += ", since 0 beside 0 says nothing: take a larger K, or more users"
        return (f"{self.demand.metric}: yesterday's model {self.before:.4f}, today's {self.now:.4f}, change "
                f"{self.change:+.1%}{interval}, at least {self.demand.change:+.1%} demanded: {verdict}")


def demands_of(gate: tuple[str, ...]) -> list[Demand]:
    """--gate; `UserError` where an entry names no metric or no number."""
    demands = []
    for text in gate:
        metric, _, change = text.rpartition(":")
        match = _GATE.fullmatch(metric)
        try:
            demands.append(Demand(metric, match["kind"], int(match["k"]), float(match["at"] or 0.0), float(change)))
            if not math.isfinite(demands[-1].change):  # beside NaN nothing passes
                raise ValueError(change)
        except (TypeError, ValueError) as error:
            raise UserError(f"--gate={','.join(gate)}: {text!r} must be METRIC:CHANGE with a metric hr@K/full, "
                            "ndcg@K/full or aggregate_diversity@K/full and a number, such as hr@50/full:-0.01"
                            ) from error
    return demands
