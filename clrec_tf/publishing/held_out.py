"""Held-out users as a server would send them, beside the vectors that the live model gives them."""
import dataclasses

import numpy as np

from clrec_tf.data.evaluation_set import EvaluationSet
from clrec_tf.data.evaluation_set import OF_HISTORY
from clrec_tf.errors import DataError
from clrec_tf.models.dial import with_coordinate
from clrec_tf.models.encode import Encoder
from clrec_tf.publishing.candidates import Candidates
from clrec_tf.retrieval.query_values import QueryValues
from clrec_tf.retrieval.search_vectors import Intents
from clrec_tf.retrieval.signatures import PADDING

_BATCH = 256


@dataclasses.dataclass(frozen=True)
class HeldOutUsers:
    """n users with at least one known click.

    Attributes:
      requests: per batch, inputs of `serving_default` by name, as arrays with original ids; popularity is 0.
      intents: all H of each by the live model, in the order of the requests, without the dial's coordinate.
      served: how many of them a user is searched with where nobody says.
    """
    requests: list[dict[str, np.ndarray]]
    intents: Intents
    served: int

    def queries(self, count: int) -> np.ndarray:
        """The `count` heaviest vectors of each user at popularity 0, float32 [N·K,d+1], a user's together."""
        return with_coordinate(self.intents.heaviest(count).queries(), 0.0)


def held_out_users(encoder: Encoder, candidates: Candidates, users: EvaluationSet, id_type: str, max_users: int,
                   query: QueryValues = QueryValues()) -> HeldOutUsers:
    """Encodes users by the live model and phrases them as requests, items outside the catalogue left in as padding.

    Args:
      encoder: of the live model.
      candidates: the encoded catalogue.
      users: of the test or validation part.
      id_type: "int" or "string".
      max_users: users taken, at random.
      query: of the model.

    Raises:
      DataError: no user has a click on an item of the catalogue.
    """
    known = _only_among(users, candidates.item_numbers)
    usable = np.diff(known.history_splits) > 0
    chosen = np.flatnonzero(usable)
    if not len(chosen):
        raise DataError("no held-out user has a click on an item of the catalogue, so parity and recall cannot be "
                        "measured: prepare with a split that leaves such users")
    if len(chosen) > max_users:
        chosen = np.sort(np.random.default_rng(0).choice(chosen, max_users, replace=False))
    original = np.full(candidates.item_numbers.max() + 1, PADDING[id_type], candidates.original_ids.dtype)
    original[candidates.item_numbers] = candidates.original_ids
    requests = [_request(users.take(chosen[start:start + _BATCH]), original, encoder.model, query)
                for start in range(0, len(chosen), _BATCH)]
    return HeldOutUsers(requests, Intents(*encoder.user_intents(known.take(chosen))), encoder.model.served_intents)


def _only_among(users, items):
    """The users without clicks on other items, such as hash buckets."""
    keep = np.isin(users.history_ids, items)
    ends = np.append(0, np.cumsum(keep))
    optional = {name: None if getattr(users, name) is None else getattr(users, name)[keep]
                for name in OF_HISTORY}
    return dataclasses.replace(users, history_ids=users.history_ids[keep],
                               history_splits=ends[users.history_splits], **optional)


def _request(users, original, model, query):
    histories = users.histories(0, users.num_users, max(1, np.diff(users.history_splits).max()))
    ids = histories.item_rows[:, :, 0]
    request = {"history": original[np.where(ids < len(original), ids, 0)],
               "popularity": np.zeros(len(ids), np.float32)}
    if model.uses_time:
        request["timestamps"] = np.zeros(ids.shape, np.int64)
        request["timestamps"][histories.mask] = users.history_times
        request["request_time"] = users.request_times.astype(np.int64)
    if model.uses_dwell:
        request["dwell"] = histories.dwell
    if query.events:
        request["events"] = np.array(["", *query.events], object)[histories.events]
    if query.features:
        request |= query.example_of(histories.query)
    return request
