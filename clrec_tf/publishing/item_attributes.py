"""The attributes of items that a bundle carries: features of the data set, or columns of a file of items."""
from typing import Optional

from absl import logging
import numpy as np
import polars as pl

from clrec_tf.data.catalogue import Catalogue
from clrec_tf.data.features import feature_columns
from clrec_tf.data.schema import Schema
from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.preparation import item_features
from clrec_tf.retrieval.attributes import NUMBER
from clrec_tf.retrieval.attributes import TEXTS
from clrec_tf.settings.data import PrepareConfig
from clrec_tf.settings.serving import ExportConfig
from clrec_tf.system.finite import EXACT

_LIST = ":list"
_DIGITS = r"^-?[0-9]+$"


def attributes_of(config: ExportConfig, schema: Schema, catalogue: Catalogue, feature_values: dict[str, list[str]]
                  ) -> Optional[pl.DataFrame]:
    """A row for each item of the catalogue, a column for each of --attributes, as `Attributes` takes them.

    An attribute with one value per item, all of which are finite numbers, is a number, any other a category; and so are
    whole numbers of which floats would make one of several.

    Args:
      config: `attributes`, and `attribute_items`, a file of items that has them as columns; else they are features of
        the data set, whose values in hash buckets are not known.
      schema, catalogue: of the data set.
      feature_values: feature -> its values by number from 1.

    Raises:
      UserError, DataError: an attribute or the file is missing, or the file is damaged or of other items.
    """
    if not config.attributes:
        if config.attribute_items:
            raise UserError(f"--attribute_items={config.attribute_items} needs --attributes, its columns that bundles "
                            "are to carry")
        return None
    names = [name.removesuffix(_LIST) for name in config.attributes]
    if len(set(names)) < len(names):
        raise UserError(f"--attributes={','.join(config.attributes)} names one twice: leave it out")
    if config.attribute_items:
        return _typed(_of_file(config, names, schema, catalogue))
    return _typed(_of_features(names, schema, catalogue, feature_values))


def _of_features(names, schema, catalogue, feature_values) -> pl.DataFrame:
    """Columns of text, or of lists of texts, by the values of features."""
    features, columns = {feature.name: feature for feature in schema.features}, feature_columns(schema.features)
    texts = {}
    for name in names:
        if name not in features:
            raise UserError(f"--attributes: {name} is no feature of the data set, whose features are "
                            f"{', '.join(features) or 'none'}: correct it, or give --attribute_items, a file of items "
                            "with such a column")
        if name not in feature_values:
            raise DataError(f"--attributes: the values of {name} have no names in this data set: prepare it again, or "
                            "give --attribute_items")
        known = feature_values[name]
        # Number 0 is missing; beyond the vocabulary are hash buckets, whose values nobody knows.
        by_number = np.array([None, *known, *[None] * (features[name].rows - 1 - len(known))], object)
        values = by_number[catalogue.item_rows[:, columns[name]]]
        texts[name] = pl.Series(values[:, 0].tolist(), dtype=pl.String) if features[name].width == 1 else pl.Series(
            [[text for text in row if text is not None] for row in values], dtype=TEXTS)
    return pl.DataFrame(texts)


def _of_file(config, names, schema, catalogue) -> pl.DataFrame:
    """The same, of a file of items as prepare reads it: the column of ids is called as prepare was told."""
    called = schema.settings.get("item_features_id") or schema.settings.get("item_column", PrepareConfig.item_column)
    several = tuple(name.removesuffix(_LIST) for name in config.attributes if name.endswith(_LIST))
    table = item_features.read_item_file(PrepareConfig(
        item_features=config.attribute_items, item_column=called, multi_feature_columns=several, title_column="",
        feature_columns=tuple(name for name in names if name not in several)), "attribute_items")
    missing = [name for name in names if f"f:{name}" not in table.frame.columns]
    if missing:
        raise UserError(f"--attribute_items={config.attribute_items} has no column {missing[0]!r} of --attributes: its "
                        f"columns are {', '.join(table.columns)}")
    items = pl.Series("item", [str(item) for item in catalogue.original_ids.tolist()], dtype=pl.String)
    item_features.check_match(items, table.frame["item"], f"--attribute_items={config.attribute_items}")
    rows = items.to_frame().join(table.frame, on="item", how="left", maintain_order="left")
    return rows.select(pl.col(f"f:{name}").alias(name) for name in names)


def _typed(frame: pl.DataFrame) -> pl.DataFrame:
    """Numbers where all values are numbers, else lists of texts."""
    columns = []
    for column in frame:
        if column.dtype == pl.String:
            numbers = column.cast(NUMBER, strict=False)
            finite = numbers.is_finite().fill_null(False)
            inexact = column.str.contains(_DIGITS) & (numbers.abs() >= EXACT)
            if column.drop_nulls().len() and (finite | column.is_null()).all() and not inexact.any():
                columns.append(numbers)
                continue
            if finite.any():
                other = column.filter(~finite | inexact).drop_nulls()[0]
                logging.info("--attributes: %s is a category, since %r is no number%s", column.name, other,
                             " that a float tells from its neighbours" if inexact.any() else "")
            column = pl.DataFrame(column).select(pl.when(pl.first().is_null()).then(pl.lit([], TEXTS)).otherwise(
                pl.concat_list(pl.first())).alias(column.name)).to_series()
        columns.append(column.fill_null([]))
    return pl.DataFrame(columns)
