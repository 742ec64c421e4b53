"""Clicks -> training, validation and test sequences. Pure functions on arrays.

Letters: N clicks, R sequences of one part, E events of one part, V items of the vocabulary.
"""
import dataclasses
from typing import Optional, Sequence

import numpy as np

TRAIN, VALID, TEST = 0, 1, 2
DAY = 86_400  # seconds


@dataclasses.dataclass(frozen=True)
class Clicks:
    """Clicks of all users, a user's together and oldest first.

    Attributes:
      user: [N] int32, ascending from 0.
      item: [N] int32, index into a table of the log's items.
      timestamp: [N] int64, seconds; None without time stamps.
      dwell: [N] int64, seconds that the user stayed, −1 = unknown; None without dwell times.
      event: [N] int64, number of the behaviour, 0 = none; None where behaviours have no weights.
      context: [N,·] int32, columns of query rows that are of requests; None without.
    """
    user: np.ndarray
    item: np.ndarray
    timestamp: Optional[np.ndarray]
    dwell: Optional[np.ndarray] = None
    event: Optional[np.ndarray] = None
    context: Optional[np.ndarray] = None

    def where(self, mask: np.ndarray) -> "Clicks":
        """The clicks [M] that mask [N] selects."""
        return Clicks(self.user[mask], self.item[mask], *(
            None if values is None else values[mask]
            for values in (self.timestamp, self.dwell, self.event, self.context)))


def joined(clicks: Sequence[Clicks]) -> Clicks:
    """Clicks of users after users as one."""
    columns = zip(*(vars(each).values() for each in clicks))
    return Clicks(*(None if column[0] is None else np.concatenate(column) for column in columns))


@dataclasses.dataclass(frozen=True)
class Sequences:
    """Sequences of one part; sequence r holds events offsets[r] to offsets[r + 1], oldest first.

    Attributes:
      user: [R] int32.
      offsets: [R + 1] int64.
      target_count: [R] int64, how many of a sequence's last events are targets.
      item: [E] int32, index into the table of the log's items.
      item_id: [E] int32, id in the vocabulary or a hash bucket; 0 for a target outside the vocabulary.
      timestamp, dwell: [E] int64, seconds, or None.
      event: [E] int64, number of the behaviour, or None.
      context: [E,·] int32, columns of query rows that are of requests, or None.
    """
    user: np.ndarray
    offsets: np.ndarray
    target_count: np.ndarray
    item: np.ndarray
    item_id: np.ndarray
    timestamp: Optional[np.ndarray]
    dwell: Optional[np.ndarray] = None
    event: Optional[np.ndarray] = None
    context: Optional[np.ndarray] = None

    def __len__(self) -> int:
        return len(self.user)


def _positions(user: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ascending user [N] -> position of each click from its user's first and from its last [N]."""
    lengths = np.bincount(user) if len(user) else np.zeros(0, np.int64)
    ends = np.cumsum(lengths)
    index = np.arange(len(user))
    return index - (ends - lengths)[user], ends[user] - 1 - index


def among_last(clicks: Clicks, length: int) -> np.ndarray:
    """Which clicks [N] are among their user's last `length`."""
    return _positions(clicks.user)[1] < length


def most_recent(clicks: Clicks, length: int) -> Clicks:
    """Each user's last `length` clicks."""
    return clicks.where(among_last(clicks, length))


def leave_one_out(clicks: Clicks) -> np.ndarray:
    """Part of each click [N]: a user's last is TEST, the one before VALID; users with under 3 clicks only train."""
    from_first, from_last = _positions(clicks.user)
    part = np.where(from_last == 0, TEST, np.where(from_last == 1, VALID, TRAIN))
    return np.where(from_first + from_last + 1 >= 3, part, TRAIN).astype(np.int8)


def last_days(clicks: Clicks, test_days: int, valid_days: int, utc_offset: float, latest: Optional[int] = None
              ) -> np.ndarray:
    """Part of each click [N] by its local day: the last `test_days` are TEST, the `valid_days` before them VALID.

    Args:
      clicks: with time stamps.
      test_days, valid_days: numbers of days.
      utc_offset: hours added to UTC before days are counted.
      latest: time of the last click of the log, where these are not all of its clicks.
    """
    shift = round(utc_offset * 3600)
    day = (clicks.timestamp + shift) // DAY
    before_test = ((clicks.timestamp.max() if latest is None else latest) + shift) // DAY - test_days
    return np.where(day > before_test, TEST, np.where(day > before_test - valid_days, VALID, TRAIN)).astype(np.int8)


def training_mask(clicks: Clicks, part: np.ndarray, min_length: int) -> np.ndarray:
    """Clicks [N] that are trained on: of TRAIN, and of a user with at least `min_length` of them."""
    in_train = part == TRAIN
    lengths = np.bincount(clicks.user, weights=in_train)
    return in_train & (lengths[clicks.user] >= min_length)


def training_sequences(clicks: Clicks, mask: np.ndarray, item_id: np.ndarray) -> Sequences:
    """One sequence per user from the clicks that mask [N] selects, without items whose id is 0; its last is the target.

    Args:
      clicks: all clicks.
      mask: [N], see `training_mask`.
      item_id: [items of the log] ids, 0 = left out.
    """
    keep = mask & (item_id[clicks.item] > 0)
    kept = clicks.where(keep)
    return _sequences(kept, item_id, np.diff(kept.user, append=-1) != 0)


def evaluation_sequences(clicks: Clicks, part: np.ndarray, which: int, item_id: np.ndarray,
                         num_items: int) -> Sequences:
    """History and targets of each user with at least one target and one known item of history.

    Args:
      clicks: all clicks.
      part: [N] part of each click; a user's parts never decrease.
      which: VALID or TEST: its clicks are the targets, those of earlier parts the history.
      item_id: [items of the log] ids up to V, hash buckets above it, 0 = outside.
      num_items: V.

    Returns:
      Sequences whose histories lack items with id 0; targets outside the vocabulary stay, with id 0 and no bucket.
    """
    target = part == which
    keep = target | ((part < which) & (item_id[clicks.item] > 0))
    users = clicks.user.max(initial=-1) + 1
    targets = np.bincount(clicks.user, weights=target, minlength=users)
    history = np.bincount(clicks.user, weights=keep & ~target, minlength=users)
    keep &= ((targets > 0) & (history > 0))[clicks.user]
    sequences = _sequences(clicks.where(keep), item_id, target[keep])
    sequences.item_id[target[keep] & (sequences.item_id > num_items)] = 0
    return sequences


def _sequences(clicks: Clicks, item_id: np.ndarray, target: np.ndarray) -> Sequences:
    """Groups clicks [E] by user; target [E] marks targets."""
    first = np.flatnonzero(np.diff(clicks.user, prepend=-1))
    offsets = np.append(first, len(clicks.user)).astype(np.int64)
    target_count = np.add.reduceat(target, first, dtype=np.int64) if len(first) else np.zeros(0, np.int64)
    return Sequences(clicks.user[first], offsets, target_count, clicks.item, item_id[clicks.item], clicks.timestamp,
                     clicks.dwell, clicks.event, clicks.context)
