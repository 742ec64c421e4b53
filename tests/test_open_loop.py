"""The load generator, against a small real server whose answers are known."""
import asyncio
import contextlib
import json
import threading
import time

import numpy as np
import pytest

from clrec_tf.errors import UserError
from clrec_tf.lab.benchmarks import open_loop
from clrec_tf.lab.benchmarks.open_loop import Spec


class Server:
    """Answers every request, in a thread of its own.

    Args:
      answer: number of the request, from 0 -> (status, seconds to wait before).
      close: whether it ends each connection after one answer.
    """

    def __init__(self, answer=lambda number: (200, 0.0), close=False):
        self.answer, self.close, self.bodies, self.connections = answer, close, [], 0

    async def serve(self, reader, writer):
        self.connections += 1
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                assert head.startswith(b"POST /ask HTTP/1.1\r\n") and b"Content-Type: application/json\r\n" in head
                length = int(head.split(b"Content-Length: ")[1].split(b"\r\n")[0])
                number = len(self.bodies)
                self.bodies.append(await reader.readexactly(length))
                status, seconds = self.answer(number)
                if seconds < 0:  # the whole server stands still
                    time.sleep(-seconds)
                elif seconds:
                    await asyncio.sleep(seconds)
                more = b"Connection: close\r\n" if self.close else b""
                body = b'{"number": %d}' % number
                # In two parts, as a network may bring them.
                writer.write(b"HTTP/1.1 %d Word\r\nCONTENT-length: %d\r\n%s\r\n" % (status, len(body), more))
                await writer.drain()
                writer.write(body)
                if self.close:
                    break
        writer.close()


@contextlib.contextmanager
def running(server):
    """The port of a server."""
    loop, ready = asyncio.new_event_loop(), threading.Event()

    async def listen():
        server.stop = asyncio.Event()
        async with await asyncio.start_server(server.serve, "127.0.0.1", 0, backlog=1000) as listening:
            server.port = listening.sockets[0].getsockname()[1]
            ready.set()
            await server.stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(listen(),))
    thread.start()
    ready.wait(10)
    try:
        yield server.port
    finally:
        loop.call_soon_threadsafe(server.stop.set)
        thread.join(10)
        loop.close()


def offered(port, rate, seconds, **more):
    return open_loop.offer(Spec(port, "/ask", ['{"a": 1}', '{"b": "ä"}'], rate, seconds, **more))


def test_arrivals_are_those_of_a_poisson_process():
    spec = Spec(1, "/ask", ["{}"], 200.0, 50.0, seed=3)
    due = spec.arrivals()
    gaps = np.diff(due)
    assert 0 < due[0] and due[-1] < 50 and (gaps >= 0).all()
    assert len(due) == pytest.approx(10_000, abs=4 * 100)  # standard deviation √10,000
    # Exponential gaps: mean = standard deviation = 1/rate, and a share e^−1 beyond the mean.
    assert gaps.mean() == pytest.approx(1 / 200, rel=.05) and gaps.std() == pytest.approx(1 / 200, rel=.05)
    assert np.mean(gaps > 1 / 200) == pytest.approx(np.exp(-1), abs=.02)
    np.testing.assert_array_equal(due, spec.arrivals())
    assert len(Spec(1, "/ask", ["{}"], 200.0, 50.0, seed=4).arrivals()) != len(due)


def test_all_is_sent_at_the_rate_and_statuses_are_counted():
    server = Server(lambda number: (503 if number % 4 == 3 else 200, 0.0))
    with running(server) as port:
        found = offered(port, 300.0, 2.0)
    count = len(Spec(1, "/ask", ["{}"], 300.0, 2.0).arrivals())
    assert found["offered"] == len(server.bodies) == count
    assert sorted(server.bodies[:40]) == sorted(['{"a": 1}'.encode(), '{"b": "ä"}'.encode()] * 20)
    assert found["statuses"] == {"200": count - count // 4, "503": count // 4}
    assert found["accepted_per_s"] == pytest.approx(found["statuses"]["200"] / 2.0, abs=.01)
    assert found["not_answered"] == found["never_sent"] == 0
    assert found["valid"] == (found["send_lag_ms"]["p99"] <= open_loop.LATE_MS)
    assert "number" in json.loads(found["first_answer"])
    assert 0 < found["send_lag_ms"]["p50"] < found["latency_ms"]["p50"]
    assert 0 < found["cpu_share"] < 1 and server.connections < 100  # kept alive


def test_a_stall_delays_all_that_was_due_meanwhile():
    """300 ms of 2 s: a share of .15 was due in them and waited, 150 ms on average; a loop that waits for answers would
    see one slow request."""
    with running(Server(lambda number: (200, -0.3 if number == 100 else 0.0))) as port:
        found = offered(port, 200.0, 2.0)
    assert found["latency_ms"]["p99"] > 200 and found["latency_ms"]["p90"] > 20
    assert found["send_lag_ms"]["p90"] < 20  # requests were sent all the while
    with running(Server()) as port:
        assert offered(port, 200.0, 1.0)["latency_ms"]["p90"] < found["latency_ms"]["p90"]
    assert found["accepted_ms"] == found["latency_ms"]


def test_with_too_few_connections_requests_are_sent_late_and_it_is_said():
    """One at a time, 20 ms each, so 50 per second of the 100 that are due: after a second they are a second late."""
    with running(Server(lambda number: (200, 0.02))) as port:
        found = offered(port, 100.0, 1.0, connections=1)
        assert not found["valid"] and found["send_lag_ms"]["max"] > 500
        assert found["latency_ms"]["max"] > 500 and sum(found["statuses"].values()) == found["offered"]
        # With connections enough the same server answers all in time.
        found = offered(port, 100.0, 1.0)
        assert 20 <= found["latency_ms"]["p50"] < 200 and found["send_lag_ms"]["max"] < 500


def test_what_is_not_answered_is_counted():
    with running(Server(lambda number: (200, 30.0 if number % 2 else 0.0))) as port:
        found = offered(port, 100.0, 0.5, timeout_s=0.3)
    assert found["timed_out"] == found["not_answered"] == found["offered"] // 2
    assert found["statuses"] == {"200": found["offered"] - found["offered"] // 2}
    with running(Server(close=True)) as port:  # every connection ends after its answer: new ones are opened
        found = offered(port, 100.0, 0.5)
    assert found["statuses"] == {"200": found["offered"]} and found["not_answered"] == 0
    found = offered(port, 100.0, 0.2, timeout_s=0.2)  # nobody listens any more
    assert found["never_sent"] == found["timed_out"] == found["offered"] and not found["valid"]
    assert found["statuses"] == found["accepted_ms"] == {} and found["connections_refused"] > 0


@pytest.mark.parametrize("changes, words", [
    (dict(host="192.0.2.1"), "loopback only"), (dict(seconds=601.0), "at most 600"),
    (dict(rate=1e7), "1000000 requests"), (dict(rate=0.0), "rate=0.0"), (dict(bodies=[]), "0 bodies")])
def test_load_is_bounded(changes, words):
    with pytest.raises(UserError, match=words):
        Spec(**(dict(port=1, path="/ask", bodies=["{}"], rate=1.0, seconds=1.0) | changes))


def test_a_failed_generator_is_an_error():
    spec = Spec(1, "/ask", ["{}"], 1.0, 1.0)
    object.__setattr__(spec, "bodies", [])
    with pytest.raises(UserError, match="(?s)the load generator failed: .*0 bodies"):
        open_loop.offer(spec)
