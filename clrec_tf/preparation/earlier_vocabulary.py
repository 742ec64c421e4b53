"""The vocabulary of an earlier data folder, whose numbers a new one keeps (--vocabulary_from)."""
import dataclasses
import os
from typing import Optional

import numpy as np
import polars as pl

from clrec_tf.data import catalogue as catalogue_lib
from clrec_tf.data.query_features import QueryFeature
from clrec_tf.data import schema as schema_lib
from clrec_tf.data.schema import Schema
from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.preparation import item_features
from clrec_tf.preparation.splits import DAY
from clrec_tf.settings.data import PrepareConfig
from clrec_tf.tabular_files import times

@dataclasses.dataclass(frozen=True)
class EarlierVocabulary:
    """V items that have numbers already.

    Attributes:
      data_dir: their data folder.
      schema: of it.
      items: by number from 1: item (the original id), optional title, f:<feature> as text, or a list of texts.
      last_click: [V] int64 seconds, −1: unknown.
      cold: [V] bool, items that nobody has clicked yet.
      feature_values: feature name -> its values by number from 1.
      content: [V,width] float32 dense vectors; None without.
    """
    data_dir: str
    schema: Schema
    items: pl.DataFrame
    last_click: np.ndarray
    cold: np.ndarray
    feature_values: dict[str, list[str]]
    content: Optional[np.ndarray]

    def width(self, feature: str) -> int:
        """Values of a feature per item; 0 where the feature was not there."""
        return next((known.width for known in self.schema.features if known.name == feature), 0)

    def query_feature(self, source: str, name: str) -> Optional[QueryFeature]:
        """A feature of users or requests; None where it was not there."""
        return next((known for known in self.schema.query_features if (known.source, known.name) == (source, name)),
                    None)

    def content_of(self, items: list[str], width: int, path: str) -> tuple[np.ndarray, np.ndarray]:
        """Dense vectors of items by original id, [N,width], zero where there is none; and [N] bool which have one.

        Raises:
          DataError: their width is another than that of the new ones, of the file `path`.
        """
        if self.content.shape[1] != width:
            raise DataError(f"--dense_features={path} has vectors of {width} numbers, --vocabulary_from="
                            f"{self.data_dir} of {self.content.shape[1]}: give vectors of the same kind, or leave "
                            "--vocabulary_from out")
        places = {item: place for place, item in enumerate(self.items["item"])}
        rows = np.array([places.get(item, -1) for item in items])
        vectors = np.where(rows[:, None] >= 0, self.content[rows], 0.0)
        return vectors, vectors.any(axis=1)

    def absent(self, items: pl.Series) -> np.ndarray:
        """[V] bool: which of its items are not among these original ids."""
        return ~self.items["item"].is_in(items.implode()).to_numpy()


def read(data_dir: str) -> EarlierVocabulary:
    """Reads it.

    Raises:
      UserError: the folder is none of prepare; DataError: it is damaged or too old.
    """
    flag = f"--vocabulary_from={data_dir}"
    if not os.path.exists(os.path.join(data_dir, schema_lib.MANIFEST_FILE)):
        raise UserError(f"{flag} holds no complete data set: give the --data_dir of an earlier prepare")
    schema = schema_lib.load_schema(data_dir)
    catalogue = catalogue_lib.read_catalogue(data_dir, schema, schema_lib.load_manifest(data_dir))
    values = catalogue_lib.read_feature_values(data_dir)
    if catalogue_lib.lacks_values(schema, values):
        raise DataError(f"{flag} has no {schema_lib.FEATURE_VALUES_FILE}: it was written by an older version; prepare "
                        "that data again, and train on it")
    columns = {"item": [str(item) for item in catalogue.original_ids]}
    if catalogue.titles is not None:
        columns["title"] = [title or None for title in catalogue.titles]
    for feature in schema.features:
        rows = catalogue.item_rows[:, schema.feature_columns[feature.name]]
        columns[f"f:{feature.name}"] = _texts(rows, values[feature.name], feature.width)
    content = None
    if schema.content_width:
        schema_lib.check_file(data_dir, schema_lib.CONTENT_FILE)
        content = np.load(os.path.join(data_dir, schema_lib.CONTENT_FILE), allow_pickle=False)[1:]
    return EarlierVocabulary(data_dir, schema, pl.DataFrame(columns, strict=False),
                             catalogue.last_click, catalogue.cold, values, content)


