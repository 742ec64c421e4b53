"""Requests at due times that no answer delays, and how long after its due time each was answered.

  python -m clrec_tf.lab.benchmarks.open_loop < spec.json > found.json

A loop that waits for answers before it sends more asks less the slower the server is, and so never sees it overloaded.
Here arrivals are Poisson's, drawn beforehand, and latency counts from the moment at which a request was due, so that
what is sent late, by the fault of either side, is counted as late. A process of its own, which does little per request;
`valid` says whether it kept up: otherwise the figures are its own, not the server's.
"""
import asyncio
import collections
import dataclasses
import ipaddress
import json
import os
import subprocess
import sys
import time

import numpy as np

from clrec_tf.errors import UserError
from clrec_tf.lab.benchmarks.open_loop_connection import Connection

try:
    import uvloop
except ImportError:  # asyncio's own loop does, with more CPU time per request
    uvloop = None

MOST_REQUESTS, MOST_SECONDS = 1_000_000, 600.0
LATE_MS = 10.0  # of the 99th percentile of sending, beyond which a run says nothing of the server
SWEEP_S = 0.05  # between two looks for requests that timed out


@dataclasses.dataclass(frozen=True)
class Spec:
    """One run.

    Attributes:
      port: of a server on the loopback.
      path: posted to.
      bodies: JSON texts, sent in turn.
      rate: requests per second, on average.
      seconds: that requests are due in.
      seed: of the arrivals.
      timeout_s: after its due time, when a request counts as not answered and its connection is closed.
      connections: at most, all kept alive; a request that finds none free waits, and is sent late.
      host: of the loopback.
    """
    port: int
    path: str
    bodies: list[str]
    rate: float
    seconds: float
    seed: int = 0
    timeout_s: float = 5.0
    connections: int = 512
    host: str = "127.0.0.1"

    def __post_init__(self):
        if not ipaddress.ip_address(self.host).is_loopback:
            raise UserError(f"host={self.host}: load is sent to this machine's loopback only, such as 127.0.0.1")
        if not (0 < self.seconds <= MOST_SECONDS and 0 < self.rate * self.seconds <= MOST_REQUESTS):
            raise UserError(f"rate={self.rate}, seconds={self.seconds}: at most {MOST_SECONDS} seconds and "
                            f"{MOST_REQUESTS} requests")
        if not self.bodies or self.connections < 1 or self.timeout_s <= 0:
            raise UserError(f"{len(self.bodies)} bodies, connections={self.connections}, timeout_s={self.timeout_s}: "
                            "must all be positive")

    def arrivals(self) -> np.ndarray:
        """Seconds from the begin at which requests are due, ascending; the gaps are exponential."""
        random = np.random.default_rng(self.seed)
        # Poisson's count, and then uniform times: the same process.
        return np.sort(random.random(random.poisson(self.rate * self.seconds))) * self.seconds

    def messages(self) -> list[bytes]:
        """The bodies as HTTP/1.1 requests."""
        head = (f"POST {self.path} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\nContent-Type: application/json\r\n"
                "Content-Length: ")
        return [f"{head}{len(body.encode())}\r\n\r\n{body}".encode() for body in self.bodies]


