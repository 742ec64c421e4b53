"""Attributes of a bundle's items, such as category and price, by which requests are filtered."""
import dataclasses
import math
import os
from typing import Any
from typing import Mapping
from typing import Optional
from typing import Sequence

import numpy as np
import polars as pl

from clrec_tf.errors import DataError
from clrec_tf.retrieval.bundle_files import ATTRIBUTES_FILE
from clrec_tf.retrieval.query_values import spellings
from clrec_tf.system.finite import is_number

TEXTS, NUMBER = pl.List(pl.String), pl.Float64  # what a category and a number are in a frame
BOUNDS = ("min", "max")
MOST_VALUES = 1000  # in one condition


@dataclasses.dataclass(frozen=True)
class Condition:
    """What one attribute of an item must be: any of `values`, or where there are none from `least` to `most`."""
    name: str
    values: Optional[tuple] = None
    least: float = -math.inf
    most: float = math.inf


ItemFilter = tuple[Condition, ...]  # all of which must hold


class Attributes:
    """Attributes of V items by position.

    Args:
      frame: of V rows, a column for each attribute: `TEXTS` of categories, [] or null where an item has none, or
        `NUMBER`, null where it is unknown.
    """

    def __init__(self, frame: pl.DataFrame = pl.DataFrame()):
        self.frame = frame
        self._by_value = {name: _by_value(frame[name]) for name, kind in frame.schema.items() if kind == TEXTS}
        self._by_size = {name: _by_size(frame[name]) for name, kind in frame.schema.items() if kind == NUMBER}

    @property
    def names(self) -> tuple[str, ...]:
        """Of the attributes."""
        return tuple(self.frame.columns)

    @property
    def kinds(self) -> tuple[tuple[str, bool], ...]:
        """(name, whether it is a number) of each."""
        return tuple((name, name in self._by_size) for name in self.names)

    def described(self) -> str:
        """What there is, in words."""
        kinds = [f"{name} ({'a number' if number else 'values'})" for name, number in self.kinds]
        return f"attributes are {', '.join(kinds)}" if kinds else ("this bundle has none: export with --attributes")

    def checked(self, given: Any, where: str) -> Optional[ItemFilter]:
        """A filter as requests have it, {name: value, list of values, or {"min": x, "max": y}}; None for None.

        Raises:
          DataError: naming the attribute, what is wrong, and those that exist.
        """
        if given is None:
            return None
        if not isinstance(given, dict):
            raise DataError(f"{where}: filter {given!r} must be an object, {{attribute: list of values, or min and "
                            f"max}}; {self.described()}")
        for name in given:
            if name not in self.names:
                raise DataError(f"{where}: filter has {name!r}, which is no attribute of these items; "
                                f"{self.described()}")
        return tuple(self._condition(name, given[name], where) for name in sorted(given))

    def _condition(self, name, given, where) -> Condition:
        number = name in self._by_size
        if isinstance(given, dict):
            if not number or not given or set(given) - set(BOUNDS) or not all(map(is_number, given.values())):
                expected = "`min`, `max` or both, numbers" if number else "one of its values, or a list of them"
                raise DataError(f"{where}: filter of {name} is {given!r}: give {expected}; {self.described()}")
            return Condition(name, None, float(given.get("min", -math.inf)), float(given.get("max", math.inf)))
        values = given if isinstance(given, list) else [given]
        fits = is_number if number else lambda value: isinstance(value, (str, bool)) or is_number(value)
        wrong = [value for value in values if not fits(value)]
        if wrong or len(values) > MOST_VALUES:
            text = f"{wrong[0]!r}" if wrong else f"a list of {len(values)} values"
            expected = ("a number, a list of them, or `min` and `max`" if number else "texts") + (
                f", at most {MOST_VALUES}")
            raise DataError(f"{where}: filter of {name} is {text}: give {expected}; {self.described()}")
        return Condition(name, tuple(sorted(set(map(float, values)) if number else {_text(v) for v in values})))

    def passing(self, conditions: ItemFilter) -> np.ndarray:
        """Positions int64 of the items for which all conditions hold, ascending. Costs as much as the fewest of one
        condition; a value that no item has lets none pass."""
        parts = sorted(map(self._passing_one, conditions), key=len)
        found = parts[0] if parts else np.arange(len(self.frame))
        for part in parts[1:]:
            found = found[among(found, part)]
        return found

    def _passing_one(self, condition):
        if condition.name in self._by_value:
            by_value = self._by_value[condition.name]
            found = [by_value[text] for value in condition.values for text in spellings(value) if text in by_value]
        else:
            order, sizes = self._by_size[condition.name]
            ranges = [(condition.least, condition.most)] if condition.values is None else [
                (value, value) for value in condition.values]
            found = [order[np.searchsorted(sizes, least, "left"):np.searchsorted(sizes, most, "right")]
                     for least, most in ranges]
        return np.unique(np.concatenate([np.zeros(0, np.int64), *found]))

    def values_of(self, positions: Sequence[int]) -> list[dict[str, Any]]:
        """Attributes of items by position, without those that an item lacks."""
        rows = self.frame[np.asarray(positions, np.int64)].to_dicts() if self.names else [{} for _ in positions]
        return [{name: value for name, value in row.items() if value not in (None, [])} for row in rows]

    def commonest(self, name: str, most: int) -> list[str]:
        """The values of a category that most items have, at most so many; [] of a number."""
        by_value = self._by_value.get(name, {})
        return sorted(by_value, key=lambda value: (-len(by_value[value]), value))[:most]

    def save(self, folder: str) -> None:
        """Writes them into the folder of a version, if there are any."""
        if self.names:
            self.frame.write_parquet(os.path.join(folder, ATTRIBUTES_FILE), compression="zstd")


