"""Features of users and of requests: columns of the log and of --user_features, numbered by the training part."""
import dataclasses
from typing import Optional, Sequence

from absl import logging
import numpy as np
import polars as pl

from clrec_tf.data import query_features as query_lib
from clrec_tf.data.query_features import CATEGORY
from clrec_tf.data.query_features import KINDS
from clrec_tf.data.query_features import LIST
from clrec_tf.data.query_features import NUMBER
from clrec_tf.data.query_features import QueryFeature
from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.preparation import doubts
from clrec_tf.settings.data import PrepareConfig
from clrec_tf.tabular_files import delimiters
from clrec_tf.tabular_files import list_texts
from clrec_tf.tabular_files import values


_LOOKED_AT = 100  # distinct values of a category by which lists and records are told


@dataclasses.dataclass(frozen=True)
class Column:
    """Values of a feature, each by a code.

    Attributes:
      name, source, kind: see `QueryFeature`.
      codes: int32 [N,width], 0 = missing; of users by number, of clicks in the order of the log, or of the distinct
        entries of a column of the log.
      values: by code from 1: texts, or of a number float32.
      repeats: [N] clicks that each row of codes stands for; None: one each.
    """
    name: str
    source: str
    kind: str
    codes: np.ndarray
    values: Sequence
    repeats: Optional[np.ndarray] = None

    def missing(self, rows: np.ndarray) -> float:
        """Share of what the codes are of that has no known value in `rows` [N,width]."""
        return round(float(np.average((rows == 0).all(axis=1), weights=self.repeats)), 6)

    def known(self) -> int:
        """How many codes are not missing."""
        found = np.count_nonzero(self.codes, axis=1)
        return int(found.sum() if self.repeats is None else (found * self.repeats).sum())


@dataclasses.dataclass(frozen=True)
class Encoded:
    """Features of users and requests.

    Attributes:
      features: users' first.
      profile: int32 [users,·], their columns of query rows.
      values: key -> values by number from 1, of categories and lists.
      missing: key -> share of clicks, or of users, without a known value.
    """
    features: tuple[QueryFeature, ...] = ()
    profile: Optional[np.ndarray] = None
    values: dict = dataclasses.field(default_factory=dict)
    missing: dict = dataclasses.field(default_factory=dict)


def declared(given: Sequence[str], flag: str) -> dict[str, str]:
    """Name -> kind, of columns such as country, tags:list or age:number; `UserError` where one stands twice."""
    kinds = {}
    for text in given:
        name, _, kind = text.rpartition(":")
        name, kind = (name, kind) if name and kind in KINDS else (text, CATEGORY)
        if name in kinds:
            raise UserError(f"--{flag}={','.join(given)} names {name} twice: name it once")
        kinds[name] = kind
    return kinds


def column(name: str, source: str, kind: str, entries: pl.Series, settings: PrepareConfig, where: str) -> Column:
    """Codes of a feature's entries.

    Args:
      name, source, kind: of the feature.
      entries: [N], as read.
      settings: separator and most values of lists, and words for what is missing.
      where: file and column, for messages.

    Raises:
      UserError: lists, and the kind is category; or nothing is a number where all should be.
    """
    if kind == NUMBER:
        return Column(name, source, kind, *_numbers(entries, settings, where))
    if kind == LIST:
        separator = delimiters.of_values(settings)
        lists = values.several(entries, separator, settings.null_values, where).list.head(settings.max_values)
    else:
        if isinstance(entries.dtype, (pl.List, pl.Array, pl.Struct)):
            raise UserError(f"{where} holds {entries.dtype}: if a request has several values, name it {name}:list")
        texts = values.texts(entries, settings.null_values)
        distinct = texts.drop_nulls().unique().head(_LOOKED_AT)
        kind_of = list_texts.is_nested, list_texts.is_quoted_list
        if len(distinct) and any(all(map(check, distinct)) for check in kind_of):
            raise UserError(f"{where} holds records or lists such as {distinct[0][:80]!r}: name a column of single "
                            f"values, or lists as {name}:{LIST}")
        texts = values.whole_numbers(texts, name, where, exact=False)
        lists = texts.reshape((-1, 1)).arr.to_list()
    flat = pl.DataFrame({"value": lists}).with_row_index("row").explode("value").drop_nulls("value")
    flat = flat.with_columns(slot=pl.int_range(pl.len()).over("row"))
    distinct = flat["value"].unique(maintain_order=True)
    codes = np.zeros((len(entries), int(flat["slot"].max() or 0) + 1), np.int32)
    if len(distinct):
        codes[flat["row"].to_numpy(), flat["slot"].to_numpy()] = (
            flat["value"].cast(pl.Enum(distinct)).to_physical().to_numpy().astype(np.int32) + 1)
    return Column(name, source, kind, codes, distinct.to_list())


def _numbers(entries, settings, where):
    """Codes and values of a column of numbers; what is not finite is missing."""
    if entries.dtype.is_nested():
        raise UserError(f"{where} holds {entries.dtype}: name a column of single numbers")
    texts = entries if entries.dtype.is_numeric() else values.texts(entries, settings.null_values)
    numbers = texts.cast(pl.Float64, strict=False)
    unreadable = texts.filter(texts.is_not_null() & numbers.is_null())
    if len(unreadable):
        if not numbers.is_not_null().any():
            raise UserError(f"{where} holds no number, but such as {unreadable[0]!r}: name it without :{NUMBER}")
        logging.warning("%s: %d of %d values are no numbers, such as %r, and count as missing", where, len(unreadable),
                        len(texts), unreadable[0])
    with np.errstate(over="ignore"):
        numbers = numbers.fill_null(np.nan).to_numpy().astype(np.float32)
    known = np.isfinite(numbers)
    distinct, codes = np.unique(numbers[known], return_inverse=True)
    rows = np.zeros((len(numbers), 1), np.int32)
    rows[known, 0] = codes + 1
    return rows, distinct


