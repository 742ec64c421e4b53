"""Warnings of columns that are probably not what their flag takes them for: ids, attributes of the item, nothing."""
from absl import logging
import numpy as np
import polars as pl

from clrec_tf.data.query_features import CATEGORY
from clrec_tf.data.query_features import NUMBER

_EACH_ITS_OWN = 0.5  # share of distinct values among those known above which a category is probably a number
_OF_THE_ITEM = 0.5  # see `doubt_request`; Online Retail has description .97, price .78, quantity .14, country .05
SAMPLE = 1_000_000  # clicks that are looked at


def doubt_category(name: str, kind: str, rows: int, names, count: np.ndarray) -> None:
    """Warns where a feature has no value, or a category about as many as there are rows with one: a number, or an id.

    Args:
      name, kind: of the column.
      rows: that have a value.
      names: its values, by number.
      count: [values], training clicks of each.
    """
    used = np.count_nonzero(count)
    if not used:
        logging.warning("%s has no value in the training part, so that nothing is learned of it: leave it out", name)
    if kind == CATEGORY and used > 100 and used > _EACH_ITS_OWN * rows:
        logging.warning("%s has %d values in %d rows, such as %r, so that little is learned of each: if it is a "
                        "number, name it %s:%s", name, used, rows, names[-1], name, NUMBER)


def doubt_request(name: str, codes: np.ndarray, items: pl.Series) -> None:
    """Warns where a context column describes the item, and so tells which one is clicked.

    What is looked at is how often two clicks of an item have the same value, beyond how often two of all clicks have:
    0 where the value has nothing to do with the item, 1 where the item decides it.

    Args:
      name: of the column.
      codes: [N,·], 0 = missing.
      items: [N].
    """
    known = codes[:SAMPLE].any(axis=1)
    value = np.unique(codes[:SAMPLE][known], axis=0, return_inverse=True)[1].reshape(-1)
    clicks = pl.DataFrame({"item": items.head(SAMPLE).filter(pl.Series(known)), "value": value})
    size = pl.col("len").cast(pl.Float64)  # whose square 32 bits do not hold
    alike = lambda *by: clicks.group_by(*by).len().select((size * (size - 1)).sum()).item()
    pairs, of_items, all_pairs = alike("item", "value"), alike("item"), float(len(clicks)) * (len(clicks) - 1)
    if not of_items or alike("value") == all_pairs:
        return
    chance = alike("value") / all_pairs
    share = (pairs / of_items - chance) / (1 - chance)
    if share > _OF_THE_ITEM:
        logging.warning("--context_columns: %s is nearly the same at all clicks of an item (%.2f, where 1 is always, "
                        "and 0 as often as by chance). If it describes the item, as category and price do, it tells "
                        "the model which item is clicked, and no request has it: give it as --feature_columns",
                        name, share)
