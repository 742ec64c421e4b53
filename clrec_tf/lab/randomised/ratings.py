"""Ratings of two parts, self-selected and randomly exposed, from files: matrices or triples, and matrices beside them.

A matrix has a line of numbers per user, separated by spaces, and a column per item; 0 = missing. Triples are lines
`user,item,rating` separated by tabs, semicolons or commas, with or without a header; their ids may be any text, but
must be the numbers of rows, from 0, where a matrix of propensities or of item vectors is given too.
"""
import contextlib
import dataclasses
from typing import Optional
import warnings

import numpy as np
import polars as pl

from clrec_tf.config import RandomisedConfig
from clrec_tf.config import require
from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.tabular_files import frames
from clrec_tf.tabular_files import table_parts

SELECTED, RANDOM, PROPENSITIES, VECTORS = "selected_ratings", "random_ratings", "propensity_matrix", "item_vectors"


@dataclasses.dataclass(frozen=True)
class RatingPart:
    """Ratings of one part; no pair of user and item stands twice.

    Attributes:
      users: int64 [N], from 0.
      items: int64 [N], from 0.
      ratings: float64 [N], finite.
    """
    users: np.ndarray
    items: np.ndarray
    ratings: np.ndarray


@dataclasses.dataclass(frozen=True)
class RatingData:
    """Both parts.

    Attributes:
      num_users: U.
      num_items: V.
      selected: what users chose to rate.
      random: what was drawn for them, without the pairs of `selected`.
      dropped: pairs that were in both parts.
      propensities: float64 [U,V], ≥ 0, > 0 for the pairs of `selected`, or None.
      vectors: float32 [V,F], or None.
    """
    num_users: int
    num_items: int
    selected: RatingPart
    random: RatingPart
    dropped: int
    propensities: Optional[np.ndarray]
    vectors: Optional[np.ndarray]


def read_ratings(settings: RandomisedConfig) -> RatingData:
    """Reads and checks all files of the settings.

    Raises:
      UserError: a flag that is needed is not set.
      DataError: a file is missing, damaged, or does not fit to the others; names its flag.
    """
    names = (SELECTED, RANDOM)
    paths = {name: require(getattr(settings, name), name, "it holds the ratings of one part") for name in names}
    triples = {name: settings.ratings_form == "triples" or settings.ratings_form == "auto"
               and table_parts.stem_extension(path) in ("csv", "tsv") for name, path in paths.items()}
    if len(set(triples.values())) > 1:
        raise UserError(f"--{SELECTED} and --{RANDOM} have different forms: bring both into one, or say which it is "
                        "with --ratings_form")
    raw = {name: (_read_triples if triples[name] else _read_dense)(name, path) for name, path in paths.items()}
    beside = {name: getattr(settings, name) for name in (PROPENSITIES, VECTORS)}
    propensities, vectors = (_read_matrix(name, path) if path else None for name, path in beside.items())
    if triples[SELECTED]:
        parts, users, items = _numbered(raw, as_rows=any(beside.values()))
        propensities = _rows(PROPENSITIES, propensities, users, "user")
        propensities = None if propensities is None else _rows(PROPENSITIES, propensities.T, items, "item").T
        vectors = _rows(VECTORS, vectors, items, "item")
        num_users, num_items = len(users), len(items)
    else:
        (num_users, num_items), parts = _same_shape(raw), {name: _part_of(matrix) for name, matrix in raw.items()}
    return _joined(parts[SELECTED], parts[RANDOM], num_users, num_items, propensities, vectors)


def _joined(selected, random, num_users, num_items, propensities, vectors):
    """Checks the matrices against the parts, and drops from `random` the pairs of `selected`."""
    if propensities is not None:
        _check_shape(PROPENSITIES, propensities, (num_users, num_items))
        if (propensities < 0).any() or not (propensities[selected.users, selected.items] > 0).all():
            raise DataError(f"--{PROPENSITIES}: propensities must be ≥ 0, and > 0 for every pair of --{SELECTED}")
    if vectors is not None:
        _check_shape(VECTORS, vectors, (num_items, vectors.shape[1]))
        vectors = vectors.astype(np.float32)
    repeated = np.isin(random.users * num_items + random.items, selected.users * num_items + selected.items)
    kept = RatingPart(*(column[~repeated] for column in (random.users, random.items, random.ratings)))
    if not len(selected.users) or not len(kept.users):
        empty = SELECTED if not len(selected.users) else RANDOM
        raise DataError(f"--{empty} holds no rating{'' if empty == SELECTED else f' that --{SELECTED} does not hold'}")
    return RatingData(num_users, num_items, selected, kept, int(repeated.sum()), propensities, vectors)


