"""What a data set says of items, users and requests: vocabularies from the training clicks, the catalogue, the schema.

It is made of counts by item and user alone, whoever has counted the clicks. Letters: V items of the vocabulary.
"""
import dataclasses
from typing import Optional

from absl import logging
import numpy as np
import polars as pl

from clrec_tf.data.features import Feature
from clrec_tf.data.query_features import QueryFeature
from clrec_tf.data.schema import Schema
from clrec_tf.errors import DataError
from clrec_tf.preparation import dense_features
from clrec_tf.preparation.earlier_vocabulary import EarlierVocabulary
from clrec_tf.preparation import events
from clrec_tf.preparation import foresight
from clrec_tf.preparation import query_features
from clrec_tf.preparation import sizes
from clrec_tf.preparation.split_log import SplitLog
from clrec_tf.preparation import vocabulary as vocabulary_lib
from clrec_tf.preparation.vocabulary import Vocabulary
from clrec_tf.settings.data import PrepareConfig
from clrec_tf.system.versions import versions
from clrec_tf.tabular_files.tally import Tally

_PARAMETERS = {"last_days": ("test_days", "valid_days", "utc_offset"), "by_user": ("split_quantile", "valid_share")}


@dataclasses.dataclass(frozen=True)
class Counts:
    """What is counted of the clicks of a log.

    Attributes:
      of_items: [items of the log] training clicks.
      of_users: [users] training clicks.
      last_click: [items that are clicked] int64 seconds; None without time stamps.
      has_dwell: whether there are dwell times.
    """
    of_items: np.ndarray
    of_users: np.ndarray
    last_click: Optional[np.ndarray]
    has_dwell: bool


@dataclasses.dataclass(frozen=True)
class NamedItems:
    """The V items of the vocabulary, in the order of their ids from 1, with what the log calls them.

    Attributes:
      original_ids: [V] strings.
      titles: [V] strings or None each; None without titles.
      counts: [V] training clicks.
      items: [V] index into the log's items.
      cold: [V] bool, whether neither this training part nor one before has a click of it.
      last_click: [V] int64 seconds, −1: unknown; None without time stamps.
    """
    original_ids: list[str]
    titles: Optional[list[Optional[str]]]
    counts: np.ndarray
    items: np.ndarray
    cold: np.ndarray
    last_click: Optional[np.ndarray] = None


@dataclasses.dataclass(frozen=True)
class Tables:
    """All of a data set but its sequences.

    Attributes:
      schema: facts.
      vocabulary: ids of items.
      catalogue: items.
      feature_rows: by schema.features: [items of the log, width] int32.
      feature_values: feature name, or key of a query feature -> its values by number from 1.
      query: features of users and requests.
      content: [V + 1, content_width] float32, row 0 zero; None without dense features.
    """
    schema: Schema
    vocabulary: Vocabulary
    catalogue: NamedItems
    feature_rows: tuple[np.ndarray, ...]
    feature_values: dict[str, list[str]]
    query: query_features.Encoded
    content: Optional[np.ndarray]


def tables_of(log: SplitLog, counts: Counts, query: query_features.Encoded, settings: PrepareConfig, identity: dict,
              report: dict) -> Tables:
    """Tables of a log.

    Args:
      log: its items, users, features and earlier vocabulary.
      counts: of its clicks.
      query: features of users and requests.
      settings: of prepare.
      identity: goes into `Schema.settings`.
      report: gets how the vocabulary grew, and about dense features.

    Raises:
      DataError: no item is left, or files beside the log do not fit it.
    """
    vocabulary = _vocabulary(log, counts, settings)
    encoded = [vocabulary_lib.encode_feature(name, log.items[f"f:{name}"], vocabulary, settings.max_values,
                                             settings.feature_oov_buckets, *log.known_values(name),
                                             min_clicks=int(settings.vocabulary == "catalogue"))
               for name in log.features]
    features, feature_rows = tuple(one[0] for one in encoded), tuple(one[1] for one in encoded)
    values = {feature.name: known for feature, _, known in encoded}
    catalogue = _catalogue(log, counts, vocabulary)
    content = _content(settings.dense_features, catalogue.original_ids, log.earlier, report)
    schema = _schema(log, counts, vocabulary, features, query.features, content, settings, identity)
    if log.earlier is not None:
        report["vocabulary_from"] |= sizes.growth(log, vocabulary, values)
    return Tables(schema, vocabulary, catalogue, feature_rows, values | query.values, query, content)


