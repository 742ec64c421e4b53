"""Context columns of a log by their distinct entries, so that a click holds no more than the number of its entry."""
import dataclasses

import numpy as np
import polars as pl

from clrec_tf.data.query_features import CONTEXT
from clrec_tf.preparation import doubts
from clrec_tf.preparation import query_features
from clrec_tf.preparation.query_features import Column
from clrec_tf.preparation import rows as rows_lib
from clrec_tf.preparation.rows import Rows
from clrec_tf.settings.data import PrepareConfig

_KEY = "__entry__"


@dataclasses.dataclass(frozen=True)
class Entries:
    """A context column.

    Attributes:
      name: of the column in the log, c:<name>.
      keys: of its distinct entries by number, null among them: in the order in which they first appear.
      column: its codes, by entry.
    """
    name: str
    keys: pl.Series
    column: Column

    def numbered(self, lazy: pl.LazyFrame, name: str) -> pl.LazyFrame:
        """Rows with the number of their entry as a further column."""
        numbers = pl.DataFrame({_KEY: self.keys, name: np.arange(len(self.keys), dtype=np.int32)}).lazy()
        with_key = lazy.with_columns(_key(self.name, lazy.collect_schema()[self.name]))
        return with_key.join(numbers, on=_KEY, how="left", nulls_equal=True, maintain_order="left").drop(_KEY)


def of_log(rows: Rows, settings: PrepareConfig) -> list[Entries]:
    """The entries of --context_columns; `UserError` where the log has no such column."""
    kinds = query_features.context_kinds(settings, rows.columns)
    found = []
    for name, kind in kinds.items():
        column = f"c:{name}"
        keyed = rows.lazy.select(column, _key(column, rows.lazy.collect_schema()[column]))
        distinct = rows_lib.first_seen(keyed, _KEY, settings)
        codes = query_features.column(name, CONTEXT, kind, distinct[column], settings,
                                      f"{settings.input}: column {name!r}")
        found.append(Entries(column, distinct[_KEY], codes))
        head = found[-1].numbered(rows.lazy.select("item", column).head(doubts.SAMPLE), "number").collect()
        doubts.doubt_request(name, codes.codes[head["number"].to_numpy()], head["item"])
    return found


def _key(name: str, dtype: pl.DataType) -> pl.Expr:
    """What entries are told apart by: themselves; of lists and floats their text."""
    column = pl.col(name)
    if isinstance(dtype, (pl.List, pl.Array)):
        texts = (column.arr.to_list() if isinstance(dtype, pl.Array) else column).cast(pl.List(pl.String))
        return texts.list.eval(pl.element().fill_null("\0")).list.join("\x1f").alias(_KEY)
    return (column.cast(pl.String) if dtype.is_float() else column).alias(_KEY)
