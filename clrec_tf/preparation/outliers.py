"""A few late clicks, far behind all others, which leave the parts of a split by days empty."""
from absl import logging
import numpy as np

from clrec_tf.preparation import splits
from clrec_tf.settings.data import PrepareConfig
from clrec_tf.tabular_files import times

_FEW = 0.001  # share of the clicks that a test part must have, not to be taken for outliers behind a gap


def after_a_gap(seconds: np.ndarray, counts: np.ndarray, settings: PrepareConfig) -> str:
    """What to do about the clicks behind the last gap that is as wide as the days tested and validated; or "".

    Args:
      seconds: [S] distinct time stamps, ascending.
      counts: [S] clicks of each.
      settings: of the split by days.
    """
    offset = round(settings.utc_offset * 3600)
    days = np.unique((seconds + offset) // splits.DAY)
    wide = np.flatnonzero(np.diff(days) > max(1, settings.test_days + settings.valid_days - 1))
    if not len(wide):
        return ""
    before, after = days[wide[-1]], days[wide[-1] + 1]
    behind = counts[(seconds + offset) // splits.DAY >= after].sum()
    day = lambda number: times.shown(number * splits.DAY - offset, settings.utc_offset)[:10]
    return (f"; {behind} of {counts.sum()} clicks, the latest of "
            f"{times.shown(seconds[-1], settings.utc_offset)}, lie "
            f"{after - before} days behind the others: if they are mistakes, drop them with --to={day(before + 1)}")


def warn_of_parts(seconds: np.ndarray, counts: np.ndarray, tested: int, validated: int, settings: PrepareConfig
                  ) -> None:
    """Warns where a part by days is empty, or a test part has few clicks behind a gap.

    Args:
      seconds: [S] distinct time stamps, ascending.
      counts: [S] clicks of each.
      tested, validated: clicks of these parts.
      settings: of the split by days.
    """
    gap, total = after_a_gap(seconds, counts, settings), counts.sum()
    if settings.valid_days and not validated:
        logging.warning("--split=last_days: no click lies in the %d validation days%s", settings.valid_days, gap)
    elif gap and tested < _FEW * total:
        logging.warning("--split=last_days: the test part has %d of %d clicks%s", tested, total, gap)
