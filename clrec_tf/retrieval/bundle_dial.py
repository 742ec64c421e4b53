"""The dial of a bundle: which popularities it offers, and the one for requests that name none."""
import dataclasses
import math
from typing import Optional

from clrec_tf.errors import DataError
from clrec_tf.models.dial import inserted_coordinate

_SLACK = 1e-6  # of a bound that float32 cannot hold


@dataclasses.dataclass(frozen=True)
class BundleDial:
    """From a manifest.

    Attributes:
      default: α where a request names none.
      lowest, highest: of α.
      temperature: ρ.
      mean_log_count: see `models.dial.inserted_coordinate`.
      source: what p̂ counts, "clicks" or "impressions".
      there: whether vectors have the coordinate; not in bundles of before the dial, which know α = 0 alone.
    """
    default: float = 0.0
    lowest: float = 0.0
    highest: float = 0.0
    temperature: float = 1.0
    mean_log_count: float = 0.0
    there: bool = False
    source: str = "clicks"

    @classmethod
    def from_manifest(cls, manifest: dict) -> "BundleDial":
        """The dial that a manifest tells of; `DataError` where it is damaged."""
        facts = manifest.get("dial")
        if facts is None:
            return cls()
        try:
            dial = cls(float(manifest["popularity"]), *(float(facts[name]) for name in (
                "lowest", "highest", "temperature", "mean_log_count")), True, str(facts["source"]))
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"the manifest's `popularity` and `dial` are damaged ({error!r}): export again") from error
        if not dial.lowest <= dial.default <= dial.highest:
            raise DataError(f"the manifest's popularity {dial.default:g} is not from {dial.lowest:g} to "
                            f"{dial.highest:g}, as its dial says: export again")
        return dial

    def checked(self, popularity: Optional[float], where: str) -> float:
        """α, or the default for None. `DataError` where it is no number or outside what is offered."""
        if popularity is None:
            return self.default
        if not self.there and popularity == 0:
            return 0.0
        if not self.there:
            raise DataError(f"{where}: popularity is {popularity:g}, but this bundle was exported before there was a "
                            "dial and knows 0 alone: export again, or leave it out")
        if not math.isfinite(popularity) or not self.lowest - _SLACK <= popularity <= self.highest + _SLACK:
            raise DataError(f"{where}: popularity is {popularity:g}, this bundle offers {self.lowest:g} to "
                            f"{self.highest:g} (--popularity_range of its export): give a number in this range")
        return float(popularity)

    def coordinate(self, count: float) -> float:
        """Of an item with so many clicks, or impressions where p̂ counts those."""
        return inserted_coordinate(count, self.temperature, self.mean_log_count)
