"""Item files: titles, categorical features and dense vectors by original item id."""
import dataclasses
from typing import Optional, Sequence

from absl import logging
import polars as pl

from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.preparation import item_json
from clrec_tf.settings.data import PrepareConfig
from clrec_tf.tabular_files import delimiters
from clrec_tf.tabular_files import file_sets
from clrec_tf.tabular_files import frames
from clrec_tf.tabular_files.frames import ROW
from clrec_tf.tabular_files.frames import Table
from clrec_tf.tabular_files import headers
from clrec_tf.tabular_files import values

MOVIELENS_GENRES = ("unknown", "Action", "Adventure", "Animation", "Children's", "Comedy", "Crime", "Documentary",
                    "Drama", "Fantasy", "Film-Noir", "Horror", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller",
                    "War", "Western")


_FEW = 0.5  # share of a log's items under which a file of items is probably another's


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


def check_match(items: pl.Series, known: pl.Series, named: str, what: str = "items") -> None:
    """Warns where few items [V] of a log, or users, are among those `known` of a file, named for messages.

    Raises:
      DataError: none is.
    """
    share = items.is_in(known.implode()).mean() or 0.0
    ours, theirs = (", ".join(map(repr, series.head(3))) for series in (items, known))
    if not share and headers.stand_in_quotes(known.head(headers.SAMPLE).to_list()):
        raise DataError(f"{named} has ids in quotes, such as {theirs}: give --quote=double, or take the quotes away")
    if not share:
        raise DataError(f"{named} has none of the log's {len(items)} {what}: the log has ids such as {ours}, the file "
                        f"such as {theirs}; give the file of this log, its column of ids, or leave it out")
    if share < _FEW:
        missing = items.filter(~items.is_in(known.implode())).head(3)
        logging.warning("%s has %.0f %% of the log's %d %s; it lacks such as %s, and has such as %s", named,
                        100 * share, len(items), what, ", ".join(map(repr, missing)), theirs)


def _checked(path: str, frame: pl.DataFrame, features: dict[str, bool], columns) -> ItemTable:
    frame = frame.with_columns(values.whole_numbers(frame["item"], "item", path))
    if frame.is_empty():
        raise DataError(f"{path} holds no items: give the file of item features, or leave it out")
    if frame["item"].is_null().any():
        raise DataError(f"{path} has an item without an id: correct it (--null_values says which words mean that)")
    repeated = frame.filter(pl.col("item").is_duplicated())["item"]
    if len(repeated):
        raise DataError(f"{path} has the item id {repeated.min()} {(repeated == repeated.min()).sum()} times "
                        f"({repeated.n_unique()} ids are repeated): keep one row per item")
    return ItemTable(path, frame, features, tuple(columns))


def movielens_items(path: str, settings: PrepareConfig) -> ItemTable:
    """movies.dat (id::title::genres) or u.item (id|title|dates|url|19 flags)."""
    mark, rows = ("|" if path.endswith("u.item") else "::"), []
    with frames.readable(path), frames.open_text(path, settings.encoding) as file:
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


def open_recbole(path: str, settings: PrepareConfig) -> Table:
    """A RecBole atomic file or several, its columns without their types."""
    names = list(recbole_kinds(path))
    return frames.open_table(path, names, "\t", quoted=False, skip_header=True, reading=frames.reading_of(settings))


def recbole_kinds(path: str) -> dict[str, str]:
    """Column -> type, as the header line has them."""
    header = frames.first_line(file_sets.find(path)[0].path)
    return dict(field.strip().partition(":")[::2] for field in header.split("\t"))


