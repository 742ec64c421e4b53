"""What clients may do to the service, on purpose or not: it says so in JSON, serves the others, and stays."""
import collections
import concurrent.futures
import contextlib
import json
import socket
import threading
import time

import pytest

from tests import exported
from tests.service_process import answer_of, ask, read_all, serving, wait_for

PREDICT = "/v1/models/clrec:predict"
READ_S = 1.0
KNOWN = exported.original_id("int", 3)
BODY = json.dumps({"signature_name": "retrieve", "instances": [{"history": [KNOWN], "k": 2}]}).encode()


def folder(kind="int"):
    return exported.bundle_folder(kind).rpartition("/")[0]


@pytest.fixture(scope="module")
def service():
    """One for all, whose log holds no traceback in the end: nothing that a client does is a failure of the service."""
    with serving(folder(), f"--read_timeout_s={READ_S}", "--max_connections=40", "--max_listed=100000",
                 "--max_request_bytes=1500000", "--max_per_client=8", "--max_waiting=100000") as found:
        found.port  # pylint: disable=pointless-statement
        yield found
        assert healthy(found)
        assert "Traceback" not in found.log and "failed" not in found.log, found.log


def healthy(service):
    wait_for(lambda: service.predict(BODY).status == 200, 10)  # connections that ended may count for a moment
    return service.users({"history": [KNOWN], "k": 2})[0]["ids"][0] == KNOWN


def head(length, more=""):
    return f"POST {PREDICT} HTTP/1.1\r\nhost: x\r\n{more}content-length: {length}\r\n\r\n".encode()


def raw(service, *parts, wait=0.0):
    """What comes until the service closes the connection, and after how many seconds."""
    begun = time.monotonic()
    with contextlib.closing(service.connect()) as connection:
        for part in parts:
            connection.sendall(part)
            time.sleep(wait)
        return read_all(connection), time.monotonic() - begun


def nested(begin, end, middle=b"1"):
    return begin * 100_000 + middle + end * 100_000


@pytest.mark.parametrize("body", [
    b"", b"garbage", BODY[:-3], b"null", b"[]", b'"text"', b"1", b"\0", b"\xff\xfe", b"\xef\xbb\xbf{}", BODY + b"{}",
    nested(b"[", b"]"), b'{"instances": ' + nested(b"[", b"]") + b"}", b'{"inputs": ' + nested(b'{"a":', b"}") + b"}",
    nested(b'{"instances":', b"}")[:10**6], b"[" * 100_000, b'{"inputs": {"history": ' + nested(b"[", b"]") + b"}}",
    b'{"instances": [{"history": [NaN]}]}', b'{"instances": [{"history": [-Infinity]}]}',
    b'{"instances": [{"history": [1e999]}]}', b'{"instances": [{"history": [%s]}]}' % (b"9" * 5000),
    b'{"instances": [{"history": ["\\ud800"]}]}', b'{"instances": [{"history": ["\xed\xa0\x80"]}]}',
    b'{"instances": [{"\\udfff": 1}]}', b'{"signature_name": "%s"}' % (b"x" * 10**6)], ids=range(25))
def test_bodies_that_are_not_meant_to_be_read_are_refused(service, body):
    for kept in (body, body.replace(b'{"instances"', b'{"signature_name": "retrieve", "instances"', 1)):
        answer = service.predict(kept)
        assert answer.status == 400 and 10 < len(answer.error) < 1100, answer


WRONG = [0.5, True, None, "text", "1" * 30, [], [[]], {}, {"a": 1}, [None], [True], [0.5], ["text"], [{}], 10**30,
         2**63, -2**63, [10**30], [2**63], -1, 0, 10**9]
ENTRIES = ("history", "timestamps", "request_time", "dwell", "intents", "k", "exclude", "allow", "exclude_seen",
           "merge", "titles")


def test_every_entry_of_every_wrong_type_is_refused_and_none_breaks_the_service(service):
    """By instances and by inputs; what is right by chance is answered."""
    seen = collections.Counter()
    with contextlib.closing(service.client()) as client:
        for name in ENTRIES:
            for value in WRONG:
                instance = {"history": [KNOWN]} | {name: value}
                for body in ({"instances": [instance]}, {"inputs": {key: [one] for key, one in instance.items()}}):
                    answer = ask(client, PREDICT, json.dumps({"signature_name": "retrieve"} | body).encode())
                    seen[answer.status] += 1
                    if answer.status == 200:
                        assert value in (None, [], True, -1, 0, 10**9, [None]) or name in ("request_time",), instance
                    else:
                        assert answer.status == 400 and answer.error, (instance, answer)
    assert seen[400] > 300 and seen[200] > 20


