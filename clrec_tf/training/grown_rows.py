"""Which row of an earlier run's tables each row of a new one continues, and what rows without such begin with."""
import dataclasses
import functools
from typing import Optional

import numpy as np

from clrec_tf.data.catalogue import Catalogue
from clrec_tf.data.catalogue import read_catalogue
from clrec_tf.data.catalogue import read_feature_values
from clrec_tf.data.query_features import NUMBER
from clrec_tf.data.query_features import QueryFeature
from clrec_tf.data import schema as schema_lib
from clrec_tf.data.schema import Schema

NOBODY = -1  # owner of a queue's entry


@dataclasses.dataclass(frozen=True)
class Vocabularies:
    """A data set's items and feature values.

    Attributes:
      data_dir: its folder.
      schema: of it.
      catalogue: its items.
      values: feature name -> values by number from 1.
    """
    data_dir: str
    schema: Schema
    catalogue: Catalogue
    values: dict[str, list[str]]

    @classmethod
    def read(cls, data_dir: str, schema: Schema, manifest: schema_lib.Manifest) -> "Vocabularies":
        """Of a data folder."""
        return cls(data_dir, schema, read_catalogue(data_dir, schema, manifest), read_feature_values(data_dir))

    @functools.cached_property
    def item_rows(self) -> np.ndarray:
        """[R,C] int64, every item row by number: of nothing, of the items, of hash buckets."""
        rows = np.zeros((self.schema.item_rows, self.catalogue.item_rows.shape[1]), np.int64)
        rows[:, 0] = np.arange(len(rows))
        rows[1:1 + self.schema.num_items] = self.catalogue.item_rows
        return rows

    def item_buckets(self) -> int:
        """Hash buckets of items."""
        return self.schema.item_rows - 1 - self.schema.num_items


def earlier_rows(now: list, before: list, buckets: int) -> np.ndarray:
    """Which row of an earlier table each row of a new one continues, −1: none.

    Rows of both: one for what is missing, one for each name in order, then hash buckets.

    Args:
      now, before: names, such as original ids.
      buckets: of both.

    Returns:
      [1 + len(now) + buckets] int64.
    """
    places = {name: number for number, name in enumerate(before, 1)}
    names = [places.get(name, -1) for name in now]
    return np.array([0, *names, *range(len(before) + 1, len(before) + 1 + buckets)], np.int64)


def means_of_alike(rows: np.ndarray, features: np.ndarray, earlier: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What new items begin with: the mean over known items of exactly the same features.

    Args:
      rows: [R,d] a table, of which the known rows count.
      features: [R,F] features of each row's item, 0 = missing.
      earlier: [R], see `earlier_rows`.

    Returns:
      (means [n,d], their rows [n]): of new items that have features, and known items of the same.
    """
    if not features.shape[1]:
        return rows[:0], np.zeros(0, np.int64)
    _, kind = np.unique(features, axis=0, return_inverse=True)
    has = features.any(axis=1)
    known = has & (earlier >= 0)
    sizes = np.bincount(kind[known], minlength=kind.max() + 1)
    new = np.flatnonzero(has & (earlier < 0) & (sizes[kind] > 0))
    order = np.flatnonzero(known)[np.argsort(kind[known], kind="stable")]
    ends = np.cumsum(sizes)
    sums = np.concatenate([np.zeros((1, rows.shape[1])), np.cumsum(rows[order], axis=0, dtype=np.float64)])
    totals = sums[ends[kind[new]]] - sums[(ends - sizes)[kind[new]]]
    return (totals / sizes[kind[new]][:, None]).astype(rows.dtype), new


def moved_contexts(feature: Optional[QueryFeature], before: Vocabularies, now: Vocabularies) -> Optional[np.ndarray]:
    """Number now of each earlier value of the context of a queue's entries, −1: none; None where numbers stay."""
    if feature is None or feature.kind == NUMBER:
        return None
    return earlier_rows(before.values[feature.key], now.values[feature.key], 0)


def moved_queue(fields: dict[str, np.ndarray], shapes: dict[str, tuple], item_rows: np.ndarray, earlier: np.ndarray,
                contexts: Optional[np.ndarray] = None) -> Optional[dict[str, np.ndarray]]:
    """A queue whose items are numbered anew.

    Args:
      fields: "name/worker" -> values: of names that end in "item" item rows [Q,C], in "owner" user numbers [Q], in
        "context" numbers of contexts [Q].
      shapes: name -> shape, as it is now.
      item_rows: [R,≥C] as they are now.
      earlier: [R], see `earlier_rows`.
      contexts: number now of each earlier context, −1: none; None: as they were.

    Returns:
      The fields; owners are nobody, since users have other numbers now. None where a shape is another, or an item of
      the queue is no more.
    """
    now = np.zeros(earlier.max() + 1, np.int64)  # number of each earlier item, 0: it is no more
    now[earlier[earlier >= 0]] = np.flatnonzero(earlier >= 0)
    moved = {}
    for field, values in fields.items():
        name = field.rpartition("/")[0]
        if name.endswith("item"):
            before = values[:, 0]
            ids = np.where(before < len(now), now[np.minimum(before, len(now) - 1)], 0)
            if ((ids == 0) & (before > 0)).any():
                return None
            values = item_rows[ids, :values.shape[1] if name not in shapes else shapes[name][1]]
        elif name.endswith("owner"):
            values = np.full_like(values, NOBODY)
        elif name.endswith("context") and contexts is not None:
            values = np.maximum(contexts[values], 0)
        if shapes.get(name) != values.shape:
            return None
        moved[field] = values
    return moved
