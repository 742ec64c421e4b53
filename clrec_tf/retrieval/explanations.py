"""The clicks that a retrieved item rests on: what its score loses when one of them is left out."""
import dataclasses
from typing import Sequence

import numpy as np

from clrec_tf.data.histories import last_known
from clrec_tf.retrieval.retriever import Retriever
from clrec_tf.retrieval.user_requests import UserRequest

SHOWN = 3  # clicks given of each item
_PER_CLICK = ("history", "timestamps", "dwell", "events")


def with_clicks(request: UserRequest, places: Sequence[int]) -> UserRequest:
    """The request with the clicks at some places alone, and what is known of them."""
    lists = {name: getattr(request, name) for name in _PER_CLICK if getattr(request, name) is not None}
    return dataclasses.replace(request, **{name: [values[place] for place in places] for name, values in lists.items()})


def effects(vectors: np.ndarray, items: np.ndarray) -> np.ndarray:
    """What the score of each item loses with each click; an item's score is its highest over a user's intents.

    Args:
      vectors: float32 [1+L,K,d], of the user with all clicks, and without each of L.
      items: float32 [M,d], of retrieved items.

    Returns:
      float32 [L,M].
    """
    scores = np.einsum("lkd,md->lkm", vectors, items).max(axis=1)
    return scores[0] - scores[1:]


def explanations(retriever: Retriever, request: UserRequest, plan, ids: Sequence) -> list[list[dict]]:
    """For each of a user's retrieved items the clicks without which its score would be lower, most effective first.

    Only what the tower reads counts: the latest known clicks, at most --max_history. So a user is encoded once more for
    each of these. What several clicks say alike shows little of each; effects do not add up to the score.

    Args:
      retriever: that retrieved them.
      request, plan: of the user.
      ids: original ids retrieved, M.

    Returns:
      M lists of at most `SHOWN` {"id": click, "effect": what the score loses}.
    """
    read = last_known(plan.history >= 0, retriever.bundle.manifest["max_history"])
    requests = [with_clicks(request, read), *(with_clicks(request, np.delete(read, left_out))
                                              for left_out in range(len(read)))]
    bare = dataclasses.replace(plan.options, exclude=(), allow=None, passing=())
    vectors = retriever.encode(requests, retriever.plans(requests, [bare] * len(requests))).vectors
    positions = retriever.bundle.all_positions(retriever.bundle.id_array(list(ids)))
    lost = effects(vectors[:, :plan.options.intents], retriever.bundle.item_vectors(positions))
    return [[{"id": request.history[read[click]], "effect": round(float(column[click]), 6)}
             for click in np.argsort(-column, kind="stable")[:SHOWN] if column[click] > 0] for column in lost.T]
