"""Settings of the dial: how much of the items' popularity rankings put back."""
import dataclasses
import math
from typing import Optional

from clrec_tf.errors import UserError
from clrec_tf.settings.setting import Section
from clrec_tf.settings.setting import setting

AUTO = "auto"
MOST = 5  # at which nothing but popularity counts any more


@dataclasses.dataclass(frozen=True)
class DialConfig(Section):
    """The dial: 0 ranks as trained (CLRec: debiased), 1 as p(y|x), what users click."""
    popularity: tuple[str, ...] = setting((AUTO,),
        "How much popularity is put back, α in φ + α·log p̂. evaluate: the values on its curve (auto: by .25 over "
        "--popularity_range). export: the bundle's default; of several values, or auto, the best on validation users. "
        "retrieve and serve: one value for requests that name none (auto: the bundle's default).")
    popularity_range: tuple[str, ...] = setting(("-0.25", "1.25"),
        "Least and largest α that are offered, for which the index is tuned.")
    popularity_metric: str = setting("ndcg@10/full",
        "Metric by which export and evaluate choose α on validation users.")
    popularity_tolerance: float = setting(0.0,
        "Share of the best --popularity_metric that may be given up for more distinct items: of the values this good, "
        "the one with the largest aggregate diversity is chosen.", lower=0.0, upper=1.0)
    curve_points: str = setting("",
        "JSON file of other systems for the picture of evaluate, {name: {metric: value}} with the metrics of its axes, "
        "such as hr@10/full and aggregate_diversity@10/full; with /popularity=α behind the metrics it is a curve, so "
        "another run's metrics.json may stand there.", path=True)

    def __post_init__(self):
        super().__post_init__()
        self.values, self.range  # pylint: disable=pointless-statement  (they refuse what is no number)

    @property
    def values(self) -> Optional[list[float]]:
        """The values of --popularity, or None where it is auto."""
        if self.popularity == (AUTO,):
            return None
        values = [_number("popularity", text, ", or auto") for text in self.popularity] or _empty("popularity")
        if len(set(values)) < len(values):
            raise UserError(f"--popularity={','.join(self.popularity)} names a value twice (six digits count): give "
                            "each once")
        return values

    def check(self) -> None:
        """`UserError` where a value is outside the range; of retrieve and serve the bundle's range counts instead."""
        lowest, highest = self.range
        for value in self.values or ():
            if not lowest <= value <= highest:
                raise UserError(f"--popularity={value:g} is outside --popularity_range={lowest:g},{highest:g}: give a "
                                "value inside, or widen the range")

    @property
    def one(self) -> Optional[float]:
        """The one value of --popularity, or None where it is auto."""
        values = self.values
        if values is not None and len(values) > 1:
            raise UserError(f"--popularity={','.join(self.popularity)}: requests are answered at one value; give one, "
                            "or auto for the bundle's default")
        return None if values is None else values[0]

    @property
    def range(self) -> tuple[float, float]:
        """Least and largest α."""
        bounds = [_number("popularity_range", text) for text in self.popularity_range]
        if len(bounds) != 2 or not -MOST <= bounds[0] <= 0 <= bounds[1] <= MOST:
            raise UserError(f"--popularity_range={','.join(self.popularity_range)}: give the least and the largest "
                            f"value, 0 among them and none beyond {MOST}, such as -0.25,1.25")
        return bounds[0], bounds[1]


def _number(flag, text, further=""):
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UserError(f"--{flag}={text} is no number: give numbers such as 0.5{further}")
    return float(f"{value:g}") + 0.0  # as metrics are named by it, and never −0


def _empty(flag):
    raise UserError(f"--{flag} is empty: give a number or auto")
