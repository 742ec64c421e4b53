"""Items to insert and update, from a file, checked value by value."""
import dataclasses
from typing import Optional

import numpy as np

from clrec_tf.data.ids import check_id
from clrec_tf.errors import DataError
from clrec_tf.publishing.described_items import DESCRIBED
from clrec_tf.publishing.described_items import DescribedItems
from clrec_tf.publishing.described_items import is_described
from clrec_tf.publishing.intent_coordinates import IntentCoordinates
from clrec_tf.publishing.updated_attributes import given_attributes
from clrec_tf.publishing.upserts import Upserts
from clrec_tf.publishing.update_files import read_json_lines
from clrec_tf.publishing.update_files import read_parquet_rows
from clrec_tf.retrieval.bundle import Bundle
from clrec_tf.retrieval.user_requests import parse_request
from clrec_tf.system.finite import as_floats

_COUNTS = ("clicks", "impressions")
_FIELDS = ("id", "vector", "like", *DESCRIBED, "title", "attributes", *_COUNTS)
_MOST_COUNTED = 2.0**63
_SLACK = 1e-4
_SMALLEST_NORM = 1e-6  # below which a vector has no direction worth the name


def read_upserts(path: str, bundle: Bundle) -> Upserts:
    """Reads items for a bundle.

    Each has an `id` and one of: `vector`, d numbers; `like`, a list of ids of the bundle (deleted ones too), whose mean
    vector it gets; `features` or `content` or both, see `described_items`, by which the model encodes it; none, if the
    bundle has the item: its vector stays, and it comes back if it was deleted. Vectors are normalized if the model
    compares by the cosine. `title` and `attributes` are optional, and so is `clicks`, or where the dial counts them
    `impressions`, of which p̂ is made: without it an item keeps the popularity that it has, and an inserted one has
    none. A vector may also be as long as `encode_items` gives it; then the last number is the dial's. Of a model with
    several intents an item belongs to that of most of the `like` items, a known one stays in its own, and another belongs to that of the
    item whose vector is the nearest, unless its vector is so long.

    Args: path: .jsonl, one object a line, or .parquet, whose other columns are ignored; bundle: that is to be updated.

    Raises:
      DataError: naming file, line or row, the value and what is expected.
    """
    reader, seen = _Reader(bundle, path), {}
    items = []
    for where, value in read_parquet_rows(path, _FIELDS) if path.endswith(".parquet") else read_json_lines(path):
        item = reader.item(value, where)
        if item.id in seen:
            raise DataError(f"{where}: item {item.id!r} stands at {seen[item.id]} already: leave one of them")
        seen[item.id] = where
        items.append(item)
    ids = np.array([item.id for item in items], np.int64 if bundle.manifest["id_type"] == "int" else str)
    vectors = np.array([item.vector for item in items], np.float32).reshape(-1, bundle.width)
    read = {place: item.read for place, item in enumerate(items) if item.read is not None}
    places = [place for place, item in enumerate(items) if item.described]
    if places:
        rows, compared = reader.described.encode()
        vectors[places, :compared.shape[1]] = compared
        expected = reader.described.expected_counts()
        for row, place in enumerate(places if expected is not None else ()):
            if items[place].id in reader.uncounted:
                vectors[place, -1] = bundle.dial.coordinate(expected[row])
                reader.uncounted.remove(items[place].id)
        read |= zip(places, rows) if bundle.reads_inserted else {}
    return Upserts(ids, vectors, [item.title for item in items], reader.normalized, len(reader.uncounted), read,
                   tuple(item.attributes for item in items))


@dataclasses.dataclass(frozen=True)
class _Item:
    """One item: `vector` [D] as the index holds it, NaN but for the dial's number where it is `described`; what
    histories `read` of it [W], or None."""
    id: int | str
    vector: np.ndarray
    title: Optional[str]
    described: bool
    read: Optional[np.ndarray]
    attributes: dict


