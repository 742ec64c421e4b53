"""Users and items of a log by numbers, in the order in which they first appear."""
from typing import Iterable

import polars as pl

from clrec_tf.preparation.first_values import FirstValues
from clrec_tf.preparation import item_features
from clrec_tf.preparation.splits import Clicks
from clrec_tf.settings.data import PrepareConfig
from clrec_tf.tabular_files import delimiters


def described(frames: Iterable[pl.DataFrame], ids: pl.Series, features: dict[str, bool], settings: PrepareConfig
              ) -> pl.DataFrame:
    """Items by number, with title and features as first seen in time.

    Args:
      frames: rows in the order of the log: item (number), title, f:<feature> and optional timestamp and order, by which
        the first is told; those clicks are enough that are the first to say something.
      ids: original ids by number.
      features: name -> whether it has several values.
      settings: the separator inside several-valued features, and words for what is missing.
    """
    first: dict[str, FirstValues] = {}
    for frame in frames:
        number = frame["item"].to_numpy()
        keys = {name: frame[name].to_numpy() for name in ("timestamp", "order") if name in frame.columns}
        for column in (name for name in frame.columns if name == "title" or name.startswith("f:")):
            first.setdefault(column, FirstValues(len(ids), tuple(keys), frame.schema[column])).add(
                number, frame[column], keys)
    items = pl.DataFrame({"item": ids}).with_row_index("number")
    separator = delimiters.of_values(settings) if first else ""
    for column, values in first.items():
        numbers, known = values.known()
        name = column.removeprefix("f:")
        known = item_features.feature(known.alias(column), features.get(name, False), separator,
                                      settings.null_values, f"{settings.input}: column {name!r}")
        known = pl.DataFrame([pl.Series("number", numbers, items.schema["number"]), known])
        items = items.join(known, on="number", how="left", maintain_order="left")
    return items.drop("number")


def clicks_of(frame: pl.DataFrame, users: pl.Series, items: pl.Series) -> Clicks:
    """A log's clicks by user, then by time, then by order, then as in the frame, whose `context` is the place.

    Args:
      frame: user, item, optional timestamp, order, dwell, kind and place.
      users, items: original ids by number.
    """
    by = [name for name in ("timestamp", "order") if name in frame.columns]
    stayed = [frame[name] for name in (*by, "dwell", "kind", "place") if name in frame.columns]
    clicks = pl.DataFrame([numbers_of(frame["user"], users), numbers_of(frame["item"], items), *stayed])
    clicks = clicks.sort("user", *by, maintain_order=True)
    column = lambda name: clicks[name].to_numpy() if name in clicks.columns else None
    return Clicks(column("user"), column("item"), column("timestamp"), column("dwell"), column("kind"), column("place"))


def numbers_of(ids: pl.Series, known: pl.Series) -> pl.Series:
    """Ids [N] as their places among those known, int32."""
    return ids.cast(pl.Enum(known)).to_physical().cast(pl.Int32)
