"""Connections of the HTTP door: uvicorn's protocol, within bounds of time, size and number, and with JSON errors."""
import collections
import logging
from typing import Callable

import msgspec
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from clrec_tf.config import ServeConfig
from clrec_tf.server.request_bytes import SLICE, RequestBytes

KEEP_ALIVE_S = 75  # that a connection may be idle between two requests
_HEAD_SLICE = 512  # bytes parsed at a time of what is no body: of a chain of requests, 28 at most
_UNREAD_S = 30  # that a client may leave an answer unread
_LINGER_S = 1  # of a connection that is refused: closed at once, what still comes would destroy the answer
_ALWAYS = ("/healthz", "/readyz", "/metrics")  # answered on surplus connections too, or a full service seems dead


def protocol(settings: ServeConfig, draining: Callable[[], bool]) -> type:
    """The protocol of one service; `draining` says whether clients are to open no further requests."""
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # or whoever sends garbage fills the log

    class Protocol(HttpToolsProtocol):
        """Timed from a request's first byte, or from the connection if none comes.

        What comes is parsed a slice at a time, and no further while requests wait for the answers to earlier ones:
        what is left, at most what one read gives, waits in `unparsed` as it came.
        """
        late = unread = refusal = None
        refused, unparsed = False, b""

        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.unanswered = collections.deque()  # several where requests are pipelined
            self.bytes = RequestBytes(settings.max_request_bytes)

        def connection_made(self, transport):
            super().connection_made(transport)
            self.flow = _Flow(transport, lambda: self.loop.call_soon(self._go_on))
            self.late = self.loop.call_later(settings.read_timeout_s, transport.close)
            if len(self.connections) > settings.max_connections:
                self.app = _unless(self.app, _ALWAYS, settings.max_connections)

        def data_received(self, data):
            if not self.refused:
                self.unparsed += data
                self._parse()

        def _go_on(self):
            """After reading was resumed."""
            if self.refused or self.parser is None or self.transport.is_closing():
                return
            if self.pipeline:  # these first; each answer comes here
                self.flow.read_paused = True
                return
            self._parse()
            if not self.flow.read_paused and not self.transport.is_closing():
                self.transport.resume_reading()

        def _parse(self):
            data, start = self.unparsed, 0
            while start < len(data) and not (self.flow.read_paused or self.refused or self.transport.is_closing()):
                self._be_in_time()
                part = data[start:start + (SLICE if self.bytes.in_rest else _HEAD_SLICE)]
                start += len(part)
                super().data_received(part)
                problem = self.bytes.fed(len(part))
                if problem and not self.refused:
                    self._refuse(*problem)
            self.unparsed = b"" if self.refused else data[start:]

        def _be_in_time(self):
            """What has begun to come has to be there in time, from when nothing before it is under way."""
            if self.late is None and (self.cycle is None or self.cycle.response_complete):
                self.late = self.loop.call_later(settings.read_timeout_s, self.transport.close)

        def on_message_begin(self):
            self.bytes.begin()
            super().on_message_begin()

        def on_header(self, name, value):
            if self.bytes.in_head:  # trailers are read by nobody
                super().on_header(name, value)

        def on_headers_complete(self):
            self._in_time()
            self.bytes.head_ended()
            super().on_headers_complete()
            while self.unanswered and self.unanswered[0].response_complete:
                self.unanswered.popleft()
            self.unanswered.append(self.cycle)
            if draining():
                self.cycle.keep_alive = False

        def on_body(self, body):
            self.bytes.body(len(body))
            super().on_body(body)

        def on_message_complete(self):
            self.bytes.end()
            super().on_message_complete()
            if self.cycle.response_complete:  # the rest of a body that nobody read: the connection is idle from now on
                self._in_time()
                self._unset_keepalive_if_required()
                self.timeout_keep_alive_task = self.loop.call_later(KEEP_ALIVE_S, self.timeout_keep_alive_handler)

        def on_response_complete(self):
            super().on_response_complete()
            if self.refusal is not None:
                self._refuse_in_turn()
            elif self.bytes.in_head and not self.pipeline:
                self._be_in_time()

        def eof_received(self):
            if self.cycle is not None and not self.cycle.response_complete and not self.cycle.more_body:
                self.cycle.keep_alive = False  # nothing more will be asked, but the answer may be waited for
                return True
            return super().eof_received()

        def send_400_response(self, msg):
            self._refuse(400, "this is no HTTP/1.1 request, or its body is not as its headers say")

        def pause_writing(self):
            super().pause_writing()
            self.unread = self.unread or self.loop.call_later(_UNREAD_S, self.transport.abort)

        def resume_writing(self):
            super().resume_writing()
            if self.unread is not None:
                self.unread.cancel()
                self.unread = None

        def timeout_keep_alive_handler(self):
            self.transport.abort()  # close() would wait for a client that reads no more

        def connection_lost(self, exc):
            self._in_time()
            for cycle in self.unanswered:  # uvicorn tells only the latest, and the others would write
                cycle.disconnected = True
            self.pipeline.clear()  # what nobody waits for any more
            super().connection_lost(exc)

        def _refuse(self, status, text):
            """Answers with an error after what came before, and reads no more."""
            self._in_time()
            self.refused, self.refusal, self.unparsed = True, _answer(status, text), b""
            if self.cycle is not None and self.cycle.more_body and not self.cycle.response_complete:
                if self.cycle.response_started:
                    self.transport.abort()
                    return
                self.cycle.disconnected = True  # its application is told that nobody waits
                self.cycle.message_event.set()
                self.unanswered.remove(self.cycle)
                self.pipeline = collections.deque(entry for entry in self.pipeline if entry[0] is not self.cycle)
            self._refuse_in_turn()

        def _refuse_in_turn(self):
            if all(cycle.response_complete for cycle in self.unanswered) and not self.transport.is_closing():
                self.transport.write(self.refusal)
                self.transport.write_eof()
                self.refusal = None
                self.flow.read_paused = False
                self.transport.resume_reading()  # and forget: what still comes would destroy the answer
                self.late = self.loop.call_later(_LINGER_S, self.transport.abort)

        def _in_time(self):
            if self.late is not None:
                self.late.cancel()
                self.late = None
    return Protocol


class _Flow(FlowControl):
    """uvicorn's, but that reading is resumed by others, who are told so."""

    def __init__(self, transport, resumed):
        super().__init__(transport)
        self._resumed = resumed

    def resume_reading(self):
        if self.read_paused:
            self.read_paused = False
            self._resumed()


def _answer(status, text):
    reason = {400: b"Bad Request", 413: b"Content Too Large", 431: b"Request Header Fields Too Large"}[status]
    body = msgspec.json.encode({"error": text})
    return (b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b"
            % (status, reason, len(body), body))


def _unless(app, paths, most):
    """The application of a connection too many: answers these paths, and 503 to others."""
    body = msgspec.json.encode({"error": f"more than {most} connections are open (--max_connections): keep fewer, or "
                                         "start more replicas"})
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), (b"retry-after", b"1"),
               (b"connection", b"close")]

    async def crowded(scope, receive, send):
        if scope["type"] == "http" and scope["path"] in paths:
            return await app(scope, receive, send)
        await send({"type": "http.response.start", "status": 503, "headers": headers})
        await send({"type": "http.response.body", "body": body})
    return crowded
