"""Keeps the runtime busy: starts calls ahead of the results, and gives the results as they come."""
import threading

from absl import logging


class _Call:
    """One call. Its work is chosen when a worker takes it, and stays the same when another has to repeat it."""

    def __init__(self, choose, taken: threading.Event):
        self._choose, self._taken, self._lock = choose, taken, threading.Lock()
        self.steps, self.arguments, self.workers, self.result = 0, None, [], None

    def __call__(self, worker: int):
        with self._lock:
            if not self.workers:
                self.steps, self.arguments = self._choose(worker)
            self.workers.append(worker)
        self._taken.set()
        return self.arguments

    @property
    def holder(self) -> str:
        """Who has its steps, for messages: the worker that took it last."""
        return f"worker {self.workers[-1]} ({self.steps} steps)"

    @property
    def repeated(self) -> int:
        """Steps that may have been trained once more: a worker was lost on the way."""
        return self.steps * max(len(self.workers) - 1, 0)


class Dispatcher:
    """Calls of several steps each.

    Args:
      call: the compiled step, see ``step``.
      feed: chooses the work of a call, see ``feeds``.
      assignments: the feed's.
      runtime: where calls run.
      steps_per_call: at most.
      cut: calls do not run past multiples of this many steps, so that they can be reported there.
    """

    def __init__(self, call, feed, assignments, runtime, steps_per_call, cut):
        self._call, self._feed, self._assignments, self._runtime = call, feed, assignments, runtime
        self._steps_per_call, self._cut = steps_per_call, cut
        self._taken = threading.Event()

    def results(self, until: int, stop):
        """Trains up to a step.

        Args:
          until: steps in all, after which no call is under way.
          stop: with `exit_code`; when that is set, what is under way is finished and nothing new begun.

        Yields:
          (steps, steps that may have been repeated, worker, result) of each call, in the order in which calls end.
        """
        assignments, under_way = self._assignments, []
        assignments.limit = until
        while True:
            if stop.exit_code is not None:
                assignments.limit = min(assignments.limit, assignments.taken)
            while (len(under_way) < self._runtime.depth
                   and self._at_most(under_way) + assignments.taken < assignments.limit):
                call = _Call(self._next, self._taken)
                call.result = self._runtime.start(self._call, self._feed, call)
                under_way.append(call)
            if not under_way:
                return
            ended = [call for call in under_way if self._runtime.ended(call.result)]
            if not ended:
                self._runtime.wait(self._taken, under_way)
            for call in ended:
                result = self._runtime.fetch(call.result, call.holder)
                if result is None:  # lost with its worker: another takes the call
                    continue
                under_way.remove(call)
                if call.repeated:
                    logging.warning("%d steps were begun by worker %s and then done by worker %d: they may be trained "
                                    "twice", call.steps, ", ".join(map(str, call.workers[:-1])), call.workers[-1])
                if call.steps:  # none where another worker was quicker
                    yield call.steps, call.repeated, call.workers[-1], self._call.named(result)

    def _at_most(self, under_way) -> int:
        """Steps that calls may still take which no worker has taken."""
        return self._steps_per_call * sum(not call.workers for call in under_way)

    def _next(self, worker):
        to_cut = self._cut - self._assignments.taken % self._cut
        return self._feed.next(worker, min(self._steps_per_call, to_cut))
