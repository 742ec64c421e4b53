"""Every undocumented name of uvicorn that the server uses: that it is there, and does what is relied upon."""
import asyncio
import logging
import pathlib
import re
import signal

import pytest
import uvicorn
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from clrec_tf.server import private_uvicorn
from clrec_tf.server.private_uvicorn import SignalledServer

PACKAGE = pathlib.Path(private_uvicorn.__file__).parents[1]
GET, POST = b"GET /a HTTP/1.1\r\nhost: x\r\n\r\n", b"POST /b HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\n"
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n/a"


class Transport(asyncio.Transport):
    """Keeps what is written and whether it is closed; counts pauses."""

    def __init__(self):
        super().__init__()
        self.written, self.closed, self.pauses, self.resumptions = b"", False, 0, 0

    def write(self, data):
        self.written += data

    def close(self):
        self.closed = True

    def is_closing(self):
        return self.closed

    def pause_reading(self):
        self.pauses += 1

    def resume_reading(self):
        self.resumptions += 1


class Application:
    """Answers with the path when `open` is set; `heard` are the messages received."""

    def __init__(self):
        self.open, self.heard = asyncio.Event(), []

    async def __call__(self, scope, receive, send):
        more = scope["method"] == "POST"
        while more:
            self.heard.append(await receive())
            more = self.heard[-1].get("more_body", False)
        await self.open.wait()
        body = scope["path"].encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
        await send({"type": "http.response.body", "body": body})


def connected(test, kind=HttpToolsProtocol):
    """Runs `async def test(connection, transport, application)` with uvicorn's own connection, or one derived."""
    async def run():
        application, transport = Application(), Transport()
        config = uvicorn.Config(application, http=kind, lifespan="off", log_config=None,
                                proxy_headers=False)
        config.load()
        connection = config.http_protocol_class(config=config, server_state=ServerState(), app_state={})
        connection.connection_made(transport)
        await test(connection, transport, application)
    asyncio.run(run())


async def turns(count=20):
    """Lets tasks run."""
    for _ in range(count):
        await asyncio.sleep(0)


