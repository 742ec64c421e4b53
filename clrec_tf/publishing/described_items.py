"""Items to insert by their features and dense vectors: checked, numbered as in training, and encoded."""
import functools
import math
from typing import Any, Optional

from absl import logging
import numpy as np
import polars as pl

from clrec_tf.data.features import feature_columns
from clrec_tf.data.features import item_width
from clrec_tf.data.schema import Feature
from clrec_tf.errors import DataError
from clrec_tf.preparation.vocabulary import bucket
from clrec_tf.publishing.item_encoder import ItemEncoder
from clrec_tf.retrieval.bundle import Bundle
from clrec_tf.system.finite import as_floats
from clrec_tf.tabular_files import values as values_lib

DESCRIBED = ("features", "content")  # entries of an item
_SMALLEST_NORM = 1e-6  # as of given vectors
_OLD = "it was exported before bundles had an encoder of items: export again"


def is_described(item: dict) -> bool:
    """Whether an item of a file says anything in `features` or `content`; null and features without values do not."""
    features = item.get("features")
    said = any(value is not None for value in features.values()) if isinstance(features, dict) else features is not None
    return said or item.get("content") is not None


class DescribedItems:
    """Items of one file that features and dense vectors describe; encoded together, since each call costs time.

    Args:
      bundle: that they are for.
      path: the file, for messages.
    """

    def __init__(self, bundle: Bundle, path: str):
        self._bundle, self._path = bundle, path
        self._rows, self._contents, self._where = [], [], []
        self._unknown, self._known_items = [], 0

    def __len__(self):
        """How many there are."""
        return len(self._rows)

    @functools.cached_property
    def _encoder(self):
        return ItemEncoder(self._bundle.path)

    def add(self, item: dict, where: str, is_known: bool) -> None:
        """Takes one item.

        Args:
          item: with `features`, {name: value or list of values}, or `content`, numbers, or both.
          where: it stands, for messages.
          is_known: whether the bundle has it already.

        Raises:
          DataError: the bundle cannot encode it, or a name, type, width or value is wrong.
        """
        reason = self._bundle.manifest.get("no_item_encoder", _OLD)
        if reason:
            given = next(name for name in DESCRIBED if item.get(name) is not None)
            raise DataError(f"{where} has {given}, but the model of {self._bundle.path} cannot encode an item by them: "
                            f"{reason}. Until then give `vector` or `like`")
        row, content = self._numbers(item.get("features") or {}, where), self._content(item.get("content"), where)
        if not row[1:].any() and not content.any():
            raise DataError(f"{where}: nothing that the model knows describes the item ({self._takes()}): give values "
                            "that were there in training, or `vector` or `like`")
        self._rows.append(row)
        self._contents.append(content)
        self._where.append(where)
        self._known_items += is_known

    def encode(self) -> tuple[np.ndarray, np.ndarray]:
        """All of them: (what histories read [N,W], what is compared [N,D'] without the dial's number), float32.

        Warns of what was not known, and of what the vectors are worth.

        Raises:
          DataError: a vector is not finite, or has no direction.
        """
        read, compared = self._encoder(np.array(self._rows), np.array(self._contents))
        finite = np.isfinite(read).all(axis=1) & np.isfinite(compared).all(axis=1)
        norms = np.linalg.norm(compared[:, :self._bundle.manifest["dimension"]], axis=1)
        cosine = self._bundle.manifest["similarity"] == "cosine"
        for place in np.flatnonzero(~finite | (cosine & (norms < _SMALLEST_NORM))):
            raise DataError(f"{self._where[place]}: the model's vector of this item has no direction or is not finite: "
                            "check the numbers of `content`, give other features, or `vector` or `like`")
        self._warn()
        return read, compared

    def expected_counts(self) -> Optional[np.ndarray]:
        """How often each is to be clicked by its features, [N]; None where the bundle does not know, or says nothing of
        ids that were hidden."""
        if self._encoder.counts is None:
            return None
        return np.rint(self._encoder.counts.expected(np.array(self._rows), self._encoder.features))

    def _warn(self):
        if not self._encoder.id_dropout:
            logging.warning("%d items of %s are encoded by their features, and without --id_dropout nothing was "
                            "learned of such vectors: train with --id_dropout, or give `like`", len(self), self._path)
        if self._unknown:
            logging.warning("%d feature values of %s were not there in training, such as %s: they count as the other "
                            "values that training did not know, or as missing", len(self._unknown), self._path,
                            ", ".join(dict.fromkeys(self._unknown[:5])))
        if self._known_items:
            logging.warning("%d items of %s with features or content are in the bundle already: what was learned of "
                            "them by their clicks is replaced by what features say", self._known_items, self._path)

    def _takes(self):
        """What can be said of an item, in words."""
        names = ", ".join(feature.name for feature in self._encoder.features)
        width = self._encoder.content_width
        parts = names and f"its features are {names}", width and f"its content {width} numbers"
        return "; ".join(filter(None, parts))

    def _numbers(self, features: Any, where: str) -> np.ndarray:
        """The item row int64 [C] of an item without an id."""
        known = {feature.name: feature for feature in self._encoder.features}
        if not isinstance(features, dict):
            raise DataError(f"{where}: features {features!r} must be an object, {{name: value or list of values}}; "
                            f"{self._takes()}")
        for name in features:
            if name not in known:
                raise DataError(f"{where}: features has {name!r}, which this model does not read ({self._takes()}): "
                                "leave it out, or correct its name")
        row = np.zeros(item_width(self._encoder.features), np.int64)
        row[0] = -1
        for name, columns in feature_columns(self._encoder.features).items():
            numbers = [self._number(known[name], value, where)
                       for value in self._listed(known[name], features.get(name), where)]
            row[columns][:len(numbers)] = numbers[:known[name].width]
        return row

    def _listed(self, feature: Feature, value: Any, where: str) -> list[tuple[str, ...]]:
        """The texts of each value of a feature that is not missing, in the forms that prepare may have read it in."""
        found, several = [], isinstance(value, list)
        for each in value if several else [value]:
            if each is None:
                continue
            if isinstance(each, bool) or not isinstance(each, (str, int, float)) or (
                    isinstance(each, float) and not math.isfinite(each)):
                raise DataError(f"{where}: feature {feature.name} has the value {each!r}: give text, a finite number, "
                                "or a list of them")
            forms = pl.Series([each] if isinstance(each, str) else _written(each), dtype=pl.String)
            texts = values_lib.texts(forms, self._encoder.null_values).drop_nulls().to_list()
            found += [tuple(texts)] if texts else []
        if several and len(found) > feature.width == 1:
            raise DataError(f"{where}: feature {feature.name} has {len(found)} values, and one per item in training: "
                            "give one")
        return found

    def _number(self, feature: Feature, forms: tuple[str, ...], where: str) -> int:
        """A value's number in training: known, or of its hash bucket, or 0 for missing."""
        numbers = self._encoder.numbers[feature.name]
        for text in forms:
            if text in numbers:
                return numbers[text]
        self._unknown.append(f"{feature.name}={forms[0]!r} ({where.rpartition(', ')[2]})")
        buckets = feature.rows - 1 - feature.vocabulary_size
        return feature.vocabulary_size + 1 + bucket(forms[0], buckets) if buckets else 0

    def _content(self, values: Any, where: str) -> np.ndarray:
        """The dense vector float32 [W], zeros where none is given, as in training."""
        width = self._encoder.content_width
        if values is None:
            return np.zeros(width, np.float32)
        if not width:
            raise DataError(f"{where} has content, but this model reads no dense vectors of items: leave it out, or "
                            "prepare with --dense_features, train and export again")
        if not isinstance(values, list) or len(values) != width:
            given = f"has {len(values)} entries" if isinstance(values, list) else f"is {values!r}"
            raise DataError(f"{where}: content {given}: give a list of {width} numbers, as --dense_features had them")
        for place, number in enumerate(values):
            if isinstance(number, bool) or not isinstance(number, (int, float)):
                raise DataError(f"{where}: content[{place}] = {number!r} is no number: correct it, or leave content "
                                "out")
        with np.errstate(over="ignore"):
            vector = as_floats(values).astype(np.float32)
        if not np.isfinite(vector).all():
            place = int(np.argmin(np.isfinite(vector)))
            raise DataError(f"{where}: content[{place}] = {values[place]!r} is not finite in 32 bits: correct it, or "
                            "leave content out")
        return vector


def _written(number) -> list[str]:
    """A number as text, and as the text of the other kind of column: 3 may have been 3.0 in the log, and back."""
    if number != int(number):
        return [str(number)]
    return [str(int(number)), f"{int(number)}.0"][::-1 if isinstance(number, float) else 1]
