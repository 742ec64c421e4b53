"""What is counted over all clicks before ids are given: how often items, users and entries are trained on."""
import dataclasses

import numpy as np

from clrec_tf.data.query_features import CONTEXT
from clrec_tf.preparation.query_features import Column
from clrec_tf.preparation.split_log import SplitLog
from clrec_tf.preparation.tables import Counts


def count(log: SplitLog) -> tuple[Counts, list[Column], list[np.ndarray]]:
    """Counts of a log, by one walk through its clicks.

    Returns:
      Of items and users; the log's query columns, those of requests by how many clicks have each of their entries; and
      how many training clicks each row of the codes of these columns has.
    """
    of_items, of_users = (np.zeros(len(ids), np.int64) for ids in (log.items, log.users))
    last_click, has_dwell = None, False
    entries = [len(column.codes) for column in log.query_columns if column.source == CONTEXT]
    trained, present = ([np.zeros(size, np.int64) for size in entries] for _ in range(2))
    for clicks, _, mask in log.trained():
        of_items += np.bincount(clicks.item[mask], minlength=len(of_items))
        of_users += np.bincount(clicks.user[mask], minlength=len(of_users))
        if clicks.timestamp is not None:
            last_click = np.full(len(of_items), -1, np.int64) if last_click is None else last_click
            np.maximum.at(last_click, clicks.item, clicks.timestamp)
        for place, size in enumerate(entries):
            trained[place] += np.bincount(clicks.context[mask, place], minlength=size)
            present[place] += np.bincount(clicks.context[:, place], minlength=size)
        has_dwell = clicks.dwell is not None
    of_context = iter(present)
    columns = [dataclasses.replace(column, repeats=next(of_context)) if column.source == CONTEXT else column
               for column in log.query_columns]
    weights = iter(trained)
    return (Counts(of_items, of_users, last_click, has_dwell), columns,
            [next(weights) if column.source == CONTEXT else of_users for column in columns])
