"""Amazon review files as they are published (McAuley et al. 2015): a review is a click on what it reviews.

reviews_X_5.json[.gz]   one JSON object a line: reviewerID, asin, unixReviewTime (seconds, of whole days) and others
meta_X.json[.gz]        beside it, one product a line: asin, categories (paths from coarse to fine), brand, title and
                        others; a Python literal, in later editions JSON with one path, `category`
"""
import ast
import json
import os
import re

from absl import logging
import polars as pl

from clrec_tf.config import PrepareConfig
from clrec_tf.data import item_features
from clrec_tf.data import tables
from clrec_tf.data.item_features import ItemTable
from clrec_tf.data.tables import EXTRA
from clrec_tf.data.tables import ROW
from clrec_tf.errors import DataError

FEATURES = ("category", "brand")
MAX_LINE = 2**20  # characters of one product; descriptions have some ten thousand


def open_files(path: str, settings: PrepareConfig) -> dict:
    """What `logs.Source` holds: the reviews as a lazy frame, and the products if their file lies beside them.

    Args:
      path: of the reviews.
      settings: --feature_columns choose among `FEATURES` (default: category).

    Raises:
      DataError: a file is damaged.
    """
    # A separator that no text has keeps each line whole.
    table = tables.open_table(path, ("line",), "\x01", quoted=False)
    field = lambda name: pl.col("line").str.json_path_match(f"$.{name}")  # null where the line is no JSON
    clicks = table.rows.filter(pl.col("line").is_not_null()).select(
        ROW, EXTRA, user=field("reviewerID"), item=field("asin"), timestamp=field("unixReviewTime"))
    products = _products_path(path)
    if products is None:
        logging.info("%s lies beside no meta_….json: products have no titles and no features", path)
    return dict(table=table, clicks=clicks, items=products and read_products(products, settings))


def _products_path(path: str):
    """meta_X.json[.gz] beside reviews_X_5.json[.gz] or X_5.json[.gz]; None where there is none."""
    folder, name = os.path.split(path)
    subject = re.sub(r"^reviews_|(_\d+)?\.json(\.gz)?$", "", name)
    paths = [os.path.join(folder, f"meta_{subject}.json{ending}") for ending in ("", ".gz")]
    return next(filter(os.path.exists, paths), None)


def read_products(path: str, settings: PrepareConfig) -> ItemTable:
    """The products: title, and the features chosen. Of a product that stands twice the first line counts, as in HPMN.

    Raises:
      DataError: naming the line that is no product.
    """
    rows, seen, number = [], set(), 0
    with tables.readable(path), tables.open_text(path) as file:
        while line := file.readline(MAX_LINE):
            number += 1
            if line.strip():
                row = _product(line, f"{path}, line {number}")
                if row[0] not in seen:
                    seen.add(row[0])
                    rows.append(row)
    if not rows:
        raise DataError(f"{path} holds no product: restore it, or move it away to do without features")
    frame = pl.DataFrame(rows, {name: pl.String for name in ("item", "title", *FEATURES)}, orient="row")
    features = {name: False for name in item_features.declared(settings) if name in FEATURES} or {"category": False}
    return ItemTable(path, frame.select("item", "title", *(pl.col(name).alias(f"f:{name}") for name in features)),
                     features, FEATURES)


def _product(line: str, where: str) -> tuple:
    """(item, title, category, brand) of one line; None for what it lacks."""
    try:
        try:
            product = json.loads(line)
        except ValueError:
            product = ast.literal_eval(line.strip())
        paths = product.get("categories") or [product.get("category") or [None]]
        row = (product["asin"], product.get("title"), paths[-1][-1], product.get("brand"))
    except (ValueError, SyntaxError, LookupError, TypeError, AttributeError, RecursionError, MemoryError) as error:
        cut = f"; it is longer than {MAX_LINE:,} characters" if len(line) >= MAX_LINE else ""
        raise DataError(f"{where}: {line.strip()[:100]!r} is no product with an asin "
                        f"({type(error).__name__}: {str(error)[:100]}{cut}): correct or delete it") from error
    if not (isinstance(row[0], str) and row[0]) or not all(isinstance(value, (str, type(None))) for value in row):
        raise DataError(f"{where}: asin {row[0]!r}, title, category and brand must be texts: correct or delete it")
    return tuple(value or None for value in row)