class Load:
    """One run of a spec."""

    def __init__(self, spec: Spec):
        self.spec, self._due, self._messages = spec, spec.arrivals(), spec.messages()
        count = len(self._due)
        self._sent, self._ended = np.full(count, np.nan), np.full(count, np.nan)
        self._status = np.zeros(count, np.int64)  # 0: none
        self._free, self._waiting, self._open, self._opening = [], collections.deque(), 0, 0
        self._pending = {}  # number -> connection, of those sent, in order of due times nearly
        self._next = self._failed = self._timed_out = self._refused = 0
        self._started, self._done, self._first = 0.0, None, None

    async def run(self) -> dict:
        """Offers the load and waits for the last answers."""
        loop = asyncio.get_running_loop()
        self._done = loop.create_future()
        self._open = self._opening = min(self.spec.connections, 1 + int(self.spec.rate / 10))
        await asyncio.gather(*(self._connect() for _ in range(self._open)))
        cpu, self._started = time.process_time(), time.perf_counter()
        self._due_now(loop)
        self._sweep(loop)
        await self._done
        wall, cpu = time.perf_counter() - self._started, time.process_time() - cpu
        return self._figures() | dict(cpu_share=round(cpu / wall, 3), wall_s=round(wall, 2))

    def _now(self):
        return time.perf_counter() - self._started

    def _due_now(self, loop):
        """Sends what is due, and comes again when the next is."""
        now = self._now()
        while self._next < len(self._due) and self._due[self._next] <= now:
            self._waiting.append(self._next)
            self._next += 1
        self._send_waiting(loop)
        if self._next < len(self._due):
            loop.call_later(max(0.0, self._due[self._next] - self._now()), self._due_now, loop)

    def _send_waiting(self, loop):
        while self._waiting:
            while self._free and self._free[-1].transport.is_closing():
                self._free.pop()
            if not self._free:
                for _ in range(min(len(self._waiting) - self._opening, self.spec.connections - self._open)):
                    self._open, self._opening = self._open + 1, self._opening + 1
                    loop.create_task(self._connect())
                return
            connection, number = self._free.pop(), self._waiting.popleft()
            self._sent[number], self._pending[number] = self._now(), connection
            connection.send(number, self._messages[number % len(self._messages)])

    async def _connect(self):
        """Opens a connection that is counted as `_open` and `_opening` already."""
        loop, spec = asyncio.get_running_loop(), self.spec
        try:
            _, connection = await loop.create_connection(lambda: Connection(self), spec.host, spec.port)
        except OSError:
            self._open, self._opening, self._refused = self._open - 1, self._opening - 1, self._refused + 1
            return
        self._opening -= 1
        self.free(connection)

    def free(self, connection):
        """A connection can take a request."""
        self._free.append(connection)
        if self._waiting:
            self._send_waiting(asyncio.get_running_loop())

    def answered(self, number, status, received):
        """A request has its answer."""
        self._ended[number], self._status[number] = self._now(), status
        self._pending.pop(number, None)
        if status == 200 and self._first is None:
            self._first = bytes(received).split(b"\r\n\r\n", 1)[1].decode()

    def lost(self, connection):
        """A connection has ended, perhaps under a request."""
        self._open -= 1
        if connection.request is not None and self._pending.pop(connection.request, None):
            self._failed += 1

    def _sweep(self, loop):
        """Gives up what has waited too long; ends the run when nothing is left."""
        latest = self._now() - self.spec.timeout_s
        for number in [number for number in self._pending if self._due[number] < latest]:
            connection = self._pending.pop(number)
            connection.request = None
            connection.transport.abort()
            self._timed_out += 1
        while self._waiting and self._due[self._waiting[0]] < latest:
            self._waiting.popleft()
            self._timed_out += 1
        self._send_waiting(loop)  # after connections that ended
        if self._next < len(self._due) or self._pending or self._waiting:
            loop.call_later(SWEEP_S, self._sweep, loop)
        else:
            self._done.set_result(None)

    def _figures(self):
        sent = ~np.isnan(self._sent)
        lag, latency = 1000 * (self._sent - self._due)[sent], 1000 * (self._ended - self._due)
        accepted = latency[self._status == 200]
        statuses, counts = np.unique(self._status[self._status > 0], return_counts=True)
        late = percentiles(lag)
        never = len(self._due) - int(sent.sum())
        return dict(
            offered=len(self._due), offered_per_s=round(len(self._due) / self.spec.seconds, 2),
            accepted_per_s=round(len(accepted) / self.spec.seconds, 2),
            statuses={str(status): int(count) for status, count in zip(statuses, counts)},
            latency_ms=percentiles(latency[self._status > 0]), accepted_ms=percentiles(accepted),
            not_answered=self._failed + self._timed_out, connections_lost=self._failed, timed_out=self._timed_out,
            never_sent=never, connections_refused=self._refused, send_lag_ms=late,
            valid=bool(len(self._due)) and not never and late["p99"] <= LATE_MS, first_answer=self._first)


def percentiles(values) -> dict:
    """p50, p90, p99 and max of values [N], rounded; empty where there are none."""
    if not len(values):
        return {}
    levels = np.percentile(values, [50, 90, 99, 100])
    return {name: round(float(level), 3) for name, level in zip(("p50", "p90", "p99", "max"), levels)}


def offer(spec: Spec) -> dict:
    """Runs a spec in a process of its own.

    Returns:
      Counts of requests `offered`, by `statuses` and `not_answered`; latencies in ms from the due times, of all answers
      and of the `accepted` ones, whose status is 200; `send_lag_ms`, how late requests were sent; `cpu_share`, of one
      core; `valid`; `first_answer`, a body of status 200.

    Raises:
      UserError: the process failed.
    """
    done = subprocess.run([sys.executable, "-m", "clrec_tf.lab.benchmarks.open_loop"], check=False, text=True,
                          input=json.dumps(dataclasses.asdict(spec)), capture_output=True)
    if done.returncode:
        raise UserError(f"the load generator failed: {done.stderr.strip()[-1500:]}")
    return json.loads(done.stdout)


def main() -> None:
    """From standard input to standard output."""
    loop = uvloop.new_event_loop() if uvloop else asyncio.new_event_loop()
    json.dump(loop.run_until_complete(Load(Spec(**json.load(sys.stdin))).run()), sys.stdout)
    sys.stdout.flush()
    os._exit(0)  # connections need no farewell


if __name__ == "__main__":
    main()
