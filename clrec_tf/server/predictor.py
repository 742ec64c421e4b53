"""From a request to its answer, over HTTP or gRPC: limits, batches, metrics."""
import collections
import contextlib
import ipaddress
import time
from typing import Callable
from typing import Optional
from typing import Sequence

import numpy as np

from clrec_tf.errors import UserError
from clrec_tf.retrieval.signatures import PADDING
from clrec_tf.server.aside import Aside
from clrec_tf.server import bodies
from clrec_tf.server.columns import plain as _plain
from clrec_tf.server.engine import Engine
from clrec_tf.server.faults import NotFound
from clrec_tf.server.faults import ServiceError
from clrec_tf.server.faults import TooMany
from clrec_tf.server.held_bytes import HeldBytes
from clrec_tf.server.impression_files import Shown
from clrec_tf.server.impression_log import ImpressionLog
from clrec_tf.server.instances import RETRIEVE
from clrec_tf.server.instances import SIMILAR
from clrec_tf.server.metrics import Metrics
from clrec_tf.server.micro_batches import MicroBatcher
from clrec_tf.server.versions import Versions
from clrec_tf.settings.service import ServeConfig

_MOST_LARGEST = 64  # requests of --max_request_bytes under way; of smaller ones more


class Predictor:
    """Answers requests by the version that is served when they come.

    Args:
      settings: of the service.
      versions: started.
      metrics: counts what happens.
      impressions: takes what users were given, or None.
    """

    def __init__(self, settings: ServeConfig, versions: Versions, metrics: Metrics,
                 impressions: Optional[ImpressionLog] = None):
        self.settings, self.versions, self.metrics = settings, versions, metrics
        self._batches = MicroBatcher(_run, settings.max_batch, settings.max_waiting, settings.max_wait_ms / 1e3,
                                     settings.timeout_ms / 1e3, metrics.observe, settings.serve_workers,
                                     lambda: versions.loading)
        self._clients, self._impressions = collections.Counter(), impressions
        self.aside, self.held = Aside(), HeldBytes(_MOST_LARGEST * settings.max_request_bytes)
        metrics.waiting(lambda: self._batches.waiting_jobs)

    async def json(self, body: bytes, version: str, client: str, request_id: str = "") -> dict:
        """A JSON body -> an object for JSON, which names the version that made it and the request.

        Raises `UserError` with a status, 400 if it has none.
        """
        with self.counted(client), self._answering() as (engine, set_signature):
            _check(version, engine)
            self._batches.admit(1)  # before any other work: refusing must be cheap under overload
            work = await self.aside(len(body), lambda: bodies.parse(
                body, engine.id_type, engine.defaults, self._limits(engine)))
            set_signature(work.signature)
            answers = await self._answers(engine, work, request_id)
            made_by = {"model_version": str(engine.version), "request_id": request_id}
            if not work.columns:
                return {"predictions": answers} | made_by
            names = dict.fromkeys(name for answer in answers for name in answer)
            return {"outputs": {name: [answer.get(name) for answer in answers] for name in names}} | made_by

    async def arrays(self, read: Callable[[dict], tuple[str, dict, str]], size: int, request_id: str = ""
                     ) -> tuple[dict, int]:
        """A request of a client that is `counted` -> arrays by output, padded as those of the SavedModel are, and the
        version that made them.

        Args:
          read: gives, by `instances.instances_of` the version served, the signature, arrays by input, and the version
            asked for, "" for any. Called once the request is admitted, not on the event loop if it is large.
          size: of the request, bytes.
          request_id: under which it is logged.

        Raises: as `json`, and what `read` does.
        """
        def work_of(engine):
            signature, inputs, version = read(engine.instances)
            _check(version, engine)
            columns = {name: _plain(values) for name, values in inputs.items()}
            work = bodies.by_columns(signature, columns, engine.id_type, engine.defaults, self._limits(engine))
            if any(job.options.explain for job in work.jobs):
                raise ServiceError("explain is answered over HTTP alone: leave it out")
            return work
        with self._answering() as (engine, set_signature):
            self._batches.admit(1)
            work = await self.aside(size, lambda: work_of(engine))
            set_signature(work.signature)
            answers = await self._answers(engine, work, request_id)
            count = sum(len(answer.get("ids", ())) for answer in answers)
            outputs = await self.aside(count, lambda: padded(answers, work.jobs, engine.id_type, engine.intents > 1))
            return outputs, engine.version

    async def _answers(self, engine, work, request_id):
        answers = await self._batches.submit([(engine, job) for job in work.jobs])
        for answer in answers:
            if isinstance(answer, UserError):
                raise answer
        self.metrics.answers(answers)
        if self._impressions and work.signature == RETRIEVE:
            self._impressions.shown([Shown(
                request_id, self.settings.model_name, engine.version, job.request.user_id, time.time(),
                job.options.popularity, answer["ids"], answer["scores"], answer.get("intents"))
                                     for job, answer in zip(work.jobs, answers)])
        return answers

    def _limits(self, engine):
        settings = self.settings
        return bodies.Limits(settings.max_k, settings.max_listed, settings.max_instances, engine.intents,
                             engine.bundle.dial, engine.bundle.query, engine.bundle.attributes)

    @contextlib.contextmanager
    def _answering(self):
        """Counts and times a request. Yields the engine, and a function to call with the signature once it is known."""
        started, signature, status = time.perf_counter(), "", 500

        def set_signature(name):
            nonlocal signature
            signature = name
        try:
            yield self.versions.engine, set_signature
            status = 200
        except UserError as error:
            status = getattr(error, "status", 400)
            raise
        finally:
            self.metrics.answered(signature, status, time.perf_counter() - started)

    @contextlib.contextmanager
    def counted(self, client: str):
        """While a request of a client's address is under way; `TooMany` if there are too many already."""
        limit = self.settings.max_per_client
        if not limit:
            yield
            return
        if ":" in client:  # of IPv6, where a client has 2^64 addresses
            with contextlib.suppress(ValueError):
                client = str(ipaddress.ip_network((client.partition("%")[0], 64), strict=False))
        if self._clients[client] >= limit:
            self.metrics.answered("", TooMany.status, 0.0)
            raise TooMany(f"{limit} requests of this address are under way (--max_per_client): wait for answers", 1)
        self._clients[client] += 1
        try:
            yield
        finally:
            self._clients[client] -= 1
            if not self._clients[client]:
                del self._clients[client]

    def close(self) -> None:
        """Waits for the batches under way, and writes what was shown."""
        self.aside.close()
        self._batches.close()
        if self._impressions:
            self._impressions.close()


