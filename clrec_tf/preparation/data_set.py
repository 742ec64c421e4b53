"""A split log -> a data set: vocabularies from the training part, and all parts in their ids."""
import dataclasses
from typing import Iterator, Optional

import numpy as np
import polars as pl

from clrec_tf.data.schema import Schema
from clrec_tf.preparation import foresight
from clrec_tf.preparation import impressions
from clrec_tf.preparation import query_features
from clrec_tf.preparation import sizes
from clrec_tf.preparation.split_log import SplitLog
from clrec_tf.preparation import splits
from clrec_tf.preparation.splits import Clicks
from clrec_tf.preparation.splits import Sequences
from clrec_tf.preparation import tables as tables_lib
from clrec_tf.preparation.tables import Counts
from clrec_tf.preparation.tables import NamedItems
from clrec_tf.preparation.tables import Tables
from clrec_tf.preparation import training_counts
from clrec_tf.preparation.vocabulary import Vocabulary
from clrec_tf.settings.data import PrepareConfig
from clrec_tf.tabular_files.tally import Tally

PARTS = ("train", *sizes.EVALUATED)


@dataclasses.dataclass(frozen=True)
class DataSequences:
    """Sequences of all parts.

    Attributes:
      log: with parts.
      vocabulary: ids of its items.
      entries: of each context column int32 [entries,width], its columns of query rows.
    """
    log: SplitLog
    vocabulary: Vocabulary
    entries: tuple[np.ndarray, ...]

    def of(self, clicks: Clicks, part: np.ndarray, mask: np.ndarray) -> dict[str, Sequences]:
        """"train", "valid" and "test" -> sequences of some users. Args: see `SplitLog.trained`."""
        return sequences_of(dataclasses.replace(clicks, context=self._context(clicks.context)), part, mask,
                            self.vocabulary)

    def __iter__(self) -> Iterator[dict[str, Sequences]]:
        for clicks, part, mask in self.log.trained():
            yield self.of(clicks, part, mask)

    def _context(self, numbers: Optional[np.ndarray]) -> Optional[np.ndarray]:
        """Columns of query rows [N,·] of clicks, by the numbers of their entries [N, context columns]."""
        if numbers is None:
            return None
        return np.concatenate([rows[numbers[:, place]] for place, rows in enumerate(self.entries)], axis=1)


@dataclasses.dataclass(frozen=True)
class Dataset:
    """All that is written.

    Attributes:
      schema: facts.
      sequences: of all parts.
      catalogue: items.
      feature_rows: by schema.features: [items of the log, width] int32.
      content: [V + 1, content_width] float32, row 0 zero; None without dense features.
      exposures: int32 [N,2], see `impressions.exposures_of_log`; None without an impression log.
      report: what was read, dropped and kept, as JSON.
      feature_values: feature name, or key of a query feature -> its values by number from 1.
      profile: [users,·] int32, columns of query rows that are of users; None without.
    """
    schema: Schema
    sequences: DataSequences
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
    counts, columns, weights = training_counts.count(log)
    query, entries = query_features.encode_each(columns, weights, log.earlier, settings)
    tables = tables_lib.tables_of(log, counts, query, settings, identity, report)
    sequences = DataSequences(log, tables.vocabulary, entries)
    feature_rows, found, pairs = dict(zip(log.features, tables.feature_rows)), Tally(), {}
    for clicks, part, mask in log.trained():
        found += sizes.counts(clicks, part, mask, sequences.of(clicks, part, mask), tables.vocabulary)
        for name, own in foresight.pairs_of_features(clicks, mask, clicks.user, feature_rows).items():
            pairs[name] = foresight.summed(pl.concat([pairs[name], own])) if name in pairs else own
    tables_lib.report_of(tables, found, pairs, report)
    return dataset_of(tables, sequences, _exposures(log, counts, tables.vocabulary, settings, report), report)


def dataset_of(tables: Tables, sequences: DataSequences, exposures: Optional[np.ndarray], report: dict) -> Dataset:
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


def _exposures(log: SplitLog, counts: Counts, vocabulary: Vocabulary, settings: PrepareConfig, report: dict
               ) -> Optional[np.ndarray]:
    """What users were shown up to their training clicks, which are held in memory; None without --impressions."""
    if not settings.impressions:
        return None
    impressions.check_timed(settings, counts.last_click is not None)
    trained = splits.joined([clicks.where(mask) for clicks, _, mask in log.trained()])
    return impressions.exposures_of_log(settings, log.users, log.items["item"], vocabulary.item_id, trained, report)