def _read_matrix(name, path):
    """float64 [rows, columns], all finite."""
    with _of_flag(name), frames.readable(path), frames.open_text(path) as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of an empty file, which is an error below
        try:
            matrix = np.loadtxt(file, np.float64, ndmin=2)
        except ValueError as error:
            if isinstance(error, UnicodeDecodeError):
                raise
            raise DataError(f"--{name}={path} is no matrix of numbers separated by spaces ({error}): correct it"
                            ) from error
    if not matrix.size:
        raise DataError(f"--{name}={path} is empty: give a file with a line of numbers per row")
    if not np.isfinite(matrix).all():
        row, column = np.argwhere(~np.isfinite(matrix))[0] + 1
        raise DataError(f"--{name}={path}: row {row}, column {column} is not a finite number: correct it")
    return matrix


def _read_dense(name, path):
    """A matrix of ratings, none below 0."""
    matrix = _read_matrix(name, path)
    if (matrix < 0).any():
        row, column = np.argwhere(matrix < 0)[0] + 1
        raise DataError(f"--{name}={path}: row {row}, column {column} is {matrix[row - 1, column - 1]:g}: ratings of a "
                        "matrix are positive, and 0 where there is none")
    return matrix


def _part_of(matrix):
    users, items = np.nonzero(matrix)
    return RatingPart(users, items, matrix[users, items])


def _same_shape(raw):
    """(U, V) of both matrices."""
    _check_shape(RANDOM, raw[RANDOM], raw[SELECTED].shape)
    return raw[SELECTED].shape


def _check_shape(name, matrix, expected):
    if matrix.shape != expected:
        raise DataError(f"--{name} has {matrix.shape[0]} rows of {matrix.shape[1]}, but {expected[0]} rows of "
                        f"{expected[1]} fit to --{SELECTED}: give the files of one data set")


def _read_triples(name, path):
    """(users, items) as text [N] each, ratings float64 [N]."""
    with _of_flag(name):
        header = frames.first_line(path)
        delimiter = next((mark for mark in ("\t", ";", ",") if mark in header), "")
        if not delimiter:
            raise DataError(f"--{name}={path}: the first line, {header[:80]!r}, is not user, item and rating separated "
                            "by tabs, semicolons or commas: correct the file, or give --ratings_form=matrix")
        named = not any(map(_is_number, header.split(delimiter)))
        table = frames.open_table(path, ("user", "item", "rating"), delimiter, skip_header=named)
        with frames.readable(path):
            triples = table.rows.with_columns(
                number=pl.col("rating").str.strip_chars().cast(pl.Float64, strict=False)).collect()
    bad = triples.filter(pl.col("user").is_null() | pl.col("item").is_null() | pl.col(table_parts.EXTRA).is_not_null()
                       | pl.col("number").is_null() | ~pl.col("number").is_finite())
    if len(bad):
        row = bad[frames.ROW][0]
        shown = frames.show_rows(table, [row])[row]
        raise DataError(f"--{name}={path}: {table.where(row)}, {shown!r}, is not user, item and a finite rating: "
                        "correct it")
    twice = triples.filter(pl.struct("user", "item").is_duplicated())
    if len(twice):
        raise DataError(f"--{name}={path}: user {twice['user'][0]!r} and item {twice['item'][0]!r} stand together more "
                        "than once: leave one of their ratings")
    return *(triples[column].to_numpy().astype(str) for column in ("user", "item")), triples["number"].to_numpy()


def _numbered(raw, as_rows):
    """Parts with ids replaced by their places among the sorted distinct ids; those of users, and of items.

    Args:
      raw: of `_read_triples` by name.
      as_rows: whether ids are rows of matrices, and returned as numbers.
    """
    columns = []
    for column, what in enumerate(("user", "item")):
        ids = np.concatenate([raw[name][column] for name in (SELECTED, RANDOM)])
        text = next((text for text in ids if as_rows and not text.isdecimal()), None)
        if text is not None:
            raise DataError(f"--{SELECTED}, --{RANDOM}: {what} {str(text)!r} is no row of --{PROPENSITIES} or "
                            f"--{VECTORS}: number {what}s from 0")
        known, places = np.unique(ids.astype(np.int64) if as_rows else ids, return_inverse=True)
        columns.append((known, np.split(places, [len(raw[SELECTED][column])])))
    (users, user_places), (items, item_places) = columns
    parts = {name: RatingPart(user_places[place], item_places[place], raw[name][2])
             for place, name in enumerate((SELECTED, RANDOM))}
    return parts, users, items


def _rows(name, matrix, ids, what):
    """The rows of the given ids, ascending; None for None."""
    if matrix is not None and len(ids) and ids[-1] >= len(matrix):
        raise DataError(f"--{name} has {len(matrix)} {what}s, but the ratings have {what} {ids[-1]}: {what}s are "
                        "numbered from 0")
    return None if matrix is None else matrix[ids]


def _is_number(text):
    try:
        float(text)
    except ValueError:
        return False
    return True


@contextlib.contextmanager
def _of_flag(name):
    """Puts the flag into errors about the file."""
    try:
        yield
    except DataError as error:
        raise error if f"--{name}" in str(error) else DataError(f"--{name}: {error}") from error
