"""Micro-batching: while batches run, requests gather, and the next batch takes all of them.

No request waits for a batch to fill: under light load each is run at once, alone. Requests that would wait too long are
refused on arrival, so accepted ones keep their latency under any load.
"""
import asyncio
import collections
import concurrent.futures
import dataclasses
import math
import time
from typing import Any
from typing import Callable
from typing import Sequence

from clrec_tf.server.faults import Late
from clrec_tf.server.faults import Unavailable

_PATIENCE = 5  # times --timeout_ms, for answers that a pause delays
_SMOOTHING = 0.1  # weight of the latest batch in the seconds that a job is expected to take


@dataclasses.dataclass(eq=False)
class _Waiting:
    jobs: Sequence
    future: asyncio.Future
    came: float
    deadline: float


class MicroBatcher:
    """Runs jobs in batches on a few threads.

    Args:
      run: a list of jobs -> a list of answers; called by `workers` threads at a time.
      max_batch: most jobs of a batch; a request of more is a batch of its own.
      max_waiting: jobs that may wait.
      max_wait_s: longest predicted wait of a request that is accepted.
      timeout_s: after which an accepted request gets `Late`.
      observe: called with (measure, value): "wait" and "batch", in seconds; "jobs" of a batch.
      workers: batches that may run at a time. Tower and search run outside of Python's lock, so on as many cores.
      patient: whether a pause is under way that ends by itself: then only `max_waiting` bounds what is accepted, and
        answers may take several times as long.
    """

    def __init__(self, run: Callable[[Sequence], Sequence], max_batch: int, max_waiting: int, max_wait_s: float,
                 timeout_s: float, observe: Callable[[str, float], None] = lambda measure, value: None,
                 workers: int = 1, patient: Callable[[], bool] = lambda: False):
        self._run, self._observe, self._patient = run, observe, patient
        self._max_batch, self._max_waiting = max_batch, max_waiting
        self._max_wait_s, self._timeout_s = max_wait_s, timeout_s
        self._waiting = collections.deque()
        self._running, self._workers, self._free = 0, workers, workers  # jobs under way; all workers, and those free
        self._job_seconds = 0.0  # that one job adds to the wait of others, smoothed
        self._threads = concurrent.futures.ThreadPoolExecutor(workers, "batches")
        self.waiting_jobs = 0

    async def submit(self, jobs: Sequence) -> Sequence[Any]:
        """The answers of jobs, which run together.

        Raises:
          Unavailable: too many jobs wait.
          Late: no answer in time.
        """
        self.admit(len(jobs))
        loop, came = asyncio.get_running_loop(), time.perf_counter()
        timeout_s = self._timeout_s * (_PATIENCE if self._patient() else 1)
        entry = _Waiting(jobs, loop.create_future(), came, came + timeout_s)
        self._waiting.append(entry)
        self.waiting_jobs += len(jobs)
        self._start(loop)
        try:
            async with asyncio.timeout(timeout_s):
                return await entry.future
        except TimeoutError:
            raise Late(f"no answer within {timeout_s:g} s (--timeout_ms): the service has too much to do; try "
                       "again later, or with fewer instances", 1) from None

    def admit(self, count: int) -> None:
        """Raises Unavailable if a request of so many jobs would be refused now."""
        ahead = self.waiting_jobs + self._running
        wait = ahead * self._job_seconds
        # A request that would run alone is always tried, however many jobs it has.
        if ahead and (self.waiting_jobs + count > self._max_waiting or wait > self._max_wait_s and not self._patient()):
            raise Unavailable(f"{ahead} users are ahead, {wait * 1e3:.0f} ms of work, more than --max_waiting="
                              f"{self._max_waiting} or --max_wait_ms={self._max_wait_s * 1e3:g} allow: try again "
                              "later, or start more replicas", max(1, math.ceil(wait)))

    def _start(self, loop):
        """Begins batches while there are free workers and requests that wait."""
        while self._free and self._waiting:
            batch, jobs, now = [], 0, time.perf_counter()
            while self._waiting and (not batch or jobs + len(self._waiting[0].jobs) <= self._max_batch):
                entry = self._waiting.popleft()
                self.waiting_jobs -= len(entry.jobs)
                if entry.future.done() or now > entry.deadline:  # its client has got `Late`
                    continue
                jobs += len(entry.jobs)
                batch.append(entry)
            if batch:
                self._running += jobs
                self._free -= 1
                self._threads.submit(self._work, loop, batch, jobs, now)
            for entry in batch:
                self._observe("wait", now - entry.came)

    def _work(self, loop, batch, jobs, begun):
        """On a thread."""
        started = time.perf_counter()
        try:
            answers = self._run([job for entry in batch for job in entry.jobs])
        except BaseException as error:  # pylint: disable=broad-except  (or nobody would ever be answered)
            # Neither may end the event loop, nor does a future take the latter.
            answers = error if isinstance(error, Exception) and not isinstance(error, StopIteration) else (
                RuntimeError(f"a batch ended with {error!r}"))
        loop.call_soon_threadsafe(self._finish, loop, batch, jobs, begun, answers, time.perf_counter() - started)

    def _finish(self, loop, batch, jobs, begun, answers, seconds):
        # With the time until the event loop comes to it, which is what others wait for where the loop is busy too.
        share = (time.perf_counter() - begun) / (jobs * self._workers)
        self._job_seconds = share if not self._job_seconds else (
            (1 - _SMOOTHING) * self._job_seconds + _SMOOTHING * share)
        self._running -= jobs
        self._free += 1
        try:
            self._start(loop)  # first, so that the thread has work while answers are written
        finally:  # which come whatever happens to the next batch
            start = 0
            for entry in batch:
                if not entry.future.done():
                    if isinstance(answers, BaseException):
                        entry.future.set_exception(answers)
                    else:
                        entry.future.set_result(answers[start:start + len(entry.jobs)])
                start += len(entry.jobs)
        self._observe("batch", seconds)  # last: nobody's answer depends on it
        self._observe("jobs", jobs)

    def close(self) -> None:
        """Waits for the batches under way."""
        self._threads.shutdown()
