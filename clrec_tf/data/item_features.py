"""Item files: titles, categorical features and dense vectors by original item id."""
import dataclasses

from absl import logging
import numpy as np
import polars as pl

from clrec_tf import json_files
from clrec_tf.config import PrepareConfig
from clrec_tf.data import tables
from clrec_tf.data.tables import Table
from clrec_tf.errors import DataError
from clrec_tf.errors import UserError

MOVIELENS_GENRES = ("unknown", "Action", "Adventure", "Animation", "Children's", "Comedy", "Crime", "Documentary",
                    "Drama", "Fantasy", "Film-Noir", "Horror", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller",
                    "War", "Western")


@dataclasses.dataclass(frozen=True)
class ItemTable:
    """Items of one file.

    Attributes:
      path: the file.
      frame: `item` (original id, string, unique), optional `title`, and f:<feature>: a string, or a list of strings.
      features: name -> whether it has several values.
      columns: of the file, that could be features.
    """
    path: str
    frame: pl.DataFrame
    features: dict[str, bool]
    columns: tuple[str, ...]


def declared(settings: PrepareConfig) -> dict[str, bool]:
    """Features named by flags -> whether they have several values."""
    repeated = set(settings.feature_columns) & set(settings.multi_feature_columns)
    if repeated:
        raise UserError(f"--feature_columns and --multi_feature_columns both name {sorted(repeated)[0]}: choose one")
    return {**dict.fromkeys(settings.feature_columns, False), **dict.fromkeys(settings.multi_feature_columns, True)}


def values(column: pl.Expr, dtype: pl.DataType, several: bool, separator: str) -> pl.Expr:
    """A feature's column as a string, or as a list of strings without empty ones."""
    if not several:
        return column.cast(pl.String)
    whole = isinstance(dtype, pl.List)
    parts = column.cast(pl.List(pl.String)) if whole else column.cast(pl.String).str.split(separator)
    return parts.list.eval(pl.element().filter(pl.element().is_not_null() & (pl.element() != "")))


def _checked(path: str, frame: pl.DataFrame, features: dict[str, bool], columns) -> ItemTable:
    if frame["item"].is_null().any() or (frame["item"] == "").any():
        raise DataError(f"{path} has an item without an id: correct it")
    repeated = frame.filter(pl.col("item").is_duplicated())["item"]
    if len(repeated):
        raise DataError(f"{path} has the item id {repeated.min()} {(repeated == repeated.min()).sum()} times "
                        f"({repeated.n_unique()} ids are repeated): keep one row per item")
    return ItemTable(path, frame, features, tuple(columns))


def movielens_items(path: str) -> ItemTable:
    """movies.dat (id::title::genres) or u.item (id|title|dates|url|19 flags), Latin-1 as GroupLens writes them."""
    mark, rows = ("|" if path.endswith("u.item") else "::"), []
    with tables.readable(path), tables.open_text(path, "latin-1") as file:
        for number, line in enumerate(file, 1):
            fields = line.rstrip("\r\n").split(mark)
            if mark == "::" and len(fields) == 3:
                rows.append((fields[0], fields[1], [genre for genre in fields[2].split("|") if genre]))
            elif mark == "|" and len(fields) == 5 + len(MOVIELENS_GENRES):
                rows.append((fields[0], fields[1], [g for g, on in zip(MOVIELENS_GENRES, fields[5:]) if on == "1"]))
            elif line.strip():
                raise DataError(f"{path}, line {number}: {line.strip()[:100]!r} has {len(fields)} fields: correct it")
    types = {"item": pl.String, "title": pl.String, "f:genres": pl.List(pl.String)}
    return _checked(path, pl.DataFrame(rows, types, orient="row"), {"genres": True}, ("genres",))


def open_recbole(path: str) -> Table:
    """A RecBole atomic file, its columns without their types."""
    names = [field.split(":")[0] for field in tables.first_line(path).split("\t")]
    return tables.open_table(path, names, "\t", quoted=False, skip_header=True)


def recbole_items(path: str, settings: PrepareConfig) -> ItemTable:
    """A RecBole .item file: by default every `token` is a feature, every `token_seq` a several-valued one."""
    table = open_recbole(path)
    kinds = dict(field.partition(":")[::2] for field in tables.first_line(path).split("\t"))
    if settings.item_column not in kinds:
        raise UserError(f"{path} has no column {settings.item_column!r}: give --item_column as one of "
                        f"{', '.join(kinds)}")
    title = next((name for name in kinds if name == settings.title_column or name.endswith("title")), None)
    features = {name: several for name, several in declared(settings).items() if name in kinds} or {
        name: kind == "token_seq" for name, kind in kinds.items()
        if kind in ("token", "token_seq") and name not in (settings.item_column, title)}
    for name in settings.feature_columns:
        if kinds.get(name) == "token_seq":
            raise UserError(f"--feature_columns={','.join(settings.feature_columns)}: {path} declares {name} as "
                            "token_seq, several values: name it in --multi_feature_columns")
    return _from_table(table, settings.item_column, title, features, " ")