@pytest.mark.parametrize("value", ["", "a\0b", "\0", "\u202e", "💥" * 1000, "x" * 10**5, " ä 3", "ä 3\n"])
def test_strange_ids_are_unknown_and_nothing_else(value):
    """In the engine: NumPy drops zero bytes at the end of texts, and compares those of any width."""
    from clrec_tf.server.bodies import Job  # pylint: disable=import-outside-toplevel
    from clrec_tf.server.instances import RETRIEVE  # pylint: disable=import-outside-toplevel
    from clrec_tf.server.engine import Engine  # pylint: disable=import-outside-toplevel
    from clrec_tf.retrieval.search_options import SearchOptions  # pylint: disable=import-outside-toplevel
    from clrec_tf.retrieval.user_requests import UserRequest  # pylint: disable=import-outside-toplevel
    engine = Engine(exported.loaded("string"), SearchOptions(), lambda stage, seconds: None)
    options = SearchOptions(k=3, intents=1)
    alone, beside = engine([Job(RETRIEVE, UserRequest(None, history), options)
                            for history in (["ä 3"], ["ä 3", value])])
    assert beside["ids"] == alone["ids"] and beside.get("unknown", []) == ([value] if value else [])


def test_numbers_at_the_edge_of_int64(service):
    for number in (2**63 - 1, -2**63 + 1, -1, 0):
        [found] = service.users({"history": [KNOWN, number], "k": 2})
        assert found["ids"][0] == KNOWN and found.get("unknown", []) == [number] * (number != -1)
        assert service.users({"history": [], "exclude": [number], "allow": [number]})[0]["ids"] == []


def test_a_history_of_a_hundred_thousand_counts_by_its_last_and_a_million_is_refused(service):
    latest = [exported.original_id("int", number) for number in (9, 2, 6, 5)]
    [long] = service.users({"history": [KNOWN, 7] * 49_998 + latest})
    [short] = service.users({"history": latest})
    assert long["ids"] == short["ids"] and long["unknown"] == [7]
    answer = service.predict({"signature_name": "retrieve", "instances": [{"history": [7] * 100_001}]})
    assert answer.status == 400 and "history has 100001 ids, at most 100000 are accepted (--max_listed)" in answer.error
    answer = service.predict({"signature_name": "retrieve", "instances": [{"history": [7] * 10**6}]})
    assert answer.status == 413 and "at most 1500000 bytes are accepted (--max_request_bytes)" in answer.error


def test_bodies_of_any_framing(service):
    def pieces(count):
        for start in range(0, len(BODY), count):
            yield BODY[start:start + count]
    named = {"x-request-id": "mine"}
    expected = service.predict(BODY, headers=named).json
    for headers in ({}, {"content-type": "text/plain"}, {"content-type": "application/xml; charset=utf-16"},
                    {"content-type": ""}, {"accept-encoding": "gzip", "x-forwarded-for": "garbage, 1"}):
        assert service.predict(BODY, headers=headers | named).json == expected
    with contextlib.closing(service.client()) as client:  # chunked
        for count in (1, 7, 1000):
            client.request("POST", PREDICT, pieces(count), {"transfer-encoding": "chunked"} | named,
                           encode_chunked=True)
            assert json.loads(client.getresponse().read()) == expected
    text, _ = raw(service, head(len(BODY), "expect: 100-continue\r\nx-request-id: mine\r\nconnection: close\r\n"), BODY,
                  wait=0.1)
    assert text.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200") and text.endswith(json.dumps(
        expected, separators=(",", ":")).encode())
    text, _ = raw(service, (head(len(BODY)) + BODY) * 20 + head(len(BODY), "connection: close\r\n") + BODY)  # pipelined
    assert text.count(b"HTTP/1.1 200 OK") == text.count(b'"ids":[') == 21


def test_a_half_closed_connection_gets_its_answer(service):
    with contextlib.closing(service.connect()) as connection:
        connection.sendall(head(len(BODY)) + BODY)
        connection.shutdown(socket.SHUT_WR)
        assert answer_of(read_all(connection)).status == 200