def recbole_items(path: str, settings: PrepareConfig) -> ItemTable:
    """A RecBole .item file: by default every `token` is a feature, every `token_seq` a several-valued one."""
    table, kinds = open_recbole(path, settings), recbole_kinds(path)
    if settings.item_column not in kinds:
        raise UserError(f"{path} has no column {settings.item_column!r}: give --item_column as one of "
                        f"{', '.join(kinds)}")
    title = next((name for name in kinds if name == settings.title_column or name.endswith("title")), None)
    features = {name: several for name, several in declared(settings).items() if name in kinds} or {
        name: kind == "token_seq" for name, kind in kinds.items()
        if kind in ("token", "token_seq") and name not in (settings.item_column, title)}
    if not features and not any(kinds.values()):
        logging.warning("%s declares no types in its header (item_id:token): no feature is taken; name them by "
                        "--feature_columns and --multi_feature_columns", path)
    for name in settings.feature_columns:
        if kinds.get(name) == "token_seq":
            raise UserError(f"--feature_columns={','.join(settings.feature_columns)}: {path} declares {name} as "
                            "token_seq, several values: name it in --multi_feature_columns")
    return from_table(table, settings.item_column, title, features, " ", settings)


def from_table(table: Table, item: str, title: Optional[str], features: dict[str, bool], separator: str,
               settings: PrepareConfig, first_counts: bool = False) -> ItemTable:
    """Items of a table.

    Args:
      table: a row per item.
      item, title: columns; title may be None.
      features: column -> whether it has several values.
      separator: inside of these.
      settings: words for what is missing.
      first_counts: whether an item may stand twice, of which the first row counts.

    Raises:
      DataError: the file is damaged, or ids are missing or repeated.
    """
    dtypes, nulls = table.rows.collect_schema(), settings.null_values
    for name in filter(None, (item, title, *features)):
        if isinstance(dtypes[name], pl.Struct) or dtypes[name].is_nested() and name not in features:
            raise UserError(f"{table.path}: column {name!r} holds {dtypes[name]}: name a column of single values")
    columns = [values.text(pl.col(name), dtypes[name], nulls).alias(canonical)
               for canonical, name in (("item", item), ("title", title)) if name]
    rows = table.without_blank_lines()
    table.check_fields()
    with frames.readable(table.path):
        frame = rows.select(ROW, *columns, *(pl.col(name).alias(f"f:{name}") for name in features)).collect()
        values.check_exact(rows.select(item), item, table.path)
    nameless = frame.filter(pl.col("item").is_null())[ROW]
    if len(nameless):
        raise DataError(f"{table.path}, {table.where(nameless[0])}: an item without an id: correct it (--null_values "
                        "says which words mean that)")
    frame = frame.drop(ROW)
    frame = frame.unique("item", keep="first", maintain_order=True) if first_counts else frame
    for name, several in features.items():
        where = f"{table.path}: column {name!r}"
        frame = frame.with_columns(feature(frame[f"f:{name}"], several, separator, nulls, where))
    return _checked(table.path, frame, features, (name for name in table.columns if name not in (item, title)))


def feature(column: pl.Series, several: bool, separator: str, nulls: Sequence[str], where: str) -> pl.Series:
    """A feature's values as strings, or lists of strings: `values.single`, `values.several`."""
    return values.several(column, separator, nulls, where) if several else values.single(column, nulls, where)


def read_item_file(settings: PrepareConfig, flag: str = "item_features") -> ItemTable:
    """--item_features: TSV, CSV, JSON lines, Parquet or JSON.

    Args:
      settings: which file, and what is wanted of it.
      flag: that names the file in messages.

    Raises:
      UserError, DataError: file missing or damaged, ids missing, repeated or in no evident column.
    """
    path, wanted = settings.item_features, declared(settings)
    separator = delimiters.of_values(settings)
    if item_json.is_object(path):
        return _checked(path, *item_json.read(path, wanted, separator, settings))
    # --delimiter and --columns belong to --input.
    table = frames.open_table(path, reading=dataclasses.replace(frames.reading_of(settings), beside=True))
    item = headers.item_id_column(table.columns, settings.item_features_id, settings.item_column, path, flag)
    others = [name for name in table.columns if name != item]
    features = {name: several for name, several in wanted.items() if name in others}
    title = settings.title_column if settings.title_column and settings.title_column in others else None
    unused = [name for name in others if name not in features and name != title]
    if unused:
        logging.info("%s: columns not used: %s (%s)", path, ", ".join(unused), "--feature_columns, "
                     "--multi_feature_columns" if flag == "item_features" else "--attributes")
    return from_table(table, item, title, features, separator, settings)
