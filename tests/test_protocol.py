"""Connections by themselves, before a small application: how much of a request is taken, and in which order."""
import asyncio
import contextlib
import re

import pytest
import uvicorn
from uvicorn.server import ServerState
import uvloop

from clrec_tf.config import ServeConfig
from clrec_tf.server.protocol import protocol
from clrec_tf.server.request_bytes import SLICE, RequestBytes

READ_S, HEAD = 1.0, 65_536
POST = b"POST /%b HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"


class Application:
    """Answers with the size of the body, or before it is read (/early), or not before `open` is set (/held)."""

    def __init__(self):
        self.open, self.heads = asyncio.Event(), []

    async def __call__(self, scope, receive, send):
        self.heads.append(scope["headers"])
        size, more = 0, scope["path"] != "/early"
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            size, more = size + len(message.get("body", b"")), message.get("more_body", False)
        if scope["path"] == "/held":
            await self.open.wait()
        body = b"%b %d;" % (scope["path"].encode(), size)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
        await send({"type": "http.response.body", "body": body})


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def server(request):
    """Runs a test `async def (connect, application, connections)` beside a server."""
    def run(test):
        async def served():
            application, state, made = Application(), ServerState(), []
            settings = ServeConfig(read_timeout_s=READ_S, max_request_bytes=1_000_000)
            config = uvicorn.Config(application, http=protocol(settings, lambda: False), lifespan="off", ws="none",
                                    log_config=None, server_header=False, date_header=False)
            config.load()

            def connection():
                made.append(config.http_protocol_class(config=config, server_state=state, app_state={}))
                return made[-1]
            listener = await asyncio.get_running_loop().create_server(connection, "127.0.0.1", 0)
            port = listener.sockets[0].getsockname()[1]
            async with listener:
                await test(lambda: asyncio.open_connection("127.0.0.1", port), application, made)
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(asyncio.wait_for(served(), 30))
    return run


async def exchanged(connect, *parts, close=True):
    """All that comes for what is sent; sending ends where nobody reads any more."""
    reader, writer = await connect()

    async def send():
        with contextlib.suppress(ConnectionError):
            for part in parts:
                writer.write(part)
                await writer.drain()
            if close:
                writer.write_eof()
    sending, text = asyncio.create_task(send()), b""
    with contextlib.suppress(ConnectionError):
        while part := await reader.read(65_536):
            text += part
    await sending
    writer.close()
    return text


def statuses(text):
    return [int(number) for number in re.findall(rb"HTTP/1\.1 (\d+) ", text)]


def endless(part, count=3000):
    return [part] * count


@pytest.mark.parametrize("begin, part", [
    (POST % b"a" + b"2\r\n{}\r\n0\r\n", b"a: " + b"b" * 1000 + b"\r\n"), (POST % b"a" + b"0\r\na: ", b"b" * 1000),
    (POST % b"a" + b"0\r\n", b"a:b\r\n" * 200), (POST % b"early" + b"2\r\n{}\r\n0\r\n", b"a: " + b"b" * 1000 + b"\r\n"),
    (POST % b"a" + b"2;", b"b" * 1000)], ids=["lines", "one line", "short lines", "after the answer", "extension"])
def test_what_comes_around_a_body_is_bounded(server, begin, part):
    """Three megabytes of trailers or of a chunk's extension, which the parser or uvicorn would keep as they come."""
    async def test(connect, application, made):
        text = await exchanged(connect, begin, *endless(part))
        assert statuses(text) == ([200, 431] if b"/early" in begin else [431]), text
        assert b"more than 65536 bytes" in text
        assert sum(len(value) for head in application.heads for _, value in head) < 100
        assert made[0].refused and not made[0].unparsed
    server(test)


def test_trailers_of_usual_size_are_taken_and_are_no_headers(server):
    async def test(connect, application, made):
        text = await exchanged(connect, POST % b"a" + b"2\r\n{}\r\n0\r\nx-forwarded-for: 1.2.3.4\r\n\r\n" + POST % b"b"
                               + b"1\r\n.\r\n0\r\nconnection: close\r\n\r\n")
        assert statuses(text) == [200, 200] and b"/a 2;" in text and b"/b 1;" in text
        assert [dict(head).keys() for head in application.heads] == [{b"host", b"transfer-encoding"}] * 2
    server(test)


