"""Connections of the HTTP server, within bounds of time, size and number, and with JSON errors."""
import functools
from typing import Callable

import msgspec

from clrec_tf.server.private_uvicorn import log_errors_only
from clrec_tf.server.private_uvicorn import UvicornConnection
from clrec_tf.server.request_bytes import RequestBytes
from clrec_tf.server.request_bytes import SLICE
from clrec_tf.server.timer import Timer
from clrec_tf.settings.service import ServeConfig

_HEAD_SLICE = 512  # bytes parsed at a time of what is no body: of a chain of requests, 28 at most
_UNREAD_S = 30  # that a client may leave an answer unread
_LINGER_S = 1  # of a connection that is refused: closed at once, what still comes would destroy the answer
_ALWAYS = ("/healthz", "/readyz", "/metrics")  # answered on surplus connections too, or a full service seems dead


def protocol(settings: ServeConfig, draining: Callable[[], bool]) -> Callable[..., "BoundedConnection"]:
    """What makes the connections of one service, for `uvicorn.Config(http=…)`.

    Args:
      settings: of the service.
      draining: whether clients are to send no further requests.
    """
    log_errors_only()
    return functools.partial(BoundedConnection, settings, draining)


class BoundedConnection(UvicornConnection):
    """A connection that ends if a request does not arrive in time, and refuses what is too large or no request.

    The time counts from a request's first byte, or from the connection if none comes. What comes is parsed a slice at
    a time, and no further while requests wait for the answers to earlier ones: the rest, at most what one read gives,
    waits in `unparsed` as it came.

    Args:
      settings, draining: see `protocol`.
      arguments: uvicorn's.

    Attributes:
      refused: whether nothing more is read but to be forgotten.
      unparsed: bytes that wait.
    """

    def __init__(self, settings: ServeConfig, draining: Callable[[], bool], **arguments):
        super().__init__(**arguments)
        self._settings, self._draining = settings, draining
        self._bytes = RequestBytes(settings.max_request_bytes)
        self.refused, self.unparsed = False, b""
        self._refusal = None  # the answer of a refusal that waits for its turn

    # Connections.

    def connection_made(self, transport):
        super().connection_made(transport)
        self._late = Timer(self.loop, self._settings.read_timeout_s, transport.close)
        self._unread = Timer(self.loop, _UNREAD_S, transport.abort)
        self._linger = Timer(self.loop, _LINGER_S, transport.abort)
        self._late.start()
        if len(self.connections) > self._settings.max_connections:
            self.app = _crowded(self.app, self._settings.max_connections)

    def pause_writing(self):
        super().pause_writing()
        self._unread.start()

    def resume_writing(self):
        super().resume_writing()
        self._unread.stop()

    def connection_lost(self, exc):
        for timer in (self._late, self._unread, self._linger):
            timer.stop()
        super().connection_lost(exc)

    # What comes, slice by slice.

    def data_received(self, data):
        if not self.refused:
            self.unparsed += data
            self._parse_slices()

    def reading_resumed(self):
        if self.refused or self.ended:
            return
        if self.pipeline:  # these first; each answer comes here
            self.flow.read_paused = True
            return
        self._parse_slices()
        if not self.read_paused and not self.ended:
            self.read_on()

    def _parse_slices(self):
        data, start = self.unparsed, 0
        while start < len(data) and not (self.read_paused or self.refused or self.ended):
            self._be_in_time()
            part = data[start:start + (SLICE if self._bytes.in_rest else _HEAD_SLICE)]
            start += len(part)
            self.parse(part)
            problem = self._bytes.fed(len(part))
            if problem and not self.refused:
                self._refuse(*problem)
        self.unparsed = b"" if self.refused else data[start:]

    def _be_in_time(self):
        """A request that has begun to come must arrive in time, counted from when nothing before it is under way."""
        if self.idle:
            self._late.start()

    # The parser's callbacks.

    def on_message_begin(self):
        self._bytes.begin()
        super().on_message_begin()

    def on_header(self, name, value):
        if self._bytes.in_head:  # trailers are read by nobody
            super().on_header(name, value)

    def on_headers_complete(self):
        self._late.stop()
        self._bytes.head_ended()
        super().on_headers_complete()
        if self._draining():
            self.close_after_answer()

    def on_body(self, body):
        self._bytes.body(len(body))
        super().on_body(body)

    def on_message_complete(self):
        self._bytes.end()
        super().on_message_complete()
        if self.idle:
            self._late.stop()

    # Answers and refusals.

    def on_response_complete(self):
        super().on_response_complete()
        if self._refusal is not None:
            self._refuse_in_turn()
        elif self._bytes.in_head and not self.pipeline:
            self._be_in_time()

    def send_400_response(self, msg):
        self._refuse(400, "this is no HTTP/1.1 request, or its body is not as its headers say")

    def _refuse(self, status, text):
        """Answers with an error after the answers to what came before, and reads no more."""
        self._late.stop()
        self.refused, self._refusal, self.unparsed = True, _error(status, text), b""
        if self.give_up_request():
            self._refuse_in_turn()
        else:
            self.transport.abort()

    def _refuse_in_turn(self):
        if self.all_answered and not self.transport.is_closing():
            self.transport.write(self._refusal)
            self.transport.write_eof()
            self._refusal = None
            self.read_on()  # and forget it: closing now, what still comes would destroy the answer
            self._linger.start()


def _error(status, text):
    """The bytes of an answer that ends the connection."""
    reason = {400: b"Bad Request", 413: b"Content Too Large", 431: b"Request Header Fields Too Large"}[status]
    body = msgspec.json.encode({"error": text})
    return (b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b"
            % (status, reason, len(body), body))


def _crowded(app, most):
    """The application of a connection too many: answers `_ALWAYS`, and 503 to everything else."""
    body = msgspec.json.encode({"error": f"more than {most} connections are open (--max_connections): keep fewer, or "
                                         "start more replicas"})
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), (b"retry-after", b"1"),
               (b"connection", b"close")]

    async def answer(scope, receive, send):
        if scope["type"] == "http" and scope["path"] in _ALWAYS:
            return await app(scope, receive, send)
        await send({"type": "http.response.start", "status": 503, "headers": headers})
        await send({"type": "http.response.body", "body": body})
    return answer
