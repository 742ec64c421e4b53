"""Every name of uvicorn that it does not document and the server uses, in one file.

uvicorn documents its settings, and that `Config(http=…)` takes another implementation of connections, but not how its
own is extended. The server extends it because uvicorn bounds neither the time in which a request has to arrive nor the
size of its head, its trailers and its body, and answers what is no request in plain text.

Seen in uvicorn 0.54, and setup.py admits no other. With another version run tests/test_private_uvicorn.py first: it
names what is gone. Of `HttpToolsProtocol`, besides what asyncio.Protocol and the callbacks of httptools are:

* `loop`, `transport`, `connections` (of the whole server), and `app`, which may be replaced;
* `cycle`, the latest request, with `disconnected`, `keep_alive`, `message_event`, `more_body`, `response_started` and
  `response_complete`; `pipeline`, requests that wait for their turn, each with its `app`;
* `parser`, None once the connection is lost;
* `on_response_complete()` and `send_400_response()`, which are overridden;
* `timeout_keep_alive_task`, `timeout_keep_alive_handler()` and `_unset_keepalive_if_required()`;
* `flow`, a `FlowControl` with `read_paused` and `resume_reading()`.

Of `Server`: `handle_exit()`, which is overridden, `should_exit` and `force_exit`. And the logger "uvicorn.error".
"""
import collections
import logging
from typing import Callable

import uvicorn
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

KEEP_ALIVE_S = 75  # that a connection may be idle between two requests


def log_errors_only() -> None:
    """Silences uvicorn's warnings, of which there is one for each piece of garbage that a client sends."""
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)


class UvicornConnection(HttpToolsProtocol):
    """A connection whose requests and pauses others can follow.

    It answers a client that has ended its sending, closes idle connections without waiting for what is unread, and
    tells every request of a lost connection that its client has gone.

    Attributes:
      unanswered: requests, oldest first. Answered ones are left out when the next request comes.
    """

    def __init__(self, **arguments):
        super().__init__(**arguments)
        self.unanswered = collections.deque()

    @property
    def idle(self) -> bool:
        """Whether no request has come yet, or the latest is answered."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def all_answered(self) -> bool:
        """Whether every request is answered."""
        return all(cycle.response_complete for cycle in self.unanswered)

    @property
    def ended(self) -> bool:
        """Whether nothing can be answered any more."""
        return self.parser is None or self.transport.is_closing()

    @property
    def read_paused(self) -> bool:
        """Whether what comes has to wait."""
        return self.flow.read_paused

    def parse(self, data: bytes) -> None:
        """Parses what has come, which may begin any number of requests."""
        super().data_received(data)

    def reading_resumed(self) -> None:
        """For subclasses: an answer or a part of a body has been taken. Reading goes on with `read_on`."""

    def read_on(self) -> None:
        """Reads from the client again."""
        self.flow.read_paused = False
        self.transport.resume_reading()

    def close_after_answer(self) -> None:
        """Lets the client ask for nothing after the latest request."""
        self.cycle.keep_alive = False

    def give_up_request(self) -> bool:
        """Drops a request whose body is still coming; False if its answer has begun, which cannot be taken back."""
        cycle = self.cycle
        if self.idle or not cycle.more_body:
            return True
        if cycle.response_started:
            return False
        cycle.disconnected = True
        cycle.message_event.set()  # its application wakes up and sees that nobody waits
        self.unanswered.remove(cycle)
        self.pipeline = collections.deque(entry for entry in self.pipeline if entry[0] is not cycle)
        return True

    def connection_made(self, transport):
        super().connection_made(transport)
        self.flow = _Flow(transport, lambda: self.loop.call_soon(self.reading_resumed))

    def on_headers_complete(self):
        super().on_headers_complete()
        while self.unanswered and self.unanswered[0].response_complete:
            self.unanswered.popleft()
        self.unanswered.append(self.cycle)

    def on_message_complete(self):
        super().on_message_complete()
        if self.cycle.response_complete:  # the end of a body that nobody read: the connection is idle from now on
            self._unset_keepalive_if_required()
            self.timeout_keep_alive_task = self.loop.call_later(KEEP_ALIVE_S, self.timeout_keep_alive_handler)

    def eof_received(self):
        if not self.idle and not self.cycle.more_body:
            self.close_after_answer()  # nothing more will be asked, but the answer may be waited for
            return True
        return super().eof_received()

    def timeout_keep_alive_handler(self):
        self.transport.abort()  # close() would wait for a client that reads no more

    def connection_lost(self, exc):
        for cycle in self.unanswered:  # uvicorn tells only the latest, and the others would write
            cycle.disconnected = True
        self.pipeline.clear()
        super().connection_lost(exc)


class _Flow(FlowControl):
    """Calls `resumed` where uvicorn would resume reading."""

    def __init__(self, transport, resumed: Callable[[], None]):
        super().__init__(transport)
        self._resumed = resumed

    def resume_reading(self):
        if self.read_paused:
            self.read_paused = False
            self._resumed()


class SignalledServer(uvicorn.Server):
    """A server that leaves SIGTERM and SIGINT to a function.

    Args:
      config: uvicorn's.
      on_signal: takes the number of the signal.
    """

    def __init__(self, config: uvicorn.Config, on_signal: Callable[[int], None]):
        super().__init__(config)
        self._on_signal = on_signal

    def handle_exit(self, sig, frame):
        del frame
        self._on_signal(sig)

    def end(self, at_once: bool = False) -> None:
        """Ends accepting, and the server when all requests are answered or, `at_once`, without waiting for them."""
        self.force_exit = self.force_exit or at_once
        self.should_exit = True