def report_of(tables: Tables, of_parts: Tally, pairs: dict[str, pl.DataFrame], report: dict) -> None:
    """Adds to the report what tables and parts hold.

    Args:
      tables: see there.
      of_parts: `sizes.counts`.
      pairs: of features, see `foresight.pairs_of_features`.
      report: of prepare.
    """
    schema = tables.schema
    if tables.catalogue.cold.any():
        report["items_without_training_clicks"] = int(tables.catalogue.cold.sum())
    report.update(vocabulary=schema.num_items, id_type=schema.id_type, dropped_short_training=sizes.dropped(of_parts),
                  **sizes.of_parts(of_parts),
                  features=sizes.of_features(schema.features, tables.feature_rows, tables.vocabulary))
    if tables.query.features:
        report["query_features"] = sizes.of_query(tables.query.features, tables.query.missing)
    next_values = foresight.of_features(pairs)
    report.update(dict(next_click_by_feature=next_values) if next_values else {})


def _vocabulary(log: SplitLog, counts: Counts, settings: PrepareConfig) -> Vocabulary:
    """Ids of the items; `DataError` where none has a training click."""
    least = settings.min_item_count if settings.vocabulary == "train" else 0
    vocabulary = vocabulary_lib.build(log.items["item"], counts.of_items, least, settings.oov_buckets,
                                      log.numbered)
    if not vocabulary.counts.any():
        raise DataError(f"no item has {settings.min_item_count} training clicks in sequences of at least "
                        f"{settings.min_train_length}: lower --min_train_length or --min_item_count")
    return vocabulary


def _catalogue(log: SplitLog, counts: Counts, vocabulary: Vocabulary) -> NamedItems:
    items, last_click, warm = log.items, None, np.zeros(len(log.items), bool)
    warm[vocabulary.items] = vocabulary.counts > 0
    if log.earlier is not None:
        known = log.numbered >= 0
        warm[log.numbered[known]] |= ~log.earlier.cold[known]
    if counts.last_click is not None:
        last_click = np.full(len(items), -1, np.int64)
        last_click[:len(counts.last_click)] = counts.last_click
        if log.earlier is not None:
            np.maximum.at(last_click, log.numbered[known], log.earlier.last_click[known])
        last_click = last_click[vocabulary.items]
    titles = items["title"].gather(vocabulary.items).to_list() if "title" in items.columns else None
    original_ids = items["item"].gather(vocabulary.items).to_list()
    return NamedItems(original_ids, titles, vocabulary.counts, vocabulary.items,
                      ~warm[vocabulary.items], last_click)


def _schema(log: SplitLog, counts: Counts, vocabulary: Vocabulary, features: tuple[Feature, ...],
            of_queries: tuple[QueryFeature, ...], content: Optional[np.ndarray], settings: PrepareConfig,
            identity: dict) -> Schema:
    rule = {name: getattr(settings, name) for name in _PARAMETERS.get(settings.split, ())}
    return Schema(
        num_items=len(vocabulary.items), item_rows=1 + len(vocabulary.items) + settings.oov_buckets, features=features,
        content_width=0 if content is None else content.shape[1],
        id_type="string" if settings.id_type == "string" else vocabulary_lib.id_type(log.items["item"]),
        has_timestamps=counts.last_click is not None, num_users=len(counts.of_users), total_clicks=int(vocabulary.counts.sum()),
        split=dict(rule=settings.split, **rule), settings=identity, versions=versions(),
        has_dwell=counts.has_dwell,
        event_weights=tuple(events.weights_of(settings.event_weights).items()), query_features=of_queries)


def _content(path: str, original_ids: list[str], earlier: Optional[EarlierVocabulary], report: dict
             ) -> Optional[np.ndarray]:
    """Dense vectors [V + 1, width] by id: the file's, else the earlier ones; zero where an item has none."""
    if not path:
        return None
    ids, vectors = dense_features.read_dense(path)
    rows = pl.DataFrame({"id": original_ids}).join(
        pl.DataFrame({"id": ids}, {"id": pl.String}).with_row_index("row"), on="id", how="left",
        maintain_order="left")["row"]
    known = rows.is_not_null().to_numpy()
    if not known.any():
        raise DataError(f"--dense_features={path} has none of the {len(known)} items: do its ids match the log's?")
    content = np.zeros((len(known) + 1, vectors.shape[1]), np.float32)
    if earlier is not None and earlier.content is not None:
        content[1:], had = earlier.content_of(original_ids, vectors.shape[1], path)
        known |= had
    in_file = rows.is_not_null().to_numpy()
    content[1:][in_file] = vectors[rows.drop_nulls().to_numpy()]
    report["dense"] = dict(width=vectors.shape[1], items_without=int((~known).sum()))
    if not known.all():
        logging.warning("--dense_features=%s lacks %d of %d items: theirs are zero", path, (~known).sum(), len(known))
    return content
