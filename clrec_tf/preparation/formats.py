"""Formats of logs with columns: where each keeps user, item, time stamp and features."""
import os

from absl import logging
import polars as pl

from clrec_tf.errors import UserError
from clrec_tf.preparation import amazon
from clrec_tf.preparation import item_features
from clrec_tf.preparation import log_source
from clrec_tf.preparation.log_source import Source
from clrec_tf.preparation import query_features
from clrec_tf.preparation import sequences
from clrec_tf.settings.data import PrepareConfig
from clrec_tf.tabular_files import delimiters
from clrec_tf.tabular_files import frames
from clrec_tf.tabular_files.frames import Table
from clrec_tf.tabular_files import headers
from clrec_tf.tabular_files import list_texts

_OPTIONAL = ("timestamp", "event", "dwell", "order")


def open_taobao(settings: PrepareConfig) -> Source:
    """UserBehavior.csv."""
    names = ("user", "item", "category", "behavior", "timestamp")
    log_source.refuse_names(settings, user="user", item="item", timestamp="timestamp", event="behavior")
    table = log_source.open_fixed(settings.input, names, delimiters.plain(settings.delimiter) or ",", settings)
    columns = {"user": "user", "item": "item", "timestamp": "timestamp", "event": "behavior", "f:category": "category"}
    return Source(table, log_source.select(table, **columns), {"category": False}, ("category",))


def open_movielens(settings: PrepareConfig) -> Source:
    """ratings.dat or u.data, with movies.dat or u.item beside it."""
    names = ("user", "item", "rating", "timestamp")
    log_source.refuse_names(settings, user="user", item="item", timestamp="timestamp")
    path = log_source.find_file(settings, ("ratings.dat", "u.data", "ratings.dat.gz", "u.data.gz"), ("ratings.csv",))
    folder = os.path.dirname(path)
    old = os.path.basename(path).startswith("u.data")
    delimiter = delimiters.plain(settings.delimiter) or ("\t" if old else "::")
    table = log_source.open_fixed(path, names, delimiter, settings, quoted=False)
    movies = os.path.join(folder, "u.item" if old else "movies.dat")
    items = item_features.movielens_items(movies, settings) if os.path.exists(movies) else None
    if items is None:
        logging.info("%s does not exist: movies have no titles and no genres", movies)
    return Source(table, log_source.select(table, user="user", item="item", timestamp="timestamp"), items=items)


def open_amazon(settings: PrepareConfig) -> Source:
    """Reviews of 2014 and 2018, and their products."""
    log_source.refuse_names(settings, user="reviewerID", item="asin", timestamp="unixReviewTime")
    return Source(**amazon.open_files(log_source.find_file(settings, ("_5.json", "_5.json.gz")), settings))


def open_amazon2023(settings: PrepareConfig) -> Source:
    """Reviews of 2023, and their products."""
    log_source.refuse_names(settings, user="user_id", item="parent_asin asin", timestamp="timestamp")
    return Source(**amazon.open_2023(log_source.find_file(settings, (".jsonl", ".jsonl.gz")), settings))


def open_recbole(settings: PrepareConfig) -> Source:
    """X.inter, with X.item beside it."""
    path = log_source.find_file(settings, (".inter", ".inter.gz"))
    table = item_features.open_recbole(path, settings)
    wanted = {"user": settings.user_column, "item": settings.item_column} | _optional(settings)
    log_source.require_columns(table, {f"{key}_column": name for key, name in wanted.items()}, settings)
    name = os.path.basename(path)
    begin, ending, rest = name.rpartition(".inter")
    items_path = os.path.join(os.path.dirname(path), f"{begin}.item{rest}") if ending else ""
    items = item_features.recbole_items(items_path, settings) if os.path.exists(items_path) else None
    return Source(table, log_source.select(table, **wanted), items=items)


def open_columns(settings: PrepareConfig) -> Source:
    """Any table whose columns the flags name; one row per user with lists of items is recognised by Parquet's types."""
    table = open_named(settings)
    wanted = {"user": settings.user_column, "item": settings.item_column} | _optional(settings)
    log_source.require_columns(table, {f"{key}_column": name for key, name in wanted.items()}, settings)
    if settings.title_column and settings.title_column in table.columns:
        wanted |= {"title": settings.title_column}
    others = tuple(name for name in table.columns if name not in wanted.values())
    features = {name: several for name, several in item_features.declared(settings).items() if name in table.columns}
    header = _checked_header(table, settings)
    wanted |= {f"f:{name}": name for name in features} | _context(table, settings)
    clicks = log_source.select(table, **wanted)
    if isinstance(clicks.collect_schema()["item"], (pl.List, pl.Array)):
        logging.info("%s: column %r holds lists of items, one row per user (--format=lists)", table.path,
                     settings.item_column)
        return Source(table, sequences.exploded(clicks, table, "|"), features, others)
    return Source(table, clicks, features, others, header=header)


def open_lists(settings: PrepareConfig) -> Source:
    """One row per user, or per basket, with lists of items and, if there are times, a list of them or one for all."""
    table = open_named(settings)
    wanted = {"user": settings.user_column, "item": settings.item_column} | _optional(settings)
    log_source.require_columns(table, {f"{key}_column": name for key, name in wanted.items()}, settings)
    clicks = log_source.select(table, **wanted)
    separator = delimiters.of_values(settings)
    return Source(table, sequences.exploded(clicks, table, separator))


