"""One loaded version at work: batches of jobs in, answers out."""
import time
from typing import Callable
from typing import Sequence

from absl import logging
import numpy as np

from clrec_tf.errors import UserError
from clrec_tf.retrieval.bundle import Bundle
from clrec_tf.retrieval.explanations import explanations
from clrec_tf.retrieval.retriever import Retriever
from clrec_tf.retrieval.search_options import SearchOptions
from clrec_tf.retrieval.signatures import PADDING
from clrec_tf.retrieval.signatures import read_signatures
from clrec_tf.retrieval.similar_items import similar_items
from clrec_tf.retrieval.user_requests import UserRequest
from clrec_tf.server.bodies import Job
from clrec_tf.server.faults import Broken
from clrec_tf.server.instances import instances_of
from clrec_tf.server.instances import ITEMS
from clrec_tf.server.instances import RETRIEVE
from clrec_tf.server.instances import SIMILAR

_WARM_BATCHES = (1, 2, 4, 8, 16, 32)


class Engine:
    """Tower, index and merge of one version; used by several threads.

    Args:
      bundle: loaded.
      defaults: options of searches that say nothing else.
      observe: called with (stage, seconds) for tower and search, once per batch.

    Raises:
      UserError: the defaults do not fit the model.
    """

    def __init__(self, bundle: Bundle, defaults: SearchOptions, observe: Callable[[str, float], None]):
        self.bundle, self.version = bundle, bundle.manifest["version"]
        self.id_type, self.intents = bundle.manifest["id_type"], bundle.manifest["intents"]
        self.signatures = read_signatures(bundle.path)  # now: the folder may go while this is served
        self.instances = instances_of(bundle.query.features)
        self._retriever = Retriever(bundle, defaults)
        self._observe = observe

    @property
    def defaults(self) -> SearchOptions:
        """Options of searches that say nothing else, complete for this model."""
        return self._retriever.defaults

    def warm_up(self) -> None:
        """Runs batches of usual sizes, so that no request waits for one-time work; raises what fails."""
        known, options = self.bundle.item_ids[:50].tolist(), self.defaults
        for size in _WARM_BATCHES:
            self._run([Job(RETRIEVE, UserRequest(None, known), options)] * size)
        self._run([Job(ITEMS, item=known[0]), Job(RETRIEVE, UserRequest(None, []), SearchOptions(allow=known[:1]))])
        inserted = self.bundle.item_ids[self.bundle.history_rows.positions[:1]].tolist()
        self._run([Job(RETRIEVE, UserRequest(None, known + inserted), options)])

    def __call__(self, jobs: Sequence[Job]) -> list:
        """An answer per job: a dict for JSON, or a `UserError`."""
        try:
            return self._run(jobs)
        except Exception as error:  # pylint: disable=broad-except  (one bad job must not take the others with it)
            if len(jobs) > 1:
                return [self([job])[0] for job in jobs]
            if isinstance(error, UserError):
                return [error]
            logging.exception("a job failed: %s", jobs[0])
            return [Broken(f"this request failed inside the service ({type(error).__name__}); its log has the details")]

    def _run(self, jobs):
        answers = [None] * len(jobs)
        ways = {ITEMS: self._items, SIMILAR: self._similar}
        for way in (self._items, self._similar, self._users):
            rows = [row for row, job in enumerate(jobs) if ways.get(job.signature, self._users) == way]
            if rows:
                for row, answer in zip(rows, way([jobs[row] for row in rows])):
                    answers[row] = answer
        return answers

    def _users(self, jobs):
        requests = [job.request for job in jobs]
        started = time.perf_counter()
        plans = self._retriever.plans(requests, [job.options for job in jobs])
        users = self._retriever.encode(requests, plans)
        encoded = time.perf_counter()
        self._observe("tower", encoded - started)
        wanted = [row for row, job in enumerate(jobs) if job.signature == RETRIEVE]
        answers = [None] * len(jobs)
        if wanted:
            searched = users if len(wanted) == len(jobs) else users.of(wanted)
            results = self._retriever.retrieve([requests[r] for r in wanted], [plans[r] for r in wanted], searched)
            for row, result in zip(wanted, results):
                answers[row] = self._retrieved(result)
                if jobs[row].options.explain:
                    answers[row]["explanations"] = explanations(self._retriever, requests[row], plans[row], result.ids)
            self._observe("search", time.perf_counter() - encoded)
        for row, job in enumerate(jobs):
            if answers[row] is None:
                answers[row] = self._vectors(users, row, job.options.intents)
        return answers

    def _retrieved(self, result):
        answer = result.entries()
        answer.pop("user_id", None)
        padding = PADDING[self.id_type]
        if "unknown" in answer:
            answer["unknown"] = [item for item in answer["unknown"] if item != padding]
            if not answer["unknown"]:
                del answer["unknown"]
        return answer

    def _vectors(self, users, row, count):
        answer = dict(user_vectors=users.vectors[row, :count].tolist(), weights=users.weights[row, :count].tolist())
        return answer | (dict(intents=users.numbers[row, :count].tolist()) if self.intents > 1 else {})

    def _similar(self, jobs):
        found = similar_items(self._retriever, [job.item for job in jobs], [job.options for job in jobs])
        return [self._retrieved(result) for result in found]

    def _items(self, jobs):
        places = self.bundle.positions(self.bundle.id_array([job.item for job in jobs]))
        vectors = self.bundle.item_vectors(np.maximum(places, 0))
        return [dict(vectors=(vector if place >= 0 else np.zeros_like(vector)).tolist(), known=bool(place >= 0))
                for place, vector in zip(places, vectors)]