def _check(version, engine):
    if version and version != str(engine.version):
        raise NotFound(f"version {version} is not served, version {engine.version} is")


def _run(pairs: Sequence[tuple[Engine, bodies.Job]]) -> list:
    """One batch; around a swap it may hold jobs of two versions, each of which its own version answers."""
    answers = [None] * len(pairs)
    for engine in dict.fromkeys(engine for engine, _ in pairs):
        rows = [row for row, (mine, _) in enumerate(pairs) if mine is engine]
        for row, answer in zip(rows, engine([pairs[row][1] for row in rows])):
            answers[row] = answer
    return answers


_TYPES = {"scores": np.float32, "intents": np.int32, "user_vectors": np.float32, "weights": np.float32,
          "vectors": np.float32, "known": bool}


def padded(answers: Sequence[dict], jobs: Sequence[bodies.Job], id_type: str, several: bool) -> dict:
    """Answers of N jobs as arrays [N,…] by output, as wide as those of the SavedModel and filled up alike.

    What the SavedModel does not give (unknown, fallback, titles, and weights of a retrieval) is left out.
    """
    width = None
    if jobs[0].signature in (RETRIEVE, SIMILAR):
        several &= jobs[0].signature == RETRIEVE
        width = (max(job.options.k for job in jobs),)
        # The SavedModel gives the most popular items, which no intent retrieved, as those of intent 0.
        answers = [dict(ids=answer["ids"], scores=answer["scores"]) | (
            dict(intents=answer.get("intents", [0] * len(answer["ids"]))) if several else {}) for answer in answers]
    outputs, fillings = {}, {"ids": PADDING[id_type], "scores": -np.inf, "intents": -1}
    for name in answers[0]:
        rows = [np.asarray(answer[name], _TYPES.get(name, object if id_type == "string" else np.int64))
                for answer in answers]
        shape = width or tuple(max(sizes) for sizes in zip(*(row.shape for row in rows)))
        outputs[name] = np.full((len(rows), *shape), fillings.get(name, 0), rows[0].dtype)
        for place, row in enumerate(rows):
            outputs[name][(place, *map(slice, row.shape))] = row
    return outputs
