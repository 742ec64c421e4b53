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

from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.preparation import item_features
from clrec_tf.preparation.item_features import ItemTable
from clrec_tf.settings.data import PrepareConfig
from clrec_tf.tabular_files import delimiters
from clrec_tf.tabular_files import frames
from clrec_tf.tabular_files.frames import ROW
from clrec_tf.tabular_files import headers
from clrec_tf.tabular_files.table_parts import EXTRA
from clrec_tf.tabular_files import values

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
    check_edition(path, settings, "reviewerID", "user_id", "amazon2023")
    # A separator that no text has keeps each line whole.
    table = frames.open_table(path, ("line",), "\x01", quoted=False, reading=frames.reading_of(settings))
    field = lambda name: pl.col("line").str.json_path_match(f"$.{name}")  # null where the line is no JSON
    clicks = table.rows.filter(pl.col("line").is_not_null()).select(
        ROW, EXTRA, user=field("reviewerID"), item=field("asin"), timestamp=field("unixReviewTime"))
    products = _products_path(path)
    if products is None:
        logging.info("%s lies beside no meta_….json: products have no titles and no features", path)
    return dict(table=table, clicks=clicks, items=products and read_products(products, settings))


def check_edition(path: str, settings: PrepareConfig, own: str, other: str, instead: str) -> None:
    """`UserError` where the first review lacks the entry `own` and has the `other` one, of another format."""
    first = next(iter(headers.peek(path, settings.encoding, 1)), "")
    has = lambda name: f'"{name}"' in first or name in first.split(",")
    if not has(own) and has(other):
        raise UserError(f"{path} has reviews of another edition, with {other!r} and not {own!r}: give "
                        f"--format={instead}")


def open_2023(path: str, settings: PrepareConfig) -> dict:
    """`open_files` for reviews of 2023, JSON lines (or CSV) of user_id, parent_asin, asin and timestamp.

    An item is a parent_asin, to which the products' file belongs, or where a review has none its asin.
    """
    check_edition(path, settings, "user_id", "reviewerID", "amazon")
    table = frames.open_table(path, reading=frames.reading_of(settings))
    missing = [name for name in ("user_id", "timestamp") if name not in table.columns]
    wanted = (settings.item_column,) if settings.item_column.endswith("asin") else ("parent_asin", "asin")
    products = [name for name in wanted if name in table.columns]
    if missing or not products:
        raise UserError(f"{path} has no column {(missing or wanted)[0]!r}: --format=amazon2023 has user_id, "
                        f"parent_asin and timestamp, the file {', '.join(table.columns)}; give --format=columns and "
                        "name its columns")
    clicks = table.without_blank_lines().select(
        ROW, user="user_id", item=pl.coalesce(*(values.text(pl.col(name), pl.String(), settings.null_values)
                                                for name in products)), timestamp="timestamp")
    beside = _products_path(path, "jsonl")
    if beside is None:
        logging.info("%s lies beside no meta_….jsonl: products have no titles and no features", path)
    return dict(table=table, clicks=clicks, items=beside and _read_products_2023(beside, settings))


def _read_products_2023(path: str, settings: PrepareConfig) -> ItemTable:
    """Titles, and the features named by flags (default: main_category)."""
    table = frames.open_table(path, reading=frames.reading_of(settings))
    others = [name for name in table.columns if name not in ("parent_asin", "title")]
    if "parent_asin" not in table.columns:
        raise DataError(f"{path} has no entry 'parent_asin', but {', '.join(table.columns)}: move it away to do "
                        "without features")
    wanted = {name: several for name, several in item_features.declared(settings).items() if name in others}
    features = wanted or {name: False for name in ("main_category",) if name in others}
    title = "title" if "title" in table.columns else None
    separator = delimiters.of_values(settings)
    return item_features.from_table(table, "parent_asin", title, features, separator, settings, True)


def _products_path(path: str, ending: str = "json"):
    """meta_X.json[.gz] beside reviews_X_5.json[.gz] or X_5.json[.gz]; None where there is none."""
    folder, name = os.path.split(path)
    subject = re.sub(rf"^reviews_|(_\d+)?\.{ending}(\.(gz|zst|bz2|xz|zip))?$", "", name)
    paths = [os.path.join(folder, f"meta_{subject}.{ending}{packed}") for packed in ("", ".gz", ".zst", ".bz2", ".xz")]
    return next(filter(os.path.exists, paths), None)


def read_products(path: str, settings: PrepareConfig) -> ItemTable:
    """The products: title, and the features chosen. Of a product that stands twice the first line counts, as in HPMN.

    Raises:
      DataError: naming the line that is no product.
    """
    rows, seen, number = [], set(), 0
    with frames.readable(path), frames.open_text(path, settings.encoding) as file:
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
    frame = frame.with_columns(values.text(pl.col(name), pl.String(), settings.null_values).alias(name)
                               for name in FEATURES)
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
