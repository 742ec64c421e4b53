"""Recall of what a bundle serves, seen items left out and several intents merged: what an index alone does not tell."""
import numpy as np

from clrec_tf.errors import DataError
from clrec_tf.models.top_k import top_k
from clrec_tf.publishing.held_out import HeldOutUsers
from clrec_tf.retrieval.bundle import Bundle
from clrec_tf.retrieval.recall import as_good_as
from clrec_tf.retrieval.recall import Demand
from clrec_tf.retrieval.recall import KS
from clrec_tf.retrieval.retriever import Retriever
from clrec_tf.retrieval.search_options import SearchOptions
from clrec_tf.retrieval.user_requests import UserRequest

USERS = 200  # at most


def recalls_through(bundle: Bundle, held_out: HeldOutUsers, demand: Demand) -> dict:
    """{"recalls_exclude_seen": {"α": {"k": recall}}}: the share of the k best unseen live items that users are given.

    The best are those by the vectors of the bundle itself and NumPy; of equal scores at rank k any will do.

    Raises:
      DataError: a recall is below the target of the demand.
    """
    retriever = Retriever(bundle)
    requests = _requests(held_out, bundle.query)[:USERS]
    items, live, recalls = bundle.item_vectors(), bundle.live, {}
    ks = [k for k in demand.ks if k <= KS[-1]]
    for popularity in demand.popularities:
        options = {k: [SearchOptions(k, exclude_seen=True, popularity=popularity, titles=False)] * len(requests)
                   for k in ks}
        plans = retriever.plans(requests, options[ks[0]])
        users = retriever.encode(requests, plans)
        given = {k: retriever(requests, options[k])[0] for k in ks}
        shares = {k: [] for k in ks}
        for row, plan in enumerate(plans):
            scores = np.where(live, (users.vectors[row] @ items.T).max(axis=0), -np.inf)
            scores[plan.banned] = -np.inf
            best = top_k(scores, ks[-1])[1]
            best = best[np.isfinite(best)]
            for k in ks:
                wanted = min(k, len(best))
                ids = bundle.positions(bundle.id_array(given[k][row].ids))
                hits = np.count_nonzero(as_good_as(scores[ids], best[wanted - 1])) if wanted else 0
                shares[k].append(hits / wanted if wanted else 1.0)
        recalls[f"{popularity:g}"] = {str(k): _gated(shares[k], k, popularity, demand.target_recall) for k in ks}
    return {"recalls_exclude_seen": recalls}


def _gated(shares, k, popularity, target_recall) -> float:
    """The mean; few users are asked, so that only what two standard errors do not explain is refused."""
    recall, error = float(np.mean(shares)), float(np.std(shares) / np.sqrt(len(shares)))
    if recall < target_recall - 2 * error:
        raise DataError(f"without the items seen recall@{k} is {recall:.4f} ± {error:.4f} at popularity "
                        f"{popularity:g}, --target_recall={target_recall} is asked: ask for less, or export with "
                        "--index=exact")
    return recall


def _requests(held_out, query):
    """Held-out users as `UserRequest`s."""
    requests = []
    for request in held_out.requests:
        for row, history in enumerate(request["history"].tolist()):
            times = {name: request[name][row].tolist() for name in ("timestamps", "dwell") if name in request}
            if "request_time" in request:
                times["request_time"] = int(request["request_time"][row])
            times["events"] = request["events"][row].tolist() if "events" in request else None
            times["query"] = {name: _plain(request[name][row]) for name in query.inputs}
            requests.append(UserRequest(None, history, **times))
    return requests


def _plain(value):
    """An array's value, or row, as JSON has it."""
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value