def _from_table(table: Table, item: str, title, features: dict[str, bool], separator: str) -> ItemTable:
    dtypes = table.rows.collect_schema()
    columns = [pl.col(item).cast(pl.String).alias("item")]
    columns += [pl.col(title).cast(pl.String).alias("title")] if title else []
    columns += [values(pl.col(name), dtypes[name], several, separator).alias(f"f:{name}")
                for name, several in features.items()]
    present = pl.any_horizontal(pl.col(name).is_not_null() for name in table.columns)  # no blank lines
    with tables.readable(table.path):
        frame = table.rows.filter(present).select(columns).collect()
        surplus = table.rows.filter(pl.col(tables.EXTRA).is_not_null()).head(1).collect() if table.first_line else []
    if len(surplus):
        raise DataError(f"{table.path}, {table.where(surplus[tables.ROW][0])} has more than its {len(table.columns)} "
                        "fields: correct it")
    return _checked(table.path, frame, features, (name for name in table.columns if name not in (item, title)))


def read_item_file(settings: PrepareConfig) -> ItemTable:
    """--item_features: TSV, CSV, Parquet or JSON (also .gz).

    Raises:
      UserError, DataError: file missing or damaged, ids missing or repeated.
    """
    path, wanted = settings.item_features, declared(settings)
    if tables.stem_extension(path) == "json":
        return _json_items(path, wanted, settings)
    # --delimiter belongs to --input.
    table = tables.open_table(path)
    item, *others = table.columns if settings.item_column not in table.columns else (
        settings.item_column, *(name for name in table.columns if name != settings.item_column))
    features = {name: several for name, several in wanted.items() if name in others}
    title = settings.title_column if settings.title_column in others else None
    unused = [name for name in others if name not in features and name != title]
    if unused:
        logging.info("%s: columns not used: %s (--feature_columns, --multi_feature_columns)", path, ", ".join(unused))
    return _from_table(table, item, title, features, settings.multi_separator)


def _json_items(path: str, wanted: dict[str, bool], settings: PrepareConfig) -> ItemTable:
    try:
        with tables.readable(path), tables.open_text(path) as file:
            # Pairs, since a dict would swallow an id that stands twice.
            pairs = json_files.parse(file.read(), object_pairs_hook=list)
    except ValueError as error:
        raise DataError(f"{path} is not JSON ({error}): restore or correct the file") from error
    if not (isinstance(pairs, list) and pairs and all(isinstance(pair, tuple) for pair in pairs)):
        raise DataError(f"{path} is not an object of item ids: give {{id: {{feature: value}}}} or {{id: [values]}}")
    # {id: [values]} holds one feature without a name; {id: {feature: value}} arrives as pairs.
    only = (list(settings.multi_feature_columns) or ["attributes"])[0]
    items = [(item, dict(row) if row and isinstance(row[0], tuple) else {only: row} if row else {})
             for item, row in pairs]
    found = {}
    for _, row in items:
        for name, value in row.items():
            found[name] = found.get(name, False) or isinstance(value, list)
    features = {name: several for name, several in wanted.items() if name in found} or {
        name: several for name, several in found.items() if name != settings.title_column}
    columns = {"item": pl.Series([item for item, _ in items], dtype=pl.String)}
    if settings.title_column in found:
        columns["title"] = pl.Series([row.get(settings.title_column) for _, row in items], dtype=pl.String)
    for name, several in features.items():
        texts = [_texts(row.get(name), settings.multi_separator if several else None) for _, row in items]
        columns[f"f:{name}"] = pl.Series(texts, dtype=pl.List(pl.String)) if several else pl.Series(
            [text[0] if text else None for text in texts], dtype=pl.String)
    return _checked(path, pl.DataFrame(columns), features, (name for name in found if name != settings.title_column))


def _texts(value, separator) -> list[str]:
    parts = value if isinstance(value, list) else str(value).split(separator) if separator and value else [value]
    return [str(part) for part in parts if part is not None and str(part) != ""]


def read_dense(path: str) -> tuple[list[str], np.ndarray]:
    """--dense_features -> original ids [N] and float32 vectors [N, width]."""
    try:
        with tables.readable(path):
            if path.endswith(".npz"):
                with np.load(path, allow_pickle=False) as arrays:
                    ids, vectors = [str(item) for item in arrays["ids"].tolist()], arrays["vectors"]
            else:
                frame = pl.read_parquet(path, columns=["item_id", "vector"])
                ids, vectors = frame["item_id"].cast(pl.String).to_list(), np.array(frame["vector"].to_list())
        vectors = np.asarray(vectors, np.float32)
    except (KeyError, ValueError) as error:
        if isinstance(error, UserError):
            raise
        raise DataError(f"--dense_features={path}: {error}; give .npz with `ids` and `vectors`, or Parquet with "
                        "`item_id` and `vector`, each vector as wide as the others") from error
    if vectors.ndim != 2 or len(vectors) != len(ids) or vectors.shape[1] == 0:
        raise DataError(f"--dense_features={path}: {len(ids)} ids but vectors of shape {vectors.shape}: give one row "
                        "per id")
    if not np.isfinite(vectors).all():
        raise DataError(f"--dense_features={path} has NaN or infinite values: remove them")
    if len(set(ids)) != len(ids):
        raise DataError(f"--dense_features={path} has an item id twice: keep one row per item")
    return ids, vectors
