"""The users that are evaluated: what they clicked before, and what they clicked next."""
import dataclasses
from typing import Optional, Sequence

import numpy as np

from clrec_tf.data import histories
from clrec_tf.errors import DataError


OF_HISTORY = ("history_features", "history_times", "history_dwell", "history_events", "history_context")  # optional


@dataclasses.dataclass(frozen=True)
class Histories:
    """What the query tower sees of n users: the last T clicks, oldest first, padded with 0 at the right.

    Attributes:
      item_rows: int64 [n,T,C], item id and features.
      mask: bool [n,T], True where there is a click.
      time_gaps: int64 [n,T], seconds between the click and the request, ≥ 0; -1 at padding and where a time
        stamp is missing (≤ 0).
      dwell: int64 [n,T], seconds that the user stayed; -1 at padding and where unknown.
      events: int64 [n,T], number of each click's behaviour, 0 = none, and at padding.
      query: int64 [n,W], query rows, see ``query_features``; W is 0 without.
    """
    item_rows: np.ndarray
    mask: np.ndarray
    time_gaps: np.ndarray
    dwell: np.ndarray
    events: np.ndarray
    query: np.ndarray


@dataclasses.dataclass(frozen=True)
class EvaluationSet:
    """U users; user u owns entries `splits[u]:splits[u + 1]` of a flat array, in time order.

    Attributes:
      user_ids: int [U].
      history_ids: int [E], item ids from 1, the full histories.
      history_splits: int [U+1].
      target_ids: int [G], item ids; 0, or an id above the catalogue, is a target outside the vocabulary.
      target_splits: int [U+1]; every user has a target, and the first is the next click.
      history_features: int [E,C-1], the history's item features in schema order, or None without features.
      history_times: int [E], seconds, or None without time stamps.
      request_times: int [U], seconds: the time of the first target, or None.
      history_dwell: int [E], seconds that the user stayed, < 0 = unknown, or None without dwell times.
      history_events: int [E], number of each click's behaviour, or None.
      history_context: int [E,·], columns of the query row that are of requests, for each click; or None.
      query: int [U,W], query row of the request for the first target, or None without query features.
    """
    user_ids: np.ndarray
    history_ids: np.ndarray
    history_splits: np.ndarray
    target_ids: np.ndarray
    target_splits: np.ndarray
    history_features: Optional[np.ndarray] = None
    history_times: Optional[np.ndarray] = None
    request_times: Optional[np.ndarray] = None
    history_dwell: Optional[np.ndarray] = None
    history_events: Optional[np.ndarray] = None
    history_context: Optional[np.ndarray] = None
    query: Optional[np.ndarray] = None

    def __post_init__(self):
        users = len(self.user_ids)
        for name, splits, flat in (("history", self.history_splits, self.history_ids),
                                   ("target", self.target_splits, self.target_ids)):
            if len(splits) != users + 1 or splits[0] != 0 or splits[-1] != len(flat) or np.any(np.diff(splits) < 0):
                raise DataError(f"{name}_splits do not divide {len(flat)} entries among {users} users")
        if np.any(np.diff(self.target_splits) < 1):
            raise DataError(f"user {self.user_ids[np.argmin(np.diff(self.target_splits))]} has no target")

    @property
    def num_users(self) -> int:
        """U."""
        return len(self.user_ids)

    @property
    def next_clicks(self) -> np.ndarray:
        """int [U]: each user's first target."""
        return self.target_ids[self.target_splits[:-1]]

    def history_pairs(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """(row, item id), both [events], of the clicks of users start..stop-1; rows count from 0 at `start`."""
        return _pairs(self.history_ids, self.history_splits, start, stop)

    def target_pairs(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """(row, item id), both [targets], of the targets of users start..stop-1; rows count from 0 at `start`."""
        return _pairs(self.target_ids, self.target_splits, start, stop)

    def histories(self, start: int, stop: int, max_history: int) -> Histories:
        """Histories of users start..stop-1, cut to the last T = `max_history` clicks."""
        splits = self.history_splits[start:stop + 1]
        places, mask = histories.last_clicks(splits[:-1], splits[1:], max_history)
        clicks = places[mask]
        features = 0 if self.history_features is None else self.history_features.shape[1]
        item_rows = np.zeros(mask.shape + (1 + features,), np.int64)
        item_rows[mask, 0] = self.history_ids[clicks]
        if features:
            item_rows[mask, 1:] = self.history_features[clicks]
        time_gaps = np.full(mask.shape, histories.UNKNOWN_GAP, np.int64)
        if self.history_times is not None:
            times = np.zeros(mask.shape, np.int64)
            times[mask] = self.history_times[clicks]
            time_gaps = histories.time_gaps(self.request_times[start:stop, None], times, mask)
        dwell = np.full(mask.shape, histories.UNKNOWN_DWELL, np.int64)
        if self.history_dwell is not None:
            dwell[mask] = self.history_dwell[clicks]
            dwell = histories.dwell_times(dwell, mask)
        events = np.zeros(mask.shape, np.int64)
        if self.history_events is not None:
            events[mask] = self.history_events[clicks]
        query = np.zeros((len(mask), 0), np.int64) if self.query is None else self.query[start:stop].astype(np.int64)
        return Histories(item_rows, mask, time_gaps, dwell, events, query)

    def take(self, rows: np.ndarray) -> "EvaluationSet":
        """The users at positions rows [N], in that order."""
        events, history_splits = _entries(self.history_splits, rows)
        targets, target_splits = _entries(self.target_splits, rows)
        optional = dict.fromkeys(OF_HISTORY, events) | dict(request_times=rows, query=rows)
        return EvaluationSet(
            user_ids=self.user_ids[rows], history_ids=self.history_ids[events], history_splits=history_splits,
            target_ids=self.target_ids[targets], target_splits=target_splits,
            **{name: None if getattr(self, name) is None else getattr(self, name)[places]
               for name, places in optional.items()})

    def random_prefixes(self, seed: int) -> "EvaluationSet":
        """Each user as it was after a random number of clicks, at least one: its history ends there, the click that
        followed is its target. Of one target each; users without a history are left out."""
        users = self.take(np.flatnonzero(np.diff(self.history_splits)))
        lengths, begins = np.diff(users.history_splits), users.history_splits[:-1]
        kept = np.random.default_rng(seed).integers(1, lengths + 1)
        inside = kept < lengths  # else the target stays
        following = np.where(inside, begins + np.minimum(kept, lengths - 1), 0)
        entries = np.arange(len(users.history_ids)) - np.repeat(begins, lengths) < np.repeat(kept, lengths)
        cut = {name: None if getattr(users, name) is None else getattr(users, name)[entries]
               for name in ("history_ids", *OF_HISTORY)}
        times = None if users.request_times is None else np.where(inside, users.history_times[following],
                                                                  users.request_times)
        query = users.query
        if query is not None:
            begin = query.shape[1] - users.history_context.shape[1]
            query = np.concatenate([query[:, :begin], np.where(
                inside[:, None], users.history_context[following], query[:, begin:])], axis=1)
        return dataclasses.replace(
            users, history_splits=np.append(0, np.cumsum(kept)), request_times=times, query=query,
            target_ids=np.where(inside, users.history_ids[following], users.next_clicks),
            target_splits=np.arange(users.num_users + 1), **cut)

    def without_histories(self) -> "EvaluationSet":
        """The same users as if no click of theirs were known."""
        nothing = {name: None if getattr(self, name) is None else getattr(self, name)[:0]
                   for name in ("history_ids", *OF_HISTORY)}
        return dataclasses.replace(self, history_splits=np.zeros_like(self.history_splits), **nothing)

    def sample(self, max_users: int, seed: int) -> "EvaluationSet":
        """At most `max_users` users (0: all) drawn without replacement, in their order."""
        return self.take(self.sample_rows(max_users, seed)) if 0 < max_users < self.num_users else self

    def sample_rows(self, max_users: int, seed: int) -> np.ndarray:
        """Which users `sample` takes, ascending."""
        if not 0 < max_users < self.num_users:
            return np.arange(self.num_users)
        return np.sort(np.random.default_rng(seed).choice(self.num_users, max_users, replace=False))


def concatenate(pieces: Sequence[EvaluationSet]) -> EvaluationSet:
    """The users of all pieces, in order; the pieces agree in which optional arrays they have."""
    def joined(name):
        arrays = [getattr(piece, name) for piece in pieces]
        if arrays[0] is None:
            return None
        if name.endswith("_splits"):
            return np.append(0, np.cumsum(np.concatenate([np.diff(splits) for splits in arrays])))
        return np.concatenate(arrays)
    return EvaluationSet(**{field.name: joined(field.name) for field in dataclasses.fields(EvaluationSet)})


def _pairs(flat, splits, start, stop):
    rows = np.repeat(np.arange(stop - start), np.diff(splits[start:stop + 1]))
    return rows, flat[splits[start]:splits[stop]]


def _entries(splits, rows):
    """Positions of the entries of the given users in the flat array, and the splits of the result."""
    lengths = np.diff(splits)[rows]
    new_splits = np.concatenate([[0], np.cumsum(lengths)])
    return np.arange(new_splits[-1]) + np.repeat(splits[:-1][rows] - new_splits[:-1], lengths), new_splits