class _Reader:
    """Checks items of one file. Args: bundle, that they are for; path, of the file."""

    def __init__(self, bundle, path):
        self._bundle, self.normalized, self.uncounted = bundle, 0, set()
        self.described = DescribedItems(bundle, path)
        self._id_type, self._dimension = bundle.manifest["id_type"], bundle.manifest["dimension"]
        self._intents = IntentCoordinates(bundle)
        self._cosine = bundle.manifest["similarity"] == "cosine"

    def item(self, value, where):
        """The `_Item` of a dict."""
        if not isinstance(value, dict) or value.get("id") is None:
            raise DataError(f"{where} has no id: give an object with `id` and `vector` or `like`")
        unknown = sorted(set(value) - set(_FIELDS))
        if unknown:
            raise DataError(f"{where} has the unknown entry {unknown[0]!r}: there are {', '.join(_FIELDS)}")
        (item,) = self._ids([value["id"]], where)
        if isinstance(item, str):
            check_id(item, where)
        if isinstance(item, int) and item < 0:
            raise DataError(f"{where}: item id {item} must not be negative, since -1 is padding in requests and "
                            "answers")
        title = value.get("title")
        if title is not None and not isinstance(title, str):
            raise DataError(f"{where}: title {title!r} must be a string")
        vector, like, described = value.get("vector"), value.get("like"), is_described(value)
        ways = dict(vector=vector is not None, like=like is not None, features=described)
        ways = [name for name, given in ways.items() if given]
        if len(ways) > 1:
            raise DataError(f"{where} has both `{ways[0]}` and `{ways[1]}`" + (" or `content`" if described else "")
                            + ": give one of them")
        place = int(self._bundle.all_positions(self._bundle.id_array([item]))[0])
        intents, last, read = None, None, None
        if vector is not None:
            vector, intents, last = self._given(vector, where)
        elif like is not None:
            vector, intents, read = self._mean(like, where)
        elif described:
            self.described.add(value, where, place >= 0)
            vector, intents = (np.full(self._bundle.manifest[name], np.nan)
                               for name in ("dimension", "intent_coordinates"))
        else:
            vector = self._own(item, place, where)
        if intents is None:
            intents = self._intents.of_items([place])[0] if place >= 0 else self._intents.of_nearest(vector)
        return _Item(item, self._whole(item, vector, intents, last, value, place, where), title, described, read,
                     given_attributes(value, self._bundle.attributes, where))

    def _whole(self, item, vector, intents, last, value, place, where):
        """The vector [d] with its coordinates of intents, and that of popularity which the file gives, or its count, or
        that the item has."""
        dial = self._bundle.dial
        for name in _COUNTS:
            count = value.get(name)
            if count is None:
                continue
            if not dial.there:
                raise DataError(f"{where} has {name}, but this bundle was exported before there was a dial: leave them "
                                "out, or export again")
            if name != dial.source:
                raise DataError(f"{where} has {name}, but the popularity of this bundle counts {dial.source}: give "
                                "those")
            if last is not None:
                raise DataError(f"{where} has both {name} and a vector of {self._bundle.width} numbers, whose last "
                                "one is the popularity: give one of them")
            if isinstance(count, bool) or not isinstance(count, (int, float)) or not 0 <= count < _MOST_COUNTED:
                raise DataError(f"{where}: {name} {count!r} must be a number of at least 0")
            last = dial.coordinate(count)
        if not dial.there:
            return vector  # a bundle of before the gate too
        if last is None and place >= 0:
            last = float(self._bundle.item_vectors(np.array([place]))[0, -1])
        if last is None:
            self.uncounted.add(item)
            last = dial.coordinate(0)
        least, most = dial.coordinate(0), dial.coordinate(_MOST_COUNTED)
        if not least - _SLACK <= last <= most + _SLACK:
            raise DataError(f"{where}: the last number of the vector, its popularity, is {last:g}; of this bundle it "
                            f"is from {least:.4g} to {most:.4g}: give vectors of the same export, or {dial.source}")
        return np.concatenate([vector, intents, [last]])

    def _ids(self, ids, where):
        """Ids of the bundle's type."""
        return parse_request(ids, self._id_type, where).history

    def _given(self, values, where):
        """The vector that stands in the file, its coordinates of intents and its dial's, or None."""
        wide = self._bundle.width
        if not isinstance(values, list) or not all(
                isinstance(number, (int, float)) and not isinstance(number, bool) for number in values):
            raise DataError(f"{where}: vector must be a list of {self._dimension} numbers")
        if len(values) not in (self._dimension, wide):
            raise DataError(f"{where}: vector has {len(values)} numbers, those of this bundle have {self._dimension}"
                            + (f", or {wide} with the popularity" if wide > self._dimension else "")
                            + ": give the items' vectors as `encode_items` or --embeddings do, of the same checkpoint")
        vector = as_floats(values)
        with np.errstate(over="ignore"):
            finite = np.isfinite(vector.astype(np.float32))
        if not finite.all():
            place = int(np.argmin(finite))
            raise DataError(f"{where}: vector[{place}] = {values[place]!r} is not finite in 32 bits: correct it, or "
                            "leave the item out")
        intents, last = (vector[self._dimension:-1], vector[-1]) if len(values) > self._dimension else (None, None)
        vector = vector[:self._dimension]
        if intents is not None and not self._intents.has(intents):
            raise DataError(f"{where}: vector[{self._dimension}:{wide - 1}] is of no intent of this bundle: give vectors "
                            "as `encode_items` gives them, or the first numbers alone")
        if not self._cosine:
            return vector, intents, last
        norm = np.linalg.norm(vector)
        self.normalized += abs(norm - 1) > 1e-4
        return self._unit(vector, norm, where, "vector has"), intents, last

    def _mean(self, like, where):
        """The mean vector of known items, the coordinates of intents of most of them, and the mean of what histories
        read of those that count there; None where none does."""
        if not isinstance(like, list) or not like:
            raise DataError(f"{where}: like must be a list of at least one item id")
        ids = self._ids(like, where)
        positions = self._bundle.all_positions(self._bundle.id_array(ids))
        if positions.min() < 0:
            raise DataError(f"{where}: like names {ids[int(np.argmin(positions))]!r}, which the bundle does not have: "
                            "name items of the bundle, or give a vector")
        vector = self._bundle.item_vectors(positions)[:, :self._dimension].astype(np.float64).mean(axis=0)
        if self._cosine:
            vector = self._unit(vector, np.linalg.norm(vector), where, "like's items have")
        numbers = self._bundle.history_rows.numbers(positions)
        numbers, read = numbers[numbers >= 0], None
        if len(numbers) and self._bundle.reads_inserted:
            rows = self._bundle.history_rows.of(numbers, self._bundle.tower)
            read = rows.astype(np.float64).mean(axis=0).astype(np.float32)
        return vector, self._intents.commonest(positions), read

    def _own(self, item, place, where):
        """The vector that a known item has."""
        if place < 0:
            raise DataError(f"{where}: item {item!r} is new and has neither a vector nor `like` nor `features`: give "
                            "one of them")
        return self._bundle.item_vectors(np.array([place]))[0, :self._dimension].astype(np.float64)

    @staticmethod
    def _unit(vector, norm, where, what):
        if norm < _SMALLEST_NORM:
            raise DataError(f"{where}: {what} a norm of {norm:.1e}, too small to have a direction, by which this model "
                            "compares: give another vector")
        return vector / norm
