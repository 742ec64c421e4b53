"""Attacks on the HTTP server: requests without end, chains of them, and clients that count as others."""
import concurrent.futures
import contextlib
import json
import socket
import threading
import time

import numpy as np

from tests.attacks.conftest import FULL
from tests import exported
from tests.attacks.watched_service import KNOWN, READ_S, watched
from tests.service_process import answer_of, ask, read_all

PREDICT = b"POST /v1/models/clrec:predict HTTP/1.1\r\nhost: x\r\n"
BODY = json.dumps({"signature_name": "retrieve", "instances": [{"history": [KNOWN], "k": 2}]}).encode()
CHUNKED = PREDICT + b"transfer-encoding: chunked\r\n\r\n"
SOUND = PREDICT + b"content-length: %d\r\n\r\n" % len(BODY) + BODY


def sent(target, begin, part=b"", seconds=0.0):
    """The answer to what is sent, whose last part is repeated as long as somebody takes it."""
    with contextlib.closing(target.service.connect()) as connection:
        end = time.monotonic() + seconds
        with contextlib.suppress(OSError):
            connection.sendall(begin)
            while part and time.monotonic() < end:
                connection.sendall(part)
        with contextlib.suppress(OSError):
            return read_all(connection)
    return b""


ENDLESS = {
    "trailers": (CHUNKED + b"2\r\n{}\r\n0\r\n", b"a: " + b"b" * 60_000 + b"\r\n"),
    "short trailers": (CHUNKED + b"2\r\n{}\r\n0\r\n", b"a:b\r\n" * 10_000),
    "one trailer": (CHUNKED + b"0\r\na: ", b"b" * 60_000), "an extension": (CHUNKED + b"2;", b"b" * 60_000),
    "a head": (PREDICT, b"a: " + b"b" * 60_000 + b"\r\n"), "one header": (PREDICT + b"a: ", b"b" * 60_000),
    "a path": (b"GET /", b"b" * 60_000), "a body": (CHUNKED, b"ea60\r\n" + b" " * 60_000 + b"\r\n"),
    "a body behind its answer": (b"GET /healthz HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n",
                                 b"ea60\r\n" + b" " * 60_000 + b"\r\n"),
    "trailers behind the answer": (b"GET /healthz HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n",
                                   b"a: " + b"b" * 60_000 + b"\r\n")}


def test_requests_without_end(attacks, target):
    """Each for a second, from several clients at a time."""
    with attacks("HTTP: requests without end") as group, target.unharmed(group):
        names = list(ENDLESS) * attacks.rounds(1, 8)
        with concurrent.futures.ThreadPoolExecutor(attacks.rounds(5, 16)) as pool:
            for name, text in zip(names, pool.map(lambda name: sent(target, *ENDLESS[name], seconds=1.0), names)):
                status = answer_of(text).status if text else 0
                allowed = (0, 200, 400, 408, 413, 431)  # 0: cut off while it was still sending
                group.count(status in allowed, f"{name}: {text[:100]}")


def test_chains(attacks, target):
    """Of a few to a megabyte of requests in one piece: each has its answer, in turn."""
    with attacks("HTTP: chains of requests") as group, target.unharmed(group):
        for count in [10, 300, 5000] * attacks.rounds(1, 8):
            chain = b"".join(b"GET /%d HTTP/1.1\r\nx: %b\r\n\r\n" % (number, b"y" * 180) for number in range(count))
            connection = target.service.connect()

            def send():
                with contextlib.suppress(OSError):
                    connection.sendall(chain)
                    connection.shutdown(socket.SHUT_WR)
            thread = threading.Thread(target=send)
            thread.start()
            text = read_all(connection)
            thread.join()
            connection.close()
            order = [f"GET /{number}: " for number in range(count)]
            found = [part.partition(b'"error":"')[2].partition(b"Not")[0].decode()
                     for part in text.split(b"HTTP/1.1 404")]
            group.count(found[1:] == order, f"{count} requests, {len(found) - 1} answers, {text[-200:]}")


