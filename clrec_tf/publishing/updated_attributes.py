"""Attributes of inserted and updated items."""
import contextlib
from typing import Any
from typing import Sequence

import numpy as np
import polars as pl

from clrec_tf.errors import DataError
from clrec_tf.retrieval.attributes import Attributes
from clrec_tf.system.finite import EXACT
from clrec_tf.system.finite import is_number
from clrec_tf.tabular_files.values import texts


def given_attributes(item: dict, attributes: Attributes, where: str) -> dict[str, Any]:
    """What a line of a file of items says of attributes: {name: number, or list of texts}.

    Its entry `attributes` counts, and of those that it does not name the entry `features`.

    Args:
      item: the line's object, with both or neither.
      attributes: of the bundle.
      where: it stands, for messages.

    Raises:
      DataError: naming an attribute that the bundle lacks, or a value that is none of its kind.
    """
    own, features = item.get("attributes"), item.get("features")
    if own is not None and not isinstance(own, dict):
        raise DataError(f"{where}: attributes {own!r} must be an object, {{name: value}}; {attributes.described()}")
    given = {name: value for name, value in (features if isinstance(features, dict) else {}).items()
             if name in attributes.names} | {name: value for name, value in (own or {}).items() if value is not None}
    kinds, found = dict(attributes.kinds), {}
    for name, value in given.items():
        if name not in kinds:
            raise DataError(f"{where}: attributes has {name!r}, which the bundle lacks; {attributes.described()}")
        found[name] = _number(name, value, where) if kinds[name] else _texts(name, value, where)
    return found


def updated_attributes(attributes: Attributes, positions: Sequence[int], given: Sequence[dict], total: int
                       ) -> Attributes:
    """Those of a bundle after an update; what nobody says of an item stays as it was, and is unknown of a new one.

    Args:
      attributes: of the bundle before.
      positions: int [N] of the items that the file names; new ones follow the bundle's.
      given: N, see `given_attributes`.
      total: items after the update.
    """
    frame = attributes.frame
    if not attributes.names:
        return attributes
    if total > len(frame):
        frame = pl.concat([frame, frame.clear(total - len(frame))])
        frame = frame.with_columns(pl.col(name).fill_null([]) for name, number in attributes.kinds if not number)
    for name in attributes.names:
        said = [(int(position), values[name]) for position, values in zip(positions, given) if name in values]
        if said:
            places, values = zip(*said)
            column = frame[name].to_list() if frame.schema[name].is_nested() else frame[name].to_numpy().copy()
            for place, value in zip(places, values):
                column[place] = value
            series = pl.Series(name, column, frame.schema[name], strict=False)
            frame = frame.with_columns(series.fill_nan(None) if isinstance(column, np.ndarray) else series)
    return Attributes(frame)


def _number(name, value, where) -> float:
    text = value
    if isinstance(text, str) and "_" not in text:  # as a feature of the data set has it; 1_0 is a number to Python alone
        for kind in (float, int):  # of those that it can be the last, which is exact
            with contextlib.suppress(ValueError):
                value = kind(text)
    if not is_number(value) or isinstance(value, int) and abs(value) >= EXACT:
        raise DataError(f"{where}: attribute {name} is {value!r}: give a finite number, of a whole one below 2^53")
    return float(value)


def _texts(name, value, where) -> list[str]:
    values = [each for each in (value if isinstance(value, list) else [value]) if each is not None]
    for each in values:
        if not isinstance(each, (str, int, float)):
            raise DataError(f"{where}: attribute {name} has the value {each!r}: give text, or a list of texts")
    # As prepare reads them: without white space around, by which no request would find them.
    return texts(pl.Series([str(each) for each in values], dtype=pl.String), ()).drop_nulls().to_list()