@pytest.mark.parametrize("size, expected", [(HEAD - 100, 200), (HEAD + 2 * SLICE, 431), (10**6, 431)])
def test_a_head_is_bounded_wherever_it_stands(server, size, expected):
    async def test(connect, application, made):
        one = b"GET /a HTTP/1.1\r\nx: " + b"y" * (size - 25) + b"\r\n\r\n"
        assert statuses(await exchanged(connect, one)) == [expected]
        text = await exchanged(connect, b"GET /b HTTP/1.1\r\n\r\n" * 500, one)
        assert statuses(text) == [200] * 500 + [expected]
    server(test)


def test_a_chain_of_any_length_is_answered_in_turn_and_waits_as_it_came(server):
    """A megabyte in one piece: answers come in order, and few requests are taken apart before their turn."""
    async def test(connect, application, made):
        text = await exchanged(connect, b"".join(b"GET /%d HTTP/1.1\r\nx: %b\r\n\r\n" % (n, b"y" * 200)
                                                 for n in range(4000)))
        assert statuses(text) == [200] * 4000
        assert [int(part.rpartition(b"/")[2][:-2]) for part in text.split(b";")[:-1]] == list(range(4000))
        sending = asyncio.create_task(exchanged(connect, b"GET /held HTTP/1.1\r\n\r\n"
                                                + b"GET / HTTP/1.1\r\n\r\n" * 20_000))
        for _ in range(100):
            await asyncio.sleep(0.01)
            assert len(made) == 1 or len(made[1].pipeline) < 30
        assert made[1].unparsed and made[1].flow.read_paused
        application.open.set()
        assert statuses(await sending) == [200] * 20_001
    server(test)


def test_bodies_in_a_chain_and_in_pieces_of_any_size(server):
    async def test(connect, application, made):
        chunks = lambda size, count: b"%x\r\n%b\r\n" % (size, b"z" * size) * count + b"0\r\n\r\n"
        sizes = [(1, 3000), (100_000, 9), (5000, 50), (17, 1), (300_000, 2)]
        whole = b"".join(POST % b"a" + chunks(*size) for size in sizes) + b"GET /b HTTP/1.1\r\n\r\n"
        expected = [b"/a %d" % (size * count) for size, count in sizes] + [b"/b 0"]
        for step in (len(whole), 70_001, 999):
            text = await exchanged(connect, *(whole[start:start + step] for start in range(0, len(whole), step)))
            assert [part.rpartition(b"\r\n")[2] for part in text.split(b";")[:-1]] == expected
    server(test)


def test_a_refusal_comes_after_the_answers_to_what_came_before(server):
    async def test(connect, application, made):
        for bad in (b"garbage\r\n\r\n", POST % b"a" + b"zz\r\n", POST % b"a" + b"0\r\n" + b"a: b\r\n" * 20_000):
            application.open.clear()
            asking = asyncio.create_task(exchanged(connect, b"GET /held HTTP/1.1\r\n\r\nGET /b HTTP/1.1\r\n\r\n", bad,
                                                   close=False))
            await asyncio.sleep(0.3)
            assert not asking.done()
            application.open.set()
            text = await asking
            assert statuses(text)[:2] == [200, 200] and statuses(text)[2] in (400, 431) and len(statuses(text)) == 3
            assert text.index(b"/held") < text.index(b"/b") < text.index(b"error")
    server(test)


def test_a_refused_body_is_read_on_but_not_for_ever(server):
    async def test(connect, application, made):
        text = await exchanged(connect, POST % b"early", *[b"100000\r\n" + b"z" * 2**20 + b"\r\n"] * 70, close=False)
        assert statuses(text) == [200, 413] and b"more than 67108864 bytes" in text
    server(test)


def test_half_a_request_behind_another_has_to_come_in_time(server):
    async def test(connect, application, made):
        begun = asyncio.get_running_loop().time()
        text = await exchanged(connect, b"GET /b HTTP/1.1\r\n\r\nGET /c HT", close=False)
        assert statuses(text) == [200] and READ_S / 2 < asyncio.get_running_loop().time() - begun < 10
    server(test)


def test_bytes_are_counted_in_one_place():
    counted = RequestBytes(1000)
    assert counted.fed(SLICE) is None  # between two requests
    counted.begin()
    assert [counted.fed(SLICE) for _ in range(16)] == [None] * 16 and counted.fed(SLICE)[0] == 431
    counted.begin()
    counted.head_ended()
    for _ in range(1000):
        counted.body(1)
        assert counted.fed(SLICE) is None
    assert [counted.fed(SLICE) for _ in range(15)] == [None] * 15 and counted.fed(SLICE)[0] == 431
    counted.end()
    assert counted.fed(SLICE) is None
