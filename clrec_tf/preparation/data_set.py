"""A split log -> a data set in memory: vocabularies from the training part, and all parts in their ids."""
import dataclasses
from typing import Optional

import numpy as np

from clrec_tf.data.query_features import CONTEXT
from clrec_tf.data.query_features import USER
from clrec_tf.data.schema import Schema
from clrec_tf.errors import UserError
from clrec_tf.preparation import foresight
from clrec_tf.preparation.impressions import exposures_of_log
from clrec_tf.preparation import query_features
from clrec_tf.preparation import sizes
from clrec_tf.preparation.split_log import SplitLog
from clrec_tf.preparation import splits
from clrec_tf.preparation.splits import Clicks
from clrec_tf.preparation.splits import Sequences
from clrec_tf.preparation import tables as tables_lib
from clrec_tf.preparation.tables import NamedItems
from clrec_tf.preparation.tables import Tables
from clrec_tf.preparation.vocabulary import Vocabulary
from clrec_tf.settings.data import PrepareConfig


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

    @property
    def largest_dense_value(self) -> Optional[float]:
        """Largest absolute value of the dense vectors; None without any."""
        return None if self.content is None else float(max(self.content.max(), -self.content.min()))


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
    counts = tables_lib.counts_of(log, mask)
    weights = {USER: counts.of_users, CONTEXT: mask.astype(float)}
    query = query_features.encode(log.query_columns, weights, log.earlier, settings)
    tables = tables_lib.tables_of(log, counts, query, settings, identity, report)
    log = dataclasses.replace(log, clicks=dataclasses.replace(log.clicks, context=query.context))
    sequences = sequences_of(log.clicks, log.part, mask, tables.vocabulary)
    rows = dict(zip(log.features, tables.feature_rows))
    pairs = foresight.pairs_of_features(log.clicks, mask, log.clicks.user, rows)
    sizes_of_parts = sizes.counts(log.clicks, log.part, mask, sequences, tables.vocabulary)
    tables_lib.report_of(tables, sizes_of_parts, pairs, report)
    exposures = _exposures(log, mask, tables.vocabulary, settings, report)
    return dataset_of(tables, sequences, exposures, report)


def dataset_of(tables: Tables, sequences: dict[str, Sequences], exposures: Optional[np.ndarray], report: dict) -> Dataset:
    """A data set of its parts."""
    return Dataset(tables.schema, sequences, tables.catalogue, tables.feature_rows, tables.content, exposures, report,
                   tables.feature_values, tables.query.profile)


def sequences_of(clicks: Clicks, part: np.ndarray, mask: np.ndarray, vocabulary: Vocabulary) -> dict[str, Sequences]:
    """Sequences of all parts by name.

    Args:
      clicks: N clicks, by user.
      part: [N] part of each.
      mask: [N], which are trained on.
      vocabulary: see there.
    """
    item_id, size = vocabulary.item_id, len(vocabulary.items)
    evaluated = {name: splits.evaluation_sequences(clicks, part, which, item_id, size)
                 for name, which in sizes.EVALUATED.items()}
    return dict(train=splits.training_sequences(clicks, mask, item_id), **evaluated)


def _exposures(log: SplitLog, mask: np.ndarray, vocabulary: Vocabulary, settings: PrepareConfig, report: dict
               ) -> Optional[np.ndarray]:
    """What users were shown up to the training clicks that mask [N] selects; None without --impressions."""
    if not settings.impressions:
        return None
    if log.clicks.timestamp is None:
        raise UserError(f"--impressions={settings.impressions} needs a click log with time stamps, and "
                        "--timestamp_column")
    return exposures_of_log(settings, log.users, log.items["item"], vocabulary.item_id, log.clicks.where(mask), report)
