"""A numbered log with each user's clicks by time, and what is said of all clicks before they are split."""
import dataclasses
import time
from typing import Optional

import numpy as np

from clrec_tf.preparation import click_parts
from clrec_tf.preparation.click_parts import ClickParts
from clrec_tf.preparation import dwell
from clrec_tf.preparation.numbered_rows import NumberedRows
from clrec_tf.preparation import plausibility
from clrec_tf.preparation import split_rule
from clrec_tf.preparation import splits
from clrec_tf.preparation.splits import Clicks
from clrec_tf.settings.data import PrepareConfig
from clrec_tf.tabular_files.value_counts import ValueCounts


@dataclasses.dataclass
class SortedLog:
    """The most recent clicks of each user, oldest first.

    Attributes:
      clicks: by user.
      last: [U] time stamp of each user's last click; None without time stamps.
      days: `split_rule.by_day`.
    """
    clicks: ClickParts
    last: Optional[np.ndarray]
    days: tuple[np.ndarray, np.ndarray]

    @property
    def newest(self) -> Optional[int]:
        """Time of the last click; None without time stamps."""
        return None if self.last is None else int(self.last.max())


class _Kept:
    """Chooses the clicks that are kept of some users, and counts them."""

    def __init__(self, log: NumberedRows, settings: PrepareConfig):
        self._settings, self._timed = settings, "timestamp" in log.by
        self.last = np.zeros(len(log.users), np.int64)
        self.clicks = self.together = 0
        self.dwells, self.days = ValueCounts(), []

    def __call__(self, clicks: Clicks) -> np.ndarray:
        """Which of the clicks [N] are kept."""
        kept = splits.among_last(clicks, self._settings.max_sequence_length)
        self.clicks += int(kept.sum())
        if clicks.dwell is not None:
            self.dwells.add(clicks.dwell[kept])
        if self._timed:
            self.together += plausibility.at_equal_times(clicks)
            self.last[clicks.user] = clicks.timestamp  # the last one stays
            self.days += split_rule.days_of(clicks.timestamp[kept], self._settings)
        return kept


def sort(log: NumberedRows, settings: PrepareConfig, report: dict) -> SortedLog:
    """Sorts a log by user and time, and keeps each user's --max_sequence_length most recent clicks.

    Args:
      log: by numbers.
      settings: of the command.
      report: gets figures of the clicks, as `plausibility`, and what is kept of them.
    """
    keep, timed = _Kept(log, settings), "timestamp" in log.by
    clicks = click_parts.in_order(log.parts, log.by, keep, settings)
    seen = plausibility.Seen(log.clicks_of_users, log.clicks_of_items, log.seconds, log.at_second, keep.together)
    report["plausibility"] = plausibility.of_clicks(seen, log.users, log.items["item"], time.time(),
                                                    settings.utc_offset)
    report.update(dropped_beyond_max_sequence_length=int(log.clicks_of_users.sum()) - keep.clicks, clicks=keep.clicks,
                  users=len(log.users), items=len(log.items))
    if keep.dwells.total:
        report["dwell"] = dwell.summary(*keep.dwells.totals())
    return SortedLog(clicks, keep.last if timed else None, split_rule.by_day(keep.days))
