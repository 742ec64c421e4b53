"""From users to their items, by the tower and the index of a bundle: one search per intent, then one list."""
import dataclasses
import functools
import itertools
from typing import Optional
from typing import Sequence
from typing import Union

import numpy as np

from clrec_tf.data.histories import last_known
from clrec_tf.errors import UserError
from clrec_tf.retrieval.attributes import among
from clrec_tf.retrieval.bundle import Bundle
from clrec_tf.retrieval.filtered_search import best_among
from clrec_tf.retrieval.filtered_search import FEW
from clrec_tf.retrieval.filtered_search import search_passing
from clrec_tf.retrieval import merge as merge_lib
from clrec_tf.retrieval.search_options import SearchOptions
from clrec_tf.retrieval.search_vectors import Intents
from clrec_tf.retrieval.user_requests import UserRequest

_FILTERS = 16  # whose items are kept in mind, since requests repeat them: 8 bytes an item that passes


@dataclasses.dataclass(frozen=True)
class Retrieved:
    """One user's result.

    Attributes:
      user_id: as in the request.
      ids: original ids, at most k, best first; the most popular items for a history without a known item.
      titles: of these items, or None if the catalogue has none or they are not wanted.
      scores: ρ·(φ + α·(log p̂ − c)) of each (see `models.dial`), so at popularity 0 the cosine for cosine models of one
        vector per user (of several see `models.multi_clrec`); 0 for
        a history without a known item.
      unknown: items of the history that the tower does not know, which the result does not depend on.
      fallback: whether no item of the history is known, so that the most popular items came.
      intents: number of the intent that brought each item, or None if the model has only one, or none brought them.
      weights: of each intent searched, by number, the heaviest first; or None as for `intents`.
    """
    user_id: Optional[Union[int, str]]
    ids: list
    titles: Optional[list[str]]
    scores: list[float]
    unknown: list
    fallback: bool = False
    intents: Optional[list[int]] = None
    weights: Optional[dict[int, float]] = None

    def entries(self) -> dict:
        """As a dict for JSON or a table, without what does not apply."""
        entries = dict(vars(self))  # not dataclasses.asdict, which copies every list element by element
        return {name: value for name, value in entries.items()
                if value is not None and (value or name not in ("unknown", "fallback"))}


@dataclasses.dataclass(frozen=True)
class _Plan:
    """One user's search.

    history int64 [L]: numbers of clicks (see `HistoryRows`), −1 where the tower reads nothing; banned: sorted
    positions; allowed: those of which alone any may come, none of them banned; passing: those that pass the filter,
    where they are many.
    """
    options: SearchOptions
    history: np.ndarray
    banned: np.ndarray
    allowed: Optional[np.ndarray]
    passing: Optional[np.ndarray] = None


