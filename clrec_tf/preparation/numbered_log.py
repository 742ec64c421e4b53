"""Users and items of a log by numbers, in the order in which they first appear."""
import polars as pl

from clrec_tf.preparation import item_features
from clrec_tf.preparation.splits import Clicks
from clrec_tf.settings.data import PrepareConfig


def described(frame: pl.DataFrame, ids: pl.Series, features: dict[str, bool], settings: PrepareConfig) -> pl.DataFrame:
    """Items by number, with title and features as first seen in time.

    Args:
      frame: item, title, f:<feature> and optional timestamp and order, by which the first is told; those clicks are
        enough that are the first to say something.
      ids: original ids by number.
      features: name -> whether it has several values.
      settings: the separator inside several-valued features, and words for what is missing.
    """
    number = _numbers(frame["item"], ids)
    ordered = [frame[name] for name in ("timestamp", "order") if name in frame.columns]
    by = [series.name for series in ordered]
    items = pl.DataFrame({"item": ids})
    for column in (name for name in frame.columns if name == "title" or name.startswith("f:")):
        known = pl.DataFrame([number.alias("number"), frame[column], *ordered]).drop_nulls(column)
        if ordered:
            known = known.sort(by, maintain_order=True)
        first = known.unique("number", keep="first", maintain_order=True).sort("number")
        name = column.removeprefix("f:")
        first = pl.DataFrame([first["number"], item_features.feature(
            first[column], features.get(name, False), settings.multi_separator, settings.null_values,
            f"{settings.input}: column {name!r}")])
        items = items.with_columns(pl.arange(pl.len(), dtype=pl.Int32).alias("number")).join(
            first, on="number", how="left", maintain_order="left").drop("number")
    return items


def clicks_of(frame: pl.DataFrame, users: pl.Series, items: pl.Series) -> Clicks:
    """A log's clicks by user, then by time, then by order, then as in the frame, whose `context` is the place.

    Args:
      frame: user, item, optional timestamp, order, dwell, kind and place.
      users, items: original ids by number.
    """
    by = [name for name in ("timestamp", "order") if name in frame.columns]
    stayed = [frame[name] for name in (*by, "dwell", "kind", "place") if name in frame.columns]
    clicks = pl.DataFrame([_numbers(frame["user"], users), _numbers(frame["item"], items), *stayed])
    clicks = clicks.sort("user", *by, maintain_order=True)
    column = lambda name: clicks[name].to_numpy() if name in clicks.columns else None
    return Clicks(column("user"), column("item"), column("timestamp"), column("dwell"), column("kind"), column("place"))


def _numbers(ids: pl.Series, known: pl.Series) -> pl.Series:
    """Ids [N] as their places among those known, int32."""
    return ids.cast(pl.Enum(known)).to_physical().cast(pl.Int32)
