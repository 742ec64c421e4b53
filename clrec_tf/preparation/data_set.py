"""A split log -> a data set in memory: vocabularies from the training part, and all parts in their ids."""
import dataclasses
from typing import Optional

from absl import logging
import numpy as np
import polars as pl

from clrec_tf.data.features import Feature
from clrec_tf.data.query_features import CONTEXT
from clrec_tf.data.query_features import QueryFeature
from clrec_tf.data.query_features import USER
from clrec_tf.data.schema import Schema
from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.preparation import dense_features
from clrec_tf.preparation.earlier_vocabulary import EarlierVocabulary
from clrec_tf.preparation import events
from clrec_tf.preparation import foresight
from clrec_tf.preparation.impressions import exposures_of_log
from clrec_tf.preparation import query_features
from clrec_tf.preparation import sizes
from clrec_tf.preparation.split_log import SplitLog
from clrec_tf.preparation import splits
from clrec_tf.preparation.splits import Sequences
from clrec_tf.preparation import vocabulary as vocabulary_lib
from clrec_tf.preparation.vocabulary import Vocabulary
from clrec_tf.settings.data import PrepareConfig
from clrec_tf.system.versions import versions

_PARAMETERS = {"last_days": ("test_days", "valid_days", "utc_offset"), "by_user": ("split_quantile", "valid_share")}


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
class Dataset:
    """All that is written.

    Attributes:
      schema: facts.
      sequences: "train", "valid", "test" -> sequences.
      catalogue: items.
      feature_rows: by schema.features: [items of the log, width] int32.
      content: [V + 1, content_width] float32, row 0 zero; None without dense features.
      exposures: int32 [N,2], see `impressions.exposures_of_log`; None without an impression log.
      report: what was read, dropped and kept, as JSON.
      feature_values: feature name, or key of a query feature -> its values by number from 1.
      profile: [users,·] int32, columns of query rows that are of users; None without.
    """
    schema: Schema
    sequences: dict[str, Sequences]
    catalogue: NamedItems
    feature_rows: tuple[np.ndarray, ...]
    content: Optional[np.ndarray]
    exposures: Optional[np.ndarray]
    report: dict
    feature_values: dict[str, list[str]]
    profile: Optional[np.ndarray] = None


def data_set_of(log: SplitLog, settings: PrepareConfig, identity: dict, report: dict) -> Dataset:
    """The data set of a log.

    Args:
      log: see there.
      settings: of prepare.
      identity: goes into `Schema.settings`.
      report: gets the counts, and goes into the data set.

    Raises:
      UserError: impressions without time stamps; DataError: no item is left, or files beside the log do not fit it.
    """
    mask = splits.training_mask(log.clicks, log.part, settings.min_train_length)
    vocabulary = _vocabulary(log, mask, settings)
    encoded = [vocabulary_lib.encode_feature(name, log.items[f"f:{name}"], vocabulary, settings.max_values,
                                             settings.feature_oov_buckets, *log.known_values(name),
                                             min_clicks=int(settings.vocabulary == "catalogue"))
               for name in log.features]
    features = tuple(feature for feature, _, _ in encoded)
    feature_rows = tuple(rows for _, rows, _ in encoded)
    query = _query(log, mask, settings)
    log = dataclasses.replace(log, clicks=dataclasses.replace(log.clicks, context=query.context))
    sequences = _sequences(log, mask, vocabulary)
    catalogue = _catalogue(log, vocabulary)
    content = _content(settings.dense_features, catalogue.original_ids, log.earlier, report)
    schema = _schema(log, vocabulary, features, query.features, content, settings, identity, report["users"])
    if log.earlier is not None:
        report["vocabulary_from"] |= sizes.growth(log, vocabulary, {f.name: values for f, _, values in encoded})
    if catalogue.cold.any():
        report["items_without_training_clicks"] = int(catalogue.cold.sum())
    report.update(vocabulary=schema.num_items, id_type=schema.id_type,
                  dropped_short_training=sizes.dropped(log, mask), **sizes.of_parts(log, sequences, vocabulary),
                  features=sizes.of_features(features, feature_rows, vocabulary))
    if query.features:
        report["query_features"] = sizes.of_query(query.features, query.missing)
    next_values = foresight.of_features(log.clicks, mask, log.features, feature_rows)
    report.update(dict(next_click_by_feature=next_values) if next_values else {})
    exposures = _exposures(log, mask, vocabulary, settings, report)
    return Dataset(schema, sequences, catalogue, feature_rows, content, exposures, report,
                   {feature.name: values for feature, _, values in encoded} | query.values, query.profile)


