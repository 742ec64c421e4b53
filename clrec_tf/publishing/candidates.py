"""The items that can be retrieved, encoded once, in the order of their popularity."""
import dataclasses
from typing import Optional

import numpy as np

from clrec_tf.data.catalogue import Catalogue
from clrec_tf.data.ids import check_id
from clrec_tf.errors import DataError
from clrec_tf.models.dial import item_coordinate
from clrec_tf.models.dial import with_coordinate
from clrec_tf.models.encode import Encoder

_SAME = 1e-6  # part of a vector's norm that two computations of it may differ by


@dataclasses.dataclass(frozen=True)
class Candidates:
    """V items, the most clicked first: an item's position here is its row in the tower, the index and the bundle.

    Attributes:
      original_ids: [V], int64 or fixed-width str, distinct.
      items: float32 [V,history_width], what the query tower reads of them in histories; g(y) for CLRec, not normalized.
      compared: float32 [V,d], g(y) as φ compares it: l2-normalized for the cosine.
      coordinate: float32 [V], the dial's, see `models.dial`.
      titles: [V] str objects, or None.
      item_numbers: int64 [V], the ids 1..V inside the data set.
    """
    original_ids: np.ndarray
    items: np.ndarray
    compared: np.ndarray
    coordinate: np.ndarray
    titles: Optional[np.ndarray]
    item_numbers: np.ndarray

    @property
    def searched(self) -> np.ndarray:
        """float32 [V,d+1], what indexes hold: `compared` and the coordinate."""
        return with_coordinate(self.compared, self.coordinate)


def encode_candidates(encoder: Encoder, catalogue: Catalogue, counts: np.ndarray, temperature: float,
                      cold_items: bool = True) -> Candidates:
    """Encodes the catalogue.

    Popularity order makes the answer to an empty history fall out of any search that breaks ties by position: all
    scores are 0, so the most popular items come first.

    Args:
      encoder: of the model.
      catalogue: its row i is item i + 1.
      counts: [V], of which the dial's p̂ is made, by row of the catalogue.
      temperature: ρ.
      cold_items: whether items without any training click are among them.

    Raises:
      DataError: ids that repeat or cannot be stored in a line of text, or a vector that is not finite.
    """
    order = np.argsort(-catalogue.counts, kind="stable")
    if catalogue.cold is not None and not cold_items:
        order = order[~catalogue.cold[order]]
    original_ids = _checked_ids(catalogue.original_ids[order])
    item_rows = catalogue.item_rows[order]
    items, compared = encoder.history_vectors(item_rows), encoder.compared_items(item_rows)
    bad = np.flatnonzero(~(np.isfinite(items).all(axis=1) & np.isfinite(compared).all(axis=1)))
    if len(bad):
        raise DataError(f"the vectors of {len(bad)} items are not finite, the first of item "
                        f"{original_ids.tolist()[bad[0]]!r}: the checkpoint is spoiled, export an earlier one with "
                        "--export_checkpoint")
    titles = None if catalogue.titles is None else catalogue.titles[order]
    coordinate = item_coordinate(counts, temperature)[order]
    return Candidates(original_ids, items, compared, coordinate, titles, order + 1)


def scales_between(items: np.ndarray, compared: np.ndarray):
    """Factors [V] that make rows of `items` [V,W] those of `compared` [V,d]; None where there are none."""
    if items.shape != compared.shape:
        return None
    norms = np.linalg.norm(compared, axis=1)
    scales = norms / np.maximum(np.linalg.norm(items, axis=1), np.finfo(np.float32).tiny)
    apart = np.abs(items * scales[:, None] - compared).max(axis=1)
    return scales if np.all(apart <= _SAME * norms) else None


def _checked_ids(ids):
    """The ids as int64 or fixed-width strings, each of which is one non-empty line."""
    distinct, counts = np.unique(ids, return_counts=True)
    if len(distinct) < len(ids):
        raise DataError(f"the catalogue has {len(ids) - len(distinct)} repeated item ids, such as "
                        f"{distinct.tolist()[np.argmax(counts)]!r}: prepare the data again")
    if ids.dtype != object:
        return ids
    for text in ids:
        check_id(text, "the catalogue cannot be exported")
    return ids.astype(str)