def context_kinds(settings: PrepareConfig, columns: Sequence[str]) -> dict[str, str]:
    """Name -> kind of --context_columns; `UserError` where c:<name> is none of the columns of the log."""
    kinds = declared(settings.context_columns, "context_columns")
    absent = [name for name in kinds if f"c:{name}" not in columns]
    if absent:
        raise UserError(f"--context_columns={','.join(settings.context_columns)}: {absent[0]} is no column that "
                        f"--format={settings.format} reads: use --format=columns, or leave it out")
    return kinds


def encode_each(columns: Sequence[Column], weights: Sequence[np.ndarray], earlier, settings: PrepareConfig
                ) -> tuple[Encoded, tuple[np.ndarray, ...]]:
    """Numbers of the values of each feature.

    Args:
      columns: of users and of requests.
      weights: of each column: [N] training clicks of each row of its codes.
      earlier: the vocabulary that is continued, or None.
      settings: of prepare.

    Returns:
      The features; and of each feature of requests its columns of query rows, by row of the codes: [N,width] int32.

    Raises:
      UserError: two columns would have one name in requests. DataError: an earlier feature was of another kind.
    """
    pairs = sorted(zip(columns, weights), key=lambda pair: pair[0].source != query_lib.USER)  # stable
    parts = [(each, *_encoded(each, weight, earlier, settings)) for each, weight in pairs]
    features = tuple(feature for _, feature, _, _ in parts)
    inputs = [feature.input for feature in features]
    repeated = next((name for name in inputs if inputs.count(name) > 1), None)
    if repeated:
        names = ", ".join(repr(feature.name) for feature in features if feature.input == repeated)
        raise UserError(f"the columns {names} would both be called {repeated} in requests: rename one of them")
    names = {feature.key: found for _, feature, _, found in parts if feature.kind != NUMBER}
    missing = {feature.key: each.missing(rows) for each, feature, rows, _ in parts}
    of_users, of_requests = ([rows for _, feature, rows, _ in parts if feature.source == source]
                             for source in (query_lib.USER, query_lib.CONTEXT))
    profile = np.concatenate(of_users, axis=1) if of_users else None
    return Encoded(features, profile, names, missing), tuple(of_requests)


def _encoded(given: Column, weights, earlier, settings):
    """A column's feature, its rows [N,width] and its values."""
    before = None if earlier is None else earlier.query_feature(given.source, given.name)
    if before is not None and before.kind != given.kind:
        raise DataError(f"--vocabulary_from={earlier.data_dir} has {given.name} as {before.kind}, this call as "
                        f"{given.kind}: name it {given.name}{'' if before.kind == CATEGORY else ':' + before.kind}, or "
                        "leave --vocabulary_from out")
    count = np.zeros(1 + len(given.values))
    np.add.at(count, given.codes, np.broadcast_to(weights[:, None], given.codes.shape))
    count = count[1:]
    if given.kind == NUMBER:
        doubts.doubt_category(given.name, NUMBER, given.known(), given.values, count)
        bounds = before.bounds if before is not None else bounds_of(given.values, count, settings.number_bins)
        feature = QueryFeature(given.name, given.source, NUMBER, len(bounds) + 2, 1, bounds)
        numbers = query_lib.bins_of(given.values, bounds)
        return feature, np.append(0, numbers).astype(np.int32)[given.codes], []
    known = earlier.feature_values[before.key] if before is not None else []
    here = set(known)
    new = [(-count[place], text) for place, text in enumerate(given.values) if count[place] and text not in here]
    names = [*known, *(text for _, text in sorted(new))]
    doubts.doubt_category(given.name, given.kind, given.known(), names, count)
    places = {text: number for number, text in enumerate(names, 1)}
    numbers = np.array([0, *(places.get(text, 0) for text in given.values)], np.int32)
    trained = given.codes[weights > 0]
    width = max(1, int((trained > 0).sum(axis=1).max(initial=0)), 0 if before is None else before.width)
    width = 1 if given.kind == CATEGORY else width
    rows = numbers[np.pad(given.codes, [(0, 0), (0, max(0, width - given.codes.shape[1]))])]
    known_first = np.argsort(rows == 0, axis=1, kind="stable")
    rows = np.take_along_axis(rows, known_first, axis=1)[:, :width]
    return QueryFeature(given.name, given.source, given.kind, 1 + len(names), width), rows, names


def bounds_of(numbers: np.ndarray, counts: np.ndarray, bins: int) -> tuple[float, ...]:
    """Bounds by which numbers fall into bins of about equal counts; each distinct one into its own if they are few.

    Args:
      numbers: [n] float32, ascending and distinct.
      counts: [n], how often each stands in the training part.
      bins: at most.
    """
    trained = counts > 0
    numbers, counts = numbers[trained], counts[trained]
    if len(numbers) > bins:
        share = (np.cumsum(counts) - counts) / counts.sum()  # of what is smaller
        first = np.searchsorted(share, np.arange(1, bins) / bins)
        numbers = numbers[np.unique(np.minimum(np.append(0, first), len(numbers) - 1))]
    return tuple(float(number) for number in numbers[1:])
