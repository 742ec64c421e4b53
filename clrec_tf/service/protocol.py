"""Connections of the HTTP door: uvicorn's protocol, within bounds of time, size and number, and with JSON errors."""
import collections
import logging
from typing import Callable

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from clrec_tf.config import ServeConfig

KEEP_ALIVE_S = 75  # that a connection may be idle between two requests
_UNREAD_S = 30  # that a client may leave an answer unread
_LINGER_S = 1  # of a connection that is refused: closed at once, what still comes would destroy the answer
_MAX_HEAD_BYTES = 65_536
_ALWAYS = ("/healthz", "/readyz", "/metrics")  # answered on surplus connections too, or a full service seems dead


def protocol(settings: ServeConfig, draining: Callable[[], bool]) -> type:
    """The protocol of one service; `draining` says whether clients are to open no further requests."""
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # or whoever sends garbage fills the log

    class Protocol(HttpToolsProtocol):
        """Timed from a request's first byte, or from the connection if none comes."""
        late = unread = head_bytes = None
        refused = False

        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.unanswered = collections.deque()  # several where requests are pipelined

        def connection_made(self, transport):
            super().connection_made(transport)
            self.late = self.loop.call_later(settings.read_timeout_s, transport.close)
            if len(self.connections) > settings.max_connections:
                self.app = _unless(self.app, _ALWAYS, settings.max_connections)

        def data_received(self, data):
            if self.refused:
                return
            if self.late is None and (self.cycle is None or self.cycle.response_complete):
                self.late = self.loop.call_later(settings.read_timeout_s, self.transport.close)
            super().data_received(data)
            if self.head_bytes is not None and not self.refused:
                self.head_bytes += len(data)
                if self.head_bytes > _MAX_HEAD_BYTES:
                    self._refuse(431, f"the request's head has more than {_MAX_HEAD_BYTES} bytes")

        def on_message_begin(self):
            self.head_bytes = 0
            super().on_message_begin()

        def on_headers_complete(self):
            self._in_time()
            super().on_headers_complete()
            while self.unanswered and self.unanswered[0].response_complete:
                self.unanswered.popleft()
            self.unanswered.append(self.cycle)
            if draining():
                self.cycle.keep_alive = False

        def on_message_complete(self):
            super().on_message_complete()
            if self.cycle.response_complete:  # the rest of a body that nobody read: the connection is idle from now on
                self._in_time()
                self._unset_keepalive_if_required()
                self.timeout_keep_alive_task = self.loop.call_later(KEEP_ALIVE_S, self.timeout_keep_alive_handler)

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
            super().connection_lost(exc)

        def _refuse(self, status, text):
            self._in_time()
            self.refused = True
            self.transport.write(_answer(status, text))
            self.transport.write_eof()
            self.late = self.loop.call_later(_LINGER_S, self.transport.abort)

        def _in_time(self):
            self.head_bytes = None
            if self.late is not None:
                self.late.cancel()
                self.late = None
    return Protocol


def _answer(status, text):
    reason = {400: b"Bad Request", 431: b"Request Header Fields Too Large"}[status]
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