def _vocabulary(log: SplitLog, mask: np.ndarray, settings: PrepareConfig) -> Vocabulary:
    """Ids of the items of the training clicks that mask [N] selects; `DataError` where there is none."""
    least = settings.min_item_count if settings.vocabulary == "train" else 0
    vocabulary = vocabulary_lib.build(log.items["item"], log.clicks.item[mask], least, settings.oov_buckets,
                                      log.numbered)
    if not vocabulary.counts.any():
        raise DataError(f"no item has {settings.min_item_count} training clicks in sequences of at least "
                        f"{settings.min_train_length}: lower --min_train_length or --min_item_count")
    return vocabulary


def _sequences(log: SplitLog, mask: np.ndarray, vocabulary: Vocabulary) -> dict[str, Sequences]:
    """Sequences of all parts by name."""
    item_id, size = vocabulary.item_id, len(vocabulary.items)
    evaluated = {name: splits.evaluation_sequences(log.clicks, log.part, which, item_id, size)
                 for name, which in sizes.EVALUATED.items()}
    return dict(train=splits.training_sequences(log.clicks, mask, item_id), **evaluated)


def _catalogue(log: SplitLog, vocabulary: Vocabulary) -> NamedItems:
    items, last_click, warm = log.items, None, np.zeros(len(log.items), bool)
    warm[vocabulary.items] = vocabulary.counts > 0
    if log.earlier is not None:
        known = log.numbered >= 0
        warm[log.numbered[known]] |= ~log.earlier.cold[known]
    if log.clicks.timestamp is not None:
        last_click = np.full(len(items), -1, np.int64)
        np.maximum.at(last_click, log.clicks.item, log.clicks.timestamp)
        if log.earlier is not None:
            np.maximum.at(last_click, log.numbered[known], log.earlier.last_click[known])
        last_click = last_click[vocabulary.items]
    titles = items["title"].gather(vocabulary.items).to_list() if "title" in items.columns else None
    original_ids = items["item"].gather(vocabulary.items).to_list()
    return NamedItems(original_ids, titles, vocabulary.counts, vocabulary.items,
                      ~warm[vocabulary.items], last_click)


def _query(log: SplitLog, mask: np.ndarray, settings: PrepareConfig) -> query_features.Encoded:
    """Features of users and requests, by the training clicks that mask [N] selects."""
    of_users = np.bincount(log.clicks.user, weights=mask, minlength=len(log.users))
    weights = {USER: of_users, CONTEXT: mask.astype(float)}
    return query_features.encode(log.query_columns, weights, log.earlier, settings)


def _schema(log: SplitLog, vocabulary: Vocabulary, features: tuple[Feature, ...],
            of_queries: tuple[QueryFeature, ...], content: Optional[np.ndarray], settings: PrepareConfig,
            identity: dict, users: int) -> Schema:
    rule = {name: getattr(settings, name) for name in _PARAMETERS.get(settings.split, ())}
    return Schema(
        num_items=len(vocabulary.items), item_rows=1 + len(vocabulary.items) + settings.oov_buckets, features=features,
        content_width=0 if content is None else content.shape[1],
        id_type="string" if settings.id_type == "string" else vocabulary_lib.id_type(log.items["item"]),
        has_timestamps=log.clicks.timestamp is not None, num_users=users, total_clicks=int(vocabulary.counts.sum()),
        split=dict(rule=settings.split, **rule), settings=identity, versions=versions(),
        has_dwell=log.clicks.dwell is not None,
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


def _exposures(log: SplitLog, mask: np.ndarray, vocabulary: Vocabulary, settings: PrepareConfig, report: dict
               ) -> Optional[np.ndarray]:
    """What users were shown up to the training clicks that mask [N] selects; None without --impressions."""
    if not settings.impressions:
        return None
    if log.clicks.timestamp is None:
        raise UserError(f"--impressions={settings.impressions} needs a click log with time stamps, and "
                        "--timestamp_column")
    return exposures_of_log(settings, log.users, log.items["item"], vocabulary.item_id, log.clicks.where(mask), report)
