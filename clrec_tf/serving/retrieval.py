"""From users to their items, by the tower and the index of a bundle: one search per intent, then one list."""
import dataclasses
from typing import Optional, Sequence, Union

import numpy as np

from clrec_tf.errors import UserError
from clrec_tf.serving import merge as merge_lib
from clrec_tf.serving.bundle import Bundle
from clrec_tf.serving.intents import Intents, default_count
from clrec_tf.serving.saved_model import PADDING
from clrec_tf.serving.user_requests import UserRequest


@dataclasses.dataclass(frozen=True)
class Retrieved:
    """One user's result.

    Attributes:
      user_id: as in the request.
      ids: original ids, at most k, best first; the most popular items for a history without a known item.
      titles: of these items, or None if the catalogue has none.
      scores: ⟨f, g⟩ of each, the cosine for cosine models; 0 for a history without a known item.
      unknown: items of the history that the catalogue does not have, which the result does not depend on.
      intents: number of the intent that brought each item, or None if the model has only one.
      weights: of each intent searched, by number, the heaviest first; or None if the model has only one.
    """
    user_id: Optional[Union[int, str]]
    ids: list
    titles: Optional[list[str]]
    scores: list[float]
    unknown: list
    intents: Optional[list[int]] = None
    weights: Optional[dict[int, float]] = None

    def entries(self) -> dict:
        """As a dict for JSON or a table, without what does not apply."""
        return {name: value for name, value in dataclasses.asdict(self).items()
                if value is not None and (value or name != "unknown")}


class Retriever:
    """Retrieves k items per user.

    Args:
      bundle: loaded.
      k: items per user; fewer come where the catalogue has no more.
      exclude_seen: leave every item of the history out, also those older than the tower looks at.
      intents: K, the heaviest intents searched (0: `default_count`).
      merge: "maximum" or "quota", see `merge`.

    Raises:
      UserError: more intents are asked for than the model has.
    """

    def __init__(self, bundle: Bundle, k: int, exclude_seen: bool, intents: int = 0, merge: str = "maximum"):
        self.bundle, self.k, self.exclude_seen = bundle, k, exclude_seen
        available = bundle.manifest["intents"]
        if intents > available:
            raise UserError(f"--intents={intents}: the model of {bundle.path} has {available}; give at most that many, "
                            "or 0")
        self.intents, self.merge, self.several = intents or default_count(available), merge, available > 1

    def __call__(self, requests: Sequence[UserRequest]) -> tuple[list[Retrieved], Intents]:
        """Requests of N users -> their results, and what they were searched with."""
        positions = self._positions(requests)
        users = self.encode(requests, positions)
        seen = [np.unique(found[found >= 0]) if self.exclude_seen else np.empty(0, np.int64) for found in positions]
        best, scores, columns = self._search(users, seen)
        results = []
        for row, (request, found) in enumerate(zip(requests, positions)):
            keep = best[row] >= 0
            unknown = list(dict.fromkeys(item for item, place in zip(request.history, found) if place < 0))
            brought = dict(intents=users.numbers[row, columns[row, keep]].tolist(),
                           weights=dict(zip(users.numbers[row].tolist(), _rounded(users.weights[row]))))
            results.append(Retrieved(
                request.user_id, self.bundle.item_ids[best[row, keep]].tolist(),
                None if self.bundle.titles is None else self.bundle.titles[best[row, keep]].tolist(),
                _rounded(scores[row, keep]), unknown, **brought if self.several else {}))
        return results, users

    def _search(self, users, seen):
        """Merged positions, scores and columns, each [N,k], without the items seen."""
        # Each intent is searched for k more than may be the user's own: then the merge by maximum is exact.
        wanted = min(self.k + max(map(len, seen), default=0), self.bundle.index.size)
        lists = users.numbers.shape + (wanted,)
        near, scores = (found.reshape(lists) for found in self.bundle.index.search(users.queries(), wanted))
        for row, own in zip(near, seen):
            row[np.isin(row, own)] = -1
        if self.merge == "quota":
            return merge_lib.by_quota(near, scores, users.weights, self.k)
        return merge_lib.by_maximum(near, scores, self.k)

    def encode(self, requests: Sequence[UserRequest], positions=None) -> Intents:
        """Requests of N users -> the vectors that they are searched with."""
        positions = self._positions(requests) if positions is None else positions
        width = self.bundle.manifest["max_history"]
        ids = np.full((len(requests), width), PADDING[self.bundle.manifest["id_type"]], self.bundle.item_ids.dtype)
        times, dwell = np.zeros(ids.shape, np.int64), np.full(ids.shape, -1, np.int64)
        for row, (request, found) in enumerate(zip(requests, positions)):
            # The tower would drop the rest itself; dropping it here bounds the batch whatever the histories' lengths.
            recent = np.flatnonzero(found >= 0)[-width:]
            ids[row, :len(recent)] = self.bundle.item_ids[found[recent]]
            if request.timestamps is not None:
                times[row, :len(recent)] = np.array(request.timestamps, np.int64)[recent]
            if request.dwell is not None:
                dwell[row, :len(recent)] = np.array(request.dwell, np.int64)[recent]
        request_times = np.array([request.request_time or 0 for request in requests])
        return self.bundle.user_intents(ids, times, request_times, dwell, self.intents)

    def _positions(self, requests):
        """Of each request: the position of every item of its history, −1 where unknown."""
        dtype = np.int64 if self.bundle.manifest["id_type"] == "int" else str
        flat = np.array([item for request in requests for item in request.history], dtype)
        ends = np.cumsum([len(request.history) for request in requests])
        return np.split(self.bundle.positions(flat), ends[:-1])


def _rounded(values):
    return [round(float(value), 6) for value in values]
