"""The life of the service: listening, telling that it is ready, and an end that finishes what was accepted."""
import asyncio
import contextlib
import gc
import signal
import socket
import sys

from absl import logging
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from clrec_tf.config import ServeConfig
from clrec_tf.errors import UserError
from clrec_tf.service.app import make_app
from clrec_tf.service.metrics import Metrics
from clrec_tf.service.predictor import Predictor
from clrec_tf.service.versions import Versions

_SWITCH_S = 5e-4  # longest that a thread keeps Python's lock while another waits: 5 ms would be half of a good answer
_ENDING_S = 30  # for requests under way when accepting has ended
_KEEP_ALIVE_S = 75


def serve(settings: ServeConfig, versions: Versions, metrics: Metrics) -> None:
    """Serves until SIGTERM or SIGINT; a second one ends at once.

    Raises:
      UserError: the port cannot be had.
    """
    sys.setswitchinterval(_SWITCH_S)
    predictor = Predictor(settings, versions, metrics)
    server = _Server(settings)
    app = make_app(settings, versions, predictor, metrics, ready=lambda: not server.draining)
    server.config = uvicorn.Config(
        app, http=_protocol(settings.read_timeout_s), ws="none", loop="uvloop", lifespan="off", log_config=None,
        access_log=False, server_header=False, date_header=False, limit_concurrency=settings.max_connections,
        timeout_keep_alive=_KEEP_ALIVE_S, timeout_graceful_shutdown=_ENDING_S, backlog=2048)
    listener = _listener(settings.host, settings.port)
    host, port = listener.getsockname()[:2]
    versions.follow(settings.poll_s)
    # What was loaded stays: the collector need not walk through it again and again.
    gc.collect()
    gc.freeze()

    async def run():
        async with _grpc(settings, predictor, versions) as grpc_port:
            logging.info("serving %s version %d at http://%s:%d", settings.model_name, versions.engine.version,
                         host, port)
            if grpc_port:
                logging.info("gRPC at %s:%d", settings.host, grpc_port)
            signal.signal(signal.SIGHUP, lambda *_: versions.look_now())
            await server.serve([listener])
    with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
        runner.run(run())
    versions.stop()
    predictor.close()
    logging.info("ended; every accepted request was answered")


class _Server(uvicorn.Server):
    """uvicorn's, with an end in two steps: first /readyz says no, and after --drain_s accepting ends."""

    def __init__(self, settings: ServeConfig):
        super().__init__(uvicorn.Config(None, log_config=None))
        self._drain_s, self.draining = settings.drain_s, False

    def handle_exit(self, sig, frame):
        del frame
        if self.draining:
            self.should_exit, self.force_exit = True, True
            return
        self.draining = True
        logging.info("%s: not ready any more; accepting ends in %g s", signal.Signals(sig).name, self._drain_s)
        loop = asyncio.get_event_loop_policy().get_event_loop()
        loop.call_soon_threadsafe(loop.call_later, self._drain_s, self._stop)

    def _stop(self):
        self.should_exit = True


def _protocol(timeout_s):
    """uvicorn's HTTP protocol that closes a connection whose headers take longer than this."""
    class Protocol(HttpToolsProtocol):
        """Timed from a request's first byte, or from the connection if none comes."""
        late = None

        def connection_made(self, transport):
            super().connection_made(transport)
            self.late = self.loop.call_later(timeout_s, transport.close)

        def data_received(self, data):
            if self.late is None and (self.cycle is None or self.cycle.response_complete):
                self.late = self.loop.call_later(timeout_s, self.transport.close)
            super().data_received(data)

        def on_headers_complete(self):
            self._in_time()
            super().on_headers_complete()

        def connection_lost(self, exc):
            self._in_time()
            super().connection_lost(exc)

        def _in_time(self):
            if self.late is not None:
                self.late.cancel()
                self.late = None
    return Protocol


def _listener(host, port):
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.bind((host, port))
        return listener
    except OSError as error:
        raise UserError(f"--host={host} --port={port} cannot be listened at ({error.strerror or error}): give another, "
                        "or end what listens there; --port=0 takes any free one") from error


@contextlib.asynccontextmanager
async def _grpc(settings, predictor, versions):
    """Yields the port of gRPC, 0 if there is none."""
    if settings.grpc_port < 0:
        yield 0
        return
    from clrec_tf.service import grpc_door  # pylint: disable=import-outside-toplevel
    async with grpc_door.listening(settings, predictor, versions) as port:
        yield port