def load_attributes(folder: str, manifest: Mapping, items: int) -> Attributes:
    """Those of a version, none where it has no file of them; `DataError` where that is damaged or of other items."""
    if ATTRIBUTES_FILE not in manifest["files"]:
        return Attributes()
    path = os.path.join(folder, ATTRIBUTES_FILE)
    try:
        frame = pl.read_parquet(path, glob=False)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise DataError(f"{path} cannot be read ({error}): copy the version anew, or export again") from error
    odd = [name for name, kind in frame.schema.items() if kind not in (TEXTS, NUMBER)]
    if len(frame) != items or odd:
        raise DataError(f"{path} has {len(frame)} rows of {dict(frame.schema)}, the bundle {items} items: export again")
    return Attributes(frame)


def among(positions: np.ndarray, some: np.ndarray) -> np.ndarray:
    """Whether each of `positions`, of any shape, is one of `some`, which are ascending: np.isin, several times as
    fast."""
    if not len(some):
        return np.zeros(positions.shape, bool)
    return some[np.minimum(np.searchsorted(some, positions), len(some) - 1)] == positions


def _by_value(column: pl.Series) -> dict[str, np.ndarray]:
    """Value -> positions of the items that have it, ascending."""
    rows = pl.DataFrame({"value": column}).with_row_index("place").explode("value").drop_nulls()
    groups = rows.unique(maintain_order=True).group_by("value", maintain_order=True).agg("place")
    return {value: places.to_numpy().astype(np.int64) for value, places in zip(groups["value"], groups["place"])}


def _by_size(column: pl.Series) -> tuple[np.ndarray, np.ndarray]:
    """(positions of the items whose number is known, their numbers), by rising number."""
    numbers = column.fill_null(math.nan).to_numpy()
    known = np.flatnonzero(np.isfinite(numbers))
    order = known[np.argsort(numbers[known], kind="stable")]
    return order, numbers[order]


def _text(value) -> str:
    """As `spellings` takes it: true and True are one value."""
    return str(value).lower() if isinstance(value, bool) else next(spellings(value))