def test_a_connection_has_loop_transport_connections_and_an_application_that_may_be_replaced():
    async def test(connection, transport, application):
        async def other(scope, receive, send):
            await send({"type": "http.response.start", "status": 503, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body"})
        assert connection.loop is asyncio.get_running_loop() and connection.transport is transport
        assert connection in connection.connections and connection.app is application
        connection.app = other
        connection.data_received(GET)
        await turns()
        assert transport.written.startswith(b"HTTP/1.1 503 ") and not application.heard
    connected(test)


def test_a_cycle_says_how_far_request_and_answer_are():
    async def test(connection, transport, application):
        assert connection.cycle is None
        connection.data_received(POST + b"12")
        await turns()
        cycle = connection.cycle
        assert cycle.more_body and cycle.keep_alive and not (cycle.response_started or cycle.response_complete)
        connection.data_received(b"34")
        assert not cycle.more_body
        application.open.set()
        await turns()
        assert cycle.response_started and cycle.response_complete and transport.written.endswith(b"/b")
        assert not transport.closed
    connected(test)


def test_a_cycle_without_keep_alive_closes_after_its_answer():
    async def test(connection, transport, application):
        connection.data_received(GET)
        connection.cycle.keep_alive = False
        application.open.set()
        await turns()
        assert b"connection: close\r\n" in transport.written and transport.closed
    connected(test)


def test_a_disconnected_cycle_tells_its_application_and_writes_nothing():
    async def test(connection, transport, application):
        connection.data_received(POST + b"12")
        await turns()
        connection.cycle.disconnected = True
        connection.cycle.message_event.set()
        application.open.set()
        await turns()
        assert application.heard[-1] == {"type": "http.disconnect"} and transport.written == b""
    connected(test)


def test_later_requests_wait_in_the_pipeline_and_reading_is_paused():
    async def test(connection, transport, application):
        connection.data_received(GET)
        first = connection.cycle
        connection.data_received(GET)
        (waiting, its_application), = connection.pipeline
        assert waiting is connection.cycle is not first and its_application is application
        assert connection.flow.read_paused and transport.pauses == 1
        application.open.set()
        await turns()
        assert not connection.pipeline and waiting.response_complete and transport.written.count(b"/a") == 2
        assert not connection.flow.read_paused and transport.resumptions
    connected(test)


def test_the_end_of_an_answer_and_a_bad_request_call_what_may_be_overridden():
    calls = []

    class Derived(HttpToolsProtocol):
        def on_response_complete(self):
            super().on_response_complete()
            calls.append("answered")

        def send_400_response(self, msg):
            calls.append("bad")

    async def test(connection, transport, application):
        application.open.set()
        connection.data_received(GET)
        await turns()
        connection.data_received(b"garbage\r\n\r\n")
        assert calls == ["answered", "bad"] and b"400" not in transport.written
    connected(test, Derived)


def test_an_idle_connection_has_a_timer_that_calls_the_handler_and_can_be_unset():
    async def test(connection, transport, application):
        application.open.set()
        connection.data_received(GET)
        assert connection.timeout_keep_alive_task is None
        await turns()
        timer = connection.timeout_keep_alive_task
        connection._unset_keepalive_if_required()  # pylint: disable=protected-access
        assert timer.cancelled() and connection.timeout_keep_alive_task is None
        connection.timeout_keep_alive_handler()
        assert transport.closed
    connected(test)


def test_a_lost_connection_has_no_parser():
    async def test(connection, transport, application):
        assert connection.parser is not None
        connection.connection_lost(None)
        assert connection.parser is None and not connection.connections
    connected(test)


def test_a_flow_resumes_what_it_paused():
    async def test(connection, transport, application):
        assert type(connection.flow) is FlowControl  # made with the connection, and replaced by ours
        connection.flow.pause_reading()
        assert connection.flow.read_paused
        connection.flow.resume_reading()
        assert not connection.flow.read_paused and (transport.pauses, transport.resumptions) == (1, 1)
    connected(test)


@pytest.mark.parametrize("at_once", [False, True])
def test_a_server_hands_signals_on_and_ends_when_it_is_asked_to(at_once):
    signals = []
    before = signal.getsignal(signal.SIGTERM)

    async def run():
        loop, held = asyncio.get_running_loop(), asyncio.Event()

        async def application(scope, receive, send):
            await held.wait()
        server = SignalledServer(uvicorn.Config(application, port=0, lifespan="off", log_config=None), signals.append)
        loop.call_later(0.2, signal.raise_signal, signal.SIGTERM)
        serving = asyncio.create_task(server.serve())
        while not server.started or not signals:
            await asyncio.sleep(0.01)
        _, writer = await asyncio.open_connection(*server.servers[0].sockets[0].getsockname())
        writer.write(GET)
        await asyncio.sleep(0.2)
        assert not serving.done() and signals == [signal.SIGTERM]
        server.end(at_once)
        assert (await asyncio.wait([serving], timeout=1))[0] == ({serving} if at_once else set())
        held.set()
        writer.close()
        await asyncio.wait_for(serving, 10)
    asyncio.run(run())
    assert signal.getsignal(signal.SIGTERM) is before


def test_garbage_is_logged_by_the_logger_that_is_silenced(caplog):
    async def test(connection, transport, application):
        connection.data_received(b"garbage\r\n\r\n")
    caplog.set_level(logging.WARNING, "uvicorn.error")
    connected(test)
    assert "Invalid HTTP request" in caplog.text
    caplog.clear()
    private_uvicorn.log_errors_only()
    connected(test)
    assert not caplog.text


def test_no_other_module_names_what_is_not_documented_and_setup_admits_the_version_seen():
    pattern = re.compile(r"^(?:from|import) (uvicorn\S*)", re.MULTILINE)
    imports = {str(path.relative_to(PACKAGE)): pattern.findall(path.read_text()) for path in PACKAGE.rglob("*.py")}
    assert {path for path, names in imports.items() if set(names) - {"uvicorn"}} == {"server/private_uvicorn.py"}
    root, (seen,) = PACKAGE.parent, re.findall(r"uvicorn (\d+\.\d+),", private_uvicorn.__doc__)
    major, minor = map(int, seen.split("."))
    assert f'"uvicorn>={seen},<{major}.{minor + 1}"' in (root / "setup.py").read_text()
    for name in ("constraints.txt", "requirements.lock"):
        assert re.search(rf"^uvicorn=={re.escape(seen)}\.", (root / name).read_text(), re.MULTILINE), name