@pytest.mark.parametrize("text, status", [
    (b"garbage\r\n\r\n", 400), (b"\x16\x03\x01\x02\x00\x01\x00" + b"\0" * 50, 400),
    (b"GET /\xff\xfe HTTP/1.0\r\n\r\n", 400), (b"CONNECT x:80 HTTP/1.1\r\nhost: x\r\n\r\n", 400),
    (head(-1) + b"{}", 400), (head("2\r\ncontent-length: 3") + b"{}", 400),
    (head(2, "transfer-encoding: chunked\r\n") + b"2\r\n{}\r\n0\r\n\r\n", 400),
    (f"POST {PREDICT} HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n".encode(), 400),
    (b"GET /healthz HTTP/1.1\r\na: " + b"b" * 300_000, 431), (b"GET /" + b"b" * 300_000, 431)])
def test_what_is_not_http_is_refused_in_json(service, text, status):
    found, seconds = raw(service, text)
    assert answer_of(found).status == status and answer_of(found).error and seconds < READ_S


def test_large_bodies_are_refused_by_their_length_and_by_what_comes(service):
    answer = service.predict(b" " * 20_000_000)
    assert answer.status == 413 and "the body has 20000000 bytes" in answer.error
    with contextlib.closing(service.client()) as client:
        client.request("POST", PREDICT, (b" " * 100_000 for _ in range(40)), {"transfer-encoding": "chunked"},
                       encode_chunked=True)
        answer = client.getresponse()
        assert answer.status == 413 and "1500000 bytes" in json.loads(answer.read())["error"]
        # The connection goes on: what was left of the body is not taken for a request.
        assert ask(client, PREDICT, BODY).status == 200
        assert ask(client, "/v1/models/other:predict", b"x" * 1_000_000).status == 404
        assert ask(client, PREDICT, BODY).status == 200