class Retriever:
    """Retrieves items for users.

    Args:
      bundle: loaded.
      defaults: of searches for which nothing else is said.

    Raises:
      UserError: more intents are asked for than the model has, or a popularity that the bundle does not offer.
    """

    def __init__(self, bundle: Bundle, defaults: SearchOptions = SearchOptions()):
        self.bundle = bundle
        self.available = bundle.manifest["intents"]
        self.several = self.available > 1
        if defaults.intents > self.available:
            raise UserError(f"--intents={defaults.intents}: the model of {bundle.path} has {self.available}; give at "
                            "most that many, or 0")
        self.defaults = dataclasses.replace(
            defaults, intents=defaults.intents or bundle.manifest["served_intents"],
            popularity=bundle.dial.checked(defaults.popularity, f"--popularity for {bundle.path}"))
        self.intents = self.defaults.intents
        self._passing = functools.lru_cache(_FILTERS)(self._live_passing)

    def __call__(self, requests: Sequence[UserRequest], options: Optional[Sequence[SearchOptions]] = None
                 ) -> tuple[list[Retrieved], Intents]:
        """Requests of N users, with options for each if not the defaults -> results, and what was searched with."""
        plans = self.plans(requests, options)
        users = self.encode(requests, plans)
        return self.retrieve(requests, plans, users), users

    def plans(self, requests, options=None) -> list[_Plan]:
        """Looks up all ids of all users at once."""
        options = [dataclasses.replace(self.defaults, popularity=request.popularity) for request in requests] if (
            options is None) else options
        options = [self._complete(asked, "a request" if request.user_id is None else f"user {request.user_id!r}")
                   for asked, request in zip(options, requests)]
        lists = [ids for request, asked in zip(requests, options)
                 for ids in (request.history, asked.exclude, asked.allow if asked.allow is not None else ())]
        ids = self.bundle.id_array(list(itertools.chain.from_iterable(lists)))
        ends = list(itertools.accumulate(map(len, lists), initial=0))
        live, known = self.bundle.both_positions(ids)
        plans = []
        for row, asked in enumerate(options):
            start, excluded, allowed, end = ends[3 * row:3 * row + 4]
            banned = live[start if asked.exclude_seen else excluded:allowed]
            banned = np.unique(banned[banned >= 0]) if len(banned) else banned
            kept, passing = None, self._passing(asked.passing) if asked.passing else None
            if asked.allow is not None:
                kept = np.setdiff1d(live[allowed:end], [*banned, -1])
            if passing is not None and (kept is not None or len(passing) <= FEW):
                kept, passing = passing[~among(passing, banned)] if kept is None else kept[among(kept, passing)], None
            plans.append(_Plan(asked, known[start:excluded], banned, kept, passing))
        return plans

    def retrieve(self, requests, plans: Sequence[_Plan], users: Intents) -> list[Retrieved]:
        """Searches with the vectors of N users, encoded from the same requests and plans."""
        merged = self.search(users, plans)
        return [self._result(request, plan, users, row, *merged[row])
                for row, (request, plan) in enumerate(zip(requests, plans))]

    def _live_passing(self, conditions):
        """Positions of the live items for which the conditions hold, ascending."""
        found = self.bundle.attributes.passing(conditions)
        return found[self.bundle.live[found]]

    def _complete(self, options, where="a request"):
        popularity = self.defaults.popularity
        if options.popularity is not None:
            popularity = self.bundle.dial.checked(options.popularity, where)
        return dataclasses.replace(options, intents=options.intents or self.intents, popularity=popularity)

    def _result(self, request, plan, users, row, best, scores, columns):
        known = plan.history >= 0
        unknown = [] if known.all() else list(dict.fromkeys(itertools.compress(request.history, ~known)))
        fallback = not (known.any() or self._tells_more(request))
        brought, count = {}, plan.options.intents
        if self.several and not fallback:
            numbers = users.numbers[row]
            brought = dict(intents=numbers[columns[best >= 0]].tolist(),
                           weights=dict(zip(numbers[:count].tolist(), _rounded(users.weights[row, :count]))))
        return Retrieved(request.user_id, *self.named(best, scores, plan.options.titles), unknown, fallback, **brought)

    def _tells_more(self, request):
        """Whether a user without a known click is known by features."""
        return self.bundle.manifest["knows_strangers"] and any(self.bundle.query.row(request.query))

    def named(self, best: np.ndarray, scores: np.ndarray, titles: bool
              ) -> tuple[list, Optional[list[str]], list[float]]:
        """Positions [n], −1 for none, and their scores -> ids, titles if they are wanted and there are any, scores."""
        keep = best >= 0
        best = best[keep]
        wanted = titles and self.bundle.titles is not None
        return (self.bundle.item_ids[best].tolist(), self.bundle.titles[best].tolist() if wanted else None,
                _rounded(scores[keep]))

    def search(self, users: Intents, plans: Sequence[_Plan]) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Of each user, searched with these vectors: merged positions, scores and columns of `users`, each [k]."""
        results = [None] * len(plans)
        lists = self._nearest(users, plans)
        # Of equal k and merge at once: a quota depends on k.
        for (k, merge), rows in _groups((plan.options.k, plan.options.merge) for plan in plans):
            for width, alike in _groups(lists[row][0].shape for row in rows):
                chosen = [rows[i] for i in alike]
                near, scores = (np.stack([lists[row][part] for row in chosen]) for part in (0, 1))
                if merge == "quota":
                    merged = merge_lib.by_quota(near, scores, users.weights[chosen, :width[0]], k)
                else:
                    merged = merge_lib.by_maximum(near, scores, k)
                for place, row in enumerate(chosen):
                    results[row] = tuple(part[place] for part in merged)
        return results

    def _nearest(self, users, plans):
        """Of each user: positions and scores [K,n] of the best items of each intent, without those banned."""
        lists, size = {}, self.bundle.index.size
        rows = []
        for row, plan in enumerate(plans):
            vectors, k = users.vectors[row, :plan.options.intents], plan.options.k
            if plan.allowed is not None:
                lists[row] = best_among(self.bundle.index, vectors, plan.allowed, k)
            elif plan.passing is not None:
                lists[row] = search_passing(self.bundle.index, vectors, plan.passing, plan.banned, k)
            else:
                rows.append(row)
        # k items more than may be banned are always enough, and few more usually are.
        for margin in (lambda plan: min(len(plan.banned), plan.options.k), lambda plan: len(plan.banned)):
            if not rows:
                break
            width = min(size, max(plans[row].options.k + margin(plans[row]) for row in rows))
            queries = np.concatenate([users.vectors[row, :plans[row].options.intents] for row in rows])
            near, scores = self.bundle.index.search(queries, width)
            start, short = 0, []
            for row in rows:
                plan = plans[row]
                part = slice(start, start + plan.options.intents)
                start += plan.options.intents
                lists[row] = near[part], scores[part]
                if len(plan.banned):
                    near[part][among(near[part], plan.banned)] = -1
                    enough = np.count_nonzero(near[part] >= 0, axis=1).min() >= plan.options.k
                    if not enough and width < min(size, plan.options.k + len(plan.banned)):
                        short.append(row)
            rows = short
        return lists

    def encode(self, requests: Sequence[UserRequest], plans: Optional[Sequence[_Plan]] = None) -> Intents:
        """Requests of N users -> as many of their heaviest vectors as one of them is searched with."""
        plans = self.plans(requests) if plans is None else plans
        shape = len(requests), self.bundle.manifest["max_history"]
        positions, times, dwell = np.full(shape, -1), np.zeros(shape, np.int64), np.full(shape, -1)
        values, events = self.bundle.query, np.zeros(shape, np.int64)
        for row, (request, plan) in enumerate(zip(requests, plans)):
            recent = last_known(plan.history >= 0, shape[1])
            positions[row, :len(recent)] = plan.history[recent]
            if request.timestamps is not None:
                times[row, :len(recent)] = np.array(request.timestamps, np.int64)[recent]
            if request.dwell is not None:
                dwell[row, :len(recent)] = np.array(request.dwell, np.int64)[recent]
            if request.events is not None and values.events:
                events[row, :len(recent)] = np.array(values.event_numbers(request.events), np.int64)[recent]
        query = np.array([values.row(request.query) for request in requests], np.int64) if values.features else None
        request_times = np.array([request.request_time or 0 for request in requests], np.int64)
        count = max((plan.options.intents for plan in plans), default=self.intents)
        popularity = np.array([plan.options.popularity for plan in plans], np.float32)
        return self.bundle.recent_intents(positions, times, request_times, dwell, count, popularity, events, query)


def _groups(keys):
    """Places of equal keys, in the order of their first."""
    groups = {}
    for place, key in enumerate(keys):
        groups.setdefault(key, []).append(place)
    return groups.items()


def _rounded(values):
    return np.round(np.asarray(values, np.float64), 6).tolist()