def _texts(rows: np.ndarray, values: list[str], width: int) -> pl.Series:
    """Values of a feature by number [V,width] as texts, or lists of texts: null where missing or in a hash bucket."""
    names = np.array([None, *values], object)
    known = np.where(rows <= len(values), rows, 0)
    if width == 1:
        return pl.Series(names[known[:, 0]].tolist(), dtype=pl.String)
    return pl.Series([[names[value] for value in row if value] for row in known], dtype=pl.List(pl.String))


def check_fits(earlier: EarlierVocabulary, items: pl.Series, newest: Optional[int], settings: PrepareConfig) -> None:
    """Refuses a vocabulary of another log.

    Args:
      earlier: see there.
      items: original ids of the log.
      newest: time of the log's last click, or None.
      settings: of prepare.

    Raises:
      UserError, DataError: naming what differs.
    """
    flag = f"--vocabulary_from={earlier.data_dir}"
    item_features.check_match(items, earlier.items["item"], flag)
    if settings.retire_after and newest is None:
        raise UserError(f"--retire_after={settings.retire_after} counts days, and the log has no time stamps: leave it "
                        "out, or give --timestamp_column")
    before = earlier.last_click.max(initial=-1)
    if newest is not None and newest < before:
        shown = [times.shown(int(second), settings.utc_offset) for second in (newest, before)]
        raise DataError(f"{settings.input} ends at {shown[0]}, before {flag} does, at {shown[1]}: give the newer log, "
                        "correct its times, or leave --vocabulary_from out")


def retired(earlier: EarlierVocabulary, absent: np.ndarray, newest: Optional[int], settings: PrepareConfig
            ) -> np.ndarray:
    """[V] bool: which of the absent items nobody has clicked for more than --retire_after days before `newest`.

    An item whose last click is unknown is never retired.
    """
    if not settings.retire_after:
        return np.zeros_like(absent)
    known = earlier.last_click > 0
    return absent & known & (earlier.last_click < newest - settings.retire_after * DAY)


def with_kept(items: pl.DataFrame, earlier: EarlierVocabulary, kept: np.ndarray) -> pl.DataFrame:
    """The log's items, and behind them those that only the earlier vocabulary has, [V] bool `kept`: ids and titles."""
    wanted = [name for name in ("item", "title") if name in earlier.items.columns]
    return pl.concat([items, earlier.items.filter(pl.Series(kept)).select(wanted)], how="diagonal")


def with_features(items: pl.DataFrame, earlier: EarlierVocabulary, features: dict[str, bool], begin: int
                  ) -> pl.DataFrame:
    """Items whose features, from the row `begin` on, are the earlier ones where nothing newer is known.

    Raises:
      DataError: a feature is another than the one of this name was.
    """
    for name, several in features.items():
        column = f"f:{name}"
        if column not in earlier.items.columns:
            continue
        _check_feature(items[column], earlier, name, several)
        old = items.select("item").join(earlier.items.select("item", column), on="item", how="left",
                                        maintain_order="left")[column]
        if several and old.dtype == pl.String:
            old = old.reshape((-1, 1)).arr.to_list()
        items = items.with_columns(
            pl.when(pl.int_range(pl.len()) >= begin).then(pl.coalesce(column, old)).otherwise(pl.col(column)).alias(
                column))
    return items


def _check_feature(values: pl.Series, earlier: EarlierVocabulary, name: str, several: bool) -> None:
    flag = f"--vocabulary_from={earlier.data_dir}"
    if earlier.width(name) > 1 and not several:
        raise DataError(f"feature {name!r} has one value per item, and in {flag} up to {earlier.width(name)}: name it "
                        "in --multi_feature_columns, or leave --vocabulary_from out")
    now, before = (values.explode() if several else values).drop_nulls(), earlier.feature_values[name]
    if len(now) and before and not now.is_in(before).any():
        raise DataError(f"feature {name!r} has no value that it has in {flag}: now such as {now[0]!r}, there such as "
                        f"{before[0]!r}; is it another feature, or written otherwise? Correct it, or leave "
                        "--vocabulary_from out")


def numbered(earlier: EarlierVocabulary, items: pl.Series, retired_items: np.ndarray) -> np.ndarray:
    """[V]: index among the items [N] of the one that has each number, −1: the number is free."""
    places = earlier.items.select("item").join(pl.DataFrame({"item": items}).with_row_index("place"), on="item",
                                               how="left", maintain_order="left")["place"]
    return np.where(retired_items, -1, places.fill_null(-1).cast(pl.Int64).to_numpy())