def test_chains_that_nobody_reads(attacks, target):
    with attacks("HTTP: chains that nobody reads") as group, target.unharmed(group), contextlib.ExitStack() as stack:
        for _ in range(attacks.rounds(20, 200)):
            connection = stack.enter_context(contextlib.closing(target.service.connect()))
            connection.setblocking(False)
            size = 0
            with contextlib.suppress(BlockingIOError):
                while size < 30e6:
                    size += connection.send(b"GET / HTTP/1.1\r\n\r\n" * 3640)
            group.count(size < 30e6, "taken without end")
        time.sleep(1)
        group.count(target.healthy(), "others are not served")


def test_mutated_requests(attacks, target):
    """Bytes flipped, cut out and doubled: an answer of a client's fault, or none."""
    with attacks("HTTP: mutated requests") as group, target.unharmed(group):
        def one(seed):
            rng = np.random.default_rng(seed)
            sound = SOUND if seed % 2 else CHUNKED + b"%x\r\n%b\r\n0\r\nz: 1\r\n\r\n" % (len(BODY), BODY)
            text = bytearray(sound)
            for _ in range(rng.integers(1, 6)):
                place = int(rng.integers(len(text)))
                part = bytes(text[place:place + int(rng.integers(1, 30))])
                text[place:place + len(part)] = [rng.bytes(1), b"", part * 3, b"\r\n"][rng.integers(4)]
            with contextlib.closing(target.service.connect()) as connection:
                with contextlib.suppress(OSError):
                    connection.sendall(bytes(text))
                    connection.shutdown(socket.SHUT_WR)
                return read_all(connection)
        seeds = range(attacks.rounds(100, 3000))
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            for seed, text in zip(seeds, pool.map(one, seeds)):
                status = answer_of(text).status if text else 0
                group.count(status in (0, 100, 200, 400, 404, 405, 408, 413, 431), f"seed {seed}: {text[:100]}")


def test_slow_clients(attacks, target):
    """Heads and bodies that drip: each connection ends in time, while others are served."""
    with attacks("HTTP: slow clients") as group, target.unharmed(group), contextlib.ExitStack() as stack:
        begun = time.monotonic()
        connections = []
        for number in range(attacks.rounds(60, 1500)):
            connection = stack.enter_context(contextlib.closing(target.service.connect()))
            connection.sendall([b"", b"GET /hea", PREDICT, PREDICT + b"content-length: 9\r\n\r\n{", SOUND + b"GET /"
                                ][number % 5])
            connections.append(connection)
        group.count(target.healthy(), "others are not served")
        for number, connection in enumerate(connections):
            connection.settimeout(20)
            text = read_all(connection)
            group.count(answer_of(text).status in (200, 408) if text else True, f"{number}: {text[:100]}")
        group.count(time.monotonic() - begun < 20 * READ_S, "not in time")


def asked(service, header, text="10.{}.0.1", clients=6, each=6):
    """Statuses of requests that several connections send at a time, each under its own forwarded address."""
    body = json.dumps({"signature_name": "retrieve", "instances": [{"history": [KNOWN], "k": 60}] * 200}).encode()
    barrier = threading.Barrier(clients)

    def one(number):
        with contextlib.closing(service.client()) as client:
            client.connect()
            barrier.wait(20)
            return [ask(client, "/v1/models/clrec:predict", body, headers={header: text.format(number)}).status
                    for _ in range(each)]
    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        return [status for found in pool.map(one, range(clients)) for status in found]


def test_clients_that_call_themselves_others(attacks):
    """A header makes no other client, unless a proxy that is trusted sends it."""
    folder, few = exported.bundle_folder("int").rpartition("/")[0], ("--max_per_client=1", "--max_waiting=100000")
    with attacks("HTTP: forwarded-for") as group:
        if FULL:  # CI has this among the tests of faults
            with watched(folder, *few) as target:
                for header in ("x-forwarded-for", "forwarded", "x-real-ip"):
                    group.count(429 in asked(target.service, header), f"{header} makes others")
        with watched(folder, *few, "--trusted_proxies=127.0.0.1") as target:
            group.count(set(asked(target.service, "x-forwarded-for")) == {200}, "clients of a proxy count as one")
            group.count(429 in asked(target.service, "forwarded"), "another header is believed")
            group.count(429 in asked(target.service, "x-forwarded-for", "10.{}.9.9, 10.0.0.1"), "what a client wrote "
                        "before the proxy's own entry is believed")
