"""--user_features: a file of users' profiles, joined by user id."""
import dataclasses
import re

from absl import logging
import numpy as np
import polars as pl

from clrec_tf.data.query_features import CATEGORY
from clrec_tf.data.query_features import LIST
from clrec_tf.data.query_features import NUMBER
from clrec_tf.data.query_features import USER
from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.preparation import item_features
from clrec_tf.preparation import query_features
from clrec_tf.preparation.query_features import Column
from clrec_tf.settings.data import PrepareConfig
from clrec_tf.tabular_files import frames
from clrec_tf.tabular_files.frames import Table
from clrec_tf.tabular_files import headers
from clrec_tf.tabular_files.json_tables import LINE
from clrec_tf.tabular_files import values

_RECBOLE = dict(token=CATEGORY, token_seq=LIST, float=NUMBER)  # type in the header of a .user file -> kind


def read(users: pl.Series, settings: PrepareConfig) -> list[Column]:
    """Profiles of a log's users.

    Args:
      users: original ids by number.
      settings: --user_features and how to read it; without it nothing is read.

    Raises:
      UserError, DataError: the file lacks a column, has a user twice, or has none of the log's users.
    """
    if not settings.user_features:
        for flag in ("user_feature_columns", "user_features_id"):
            if getattr(settings, flag):
                raise UserError(f"--{flag} is read with --user_features, which is not given: give the file of users")
        return []
    table, kinds = _opened(settings)
    path, named = table.path, _id_column(table, settings)
    wanted = query_features.declared(settings.user_feature_columns, "user_feature_columns")
    outer = {name.partition(".")[0] for name in table.columns if "." in name and LINE in table.rows.collect_schema()}
    wanted = wanted or {
        name: kinds.get(name, CATEGORY) for name in table.columns if name != named and name not in outer}
    absent = [name for name in wanted if name not in table.columns or name == named]
    if absent:
        raise UserError(f"--user_feature_columns={','.join(settings.user_feature_columns)}: {path} has no feature "
                        f"{absent[0]!r}: choose from {', '.join(name for name in table.columns if name != named)}"
                        f"{'' if ':' not in absent[0] else '; kinds are :list and :number, and a category has none'}")
    table.check_fields()
    with frames.readable(path):
        frame = table.without_blank_lines().select(named, *wanted).collect()
    values.check_exact(frame.lazy().select(named), named, path)
    ids = values.whole_numbers(values.texts(frame[named], settings.null_values), "user", path)
    if ids.is_empty():
        raise DataError(f"{path} holds no users: give the file of users, or leave it out")
    if ids.is_null().any():
        raise DataError(f"{path} has a user without an id in its column {named!r}: correct it")
    if ids.is_duplicated().any():
        raise DataError(f"{path} has the user id {ids.filter(ids.is_duplicated())[0]} several times: keep one row per "
                        "user")
    item_features.check_match(users, ids, path, "users")
    places = pl.DataFrame({"id": users}).join(pl.DataFrame({"id": ids}).with_row_index("row"), on="id", how="left",
                                              maintain_order="left")["row"]
    rows = np.where(places.is_null().to_numpy(), -1, places.fill_null(0).cast(pl.Int64).to_numpy())
    columns = [query_features.column(name, USER, kind, frame[name], settings, f"{path}: column {name!r}")
               for name, kind in wanted.items()]
    return [Column(each.name, USER, each.kind, np.where(rows[:, None] >= 0, each.codes[rows], 0), each.values)
            for each in columns]


def _opened(settings: PrepareConfig) -> tuple[Table, dict[str, str]]:
    """The file, and column -> kind of a RecBole file, whose header says it."""
    path = settings.user_features
    if re.search(r"\.user(\.gz)?$", path):
        kinds = item_features.recbole_kinds(path)
        return item_features.open_recbole(path, settings), {
            name: _RECBOLE[kind] for name, kind in kinds.items() if kind in _RECBOLE}
    return frames.open_table(path, reading=dataclasses.replace(frames.reading_of(settings), beside=True)), {}


def _id_column(table: Table, settings: PrepareConfig) -> str:
    """The column that holds user ids; `UserError` where it is not evident which."""
    listed, given = ", ".join(table.columns), settings.user_features_id
    if given:
        if given not in table.columns:
            raise UserError(f"{table.path} has no column {given!r}: give --user_features_id as one of {listed}")
        return given
    if settings.user_column in table.columns:
        return settings.user_column
    known = [name for name in table.columns if headers.names_users(name)]
    if len(known) != 1:
        raise UserError(f"--user_features={table.path}: of its columns {listed}, {'several' if known else 'none'} "
                        "could be the user's id: give --user_features_id, or if the file has no header put a line of names "
                        "above it")
    logging.info("%s: users are told by its column %r", table.path, known[0])
    return known[0]
