"""--split: the part of each click, and what is said or refused where a part comes out too small."""
import dataclasses
from typing import Optional, Sequence

import numpy as np
import polars as pl

from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.preparation import outliers
from clrec_tf.preparation import splits
from clrec_tf.preparation.splits import Clicks
from clrec_tf.preparation.splits import TEST
from clrec_tf.preparation.splits import TRAIN
from clrec_tf.preparation.splits import VALID
from clrec_tf.preparation import user_split
from clrec_tf.settings.data import PrepareConfig
from clrec_tf.tabular_files.tally import Tally
from clrec_tf.tabular_files.tally import tally
from clrec_tf.tabular_files import times


@dataclasses.dataclass(frozen=True)
class SplitRule:
    """How the clicks of a log are split, whichever of its users they are of.

    Attributes:
      settings: of prepare.
      seed: deals users to parts.
      latest: time of the log's last click; None without time stamps.
      tested_after: of --split=by_user: time after which a user's last click is tested.
    """
    settings: PrepareConfig
    seed: int
    latest: Optional[int] = None
    tested_after: int = 0

    def parts(self, clicks: Clicks, users: np.ndarray) -> np.ndarray:
        """Part of each click [N].

        Args:
          clicks: of U users, all that are kept of each.
          users: [U] their numbers in the log.
        """
        settings = self.settings
        if settings.split == "leave_one_out":
            return splits.leave_one_out(clicks)
        if settings.split == "by_user":
            return user_split.parts(clicks, self.tested_after, settings.valid_share, self.seed, users)
        return splits.last_days(clicks, settings.test_days, settings.valid_days, settings.utc_offset, self.latest)


def of_log(last: Optional[np.ndarray], settings: PrepareConfig, seed: int) -> SplitRule:
    """The rule of a log.

    Args:
      last: [U] time of each user's last click; None without time stamps.
      settings: of prepare.
      seed: see `SplitRule`.

    Raises:
      UserError: the split needs time stamps.
    """
    if last is None:
        if settings.split != "leave_one_out":
            raise UserError(f"--split={settings.split} needs time stamps, which the log does not have: use "
                            "--split=leave_one_out")
        return SplitRule(settings, seed)
    after = user_split.split_time(last, settings.split_quantile) if settings.split == "by_user" else 0
    return SplitRule(settings, seed, int(last.max()), after)


def counts(part: np.ndarray) -> Tally:
    """How many clicks [N] are of each part; those of some users add up to those of all."""
    return tally({name: np.count_nonzero(part == which) for name, which in (
        ("train", TRAIN), ("valid", VALID), ("test", TEST), ("left out", user_split.LEFT_OUT))})


def days_of(seconds: np.ndarray, settings: PrepareConfig) -> list[pl.DataFrame]:
    """Local days of the time stamps [N] of some clicks: `day`, its `last` time stamp and `count`.

    Empty where days do not split.
    """
    if settings.split != "last_days":
        return []
    day = (pl.col("last") + round(settings.utc_offset * 3600)) // splits.DAY
    return [pl.DataFrame({"last": seconds}).group_by(day=day).agg(pl.col("last").max(), count=pl.len().cast(pl.Int64))]


def by_day(days: Sequence[pl.DataFrame]) -> tuple[np.ndarray, np.ndarray]:
    """Last time stamp of each day [S], ascending, and the clicks of it [S]; of `days_of` all clicks."""
    if not days:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    whole = pl.concat(days).group_by("day").agg(pl.col("last").max(), pl.col("count").sum()).sort("day")
    return whole["last"].to_numpy(), whole["count"].to_numpy()


def check(rule: SplitRule, found: Tally, users: int, seconds: np.ndarray, at_second: np.ndarray, report: dict) -> None:
    """Adds facts of the split to the report, and warns of parts that are small.

    Args:
      rule: of the log.
      found: `counts` of all clicks.
      users: of the log.
      seconds, at_second: `by_day` of all clicks.
      report: of prepare.

    Raises:
      DataError: nobody is left to train on, or by users to test.
    """
    settings = rule.settings
    if settings.split == "by_user":
        after = times.shown(rule.tested_after, settings.utc_offset)
        for name, of_it in (("to train on", found.count("train")), ("to test", found.count("test"))):
            if not of_it:
                raise DataError(f"--split=by_user leaves no user {name}: of {users} users, {found.count('test')} have "
                                f"their last click after {after}; change --split_quantile={settings.split_quantile} or "
                                f"lower --valid_share={settings.valid_share}")
        report.update(tested_after=after, left_out_by_label=found.count("left out"))
    if settings.split == "last_days":
        if not found.count("train"):
            raise DataError(f"--split=last_days: no click lies before the {settings.valid_days} validation and "
                            f"{settings.test_days} test days; the log runs from {report['first_click']} to "
                            f"{report['last_click']}: lower --valid_days or --test_days"
                            + outliers.after_a_gap(seconds, at_second, settings))
        outliers.warn_of_parts(seconds, at_second, found.count("test"), found.count("valid"), settings)
