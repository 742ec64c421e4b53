"""From users to their items, by the tower and the index of a bundle."""
import dataclasses
from typing import Optional, Sequence, Union

import numpy as np

from clrec_tf.serving.bundle import Bundle
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
    """
    user_id: Optional[Union[int, str]]
    ids: list
    titles: Optional[list[str]]
    scores: list[float]
    unknown: list

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
    """

    def __init__(self, bundle: Bundle, k: int, exclude_seen: bool):
        self.bundle, self.k, self.exclude_seen = bundle, k, exclude_seen

    def __call__(self, requests: Sequence[UserRequest]) -> tuple[list[Retrieved], np.ndarray]:
        """Requests of N users -> their results, and their vectors [N,d]."""
        positions = self._positions(requests)
        vectors = self.encode(requests, positions)
        seen = [np.unique(found[found >= 0]) if self.exclude_seen else np.empty(0, np.int64) for found in positions]
        # Up to this many of the best items may be the user's own.
        wanted = min(self.k + max(map(len, seen), default=0), self.bundle.index.size)
        near, scores = self.bundle.index.search(vectors, wanted)
        results = []
        for request, found, own, row, row_scores in zip(requests, positions, seen, near, scores):
            keep = np.flatnonzero((row >= 0) & ~np.isin(row, own))[:self.k]
            best = row[keep]
            titles = None if self.bundle.titles is None else self.bundle.titles[best].tolist()
            unknown = list(dict.fromkeys(item for item, place in zip(request.history, found) if place < 0))
            results.append(Retrieved(request.user_id, self.bundle.item_ids[best].tolist(), titles,
                                     [round(float(score), 6) for score in row_scores[keep]], unknown))
        return results, vectors

    def encode(self, requests: Sequence[UserRequest], positions=None) -> np.ndarray:
        """Requests of N users -> their vectors [N,d]."""
        positions = self._positions(requests) if positions is None else positions
        width = self.bundle.manifest["max_history"]
        ids = np.full((len(requests), width), PADDING[self.bundle.manifest["id_type"]], self.bundle.item_ids.dtype)
        times = np.zeros((len(requests), width), np.int64)
        for row, (request, found) in enumerate(zip(requests, positions)):
            # The tower would drop the rest itself; dropping it here bounds the batch whatever the histories' lengths.
            recent = np.flatnonzero(found >= 0)[-width:]
            ids[row, :len(recent)] = self.bundle.item_ids[found[recent]]
            if request.timestamps is not None:
                times[row, :len(recent)] = np.array(request.timestamps, np.int64)[recent]
        return self.bundle.user_vectors(ids, times, np.array([request.request_time or 0 for request in requests]))

    def _positions(self, requests):
        """Of each request: the position of every item of its history, −1 where unknown."""
        dtype = np.int64 if self.bundle.manifest["id_type"] == "int" else str
        flat = np.array([item for request in requests for item in request.history], dtype)
        ends = np.cumsum([len(request.history) for request in requests])
        return np.split(self.bundle.positions(flat), ends[:-1])
