"""Recall of what a bundle serves, seen items left out and several intents merged: what an index alone does not tell."""
import numpy as np

from clrec_tf.serving.bundle import Bundle
from clrec_tf.serving.held_out import HeldOutUsers
from clrec_tf.serving.retrieval import Retriever
from clrec_tf.serving.search_options import SearchOptions
from clrec_tf.serving.recall import Demand, as_good_as
from clrec_tf.serving.user_requests import UserRequest

USERS = 200  # at most


def recalls_through(bundle: Bundle, held_out: HeldOutUsers, demand: Demand) -> dict:
    """{"recalls_exclude_seen": {"α": {"k": recall}}}: the share of the k best unseen live items that users are given.

    The best are those by the vectors of the bundle itself and NumPy; of equal scores at rank k any will do.
    """
    retriever = Retriever(bundle)
    requests = _requests(held_out)[:USERS]
    items, live = bundle.item_vectors(), bundle.live
    recalls = {}
    for popularity in demand.popularities:
        by_k = recalls[f"{popularity:g}"] = {}
        # Users with their vectors and what they may be given, once for all k.
        option = SearchOptions(1, exclude_seen=True, popularity=popularity)
        plans = retriever.plans(requests, [option] * len(requests))
        users = retriever.encode(requests, plans)
        for k in (k for k in demand.ks if k <= 200):
            option = SearchOptions(k, exclude_seen=True, popularity=popularity, titles=False)
            found, _ = retriever(requests, [option] * len(requests))
            shares = [_share(found[row].ids, bundle, items, live, users.vectors[row], plans[row].banned, k)
                      for row in range(len(requests))]
            by_k[str(k)] = float(np.mean(shares))
    return {"recalls_exclude_seen": recalls}


def _share(ids, bundle, items, live, vectors, banned, k):
    scores = np.where(live, (vectors @ items.T).max(axis=0), -np.inf)
    scores[banned] = -np.inf
    candidates = np.count_nonzero(np.isfinite(scores))
    if not candidates:
        return 1.0
    wanted = min(k, candidates)
    bound = np.partition(scores, len(scores) - wanted)[len(scores) - wanted]
    given = bundle.positions(bundle.id_array(ids))
    return np.count_nonzero(as_good_as(scores[given], bound)) / wanted


def _requests(held_out):
    """Held-out users as `UserRequest`s."""
    found = []
    for request in held_out.requests:
        for row, history in enumerate(request["history"].tolist()):
            times = {name: request[name][row].tolist() for name in ("timestamps", "dwell") if name in request}
            if "request_time" in request:
                times["request_time"] = int(request["request_time"][row])
            found.append(UserRequest(None, history, **times))
    return found