def open_named(settings: PrepareConfig) -> Table:
    """--input with its own header, or the names of --columns.

    Raises:
      UserError: --columns does not fit to the file.
    """
    names = settings.columns
    table = frames.open_table(settings.input, names or None, settings.delimiter, reading=frames.reading_of(settings))
    if not names:
        return table
    flag = f"--columns={','.join(names)}"
    if not table.first_line:
        raise UserError(f"{flag}: {table.path} has names of its own: {', '.join(table.columns)}; leave --columns out")
    first = headers.peek(settings.input, settings.encoding)[:1]
    fields = [field.strip().strip('"') for field in first[0].split(table.delimiter)] if first else []
    if fields == list(names):
        raise UserError(f"{flag}: the first line of {table.path} has these names already; leave --columns out")
    ids = (settings.user_column, settings.item_column)
    if set(ids) <= set(names) and len(fields) == len(names) and headers.stands_above(
            [[fields[names.index(name)] for name in ids]]):
        raise UserError(f"{flag}: the first line of {table.path}, {first[0][:100]!r}, looks like a header: leave "
                        "--columns out and name the columns by their flags, or delete the line")
    if '"' not in "".join(first) and fields and len(fields) != len(names):
        raise UserError(f"{flag} has {len(names)} names, and the first line of {table.path}, {first[0][:100]!r}, has "
                        f"{len(fields)} fields, cut at {table.delimiter!r}: name every column, or give --delimiter")
    return table


def _checked_header(table: Table, settings: PrepareConfig) -> tuple[str, ...]:
    """User and item of a header line, which must not look like a row; nor ids like lists, records or quoted text."""
    wanted = {f"{key}_column": name for key, name in {
        "user": settings.user_column, "item": settings.item_column, **_optional(settings)}.items()}
    if not table.first_line:
        return ()
    with frames.readable(table.path):
        head = table.rows.select(set(wanted.values())).head(headers.SAMPLE).collect()
    items = head[settings.item_column].drop_nulls()
    lists = [text for text in items if list_texts.parsed_list(text.strip()) is not None]
    ids = items.to_list()
    if not lists and sequences.inner_delimiter(table, settings.user_column, settings.item_column):
        lists = ids
    if lists and len(lists) == len(items):
        raise UserError(f"{table.path}: column {settings.item_column!r} holds lists of items, such as "
                        f"{lists[0][:80]!r}: give --format=lists (and --multi_separator)")
    _check_ids(table, settings, head)
    if table.first_line == 1:
        return (settings.user_column, settings.item_column) if settings.columns else ()
    headers.doubt(table.columns, list(wanted.values()), head.to_dicts(), table.path)
    return settings.user_column, settings.item_column


def _check_ids(table: Table, settings: PrepareConfig, head: pl.DataFrame) -> None:
    """`UserError` where all of the first ids are records or formulas, or stand in quotes."""
    for name in (settings.user_column, settings.item_column):
        ids = [text.strip() for text in head[name].drop_nulls()]
        if ids and all(map(list_texts.is_nested, ids)):
            inner = [column for column in table.columns if column.startswith(f"{name}.")]
            raise UserError(f"{table.path}: column {name!r} holds records such as {ids[0][:80]!r}: name a column of "
                            f"single values{f', such as {inner[0]}' if inner else ''}")
        if ids and all(text.startswith('="') and text.endswith('"') for text in ids):
            raise UserError(f"{table.path}: column {name!r} holds formulas of a spreadsheet, such as {ids[0][:80]}: "
                            "write the values alone")
        if quoted := headers.stand_in_quotes(ids):
            read = settings.quote == "double" or settings.quote == "auto" and table.delimiter not in ("\t", " ")
            space = f" and, for the space before the quotes, --delimiter='{table.delimiter} '" if read else ""
            raise UserError(f"{table.path}: column {name!r} holds ids in quotes, such as {quoted[:80]}: give "
                            f"--quote=double{space}")


def _context(table: Table, settings: PrepareConfig) -> dict[str, str]:
    """c:<name> -> column, of --context_columns; `UserError` where the file lacks one."""
    names = list(query_features.declared(settings.context_columns, "context_columns"))
    absent = [name for name in names if name not in table.columns]
    if absent:
        raise UserError(f"--context_columns={','.join(settings.context_columns)}: {table.path} has no column "
                        f"{absent[0]!r}: choose from {', '.join(map(repr, table.columns))}"
                        f"{'' if ':' not in absent[0] else '; kinds are :list and :number, and a category has none'}")
    if settings.item_column in names:
        raise UserError(f"--context_columns={','.join(settings.context_columns)}: {settings.item_column} is the item "
                        "that is clicked, which no request has: leave it out")
    return {f"c:{name}": name for name in names}


def _optional(settings: PrepareConfig) -> dict[str, str]:
    """Key -> the file's column, of those whose flag is set."""
    return {key: getattr(settings, f"{key}_column") for key in _OPTIONAL if getattr(settings, f"{key}_column")}


FORMATS = dict(taobao=open_taobao, movielens=open_movielens, amazon=open_amazon, amazon2023=open_amazon2023,
               sequence=sequences.open_sequence, sequence_per_user=sequences.open_per_user, recbole=open_recbole,
               columns=open_columns, lists=open_lists)
