"""What requests tell beside the clicked items, as the numbers that the query tower reads: user, context, behaviours."""
import dataclasses
import functools
import math
import os
import re
import sys
from typing import Any, Iterator, Mapping, Optional, Sequence

import numpy as np

from clrec_tf.data.query_features import bins_of
from clrec_tf.data.query_features import CATEGORY
from clrec_tf.data.query_features import LIST
from clrec_tf.data.query_features import NUMBER
from clrec_tf.data.query_features import QueryFeature
from clrec_tf.data.query_features import query_width
from clrec_tf.errors import DataError
from clrec_tf.retrieval.bundle_files import QUERY_FILE
from clrec_tf.system.json_files import load_json
from clrec_tf.system.json_files import save_json

_WHOLE = re.compile(r"(-?[0-9]+)(?:\.0*)?")


@dataclasses.dataclass(frozen=True)
class QueryValues:
    """Features of users and requests with their values, and behaviours, by number from 1.

    What is missing, null or unknown has the number 0; a client need not know which values were trained on.

    Attributes:
      features: in the order of the query row.
      values: key of each category and list -> its values.
      events: names of behaviours; () for a model that does not read them.
    """
    features: tuple[QueryFeature, ...] = ()
    values: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    events: tuple[str, ...] = ()

    @property
    def inputs(self) -> dict[str, QueryFeature]:
        """Name in requests -> feature."""
        return {feature.input: feature for feature in self.features}

    @property
    def width(self) -> int:
        """W, numbers of a query row."""
        return query_width(self.features)

    @functools.cached_property
    def _numbers(self) -> dict[str, dict[str, int]]:
        return {key: {text: number for number, text in enumerate(names, 1)} for key, names in self.values.items()}

    @functools.cached_property
    def _kinds(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.events, 1)}

    def row(self, given: Optional[Mapping[str, Any]]) -> list[int]:
        """The query row [W] of one request's checked values by name."""
        row = []
        for feature in self.features:
            value = (given or {}).get(feature.input)
            if feature.kind == NUMBER:
                row.append(int(bins_of(math.nan if value is None else value, feature.bounds)))
                continue
            texts = [] if value is None else value if isinstance(value, list) else [value]
            known = [number for text in texts if (number := self._number(feature.key, text))][:feature.width]
            row += known + [0] * (feature.width - len(known))
        return row

    def _number(self, key: str, value) -> int:
        """The number of a category, however it is written; 0 for null and for what is unknown."""
        numbers = self._numbers[key]
        return next((numbers[text] for text in spellings(value) if text in numbers), 0)

    def checked(self, given: Mapping[str, Any], where: str) -> dict[str, Any]:
        """The same values, if each is of its feature's kind.

        Raises:
          DataError: naming the entry, what it is, and what is expected.
        """
        for name, value in given.items():
            feature = self.inputs[name]
            if value is None:
                continue
            if feature.kind == NUMBER and (isinstance(value, bool) or not isinstance(value, (int, float))):
                raise DataError(f"{where}: {name} is {value!r}: give a number, or null where it is unknown")
            if feature.kind == NUMBER and isinstance(value, int) and abs(value) > sys.float_info.max:
                raise DataError(f"{where}: {name} has {len(str(abs(value)))} digits, which no float holds: give a "
                                "smaller number, or null where it is unknown")
            if feature.kind == CATEGORY and isinstance(value, (list, dict)):
                raise DataError(f"{where}: {name} is {value!r}: give one value, or null where it is unknown")
            if feature.kind == LIST and (not isinstance(value, list) or any(
                    isinstance(entry, (list, dict)) for entry in value)):
                raise DataError(f"{where}: {name} is {value!r}: give a list of values, or null where it is unknown")
        return dict(given)

    def event_numbers(self, events: Sequence[Optional[str]]) -> list[int]:
        """Numbers of the behaviours of clicks; 0 for null and for one that was not trained on."""
        return [self._kinds.get((event or "").strip(), 0) for event in events]

    def example_of(self, row: np.ndarray) -> dict[str, np.ndarray]:
        """Values that have the numbers of query rows [N,W]: name -> [N], or [N,width] of lists."""
        values, begin = {}, 0
        for feature in self.features:
            part = row[:, begin:begin + feature.width]
            begin += feature.width
            if feature.kind == NUMBER:
                # Each bin by its lower bound, the first by less than that.
                lowest = np.float32(feature.bounds[0] if feature.bounds else 0.0)
                of_bin = np.array([np.nan, np.nextafter(lowest, np.float32(-np.inf)), *feature.bounds], np.float32)
                values[feature.input] = of_bin[part[:, 0]]
            else:
                texts = np.array(["", *self.values[feature.key]], object)[part]
                values[feature.input] = texts if feature.kind == LIST else texts[:, 0]
        return values

    def save(self, folder: str) -> None:
        """Writes `QUERY_FILE`, if there is anything to tell."""
        if self.features or self.events:
            save_json(os.path.join(folder, QUERY_FILE), dataclasses.asdict(self))

    @classmethod
    def load(cls, folder: str) -> "QueryValues":
        """Reads it; nothing where a bundle has none. `DataError` where it is damaged."""
        path = os.path.join(folder, QUERY_FILE)
        if not os.path.exists(path):
            return cls()
        saved = load_json(path, "", "export again")
        try:
            features = tuple(QueryFeature(**each | dict(bounds=tuple(each["bounds"]))) for each in saved["features"])
            return cls(features, saved["values"], tuple(saved["events"]))
        except (KeyError, TypeError) as error:
            raise DataError(f"{path} is damaged ({error!r}): export again") from error


def spellings(value) -> Iterator[str]:
    """Texts that prepare may have made of a category of JSON, the likeliest first.

    A log says true, True or TRUE, and 25, or 25.0 where it has 25.5 too; a client need not know which.
    """
    if value is None:
        return
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = str(value).strip()
    if text.lower() in ("true", "false"):
        yield from (text.lower(), text.capitalize(), text.upper()) if isinstance(value, bool) else (
            text, text.lower(), text.capitalize(), text.upper())
        return
    yield text
    if whole := _WHOLE.fullmatch(text):
        yield whole[1]
        yield f"{whole[1]}.0"
