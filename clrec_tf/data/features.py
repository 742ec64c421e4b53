"""Categorical item features, and their columns in an item row."""
import dataclasses
import itertools
from typing import Sequence


@dataclasses.dataclass(frozen=True)
class Feature:
    """One categorical item feature.

    Attributes:
      name: as in the log.
      rows: embedding rows, with row 0 for "missing": values are in [0, rows).
      width: values per item; 1 for a single-valued feature.
      vocabulary_size: values known from the training part, ids 1..vocabulary_size; hash buckets follow.
    """
    name: str
    rows: int
    width: int
    vocabulary_size: int

    @property
    def key(self) -> str:
        """Name of the feature in an Example."""
        return f"f:{self.name}"


def item_width(features: Sequence[Feature]) -> int:
    """Columns C of an item row: the id, then each feature's `width` values."""
    return 1 + sum(feature.width for feature in features)


def feature_columns(features: Sequence[Feature]) -> dict[str, slice]:
    """Name of each feature -> its columns of an item row, in the order of the features."""
    return dict(zip((feature.name for feature in features), columns_after(1, features)))


def columns_after(first: int, features: Sequence) -> list[slice]:
    """The columns of a row that each feature's `width` values take up, one behind the other from column `first` on."""
    ends = itertools.accumulate((feature.width for feature in features), initial=first)
    return [slice(begin, end) for begin, end in itertools.pairwise(ends)]