def test_slow_clients_are_told_or_closed(service):
    drips = [bytes([one]) for one in b"GET /healthz HTTP/1.1\r\nhost: x\r\n"]
    slow = {
        "nothing": [], "half a head": [b"POST /v1"], "half a body": [head(20) + b"{}"],
        "a dripping body": [head(1000), *[b" "] * 30], "a dripping head": drips,
        "half a second request": [head(len(BODY)) + BODY, b"POST /v1"],
        "the body of a refusal": [b"POST /none HTTP/1.1\r\ncontent-length: 1000\r\n\r\n", *[b" "] * 30]}

    def one(name):
        begun = time.monotonic()
        with contextlib.closing(service.connect()) as connection:
            connection.settimeout(0.1)
            parts, text = collections.deque(slow[name]), b""
            while True:
                try:
                    if parts:
                        connection.sendall(parts.popleft())
                    part = connection.recv(65536)
                    if not part:
                        break
                    text += part
                except TimeoutError:
                    assert time.monotonic() - begun < 10, name
                except OSError:
                    break
        return text, time.monotonic() - begun
    with concurrent.futures.ThreadPoolExecutor(len(slow)) as pool:
        found = dict(zip(slow, pool.map(one, slow)))
    for name, (text, seconds) in found.items():
        assert 0.5 * READ_S < seconds < READ_S + 3, (name, seconds)
        statuses = [int(line.split()[1]) for line in text.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")]
        assert statuses == ([408] if name.endswith(" body") else [200] if "second" in name else
                            [404] if "refusal" in name else []), name
    assert f"did not arrive within {READ_S:g} s (--read_timeout_s)" in answer_of(found["half a body"][0]).error


def test_clients_that_go_away_or_do_not_read(service):
    before = service.memory()
    for text in (head(20), head(20) + b"{}", head(len(BODY)) + BODY, b"GET /", b""):
        for _ in range(20):
            with contextlib.closing(service.connect()) as connection:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset, not an end
                connection.sendall(text)
    many = json.dumps({"signature_name": "retrieve", "instances": [{"history": [], "k": 60}] * 200}).encode()
    with contextlib.closing(socket.socket()) as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connect(("127.0.0.1", service.port))
        deaf.setblocking(False)
        sent = 0
        with contextlib.suppress(BlockingIOError):
            while sent < 30_000_000:  # pipelined until the service reads no more
                sent += deaf.send((head(len(many)) + many) * 20)
        time.sleep(0.5)
        assert healthy(service)  # and the others are served
        assert sent < 30_000_000 and service.memory() - before < 50e6


def test_idle_connections_and_too_many(service):
    with contextlib.ExitStack() as stack:
        def idle(count):
            found = [stack.enter_context(contextlib.closing(service.client())) for _ in range(count)]
            assert all(ask(client, "/healthz").status == 200 for client in found)
            return found
        wait_for(lambda: service.predict(BODY).status == 200, 10)
        idlers = idle(30)
        assert service.predict(BODY).status == 200
        idlers += idle(15)  # beyond --max_connections=40
        answer = service.predict(BODY)
        assert answer.status == 503 and "more than 40 connections are open (--max_connections)" in answer.error
        assert answer.headers["retry-after"] == "1" and answer.headers["connection"] == "close"
        assert service.request("/healthz").status == service.request("/readyz").status == 200
        assert "clrec_requests_total" in service.request("/metrics").body.decode()
        assert ask(idlers[0], PREDICT, BODY).status == 200  # those who came before are served on
        assert ask(idlers[-1], PREDICT, BODY).status == 503
    assert healthy(service)


def test_one_client_may_have_only_so_many_requests_under_way(service):
    count, name = 120, 'clrec_requests_total{signature="",status="429"}'
    body = json.dumps({"signature_name": "retrieve", "instances": [{"history": [KNOWN], "k": 60}] * 200}).encode()
    before = service.metrics().get(name, 0)
    barrier = threading.Barrier(16)

    def one(number):
        with contextlib.closing(service.client()) as client:
            client.connect()
            barrier.wait(20)
            named = {"x-forwarded-for": f"10.0.0.{number}"}  # which makes no other client of it
            return [ask(client, PREDICT, body, headers=named) for _ in range(count // 16)]
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        answers = [answer for found in pool.map(one, range(16)) for answer in found]
    statuses = collections.Counter(answer.status for answer in answers)
    assert set(statuses) == {200, 429} and statuses[200] >= 8, statuses
    refused = next(answer for answer in answers if answer.status == 429)
    assert "8 requests of this address are under way (--max_per_client)" in refused.error
    assert refused.headers["retry-after"] == "1"
    assert service.metrics()[name] - before == statuses[429]


def test_overload_is_refused_and_those_accepted_keep_their_latency():
    """Several times what it can do: memory stays, each accepted request waits no longer than was promised."""
    body = json.dumps({"signature_name": "retrieve", "instances": [{"history": [KNOWN], "k": 60}] * 64}).encode()
    wait_s, seconds = 0.1, 5
    with serving(folder(), f"--max_wait_ms={wait_s * 1e3:g}", "--max_batch=64", "--max_waiting=4096",
                 "--max_connections=300") as service, contextlib.closing(service.client()) as client:
        alone = []
        for _ in range(20):
            begun = time.monotonic()
            assert ask(client, PREDICT, body).status == 200
            alone.append(time.monotonic() - begun)
        before, answers, end = service.memory(), [], time.monotonic() + seconds

        def one(_):
            with contextlib.closing(service.client()) as mine:
                while time.monotonic() < end:
                    begun = time.monotonic()
                    answer = ask(mine, PREDICT, body)
                    answers.append((answer.status, time.monotonic() - begun, answer))
                    time.sleep(0.02)
        with concurrent.futures.ThreadPoolExecutor(60) as pool:
            list(pool.map(one, range(60)))
        statuses = collections.Counter(status for status, _, _ in answers)
        assert set(statuses) == {200, 503} and statuses[200] > 20 and statuses[503] > 20, statuses
        refused = next(answer for status, _, answer in answers if status == 503)
        assert int(refused.headers["retry-after"]) >= 1 and "--max_wait_ms=100" in refused.error
        metrics = service.metrics()
        waits = {float(name.split('"')[1]): value for name, value in metrics.items()
                 if name.startswith("clrec_stage_seconds_bucket") and 'stage="wait"' in name}
        late = 1 - waits[0.5] / waits[float("inf")]  # as the service measures: the clients here share its cores
        assert late < 0.02 and service.memory() - before < 60e6, (waits, statuses, sorted(alone)[10])
        assert ask(client, PREDICT, body).status == 200
        assert "Traceback" not in service.log
